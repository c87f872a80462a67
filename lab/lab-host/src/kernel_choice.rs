//! The choice of the Debian kernel that guests boot.
//!
//! Idea: each Debian suite has a cloud kernel, with versions years apart. Guests boot the kernel of
//! the host's own sources or of a named suite, so that tests can show that nothing depends on one
//! kernel.
//! Limits: suites of Debian's main archive; whether the mirror has a suite is only known when it is
//! fetched.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::LabError;

/// Name of the kernel of the host's own sources.
const DEFAULT: &str = "default";
/// Name of the kernel for Xen's dom0.
const DOM0: &str = "dom0";
/// Longest name of a suite; Debian's have at most 30 characters.
const SUITE_BYTES_MAX: usize = 40;

/// A Debian kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum KernelChoice {
    /// The newest kernel of the host's own package sources.
    #[default]
    Default,
    /// The newest kernel for physical machines of the host's own package sources: a cloud kernel
    /// cannot be Xen's dom0.
    Dom0,
    /// The newest kernel of a suite, such as `bookworm-backports`.
    Suite(Suite),
}

/// The name of a suite: lower-case letters, digits and dashes, a letter first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suite(String);

impl Suite {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl KernelChoice {
    /// This choice, or `other` if this is the default.
    #[must_use]
    pub fn or(self, other: KernelChoice) -> KernelChoice {
        if self == KernelChoice::Default { other } else { self }
    }
}

impl fmt::Display for KernelChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            KernelChoice::Default => DEFAULT,
            KernelChoice::Dom0 => DOM0,
            KernelChoice::Suite(suite) => suite.as_str(),
        })
    }
}

impl FromStr for KernelChoice {
    type Err = LabError;

    fn from_str(text: &str) -> Result<KernelChoice, LabError> {
        match text {
            DEFAULT => return Ok(KernelChoice::Default),
            DOM0 => return Ok(KernelChoice::Dom0),
            _ => {}
        }
        let is_of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let is_name = text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.chars().all(is_of_name)
            && text.len() <= SUITE_BYTES_MAX;
        if !is_name {
            return Err(LabError::Invalid(format!(
                "`{text}` is not a kernel: expected {DEFAULT} or a suite of Debian, such as \
                 bookworm-backports"
            )));
        }
        Ok(KernelChoice::Suite(Suite(text.to_owned())))
    }
}

impl TryFrom<String> for KernelChoice {
    type Error = LabError;

    fn try_from(text: String) -> Result<KernelChoice, LabError> {
        text.parse()
    }
}

impl From<KernelChoice> for String {
    fn from(choice: KernelChoice) -> String {
        choice.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        assert_eq!(KernelChoice::default().to_string(), "default");
        for text in ["default", "bookworm-backports", "trixie", "sid"] {
            assert_eq!(text.parse::<KernelChoice>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn explicit_choice_takes_precedence() {
        let kernel = |text: &str| text.parse::<KernelChoice>().unwrap();
        assert_eq!(kernel("sid").or(kernel("trixie")), kernel("sid"));
        assert_eq!(kernel("default").or(kernel("trixie")), kernel("trixie"));
    }

    #[test]
    fn invalid_suite_names_are_refused() {
        // The name becomes part of a path and of a line of apt's configuration.
        for text in ["", "6.12", "-a", "../x", "a b", "a\"", "A", "a\n", &"a".repeat(41)] {
            let error = text.parse::<KernelChoice>().unwrap_err().to_string();
            assert!(error.contains("expected default or a suite"), "{text}: {error}");
        }
    }
}
