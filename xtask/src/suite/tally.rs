//! The outcomes of all tests, and their summary.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Number of slowest tests that the summary lists.
const SLOWEST: usize = 8;

/// The outcome of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It passed.
    Passed,
    /// It failed; a test with real guests failed twice.
    Failed,
    /// It failed, then passed when run again.
    Flaky {
        /// The log of its failure.
        log: PathBuf,
    },
    /// This machine lacks something that the test needs.
    Skipped {
        /// What is missing.
        reason: String,
    },
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Passed => write!(f, "passed"),
            Outcome::Failed => write!(f, "failed"),
            Outcome::Flaky { log } => write!(f, "flaky, first failed with {}", log.display()),
            Outcome::Skipped { reason } => write!(f, "skipped, {reason}"),
        }
    }
}

/// The outcomes of all tests.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    passed: usize,
    special: BTreeMap<String, Outcome>,
    /// Run times in seconds, of programs and single tests.
    times: Vec<(String, f64)>,
}

impl Tally {
    /// Counts tests that passed, without their names.
    pub fn add_passed(&mut self, count: usize) {
        self.passed += count;
    }

    /// Counts a test; a flaky one counts as passed.
    pub fn add(&mut self, name: String, outcome: Outcome) {
        let passed = matches!(outcome, Outcome::Passed | Outcome::Flaky { .. });
        self.passed += usize::from(passed);
        if outcome != Outcome::Passed {
            self.special.insert(name, outcome);
        }
    }

    /// Takes in the outcomes and run times of `other`.
    pub fn append(&mut self, other: Tally) {
        self.passed += other.passed;
        self.special.extend(other.special);
        self.times.extend(other.times);
    }

    /// Records a run time.
    pub fn time(&mut self, name: String, seconds: f64) {
        self.times.push((name, seconds));
    }

    /// Whether at least one test passed and none failed.
    pub fn is_success(&self) -> bool {
        self.passed > 0 && !self.special.values().any(|it| *it == Outcome::Failed)
    }

    fn list(
        &self,
        f: &mut fmt::Formatter<'_>,
        title: &str,
        is_listed: fn(&Outcome) -> bool,
    ) -> Result<usize, fmt::Error> {
        let listed: Vec<_> = self.special.iter().filter(|it| is_listed(it.1)).collect();
        if !listed.is_empty() {
            writeln!(f, "{title}:")?;
        }
        for (name, outcome) in &listed {
            match outcome {
                Outcome::Flaky { log } => writeln!(f, "  {name}: {}", log.display())?,
                Outcome::Skipped { reason } => writeln!(f, "  {name}: {reason}")?,
                Outcome::Passed | Outcome::Failed => writeln!(f, "  {name}")?,
            }
        }
        Ok(listed.len())
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut slowest: Vec<_> = self.times.iter().collect();
        slowest.sort_by(|a, b| b.1.total_cmp(&a.1));
        writeln!(f, "slowest:")?;
        for (name, seconds) in slowest.into_iter().take(SLOWEST) {
            writeln!(f, "  {seconds:6.1} s  {name}")?;
        }
        let skipped = self.list(f, "skipped", |it| matches!(it, Outcome::Skipped { .. }))?;
        let flaky =
            self.list(f, "flaky: failed once, passed when run again; the first log", |it| {
                matches!(it, Outcome::Flaky { .. })
            })?;
        let failed = self.list(f, "failed", |it| matches!(it, Outcome::Failed))?;
        if flaky > 0 {
            writeln!(f, "{flaky} flaky")?;
        }
        writeln!(f, "{} passed, {failed} failed, {skipped} skipped", self.passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flaky_tests_pass_and_are_named() {
        let mut tally = Tally::default();
        assert!(!tally.is_success(), "nothing ran");
        tally.add_passed(3);
        tally.add("a::flaky".into(), Outcome::Flaky { log: "/logs/a".into() });
        tally.add("b::none".into(), Outcome::Skipped { reason: "no swap".into() });
        assert!(tally.is_success());
        let text = tally.to_string();
        assert!(text.contains("the first log:\n  a::flaky: /logs/a\n"), "{text}");
        assert!(text.contains("skipped:\n  b::none: no swap\n"), "{text}");
        assert!(text.ends_with("1 flaky\n4 passed, 0 failed, 1 skipped\n"), "{text}");
        tally.add("c::red".into(), Outcome::Failed);
        assert!(!tally.is_success());
        assert!(tally.to_string().ends_with("4 passed, 1 failed, 1 skipped\n"));
    }
}
