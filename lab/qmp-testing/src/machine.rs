//! A fake QEMU with a guest as a state machine: bytes in, bytes out, and time is a parameter.
//!
//! Idea: the guest's size is a number that changes at a given rate. If the caller moves the guest
//! itself, it says with [`Machine::claim`] what the machine has to report. [`Machine::connect`]
//! separates one client from the next.
//! Source: replies recorded from QEMU 7.2, see `tests/transcripts/`.
//! Limits: one client at a time; time only goes forward.

use std::time::Duration;

use ballast_model::{Bytes, DiskReads, GuestStats};
use ballast_qmp::codec::MESSAGE_BYTES_MAX;
use serde_json::{Value, json};

use super::failure::Failure;
use super::migration::{MigrationEffect, MigrationState};
use super::objects;
use super::peer_config::{Misbehaviour, PeerConfig, PeerHotplug};
use super::plugged::Plugged;

const BALLOON_PATH: &str = "/machine/peripheral-anon/device[0]";

/// Memory that a guest's kernel reserves: the difference between its memory and its `MemTotal`.
const KERNEL: Bytes = Bytes::mib(40);

/// Page cache of the guest.
const CACHES: Bytes = Bytes::mib(60);

/// What a machine reports of a guest that its caller moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claims {
    /// The memory that the balloon leaves of boot memory and modules.
    pub actual: Bytes,
    /// The memory plugged in by the virtio-mem device, if there is one.
    pub plugged: Bytes,
    /// Its last statistics, and the second of the wall clock when they were made.
    pub stats: (GuestStats, u64),
    /// Its state, in QEMU's own word.
    pub status: &'static str,
}

/// A machine's answer to bytes that it received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The bytes that it sends.
    pub bytes: Vec<u8>,
    /// How long it waits before sending them.
    pub after: Duration,
    /// Whether it closes the connection afterwards.
    pub closes: bool,
}

/// A fake QEMU with a guest.
#[derive(Debug)]
pub struct Machine {
    config: PeerConfig,
    /// Received bytes that are not a whole command yet.
    received: Vec<u8>,
    negotiated: bool,
    /// Memory that the balloon holds, and its goal.
    held: Bytes,
    to_hold: Bytes,
    moved_at: Duration,
    polling_interval_secs: u64,
    last_update: u64,
    stats: GuestStats,
    status: &'static str,
    events: Vec<String>,
    plugged: Option<Plugged>,
    migration: MigrationState,
    claims: Option<Claims>,
    /// The size set by the last balloon command, until it is taken.
    order: Option<Bytes>,
    /// The number of commands still to be refused.
    refusals: u32,
}

impl Machine {
    /// A machine whose guest holds all its memory at `now`.
    pub fn new(config: PeerConfig, now: Duration) -> Self {
        Machine {
            config,
            received: Vec::new(),
            negotiated: false,
            held: Bytes::ZERO,
            to_hold: Bytes::ZERO,
            moved_at: now,
            polling_interval_secs: 0,
            last_update: 0,
            stats: GuestStats::default(),
            status: if config.is_incoming { "inmigrate" } else { "running" },
            events: Vec::new(),
            plugged: config.hotplug.map(|hotplug| Plugged::new(hotplug, now)),
            migration: MigrationState::new(),
            claims: None,
            order: None,
            refusals: 0,
        }
    }

    /// From now on the caller moves the guest, and the machine reports `claims`. The machine sends
    /// events when the guest stops, runs again, panics, or is reset after a panic.
    pub fn claim(&mut self, claims: Claims) {
        const PANICKED: &str = "guest-panicked";
        let before = std::mem::replace(&mut self.status, claims.status);
        let (was_running, is_running) = (before == "running", self.status == "running");
        if before != PANICKED && self.status == PANICKED {
            self.queue_event("GUEST_PANICKED");
        } else if before == PANICKED && self.status != PANICKED {
            self.queue_event("RESET");
        }
        if was_running != is_running {
            self.queue_event(if is_running { "RESUME" } else { "STOP" });
        }
        self.claims = Some(claims);
        if let Some(plugged) = &mut self.plugged {
            plugged.claim(claims.plugged);
        }
    }

    /// The size of boot memory and modules that a balloon command asked for since the last call.
    pub fn take_order(&mut self) -> Option<Bytes> {
        self.order.take()
    }

