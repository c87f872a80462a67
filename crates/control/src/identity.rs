//! Which process a guest is.
//!
//! Idea: guest names are reused, processes are not: a PID and its start time name one process until
//! the host reboots. Limits: a guest whose process is never known is identified by its name alone.

use ballast_model::{LeftGuest, ProcessId};

/// Which process a guest is, and what the last daemon left for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    /// `None`: never known.
    pub(crate) process: Option<ProcessId>,
    /// Whether the last sample lacked the process.
    pub(crate) lacks_process: bool,
    /// Whether the last sample lacked the guest's allocation.
    pub(crate) lacks_allocation: bool,
    /// State to take over once the process is seen.
    pub(crate) left: Option<Box<LeftGuest>>,
}
