//! What goes along with a guest.
//!
//! Idea: what the daemon of one host tells and that of the other takes: what was said of its
//! limits, its credits, where it thrashed. Moments are spans, as no two hosts have one clock.
//! Limits: the journal of samples stays where it was written. When a guest was moved is kept by the
//! leader, not by its hosts.

use ballast_model::{Bytes, GuestChange};
use serde::{Deserialize, Serialize};

/// What goes along with a guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Carried {
    /// What was said of its limits.
    pub limits: GuestChange,
    /// What it pays rent with, under a policy of rent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub credits: Option<u64>,
    /// Where it thrashed last; `None`: it did not, or was content since.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub thrashed: Option<CarriedThrash>,
}

/// A guest that thrashed when memory was taken from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CarriedThrash {
    /// What it is not to be shrunk below.
    #[serde(rename = "least_bytes", with = "size")]
    pub least: Bytes,
    /// For how many milliseconds yet.
    pub left_ms: u64,
    /// How long that is in all, in milliseconds; the next pause is twice as long.
    pub pause_ms: u64,
}

/// Sizes are whole numbers of bytes.
mod size {
    use ballast_model::Bytes;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(size: &Bytes, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(size.get())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        u64::deserialize(from).map(Bytes::new)
    }
}
