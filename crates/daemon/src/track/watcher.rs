//! One guest, watched by its tracker or by statistical sampling.

use std::time::Duration;

use ballast_model::Bytes;
use ballast_tracker::{TrackerError, TrackingSession};

use super::follow::Follower;
use super::row::Row;
use super::sampler::Sampler;

/// The way a guest is watched.
pub enum Watcher {
    /// By the tracker, as the daemon does.
    Follower(Box<Follower>),
    /// Statistical sampling.
    Sampler(Box<Sampler>),
}

impl Watcher {
    /// Watches for one interval: [`Follower::interval`] or [`Sampler::interval`].
    ///
    /// # Errors
    /// The tracker is gone or has given up.
    pub fn interval(
        &mut self,
        go_on: impl FnMut() -> bool,
    ) -> Result<(Row, Vec<u64>), TrackerError> {
        match self {
            Watcher::Follower(follower) => follower.interval(None, go_on),
            Watcher::Sampler(sampler) => sampler.interval(go_on),
        }
    }

    /// Sets the length of later intervals.
    pub fn set_length(&mut self, length: Duration) {
        match self {
            Watcher::Follower(follower) => follower.set_length(length),
            Watcher::Sampler(sampler) => sampler.set_length(length),
        }
    }

    /// Memory that cannot be tracked because it is not shared.
    pub fn private_memory(&self) -> Bytes {
        Bytes::new(self.tracking().private_memory())
    }

    fn tracking(&self) -> &TrackingSession {
        match self {
            Watcher::Follower(follower) => follower.tracking(),
            Watcher::Sampler(sampler) => sampler.tracking(),
        }
    }
}
