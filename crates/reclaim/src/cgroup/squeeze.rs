//! A bound on a guest's memory, lowered step by step, and put back.

use std::io;

use ballast_model::Bytes;
use rustix::io::Errno;

use super::find::CgroupVersion;
use super::group::MemoryCgroup;
use crate::{Refusal, Swap, SwapBounds};

/// A bound is lowered by this much at once: the kernel reclaims it while it is written, and gives up where it
/// cannot.
pub const LIMIT_STEP: Bytes = Bytes::mib(20);

/// Version 2 counts in batches for each processor: so much above its bound a group may seem to be.
const SLACK: Bytes = Bytes::mib(1);

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Squeezed {
    /// How far it is.
    pub step: SqueezeStep,
    /// Memory counted in the group now.
    pub usage: Bytes,
    /// The bound now; `None` for none.
    pub limit: Option<Bytes>,
}

/// How far a squeeze is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqueezeStep {
    /// The bound is lower, and to be lowered further.
    Going,
    /// The group has no more than the target, and is held there.
    Reached,
    /// The kernel finds nothing more that is not in use. The bound from before is back.
    Floor,
}

/// Holds the bound of a group. Dropped, or [released](Squeeze::release), it puts back the bound from before.
#[derive(Debug)]
pub struct Squeeze {
    group: MemoryCgroup,
    before: Option<Bytes>,
    is_set: bool,
}

impl Squeeze {
    pub(super) fn new(group: MemoryCgroup) -> Result<Squeeze, Refusal> {
        let before = group.limit()?;
        Ok(Squeeze { group, before, is_set: false })
    }

    /// The group.
    pub fn group(&self) -> &MemoryCgroup {
        &self.group
    }

    /// Lowers the bound by up to [`LIMIT_STEP`] below what the group has now, and not below `target`; never above the bound
    /// from before. Takes as long as the kernel reclaims.
    ///
    /// # Errors
    /// [`Refusal::NoSwap`], [`Refusal::SwapFull`], [`Refusal::Cgroup`] or [`Refusal::Unreadable`]. The bound stays where
    /// the last step set it.
    pub fn step(&mut self, target: Bytes, swap: &SwapBounds) -> Result<Squeezed, Refusal> {
        let usage = self.group.usage()?;
        let room = swap.room(&Swap::read(&self.group.root.join("proc"))?)?;
        let floor = usage.saturating_sub(LIMIT_STEP.min(room)).page_ceil();
        let limit = target.page_ceil().max(floor).min(self.before.unwrap_or(Bytes::MAX));
        let is_refused = match self.set(Some(limit)) {
            Ok(()) => {
                self.is_set = true;
                false
            }
            Err(error) if is_busy(&error) => true,
            Err(error) => {
                let text = self.text(Some(limit));
                return Err(self.group.refused(self.group.limit_name(), text, error));
            }
        };
        let usage = self.group.usage()?;
        // Version 2 takes any bound, and holds back who is above it.
        if is_refused || usage > limit.saturating_add(SLACK) {
            self.restore()?;
            return Ok(Squeezed { step: SqueezeStep::Floor, usage, limit: self.before });
        }
        let step = match limit <= target.page_ceil() {
            true => SqueezeStep::Reached,
            false => SqueezeStep::Going,
        };
        Ok(Squeezed { step, usage, limit: Some(limit) })
    }

    /// Puts back the bound from before.
    ///
    /// # Errors
    /// [`Refusal::Cgroup`]. A group that is gone is none.
    pub fn release(mut self) -> Result<(), Refusal> {
        self.restore()
    }

    fn restore(&mut self) -> Result<(), Refusal> {
        if !std::mem::take(&mut self.is_set) {
            return Ok(());
        }
        match self.set(self.before) {
            Ok(()) => Ok(()),
            Err(error) if is_gone(&error) => Ok(()),
            Err(error) => {
                let text = self.text(self.before);
                Err(self.group.refused(self.group.limit_name(), text, error))
            }
        }
    }

    fn set(&self, limit: Option<Bytes>) -> io::Result<()> {
        self.group.write(self.group.limit_name(), &self.text(limit))
    }

    fn text(&self, limit: Option<Bytes>) -> String {
        match (limit, self.group.version()) {
            (Some(limit), _) => limit.get().to_string(),
            (None, CgroupVersion::One) => "-1".to_owned(),
            (None, CgroupVersion::Two) => "max".to_owned(),
        }
    }
}

impl Drop for Squeeze {
    fn drop(&mut self) {
        // Nobody is left to be told.
        let _ = self.restore();
    }
}

fn is_busy(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::BUSY)
}

fn is_gone(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NODEV))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_is_told_apart() {
        let of = |error: Errno| io::Error::from_raw_os_error(error.raw_os_error());
        assert!(is_busy(&of(Errno::BUSY)) && !is_busy(&of(Errno::INVAL)));
        assert!(
            is_gone(&of(Errno::NODEV)) && is_gone(&of(Errno::NOENT)) && !is_gone(&of(Errno::BUSY))
        );
    }
}
