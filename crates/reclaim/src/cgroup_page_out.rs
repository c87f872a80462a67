//! Pages guest memory out through the guest's own cgroup; the kernel picks the pages.
//!
//! Idea: where this process may not pick pages, the kernel can still reclaim an amount from the
//! cgroup. Each step asks for no more than the process has above its target, and measures process
//! and cgroup afterwards. Version 2 has `memory.reclaim`. Without that file, a limit is lowered and
//! restored within the same step ([`Squeeze`]), so that it holds only while the
//! kernel reclaims.
//!
//! A cgroup is charged for more than its guest: the page cache of disk images and cached copies of
//! swapped pages go too, and mostly first. So the job ends at the latest when the cgroup has shrunk
//! by the amount, whatever part of it was the guest's ([`FinishReason::GaveOther`]): a job never
//! takes more than its amount, and the next job continues from there.
//!
//! Cost: a step reads about ten small kernel files; the kernel's reclaim is the rest.
//! Source: Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.
//! Limits: ignores what a tracker knows. A process may end up below its target: the kernel reclaims
//! in batches, and while swap is slow it unmaps further pages until the first ones are written (by
//! 0.1 MiB of 40 on an idle machine, by 16 MiB on a loaded one, Linux 6.18, version 1). SIGKILL
//! within a step leaves a lowered limit behind (version 2 without `memory.reclaim`; with version 1
//! for microseconds only, as its limit takes effect once the memory is gone).

use std::path::{Path, PathBuf};

use ballast_model::{Bytes, Timestamp};

use crate::cgroup::{CgroupVersion, LIMIT_STEP, MemoryCgroup, RECLAIM_NEEDS, Squeeze};
use crate::error::ReclaimError;
use crate::page_out::{PageOutLimits, STEP_MIN, STUCK_AFTER};
use crate::process::VmmProcess;
use crate::progress::{FinishReason, PagingProgress, PagingState};
use crate::swap::SwapUsage;
use crate::token_bucket::TokenBucket;

/// The cgroup file that makes the kernel reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupMethod {
    /// `memory.reclaim` of version 2: an amount, without a limit.
    Reclaim,
    /// `memory.high` of version 2.
    High,
    /// `memory.limit_in_bytes` of version 1.
    Limit,
}

impl CgroupMethod {
    /// The best method of a cgroup.
    ///
    /// # Errors
    /// [`ReclaimError::CgroupLacks`].
    pub fn of(cgroup: &MemoryCgroup) -> Result<CgroupMethod, ReclaimError> {
        match cgroup.version() {
            CgroupVersion::One => {
                cgroup.has(cgroup.limit_name(), "version 1 of cgroups")?;
                Ok(CgroupMethod::Limit)
            }
            CgroupVersion::Two if cgroup.has("memory.reclaim", RECLAIM_NEEDS).is_ok() => {
                Ok(CgroupMethod::Reclaim)
            }
            CgroupVersion::Two => {
                cgroup.has(cgroup.limit_name(), "version 2 of cgroups")?;
                Ok(CgroupMethod::High)
            }
        }
    }

    /// Stable word for machines, as in
    /// [`ReclaimCapabilities::all`](crate::ReclaimCapabilities::all).
    pub const fn code(self) -> &'static str {
        match self {
            CgroupMethod::Reclaim => "cgroup-reclaim",
            CgroupMethod::High => "cgroup-high",
            CgroupMethod::Limit => "cgroup-limit",
        }
    }

    /// Makes the kernel reclaim `amount`. The caller measures what it really took.
    fn reclaim(
        self,
        cgroup: &MemoryCgroup,
        amount: Bytes,
        limits: &PageOutLimits,
    ) -> Result<(), ReclaimError> {
        if self == CgroupMethod::Reclaim {
            return cgroup.reclaim(amount).map(drop);
        }
        let target = cgroup.usage()?.saturating_sub(amount);
        // One squeeze per step: a longer one might later overwrite a limit that another program
        // set.
        let mut squeeze = Squeeze::new(cgroup.clone())?;
        squeeze.step(target, &limits.swap)?;
        squeeze.release()
    }
}

/// A job that pages a process out through its cgroup.
#[derive(Debug)]
pub struct CgroupPageOut {
    root: PathBuf,
    vmm: VmmProcess,
    method: CgroupMethod,
    /// Target of the process's resident memory.
    to: Bytes,
    /// The cgroup may shrink by at most this much.
    amount: Bytes,
    limits: PageOutLimits,
    bucket: TokenBucket,
    tried: Bytes,
    moved: Bytes,
    /// How much the cgroup has shrunk, by the guest's memory or by other memory.
    given: Bytes,
    /// Tried since something last moved.
    tried_in_vain: Bytes,
    finish: Option<FinishReason>,
}

/// Memory of the process and its cgroup at one moment.
struct MemoryInUse {
    resident: Bytes,
    cgroup: Bytes,
}