    /// The size last requested of the virtio-mem device.
    pub fn requested(&self) -> Bytes {
        self.plugged.as_ref().map_or(Bytes::ZERO, Plugged::requested)
    }

    /// Answers the next `count` commands with an error, without executing them.
    pub fn refuse(&mut self, count: u32) {
        self.refusals = count;
    }

    /// From now on the memory devices are those of another hypervisor process; `None`: it has none.
    pub fn replace_hotplug(&mut self, hotplug: Option<PeerHotplug>, now: Duration) {
        self.plugged = hotplug.map(|hotplug| Plugged::new(hotplug, now));
    }

    /// The number of memory backends for modules, plugged in or not.
    pub fn module_memory_count(&self) -> usize {
        self.plugged.as_ref().map_or(0, Plugged::memory_count)
    }

    /// All memory that the guest holds at `now`, including plugged memory.
    pub fn holds(&mut self, now: Duration) -> Bytes {
        let virtio_mem = self.plugged.as_mut().map_or(Bytes::ZERO, |it| it.virtio_mem(now));
        self.allocation(now) + virtio_mem
    }

    /// The memory from which the balloon takes.
    fn counted(&self) -> Bytes {
        let modules = self.plugged.as_ref().map_or(Bytes::ZERO, Plugged::modules);
        self.config.boot_memory + modules
    }

    /// From now on the guest has read this from its disk; `None`: QEMU lacks the command.
    pub fn set_disk_reads(&mut self, reads: Option<DiskReads>) {
        self.config.disk_reads = reads;
    }

    /// Misbehaves in this way until the next call.
    pub fn misbehave(&mut self, misbehaviour: Misbehaviour) {
        self.config.misbehaviour = misbehaviour;
    }

    /// The misbehaviour in force now: most kinds begin only after negotiation.
    fn misbehaviour(&self) -> Misbehaviour {
        if self.negotiated { self.config.misbehaviour } else { Misbehaviour::None }
    }

