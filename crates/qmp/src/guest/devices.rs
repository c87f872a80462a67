//! Memory devices of a guest, as QEMU lists them.
//!
//! Idea: virtio-mem devices, and memory modules (`pc-dimm`), our own apart from all others. Modules
//! that are not ours are memory like what the guest was booted with: nobody here removes them.
//! Source: `qapi/machine.json` of QEMU 7.2, `MemoryDeviceInfo`.
//! Limits: [`DEVICES_MAX`] devices are read, the rest passed over. Of other kinds (NVDIMM, persistent
//! memory, enclaves) only what they take of the space for devices counts.

use std::borrow::Cow;

use ballast_model::{Bytes, PAGE_SIZE};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::probe::PATH_BYTES_MAX;
use crate::command::ModuleNumber;

/// Most devices read. QEMU's machines have 256 slots for modules at most, and a few PCI buses.
const DEVICES_MAX: usize = 1024;

/// A virtio-mem device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VirtioMem {
    /// What its creator called it; `None`: nothing, or longer than is accepted.
    pub(super) id: Option<String>,
    /// What the guest was asked to have plugged in.
    pub(super) requested: Bytes,
    /// What it has plugged in.
    pub(super) size: Bytes,
    /// The most it can have.
    pub(super) max: Bytes,
    /// Amounts are whole multiples of this.
    pub(super) block: Bytes,
}

/// A memory module of our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Module {
    pub(super) number: ModuleNumber,
    pub(super) size: Bytes,
}

/// All memory devices of a guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Devices {
    pub(super) virtio_mem: Vec<VirtioMem>,
    /// Our own modules.
    pub(super) modules: Vec<Module>,
    /// Memory in modules of others.
    pub(super) foreign: Bytes,
    /// Slots for modules that are taken.
    pub(super) slots: u64,
    /// What all devices take of the address space kept for them.
    pub(super) space: Bytes,
    /// How many there are.
    pub(super) count: usize,
}

#[derive(Deserialize)]
struct Entry<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    data: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct VirtioMemData<'a> {
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    requested_size: u64,
    size: u64,
    max_size: u64,
    block_size: u64,
}

#[derive(Deserialize)]
struct SizedData<'a> {
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(default)]
    size: u64,
}

impl Devices {
    /// Reads what `query-memory-devices` returned.
    ///
    /// # Errors
    /// When it is not that.
    pub(super) fn read(json: &str) -> Result<Devices, serde_json::Error> {
        let entries: Vec<Entry<'_>> = serde_json::from_str(json)?;
        let mut devices = Devices { count: entries.len(), ..Devices::default() };
        for Entry { kind, data } in entries.into_iter().take(DEVICES_MAX) {
            let takes = match kind.as_ref() {
                "virtio-mem" => {
                    let device: VirtioMemData<'_> = serde_json::from_str(data.get())?;
                    devices.virtio_mem.push(VirtioMem::from(&device));
                    device.max_size
                }
                "dimm" => {
                    let module: SizedData<'_> = serde_json::from_str(data.get())?;
                    let size = Bytes::new(module.size);
                    match module.id.as_deref().and_then(ModuleNumber::of_device) {
                        Some(number) => devices.modules.push(Module { number, size }),
                        None => devices.foreign = devices.foreign.saturating_add(size),
                    }
                    devices.slots += 1;
                    module.size
                }
                other => {
                    devices.slots += u64::from(other == "nvdimm");
                    serde_json::from_str::<SizedData<'_>>(data.get())?.size
                }
            };
            devices.space = devices.space.saturating_add(Bytes::new(takes));
        }
        Ok(devices)
    }

    /// What the virtio-mem devices have plugged in.
    pub(super) fn virtio_mem_size(&self) -> Bytes {
        self.virtio_mem.iter().map(|device| device.size).sum()
    }

    /// What our own modules come to.
    pub(super) fn modules_size(&self) -> Bytes {
        self.modules.iter().map(|module| module.size).sum()
    }

