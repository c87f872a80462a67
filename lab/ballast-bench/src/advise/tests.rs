//! Short runs: where advice is near what balancing then did, and what is refused.

use clap::Parser;

use super::measure::{AdviceFigures, measure};
use super::report::OFF_MAX;
use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

/// The figures of one of the bench's hosts in ten minutes.
fn measured(host: &str, policy: PolicyName) -> AdviceFigures {
    let hosts = hosts::all(Duration::from_secs(600)).unwrap();
    let scenario = hosts.iter().find(|scenario| scenario.name == host).unwrap();
    measure(scenario, policy).unwrap()
}

#[test]
fn promised_memory_is_given_where_no_guest_swaps() {
    for (host, policy) in [
        ("idle", PolicyName::Global),
        ("swings", PolicyName::SelfScheduling),
        ("page cache", PolicyName::SelfScheduling),
    ] {
        let found = measured(host, policy);
        assert!(found.off.abs() <= OFF_MAX, "{found:?}");
        assert!(found.promised_bytes > found.held_bytes / 4, "{found:?}");
    }
}

#[test]
fn swap_ins_are_avoided_as_promised_where_all_fits() {
    let found = measured("uneven", PolicyName::Global);
    assert!(found.swap_off.is_some_and(|off| off.abs() <= OFF_MAX), "{found:?}");
    assert!(found.balanced_swap_in_bytes < found.swap_in_bytes / 10, "{found:?}");
}

#[test]
fn a_policy_that_waits_for_answers_is_refused() {
    let line = Line::parse_from(["advise", "--quick", "--policy", "tws"]);
    let error = compare(&line.args, &|_| ()).unwrap_err().to_string();
    assert!(error.contains("tws"), "{error}");
}
