//! Moments in time.
//!
//! Idea: pure code never asks for the time. It is handed a [`Timestamp`]: milliseconds on a clock
//! that never runs backwards (the machine's monotonic clock, or a simulator's virtual one).
//! Limits: only differences have a meaning. Wall-clock time is kept at the edge, in the journal.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// A moment on a monotonic clock, in milliseconds since that clock's origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(from = "u64", into = "u64")
)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The clock's origin.
    pub const ZERO: Timestamp = Timestamp::from_millis(0);

    /// `ms` milliseconds after the clock's origin.
    pub const fn from_millis(ms: u64) -> Self {
        Timestamp(ms)
    }

    /// Milliseconds since the clock's origin.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Time passed since `earlier`; zero where `earlier` is in fact later.
    pub const fn saturating_since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(self.as_millis().saturating_sub(earlier.as_millis()))
    }

    /// The moment `age` before this one, but not before the clock's origin.
    pub fn saturating_sub(self, age: Duration) -> Timestamp {
        let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        Timestamp::from_millis(self.as_millis().saturating_sub(age_ms))
    }
}

impl From<u64> for Timestamp {
    fn from(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }
}

impl From<Timestamp> for u64 {
    fn from(moment: Timestamp) -> u64 {
        moment.as_millis()
    }
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;
    fn add(self, duration: Duration) -> Timestamp {
        let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Timestamp::from_millis(self.as_millis().saturating_add(ms))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}s", self.as_millis() / 1000, self.as_millis() % 1000)
    }
}
