//! A guest's memory devices, as QEMU lists them.
//!
//! Idea: virtio-mem devices and our own memory modules (`pc-dimm`) can be changed. Modules of
//! others are treated like boot memory: they are never removed here.
//! Source: `qapi/machine.json` of QEMU 7.2, `MemoryDeviceInfo`.
//! Limits: at most [`DEVICES_MAX`] devices are read, sizes of modules in whole pages. Of other
//! kinds (NVDIMM, persistent memory, enclaves) only the address space they occupy counts.

use std::borrow::Cow;

use ballast_model::{Bytes, PAGE_SIZE};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::probe::PATH_BYTES_MAX;
use crate::command::ModuleNumber;

/// The most memory that a processor can address: 52 bits on x86-64.
pub(super) const ADDRESSABLE_MAX: Bytes = Bytes::new(1 << 52);

/// Most devices read. QEMU's machines have 256 slots for modules at most, and a few PCI buses.
const DEVICES_MAX: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VirtioMemDevice {
    /// `None`: no id, or a longer one than is accepted.
    pub(super) id: Option<String>,
    /// The amount requested.
    pub(super) requested: Bytes,
    /// The amount plugged.
    pub(super) size: Bytes,
    /// The most that can be plugged.
    pub(super) max: Bytes,
    /// Amounts are multiples of this.
    pub(super) block: Bytes,
}

/// A memory module of our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OwnModule {
    pub(super) number: ModuleNumber,
    pub(super) size: Bytes,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MemoryDevices {
    pub(super) virtio_mem: Vec<VirtioMemDevice>,
    pub(super) modules: Vec<OwnModule>,
    /// Memory in modules of others.
    pub(super) foreign: Bytes,
    /// Occupied module slots.
    pub(super) slots: u64,
    /// Address space that all devices occupy.
    pub(super) space: Bytes,
    /// Number of devices.
    pub(super) count: usize,
}

#[derive(Deserialize)]
struct DeviceEntry<'a> {
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

