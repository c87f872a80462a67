//! Lowers a cgroup's memory limit step by step, and restores it.

use std::io;
use std::os::fd::OwnedFd;

use ballast_model::Bytes;
use rustix::io::Errno;

use super::group::MemoryCgroup;
use crate::error::ReclaimError;
use crate::swap::{SwapBounds, SwapUsage};

/// Most by which a step lowers the limit: the write returns once the kernel has reclaimed that much
/// or given up.
pub const LIMIT_STEP: Bytes = Bytes::mib(20);

/// Tolerated excess over the limit: version 2 counts in batches per processor.
pub(super) const SLACK: Bytes = Bytes::mib(1);

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqueezeStep {
    /// Whether to go on.
    pub state: SqueezeState,
    /// Memory charged to the cgroup now.
    pub usage: Bytes,
    /// The limit now; `None`: unlimited.
    pub limit: Option<Bytes>,
}

/// Whether a squeeze goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqueezeState {
    /// The limit is above the target: take another step.
    InProgress,
    /// The limit is at the target, and the cgroup within it.
    Reached,
    /// The kernel finds nothing more to reclaim. The old limit is restored.
    Floor,
}

/// Holds a lowered limit. Restores the old one when dropped or [released](Squeeze::release).
#[derive(Debug)]
pub struct Squeeze {
    cgroup: MemoryCgroup,
    /// The limit to restore.
    before: Option<Bytes>,
    is_set: bool,
    /// A lock: no other thread changes the limit meanwhile.
    _lock: OwnedFd,
}

impl Squeeze {
    /// Remembers the limit of `cgroup`, and leaves it as it is until the first step. Waits while
    /// another thread changes it.
    ///
    /// # Errors
    /// [`ReclaimError::Unreadable`].
    pub fn new(cgroup: MemoryCgroup) -> Result<Squeeze, ReclaimError> {
        let lock = cgroup.lock_limit()?;
        let before = cgroup.limit()?;
        Ok(Squeeze { cgroup, before, is_set: false, _lock: lock })
    }

    /// Sets the limit to `target`, but at most [`LIMIT_STEP`] below the current usage and never
    /// above the old limit. Takes as long as the kernel reclaims.
    ///
    /// # Errors
    /// [`ReclaimError::NoSwap`], [`ReclaimError::SwapFull`], [`ReclaimError::Cgroup`] or
    /// [`ReclaimError::Unreadable`]. The limit stays where the last step set it.
    pub fn step(&mut self, target: Bytes, swap: &SwapBounds) -> Result<SqueezeStep, ReclaimError> {
        let usage = self.cgroup.usage()?;
        let room = swap.room(&SwapUsage::read(&self.cgroup.root.join("proc"))?)?;
        let floor = usage.saturating_sub(LIMIT_STEP.min(room)).page_ceil();
        let limit = target.page_ceil().max(floor).min(self.before.unwrap_or(Bytes::MAX));
        let is_refused = match self.cgroup.set_limit(Some(limit)) {
            Ok(()) => {
                self.is_set = true;
                false
            }
            Err(error) if is_busy(&error) => true,
            Err(error) => return Err(self.cgroup.limit_error(Some(limit), error)),
        };
        let usage = self.cgroup.usage()?;
        // Version 2 accepts any limit and throttles a cgroup above it.
        if is_refused || usage > limit.saturating_add(SLACK) {
            self.restore()?;
            return Ok(SqueezeStep { state: SqueezeState::Floor, usage, limit: self.before });
        }
        let is_reached = limit <= target.page_ceil();
        let state = if is_reached { SqueezeState::Reached } else { SqueezeState::InProgress };
        Ok(SqueezeStep { state, usage, limit: Some(limit) })
    }

    /// Restores the old limit. Succeeds if the cgroup is gone.
    ///
    /// # Errors
    /// [`ReclaimError::Cgroup`].
    pub fn release(mut self) -> Result<(), ReclaimError> {
        self.restore()
    }

    fn restore(&mut self) -> Result<(), ReclaimError> {
        if !std::mem::take(&mut self.is_set) {
            return Ok(());
        }
        match self.cgroup.set_limit(self.before) {
            Ok(()) => Ok(()),
            Err(error) if is_gone(&error) => Ok(()),
            Err(error) => Err(self.cgroup.limit_error(self.before, error)),
        }
    }
}

impl Drop for Squeeze {
    fn drop(&mut self) {
        // A destructor cannot report an error.
        let _ = self.restore();
    }
}

pub(super) fn is_busy(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::BUSY)
}

pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NODEV))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_and_gone_are_recognized_by_errno() {
        let of = |error: Errno| io::Error::from_raw_os_error(error.raw_os_error());
        assert!(is_busy(&of(Errno::BUSY)) && !is_busy(&of(Errno::INVAL)));
        assert!(
            is_gone(&of(Errno::NODEV)) && is_gone(&of(Errno::NOENT)) && !is_gone(&of(Errno::BUSY))
        );
    }
}
