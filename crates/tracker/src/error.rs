//! Errors of tracking a guest.

use std::time::Duration;

use ballast_tracker_proto::{RefusalReason, RingError, TrackerRefusal, WireError};
use rustix::io::Errno;
use thiserror::Error;

/// Why a guest cannot be tracked, or tracking ended.
#[derive(Debug, Error)]
pub enum TrackerError {
    /// Nothing listens at the address.
    #[error(
        "no tracker at {address}: {source}; is the guest started with libballast_track.so in LD_PRELOAD?"
    )]
    Connect {
        /// The address.
        address: String,
        /// The system's error.
        source: Errno,
    },
    /// Another process than the hypervisor's listens at the address.
    #[error(
        "process {found} listens on {address}, not the hypervisor's process {pid}: remove the socket \
         and restart the guest, and look who may write to its folder"
    )]
    Peer {
        /// The address.
        address: String,
        /// The process that listens; 0: one outside this namespace.
        found: u32,
        /// The hypervisor's process.
        pid: u32,
    },
    /// The tracker names a thread that does not belong to the hypervisor's process.
    #[error(
        "the guest's tracker says that thread {tid} answers faults, which is none of process {pid}: \
         daemon and hypervisor must see the same processes"
    )]
    Thread {
        /// The thread.
        tid: u32,
        /// The hypervisor's process.
        pid: u32,
    },
    /// All of the guest's memory is mapped privately.
    #[error(
        "guest memory is mapped privately, all {private} bytes of it: give its memory backend share=on"
    )]
    Private {
        /// Its size in bytes.
        private: u64,
    },
    /// The hypervisor has no guest memory in files.
    #[error(
        "the hypervisor has no guest memory in a file: start the guest with memory-backend-memfd,share=on"
    )]
    NoMemory,
    /// The guest has more memory than can be tracked.
    #[error(
        "the guest has {total} bytes of memory but only {shared} are mapped shared: give every memory backend share=on"
    )]
    PartlyShared {
        /// The guest's memory in bytes, by the hypervisor.
        total: u64,
        /// Bytes that are mapped shared and can be tracked.
        shared: u64,
    },
    /// Referenced bits do not show what the guest touches.
    #[error(
        "the guest runs under KVM, so its process's referenced bits do not show what it touches: start it \
         with libballast_track.so to see its working set"
    )]
    Kvm,
    /// The system refused an operation on this side.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation.
        what: &'static str,
        /// The system's error.
        source: Errno,
    },
    /// The tracker refused a request, or ended tracking.
    #[error("the guest's tracker: {0}")]
    Refused(TrackerRefusal),
    /// The tracker sent an invalid message.
    #[error("the guest's tracker sent {0}")]
    Wire(#[from] WireError),
    /// The tracker's ring is invalid.
    #[error("the guest's tracker: {0}")]
    Ring(#[from] RingError),
    /// The tracker's answer does not match the request.
    #[error("the guest's tracker sent a wrong answer to {0}")]
    WrongAnswer(&'static str),
    /// The tracker did not answer.
    #[error("the guest's tracker did not answer {what} within {waited:?}")]
    NoAnswer {
        /// The request.
        what: &'static str,
        /// How long the client waited.
        waited: Duration,
    },
    /// The tracker closed the connection.
    #[error("the guest's tracker closed the connection: the guest or the tracker has ended")]
    Closed,
}

impl TrackerError {
    /// Whether the error will persist as long as the hypervisor lives, so that retrying is useless.
    /// Boot memory is shared or private for ever.
    pub fn is_lasting(&self) -> bool {
        use RefusalReason::{HugePages, Kernel, MappedTwice, Permission, Version};
        match self {
            TrackerError::Kvm
            | TrackerError::Private { .. }
            | TrackerError::PartlyShared { .. } => true,
            TrackerError::Refused(refused) => {
                [Version, Permission, Kernel, HugePages, MappedTwice].contains(&refused.reason)
            }
            _ => false,
        }
    }

    pub(crate) fn system(what: &'static str) -> impl FnOnce(Errno) -> TrackerError {
        move |source| TrackerError::System { what, source }
    }

    /// The same for an error of the standard library.
    pub(crate) fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> TrackerError {
        move |error| {
            let source = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            TrackerError::System { what, source }
        }
    }
}
