//! Tests with a server that follows the published API, with every status of that API, and with the
//! real program if `BALLAST_FIRECRACKER` names one.
//!
//! Source: src/firecracker/swagger/firecracker.yaml at tag v1.16.1, restated in [`CALLS`] and
//! [`FIELDS`]; the statuses of errors are from src/firecracker/src/api_server at the same tag.
//! Limits: the server's guest complies at once, unless a test says otherwise.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use ballast_backend::{Backend, SampleRequest};
use ballast_model::{Budget, Generation, OutcomeKind, Plan, PolicyName, PressureLevel};
use ballast_rest::testing::{RealProgram, ReceivedRequest, Reply, RestServer, try_rest_guest_near};
use ballast_rest::{RestConfig, RestGuests, exchange};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::memory::BALLOON;
use crate::testing::{HINTING, Machine, fault, ok};

/// The calls that are made: method, path, the status of success, and those of errors that the
/// published API names. Any call may have others (`default`).
const CALLS: [(Method, &str, u16, &[u16]); 8] = [
    (Method::Get, "/", 200, &[]),
    (Method::Get, "/vm/config", 200, &[]),
    (Method::Get, "/balloon/statistics", 200, &[400]),
    (Method::Patch, "/balloon/statistics", 204, &[400]),
    (Method::Patch, "/balloon", 204, &[400]),
    (Method::Patch, "/balloon/hinting/start", 204, &[400]),
    (Method::Get, "/hotplug/memory", 200, &[]),
    (Method::Patch, "/hotplug/memory", 204, &[]),
];

/// Statuses that stand for `default`: the program returns 400 for all calls, 413 for a call that is
/// not made here, and never 404; a fault is 500.
const ANY_CALL: [u16; 3] = [400, 413, 500];

/// The fields that are read and sent: schema, name, type.
const FIELDS: [(&str, &str, &str); 26] = [
    ("InstanceInfo", "app_name", "string"),
    ("InstanceInfo", "state", "string"),
    ("InstanceInfo", "vmm_version", "string"),
    ("MachineConfiguration", "mem_size_mib", "integer"),
    ("MachineConfiguration", "huge_pages", "string"),
    ("Balloon", "deflate_on_oom", "boolean"),
    ("Balloon", "stats_polling_interval_s", "integer"),
    ("Balloon", "free_page_hinting", "boolean"),
    ("Balloon", "free_page_reporting", "boolean"),
    ("Vsock", "uds_path", "string"),
    ("BalloonStats", "actual_pages", "integer"),
    ("BalloonStats", "swap_in", "integer"),
    ("BalloonStats", "swap_out", "integer"),
    ("BalloonStats", "major_faults", "integer"),
    ("BalloonStats", "minor_faults", "integer"),
    ("BalloonStats", "free_memory", "integer"),
    ("BalloonStats", "total_memory", "integer"),
    ("BalloonStats", "available_memory", "integer"),
    ("BalloonStats", "disk_caches", "integer"),
    ("MemoryHotplugStatus", "total_size_mib", "integer"),
    ("MemoryHotplugStatus", "block_size_mib", "integer"),
    ("MemoryHotplugStatus", "plugged_size_mib", "integer"),
    ("MemoryHotplugStatus", "requested_size_mib", "integer"),
    ("BalloonUpdate", "amount_mib", "integer"),
    ("BalloonStatsUpdate", "stats_polling_interval_s", "integer"),
    ("MemoryHotplugSizeUpdate", "requested_size_mib", "integer"),
];

/// An example object of a schema, made of [`FIELDS`].
fn object(schema: &str) -> Value {
    let of_schema = FIELDS.iter().filter(|(of, ..)| *of == schema);
    let value = |(_, name, kind): &(&str, &str, &str)| {
        let value = match *kind {
            "integer" => json!(64),
            "boolean" => json!(true),
            _ => json!("2M"),
        };
        ((*name).to_owned(), value)
    };
    Value::Object(of_schema.map(value).collect())
}

/// One guest, `a`, of a host whose clock the test moves.
struct Host {
    folder: TempDir,
    guests: RestGuests,
    second: u64,
}

impl Host {
    fn new() -> Host {
        let folder = tempfile::tempdir().unwrap();
        let sockets = vec![format!("{}/*.sock", folder.path().display()).parse().unwrap()];
        let timeout = Duration::from_secs(60);
        let config = RestConfig { sockets, timeout, guests_max: 9 };
        Host {
            guests: RestGuests::new(FIRECRACKER, config, Path::new("/proc")),
            folder,
            second: 1000,
        }
    }

    fn serve(&self, answer: impl FnMut(&ReceivedRequest) -> Reply + Send + 'static) -> RestServer {
        RestServer::start(&self.folder.path().join("a.sock"), answer)
    }

