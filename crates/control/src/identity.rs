//! Which process a guest is.
//!
//! Idea: names come back, processes do not: a PID and its start time are one process for as long as
//! the host is up. Limits: a guest whose process is never known is known by its name alone.

use ballast_model::{LeftGuest, ProcessId};

/// Which process a guest is, and what that was left by the last daemon.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    /// `None`: it was never known.
    pub(crate) process: Option<ProcessId>,
    /// Whether the last sample did not have it.
    pub(crate) is_hidden: bool,
    /// Whether the last sample did not say what it holds.
    pub(crate) is_silent: bool,
    /// What is to be taken over once the process is seen.
    pub(crate) left: Option<Box<LeftGuest>>,
}
