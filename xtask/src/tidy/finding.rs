//! The result of a check: a place, what is wrong there, and how to mend it.

use std::fmt;

/// A place that breaks a rule; it fails the tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file, and the line if there is one.
    pub place: String,
    /// What is wrong and how to mend it.
    pub what: String,
}

impl Finding {
    pub(crate) fn new(place: impl fmt::Display, what: impl fmt::Display) -> Finding {
        Finding { place: place.to_string(), what: what.to_string() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}: {}", self.place, self.what)
    }
}
