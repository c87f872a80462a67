//! What can go wrong while a guest is tracked.

use std::time::Duration;

use ballast_track_wire::{Refused, RingError, WireError};
use rustix::io::Errno;
use thiserror::Error;

/// Why a guest is not tracked, or not any more.
#[derive(Debug, Error)]
pub enum TrackerError {
    /// Nobody listens.
    #[error(
        "no tracker at {address}: {source}; is the guest started with libballast_track.so in LD_PRELOAD?"
    )]
    Connect {
        /// Where.
        address: String,
        /// What the system said.
        source: Errno,
    },
    /// The system refused something on this side.
    #[error("cannot {what}: {source}")]
    System {
        /// What.
        what: &'static str,
        /// What it said.
        source: Errno,
    },
    /// The tracker refused, or has ended.
    #[error("the guest's tracker: {0}")]
    Refused(Refused),
    /// It sent what is no message.
    #[error("the guest's tracker sent {0}")]
    Wire(#[from] WireError),
    /// It wrote what is no trap.
    #[error("the guest's tracker: {0}")]
    Ring(#[from] RingError),
    /// It answered something else than was asked.
    #[error("the guest's tracker answered {0} with something else")]
    Answer(&'static str),
    /// It did not answer.
    #[error("the guest's tracker did not answer {what} within {waited:?}")]
    Silent {
        /// What was asked.
        what: &'static str,
        /// For how long.
        waited: Duration,
    },
    /// It has closed the connection.
    #[error("the guest's tracker is gone: the guest has ended, or the tracker gave up")]
    Closed,
}

impl TrackerError {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(Errno) -> TrackerError {
        move |source| TrackerError::System { what, source }
    }
}
