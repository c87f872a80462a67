//! The peer's memory devices: one virtio-mem device, or slots for modules.
//!
//! Idea: the guest follows requests of its virtio-mem device at a given rate, and gives back
//! modules at once, down to the amount that it keeps.
//! Source: replies recorded from QEMU 7.2, see `tests/transcripts/`, and its errors.

use std::time::Duration;

use ballast_model::{Bytes, HotplugKind};
use serde_json::{Value, json};

use super::failure::Failure;
use super::peer_config::PeerHotplug;

/// Path of the virtio-mem device.
const PATH: &str = "/machine/peripheral/vm0";

#[derive(Debug)]
pub(super) struct Plugged {
    config: PeerHotplug,
    requested: Bytes,
    size: Bytes,
    moved_at: Duration,
    /// The plugged size to report, if the caller moves the guest.
    claimed: Option<Bytes>,
    /// Ids and sizes of memory backends for modules.
    memory: Vec<(String, u64)>,
    /// Ids of modules, and of their memory backends.
    modules: Vec<(String, String)>,
}

impl Plugged {
    pub(super) fn new(config: PeerHotplug, now: Duration) -> Self {
        Plugged {
            config,
            requested: Bytes::ZERO,
            size: Bytes::ZERO,
            moved_at: now,
            claimed: None,
            memory: Vec::new(),
            modules: Vec::new(),
        }
    }

    fn is(&self, kind: HotplugKind) -> bool {
        self.config.kind == kind
    }

    /// From now on reports that the virtio-mem device has `size` plugged in.
    pub(super) fn claim(&mut self, size: Bytes) {
        self.claimed = Some(size);
    }

    pub(super) fn requested(&self) -> Bytes {
        self.requested
    }

    /// Memory plugged in by the virtio-mem device at `now`, in whole blocks.
    pub(super) fn virtio_mem(&mut self, now: Duration) -> Bytes {
        if let Some(claimed) = self.claimed {
            return claimed;
        }
        let passed_ms = u64::try_from((now - self.moved_at).as_millis()).unwrap_or(u64::MAX);
        let blocks = self.config.rate_per_sec.fraction(passed_ms, 1000).get() / self.block();
        // Less than a block moves nothing; the time is counted in the next call.
        if blocks > 0 {
            self.moved_at += Duration::from_millis(passed_ms);
            let way = Bytes::new(blocks * self.block());
            self.size = if self.requested < self.size {
                let least = self.requested.max(self.config.keeps.min(self.size));
                self.size.saturating_sub(way).max(least)
            } else {
                self.size.saturating_add(way).min(self.requested)
            };
        }
        self.size
    }

    fn block(&self) -> u64 {
        self.config.block.get()
    }

    /// The total size of the modules.
    pub(super) fn modules(&self) -> Bytes {
        let size = |(_, memory): &(String, String)| {
            self.memory.iter().find(|(id, _)| id == memory).map(|(_, size)| Bytes::new(*size))
        };
        self.modules.iter().filter_map(size).sum()
    }

    /// Plugged memory that the guest uses.
    pub(super) fn used(&mut self, now: Duration) -> Bytes {
        if self.config.onlines { self.virtio_mem(now) + self.modules() } else { Bytes::ZERO }
    }

    /// The number of memory backends for modules, plugged in or not.
    pub(super) fn memory_count(&self) -> usize {
        self.memory.len()
    }

    pub(super) fn devices(&mut self, now: Duration) -> Value {
        if self.is(HotplugKind::VirtioMem) {
            let size = self.virtio_mem(now);
            return json!([{"type": "virtio-mem", "data": {
                "memdev": "/objects/vm", "memaddr": 4_294_967_296_u64, "node": 0, "id": "vm0",
                "block-size": self.block(), "size": size.get(),
                "max-size": self.config.max.get(), "requested-size": self.requested.get(),
            }}]);
        }
        let module = |(slot, (id, memory)): (usize, &(String, String))| {
            let size = self.memory.iter().find(|(id, _)| id == memory).map(|(_, size)| *size);
            json!({"type": "dimm", "data": {
                "memdev": format!("/objects/{memory}"), "hotplugged": true, "addr": 0,
                "hotpluggable": true, "size": size, "slot": slot, "node": 0, "id": id,
            }})
        };
        self.modules.iter().enumerate().map(module).collect()
    }

