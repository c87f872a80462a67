//! A guest that is watched, in either way.

use std::time::Duration;

use ballast_model::Bytes;
use ballast_tracker::{TrackerError, Tracking};

use super::follow::Follower;
use super::row::Row;
use super::sampler::Sampler;

/// Who watches a guest.
pub(crate) enum Watcher {
    /// The tracker, as the daemon has it.
    Follower(Box<Follower>),
    /// Statistical sampling.
    Sampler(Box<Sampler>),
}

impl Watcher {
    /// Watches for an interval, as [`Follower::interval`] and [`Sampler::interval`].
    ///
    /// # Errors
    /// The tracker is gone, or has given up.
    pub(crate) fn interval(
        &mut self,
        go_on: impl FnMut() -> bool,
    ) -> Result<(Row, Vec<u64>), TrackerError> {
        match self {
            Watcher::Follower(follower) => follower.interval(None, go_on),
            Watcher::Sampler(sampler) => sampler.interval(go_on),
        }
    }

    /// From now on intervals are so long.
    pub(crate) fn set_length(&mut self, length: Duration) {
        match self {
            Watcher::Follower(follower) => follower.set_length(length),
            Watcher::Sampler(sampler) => sampler.set_length(length),
        }
    }

    /// Memory that cannot be tracked, because it is not shared.
    pub(crate) fn private_memory(&self) -> Bytes {
        Bytes::new(self.tracking().private_memory())
    }

    fn tracking(&self) -> &Tracking {
        match self {
            Watcher::Follower(follower) => follower.tracking(),
            Watcher::Sampler(sampler) => sampler.tracking(),
        }
    }
}
