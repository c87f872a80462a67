//! Memory of a guest goes to the host's swap by the kernel's choice, through the guest's own cgroup.
//!
//! Idea: where pages of a process may not be chosen, the kernel can still be asked for an amount of its group. Each step
//! asks for no more than the process has beyond what it is to have, and looks what process and group have afterwards.
//! Version 2 is asked by `memory.reclaim`. Where that is not there, a bound is lowered by as much and put back within the
//! same step ([`Squeeze`](crate::Squeeze)): it stands only while the kernel reclaims.
//!
//! A group counts more than its guest. The page cache of its disk images, and copies of what is in swap already, go too and
//! mostly first. So the end is at the latest when the group has given the amount, whatever of it was the guest's
//! ([`Finish::GaveOther`]): an order takes no more than was ordered, and the next one takes on from there.
//!
//! Cost: a step reads some ten small files of the kernel; the rest is the kernel's.
//! Source: Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.
//! Limits: nothing that a tracker knows is used. The kernel takes in batches: a process may end up below what
//! it is to have (0.1 MiB of 40 on Linux 6.18, version 1). Who is killed by SIGKILL within a step
//! leaves a bound behind (version 2 without `memory.reclaim`; with version 1 for microseconds only, as its bound is set
//! once the memory is gone).

use std::path::{Path, PathBuf};

use ballast_model::{Bytes, Timestamp};

use crate::cgroup::RECLAIM_NEEDS;
use crate::page_out::{STUCK, WORTH};
use crate::{
    CgroupVersion, Finish, LIMIT_STEP, MemoryCgroup, PageOutLimits, Progress, Rate, Refusal, State,
    Swap, Vmm,
};

/// What a group is asked by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupWay {
    /// `memory.reclaim` of version 2: an amount, and no bound.
    Reclaim,
    /// `memory.high` of version 2.
    High,
    /// `memory.limit_in_bytes` of version 1.
    Limit,
}

impl GroupWay {
    /// The best that a group has.
    ///
    /// # Errors
    /// [`Refusal::CgroupLacks`].
    pub fn of(group: &MemoryCgroup) -> Result<GroupWay, Refusal> {
        match group.version() {
            CgroupVersion::One => {
                group.has(group.limit_name(), "version 1 of cgroups").map(|()| GroupWay::Limit)
            }
            CgroupVersion::Two if group.has("memory.reclaim", RECLAIM_NEEDS).is_ok() => {
                Ok(GroupWay::Reclaim)
            }
            CgroupVersion::Two => {
                group.has(group.limit_name(), "version 2 of cgroups").map(|()| GroupWay::High)
            }
        }
    }

    /// Stable word for machines, as in [`ReclaimCapabilities::all`](crate::ReclaimCapabilities::all).
    pub const fn code(self) -> &'static str {
        match self {
            GroupWay::Reclaim => "cgroup-reclaim",
            GroupWay::High => "cgroup-high",
            GroupWay::Limit => "cgroup-limit",
        }
    }

    /// Has the kernel take `amount`. What it really took is for the caller to see.
    fn take(
        self,
        group: &MemoryCgroup,
        amount: Bytes,
        limits: &PageOutLimits,
    ) -> Result<(), Refusal> {
        if self == GroupWay::Reclaim {
            return group.reclaim(amount).map(drop);
        }
        let target = group.usage()?.saturating_sub(amount);
        // Of this step only, so that nobody else's bound is overwritten later.
        let mut squeeze = group.clone().squeeze()?;
        squeeze.step(target, &limits.swap)?;
        squeeze.release()
    }
}

/// An order to page out through a cgroup.
#[derive(Debug)]
pub struct GroupOut {
    root: PathBuf,
    vmm: Vmm,
    way: GroupWay,
    /// What the process is to have.
    to: Bytes,
    /// What the group is to give.
    amount: Bytes,
    limits: PageOutLimits,
    rate: Rate,
    tried: Bytes,
    moved: Bytes,
    /// What has left the group, the guest's or not.
    given: Bytes,
    /// Tried in a row, and nothing left.
    in_vain: Bytes,
    finish: Option<Finish>,
}

/// What is in memory at one moment.
struct Look {
    resident: Bytes,
    usage: Bytes,
}