    /// How much memory the machine can have in addition to `boot`.
    pub(super) fn room(&self, boot: Bytes) -> Value {
        let max = boot + self.config.max;
        json!({"size": boot.get(), "max-size": max.get(), "slots": self.slots()})
    }

    fn slots(&self) -> u64 {
        if self.is(HotplugKind::Dimm) { self.config.max.get() / self.block() } else { 0 }
    }

    /// The entries of `/objects`.
    pub(super) fn objects(&self) -> impl Iterator<Item = Value> {
        let entry =
            |(id, _): &(String, u64)| json!({"name": id, "type": "child<memory-backend-memfd>"});
        self.memory.iter().map(entry)
    }

    /// Sets a property of an object.
    pub(super) fn set(
        &mut self,
        path: &str,
        property: &str,
        value: u64,
        now: Duration,
    ) -> Result<Value, Failure> {
        if path != PATH || !self.is(HotplugKind::VirtioMem) {
            return Err(("DeviceNotFound", format!("Device '{path}' not found")));
        }
        let desc = match property {
            "requested-size" if !value.is_multiple_of(self.block()) => {
                format!(
                    "'requested-size' has to be multiples of 'block-size' ({:#x})",
                    self.block()
                )
            }
            "requested-size" if value > self.config.max.get() => {
                let max = self.config.max.get();
                format!("'requested-size' cannot exceed the memory backend size({max:#x})")
            }
            "requested-size" => {
                self.virtio_mem(now);
                self.requested = Bytes::new(value);
                self.moved_at = now;
                return Ok(json!({}));
            }
            _ => format!("Property 'virtio-mem-pci.{property}' not found"),
        };
        Err(("GenericError", desc))
    }

    /// Creates and removes modules and their memory backends. May return an event: its name and
    /// data.
    pub(super) fn execute(
        &mut self,
        command: &str,
        arguments: &Value,
    ) -> Result<Option<(&'static str, Value)>, Failure> {
        let text = |key: &str| arguments[key].as_str().unwrap_or_default().to_owned();
        let error = |desc: String| Err(("GenericError", desc));
        let id = text("id");
        let place = self.modules.iter().position(|(module, _)| *module == id);
        match command {
            "object-add" if self.memory.iter().any(|(other, _)| *other == id) => error(format!(
                "attempt to add duplicate property '{id}' to object (type 'container')"
            )),
            "object-add" => {
                self.memory.push((id, arguments["size"].as_u64().unwrap_or_default()));
                Ok(None)
            }
            "object-del" if self.modules.iter().any(|(_, memory)| *memory == id) => {
                error(format!("object '{id}' is in use, can not be deleted"))
            }
            "object-del" => {
                self.memory.retain(|(other, _)| *other != id);
                Ok(None)
            }
            "device_add" if self.modules.len() as u64 >= self.slots() => {
                error("no free slots available".to_owned())
            }
            "device_add" => {
                self.modules.push((id, text("memdev")));
                Ok(None)
            }
            _ => match place {
                None => Err(("DeviceNotFound", format!("Device '{id}' not found"))),
                Some(_) if self.modules() <= self.config.keeps => {
                    let info = json!({"device": id, "source": 3, "status": 1, "slot": "0",
                        "slot-type": "DIMM"});
                    Ok(Some(("ACPI_DEVICE_OST", json!({"info": info}))))
                }
                Some(place) => {
                    self.modules.remove(place);
                    let path = format!("/machine/peripheral/{id}");
                    Ok(Some(("DEVICE_DELETED", json!({"device": id, "path": path}))))
                }
            },
        }
    }
}
