//! What goes along with a guest.
//!
//! Idea: what a controller hands over to the next one on a host ([`Handover`]) is what it needs of
//! a guest's past. So the same travels, less what only means something on one host: its process,
//! its fences, what it was last seen to hold. Moments become spans, as no two hosts have one clock.
//! Limits: the journal of samples stays where it was written. When a guest was moved is kept by the
//! leader, not by its hosts.

use std::time::Duration;

use ballast_model::{Bytes, GuestId, GuestLimits, Handover, Thrashed, Timestamp};
use serde::{Deserialize, Serialize};

/// What goes along with a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Carried {
    /// What its operator set.
    pub limits: GuestLimits,
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

impl Carried {
    /// What goes along with a guest that stands still at `now`, by what its controller would hand
    /// over.
    pub fn of(
        limits: GuestLimits,
        credits: Option<u64>,
        handover: &Handover,
        now: Timestamp,
    ) -> Carried {
        let thrashed = handover.thrashed.filter(|it| it.until > now).map(|it| CarriedThrash {
            least: it.least,
            left_ms: millis(it.until.saturating_since(now)),
            pause_ms: millis(it.pause),
        });
        Carried { limits, credits, thrashed }
    }

    /// For the controller of the host that it has come to.
    pub fn handover(&self, guest: GuestId, now: Timestamp) -> Handover {
        let thrashed = self.thrashed.map(|it| Thrashed {
            least: it.least,
            until: now + Duration::from_millis(it.left_ms),
            pause: Duration::from_millis(it.pause_ms),
        });
        Handover { thrashed, ..Handover::nothing(guest) }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
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
