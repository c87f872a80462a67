//! The parts of a guest's memory, and the effect of an order on them.
//!
//! Idea: total = boot memory + plugged − what the balloon *holds*. The balloon holds a number of
//! pages, whatever is plugged in. So plugging without an order to the balloon changes the total by
//! exactly the plugged size. An order moves both parts in one direction as long as it does not make
//! the balloon hold less while it unplugs, nor more while it plugs. Limits: QEMU does not count
//! virtio-mem in the balloon's target: the target is the total less what is plugged in, and cannot
//! be zero. Memory modules are counted.

use std::time::Duration;

use ballast_model::{Bytes, GuestSample, HotplugKind, Mechanism, MechanismReason, RunState};

/// QEMU refuses a balloon target of zero.
const BALLOON_PART_MIN: Bytes = Bytes::mib(1);

/// The least and the most memory that a guest can be made to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// With everything unplugged that can be, and the balloon full.
    pub least: Bytes,
    /// With everything plugged in that can be, and the balloon empty.
    pub most: Bytes,
}

/// A guest's memory at one moment.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    kind: HotplugKind,
    boot: Bytes,
    pub(super) plugged: Bytes,
    pub(super) requested: Bytes,
    pub(super) max: Bytes,
    block: Bytes,
    /// Memory in the balloon.
    ballooned: Bytes,
    /// Memory that the guest holds, in whole pages.
    pub(super) total: Bytes,
    /// Why only plugging moves memory; `None`: the balloon does too.
    plug_only: Option<MechanismReason>,
}

impl Layout {
    /// The layout of a running guest; `None` if a figure is missing or stale.
    pub(super) fn of(sample: &GuestSample, stale_after: Duration) -> Option<Layout> {
        let hotplug = sample.hotplug?;
        let (boot, present) = (sample.boot_memory?, sample.present_memory()?);
        if !matches!(sample.run_state, None | Some(RunState::Running)) {
            return None;
        }
        let plug_only = why_plug_only(sample);
        let total = match sample.allocation {
            Some(allocation) if allocation.age <= stale_after => allocation.value,
            // Without a balloon QEMU does not report what the guest holds, which is all of its
            // memory.
            None if plug_only == Some(MechanismReason::NoBalloon) => present,
            _ => return None,
        };
        let total = total.min(present).page_floor();
        let block = hotplug.block.max(Bytes::pages(1));
        Some(Layout {
            kind: hotplug.kind,
            boot,
            plugged: hotplug.plugged,
            requested: hotplug.requested,
            max: whole_blocks(hotplug.max, block),
            block,
            ballooned: present - total,
            total,
            plug_only,
        })
    }

    /// The most that the guest can hold with `plugged` plugged in.
    pub(super) fn most_with(&self, plugged: Bytes) -> Bytes {
        if self.plugs_only() { self.total_with(plugged) } else { self.present_with(plugged) }
    }

    /// All memory of the guest, ballooned or not.
    pub(super) fn present(&self) -> Bytes {
        self.present_with(self.plugged)
    }

    /// All memory of the guest with `plugged` plugged in.
    fn present_with(&self, plugged: Bytes) -> Bytes {
        self.boot.saturating_add(plugged)
    }

    /// The part of `total` that exceeds boot memory.
    pub(super) fn beyond_boot(&self, total: Bytes) -> Bytes {
        total.saturating_sub(self.boot)
    }

    /// What the guest holds once `plugged` is plugged in and the balloon is unchanged.
    pub(super) fn total_with(&self, plugged: Bytes) -> Bytes {
        self.present_with(plugged).saturating_sub(self.ballooned)
    }

    /// The total nearest to `target` that is possible with `plugged` plugged in.
    pub(super) fn reachable(&self, target: Bytes, plugged: Bytes) -> Bytes {
        if self.plugs_only() {
            return self.total_with(plugged);
        }
        target.clamp(self.least_with(plugged), self.present_with(plugged))
    }

