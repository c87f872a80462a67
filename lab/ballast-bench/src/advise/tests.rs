//! Short runs: where advice is close to the effect of balancing, and what is refused.

use super::measure::{AdviceFigures, measure};
use super::report::OFF_MAX;
use super::*;

/// The figures of one of the bench's hosts in ten minutes.
fn measured(host: &str, policy: PolicyName) -> AdviceFigures {
    let hosts = hosts::all(Duration::from_secs(600)).unwrap();
    let host = hosts.iter().find(|it| it.scenario.name == host).unwrap();
    measure(host, policy).unwrap()
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
fn promised_memory_is_given_where_swap_is_in_the_record() {
    for host in ["uneven", "uneven, agents", "uneven, late, agents"] {
        let found = measured(host, PolicyName::SelfScheduling);
        assert!(found.off.abs() <= OFF_MAX, "{found:?}");
        assert_eq!(found.guests_hiding_need, if host == "uneven" { 2 } else { 0 }, "{found:?}");
    }
}

#[test]
fn a_late_record_gives_a_bound_that_says_so() {
    let found = measured("uneven, late", PolicyName::Global);
    assert!(found.is_bound && found.guests_hiding_need == 2, "{found:?}");
    assert!(found.off > 0.0 && found.found_bytes > 0, "{found:?}");
}

#[test]
fn swap_ins_that_balancing_causes_are_reported_or_unknown() {
    let quiet = measured("idle", PolicyName::Global);
    assert_eq!((quiet.promised_caused_bytes, quiet.found_caused_bytes), (Some(0), 0), "{quiet:?}");
    let squeezed = measured("page cache", PolicyName::SelfScheduling);
    assert_eq!(squeezed.promised_caused_bytes, None, "{squeezed:?}");
    assert!(squeezed.found_caused_bytes > 1 << 30, "{squeezed:?}");
}

#[test]
fn swap_ins_are_avoided_as_promised_where_all_fits() {
    let found = measured("uneven", PolicyName::Global);
    assert!(found.avoided_off.is_some_and(|off| off.abs() <= OFF_MAX), "{found:?}");
    assert!(found.balanced_swap_in_bytes < found.swap_in_bytes / 10, "{found:?}");
}

#[test]
fn a_policy_that_waits_for_answers_is_refused() {
    let args = scaffold::parsed("--quick --policy tws").unwrap();
    let error = compare(&args, &|_| ()).unwrap_err().to_string();
    assert!(error.contains("tws"), "{error}");
}
