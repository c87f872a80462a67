//! A server that follows Cloud Hypervisor's API, for tests without the real program.
//!
//! Source: that of `guest/tests.rs`, which compares it with the published API. Limits: one guest;
//! zones are not resized.

use ballast_rest::testing::{ReceivedRequest, Reply};
use serde_json::{Value, json};

use crate::memory::RESIZE;

pub(crate) const MIB: u64 = 1 << 20;

/// A Cloud Hypervisor with one guest.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its version.
    pub version: &'static str,
    /// Its process.
    pub pid: u32,
    /// The guest's configuration in `vm.info`; `None` if no guest was created.
    pub config: Option<Value>,
    /// Bytes and requests read from its first disk; its second was read once.
    pub read: (u64, u64),
    /// Memory in the balloon, in bytes.
    pub ballooned: u64,
    /// Memory plugged in, in bytes.
    pub plugged: u64,
    /// Whether the guest complies at once.
    pub obeys: bool,
}

impl Default for Machine {
    fn default() -> Machine {
        Machine::new()
    }
}

impl Machine {
    /// A machine with a guest of 1 GiB that has a balloon and a vsock device.
    pub fn new() -> Machine {
        let config = json!({
            "memory": { "size": 1024 * MIB, "hotplug_method": "Acpi", "zones": null },
            "balloon": { "size": 0, "deflate_on_oom": true, "free_page_reporting": false },
            "vsock": { "cid": 3, "socket": "/run/a.vsock" },
            "payload": { "kernel": "/boot/vmlinux" },
        });
        Machine {
            version: "53.0.0",
            pid: std::process::id(),
            config: Some(config),
            read: (0, 0),
            ballooned: 0,
            plugged: 0,
            obeys: true,
        }
    }

    /// The same machine, where `mib` MiB can be plugged in.
    #[must_use]
    pub fn with_virtio_mem(mut self, mib: u64) -> Machine {
        if let Some(config) = &mut self.config {
            config["memory"]["hotplug_method"] = json!("VirtioMem");
            config["memory"]["hotplug_size"] = json!(mib * MIB);
        }
        self
    }

    /// Answers a call.
    pub fn answer(&mut self, request: &ReceivedRequest) -> Reply {
        let body: Value = serde_json::from_str(&request.body).unwrap_or_default();
        match request.path.as_str() {
            "/api/v1/vmm.ping" => {
                let ping = json!({ "version": self.version, "pid": self.pid });
                Reply::Json(200, ping.to_string())
            }
            "/api/v1/vm.info" => self.info(),
            "/api/v1/vm.counters" if self.config.is_some() => self.counters(),
            RESIZE => self.resize(&body),
            _ => refusal(404, &["Not Found"]),
        }
    }

    fn info(&self) -> Reply {
        let Some(config) = &self.config else {
            return refusal(404, &["Error from API", "The VM info is not available"]);
        };
        let holds = config["memory"]["size"].as_u64().unwrap_or(0) - self.ballooned + self.plugged;
        let info = json!({ "config": config, "state": "Running", "memory_actual_size": holds });
        Reply::Json(200, info.to_string())
    }

    fn counters(&self) -> Reply {
        let (bytes, requests) = self.read;
        let counters = json!({
            "_disk0": { "read_bytes": bytes, "read_ops": requests, "write_latency_min": u64::MAX },
            "data": { "read_bytes": 4096, "read_ops": 1, "write_bytes": 512, "write_ops": 1 },
            "_net2": { "rx_bytes": 64, "rx_frames": 1, "tx_bytes": 64, "tx_frames": 1 },
        });
        Reply::Json(200, counters.to_string())
    }

    fn resize(&mut self, body: &Value) -> Reply {
        let Some(config) = &mut self.config else {
            return refusal(404, &["Error from API", "VM is not created"]);
        };
        let boot = config["memory"]["size"].as_u64().unwrap_or(0);
        if let Some(size) = body["desired_ram"].as_u64() {
            let most = config["memory"]["hotplug_size"].as_u64().unwrap_or(0);
            let requested = config["memory"]["hotplugged_size"].as_u64().unwrap_or(0);
            let plugged = size.checked_sub(boot).filter(|plugged| *plugged <= most);
            let is_fit = |it: &u64| *it != requested && it.is_multiple_of(2 * MIB);
            let Some(plugged) = plugged.filter(is_fit) else {
                return refusal(500, &["Error from API", "The VM could not be resized"]);
            };
            config["memory"]["hotplugged_size"] = json!(plugged);
            self.plugged = if self.obeys { plugged } else { self.plugged };
        }
        if let Some(size) = body["desired_balloon"].as_u64() {
            if config["balloon"].is_null() {
                return refusal(500, &["Error from API", "Missing balloon"]);
            }
            config["balloon"]["size"] = json!(size);
            self.ballooned = if self.obeys { size } else { self.ballooned };
        }
        Reply::Json(204, String::new())
    }
}

fn refusal(status: u16, texts: &[&str]) -> Reply {
    Reply::Json(status, json!(texts).to_string())
}
