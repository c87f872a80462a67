//! A server that follows Firecracker's API, for tests without the real program.
//!
//! Source: that of `guest/tests.rs`, which compares it with the published API. Limits: one guest.

use ballast_rest::testing::{ReceivedRequest, Reply};
use serde_json::{Value, json};

use crate::api::HotplugStatus;
use crate::memory::{BALLOON, HOTPLUG};

pub(crate) const HINTING: &str = "/balloon/hinting/start";

/// Pages in a MiB.
const PAGES: u64 = 256;

/// A Firecracker with one guest.
#[derive(Clone, Debug)]
pub struct Machine {
    /// `Not started`, `Running` or `Paused`.
    pub state: &'static str,
    /// The answer to `/vm/config`.
    pub config: Value,
    /// The size requested of the balloon, in MiB.
    pub target: u64,
    /// The balloon's size, in pages of 4 KiB.
    pub ballooned: u64,
    /// Its pluggable memory; `None` if nothing can be plugged in.
    pub hotplug: Option<HotplugStatus>,
    /// The guest's last report: fields of `/balloon/statistics`.
    pub reported: Value,
    /// Whether the guest complies at once.
    pub obeys: bool,
}

impl Machine {
    /// A machine of 1 GiB, with a balloon that reports every `period` seconds.
    pub fn new(period: u64) -> Machine {
        let config = json!({
            "balloon": {
                "amount_mib": 0, "deflate_on_oom": false, "stats_polling_interval_s": period,
                "free_page_hinting": true, "free_page_reporting": true,
            },
            "drives": [],
            "machine-config": { "vcpu_count": 1, "mem_size_mib": 1024, "huge_pages": "None" },
            "memory-hotplug": null,
            "vsock": { "guest_cid": 3, "uds_path": "./v.sock" },
        });
        let reported = json!({
            "free_memory": 500 << 20, "total_memory": 1000 << 20, "available_memory": 600 << 20,
            "minor_faults": 9,
        });
        Machine {
            state: "Running",
            config,
            target: 0,
            ballooned: 0,
            hotplug: None,
            reported,
            obeys: true,
        }
    }

    /// The same machine, where `mib` MiB can be plugged in.
    #[must_use]
    pub fn with_hotplug(mut self, mib: u64) -> Machine {
        self.config["memory-hotplug"] = json!({ "total_size_mib": mib });
        let status = HotplugStatus { total_size_mib: mib, block_size_mib: 2, ..Default::default() };
        self.hotplug = Some(status);
        self
    }

    fn has_statistics(&self) -> bool {
        self.config["balloon"]["stats_polling_interval_s"].as_u64().is_some_and(|it| it > 0)
    }

    /// Answers a call.
    pub fn answer(&mut self, request: &ReceivedRequest) -> Reply {
        // A GET with a body is refused, and so is a PATCH without one.
        if (request.method == "GET") != request.body.is_empty() {
            return fault(400, "GET request cannot have a body.");
        }
        let body: Value = serde_json::from_str(&request.body).unwrap_or_default();
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/") => ok(&json!({
                "id": "anonymous-instance", "state": self.state, "vmm_version": "1.16.1",
                "app_name": "Firecracker",
            })),
            ("GET", "/vm/config") => ok(&self.config),
            _ if self.state == "Not started" => {
                fault(400, "The requested operation is not supported before starting the microVM.")
            }
            ("GET", "/balloon/statistics") if self.has_statistics() => ok(&self.statistics()),
            ("PATCH", "/balloon/statistics") if self.has_statistics() => {
                self.config["balloon"]["stats_polling_interval_s"] =
                    body["stats_polling_interval_s"].clone();
                done()
            }
            (_, "/balloon/statistics") => {
                fault(400, "Received stats query when stats are disabled.")
            }
            ("PATCH", BALLOON) => self.set_balloon(&body),
            ("PATCH", HINTING) => done(),
            (method, HOTPLUG) => self.answer_hotplug(method, &body),
            (method, path) => {
                fault(400, &format!("Invalid request method and/or path: {method} {path}."))
            }
        }
    }

    fn statistics(&self) -> Value {
        let mut statistics = self.reported.clone();
        for (name, amount) in [
            ("target_pages", self.target * PAGES),
            ("actual_pages", self.ballooned),
            ("target_mib", self.target),
            ("actual_mib", self.ballooned / PAGES),
        ] {
            statistics[name] = json!(amount);
        }
        statistics
    }

    fn set_balloon(&mut self, body: &Value) -> Reply {
        let boot = self.config["machine-config"]["mem_size_mib"].as_u64().unwrap_or(0);
        match body["amount_mib"].as_u64() {
            Some(amount) if amount <= boot => {
                self.target = amount;
                if self.obeys {
                    self.ballooned = amount * PAGES;
                }
                done()
            }
            _ => fault(400, &format!("Requested memory should be less than {boot}MiB")),
        }
    }

    fn answer_hotplug(&mut self, method: &str, body: &Value) -> Reply {
        let Some(status) = &mut self.hotplug else { return fault(400, "Device not found") };
        let is_fit = |it: &u64| *it <= status.total_size_mib && it.is_multiple_of(2);
        match (method, body["requested_size_mib"].as_u64().filter(is_fit)) {
            ("PATCH", Some(requested)) => {
                status.requested_size_mib = requested;
                if self.obeys {
                    status.plugged_size_mib = requested;
                }
                done()
            }
            ("PATCH", None) => fault(400, "Size is invalid"),
            _ => ok(&json!({
                "total_size_mib": status.total_size_mib, "slot_size_mib": 128,
                "block_size_mib": status.block_size_mib,
                "plugged_size_mib": status.plugged_size_mib,
                "requested_size_mib": status.requested_size_mib,
            })),
        }
    }
}

pub(crate) fn ok(value: &Value) -> Reply {
    Reply::Json(200, value.to_string())
}

fn done() -> Reply {
    Reply::Json(204, String::new())
}

pub(crate) fn fault(status: u16, text: &str) -> Reply {
    Reply::Json(status, json!({ "fault_message": text }).to_string())
}