    /// A client has connected; returns the greeting, or `None` if none is sent.
    pub fn connect(&mut self) -> Option<&'static str> {
        self.negotiated = false;
        self.events.clear();
        self.received.clear();
        (self.config.misbehaviour != Misbehaviour::NoGreeting).then_some(concat!(
            r#"{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "#,
            r#""package": "peer for tests"}, "capabilities": ["oob"]}}"#,
            "\r\n"
        ))
    }

    /// The part of boot memory that the last balloon command leaves the guest.
    pub fn target(&self) -> Bytes {
        self.config.boot_memory.saturating_sub(self.to_hold)
    }

    /// The whole guest has arrived by migration: it is stopped, as with `-S`.
    pub fn arrive(&mut self) {
        self.migration.arrive();
        self.status = "paused";
    }

    /// The migration out of this machine fails: the guest continues to run.
    pub fn fail_migration(&mut self) {
        let effect = self.migration.fail();
        self.migrates(&effect);
    }

    fn migrates(&mut self, effect: &MigrationEffect) {
        let stage = match effect {
            MigrationEffect::Nothing => return,
            MigrationEffect::Stage(stage) => stage,
            MigrationEffect::Completed => {
                self.status = "postmigrate";
                self.queue_event("STOP");
                "completed"
            }
        };
        if self.migration.has_events() {
            self.queue_event_with("MIGRATION", &json!({"status": stage}));
        }
    }

    /// Memory of boot memory and modules that the guest holds at `now`; it has moved towards the
    /// target since the last call.
    pub fn allocation(&mut self, now: Duration) -> Bytes {
        if let Some(claims) = self.claims {
            return claims.actual;
        }
        let passed_ms = u64::try_from((now - self.moved_at).as_millis()).unwrap_or(u64::MAX);
        // Less than a millisecond moves nothing; it is counted in the next call.
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

    /// Whether the balloon is moving; then [`Machine::queue_balloon_change`] is due every second.
    pub fn is_moving(&mut self, now: Duration) -> bool {
        self.allocation(now);
        self.held != self.to_hold
    }

    /// Sends the event `name`, such as `GUEST_PANICKED`, with the next answer.
    pub fn queue_event(&mut self, name: &str) {
        let event = json!({"timestamp": {"seconds": 0, "microseconds": 0}, "event": name});
        self.events.push(format!("{event}\r\n"));
    }

    /// Sends the event with the balloon's current size.
    pub fn queue_balloon_change(&mut self, now: Duration) {
        let actual = self.allocation(now).get();
        self.queue_event_with("BALLOON_CHANGE", &json!({"actual": actual}));
    }

    fn queue_event_with(&mut self, name: &str, data: &Value) {
        let timestamp = json!({"seconds": 0, "microseconds": 0});
        let event = json!({"timestamp": timestamp, "event": name, "data": data});
        self.events.push(format!("{event}\r\n"));
    }

    /// Receives bytes at `now`, when the wall clock shows `wall` seconds; returns the answer, as
    /// the misbehaviour in force makes it. Without bytes it sends waiting events.
    pub fn receive(&mut self, bytes: &[u8], now: Duration, wall: u64) -> Answer {
        let answer = self.answer(bytes, now, wall);
        if answer.is_empty() {
            return Answer::default();
        }
        let (bytes, after) = match self.misbehaviour() {
            Misbehaviour::Silent => (Vec::new(), Duration::ZERO),
            Misbehaviour::Slow(by) => (answer, by),
            Misbehaviour::Garbage => (b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), Duration::ZERO),
            Misbehaviour::NotUtf8 => (b"{\"return\": \"\xff\xfe\"}\r\n".to_vec(), Duration::ZERO),
            Misbehaviour::Deep => (b"{\"return\":[".repeat(10_000), Duration::ZERO),
            Misbehaviour::Oversize => {
                let mut bytes = b"{\"return\": \"".to_vec();
                bytes.resize(bytes.len() + 2 * MESSAGE_BYTES_MAX, b'x');
                (bytes, Duration::ZERO)
            }
            Misbehaviour::ClosesMidMessage => {
                let bytes = answer[..answer.len() / 2].to_vec();
                return Answer { bytes, closes: true, ..Answer::default() };
            }
            Misbehaviour::None
            | Misbehaviour::NoGreeting
            | Misbehaviour::WrongIds
            | Misbehaviour::FrozenStatistics => (answer, Duration::ZERO),
        };
        Answer { bytes, after, closes: false }
    }

    /// Answers whole commands; events come first.
    fn answer(&mut self, bytes: &[u8], now: Duration, wall: u64) -> Vec<u8> {
        self.received.extend_from_slice(bytes);
        let received = std::mem::take(&mut self.received);
        let mut stream = serde_json::Deserializer::from_slice(&received).into_iter::<Value>();
        let mut answer = String::new();
        if self.negotiated {
            answer.extend(self.events.drain(..));
        }
        let mut taken = 0;
        let mut is_damaged = false;
        while let Some(command) = stream.next() {
            match command {
                Ok(command) => self.reply(&command, now, wall, &mut answer),
                Err(error) => {
                    is_damaged = !error.is_eof();
                    break;
                }
            }
            taken = stream.byte_offset();
        }
        if self.negotiated {
            answer.extend(self.events.drain(..));
        }
        if is_damaged {
            let error = json!({"class": "GenericError", "desc": "JSON parse error"});
            answer.push_str(&format!("{}\r\n", json!({"error": error})));
        } else {
            self.received.extend_from_slice(&received[taken..]);
        }
        answer.into_bytes()
    }

    fn reply(&mut self, command: &Value, now: Duration, wall: u64, answer: &mut String) {
        let executed = match self.refusals.checked_sub(1) {
            Some(left) if self.negotiated => {
                self.refusals = left;
                Err(("GenericError", "refused for a test".to_owned()))
            }
            _ => self.execute(command, now, wall),
        };
        let mut reply = match executed {
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

    fn execute(&mut self, command: &Value, now: Duration, wall: u64) -> Result<Value, Failure> {
        let name = command["execute"].as_str().unwrap_or_default();
        let arguments = &command["arguments"];
        let effect = self.migration.advance(self.config.boot_memory, now);
        self.migrates(&effect);
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
            "query-blockstats" => objects::block_stats(self.config.disk_reads),
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
                self.order = Some(Bytes::new(value));
                Ok(json!({}))
            }
            "qom-list" => {
                let path = arguments["path"].as_str().unwrap_or_default();
                objects::list(path, &self.config, self.plugged.as_ref())
            }
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
            "query-migrate" => Ok(self.migration.query(self.config.boot_memory)),
            "cont" => {
                self.status = "running";
                self.queue_event("RESUME");
                Ok(json!({}))
            }
            "system_powerdown" => {
                self.queue_event("POWERDOWN");
                Ok(json!({}))
            }
            _ if let Some(executed) = self.migration.execute(name, arguments, self.status, now) => {
                self.migrates(&executed?);
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

    fn get(&mut self, arguments: &Value, now: Duration, wall: u64) -> Result<Value, Failure> {
        let path = arguments["path"].as_str().unwrap_or_default();
        if path == "/machine" && arguments["property"] == "memory" {
            let boot = self.config.boot_memory;
            let plain = json!({"size": boot.get()});
            return Ok(self.plugged.as_ref().map_or(plain, |plugged| plugged.room(boot)));
        }
        if let ("/machine/peripheral/vsock0", Some(cid)) = (path, self.config.vsock_cid) {
            return Ok(json!(cid));
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

    fn set(&mut self, arguments: &Value, now: Duration) -> Result<Value, Failure> {
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

    fn stats(&mut self, now: Duration, wall: u64) -> Value {
        if let Some(Claims { stats: (stats, at), .. }) = self.claims {
            return objects::stats(&stats, if self.polling_interval_secs > 0 { at } else { 0 });
        }
        let is_due = self.polling_interval_secs > 0
            && wall >= self.last_update.saturating_add(self.polling_interval_secs)
            && self.config.misbehaviour != Misbehaviour::FrozenStatistics;
        if is_due {
            let plugged = self.plugged.as_mut().map_or(Bytes::ZERO, |it| it.used(now));
            let present = self.config.boot_memory.saturating_sub(KERNEL) + plugged;
            let total = present.saturating_sub(self.held);
            let available = total.saturating_sub(self.config.used);
            self.stats = GuestStats {
                total: Some(total),
                free: Some(available.saturating_sub(CACHES)),
                available: Some(available),
                disk_caches: Some(CACHES.min(available)),
                swap_in: Some(Bytes::ZERO),
                swap_out: Some(Bytes::ZERO),
                major_faults: Some(94),
                minor_faults: Some(68_012),
            };
            self.last_update = wall;
        }
        objects::stats(&self.stats, self.last_update)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All bytes that a machine sends to a client whose bytes arrive in these pieces.
    fn sent<'a>(machine: &mut Machine, pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
        machine.connect();
        let mut sent = Vec::new();
        for bytes in pieces {
            sent.extend(machine.receive(bytes, Duration::from_secs(1), 7).bytes);
        }
        String::from_utf8(sent).unwrap()
    }

    const COMMANDS: &[u8] = br#"{"execute":"qmp_capabilities","id":0}
        {"execute":"balloon","arguments":{"value":268435456},"id":1}{"execute":"query-balloon","id":2}"#;

    #[test]
    fn commands_are_answered_alike_wherever_they_are_cut() {
        let machine = || Machine::new(PeerConfig::default(), Duration::ZERO);
        let whole = sent(&mut machine(), [COMMANDS]);
        assert_eq!(whole.lines().count(), 3, "{whole}");
        for at in 0..COMMANDS.len() {
            let (front, back) = COMMANDS.split_at(at);
            assert_eq!(sent(&mut machine(), [front, back]), whole, "cut at {at}");
        }
    }

    #[test]
    fn claims_are_reported_and_orders_sent_once() {
        let mut machine = Machine::new(PeerConfig::default(), Duration::ZERO);
        let stats = GuestStats { total: Some(Bytes::mib(900)), ..GuestStats::default() };
        let (actual, plugged, status) = (Bytes::mib(700), Bytes::ZERO, "paused");
        machine.claim(Claims { actual, plugged, stats: (stats, 5), status });
        let sent = sent(&mut machine, [COMMANDS]);
        assert!(sent.contains(&actual.get().to_string()), "{sent}");
        assert_eq!(machine.take_order(), Some(Bytes::mib(256)));
        assert_eq!(machine.take_order(), None);
        machine.refuse(1);
        let refused = br#"{"execute":"balloon","arguments":{"value":134217728},"id":3}"#;
        let answer = machine.receive(refused, Duration::from_secs(2), 8).bytes;
        assert!(String::from_utf8(answer).unwrap().contains("GenericError"));
        assert_eq!(machine.take_order(), None);
    }
}
