//! Memory hotplug of a guest.
//!
//! Idea: a device or slots that are empty at boot, and whether the guest's kernel onlines plugged
//! memory. Source: QEMU 7.2's manual; `Documentation/admin-guide/mm/memory-hotplug.rst` of Linux.
//! Limits: whole memory sections of x86-64 (128 MiB), 32 GiB at most.

use ballast_model::Bytes;
use serde::{Deserialize, Serialize};

/// The unit of memory hotplug of Linux on x86-64, and the size of a memory module.
const SECTION: Bytes = Bytes::mib(128);
/// QEMU's machines have 256 slots for memory modules.
const SECTIONS_MAX: u64 = 256;

/// Memory that can be plugged into a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hotplug {
    /// The maximum; a multiple of 128 MiB.
    pub max: Bytes,
    /// The mechanism; a virtio-mem device by default.
    #[serde(default)]
    pub kind: HotplugKind,
    /// Whether the guest's kernel onlines it automatically; yes by default.
    #[serde(default = "yes")]
    pub online: bool,
}

/// The mechanism of memory hotplug.
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
    /// A virtio-mem device of `max`, whose memory the guest onlines.
    pub fn virtio_mem(max: Bytes) -> Self {
        Hotplug { max, kind: HotplugKind::VirtioMem, online: true }
    }

    /// Checks the size.
    ///
    /// # Errors
    /// A message that says which sizes are valid.
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

    /// The options that follow the boot memory in `-m`.
    pub(crate) fn memory_argument(&self, boot_mib: u64) -> String {
        let slots = match self.kind {
            HotplugKind::VirtioMem => 1,
            HotplugKind::Dimm => self.max.get() / SECTION.get(),
        };
        format!(",maxmem={}M,slots={slots}", boot_mib + (self.max.get() >> 20))
    }

    /// The values of `-object` and `-device`, if a device exists at boot.
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
    fn only_whole_sections_are_accepted() {
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