    /// The least that the balloon can leave to a guest with `plugged` plugged in.
    pub(super) fn least_with(&self, plugged: Bytes) -> Bytes {
        let not_in_boot_memory = match self.kind {
            HotplugKind::VirtioMem => plugged,
            HotplugKind::Dimm => Bytes::ZERO,
        };
        not_in_boot_memory.saturating_add(BALLOON_PART_MIN.min(self.boot))
    }

    /// The most that can be plugged in while the balloon can still leave the guest no more than
    /// `target`.
    pub(super) fn plugged_within(&self, target: Bytes) -> Bytes {
        match self.kind {
            HotplugKind::VirtioMem => {
                self.blocks(target.saturating_sub(self.least_with(Bytes::ZERO)))
            }
            HotplugKind::Dimm => self.max.max(self.plugged),
        }
    }

    /// The least and the most that the guest can be made to hold.
    pub(super) fn range(&self, may_plug: bool) -> Range {
        let least = match &self.plug_only {
            Some(_) => self.total_with(Bytes::ZERO),
            None => BALLOON_PART_MIN.min(self.boot),
        };
        let plugged = if may_plug { self.max.max(self.plugged) } else { self.plugged };
        Range { least, most: self.most_with(plugged) }
    }

    /// Whole blocks, rounded down.
    pub(super) fn blocks(&self, amount: Bytes) -> Bytes {
        whole_blocks(amount, self.block)
    }

    /// Whole blocks, rounded up.
    pub(super) fn blocks_up(&self, amount: Bytes) -> Bytes {
        self.blocks(amount.saturating_add(self.block - Bytes::new(1)))
    }

    /// Whether the devices can have `plug` plugged in: whole blocks in total or, where devices have
    /// blocks of different sizes, a change by whole blocks.
    pub(super) fn can_plug(&self, plug: Bytes) -> bool {
        let is_whole_from = |from: Bytes| {
            let change = plug.abs_diff(from);
            self.blocks(change) == change
        };
        let is_whole = [Bytes::ZERO, self.plugged, self.requested].into_iter().any(is_whole_from);
        is_whole && plug <= self.max.max(self.plugged)
    }

    /// The most that one action plugs or unplugs: `most` in whole blocks, but at least one block.
    pub(super) fn chunk(&self, most: Bytes) -> Bytes {
        self.blocks(most).max(self.block)
    }

    pub(super) fn block(&self) -> Bytes {
        self.block
    }

    /// Whether only plugging moves memory.
    pub(super) fn plugs_only(&self) -> bool {
        self.plug_only.is_some()
    }

    /// Why only plugging moves memory, if so.
    pub(super) fn why_plug_only(&self) -> Option<MechanismReason> {
        self.plug_only.clone()
    }

    /// Why a pending request of another client is withdrawn.
    pub(super) fn why_withdrawn(&self) -> MechanismReason {
        match self.requested > self.plugged {
            true => MechanismReason::AskedByOthers { more: self.requested - self.plugged },
            false => MechanismReason::Growing,
        }
    }

    pub(super) fn mechanism(&self) -> Mechanism {
        mechanism_of(self.kind)
    }
}

/// Why only plugging moves a guest's memory; `None`: its balloon does too.
pub(super) fn why_plug_only(sample: &GuestSample) -> Option<MechanismReason> {
    if sample.capabilities.balloon == Some(false) {
        Some(MechanismReason::NoBalloon)
    } else if sample.capabilities.discard_inhibited == Some(true) {
        Some(MechanismReason::BallooningInhibited)
    } else {
        None
    }
}

pub(super) fn mechanism_of(kind: HotplugKind) -> Mechanism {
    match kind {
        HotplugKind::VirtioMem => Mechanism::VirtioMem,
        HotplugKind::Dimm => Mechanism::Dimm,
    }
}

/// Whole multiples of `block`, rounded down.
fn whole_blocks(amount: Bytes, block: Bytes) -> Bytes {
    Bytes::new(amount.get() - amount.get() % block.get())
}
