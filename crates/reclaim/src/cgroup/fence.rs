//! A standing limit on a guest's cgroup: it keeps the guest from growing beyond its height.
//!
//! Idea: the limit is `memory.high` with version 2 of cgroups and `memory.limit_in_bytes` with
//! version 1. It is set no lower than the charge less the page cache, which can be dropped, so that
//! setting it writes nothing to swap. When the charge falls, the limit follows it down to the
//! height; when the charge rises, the limit stays. If the guest owes memory, each [`Fence::hold`]
//! also lowers the charge by at most [`LIMIT_STEP`].
//!
//! *Owner of the limit.* Before a limit is written, it is noted in an extended attribute of the
//! cgroup's folder ([`MARK`]). A daemon that is killed leaves both behind; the next daemon takes
//! over a limit that is noted, and no other. The note ends with the cgroup, so it cannot outlive
//! the limit. A limit without a note is the operator's: it is not lowered, raised or lifted.
//!
//! *Version 1 is weaker.* Its limit does not throttle: when a guest reaches it, the kernel writes
//! the guest's memory to swap, and when swap is full it kills the guest. So the limit is lifted as
//! soon as swap has no room left, and is never set below the charge (the kernel refuses that, with
//! `EBUSY`). A guest that keeps to its target stays below its fence; only a guest that exceeds it
//! and fills the rest of the swap between two calls can be killed. With version 2 a fence stays
//! while swap is full: a guest that exceeds it is throttled, which harms that guest alone.
//!
//! Without swap nothing can be taken, and a guest at its fence would wait without end: no fence is
//! set, and an existing one is lifted.
//!
//! Cost: reads of about eight small kernel files, and two writes when the limit moves.
//! Source: Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst; xattr(7).
//! Limits: extended attributes of cgroups need Linux 5.7. A limit that the operator sets between
//! the check and the write is overwritten; a fence that the operator lifts is set again. Page cache
//! of the guest's disks is charged too, and mostly reclaimed first.

use std::path::{Path, PathBuf};

use ballast_model::Bytes;
use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};

use super::find::CgroupVersion;
use super::group::MemoryCgroup;
use super::squeeze::{LIMIT_STEP, SLACK, is_busy, is_gone};
use crate::error::ReclaimError;
use crate::line::decimal;
use crate::process::VmmProcess;
use crate::swap::{SwapBounds, SwapUsage};

/// The extended attribute that notes the limits set by Ballast: the one that is set next, and the
/// one in force before it.
pub const MARK: &str = "user.ballast.fence";

/// Longest note: two numbers of 20 digits and a space.
const NOTE_BYTES_MAX: usize = 41;

/// Room that a fence leaves above the charge: the kernel charges in batches for each processor.
const ROOM: Bytes = Bytes::mib(2);

/// A fence is lowered by at least this much, unless that brings it to its height.
const LOWER_MIN: Bytes = Bytes::mib(8);

/// Most page cache that is dropped at once: a tenth of a second's work.
const CACHE_STEP: Bytes = Bytes::mib(256);

/// The limit of one guest's cgroup. Lifts it when dropped or [lifted](Fence::lift).
#[derive(Debug)]
pub struct Fence {
    root: PathBuf,
    vmm: VmmProcess,
    cgroup: MemoryCgroup,
    /// The fence's own limit in force; `None` if there is none.
    limit: Option<Bytes>,
}

impl Fence {
    /// The fence of process `pid`: that of an earlier daemon, or none yet. All files are below
    /// `root` (usually `/`); `start_time` is that of [`VmmProcess::open`].
    ///
    /// # Errors
    /// Those of [`VmmProcess::open`] and [`MemoryCgroup::find`]; [`ReclaimError::OthersLimit`],
    /// [`ReclaimError::CgroupLacks`] or [`ReclaimError::Unreadable`].
    pub fn open(root: &Path, pid: u32, start_time: Option<u64>) -> Result<Fence, ReclaimError> {
        let vmm = VmmProcess::open(&root.join("proc"), pid, start_time)?;
        let cgroup = find(root, &vmm)?;
        let limit = own_limit(&cgroup)?;
        Ok(Fence { root: root.to_owned(), vmm, cgroup, limit })
    }

    /// The fence's own limit in force; `None` if there is none.
    pub fn limit(&self) -> Option<Bytes> {
        self.limit
    }