    /// A server whose machine the test can change.
    fn shared(&self, machine: Machine) -> (RestServer, Arc<Mutex<Machine>>) {
        let machine = Arc::new(Mutex::new(machine));
        let answering = Arc::clone(&machine);
        (self.serve(move |request| answering.lock().unwrap().answer(request)), machine)
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.second * 1000)
    }

    /// Samples a second later.
    async fn readings(&mut self) -> Vec<GuestSample> {
        self.second += 1;
        let (now, deadline) = (self.now(), Duration::from_secs(60));
        let request = SampleRequest { now, wall: SystemTime::UNIX_EPOCH, deadline, only: None };
        self.guests.sample(request).await.into_iter().map(|it| it.sample).collect()
    }

    async fn sample(&mut self) -> GuestSample {
        self.readings().await.remove(0)
    }

    async fn order(&mut self, target: u64, plug: Option<u64>) -> OutcomeKind {
        self.second += 1;
        let action = Action {
            guest: "a".parse().unwrap(),
            target: Bytes::mib(target),
            plug: plug.map(Bytes::mib),
            generation: Generation(self.second),
            deadline: self.now(),
        };
        self.guests.act_all(self.now(), &[action]).await.remove(0).kind
    }

    fn notices(&mut self) -> String {
        self.guests.take_notices().join("\n")
    }
}

/// What a guest holds, in MiB; 0 if it is not known.
fn held(sample: &GuestSample) -> u64 {
    sample.allocation.map_or(0, |it| it.value.get() >> 20)
}

#[test]
fn all_calls_and_fields_are_those_of_the_api() {
    let is_listed = |method, path| CALLS.iter().any(|it| (it.0, it.1) == (method, path));
    for call in [INSTANCE, CONFIG, STATISTICS, PLUGGED] {
        assert!(is_listed(call.method, call.path), "{call}");
    }
    for path in [BALLOON, HOTPLUG, HINTING, STATISTICS.path] {
        assert!(is_listed(Method::Patch, path), "{path}");
    }
    // Objects with all the fields can be parsed, and each field has its type.
    let instance: Instance = serde_json::from_value(object("InstanceInfo")).unwrap();
    assert_eq!(instance.vmm_version, "2M");
    let config: VmConfig = serde_json::from_value(json!({
        "machine-config": object("MachineConfiguration"),
        "balloon": object("Balloon"),
        "vsock": object("Vsock"),
        "memory-hotplug": {},
    }))
    .unwrap();
    let balloon = config.balloon.unwrap();
    assert!(balloon.deflate_on_oom && balloon.free_page_hinting && balloon.free_page_reporting);
    assert!(config.machine_config.has_huge_pages() && config.memory_hotplug.is_some());
    let stats: BalloonStats = serde_json::from_value(object("BalloonStats")).unwrap();
    assert_eq!(stats.held(), Bytes::kib(256));
    let all = Some(Bytes::new(64));
    let expected = GuestStats {
        total: all,
        free: all,
        available: all,
        disk_caches: all,
        swap_in: all,
        swap_out: all,
        major_faults: Some(64),
        minor_faults: Some(64),
    };
    assert_eq!(GuestStats::from(stats.reported), expected);
    let status: HotplugStatus = serde_json::from_value(object("MemoryHotplugStatus")).unwrap();
    assert_eq!((status.block_size_mib, status.requested_size_mib), (64, 64));
}

/// An age to the nearest second: time within a sample is real, time between two is not.
fn seconds(age: Duration) -> u64 {
    age.as_secs_f64().round() as u64
}

#[tokio::test]
async fn a_balloon_moves_and_its_statistics_have_an_age() {
    let mut host = Host::new();
    let (server, machine) = host.shared(Machine::new(1));
    let sample = host.sample().await;
    assert_eq!((held(&sample), sample.stats), (1024, None), "how old they are nobody knows");
    assert_eq!(sample.run_state, Some(RunState::Running));
    let can = sample.capabilities;
    assert_eq!(
        (can.balloon, can.statistics, can.free_page_reporting),
        (Some(true), Some(true), Some(true))
    );
    machine.lock().unwrap().reported["free_memory"] = json!(400 << 20);
    let stats = host.sample().await.stats.unwrap();
    assert_eq!((stats.value.free, seconds(stats.age)), (Some(Bytes::mib(400)), 1));
    let frozen = host.sample().await.stats.unwrap();
    assert_eq!((frozen.value, seconds(frozen.age)), (stats.value, 2), "they age");
    assert_eq!(host.order(700, None).await, OutcomeKind::Accepted);
    assert_eq!(server.take_changes(), ["PATCH /balloon {\"amount_mib\":324}"]);
    let sample = host.sample().await;
    assert_eq!(held(&sample), 700);
    assert_eq!(seconds(sample.stats.unwrap().age), 4, "the host's order is no word of the guest");
    machine.lock().unwrap().obeys = false;
    assert_eq!(host.order(600, None).await, OutcomeKind::Accepted);
    assert_eq!(held(&host.sample().await), 700, "what it does counts, not what it was asked");
    assert!(host.guests.vsock(&"a".parse().unwrap()).is_none(), "its folder is not known");
}

