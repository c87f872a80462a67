//! Short runs: how near advice comes, and what is refused.

use clap::Parser;

use super::report::OFF_MAX;
use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn compared(arguments: &[&str]) -> anyhow::Result<Held<AdviceFindings>> {
    let line = Line::parse_from([&["advise"], arguments].concat());
    compare(&line.args, &|_| ())
}

#[test]
fn advice_is_near_what_balancing_then_did() {
    let held = compared(&["--quick"]).unwrap();
    let figures = &held.findings.figures;
    assert_eq!(figures.len(), 2 * hosts::all(Duration::from_secs(1)).unwrap().len());
    let text = held.render(None);
    for it in figures {
        assert!(it.off.abs() <= OFF_MAX, "{} {}: {text}", it.host, it.policy);
    }
    assert!(held.goals.is_empty() && text.contains("too short"), "{text}");
}

#[test]
fn a_policy_that_waits_for_answers_is_refused() {
    let error = compared(&["--quick", "--policy", "tws"]).unwrap_err().to_string();
    assert!(error.contains("tws"), "{error}");
}
