//! Memory that can be plugged into a guest while it runs.
//!
//! Idea: a device or slots for it, empty at boot, and whether the guest's kernel takes into use what is
//! plugged in. Source: QEMU 7.2's manual; `Documentation/admin-guide/mm/memory-hotplug.rst` of Linux.
//! Limits: whole memory sections of x86-64 (128 MiB), 32 GiB at most.

use ballast_model::Bytes;
use serde::{Deserialize, Serialize};

/// What Linux on x86-64 takes memory in, and the size of a module.
const SECTION: Bytes = Bytes::mib(128);
/// QEMU's machines have 256 slots for modules.
const SECTIONS_MAX: u64 = 256;

/// Memory that can be plugged in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hotplug {
    /// The most of it; whole 128 MiB.
    pub max: Bytes,
    /// By what; a virtio-mem device without it.
    #[serde(default)]
    pub kind: HotplugKind,
    /// Whether the guest's kernel takes it into use by itself; yes without it.
    #[serde(default = "yes")]
    pub online: bool,
}

/// By what memory is plugged in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HotplugKind {
    /// A virtio-mem device, in blocks of 2 MiB.
    #[default]
    VirtioMem,
    /// Slots for memory modules.
    Dimm,
}

fn yes() -> bool {
    true
}

impl Hotplug {
    /// That much by a virtio-mem device, which the guest takes into use.
    pub fn virtio_mem(max: Bytes) -> Self {
        Hotplug { max, kind: HotplugKind::VirtioMem, online: true }
    }

    /// Checks that it can be.
    ///
    /// # Errors
    /// Says what would be possible.
    pub(crate) fn validate(&self) -> Result<(), String> {
        let is_whole = self.max.get().is_multiple_of(SECTION.get());
        if is_whole && (1..=SECTIONS_MAX).contains(&(self.max.get() / SECTION.get())) {
            return Ok(());
        }
        let most = SECTION.fraction(SECTIONS_MAX, 1);
        Err(format!(
            "max = {:#} must be whole {SECTION}, at least one and at most {most}",
            self.max
        ))
    }

    /// What follows the memory of the boot in `-m`.
    pub(crate) fn memory_argument(&self, boot_mib: u64) -> String {
        let slots = match self.kind {
            HotplugKind::VirtioMem => 1,
            HotplugKind::Dimm => self.max.get() / SECTION.get(),
        };
        format!(",maxmem={}M,slots={slots}", boot_mib + (self.max.get() >> 20))
    }

    /// The values of `-object` and `-device`, where there is a device from the beginning.
    pub(crate) fn device(&self) -> Option<(String, String)> {
        let mib = self.max.get() >> 20;
        (self.kind == HotplugKind::VirtioMem).then(|| {
            let object = format!("memory-backend-memfd,id=plug,size={mib}M,share=on");
            let device = "virtio-mem-pci,id=plug0,memdev=plug,requested-size=0,block-size=2M";
            (object, device.to_owned())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_sections_are_taken() {
        for (max, is_good) in [
            (Bytes::ZERO, false),
            (Bytes::mib(64), false),
            (Bytes::mib(128), true),
            (Bytes::mib(192), false),
            (Bytes::gib(32), true),
            (Bytes::gib(33), false),
        ] {
            assert_eq!(Hotplug::virtio_mem(max).validate().is_ok(), is_good, "{max}");
        }
    }
}
