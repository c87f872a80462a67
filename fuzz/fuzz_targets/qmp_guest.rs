//! A whole QMP connection, from greeting to plugging: a hypervisor may answer anything at any time,
//! and may not read. The monitor sends only permitted commands, holds bounded memory, reports
//! possible figures and printable texts, and finishes each order once.
#![no_main]

use std::collections::BTreeSet;
use std::time::Duration;

use ballast_fuzz::{Source, assert_harmless};
use ballast_model::{Action, Bytes, Generation, LinkState, OutcomeKind, PAGE_SIZE, Timestamp};
use ballast_qmp::guest::{GuestMonitor, Ticket};
use ballast_qmp::session::OUTGOING_BYTES_MAX;
use serde_json::{Value, json};

/// Most steps of one connection.
const STEPS_MAX: usize = 200;
/// Longest command: a path and the text around it.
const COMMAND_BYTES_MAX: usize = 600;
/// Longest text that a hypervisor can put into a log, in characters.
const TEXT_CHARS_MAX: usize = 1000;

const GREETING: &str = r#"{"QMP":{"version":{"qemu":{"micro":2,"minor":2,"major":7}}}}"#;

/// One monitor, its hypervisor, and the requests to both.
struct Run<'a> {
    from: Source<'a>,
    guest: GuestMonitor,
    now: Timestamp,
    /// Commands that the hypervisor has read but not answered: id and name.
    read: Vec<(u64, String)>,
    open: BTreeSet<Ticket>,
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut run = Run {
        from: Source::new(bytes),
        guest: GuestMonitor::new(Duration::from_secs(2)),
        now: Timestamp::ZERO,
        read: Vec::new(),
        open: BTreeSet::new(),
    };
    run.connect();
    for _ in 0..STEPS_MAX {
        if run.from.is_empty() {
            break;
        }
        run.step();
        run.check();
    }
    run.disconnect(ballast_model::LinkDown::Refused);
    run.check();
    assert!(run.open.is_empty(), "orders without an outcome: {:?}", run.open);
});