#[tokio::test]
async fn a_balloon_without_statistics_is_left_alone_and_said() {
    let mut host = Host::new();
    let (server, _machine) = host.shared(Machine::new(0));
    let sample = host.sample().await;
    let can = sample.capabilities;
    assert_eq!((held(&sample), can.balloon, can.statistics), (1024, Some(false), Some(false)));
    let notices = host.notices();
    assert!(notices.contains("configured without statistics before boot"), "{notices}");
    let refused = host.order(700, None).await;
    let why =
        "not sent: the size of its balloon is not known: it has none, or one without statistics";
    assert_eq!(refused, OutcomeKind::Failed(why.to_owned()));
    host.sample().await;
    assert_eq!((host.notices().as_str(), server.take_changes().len()), ("", 0));
}

#[tokio::test]
async fn reports_are_asked_for_every_second() {
    let mut host = Host::new();
    let (server, _machine) = host.shared(Machine::new(60));
    for _ in 0..2 {
        host.sample().await;
    }
    let period = "PATCH /balloon/statistics {\"stats_polling_interval_s\":1}";
    assert_eq!(server.take_changes(), [period], "once");
}

#[tokio::test]
async fn memory_is_plugged_in_and_out() {
    let mut host = Host::new();
    let mut machine = Machine::new(1).with_hotplug(512);
    machine.config["balloon"] = Value::Null;
    let (server, machine) = host.shared(machine);
    let sample = host.sample().await;
    assert_eq!((held(&sample), sample.hotplug.unwrap().max), (1024, Bytes::mib(512)));
    assert_eq!(host.order(1281, Some(257)).await, OutcomeKind::Accepted);
    assert_eq!(server.take_changes(), ["PATCH /hotplug/memory {\"requested_size_mib\":256}"]);
    assert_eq!(held(&host.sample().await), 1280);
    machine.lock().unwrap().obeys = false;
    assert_eq!(host.order(1024, Some(0)).await, OutcomeKind::Accepted);
    let sample = host.sample().await;
    let hotplug = sample.hotplug.unwrap();
    let plugged = (hotplug.plugged, hotplug.requested);
    assert_eq!((held(&sample), plugged), (1280, (Bytes::mib(256), Bytes::ZERO)), "it keeps it");
}

#[tokio::test]
async fn a_guest_that_is_not_started_has_no_figures() {
    let mut host = Host::new();
    let machine = Machine { state: "Not started", ..Machine::new(1).with_hotplug(64) };
    let (_server, machine) = host.shared(machine);
    let sample = host.sample().await;
    assert_eq!((held(&sample), sample.boot_memory), (0, None));
    assert_eq!(sample.run_state.unwrap().to_string(), "not started");
    assert_eq!(host.order(9, None).await, OutcomeKind::Failed("not sent: it is not booted".into()));
    machine.lock().unwrap().state = "Running";
    assert_eq!(held(&host.sample().await), 1024);
    machine.lock().unwrap().state = "Paused";
    assert_eq!(host.sample().await.run_state, Some(RunState::Paused));
}

#[test]
fn unused_pages_are_asked_for_while_the_host_is_short() {
    let config = serde_json::from_value(Machine::new(1).config).ok();
    let mut guest = FirecrackerGuest { config, ..FirecrackerGuest::default() };
    let mut hints = |second: u64, is_short: bool| {
        guest.planned(is_short);
        guest.begin(Timestamp::from_millis(second * 1000), false);
        let calls = guest.calls();
        calls
            .into_iter()
            .filter(|call| call.path == HINTING)
            .map(|call| call.body)
            .collect::<Vec<_>>()
    };
    let (none, one): (Vec<String>, _) = (vec![], vec!["{\"acknowledge_on_stop\":true}".to_owned()]);
    assert_eq!(hints(100, false), none);
    assert_eq!(hints(101, true), one);
    assert_eq!(hints(130, true), none);
    assert_eq!(hints(131, true), one);
}

