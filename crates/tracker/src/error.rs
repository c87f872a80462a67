//! What can go wrong while a guest is tracked.

use std::time::Duration;

use ballast_track_wire::{Refusal, Refused, RingError, WireError};
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
    /// All of the guest's memory is mapped privately.
    #[error(
        "guest memory is mapped privately, all {private} bytes of it: give its memory backend share=on"
    )]
    Private {
        /// So much, in bytes.
        private: u64,
    },
    /// The hypervisor has no memory that is a guest's.
    #[error(
        "the hypervisor has no guest memory in a file: start the guest with memory-backend-memfd,share=on"
    )]
    NoMemory,
    /// The hypervisor says that the guest has more than can be tracked.
    #[error(
        "the guest has {told} bytes of memory, of which {shared} are mapped shared: give every memory backend share=on"
    )]
    Partly {
        /// What the guest has, in bytes.
        told: u64,
        /// What of that is mapped so that it can be tracked.
        shared: u64,
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
    /// Whether it will be the same as long as the hypervisor lives, so that another way had better be taken.
    pub fn is_lasting(&self) -> bool {
        use Refusal::{HugePages, Kernel, MappedTwice, Permission, Version};
        let lasts = [Version, Permission, Kernel, HugePages, MappedTwice];
        matches!(self, TrackerError::Refused(refused) if lasts.contains(&refused.refusal))
    }

    pub(crate) fn system(what: &'static str) -> impl FnOnce(Errno) -> TrackerError {
        move |source| TrackerError::System { what, source }
    }
}
