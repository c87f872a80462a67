//! Memory that is kept free for a guest that is about to start.
//!
//! Idea: a guest takes its memory at once when it starts, but others give theirs up over seconds.
//! So whoever starts a guest reserves room first. Reserved memory counts against the budget and the
//! host's free memory until the guest appears; then it is what the guest was granted.
//! Limits: ends at a moment of the host's monotonic clock, so it means nothing after a reboot.

#[cfg(feature = "serde")]
use crate::unit;
use crate::{Bytes, GuestId, Timestamp};

/// A reservation, and how much of it is free.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Reservation {
    /// The guest that is to start. Each name has at most one reservation.
    pub guest: GuestId,
    /// How much memory it should find free.
    #[cfg_attr(feature = "serde", serde(rename = "size_bytes", with = "unit"))]
    pub size: Bytes,
    /// When it ends if no guest of that name has appeared.
    #[cfg_attr(feature = "serde", serde(rename = "until_ms"))]
    pub until: Timestamp,
    /// How much of it is free: held by no guest and no other reservation, and not lacking to the
    /// host.
    #[cfg_attr(feature = "serde", serde(rename = "free_bytes", with = "unit"))]
    pub free: Bytes,
}

impl Reservation {
    /// Whether all of it is free.
    pub fn is_ready(&self) -> bool {
        self.free >= self.size
    }
}