impl Run<'_> {
    fn connect(&mut self) {
        self.read.clear();
        let pid = 1 + u32::from(self.from.byte() % 2);
        self.guest.connected(self.now, Some(pid));
        if !self.from.byte().is_multiple_of(16) {
            self.receive(GREETING.as_bytes());
        }
    }

    fn disconnect(&mut self, why: ballast_model::LinkDown) {
        assert_harmless(&why.to_string(), TEXT_CHARS_MAX);
        self.guest.disconnected(why);
    }

    fn step(&mut self) {
        match self.from.byte() % 16 {
            0 => {
                let count = usize::from(self.from.byte());
                let bytes = self.from.bytes(count);
                self.receive(bytes);
            }
            1 => {
                self.now = self.now.max(self.from.moment(self.now));
                if let Err(why) = self.guest.handle_timeout(self.now) {
                    self.disconnect(why);
                    self.connect();
                }
            }
            2 => drop(self.guest.begin_sample(self.now)),
            3 => {
                let action = Action {
                    guest: "a".parse().expect("a name"),
                    target: self.from.size(),
                    plug: self.from.perhaps(Source::size),
                    generation: Generation(1),
                    deadline: Timestamp::from_millis(u64::MAX),
                };
                let begun = self.guest.begin_action(&action, self.now);
                self.begun(begun);
            }
            4 => {
                let begun = self.guest.begin_powerdown(self.now);
                self.begun(begun);
            }
            5 => {
                let event = self.event();
                self.receive(event.as_bytes());
            }
            6 => {
                self.disconnect(ballast_model::LinkDown::Closed("end of stream".to_owned()));
                self.connect();
            }
            // An answer to a command that may not even have been sent.
            7 => {
                let (id, name) = (u64::from(self.from.byte()), self.from.bytes(3));
                self.answer(id, &String::from_utf8_lossy(name));
            }
            _ => {
                self.take_commands();
                if let Some((id, name)) = self.read.pop() {
                    self.answer(id, &name);
                }
            }
        }
    }

    fn begun(&mut self, begun: Result<Ticket, OutcomeKind>) {
        match begun {
            Ok(ticket) => assert!(self.open.insert(ticket), "a ticket is given out once"),
            Err(why) => assert_harmless(&why.to_string(), TEXT_CHARS_MAX),
        }
    }

    /// The hypervisor reads what the monitor sends, unless it does not read now.
    fn take_commands(&mut self) {
        let sent = String::from_utf8(self.guest.outgoing().to_vec()).expect("commands are text");
        for line in sent.lines() {
            let command: Value =
                serde_json::from_str(line).expect("commands are JSON, a line each");
            assert_permitted(&command);
            let id = command["id"].as_u64().expect("a command has an id");
            let name = command["execute"].as_str().expect("a command has a name").to_owned();
            self.read.insert(0, (id, name));
        }
        self.guest.mark_written(sent.len());
    }

    fn receive(&mut self, bytes: &[u8]) {
        let wall_secs = self.now.as_millis() / 1000;
        if let Err(why) = self.guest.receive(bytes, self.now, wall_secs) {
            self.disconnect(why);
            self.connect();
        }
    }

    fn answer(&mut self, id: u64, name: &str) {
        let text = match self.from.byte() % 8 {
            0 => {
                let classes = ["DeviceNotActive", "GenericError", "CommandNotFound", "\u{1b}[2J\n"];
                let class = self.from.one_of(&classes);
                let desc = String::from_utf8_lossy(self.from.bytes(9)).repeat(40);
                json!({"error": {"class": class, "desc": desc}, "id": id}).to_string()
            }
            1 => {
                let raw = String::from_utf8_lossy(self.from.bytes(24));
                format!(r#"{{"return":{raw},"id":{id}}}"#)
            }
            _ => json!({"return": self.result(name), "id": id}).to_string(),
        };
        self.receive(text.as_bytes());
    }

    /// A result in the form of the command's results.
    fn result(&mut self, name: &str) -> Value {
        match name {
            "query-status" => {
                let words = ["running", "paused", "shutdown", "guest-panicked", "io\n-error"];
                json!({"status": self.from.one_of(&words)})
            }
            "query-balloon" => json!({"actual": self.from.size().get()}),
            "query-memory-size-summary" => json!({"base-memory": self.from.size().get()}),
            "query-memory-devices" => {
                (0..self.from.below(5)).map(|_| self.device()).collect::<Vec<_>>().into()
            }
            "query-blockstats" => {
                (0..self.from.below(4)).map(|_| self.disk()).collect::<Vec<_>>().into()
            }
            "qom-list" => (0..self.from.below(6)).map(|_| self.entry()).collect::<Vec<_>>().into(),
            "qom-get" => match self.from.byte() % 4 {
                0 => json!(self.from.yes()),
                1 => json!(self.from.below(3)),
                2 => json!({
                    "size": self.from.size().get(), "max-size": self.from.size().get(),
                    "slots": self.from.number(),
                }),
                _ => json!({
                    "stats": {
                        "stat-total-memory": self.from.size().get(),
                        "stat-free-memory": self.from.size().get(),
                        "stat-major-faults": self.from.number(),
                    },
                    "last-update": self.from.below(100),
                }),
            },
            _ => json!({}),
        }
    }

    fn device(&mut self) -> Value {
        let id = self.id("ballast-dimm-");
        match self.from.byte() % 4 {
            0 => json!({"type": "virtio-mem", "data": {
                "id": id,
                "requested-size": self.from.size().get(), "size": self.from.size().get(),
                "max-size": self.from.size().get(), "block-size": self.from.size().get(),
            }}),
            1 => {
                // A possible device.
                let (most, block) = (self.from.below(64), 2_u64 << (20 + self.from.below(3)));
                json!({"type": "virtio-mem", "data": {
                    "id": if self.from.yes() { Value::Null } else { id.into() },
                    "requested-size": block * self.from.below(most + 1),
                    "size": block * self.from.below(most + 1),
                    "max-size": block * most, "block-size": block,
                }})
            }
            2 => json!({"type": "dimm", "data": {"id": id, "size": self.from.size().get()}}),
            _ => json!({"type": "nvdimm", "data": {"id": id, "size": self.from.size().get()}}),
        }
    }

    fn disk(&mut self) -> Value {
        let stats = json!({"rd_bytes": self.from.number(), "rd_operations": self.from.number()});
        json!({"device": self.id("virtio"), "stats": stats, "parent": {"stats": stats}})
    }

    fn entry(&mut self) -> Value {
        let kinds = [
            "child<virtio-balloon-pci>",
            "child<virtio-mem-pci>",
            "child<memory-backend-memfd>",
            "child<vfio-pci>",
            "string",
        ];
        let kind = self.from.one_of(&kinds);
        json!({"name": self.id("ballast-mem-"), "type": kind})
    }

    fn id(&mut self, own: &str) -> String {
        match self.from.byte() % 4 {
            0 => String::from_utf8_lossy(self.from.bytes(6)).into_owned(),
            1 => "x".repeat(usize::from(self.from.byte()) * 2),
            _ => format!("{own}{}", self.from.byte()),
        }
    }

    fn event(&mut self) -> String {
        let names = [
            "STOP",
            "RESUME",
            "SHUTDOWN",
            "RESET",
            "GUEST_PANICKED",
            "DEVICE_DELETED",
            "ACPI_DEVICE_OST",
            "MEM_UNPLUG_ERROR",
            "MEMORY_DEVICE_SIZE_CHANGE",
        ];
        let (name, id) = (self.from.one_of(&names), self.id("ballast-dimm-"));
        let data = if name == "ACPI_DEVICE_OST" {
            let (source, status) = (self.from.below(5), self.from.below(3));
            json!({"info": {"device": id, "source": source, "status": status}})
        } else {
            json!({"device": id})
        };
        json!({"event": name, "data": data}).to_string()
    }

    /// What holds at every moment.
    fn check(&mut self) {
        let waiting = self.guest.outgoing().len();
        assert!(waiting <= OUTGOING_BYTES_MAX + COMMAND_BYTES_MAX, "{waiting} bytes");
        while let Some((ticket, outcome)) = self.guest.pop_finished() {
            assert!(self.open.remove(&ticket), "an outcome without an order, or a second one");
            assert_harmless(&outcome.to_string(), TEXT_CHARS_MAX);
        }
        let sample = self.guest.sample("a".parse().expect("a name"), self.now);
        assert!(sample.memory_max() <= Some(Bytes::new(1 << 54)), "{sample:?}");
        if let (Some(allocation), Some(most)) = (sample.allocation, sample.present_memory()) {
            assert!(allocation.value <= most, "{sample:?}");
            assert_eq!(allocation.value.page_floor(), allocation.value, "{sample:?}");
        }
        if let Some(hotplug) = sample.hotplug {
            assert!(hotplug.block >= Bytes::new(PAGE_SIZE), "{hotplug:?}");
            assert!(hotplug.requested <= hotplug.max.max(hotplug.plugged), "{hotplug:?}");
        }
        if let LinkState::Down(why) = &sample.link {
            assert_harmless(&why.to_string(), TEXT_CHARS_MAX);
        }
        if let Some(state) = &sample.run_state {
            assert_harmless(&state.to_string(), TEXT_CHARS_MAX);
        }
        let _ = (self.guest.next_timeout(), self.guest.version(), self.guest.poll_took());
    }
}

