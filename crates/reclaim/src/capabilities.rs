//! Which ways of taking and giving back memory a guest's process has.
//!
//! Idea: each way is tried on nothing: advice on no range, a file opened and not read. What fails says why.

use std::path::Path;

use rustix::io::Errno;

use crate::kernel::{Remote, probe};
use crate::page_out::refusal;
use crate::{CgroupVersion, GuestRam, MemoryCgroup, Paging, Refusal, Swap, SwapBounds};

/// What can be done, and why the rest cannot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReclaimCapabilities {
    /// Chosen pages to swap ([`PageOut`](crate::PageOut)).
    pub page_out: Result<(), Refusal>,
    /// Private memory back from swap ([`PageIn`](crate::PageIn)).
    pub page_in_private: Result<(), Refusal>,
    /// Shared memory back from swap, how much of it is there, and eviction of what the hypervisor has not in its page
    /// table. A guest without shared memory has it too.
    pub shared_files: Result<(), Refusal>,
    /// An amount, of the kernel's choice ([`MemoryCgroup::reclaim`]).
    pub cgroup_reclaim: Result<(), Refusal>,
    /// A bound of version 2 ([`MemoryCgroup::squeeze`]).
    pub cgroup_high: Result<(), Refusal>,
    /// A bound of version 1 ([`MemoryCgroup::squeeze`]).
    pub cgroup_limit: Result<(), Refusal>,
}

impl ReclaimCapabilities {
    /// Each way's stable word, with what is in its way.
    pub fn all(&self) -> [(&'static str, &Result<(), Refusal>); 6] {
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

/// The ways of process `pid`. All files are looked for below `root`, which is `/` on every ordinary host; `start_time`
/// is that of [`Vmm::open`](crate::Vmm::open).
pub fn capabilities(
    root: &Path,
    pid: u32,
    start_time: Option<u64>,
    ram: GuestRam,
    swap: &SwapBounds,
) -> ReclaimCapabilities {
    let paging = Paging::open(&root.join("proc"), pid, start_time, ram);
    let group = paging.as_ref().map_err(Clone::clone).and_then(|_| MemoryCgroup::find(root, pid));
    let with = |way: &dyn Fn(&Paging) -> Result<(), Refusal>| match &paging {
        Ok(paging) => way(paging),
        Err(refusal) => Err(refusal.clone()),
    };
    let of_group = |version, name, needs| {
        let group = group.as_ref().map_err(Clone::clone)?;
        match group.version() == version {
            true => group.has(name, needs),
            false => Err(Refusal::CgroupLacks { path: group.folder().join(name), needs }),
        }
    };
    const ONE: &str = "version 1 of cgroups";
    const TWO: &str = "version 2 of cgroups, on Linux 5.19 or later for memory.reclaim";
    ReclaimCapabilities {
        page_out: with(&|paging| page_out(paging, &root.join("proc"), swap)),
        page_in_private: with(&|paging| paging.memory().map(drop)),
        shared_files: with(&shared_files),
        cgroup_reclaim: of_group(CgroupVersion::Two, "memory.reclaim", TWO),
        cgroup_high: of_group(CgroupVersion::Two, "memory.high", TWO),
        cgroup_limit: of_group(CgroupVersion::One, "memory.limit_in_bytes", ONE),
    }
}

fn page_out(paging: &Paging, proc: &Path, swap: &SwapBounds) -> Result<(), Refusal> {
    let vmm = paging.vmm();
    probe(vmm.pidfd(), Remote::PageOut).map_err(|error| match error {
        Errno::SRCH | Errno::BADF => Refusal::Gone { pid: vmm.pid() },
        error => refusal(vmm.pid(), error),
    })?;
    vmm.open_for("pagemap", "look at its pages")?;
    swap.room(&Swap::read(proc)?).map(drop)
}

fn shared_files(paging: &Paging) -> Result<(), Refusal> {
    let scene = paging.scene()?;
    let refused = scene.pieces.iter().find_map(|piece| piece.file.as_ref()?.as_ref().err());
    refused.map_or(Ok(()), |refusal| Err(refusal.clone()))
}