    /// What is plugged in, and can be pulled out again.
    pub(super) fn plugged(&self) -> Bytes {
        self.virtio_mem_size().saturating_add(self.modules_size())
    }
}

impl From<&VirtioMemData<'_>> for VirtioMem {
    fn from(data: &VirtioMemData<'_>) -> VirtioMem {
        let id = data.id.as_deref().filter(|id| id.len() <= PATH_BYTES_MAX);
        VirtioMem {
            id: id.map(str::to_owned),
            requested: Bytes::new(data.requested_size),
            size: Bytes::new(data.size),
            max: Bytes::new(data.max_size),
            block: Bytes::new(data.block_size.max(PAGE_SIZE)),
        }
    }
}

/// `size` in whole blocks.
pub(super) fn floor_to(size: Bytes, block: Bytes) -> Bytes {
    let over = size.get().checked_rem(block.get()).unwrap_or(0);
    size.saturating_sub(Bytes::new(over))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_told_apart() {
        let json = r#"[
            {"type": "virtio-mem", "data": {"memdev": "/objects/vm0", "memaddr": 4294967296,
             "block-size": 2097152, "size": 4194304, "node": 0, "max-size": 536870912,
             "requested-size": 268435456, "id": "vm0"}},
            {"type": "dimm", "data": {"memdev": "/objects/ballast-mem-2", "hotplugged": true,
             "addr": 1, "hotpluggable": true, "size": 134217728, "slot": 0, "node": 0,
             "id": "ballast-dimm-2"}},
            {"type": "dimm", "data": {"memdev": "/objects/m", "hotplugged": false, "addr": 2,
             "hotpluggable": true, "size": 67108864, "slot": 1, "node": 0}},
            {"type": "nvdimm", "data": {"id": "nv", "size": 4096, "slot": 2}},
            {"type": "virtio-pmem", "data": {"id": "pm", "size": 8192, "memaddr": 3}}]"#;
        let devices = Devices::read(json).unwrap();
        let device = VirtioMem {
            id: Some("vm0".to_owned()),
            requested: Bytes::mib(256),
            size: Bytes::mib(4),
            max: Bytes::mib(512),
            block: Bytes::mib(2),
        };
        assert_eq!(devices.virtio_mem, [device]);
        assert_eq!(devices.modules, [Module { number: ModuleNumber(2), size: Bytes::mib(128) }]);
        assert_eq!((devices.foreign, devices.slots, devices.count), (Bytes::mib(64), 3, 5));
        assert_eq!(devices.space, Bytes::mib(512 + 128 + 64) + Bytes::kib(12));
        assert_eq!(devices.plugged(), Bytes::mib(132));
    }

    #[test]
    fn absurd_figures_neither_overflow_nor_divide_by_zero() {
        let one = r#"{"type": "virtio-mem", "data": {"block-size": 0, "size": 18446744073709551615,
            "max-size": 18446744073709551615, "requested-size": 18446744073709551615}}"#;
        let devices = Devices::read(&format!("[{one}, {one}]")).unwrap();
        assert_eq!(devices.plugged(), Bytes::MAX);
        assert_eq!(devices.virtio_mem[0].block, Bytes::new(PAGE_SIZE));
        assert_eq!(floor_to(Bytes::mib(5), Bytes::ZERO), Bytes::mib(5));
        let long =
            format!(r#"[{{"type": "dimm", "data": {{"id": "{}", "size": 1}}}}]"#, "x".repeat(500));
        assert_eq!(Devices::read(&long).unwrap().foreign, Bytes::new(1));
    }

    #[test]
    fn what_is_no_list_of_devices_is_refused() {
        for json in
            ["{}", "[1]", r#"[{"type": "dimm"}]"#, r#"[{"type": "virtio-mem", "data": {}}]"#]
        {
            assert!(Devices::read(json).is_err(), "{json}");
        }
    }
}
