//! Page tracking from outside the hypervisor.
//!
//! [`TrackerClient`] controls the library inside the hypervisor, by the protocol of
//! [`ballast_tracker_proto`], and reads touches from it. [`TrackingSession`] finds the guest's
//! memory and divides tracking into intervals. Without the library, [`referenced()`] gives the size
//! of a working set, except for guests under KVM. While tracking rests, [`DataTlbCounter`] and
//! [`ActivityReader`] read signals that a new phase has begun.
//!
//! Begin here: `tracking_session.rs`, then `client.rs`.
//! Limits: calls block until the tracker answers. Each tracked guest needs a thread of its own,
//! which must call at least every [`HEARTBEAT_PERIOD`].

mod client;
mod error;
mod find;
mod handler_placement;
mod kvm;
mod proc_file;
mod referenced;
mod regions;
mod ring_file;
mod signals;
mod tracking_session;

pub use client::{HEARTBEAT_PERIOD, Revocation, TrackerClient};
pub use error::TrackerError;
pub use find::{
    CommandLine, Hypervisor, PATHS_MAX, TrackableGuest, hypervisors, memory_paths_at,
    parse_cmdline, parse_environ, trackable_at,
};
pub use handler_placement::{ThreadSample, parse_thread_stat};
pub use kvm::check_referenced_bits;
pub use referenced::{clear_referenced, parse_referenced, referenced};
pub use regions::{MemoryFile, check_shared, memory_files, memory_files_of};
pub use signals::{ActivityReader, DataTlbCounter, ThreadActivity, parse_stat, parse_status};
pub use tracking_session::{IntervalObservation, TOUCHES_MAX, TrackingSession, WatchSettings};
