//! The caller's clocks, carried on between its calls.
//!
//! Idea: the caller says what time it is whenever it calls; between calls the runtime's clock carries
//! that on, so that everything is stamped on the caller's time line.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ballast_model::Timestamp;
use tokio::time::Instant;

#[derive(Debug)]
pub(super) struct Clock(Mutex<Anchor>);

#[derive(Clone, Copy, Debug)]
struct Anchor {
    now: Timestamp,
    wall: SystemTime,
    at: Instant,
}

impl Clock {
    pub(super) fn new() -> Self {
        let anchor = Anchor { now: Timestamp::ZERO, wall: UNIX_EPOCH, at: Instant::now() };
        Clock(Mutex::new(anchor))
    }

    fn anchor(&self) -> std::sync::MutexGuard<'_, Anchor> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The caller says that it is `now`, and `wall` on the wall clock.
    pub(super) fn set(&self, now: Timestamp, wall: SystemTime) {
        *self.anchor() = Anchor { now, wall, at: Instant::now() };
    }

    /// The caller says that it is `now`; the wall clock goes on as before.
    pub(super) fn set_now(&self, now: Timestamp) {
        let mut anchor = self.anchor();
        let at = Instant::now();
        *anchor = Anchor { now, wall: anchor.wall + (at - anchor.at), at };
    }

    /// The caller's monotonic time and its wall clock in whole seconds.
    pub(super) fn read(&self) -> (Timestamp, u64) {
        let anchor = *self.anchor();
        let passed = anchor.at.elapsed();
        let wall = (anchor.wall + passed).duration_since(UNIX_EPOCH);
        (anchor.now + passed, wall.map_or(0, |since| since.as_secs()))
    }

    /// The moment of the runtime's clock that is `at` on the caller's. Rounded up: a timer set to it
    /// never rings early.
    pub(super) fn instant(&self, at: Timestamp) -> Instant {
        let anchor = *self.anchor();
        anchor.at + at.saturating_since(anchor.now) + Duration::from_millis(1)
    }
}
