//! A record as JSON, and which records are accepted.
//!
//! Idea: whoever can write to the store could write anything, so a record is bounded in length and
//! each figure is checked. An address is an IP address and a port, so that no text of a record ever
//! becomes a part of a command.
//! Limits: a record of another version is refused.

use ballast_fleet::HostId;
use ballast_model::{Bytes, GuestId, GuestLimits, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{MoveRecord, Phase, Term};

/// Largest record, in bytes; a full one has about a thousand.
pub const RECORD_BYTES_MAX: usize = 16 << 10;

/// Version of this format.
const VERSION: u32 = 1;

/// Most memory of a guest: far more than any host has, yet sums of many do not overflow.
const SIZE_MAX: Bytes = Bytes::gib(1 << 20);

/// Why a record is refused.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// It is too long.
    #[error("a record of {0} bytes: expected {RECORD_BYTES_MAX} at most")]
    TooLong(usize),
    /// It is not the JSON of a record.
    #[error("no record of a move: {0}")]
    Json(#[from] serde_json::Error),
    /// It has another version.
    #[error("a record of version {0}: expected {VERSION}")]
    Version(u32),
    /// A figure of it is impossible: the guest; which figure, and what was expected.
    #[error("record of guest {0}: {1}")]
    Implausible(GuestId, String),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireRecord {
    version: u32,
    guest: GuestId,
    #[serde(with = "host")]
    from: HostId,
    #[serde(with = "host")]
    to: HostId,
    term: Term,
    ordered_ms: Timestamp,
    reserve_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    shrink_to_bytes: Option<u64>,
    shrink_until_ms: Timestamp,
    due_ms: Timestamp,
    phase: Phase,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    closed: bool,
}

impl MoveRecord {
    /// The record as one line of JSON.
    pub fn to_json(&self) -> String {
        let wire = WireRecord {
            version: VERSION,
            guest: self.guest.clone(),
            from: self.from.clone(),
            to: self.to.clone(),
            term: self.term,
            ordered_ms: self.ordered_at,
            reserve_bytes: self.reserve.get(),
            shrink_to_bytes: self.shrink_to.map(Bytes::get),
            shrink_until_ms: self.shrink_until,
            due_ms: self.due,
            phase: self.phase.clone(),
            closed: self.is_closed,
        };
        serde_json::to_string(&wire).unwrap_or_default()
    }

    /// Reads a record that anybody may have written.
    ///
    /// # Errors
    /// It is too long, not the JSON of a record, of another version, or has an impossible figure.
    pub fn parse(json: &[u8]) -> Result<MoveRecord, RecordError> {
        if json.len() > RECORD_BYTES_MAX {
            return Err(RecordError::TooLong(json.len()));
        }
        let wire: WireRecord = serde_json::from_slice(json)?;
        if wire.version != VERSION {
            return Err(RecordError::Version(wire.version));
        }
        let record = MoveRecord {
            guest: wire.guest,
            from: wire.from,
            to: wire.to,
            term: wire.term,
            ordered_at: wire.ordered_ms,
            reserve: Bytes::new(wire.reserve_bytes),
            shrink_to: wire.shrink_to_bytes.map(Bytes::new),
            shrink_until: wire.shrink_until_ms,
            due: wire.due_ms,
            phase: wire.phase,
            is_closed: wire.closed,
        };
        match record.find_implausible() {
            None => Ok(record),
            Some(what) => Err(RecordError::Implausible(record.guest, what)),
        }
    }

    fn find_implausible(&self) -> Option<String> {
        if self.from == self.to {
            return Some(format!("from {} to itself: expected two hosts", self.from));
        }
        if self.reserve == Bytes::ZERO || self.reserve > SIZE_MAX {
            return Some(format!("reserves {}: expected up to {SIZE_MAX}", self.reserve));
        }
        if let Some(size) = self.shrink_to.filter(|size| *size > self.reserve) {
            return Some(format!("shrunk to {size}: expected no more than it reserves"));
        }
        if self.is_closed && !self.phase.is_over() {
            return Some(format!(
                "closed while {}: expected a move that is over",
                self.phase.code()
            ));
        }
        match &self.phase {
            Phase::Copied { carried } | Phase::Starting { carried } => {
                let limits = carried.limits.apply(&GuestLimits::default());
                limits.validate().err().map(|error| error.to_string())
            }
            Phase::Ready { address } | Phase::Copying { address, .. } if address.port() == 0 => {
                Some(format!("address {address}: expected a port"))
            }
            _ => None,
        }
    }
}

/// A host is written as its name.
mod host {
    use std::borrow::Cow;

    use ballast_fleet::HostId;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(host: &HostId, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(host.as_str())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<HostId, D::Error> {
        Cow::<str>::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}
