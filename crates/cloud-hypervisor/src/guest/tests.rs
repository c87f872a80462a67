//! Tests with a server that follows the published API, with every status of that API, and with the
//! real program if `BALLAST_CLOUD_HYPERVISOR` names one.
//!
//! Source: vmm/src/api/openapi/cloud-hypervisor.yaml at tag v53.0 (API version 0.3.0), restated in
//! [`CALLS`] and [`FIELDS`]; the bodies of errors are from vmm/src/api/http/mod.rs of v45.0 and
//! v53.0. Limits: the server's guest complies at once, unless a test says otherwise.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use ballast_backend::{Backend, SampleRequest, VsockAddress};
use ballast_model::{Generation, OutcomeKind, Pinned};
use ballast_rest::testing::{RealProgram, ReceivedRequest, Reply, RestServer, try_rest_guest_near};
use ballast_rest::{Method, RestConfig, RestGuests, exchange};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::memory::{RESIZE, RESIZE_ZONE};
use crate::testing::{MIB, Machine};

/// The calls that are made: method, path, the status of success, and those of errors that the
/// published API has.
const CALLS: [(Method, &str, u16, &[u16]); 5] = [
    (Method::Get, "/api/v1/vmm.ping", 200, &[]),
    (Method::Get, "/api/v1/vm.info", 200, &[404]),
    (Method::Get, "/api/v1/vm.counters", 200, &[]),
    (Method::Put, "/api/v1/vm.resize", 204, &[404, 429]),
    (Method::Put, "/api/v1/vm.resize-zone", 204, &[404, 500]),
];

/// Statuses that any call may have besides: for a malformed body, and for a fault.
const ANY_CALL: [u16; 2] = [400, 500];

/// The fields that are read: schema, name, type.
const FIELDS: [(&str, &str, &str); 24] = [
    ("VmmPingResponse", "version", "string"),
    ("VmmPingResponse", "pid", "integer"),
    ("VmInfo", "state", "string"),
    ("VmInfo", "memory_actual_size", "integer"),
    ("MemoryConfig", "size", "integer"),
    ("MemoryConfig", "hotplug_size", "integer"),
    ("MemoryConfig", "hotplugged_size", "integer"),
    ("MemoryConfig", "hotplug_method", "string"),
    ("MemoryConfig", "hugepages", "boolean"),
    ("MemoryZoneConfig", "id", "string"),
    ("MemoryZoneConfig", "size", "integer"),
    ("MemoryZoneConfig", "hotplug_size", "integer"),
    ("MemoryZoneConfig", "hotplugged_size", "integer"),
    ("MemoryZoneConfig", "hugepages", "boolean"),
    ("BalloonConfig", "size", "integer"),
    ("BalloonConfig", "deflate_on_oom", "boolean"),
    ("BalloonConfig", "free_page_reporting", "boolean"),
    ("VsockConfig", "socket", "string"),
    ("PlatformConfig", "tdx", "boolean"),
    ("PlatformConfig", "sev_snp", "boolean"),
    ("DeviceConfig", "path", "string"),
    ("VmResize", "desired_ram", "integer"),
    ("VmResize", "desired_balloon", "integer"),
    ("VmResizeZone", "desired_ram", "integer"),
];

/// An example object of a schema, made of [`FIELDS`].
fn object(schema: &str) -> Value {
    let of_schema = FIELDS.iter().filter(|(of, ..)| *of == schema);
    let value = |(_, name, kind): &(&str, &str, &str)| {
        let value = match *kind {
            "integer" => json!(1 << 30),
            "boolean" => json!(true),
            _ => json!("53.0.0"),
        };
        ((*name).to_owned(), value)
    };
    Value::Object(of_schema.map(value).collect())
}

/// One guest, `a`, of a host.
struct Host {
    folder: TempDir,
    guests: RestGuests,
    generation: u64,
}

impl Host {
    fn new() -> Host {
        let folder = tempfile::tempdir().unwrap();
        let sockets = vec![format!("{}/*.sock", folder.path().display()).parse().unwrap()];
        let timeout = Duration::from_secs(60);
        let config = RestConfig { sockets, timeout, guests_max: 9 };
        Host {
            guests: RestGuests::new(CLOUD_HYPERVISOR, config, Path::new("/proc")),
            folder,
            generation: 0,
        }
    }

    fn serve(&self, answer: impl FnMut(&ReceivedRequest) -> Reply + Send + 'static) -> RestServer {
        RestServer::start(&self.folder.path().join("a.sock"), answer)
    }

    async fn readings(&mut self) -> Vec<GuestSample> {
        self.readings_at(5).await
    }

