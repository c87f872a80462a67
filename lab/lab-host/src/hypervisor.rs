//! What runs a guest, and how that is ended.
//!
//! Idea: a QEMU that the lab started itself, one that another program started, or a domain of Xen;
//! to the lab each has a process that is looked at, and each can be killed like a power failure.
//! Limits: a domain's process is the one that keeps its console, not Xen itself.

use std::process::Child;
use std::time::Duration;

use crate::process::ProcessId;
use crate::xl::Domain;

/// How long a killed QEMU may take to end.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// What runs a guest.
pub(crate) enum Hypervisor {
    /// The lab's own child.
    Child(Child),
    /// Another program's.
    Managed(ProcessId),
    /// Xen, whose domain it is.
    Xen(Domain),
}

impl Hypervisor {
    /// The process that is looked at; `None`: it has ended already.
    pub(crate) fn process(&self) -> Option<ProcessId> {
        match self {
            Hypervisor::Child(child) => ProcessId::of(child.id()),
            Hypervisor::Managed(process) => Some(*process),
            Hypervisor::Xen(domain) => ProcessId::of(domain.console.id()),
        }
    }

    /// Ends it at once.
    pub(crate) fn kill(&mut self) {
        match self {
            Hypervisor::Child(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
            Hypervisor::Managed(process) => {
                process.kill(KILL_PATIENCE);
            }
            Hypervisor::Xen(domain) => domain.destroy(),
        }
    }
}
