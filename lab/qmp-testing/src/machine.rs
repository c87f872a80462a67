//! What the peer's machine knows and answers, without I/O.
//!
//! Source: replies recorded from QEMU 7.2, see `tests/transcripts/`.

use std::time::Duration;

use ballast_model::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::failure::Failure;
use super::peer_config::{Misbehaviour, PeerConfig, PeerHotplug};
use super::plugged::Plugged;

const BALLOON_PATH: &str = "/machine/peripheral-anon/device[0]";

/// Memory a guest kernel keeps to itself: the difference between its memory and its `MemTotal`.
const KERNEL: Bytes = Bytes::mib(40);

/// Page cache of the guest.
const CACHES: Bytes = Bytes::mib(60);

#[derive(Debug)]
pub(super) struct Machine {
    config: PeerConfig,
    negotiated: bool,
    /// What the balloon holds, and is to hold.
    held: Bytes,
    to_hold: Bytes,
    moved_at: Instant,
    polling_interval_secs: u64,
    last_update: u64,
    frozen_stats: Value,
    status: &'static str,
    events: Vec<String>,
    plugged: Option<Plugged>,
    /// The guest's memory, as far as a process can map that much: a daemon looks at what is mapped.
    _mapped: Vec<u8>,
}

impl Machine {
    pub(super) fn new(config: PeerConfig, now: Instant) -> Self {
        let pluggable = config.hotplug.map_or(Bytes::ZERO, |hotplug| hotplug.max);
        let memory = (config.boot_memory + pluggable).get();
        let mut mapped = Vec::new();
        // Where that is refused, the guest claims memory that it cannot have.
        let _ = mapped.try_reserve_exact(usize::try_from(memory).unwrap_or(usize::MAX));
        Machine {
            config,
            negotiated: false,
            held: Bytes::ZERO,
            to_hold: Bytes::ZERO,
            moved_at: now,
            polling_interval_secs: 0,
            last_update: 0,
            frozen_stats: Value::Null,
            status: "running",
            events: Vec::new(),
            plugged: config.hotplug.map(|hotplug| Plugged::new(hotplug, now)),
            _mapped: mapped,
        }
    }

    pub(super) fn replace_hotplug(&mut self, hotplug: Option<PeerHotplug>, now: Instant) {
        self.plugged = hotplug.map(|hotplug| Plugged::new(hotplug, now));
    }

    pub(super) fn module_memory_count(&self) -> usize {
        self.plugged.as_ref().map_or(0, Plugged::memory_count)
    }

    /// All memory held at `now`, plugged in or not.
    pub(super) fn holds(&mut self, now: Instant) -> Bytes {
        let virtio_mem = self.plugged.as_mut().map_or(Bytes::ZERO, |it| it.virtio_mem(now));
        self.allocation(now) + virtio_mem
    }

    /// What the balloon reckons with.
    fn counted(&self) -> Bytes {
        let modules = self.plugged.as_ref().map_or(Bytes::ZERO, Plugged::modules);
        self.config.boot_memory + modules
    }

    pub(super) fn set_misbehaviour(&mut self, misbehaviour: Misbehaviour) {
        self.config.misbehaviour = misbehaviour;
    }

    /// What is done wrong now: most of it only once negotiation is over.
    pub(super) fn misbehaviour(&self) -> Misbehaviour {
        if self.negotiated { self.config.misbehaviour } else { Misbehaviour::None }
    }

