//! The name of a guest.
//!
//! Idea: one short, safe, cheaply cloned name per guest on a host, used in configuration, paths,
//! metrics and the journal alike.
//! Limits: 1 to 64 characters of `A–Z a–z 0–9 . _ -`, not beginning with a dot or a dash, so that a
//! name can be a file name, a metric label and a command-line argument.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Longest guest name, in characters.
const GUEST_ID_LEN_MAX: usize = 64;

/// The name of a guest, unique on its host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GuestId(Arc<str>);

impl GuestId {
    /// Whether one is a clone of the other. If not, the names may still be equal.
    pub fn is_clone_of(&self, other: &GuestId) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a text cannot name a guest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a guest name: expected 1 to {GUEST_ID_LEN_MAX} letters, digits, `.`, `_` or `-`, \
     beginning with a letter, a digit or `_`"
)]
pub struct ParseGuestIdError(String);

impl FromStr for GuestId {
    type Err = ParseGuestIdError;

    fn from_str(text: &str) -> Result<GuestId, ParseGuestIdError> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        let valid = (1..=GUEST_ID_LEN_MAX).contains(&text.len())
            && text.bytes().all(allowed)
            && !text.starts_with(['.', '-']);
        if valid {
            Ok(GuestId(text.into()))
        } else {
            // The text goes to logs and terminals, so control characters are escaped.
            let shown = text.chars().flat_map(char::escape_debug);
            Err(ParseGuestIdError(shown.take(2 * GUEST_ID_LEN_MAX).collect()))
        }
    }
}

impl fmt::Display for GuestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Serialize for GuestId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for GuestId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<GuestId, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The place of the guest `id` in a list that is sorted by `name`. O(1) if that is `near` or a
/// little after it and `id` is a clone of its name, else O(log n).
pub(crate) fn index_near<T>(
    sorted: &[T],
    name: impl Fn(&T) -> &GuestId,
    id: &GuestId,
    near: usize,
) -> Option<usize> {
    const CANDIDATES_MAX: usize = 8;
    let here = sorted.iter().skip(near).take(CANDIDATES_MAX);
    let ahead = here.enumerate().find(|(_, one)| name(one).is_clone_of(id));
    ahead
        .map(|(ahead, _)| near + ahead)
        .or_else(|| sorted.binary_search_by(|one| name(one).cmp(id)).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_as_files_labels_and_arguments() {
        for name in ["a", "web-1", "db_2.prod", "_x", "7"] {
            assert_eq!(name.parse::<GuestId>().unwrap().as_str(), name);
        }
        for name in ["", ".", "..", "-x", "a/b", "a b", "a\n", "ü", &"x".repeat(65)] {
            assert!(name.parse::<GuestId>().is_err(), "{name:?}");
        }
    }
}
