//! Which reclaim methods work for a guest's process.
//!
//! Idea: each method is tried without effect: advice on no range, a file opened and not read. The
//! error says what is missing.

use std::path::Path;

use crate::cgroup::{CgroupVersion, MemoryCgroup};
use crate::error::ReclaimError;
use crate::guest_memory::GuestMemory;
use crate::kernel::{RemoteAdvice, probe};
use crate::ram::GuestRam;
use crate::swap::{SwapBounds, SwapUsage};

/// The methods, each with the error that prevents it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReclaimCapabilities {
    /// Page out chosen pages ([`PageOut`](crate::PageOut)).
    pub page_out: Result<(), ReclaimError>,
    /// Page in private memory ([`PageIn`](crate::PageIn)).
    pub page_in_private: Result<(), ReclaimError>,
    /// Page in and count shared memory, and evict pages missing from the hypervisor's page table.
    /// `Ok` for a guest without shared memory.
    pub shared_files: Result<(), ReclaimError>,
    /// Reclaim an amount of the kernel's choice ([`MemoryCgroup::reclaim`]).
    pub cgroup_reclaim: Result<(), ReclaimError>,
    /// Lower `memory.high` of cgroup version 2 ([`Squeeze`](crate::Squeeze)).
    pub cgroup_high: Result<(), ReclaimError>,
    /// Lower the limit of cgroup version 1 ([`Squeeze`](crate::Squeeze)).
    pub cgroup_limit: Result<(), ReclaimError>,
}

impl ReclaimCapabilities {
    /// Each method's stable word and result.
    pub fn all(&self) -> [(&'static str, &Result<(), ReclaimError>); 6] {
        [
            ("page-out", &self.page_out),
            ("page-in-private", &self.page_in_private),
            ("shared-files", &self.shared_files),
            ("cgroup-reclaim", &self.cgroup_reclaim),
            ("cgroup-high", &self.cgroup_high),
            ("cgroup-limit", &self.cgroup_limit),
        ]
    }
}

/// Tries the methods on process `pid`. All files are below `root` (usually `/`); `start_time` is
/// that of [`VmmProcess::open`](crate::VmmProcess::open).
pub fn capabilities(
    root: &Path,
    pid: u32,
    start_time: Option<u64>,
    ram: GuestRam,
    swap: &SwapBounds,
) -> ReclaimCapabilities {
    let proc = root.join("proc");
    let memory = GuestMemory::open(&proc, pid, start_time, ram);
    let memory = memory.as_ref().map_err(Clone::clone);
    let cgroup = memory.clone().and_then(|_| MemoryCgroup::find(root, pid));
    let cgroup_has = |version, name, needs| {
        let cgroup = cgroup.as_ref().map_err(Clone::clone)?;
        if cgroup.version() == version {
            cgroup.has(name, needs)
        } else {
            Err(ReclaimError::CgroupLacks { path: cgroup.folder().join(name), needs })
        }
    };
    const ONE: &str = "version 1 of cgroups";
    const TWO: &str = "version 2 of cgroups, on Linux 5.19 or later for memory.reclaim";
    ReclaimCapabilities {
        page_out: memory.clone().and_then(|memory| page_out(memory, &proc, swap)),
        page_in_private: memory.clone().and_then(|memory| memory.mem_file().map(drop)),
        shared_files: memory.clone().and_then(shared_files),
        cgroup_reclaim: cgroup_has(CgroupVersion::Two, "memory.reclaim", TWO),
        cgroup_high: cgroup_has(CgroupVersion::Two, "memory.high", TWO),
        cgroup_limit: cgroup_has(CgroupVersion::One, "memory.limit_in_bytes", ONE),
    }
}

fn page_out(memory: &GuestMemory, proc: &Path, swap: &SwapBounds) -> Result<(), ReclaimError> {
    let vmm = memory.vmm();
    probe(vmm.pidfd(), RemoteAdvice::PageOut)
        .map_err(|error| ReclaimError::of_advice(vmm.pid(), error))?;
    vmm.open_for("pagemap", "inspect its pages")?;
    swap.room(&SwapUsage::read(proc)?).map(drop)
}

fn shared_files(memory: &GuestMemory) -> Result<(), ReclaimError> {
    for open in memory.view()?.regions {
        if let Some(Err(error)) = open.file {
            return Err(error);
        }
    }
    Ok(())
}
