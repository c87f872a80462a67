//! The caller's clocks, extended between its calls.
//!
//! Idea: the caller passes its time with every call. Between calls the runtime's clock advances
//! that time, so that all timestamps are on the caller's clock.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ballast_model::Timestamp;
use tokio::time::Instant;

#[derive(Debug)]
pub(super) struct CallerClock(Mutex<Anchor>);

#[derive(Clone, Copy, Debug)]
struct Anchor {
    now: Timestamp,
    wall: SystemTime,
    at: Instant,
}

impl CallerClock {
    pub(super) fn new() -> Self {
        let anchor = Anchor { now: Timestamp::ZERO, wall: UNIX_EPOCH, at: Instant::now() };
        CallerClock(Mutex::new(anchor))
    }

    fn anchor(&self) -> std::sync::MutexGuard<'_, Anchor> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the caller's time and its wall clock.
    pub(super) fn set(&self, now: Timestamp, wall: SystemTime) {
        *self.anchor() = Anchor { now, wall, at: Instant::now() };
    }

    /// Sets the caller's time; the wall clock advances as before.
    pub(super) fn set_now(&self, now: Timestamp) {
        let mut anchor = self.anchor();
        let at = Instant::now();
        *anchor = Anchor { now, wall: anchor.wall + (at - anchor.at), at };
    }

    /// Reads the caller's time, and its wall clock in whole seconds.
    pub(super) fn read(&self) -> (Timestamp, u64) {
        let anchor = *self.anchor();
        let passed = anchor.at.elapsed();
        let wall = (anchor.wall + passed).duration_since(UNIX_EPOCH);
        (anchor.now + passed, wall.map_or(0, |since| since.as_secs()))
    }

    /// Converts the caller's time `at` to the runtime's clock, rounded up: a timer set to the
    /// result never fires early.
    pub(super) fn instant(&self, at: Timestamp) -> Instant {
        let anchor = *self.anchor();
        anchor.at + at.saturating_since(anchor.now) + Duration::from_millis(1)
    }
}
