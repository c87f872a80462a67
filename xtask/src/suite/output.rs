//! Parses the output of test programs into outcomes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::tally::Outcome;

/// The beginning of the line by which a test says that it cannot run on this machine; the reason
/// follows.
pub const SKIPPED: &str = "SKIPPED: ";

/// The outcomes of all tests of a program.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ProgramOutcomes {
    /// Number of tests that passed; `None` if the program ended without a result line.
    pub(super) passed: Option<usize>,
    /// Failed and skipped tests, by name.
    pub(super) special: BTreeMap<String, Outcome>,
}

/// Reads the output of a program run with `--show-output`.
pub(super) fn read_all(log: &str) -> ProgramOutcomes {
    let mut outcomes = ProgramOutcomes::default();
    // The test whose output follows, and the number of skipped tests that reported `ok`.
    let (mut of, mut skipped) = (None, 0);
    for line in log.lines() {
        if let Some(test) = header(line) {
            of = Some(test);
        } else if let Some((test, end)) = result(line) {
            if end == "FAILED" {
                outcomes.special.insert(test.to_owned(), Outcome::Failed);
            } else if let Some(why) = end.strip_prefix("ignored") {
                let reason = why.trim_start_matches(", ").to_owned();
                outcomes.special.insert(test.to_owned(), Outcome::Skipped { reason });
            }
        } else if let Some(counts) = line.strip_prefix("test result: ") {
            outcomes.passed = counts.split_whitespace().nth(1).and_then(|count| count.parse().ok());
        } else if let (Some(test), Some(reason)) = (of, line.strip_prefix(SKIPPED)) {
            // A failure outranks a skip; a test that prints the line twice counts once.
            if let Entry::Vacant(place) = outcomes.special.entry(test.to_owned()) {
                place.insert(Outcome::Skipped { reason: reason.to_owned() });
                skipped += 1;
            }
        }
    }
    outcomes.passed = outcomes.passed.map(|count: usize| count.saturating_sub(skipped));
    outcomes
}

/// Reads the output of one test, run with `--exact --nocapture`.
pub(super) fn read_one(log: &str, success: bool) -> Outcome {
    // The harness prints `test name ... ` before the test's first output, on the same line.
    let reason = log.lines().find_map(|line| Some(line.split_once(SKIPPED)?.1.to_owned()));
    let ran = log.lines().any(|line| line.contains("test result: ok. 1 passed"));
    match reason {
        _ if !success || !ran => Outcome::Failed,
        Some(reason) => Outcome::Skipped { reason },
        None => Outcome::Passed,
    }
}

/// `---- name stdout ----`
fn header(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

/// `test name ... end`
fn result(line: &str) -> Option<(&str, &str)> {
    let (test, end) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    Some((test.strip_suffix(" - should panic").unwrap_or(test), end))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\nrunning 5 tests
test a::fails ... FAILED
test a::passes ... ok
test b::says ... ok
test c::is_not_run ... ignored, too long
test d::panics - should panic ... ok

successes:

---- b::says stdout ----
looking for a swap area
SKIPPED: no swap area
SKIPPED: nor huge pages

successes:
    a::passes
    b::says

failures:

---- a::fails stdout ----
SKIPPED: and then it failed

failures:
    a::fails

test result: FAILED. 3 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.10s
";

    fn skipped(reason: &str) -> Outcome {
        Outcome::Skipped { reason: reason.to_owned() }
    }

    #[test]
    fn skipped_tests_do_not_count_as_passed() {
        let outcomes = read_all(LOG);
        assert_eq!(outcomes.passed, Some(2));
        let special = [
            ("a::fails", Outcome::Failed),
            ("b::says", skipped("no swap area")),
            ("c::is_not_run", skipped("too long")),
        ];
        assert_eq!(outcomes.special, special.map(|(test, end)| (test.to_owned(), end)).into());
    }

    #[test]
    fn a_program_that_ends_early_passed_nothing() {
        let cut = LOG.find("test result").unwrap();
        assert_eq!(read_all(&LOG[..cut]).passed, None);
    }

    #[test]
    fn one_test_passes_fails_or_is_skipped() {
        let result = "test result: ok. 1 passed; 0 failed; 0 ignored";
        for (log, success, outcome) in [
            (format!("test a ... ok\n{result}\n"), true, Outcome::Passed),
            (format!("test a ... SKIPPED: no KVM\nok\n{result}\n"), true, skipped("no KVM")),
            (format!("{result}\n"), false, Outcome::Failed),
            ("SKIPPED: no KVM\n".to_owned(), true, Outcome::Failed),
            ("test result: ok. 0 passed; 0 failed".to_owned(), true, Outcome::Failed),
        ] {
            assert_eq!(read_one(&log, success), outcome, "{log}");
        }
    }
}
