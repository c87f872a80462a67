//! The result of a check: a place, what is wrong there, and how to mend it.

use std::fmt;

/// Whether a finding fails the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// It is only printed.
    Warning,
    /// It fails the tests.
    Failure,
}

/// A place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether it fails the tests.
    pub severity: Severity,
    /// The file, and the line if there is one.
    pub place: String,
    /// What is wrong and how to mend it.
    pub what: String,
}

impl Finding {
    pub(crate) fn failure(place: impl fmt::Display, what: impl fmt::Display) -> Finding {
        Finding { severity: Severity::Failure, place: place.to_string(), what: what.to_string() }
    }

    pub(crate) fn warning(place: impl fmt::Display, what: impl fmt::Display) -> Finding {
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
