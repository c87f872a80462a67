//! What a check says: a place, what is wrong there, and what to do.

use std::fmt;

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
