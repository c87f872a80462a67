//! Names of hosts, and labels: words that hosts share.
//!
//! Idea: a name or label from another host is short and printable. It is checked once, when it is
//! read, and is cheap to clone.
//! Limits: labels are compared byte by byte. Whether `host-model` means the same processor on two
//! hosts, only the hosts know.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Longest label, in bytes; longest name of a host in DNS.
const LABEL_LEN_MAX: usize = 253;

/// The name of a host, unique in its fleet: a name as in DNS.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostId(Arc<str>);

/// A word that hosts share: a hypervisor, a processor model, a storage, a network, a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label(Arc<str>);

/// Why a text is not a host's name or a label.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no {what}: expected {expected}")]
pub struct ParseLabelError {
    text: String,
    what: &'static str,
    expected: &'static str,
}

impl HostId {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Label {
    /// The label as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostId {
    type Err = ParseLabelError;

    fn from_str(text: &str) -> Result<HostId, ParseLabelError> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        let is_valid = (1..=LABEL_LEN_MAX).contains(&text.len())
            && text.bytes().all(allowed)
            && !text.starts_with(['.', '-']);
        let expected = "1 to 253 letters, digits, `.`, `_` or `-`, not beginning with `.` or `-`";
        if is_valid { Ok(HostId(text.into())) } else { Err(refused(text, "host name", expected)) }
    }
}

impl FromStr for Label {
    type Err = ParseLabelError;

    fn from_str(text: &str) -> Result<Label, ParseLabelError> {
        let is_valid = (1..=LABEL_LEN_MAX).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
        let expected = "1 to 253 printable characters of ASCII";
        if is_valid { Ok(Label(text.into())) } else { Err(refused(text, "label", expected)) }
    }
}

/// The error for `text`, which is escaped and cut because it goes to logs and terminals.
fn refused(text: &str, what: &'static str, expected: &'static str) -> ParseLabelError {
    let shown = text.chars().flat_map(char::escape_debug).take(LABEL_LEN_MAX).collect();
    ParseLabelError { text: shown, what, expected }
}

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