impl GroupOut {
    /// Until process `pid` has no more than `to` in memory. All files are looked for below `root`, which is `/` on every
    /// ordinary host; `start_time` is that of [`Vmm::open`].
    ///
    /// # Errors
    /// Those of [`Vmm::open`], [`Vmm::resident`], [`MemoryCgroup::find`] and [`GroupWay::of`].
    pub fn open(
        root: &Path,
        pid: u32,
        start_time: Option<u64>,
        to: Bytes,
        limits: PageOutLimits,
    ) -> Result<GroupOut, Refusal> {
        let vmm = Vmm::open(&root.join("proc"), pid, start_time)?;
        let way = GroupWay::of(&MemoryCgroup::find(root, pid)?)?;
        let amount = vmm.resident()?.saturating_sub(to).page_floor();
        Ok(GroupOut {
            root: root.to_owned(),
            vmm,
            way,
            to,
            amount,
            limits,
            rate: Rate::new(limits.per_second, limits.step_bytes_max.max(Bytes::pages(1))),
            tried: Bytes::ZERO,
            moved: Bytes::ZERO,
            given: Bytes::ZERO,
            in_vain: Bytes::ZERO,
            finish: None,
        })
    }

    /// What the group is asked by.
    pub fn way(&self) -> GroupWay {
        self.way
    }

    /// Moves what may be moved at `now`: at most `step_bytes_max`, and at most [`LIMIT_STEP`]. Takes as long as the kernel
    /// needs for it. `moved` of the [`Progress`] is what left the process.
    pub fn step(&mut self, now: Timestamp) -> Progress {
        let state = match self.finish {
            Some(finish) => State::Finished(finish),
            None => self.try_step(now).unwrap_or_else(State::Refused),
        };
        if let State::Finished(finish) = state {
            self.finish = Some(finish);
        }
        Progress { state, tried: self.tried, moved: self.moved }
    }

    fn try_step(&mut self, now: Timestamp) -> Result<State, Refusal> {
        // Anew each time: others may have come into the group, or the process have gone to another one.
        let group = MemoryCgroup::find(&self.root, self.vmm.pid())?;
        self.way = GroupWay::of(&group)?;
        let before = self.look(&group)?;
        if let Some(finish) = self.end(&before) {
            return Ok(State::Finished(finish));
        }
        let of_group = self.amount.saturating_sub(self.given);
        let missing = before.resident.saturating_sub(self.to).min(of_group);
        let room = self.limits.swap.room(&Swap::read(&self.root.join("proc"))?)?;
        let step = self.limits.step_bytes_max.clamp(Bytes::pages(1), LIMIT_STEP);
        let worth = missing.min(step).min(WORTH);
        if self.rate.available(now) < worth {
            return Ok(State::Waiting { until: self.rate.ready_at(worth) });
        }
        let asked = missing.min(room).min(step).min(self.rate.available(now)).page_floor();
        let taken = self.way.take(&group, asked, &self.limits);
        let after = self.look(&group)?;
        let moved = before.resident.saturating_sub(after.resident);
        let given = before.usage.saturating_sub(after.usage);
        // The kernel may have taken more than it was asked for.
        self.rate.spend(asked.max(moved));
        self.tried += asked;
        self.moved += moved;
        self.given += given;
        taken?;
        let is_in_vain = moved == Bytes::ZERO && given == Bytes::ZERO;
        self.in_vain = if is_in_vain { self.in_vain + asked } else { Bytes::ZERO };
        Ok(match self.end(&after) {
            Some(finish) => State::Finished(finish),
            None if self.in_vain >= STUCK => State::Finished(Finish::Stuck),
            None => State::Going,
        })
    }

    /// Whether no whole page is missing any more: of the process, or of what the group is to give.
    fn end(&self, look: &Look) -> Option<Finish> {
        if look.resident < self.to.saturating_add(Bytes::pages(1)) {
            Some(Finish::Reached)
        } else if self.given >= self.amount {
            Some(Finish::GaveOther)
        } else {
            None
        }
    }

    /// Nothing is to be seen of a process that ends, which would pass for success: that it lives is asked last.
    fn look(&self, group: &MemoryCgroup) -> Result<Look, Refusal> {
        let look = Look { resident: self.vmm.resident()?, usage: group.usage()? };
        match self.vmm.is_alive() {
            true => Ok(look),
            false => Err(Refusal::Gone { pid: self.vmm.pid() }),
        }
    }
}
