//! The programs that run on a host of the lab beside its guests.

use super::member::FleetMember;
use crate::daemon::Daemon;

/// A host's programs.
pub(super) struct LabHost {
    pub(super) daemon: Daemon,
    pub(super) member: FleetMember,
}