    async fn readings_at(&mut self, seconds: u64) -> Vec<GuestSample> {
        let request = SampleRequest {
            now: Timestamp::from_millis(seconds * 1000),
            wall: SystemTime::UNIX_EPOCH,
            deadline: Duration::from_secs(60),
            only: None,
        };
        self.guests.sample(request).await.into_iter().map(|it| it.sample).collect()
    }

    async fn sample(&mut self) -> GuestSample {
        self.readings().await.remove(0)
    }

    async fn order(&mut self, target: u64, plug: Option<u64>) -> OutcomeKind {
        self.generation += 1;
        let action = Action {
            guest: "a".parse().unwrap(),
            target: Bytes::mib(target),
            plug: plug.map(Bytes::mib),
            generation: Generation(self.generation),
            deadline: Timestamp::from_millis(60_000),
        };
        let now = Timestamp::from_millis(5000);
        self.guests.act_all(now, &[action]).await.remove(0).kind
    }
}

/// A server whose machine the test can change.
fn shared(host: &Host, machine: Machine) -> (RestServer, Arc<Mutex<Machine>>) {
    let machine = Arc::new(Mutex::new(machine));
    let answering = Arc::clone(&machine);
    (host.serve(move |request| answering.lock().unwrap().answer(request)), machine)
}

fn mib(sample: &GuestSample) -> u64 {
    sample.allocation.map_or(0, |it| it.value.get() >> 20)
}

#[test]
fn all_calls_and_fields_are_those_of_the_api() {
    let path = |call: &Call| CALLS.iter().any(|it| (it.0, it.1) == (call.method, call.path));
    assert!(path(&PING) && path(&INFO) && path(&COUNTERS));
    for path in [RESIZE, RESIZE_ZONE] {
        assert!(CALLS.iter().any(|it| (it.0, it.1) == (Method::Put, path)));
    }
    // Objects with all the fields can be parsed, and each field has its type.
    let ping: Ping = serde_json::from_value(object("VmmPingResponse")).unwrap();
    assert_eq!((ping.version(), ping.pid), (Some(Version(53)), Some(1 << 30)));
    let (mut memory, mut info) = (object("MemoryConfig"), object("VmInfo"));
    memory["zones"] = json!([object("MemoryZoneConfig")]);
    info["config"] = json!({
        "memory": memory,
        "balloon": object("BalloonConfig"),
        "vsock": object("VsockConfig"),
        "platform": object("PlatformConfig"),
        "devices": [object("DeviceConfig")],
    });
    let info: Info = serde_json::from_value(info).unwrap();
    let Info { config, memory_actual_size, .. } = &info;
    assert_eq!(*memory_actual_size, Some(1 << 30));
    assert_eq!(config.pinned(), Some(Pinned::Tdx));
    assert!(config.balloon.as_ref().is_some_and(|it| it.deflate_on_oom && it.free_page_reporting));
    let memory = &config.memory;
    assert_eq!((memory.hotplug_size, memory.hotplugged_size), (Some(1 << 30), Some(1 << 30)));
    assert_eq!(memory.zones.as_ref().unwrap()[0].hotplug_size, Some(1 << 30));
}

#[tokio::test]
async fn a_balloon_moves_and_is_seen() {
    let mut host = Host::new();
    let (server, machine) = shared(&host, Machine::new());
    let sample = host.sample().await;
    assert_eq!((mib(&sample), sample.boot_memory), (1024, Some(Bytes::mib(1024))));
    assert_eq!(
        (sample.run_state, sample.stats, sample.hotplug),
        (Some(RunState::Running), None, None)
    );
    let can = sample.capabilities;
    assert_eq!(
        (can.balloon, can.statistics, can.deflate_on_oom),
        (Some(true), Some(false), Some(true))
    );
    assert_eq!(can.discard_inhibited, Some(false));
    assert_eq!(host.order(700, None).await, OutcomeKind::Accepted);
    let balloon = format!("PUT {RESIZE} {{\"desired_balloon\":{}}}", 324 * MIB);
    assert_eq!(server.take_changes(), [balloon]);
    assert_eq!(mib(&host.sample().await), 700);
    machine.lock().unwrap().obeys = false;
    assert_eq!(host.order(600, None).await, OutcomeKind::Accepted);
    assert_eq!(mib(&host.sample().await), 700, "what it does counts, not what it was asked");
    let root = format!("/proc/{}/root/run/a.vsock", std::process::id());
    let vsock = host.guests.vsock(&"a".parse().unwrap());
    assert_eq!(vsock, Some(VsockAddress::Socket(root.into())));
}