    pub(super) fn greet(&mut self) -> Option<&'static str> {
        self.negotiated = false;
        self.events.clear();
        (self.config.misbehaviour != Misbehaviour::NoGreeting).then_some(concat!(
            r#"{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "#,
            r#""package": "peer for tests"}, "capabilities": ["oob"]}}"#,
            "\r\n"
        ))
    }

    pub(super) fn target(&self) -> Bytes {
        self.config.boot_memory.saturating_sub(self.to_hold)
    }

    /// Memory of the boot and modules held at `now`: it has moved towards the target since it was
    /// last looked at.
    pub(super) fn allocation(&mut self, now: Instant) -> Bytes {
        let passed_ms = u64::try_from((now - self.moved_at).as_millis()).unwrap_or(u64::MAX);
        // Less than a millisecond moves nothing; it is counted with the next look.
        if passed_ms > 0 {
            self.moved_at += Duration::from_millis(passed_ms);
            let way = self.config.rate_per_sec.fraction(passed_ms, 1000).page_floor();
            self.held = if self.to_hold < self.held {
                self.held.saturating_sub(way).max(self.to_hold)
            } else {
                self.held.saturating_add(way).min(self.to_hold)
            };
        }
        self.counted().saturating_sub(self.held)
    }

    pub(super) fn is_moving(&mut self, now: Instant) -> bool {
        self.allocation(now);
        self.held != self.to_hold
    }

    pub(super) fn queue_event(&mut self, name: &str) {
        let event = json!({"timestamp": {"seconds": 0, "microseconds": 0}, "event": name});
        self.events.push(format!("{event}\r\n"));
    }

    pub(super) fn queue_balloon_change(&mut self, now: Instant) {
        let actual = self.allocation(now).get();
        self.queue_event_with("BALLOON_CHANGE", &json!({"actual": actual}));
    }

    fn queue_event_with(&mut self, name: &str, data: &Value) {
        let timestamp = json!({"seconds": 0, "microseconds": 0});
        let event = json!({"timestamp": timestamp, "event": name, "data": data});
        self.events.push(format!("{event}\r\n"));
    }

    /// Takes whole commands off the front of `received` and answers them; events go first.
    pub(super) fn receive(&mut self, received: &mut Vec<u8>, now: Instant, wall: u64) -> Vec<u8> {
        let mut commands = Vec::new();
        let mut stream = serde_json::Deserializer::from_slice(received).into_iter::<Value>();
        let mut taken = 0;
        let mut is_damaged = false;
        while let Some(command) = stream.next() {
            match command {
                Ok(command) => commands.push(command),
                Err(error) => {
                    is_damaged = !error.is_eof();
                    break;
                }
            }
            taken = stream.byte_offset();
        }
        received.drain(..taken);
        let mut answer = String::new();
        if self.negotiated {
            answer.extend(self.events.drain(..));
        }
        for command in commands {
            let mut reply = match self.execute(&command, now, wall) {
                Ok(returned) => json!({"return": returned}),
                Err((class, desc)) => json!({"error": {"class": class, "desc": desc}}),
            };
            if let Some(id) = command.get("id") {
                reply["id"] = match self.misbehaviour() {
                    Misbehaviour::WrongIds => json!(id.as_u64().unwrap_or(0) + 1_000_000),
                    _ => id.clone(),
                };
            }
            answer.push_str(&format!("{reply}\r\n"));
        }
        if self.negotiated {
            answer.extend(self.events.drain(..));
        }
        if is_damaged {
            received.clear();
            let error = json!({"class": "GenericError", "desc": "JSON parse error"});
            answer.push_str(&format!("{}\r\n", json!({"error": error})));
        }
        answer.into_bytes()
    }

    fn execute(&mut self, command: &Value, now: Instant, wall: u64) -> Result<Value, Failure> {
        let name = command["execute"].as_str().unwrap_or_default();
        let arguments = &command["arguments"];
        if !self.negotiated && name != "qmp_capabilities" {
            let desc = "Expecting capabilities negotiation with 'qmp_capabilities'".to_owned();
            return Err(("CommandNotFound", desc));
        }
        match name {
            "qmp_capabilities" if self.negotiated => {
                let desc = "Capabilities negotiation is already complete, command ignored";
                Err(("CommandNotFound", desc.to_owned()))
            }
            "qmp_capabilities" => {
                self.negotiated = true;
                Ok(json!({}))
            }
            "query-status" => Ok(json!({
                "status": self.status, "singlestep": false, "running": self.status == "running",
            })),
            "query-memory-size-summary" => Ok(json!({
                "base-memory": self.config.boot_memory.get(), "plugged-memory": 0,
            })),
            "query-memory-devices" => {
                Ok(self.plugged.as_mut().map_or(json!([]), |plugged| plugged.devices(now)))
            }
            "query-balloon" => {
                self.need_balloon()?;
                Ok(json!({"actual": self.allocation(now).get()}))
            }
            "balloon" => {
                self.need_balloon()?;
                let value = arguments["value"].as_u64().filter(|value| *value > 0);
                let value = value.ok_or_else(|| {
                    ("GenericError", "Parameter 'target' expects a size".to_owned())
                })?;
                self.allocation(now);
                self.to_hold = self.counted().saturating_sub(Bytes::new(value));
                Ok(json!({}))
            }
            "qom-list" => self.list(arguments["path"].as_str().unwrap_or_default()),
            "qom-get" => self.get(arguments, now, wall),
            "qom-set" => self.set(arguments, now),
            "object-add" | "object-del" | "device_add" | "device_del" => {
                let Some(plugged) = &mut self.plugged else {
                    return Err(("GenericError", "no slots where allocated".to_owned()));
                };
                if let Some((event, data)) = plugged.execute(name, arguments)? {
                    self.queue_event_with(event, &data);
                }
                Ok(json!({}))
            }
            "cont" => {
                self.status = "running";
                self.queue_event("RESUME");
                Ok(json!({}))
            }
            "system_powerdown" => {
                self.queue_event("POWERDOWN");
                Ok(json!({}))
            }
            _ => Err(("CommandNotFound", format!("The command {name} has not been found"))),
        }
    }

    fn need_balloon(&self) -> Result<(), Failure> {
        if self.config.has_balloon {
            return Ok(());
        }
        Err(("DeviceNotActive", "No balloon device has been activated".to_owned()))
    }

    fn list(&self, path: &str) -> Result<Value, Failure> {
        let kind = json!({"name": "type", "type": "string"});
        match path {
            "/machine/peripheral-anon" if self.config.has_balloon => {
                Ok(json!([kind, {"name": "device[0]", "type": "child<virtio-balloon-pci>"}]))
            }
            "/machine/peripheral" | "/machine/peripheral-anon" => Ok(json!([kind])),
            "/objects" => {
                let ram = json!({"name": "pc.ram", "type": "child<memory-backend-ram>"});
                let more = self.plugged.iter().flat_map(Plugged::objects);
                Ok([kind, ram].into_iter().chain(more).collect())
            }
            _ => Err(("DeviceNotFound", format!("Device '{path}' not found"))),
        }
    }

    fn get(&mut self, arguments: &Value, now: Instant, wall: u64) -> Result<Value, Failure> {
        let path = arguments["path"].as_str().unwrap_or_default();
        if path == "/machine" && arguments["property"] == "memory" {
            let boot = self.config.boot_memory;
            let plain = json!({"size": boot.get()});
            return Ok(self.plugged.as_ref().map_or(plain, |plugged| plugged.room(boot)));
        }
        if path != BALLOON_PATH || !self.config.has_balloon {
            return Err(("DeviceNotFound", format!("Device '{path}' not found")));
        }
        match arguments["property"].as_str().unwrap_or_default() {
            "guest-stats" => Ok(self.stats(now, wall)),
            "guest-stats-polling-interval" => Ok(json!(self.polling_interval_secs)),
            "free-page-reporting" => Ok(json!(true)),
            "deflate-on-oom" => Ok(json!(false)),
            other => {
                let kind = "virtio-balloon-pci";
                Err(("GenericError", format!("Property '{kind}.{other}' not found")))
            }
        }
    }

    fn set(&mut self, arguments: &Value, now: Instant) -> Result<Value, Failure> {
        let property = arguments["property"].as_str().unwrap_or_default();
        let path = arguments["path"].as_str().unwrap_or_default();
        if path != BALLOON_PATH {
            let Some(plugged) = &mut self.plugged else {
                return Err(("DeviceNotFound", format!("Device '{path}' not found")));
            };
            let value = arguments["value"].as_u64().unwrap_or_default();
            return plugged.set(path, property, value, now);
        }
        match (property, arguments["value"].as_u64()) {
            ("guest-stats-polling-interval", Some(secs)) => {
                self.polling_interval_secs = secs;
                Ok(json!({}))
            }
            _ => Err(("GenericError", format!("Property '{property}' cannot be set"))),
        }
    }

    fn stats(&mut self, now: Instant, wall: u64) -> Value {
        let is_due = self.polling_interval_secs > 0
            && wall >= self.last_update.saturating_add(self.polling_interval_secs)
            && self.config.misbehaviour != Misbehaviour::FrozenStatistics;
        if is_due || self.frozen_stats.is_null() {
            let sent = |value: Bytes| if is_due { value.get() } else { u64::MAX };
            let plugged = self.plugged.as_mut().map_or(Bytes::ZERO, |it| it.used(now));
            let present = self.config.boot_memory.saturating_sub(KERNEL) + plugged;
            let total = present.saturating_sub(self.held);
            let available = total.saturating_sub(self.config.used);
            self.frozen_stats = json!({
                "stat-htlb-pgalloc": 0,
                "stat-swap-out": sent(Bytes::ZERO),
                "stat-available-memory": sent(available),
                "stat-htlb-pgfail": 0,
                "stat-free-memory": sent(available.saturating_sub(CACHES)),
                "stat-minor-faults": sent(Bytes::new(68_012)),
                "stat-major-faults": sent(Bytes::new(94)),
                "stat-total-memory": sent(total),
                "stat-swap-in": sent(Bytes::ZERO),
                "stat-disk-caches": sent(CACHES.min(available)),
            });
        }
        if is_due {
            self.last_update = wall;
        }
        json!({"stats": self.frozen_stats, "last-update": self.last_update})
    }
}
