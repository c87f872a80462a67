//! What is claimed of a guest, cut to what its hypervisor's process has mapped.
//!
//! Idea: a hypervisor says how much memory its guest has, and what of it the guest holds; the host's
//! kernel says how much its process has mapped, of whatever kind. The guest's memory is a part of
//! that. Cost: O(1) a guest; nothing is copied while nobody claims too much. Limits: to map memory
//! costs a process nothing while it does not touch it.

use std::borrow::Cow;

use crate::{Bytes, GuestSample, Hotplug, HotplugKind, Snapshot};

impl Snapshot {
    /// The snapshot with no guest that has more memory than its hypervisor's process has mapped,
    /// whatever is claimed. O(n).
    pub fn within_mapped(&self) -> Cow<'_, Snapshot> {
        if !self.guests().iter().any(GuestSample::exceeds_mapped) {
            return Cow::Borrowed(self);
        }
        let guests = self.guests().iter().map(|guest| guest.within_mapped().into_owned()).collect();
        Cow::Owned(Snapshot::new(self.taken_at, self.host.clone(), guests))
    }
}

impl GuestSample {
    /// Whether its hypervisor claims more memory for it than its process has mapped.
    pub fn exceeds_mapped(&self) -> bool {
        self.mapped.is_some_and(|mapped| self.claims() > mapped)
    }

    /// All the memory that is claimed for it and has to be mapped: a virtio-mem device maps what may
    /// be plugged in, a module does when it is.
    pub fn claims(&self) -> Bytes {
        let memory = match self.hotplug {
            Some(Hotplug { kind: HotplugKind::VirtioMem, .. }) => self.memory_max(),
            Some(_) | None => self.present_memory(),
        };
        let holds = self.allocation.map(|allocation| allocation.value);
        memory.max(holds).unwrap_or_default()
    }

    /// The guest with no more memory than its hypervisor's process has mapped, whatever is claimed.
    pub fn within_mapped(&self) -> Cow<'_, GuestSample> {
        let Some(mapped) = self.mapped.filter(|_| self.exceeds_mapped()) else {
            return Cow::Borrowed(self);
        };
        let mut cut = self.clone();
        let mapped = mapped.page_floor();
        cut.boot_memory = self.boot_memory.map(|boot| boot.min(mapped));
        let room = mapped - cut.boot_memory.unwrap_or_default();
        if let Some(hotplug) = &mut cut.hotplug {
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
        let present = cut.present_memory().unwrap_or(mapped);
        if let Some(allocation) = &mut cut.allocation {
            allocation.value = allocation.value.min(present);
        }
        Cow::Owned(cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LinkState, Measured};

    fn guest(boot: u64, hotplug: Option<Hotplug>, holds: u64, mapped: u64) -> GuestSample {
        GuestSample {
            boot_memory: Some(Bytes::mib(boot)),
            hotplug,
            allocation: Some(Measured::fresh(Bytes::mib(holds))),
            mapped: Some(Bytes::mib(mapped)),
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
        let figures = |guest: &GuestSample| {
            let cut = guest.within_mapped();
            let hotplug = cut.hotplug.map(|it| (mib(it.plugged), mib(it.requested), mib(it.max)));
            (mib(cut.boot_memory.unwrap()), hotplug, mib(cut.claimed().unwrap()))
        };
        let honest = guest(1024, None, 700, 1500);
        assert!(matches!(honest.within_mapped(), Cow::Borrowed(_)));
        assert!(matches!(GuestSample { mapped: None, ..honest }.within_mapped(), Cow::Borrowed(_)));
        assert_eq!(figures(&guest(1 << 20, None, 1 << 20, 1500)), (1500, None, 1500));
        let virtio = pluggable(HotplugKind::VirtioMem, 640, 4096);
        assert_eq!(figures(&guest(1024, virtio, 1664, 1500)), (1024, Some((384, 384, 384)), 1408));
        assert_eq!(figures(&guest(1024, virtio, 700, 1700)), (1024, Some((640, 640, 640)), 700));
        // What a module will need is mapped when it is plugged in.
        let module = pluggable(HotplugKind::Dimm, 256, 1024);
        assert_eq!(figures(&guest(1024, module, 700, 1400)), (1024, Some((256, 1024, 1024)), 700));
        assert_eq!(figures(&guest(1024, module, 1280, 1200)), (1024, Some((128, 896, 896)), 1152));
    }
}