impl MemoryDevices {
    /// Parses the reply to `query-memory-devices`.
    ///
    /// # Errors
    /// The reply is malformed, a virtio-mem device reports an impossible amount, or all devices
    /// together have more memory than can be addressed.
    pub(super) fn parse(json: &str) -> Result<MemoryDevices, serde_json::Error> {
        let entries: Vec<DeviceEntry<'_>> = serde_json::from_str(json)?;
        let mut devices = MemoryDevices { count: entries.len(), ..MemoryDevices::default() };
        for DeviceEntry { kind, data } in entries.into_iter().take(DEVICES_MAX) {
            let occupied = match kind.as_ref() {
                "virtio-mem" => {
                    let device: VirtioMemData<'_> = serde_json::from_str(data.get())?;
                    devices.virtio_mem.push(device.checked()?);
                    device.max_size
                }
                "dimm" => {
                    let module: SizedData<'_> = serde_json::from_str(data.get())?;
                    let size = Bytes::new(module.size).page_floor();
                    match module.id.as_deref().and_then(ModuleNumber::of_device) {
                        Some(number) => devices.modules.push(OwnModule { number, size }),
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
            devices.space = devices.space.saturating_add(Bytes::new(occupied));
        }
        if devices.space > ADDRESSABLE_MAX {
            return Err(serde::de::Error::custom(format!(
                "devices of {} in all, expected at most {ADDRESSABLE_MAX}",
                devices.space
            )));
        }
        Ok(devices)
    }

    /// Memory plugged in virtio-mem devices.
    pub(super) fn virtio_mem_size(&self) -> Bytes {
        self.virtio_mem.iter().map(|device| device.size).sum()
    }

    /// Memory in our own modules.
    pub(super) fn modules_size(&self) -> Bytes {
        self.modules.iter().map(|module| module.size).sum()
    }

    /// Plugged memory that can be unplugged.
    pub(super) fn plugged(&self) -> Bytes {
        self.virtio_mem_size().saturating_add(self.modules_size())
    }
}

impl VirtioMemData<'_> {
    /// The device, if its amounts are whole blocks within its size, as QEMU keeps them. A plan made
    /// from impossible amounts would be refused as a whole, for all guests.
    fn checked(&self) -> Result<VirtioMemDevice, serde_json::Error> {
        let block = self.block_size.max(PAGE_SIZE);
        let is_possible = |amount: u64| amount <= self.max_size && amount.is_multiple_of(block);
        let is_whole = block.is_multiple_of(PAGE_SIZE);
        if !is_whole || !is_possible(self.size) || !is_possible(self.requested_size) {
            return Err(serde::de::Error::custom(format!(
                "virtio-mem with {} plugged and {} requested, expected whole blocks of {block}, at \
                 most {}",
                self.size, self.requested_size, self.max_size
            )));
        }
        let id = self.id.as_deref().filter(|id| id.len() <= PATH_BYTES_MAX);
        Ok(VirtioMemDevice {
            id: id.map(str::to_owned),
            requested: Bytes::new(self.requested_size),
            size: Bytes::new(self.size),
            max: Bytes::new(self.max_size),
            block: Bytes::new(block),
        })
    }
}

/// Rounds `size` down to whole blocks.
pub(super) fn floor_to(size: Bytes, block: Bytes) -> Bytes {
    let over = size.get().checked_rem(block.get()).unwrap_or(0);
    size.saturating_sub(Bytes::new(over))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_parsed_by_kind() {
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
        let devices = MemoryDevices::parse(json).unwrap();
        let device = VirtioMemDevice {
            id: Some("vm0".to_owned()),
            requested: Bytes::mib(256),
            size: Bytes::mib(4),
            max: Bytes::mib(512),
            block: Bytes::mib(2),
        };
        assert_eq!(devices.virtio_mem, [device]);
        assert_eq!(devices.modules, [OwnModule { number: ModuleNumber(2), size: Bytes::mib(128) }]);
        assert_eq!((devices.foreign, devices.slots, devices.count), (Bytes::mib(64), 3, 5));
        assert_eq!(devices.space, Bytes::mib(512 + 128 + 64) + Bytes::kib(12));
        assert_eq!(devices.plugged(), Bytes::mib(132));
    }

    #[test]
    fn odd_figures_neither_overflow_nor_divide_by_zero() {
        let one = r#"[{"type": "virtio-mem", "data": {"block-size": 0, "size": 4096,
            "max-size": 4503599627370496, "requested-size": 4503599627370496}}]"#;
        let devices = MemoryDevices::parse(one).unwrap();
        assert_eq!(devices.virtio_mem[0].block, Bytes::new(PAGE_SIZE));
        assert_eq!(floor_to(Bytes::mib(5), Bytes::ZERO), Bytes::mib(5));
        let long = format!(
            r#"[{{"type": "dimm", "data": {{"id": "{}", "size": 4097}}}}]"#,
            "x".repeat(500)
        );
        assert_eq!(MemoryDevices::parse(&long).unwrap().foreign, Bytes::pages(1));
    }

    #[test]
    fn more_memory_than_can_be_addressed_is_refused() {
        let most = ADDRESSABLE_MAX.get();
        for (first, second) in [(most, 1), (u64::MAX, u64::MAX)] {
            let one = |size| format!(r#"{{"type": "dimm", "data": {{"size": {size}}}}}"#);
            let parsed = MemoryDevices::parse(&format!("[{}, {}]", one(first), one(second)));
            assert!(parsed.unwrap_err().to_string().contains("expected at most 4096TiB"));
        }
    }

    #[test]
    fn amounts_that_no_device_can_have_are_refused() {
        let parse = |size: u64, requested: u64, block: u64| {
            MemoryDevices::parse(&format!(
                r#"[{{"type": "virtio-mem", "data": {{"block-size": {block}, "size": {size},
                "max-size": 8388608, "requested-size": {requested}}}}}]"#
            ))
        };
        let mib = 1 << 20;
        assert!(parse(2 * mib, 8 * mib, 2 * mib).is_ok());
        assert!(parse(0, 0, 4097).is_err(), "blocks of no whole pages");
        for (size, requested) in [(10 * mib, 0), (0, 10 * mib), (3 * mib, 0), (0, mib)] {
            let error = parse(size, requested, 2 * mib).unwrap_err().to_string();
            assert!(error.contains("expected whole blocks of 2097152, at most 8388608"), "{error}");
        }
    }

    #[test]
    fn a_malformed_device_list_is_an_error() {
        for json in
            ["{}", "[1]", r#"[{"type": "dimm"}]"#, r#"[{"type": "virtio-mem", "data": {}}]"#]
        {
            assert!(MemoryDevices::parse(json).is_err(), "{json}");
        }
    }
}