#[tokio::test]
async fn memory_is_plugged_in_and_out() {
    let mut host = Host::new();
    let mut machine = Machine::new().with_virtio_mem(512);
    machine.config.as_mut().unwrap()["balloon"] = Value::Null;
    let (server, machine) = shared(&host, machine);
    let hotplug = host.sample().await.hotplug.unwrap();
    assert_eq!((hotplug.plugged, hotplug.max), (Bytes::ZERO, Bytes::mib(512)));
    assert_eq!(host.order(1280, Some(256)).await, OutcomeKind::Accepted);
    assert_eq!(mib(&host.sample().await), 1280);
    machine.lock().unwrap().obeys = false;
    assert_eq!(host.order(1024, Some(0)).await, OutcomeKind::Accepted);
    let sample = host.sample().await;
    let hotplug = sample.hotplug.unwrap();
    let plugged = (hotplug.plugged, hotplug.requested);
    assert_eq!((mib(&sample), plugged), (1280, (Bytes::mib(256), Bytes::ZERO)), "it keeps it");
    server.take_requests();
    // A size that is requested already would be an error.
    assert_eq!(host.order(1024, Some(0)).await, OutcomeKind::Accepted);
    assert_eq!(server.take_changes(), [""; 0]);
}

#[tokio::test]
async fn disk_reads_are_queried_every_five_seconds() {
    let mut host = Host::new();
    let machine = Machine { read: (8192, 2), ..Machine::new() };
    let (server, machine) = shared(&host, machine);
    let sum = |readings: &[GuestSample]| {
        readings[0].disk_reads.map(|it| (it.value.read.get(), it.value.requests))
    };
    // When in five seconds they are queried depends on the socket's inode, and by some milliseconds
    // on the machine.
    let mut asked_at = Vec::new();
    for seconds in 100..=130 {
        let readings = host.readings_at(seconds).await;
        if server.take_requests().iter().any(|it| it.path == COUNTERS.path) {
            asked_at.push(seconds);
            machine.lock().unwrap().read.0 += 4096;
        }
        let found = 8192 + 4096 * asked_at.len() as u64;
        assert_eq!(sum(&readings), (!asked_at.is_empty()).then_some((found, 3)), "{seconds}");
    }
    assert!(asked_at[0] <= 106, "{asked_at:?}");
    assert!(asked_at.windows(2).all(|it| (4..=6).contains(&(it[1] - it[0]))), "{asked_at:?}");
    let before = sum(&host.readings_at(131).await);
    machine.lock().unwrap().config = None;
    host.readings_at(140).await;
    *machine.lock().unwrap() = Machine::new();
    assert_ne!(sum(&host.readings_at(141).await), before, "another guest");
}

#[tokio::test]
async fn versions_that_do_not_see_plugged_memory_plug_none() {
    let mut host = Host::new();
    let mut machine = Machine::new().with_virtio_mem(512);
    machine.version = "51.2.0";
    machine.config.as_mut().unwrap()["memory"]["hotplugged_size"] = json!(128 * MIB);
    machine.plugged = 128 * MIB;
    let _server = shared(&host, machine);
    let sample = host.sample().await;
    assert_eq!((sample.hotplug, sample.boot_memory), (None, Some(Bytes::mib(1152))));
    let notices = host.guests.take_notices().join("\n");
    assert!(notices.contains("Cloud Hypervisor 51 does not say"), "{notices}");
    host.sample().await;
    assert_eq!(host.guests.take_notices(), [""; 0], "it is said once");
}

#[tokio::test]
async fn a_hypervisor_without_a_guest_is_reported() {
    let mut host = Host::new();
    let (_server, machine) = shared(&host, Machine { config: None, ..Machine::new() });
    let sample = host.sample().await;
    assert_eq!(sample.link, LinkState::Up);
    assert_eq!(sample.run_state.unwrap().to_string(), "no guest was created");
    let refused = host.order(100, None).await;
    assert_eq!(refused, OutcomeKind::Failed("not sent: no guest was created".to_owned()));
    machine.lock().unwrap().config = Machine::new().config;
    assert_eq!(mib(&host.sample().await), 1024);
}