/// Only memory is changed, and only Ballast's own modules are created and removed.
fn assert_permitted(command: &Value) {
    let arguments = &command["arguments"];
    let is_own = |value: &Value, prefix: &str| {
        value.as_str().is_some_and(|id| {
            id.strip_prefix(prefix).is_some_and(|number| number.parse::<u16>().is_ok())
        })
    };
    let is_permitted = match command["execute"].as_str().unwrap_or_default() {
        "qmp_capabilities"
        | "query-status"
        | "query-balloon"
        | "query-memory-size-summary"
        | "query-memory-devices"
        | "query-blockstats"
        | "qom-list"
        | "qom-get"
        | "system_powerdown" => true,
        "balloon" => arguments["value"].is_u64(),
        "qom-set" => {
            let properties = ["requested-size", "guest-stats-polling-interval"];
            properties.contains(&arguments["property"].as_str().unwrap_or_default())
                && arguments["path"].as_str().is_some_and(|path| path.starts_with('/'))
        }
        "object-add" => {
            arguments["qom-type"] == "memory-backend-memfd"
                && is_own(&arguments["id"], "ballast-mem-")
        }
        "object-del" => is_own(&arguments["id"], "ballast-mem-"),
        "device_add" => {
            arguments["driver"] == "pc-dimm" && is_own(&arguments["id"], "ballast-dimm-")
        }
        "device_del" => is_own(&arguments["id"], "ballast-dimm-"),
        _ => false,
    };
    assert!(is_permitted, "{command}");
}