#[tokio::test]
async fn every_status_of_the_api_is_reported_with_its_words() {
    for (method, path, success, errors) in CALLS {
        assert!((200..300).contains(&success));
        for status in errors.iter().chain(&ANY_CALL).copied() {
            let case = format!("{method:?} {path} {status}");
            let mut host = Host::new();
            let mut machine = Machine::new(60).with_hotplug(512);
            // The calls about a guest's identity and its boot are made once; the others fail later.
            let is_first =
                path == CONFIG.path || method == Method::Patch && path == STATISTICS.path;
            let fails = Arc::new(Mutex::new(is_first || path == INSTANCE.path));
            let is_failing = Arc::clone(&fails);
            let _server = host.serve(move |request| {
                let is_it = request.is(method, path) && *is_failing.lock().unwrap();
                if is_it { fault(status, "No such thing.") } else { machine.answer(request) }
            });
            let readings = host.readings().await;
            let reported = match (method, path) {
                (Method::Get, "/" | "/vm/config") => {
                    assert!(readings.is_empty(), "{case}: it may be another program");
                    host.notices()
                }
                _ => {
                    assert_eq!(held(&readings[0]), 1024, "{case}");
                    *fails.lock().unwrap() = true;
                    match path {
                        BALLOON | HOTPLUG if method == Method::Patch => {
                            match host.order(1100, Some(100)).await {
                                OutcomeKind::Failed(why) => why,
                                other => panic!("{case}: {other:?}"),
                            }
                        }
                        HINTING => {
                            host.guests.planned(&short_host());
                            host.sample().await;
                            host.notices()
                        }
                        _ => {
                            let sample = host.sample().await;
                            assert_eq!(held(&sample), 1024, "{case}: the last figures stand");
                            host.notices()
                        }
                    }
                }
            };
            let words = format!("failed with status {status}: No such thing.");
            assert!(reported.contains(&words), "{case}: {reported}");
        }
    }
}

/// A plan for a host that is short of memory.
fn short_host() -> Plan {
    Plan {
        generation: Generation(1),
        decided_at: Timestamp::ZERO,
        policy: PolicyName::Global,
        budget: Budget::default(),
        guests: Vec::new(),
        actions: Vec::new(),
        paging: Vec::new(),
        host_pressure: PressureLevel::BalloonOnly,
        reservations: Vec::new(),
        notes: Vec::new(),
    }
}

#[tokio::test]
async fn another_name_than_firecrackers_is_no_guest() {
    let mut host = Host::new();
    let other = json!({ "app_name": "Other", "id": "a", "state": "Running", "vmm_version": "1" });
    let _server = host.serve(move |_| ok(&other));
    assert!(host.readings().await.is_empty());
    let notices = host.notices();
    assert!(notices.contains("no Firecracker answers there"), "{notices}");
}

/// The fuzzer's seeds.
const SEEDS: [&[u8]; 2] = [
    include_bytes!("../../../../fuzz/seeds/firecracker_guest/balloon"),
    include_bytes!("../../../../fuzz/seeds/firecracker_guest/fault"),
];

proptest! {
    #[test]
    fn any_answers_are_read_or_refused(bytes: Vec<u8>, seed in 0..2usize, at: prop::sample::Index) {
        let at = at.index(SEEDS[seed].len());
        try_rest_guest_near::<FirecrackerGuest>(SEEDS[seed], &bytes, at);
    }
}

/// A guest is configured and not booted, which needs no KVM.
#[tokio::test]
async fn the_real_program_answers_as_the_server_does() {
    let Some(program) = std::env::var_os("BALLAST_FIRECRACKER") else {
        println!("SKIPPED: BALLAST_FIRECRACKER names no program");
        return;
    };
    let mut host = Host::new();
    let socket = host.folder.path().join("a.sock");
    let mut command = Command::new(program);
    command.arg("--api-sock").arg(&socket).stdin(Stdio::null());
    let real = RealProgram(command.spawn().expect("the program starts"));
    let begun = Instant::now();
    while host.readings().await.is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it answers on its socket");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let sample = host.sample().await;
    assert_eq!(sample.run_state.unwrap().to_string(), "not started");
    let balloon = json!({
        "amount_mib": 0, "deflate_on_oom": false, "stats_polling_interval_s": 1,
        "free_page_reporting": true,
    });
    let calls = vec![
        Call::send(Method::Put, BALLOON, &balloon),
        Call::send(Method::Patch, BALLOON, &json!({ "amount_mib": 16 })),
        CONFIG,
    ];
    let until = tokio::time::Instant::now() + Duration::from_secs(60);
    let (answers, error) = exchange(&socket, calls, true, until).await.into_answers();
    assert!(error.is_none(), "{error:?}");
    for (call, answer) in &answers {
        assert!(answer.is_success(), "{}", answer.refusal(call));
    }
    let config: VmConfig = answers[2].1.read(&CONFIG).unwrap();
    assert!(config.balloon.is_some_and(|it| it.stats_polling_interval_s == 1));
    drop(real);
    assert!(host.readings().await.is_empty(), "a guest ends with its process");
}
