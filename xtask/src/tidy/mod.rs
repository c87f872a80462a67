//! The tidy check: what a machine can see of the rules in `CONTRIBUTING.md`.
//!
//! Idea: the workspace is loaded once into a [`Tree`]; every check is a pure function from it to
//! findings, in a file of its own, tested on small trees made up for it.
//! Limits: it reads tokens, not types; what needs types is left to clippy.

mod arrows;
mod decisions;
mod dependencies;
mod headers;
mod leftovers;
mod lengths;
mod map;
mod paths;
mod purity;
mod rust;
mod tree;
mod unsafe_code;

use std::fmt;

pub use tree::{Dependency, DependencyKind, Package, Tree};

/// Whether a finding stops the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// It is said.
    Warning,
    /// It stops.
    Failure,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether it stops the tests.
    pub severity: Severity,
    /// File, and line where there is one.
    pub place: String,
    /// What is wrong and what to do.
    pub what: String,
}

impl Finding {
    fn failure(place: impl fmt::Display, what: impl fmt::Display) -> Finding {
        Finding { severity: Severity::Failure, place: place.to_string(), what: what.to_string() }
    }

    fn warning(place: impl fmt::Display, what: impl fmt::Display) -> Finding {
        Finding { severity: Severity::Warning, ..Finding::failure(place, what) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Warning => "warning",
            Severity::Failure => "error",
        };
        write!(f, "{severity}: {}: {}", self.place, self.what)
    }
}

/// All checks, in the order of their places.
pub fn check(tree: &Tree) -> Vec<Finding> {
    const CHECKS: [fn(&Tree) -> Vec<Finding>; 10] = [
        arrows::check,
        decisions::check,
        dependencies::check,
        headers::check,
        leftovers::check,
        lengths::check,
        map::check,
        paths::check,
        purity::check,
        unsafe_code::check,
    ];
    let mut findings: Vec<Finding> = CHECKS.iter().flat_map(|check| check(tree)).collect();
    findings.sort_by(|a, b| (&a.place, &a.what).cmp(&(&b.place, &b.what)));
    findings
}