/// Each status, with the bodies of older and newer versions of the program.
#[tokio::test]
async fn every_status_of_the_api_is_reported_with_its_words() {
    let bodies = [
        (json!(["Error from API", "No such zone"]).to_string(), "Error from API: No such zone"),
        ("Error from API: No such zone".to_owned(), "Error from API: No such zone"),
        (String::new(), ""),
    ];
    for (method, path, success, errors) in CALLS {
        assert!((200..300).contains(&success));
        for status in errors.iter().chain(&ANY_CALL).copied() {
            for (body, words) in &bodies {
                let mut host = Host::new();
                let mut machine = Machine::new().with_virtio_mem(512);
                let config = machine.config.as_mut().unwrap();
                if path == RESIZE_ZONE {
                    let zone = json!({ "id": "z", "size": 1024 * MIB, "hotplug_size": 512 * MIB });
                    config["memory"]["zones"] = json!([zone]);
                    config["memory"]["size"] = json!(0);
                    machine.plugged = 1024 * MIB;
                }
                // `vmm.ping` is called at the beginning, `vm.counters` within five seconds; the
                // others fail later.
                let is_first = [PING.path, COUNTERS.path].contains(&path);
                let fails = Arc::new(Mutex::new(is_first));
                let (is_failing, body) = (Arc::clone(&fails), body.clone());
                let _server = host.serve(move |request| {
                    let is_it = request.is(method, path) && *is_failing.lock().unwrap();
                    if is_it { Reply::Json(status, body.clone()) } else { machine.answer(request) }
                });
                let case = format!("{path} {status} {words}");
                let readings = host.readings().await;
                if path == COUNTERS.path {
                    let sample = &host.readings_at(10).await[0];
                    assert_eq!((&sample.link, sample.disk_reads), (&LinkState::Up, None), "{case}");
                    continue;
                }
                let reported = if path == PING.path {
                    assert!(readings.is_empty(), "{case}");
                    host.guests.take_notices().join("\n")
                } else {
                    assert_eq!(mib(&readings[0]), 1024, "{case}");
                    *fails.lock().unwrap() = true;
                    match (method, status) {
                        (Method::Put, _) => match host.order(1100, Some(100)).await {
                            OutcomeKind::Failed(why) => why,
                            other => panic!("{case}: {other:?}"),
                        },
                        (_, 404) => {
                            let state = host.sample().await.run_state.unwrap();
                            assert_eq!(state.to_string(), "no guest was created");
                            continue;
                        }
                        _ => match host.sample().await.link {
                            LinkState::Down(why) => why.to_string(),
                            LinkState::Up => panic!("{case}"),
                        },
                    }
                };
                assert!(
                    reported.contains(&status.to_string()) && reported.contains(words),
                    "{case}: {reported}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_ping_of_another_program_is_no_guest() {
    for answer in [json!({ "version": "nightly" }), json!({ "pid": 7 }), json!([])] {
        let mut host = Host::new();
        let answer = answer.to_string();
        let _server = host.serve(move |_| Reply::Json(200, answer.clone()));
        assert!(host.readings().await.is_empty());
        let notices = host.guests.take_notices().join("\n");
        assert!(notices.contains("no Cloud Hypervisor answers there"), "{notices}");
    }
}

/// The fuzzer's seeds.
const SEEDS: [&[u8]; 2] = [
    include_bytes!("../../../../fuzz/seeds/cloud_hypervisor_guest/balloon"),
    include_bytes!("../../../../fuzz/seeds/cloud_hypervisor_guest/zones"),
];

proptest! {
    #[test]
    fn any_answers_are_read_or_refused(bytes: Vec<u8>, seed in 0..2usize, at: prop::sample::Index) {
        let at = at.index(SEEDS[seed].len());
        try_rest_guest_near::<CloudHypervisorGuest>(SEEDS[seed], &bytes, at);
    }
}

/// A guest is created and not booted, which needs no KVM. `vm.resize` then changes the size with
/// which the guest would be booted.
#[tokio::test]
async fn the_real_program_answers_as_the_server_does() {
    let Some(program) = std::env::var_os("BALLAST_CLOUD_HYPERVISOR") else {
        println!("SKIPPED: BALLAST_CLOUD_HYPERVISOR names no program");
        return;
    };
    let mut host = Host::new();
    let socket = host.folder.path().join("a.sock");
    let mut command = Command::new(program);
    command.arg("--api-socket").arg(&socket).stdin(Stdio::null());
    let real = RealProgram(command.spawn().expect("the program starts"));
    let begun = Instant::now();
    while host.readings().await.is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it answers on its socket");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let sample = host.sample().await;
    assert_eq!(sample.run_state.unwrap().to_string(), "no guest was created");
    let kernel = host.folder.path().join("kernel");
    std::fs::write(&kernel, "no kernel").unwrap();
    let body = json!({
        "payload": { "kernel": kernel },
        "memory": { "size": 1024 * MIB },
        "balloon": { "size": 0, "free_page_reporting": true },
    });
    let create = Call::send(Method::Put, "/api/v1/vm.create", &body);
    let until = tokio::time::Instant::now() + Duration::from_secs(60);
    let (answers, error) =
        exchange(&socket, vec![create.clone()], true, until).await.into_answers();
    assert!(error.is_none() && answers[0].1.is_success(), "{:?}", answers[0].1.refusal(&create));
    let sample = host.sample().await;
    assert_eq!(sample.boot_memory, Some(Bytes::mib(1024)));
    assert_eq!(sample.capabilities.free_page_reporting, Some(true));
    assert_eq!(host.order(700, None).await, OutcomeKind::Accepted);
    host.sample().await;
    drop(real);
    assert!(host.readings().await.is_empty(), "a guest ends with its process");
}