    /// Moves the limit towards `height`: up at once, but down no further than the charge. With
    /// `takes`, it may also lower the charge by a step, which blocks while the kernel reclaims.
    /// Call it again every second or so.
    ///
    /// # Errors
    /// [`ReclaimError::OthersLimit`]: the operator has set a limit, which stays.
    /// [`ReclaimError::Cgroup`] or [`ReclaimError::Unreadable`]: the fence stays as it is. On all
    /// other errors ([`ReclaimError::NoSwap`], [`ReclaimError::SharedCgroup`], …) the fence is
    /// lifted.
    pub fn hold(
        &mut self,
        height: Bytes,
        takes: bool,
        swap: &SwapBounds,
    ) -> Result<(), ReclaimError> {
        // Looked up each time: another process may have joined the cgroup, or this one moved.
        let permitted = find(&self.root, &self.vmm).and_then(|found| {
            if found != self.cgroup {
                self.take_down()?;
                self.limit = own_limit(&found)?;
                self.cgroup = found;
            }
            self.room(swap)
        });
        match permitted {
            Ok(room) => self.move_to(height.page_ceil(), if takes { room } else { Bytes::ZERO }),
            Err(error @ (ReclaimError::Unreadable { .. } | ReclaimError::Cgroup { .. })) => {
                Err(error)
            }
            Err(error) => self.take_down().and(Err(error)),
        }
    }

    /// Lifts the limit. Succeeds if the cgroup is gone.
    ///
    /// # Errors
    /// [`ReclaimError::Cgroup`] or [`ReclaimError::Unreadable`].
    pub fn lift(mut self) -> Result<(), ReclaimError> {
        self.take_down()
    }

    /// How much may be written to swap.
    fn room(&self, swap: &SwapBounds) -> Result<Bytes, ReclaimError> {
        match swap.room(&SwapUsage::read(&self.root.join("proc"))?) {
            Err(ReclaimError::SwapFull { .. }) if self.cgroup.version() == CgroupVersion::Two => {
                Ok(Bytes::ZERO)
            }
            room => room,
        }
    }

    /// Sets the limit, and reclaims at most `take` to reach it.
    fn move_to(&mut self, height: Bytes, take: Bytes) -> Result<(), ReclaimError> {
        let _lock = self.cgroup.lock_limit()?;
        self.check_own()?;
        let cache = self.cgroup.page_cache()?.min(CACHE_STEP);
        let take = take.min(LIMIT_STEP);
        let lowest =
            self.limit_above_charge()?.saturating_sub(cache).saturating_sub(take).page_ceil();
        let before = self.limit;
        let Some(next) = next_limit(before, height, lowest) else { return Ok(()) };
        let is_set = self.set(Some(next))?;
        // With version 1 the kernel refuses a limit if it finds no more to reclaim. With version 2
        // it accepts any limit and throttles the guest above it. In both cases the limit goes back
        // above the charge, so that memory that cannot be reclaimed does not throttle the guest.
        let is_lower = before.is_none_or(|before| next < before);
        if !is_set || (is_lower && self.cgroup.usage()? > next.saturating_add(SLACK)) {
            let least = self.limit_above_charge()?.max(height);
            self.set(Some(before.unwrap_or(Bytes::MAX).min(least)))?;
        }
        Ok(())
    }

    /// The lowest limit that takes nothing: the charge and `ROOM`.
    fn limit_above_charge(&self) -> Result<Bytes, ReclaimError> {
        Ok(self.cgroup.usage()?.saturating_add(ROOM).page_ceil())
    }

    /// Fails if a limit is in force that this fence has not set. The fence then forgets its own
    /// limit, and removes the note.
    fn check_own(&mut self) -> Result<(), ReclaimError> {
        let found = self.cgroup.limit()?;
        let own = self.limit;
        self.limit = found.filter(|_| found == own);
        match found {
            Some(limit) if self.limit.is_none() => {
                self.forget();
                Err(ReclaimError::OthersLimit { path: self.cgroup.limit_path(), limit })
            }
            _ => Ok(()),
        }
    }

    /// Notes a limit and sets it. `false` if the kernel refuses it as too low.
    fn set(&mut self, limit: Option<Bytes>) -> Result<bool, ReclaimError> {
        if let Some(limit) = limit {
            self.note(limit)?;
        }
        match self.cgroup.set_limit(limit) {
            Ok(()) => {}
            Err(error) if is_busy(&error) => return Ok(false),
            Err(error) if limit.is_none() && is_gone(&error) => {}
            Err(error) => return Err(self.cgroup.limit_error(limit, error)),
        }
        self.limit = limit;
        if limit.is_none() {
            self.forget();
        }
        Ok(true)
    }