impl CgroupPageOut {
    /// Pages process `pid` out until it has at most `to` in memory. All files are below `root`
    /// (usually `/`); `start_time` is that of [`VmmProcess::open`].
    ///
    /// # Errors
    /// Those of [`VmmProcess::open`], [`VmmProcess::resident`], [`MemoryCgroup::find`] and
    /// [`CgroupMethod::of`].
    pub fn open(
        root: &Path,
        pid: u32,
        start_time: Option<u64>,
        to: Bytes,
        limits: PageOutLimits,
    ) -> Result<CgroupPageOut, ReclaimError> {
        let vmm = VmmProcess::open(&root.join("proc"), pid, start_time)?;
        let method = CgroupMethod::of(&MemoryCgroup::find(root, pid)?)?;
        let amount = vmm.resident()?.saturating_sub(to).page_floor();
        Ok(CgroupPageOut {
            root: root.to_owned(),
            vmm,
            method,
            to,
            amount,
            limits,
            bucket: TokenBucket::new(limits.per_second, limits.step_bytes_max.max(Bytes::pages(1))),
            tried: Bytes::ZERO,
            moved: Bytes::ZERO,
            given: Bytes::ZERO,
            tried_in_vain: Bytes::ZERO,
            finish: None,
        })
    }

    /// The method in use.
    pub fn method(&self) -> CgroupMethod {
        self.method
    }

    /// Moves as much as the limits permit at `now`: at most `step_bytes_max` and [`LIMIT_STEP`].
    /// Takes as long as the kernel needs to reclaim. `moved` of the [`PagingProgress`] is what left
    /// the process.
    pub fn step(&mut self, now: Timestamp) -> PagingProgress {
        let state = match self.finish {
            Some(finish) => PagingState::Finished(finish),
            None => self.try_step(now).unwrap_or_else(PagingState::Failed),
        };
        self.finish = state.finish_reason();
        PagingProgress { state, tried: self.tried, moved: self.moved }
    }

    fn try_step(&mut self, now: Timestamp) -> Result<PagingState, ReclaimError> {
        // Looked up at each step: another process may have joined the cgroup, or this one moved.
        let cgroup = MemoryCgroup::find(&self.root, self.vmm.pid())?;
        self.method = CgroupMethod::of(&cgroup)?;
        let before = self.measure(&cgroup)?;
        if let Some(finish) = self.end(&before) {
            return Ok(PagingState::Finished(finish));
        }
        let left_of_cgroup = self.amount.saturating_sub(self.given);
        let missing = before.resident.saturating_sub(self.to).min(left_of_cgroup);
        let room = self.limits.swap.room(&SwapUsage::read(&self.root.join("proc"))?)?;
        let step = self.limits.step_bytes_max.clamp(Bytes::pages(1), LIMIT_STEP);
        let step_min = missing.min(step).min(STEP_MIN);
        if self.bucket.available(now) < step_min {
            return Ok(PagingState::Waiting { until: self.bucket.ready_at(step_min) });
        }
        let amount = missing.min(room).min(step).min(self.bucket.available(now)).page_floor();
        let result = self.method.reclaim(&cgroup, amount, &self.limits);
        let after = self.measure(&cgroup)?;
        let moved = before.resident.saturating_sub(after.resident);
        let given = before.cgroup.saturating_sub(after.cgroup);
        // The kernel may take more than `amount`.
        self.bucket.spend(amount.max(moved));
        self.tried += amount;
        self.moved += moved;
        self.given += given;
        result?;
        let moved_nothing = moved == Bytes::ZERO && given == Bytes::ZERO;
        self.tried_in_vain = if moved_nothing { self.tried_in_vain + amount } else { Bytes::ZERO };
        Ok(match self.end(&after) {
            Some(finish) => PagingState::Finished(finish),
            None if self.tried_in_vain >= STUCK_AFTER => PagingState::Finished(FinishReason::Stuck),
            None => PagingState::InProgress,
        })
    }

    /// Why the job is over: the process is within a page of its target, or the cgroup has shrunk by
    /// the amount. `None` if neither holds.
    fn end(&self, in_use: &MemoryInUse) -> Option<FinishReason> {
        if in_use.resident < self.to.saturating_add(Bytes::pages(1)) {
            Some(FinishReason::Reached)
        } else if self.given >= self.amount {
            Some(FinishReason::GaveOther)
        } else {
            None
        }
    }

    /// Checks last that the process is alive: an ending process has no memory, which must not pass
    /// for success.
    fn measure(&self, cgroup: &MemoryCgroup) -> Result<MemoryInUse, ReclaimError> {
        let in_use = MemoryInUse { resident: self.vmm.resident()?, cgroup: cgroup.usage()? };
        if self.vmm.is_alive() {
            Ok(in_use)
        } else {
            Err(ReclaimError::Gone { pid: self.vmm.pid() })
        }
    }
}
