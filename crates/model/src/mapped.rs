//! Cutting claims about a guest's memory to what its hypervisor's process has mapped.
//!
//! Idea: a hypervisor says how much memory its guest has, and how much of it the guest holds. The
//! host's kernel says how much memory of any kind the process has mapped, and the guest's memory is
//! a part of that. Cost: O(1) per guest. Limits: mapping memory costs a process nothing until it
//! touches it.

use crate::{Bytes, GuestSample, Hotplug, HotplugKind};

impl GuestSample {
    /// All claimed memory that has to be mapped. A virtio-mem device maps everything that may be
    /// plugged in; a memory module is mapped when it is plugged in.
    pub fn claims(&self) -> Bytes {
        let memory = match self.hotplug {
            Some(Hotplug { kind: HotplugKind::VirtioMem, .. }) => self.memory_max(),
            Some(_) | None => self.present_memory(),
        };
        let holds = self.allocation.map(|allocation| allocation.value);
        memory.max(holds).unwrap_or_default()
    }

    /// Cuts all claims to `mapped`, the memory that the hypervisor's process has mapped, and notes
    /// how much was cut.
    pub fn cut_to_mapped(&mut self, mapped: Bytes) {
        let claims = self.claims();
        if claims <= mapped {
            return;
        }
        self.unmapped = Some(claims - mapped);
        let mapped = mapped.page_floor();
        self.boot_memory = self.boot_memory.map(|boot| boot.min(mapped));
        let room = mapped - self.boot_memory.unwrap_or_default();
        if let Some(hotplug) = &mut self.hotplug {
            let blocks = room.get().checked_div(hotplug.block.get()).unwrap_or_default();
            let most = hotplug.block.fraction(blocks, 1);
            let plugged = if hotplug.plugged > room { most } else { hotplug.plugged };
            hotplug.max = match hotplug.kind {
                HotplugKind::VirtioMem if hotplug.max > room => most.max(plugged),
                HotplugKind::VirtioMem => hotplug.max,
                HotplugKind::Dimm => hotplug.max.saturating_sub(hotplug.plugged - plugged),
            };
            hotplug.plugged = plugged;
            hotplug.requested = hotplug.requested.min(hotplug.max.max(plugged));
        }
        let present = self.present_memory().unwrap_or(mapped);
        if let Some(allocation) = &mut self.allocation {
            allocation.value = allocation.value.min(present);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LinkState, Measured};

    fn guest(boot: u64, hotplug: Option<Hotplug>, holds: u64) -> GuestSample {
        GuestSample {
            boot_memory: Some(Bytes::mib(boot)),
            hotplug,
            allocation: Some(Measured::fresh(Bytes::mib(holds))),
            ..GuestSample::unknown("a".parse().unwrap(), LinkState::Up)
        }
    }

    fn pluggable(kind: HotplugKind, plugged: u64, max: u64) -> Option<Hotplug> {
        let (plugged, max, block) = (Bytes::mib(plugged), Bytes::mib(max), Bytes::mib(128));
        Some(Hotplug { kind, plugged, requested: max, max, block })
    }

    #[test]
    fn no_guest_has_more_than_is_mapped() {
        let mib = |bytes: Bytes| bytes.get() >> 20;
        let figures = |mut guest: GuestSample, mapped| {
            guest.cut_to_mapped(Bytes::mib(mapped));
            let hotplug = guest.hotplug.map(|it| (mib(it.plugged), mib(it.requested), mib(it.max)));
            (mib(guest.boot_memory.unwrap()), hotplug, mib(guest.claimed().unwrap()))
        };
        let honest = guest(1024, None, 700);
        let mut looked_at = honest.clone();
        looked_at.cut_to_mapped(Bytes::mib(1500));
        assert_eq!(looked_at, honest);
        assert_eq!(figures(guest(1 << 20, None, 1 << 20), 1500), (1500, None, 1500));
        let virtio = pluggable(HotplugKind::VirtioMem, 640, 4096);
        assert_eq!(figures(guest(1024, virtio, 1664), 1500), (1024, Some((384, 384, 384)), 1408));
        assert_eq!(figures(guest(1024, virtio, 700), 1700), (1024, Some((640, 640, 640)), 700));
        // The memory of a module is mapped when it is plugged in.
        let module = pluggable(HotplugKind::Dimm, 256, 1024);
        assert_eq!(figures(guest(1024, module, 700), 1400), (1024, Some((256, 1024, 1024)), 700));
        assert_eq!(figures(guest(1024, module, 1280), 1200), (1024, Some((128, 896, 896)), 1152));
    }

    #[test]
    fn what_is_left_out_is_noted() {
        let mut liar = guest(1 << 20, None, 1 << 20);
        liar.cut_to_mapped(Bytes::mib(1500));
        assert_eq!(liar.unmapped, Some(Bytes::mib((1 << 20) - 1500)));
        let present = liar.present_memory();
        liar.cut_to_mapped(Bytes::mib(1500));
        assert_eq!(liar.present_memory(), present);
    }
}
