//! Totals over the time of a replay.

use std::time::Duration;

use ballast_model::Bytes;

/// Totals of a guest, or of all guests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayTotals {
    /// Memory shortage over time, in MiB-seconds.
    pub lacked_mib_s: u64,
    /// Time with any shortage; for all guests, the sum.
    pub lacking: Duration,
    /// Memory moved, in both directions.
    pub moved: Bytes,
    /// Mean allocation.
    pub allocation_mean: Bytes,
}

/// Sums over time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    lacked_byte_ms: u128,
    lacking: Duration,
    moved: Bytes,
    pub(crate) held_byte_ms: u128,
    pub(crate) ms: u128,
}

impl Sums {
    pub(crate) fn add(&mut self, lacked: Bytes, held: Bytes, moved: Bytes, passed: Duration) {
        let ms = passed.as_millis();
        self.lacked_byte_ms += u128::from(lacked.get()) * ms;
        if lacked > Bytes::ZERO {
            self.lacking += passed;
        }
        self.moved = self.moved.saturating_add(moved);
        self.held_byte_ms += u128::from(held.get()) * ms;
        self.ms += ms;
    }

    pub(crate) fn plus(self, other: Sums) -> Sums {
        Sums {
            lacked_byte_ms: self.lacked_byte_ms + other.lacked_byte_ms,
            lacking: self.lacking + other.lacking,
            moved: self.moved.saturating_add(other.moved),
            held_byte_ms: self.held_byte_ms + other.held_byte_ms,
            ms: self.ms + other.ms,
        }
    }

    pub(crate) fn totals(self) -> ReplayTotals {
        let mib_s = self.lacked_byte_ms / 1000 / u128::from(Bytes::mib(1).get());
        ReplayTotals {
            lacked_mib_s: u64::try_from(mib_s).unwrap_or(u64::MAX),
            lacking: self.lacking,
            moved: self.moved,
            allocation_mean: bytes(self.held_byte_ms / self.ms.max(1)),
        }
    }
}

/// `n` bytes in whole pages, saturating.
pub(crate) fn bytes(n: u128) -> Bytes {
    Bytes::new(u64::try_from(n).unwrap_or(u64::MAX)).page_floor()
}