    /// Notes the next limit and the one in force: a daemon killed before the next one is set leaves
    /// the one in force behind.
    fn note(&self, next: Bytes) -> Result<(), ReclaimError> {
        let before = self.limit.map(|before| format!(" {}", before.get())).unwrap_or_default();
        let text = format!("{}{before}", next.get());
        setxattr(self.cgroup.folder(), MARK, text.as_bytes(), XattrFlags::empty()).map_err(|why| {
            ReclaimError::Cgroup {
                path: self.cgroup.folder().to_owned(),
                text: format!("{MARK}={text}"),
                why: why.to_string(),
            }
        })
    }

    /// Removes the note. If that fails, the note names a limit that is not in force, which does no
    /// harm.
    fn forget(&self) {
        let _ = removexattr(self.cgroup.folder(), MARK);
    }

    fn take_down(&mut self) -> Result<(), ReclaimError> {
        if self.limit.is_none() || !self.cgroup.folder().exists() {
            self.limit = None;
            return Ok(());
        }
        let _lock = self.cgroup.lock_limit()?;
        match self.check_own() {
            Ok(()) if self.limit.is_some() => self.set(None).map(drop),
            // The operator's limit stays.
            Ok(()) | Err(ReclaimError::OthersLimit { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        // A destructor cannot report an error.
        let _ = self.take_down();
    }
}

/// The cgroup of a process, which is alive after the cgroup was looked up.
fn find(root: &Path, vmm: &VmmProcess) -> Result<MemoryCgroup, ReclaimError> {
    let cgroup = MemoryCgroup::find(root, vmm.pid())?;
    if !vmm.is_alive() {
        return Err(ReclaimError::Gone { pid: vmm.pid() });
    }
    cgroup.has(cgroup.limit_name(), "a memory controller")?;
    Ok(cgroup)
}

/// The limit of a cgroup if a fence set it; `None`: it has none.
fn own_limit(cgroup: &MemoryCgroup) -> Result<Option<Bytes>, ReclaimError> {
    let _lock = cgroup.lock_limit()?;
    match cgroup.limit()? {
        Some(limit) if !noted(cgroup).contains(&limit) => {
            Err(ReclaimError::OthersLimit { path: cgroup.limit_path(), limit })
        }
        limit => Ok(limit),
    }
}

/// The limits noted on a cgroup. An unreadable note counts as none, and the limit as the
/// operator's.
fn noted(cgroup: &MemoryCgroup) -> Vec<Bytes> {
    let mut note = [0; NOTE_BYTES_MAX];
    let Ok(length) = getxattr(cgroup.folder(), MARK, &mut note) else { return Vec::new() };
    let words = note[..length].split(|&byte| byte == b' ');
    words.filter_map(decimal).map(Bytes::new).collect()
}

/// The limit after `before`, towards `height` and not below `lowest`; `None`: it stays.
fn next_limit(before: Option<Bytes>, height: Bytes, lowest: Bytes) -> Option<Bytes> {
    let wanted = height.max(lowest);
    match before {
        None => Some(wanted),
        Some(before) if height >= before => (height > before).then_some(height),
        Some(before) => {
            let lower = before.saturating_sub(wanted);
            let is_worth_it = lower >= LOWER_MIN || wanted == height;
            (is_worth_it && wanted < before).then_some(wanted)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_limit_rises_at_once_and_follows_the_charge_down() {
        let mib = |mib: Option<u64>| mib.map(Bytes::mib);
        for (before, height, lowest, expected) in [
            (None, 500, 300, Some(500)),
            (None, 500, 700, Some(700)),
            (Some(500), 600, 300, Some(600)),
            (Some(500), 500, 700, None),
            (Some(700), 500, 690, Some(690)),
            (Some(700), 500, 695, None),
            (Some(503), 500, 300, Some(500)),
            (Some(700), 500, 800, None),
        ] {
            let found = next_limit(mib(before), Bytes::mib(height), Bytes::mib(lowest));
            assert_eq!(found, mib(expected), "{before:?} {height} {lowest}");
        }
    }

    proptest! {
        #[test]
        fn a_limit_is_never_below_height_nor_raised_beyond_it(
            before: Option<u32>, height: u32, lowest: u32,
        ) {
            let bytes = |pages: u32| Bytes::pages(pages.into());
            let (before, height, lowest) = (before.map(bytes), bytes(height), bytes(lowest));
            if let Some(next) = next_limit(before, height, lowest) {
                prop_assert!(next >= height);
                prop_assert!(before.is_none_or(|before| next <= before.max(height)));
                prop_assert!(next >= lowest || before.is_some_and(|before| height > before));
            }
        }
    }
}
