//! How soon an order is carried out through libvirt, and how soon by QMP, on the same guest.
//!
//! Goal: until the balloon reaches its target, libvirt takes at most 1.2 times as long as QMP. The
//! guest is started by a libvirt of the run's own. It has three monitors: libvirt's, one for the
//! QMP backend, and the lab's, over which this program asks for the balloon's size every [`LOOK`].
//! Before each order the backend takes a sample, as in a tick. Two times are measured from the
//! order: to the backend's outcome (accepted), and to the first answer with the target (there).
//! Backends take turns, each with an order down and one up, and alternate in beginning. Cost: two
//! minutes.
//!
//! Limits: one guest, whose memory is free. Without KVM it is emulated; moving memory then takes
//! long compared with the call, so `accepted` says more about libvirt.
//!
//! `cargo bench -p ballast --bench order_latency`, after `make build`; with `--test` three rounds.

mod harness;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use ballast_backend::{Backend, SampleRequest};
use ballast_lab_host::{LabError, Manager, Run, RunOptions};
use ballast_libvirt::{LibvirtConfig, LibvirtHost};
use ballast_model::{Action, Bytes, Generation, LinkState, OutcomeKind, Timestamp};
use ballast_qmp::client::QmpClient;
use ballast_qmp::command::QmpCommand;
use ballast_qmp::fleet::{Fleet, FleetConfig};
use harness::lab::{guest_with_monitor, measure_guests};

const GUEST: &str = "web";
const MEMORY: Bytes = Bytes::mib(512);
/// Sizes that one order takes and the next one gives back.
const STEPS: [Bytes; 3] = [Bytes::mib(1), Bytes::mib(16), Bytes::mib(128)];
const RATIO_MAX: f64 = 1.2;
/// Time between two questions for the balloon's size.
const LOOK: Duration = Duration::from_micros(200);
/// Limit for every wait, longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    measure_guests(start, measure)
}

/// The guest, with a monitor for the QMP backend in `testbed`.
fn start(testbed: &Path) -> Result<Run, LabError> {
    let options = RunOptions {
        manager: Manager::Libvirt,
        limit_cpu: false,
        runs_folder: Some(testbed.join("runs")),
        ..RunOptions::new(
            "order".parse().expect("a name"),
            vec![guest_with_monitor(GUEST, MEMORY, testbed)],
        )
    };
    Run::start(&options, &|line| eprintln!("{line}"))
}

async fn measure(run: &Run, testbed: &Path, is_test: bool) {
    let rounds = if is_test { 3 } else { 50 };
    let libvirt = LibvirtHost::new(LibvirtConfig {
        socket: run.folder().libvirt_socket(),
        command_timeout: FleetConfig::COMMAND_TIMEOUT_DEFAULT,
        guests_max: 1,
    });
    let fleet = Fleet::new(FleetConfig::new(vec![testbed.to_owned()]));
    let lab = run.guest(GUEST).expect("the guest").lab_qmp_socket().to_owned();
    let mut bench = Bench {
        backends: [Box::new(libvirt), Box::new(fleet)],
        monitor: QmpClient::connect(&lab, PATIENCE).await.expect("the lab's monitor"),
        began: Instant::now(),
        generation: 0,
    };
    println!("a guest of {MEMORY:#} under {:?}; {rounds} rounds of each size", run.accel());
    println!("medians in ms, libvirt / QMP = ratio");
    for step in STEPS {
        let mut down: [Times; 2] = Default::default();
        let mut up: [Times; 2] = Default::default();
        for round in 0..rounds {
            let first = usize::from(round % 2 == 1);
            for at in [first, 1 - first] {
                bench.order(at, MEMORY.saturating_sub(step), &mut down[at]).await;
                bench.order(at, MEMORY, &mut up[at]).await;
            }
        }
        println!("{step:#} taken:      {}", compared(&mut down));
        println!("{step:#} given back: {}", compared(&mut up));
    }
}

/// The times of both backends for the same orders, libvirt first.
fn compared(times: &mut [Times; 2]) -> String {
    let [libvirt, qmp] = times;
    let accepted = [median(&mut libvirt.accepted), median(&mut qmp.accepted)];
    let there = [median(&mut libvirt.there), median(&mut qmp.there)];
    let ratio = there[0] / there[1];
    let is_met = if ratio <= RATIO_MAX { "met" } else { "NOT MET" };
    format!(
        "accepted {:.2} / {:.2} = {:.2}; there {:.2} / {:.2} = {ratio:.2} (goal: {RATIO_MAX}, {is_met})",
        accepted[0],
        accepted[1],
        accepted[0] / accepted[1],
        there[0],
        there[1],
    )
}

/// Times of orders.
#[derive(Default)]
struct Times {
    accepted: Vec<Duration>,
    there: Vec<Duration>,
}

/// The median in ms; of an even number the greater of the two in the middle.
fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e3
}

struct Bench {
    backends: [Box<dyn Backend>; 2],
    monitor: QmpClient,
    began: Instant,
    generation: u64,
}

impl Bench {
    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.began.elapsed()
    }

    /// Orders `target` by a backend, and waits until the balloon has reached it.
    async fn order(&mut self, at: usize, target: Bytes, times: &mut Times) {
        self.sample(at).await;
        self.generation += 1;
        let action = Action {
            guest: GUEST.parse().expect("a name"),
            target,
            plug: None,
            generation: Generation(self.generation),
            deadline: self.now() + PATIENCE,
        };
        let (now, ordered) = (self.now(), Instant::now());
        let outcomes = self.backends[at].act_all(now, std::slice::from_ref(&action)).await;
        times.accepted.push(ordered.elapsed());
        assert_eq!(outcomes[0].kind, OutcomeKind::Accepted);
        while self.actual().await != target {
            assert!(ordered.elapsed() < PATIENCE, "the balloon does not get to {target:#}");
            // Nothing else has to run meanwhile, and tokio's timer is five times as coarse.
            std::thread::sleep(LOOK);
        }
        times.there.push(ordered.elapsed());
    }

    /// Samples until the backend has found the guest.
    async fn sample(&mut self, at: usize) {
        let began = Instant::now();
        loop {
            let (now, wall) = (self.now(), SystemTime::now());
            let deadline = FleetConfig::COMMAND_TIMEOUT_DEFAULT;
            let request = SampleRequest { now, wall, deadline, only: None };
            let readings = self.backends[at].sample(request).await;
            let is_up = |sample: &ballast_model::GuestSample| {
                sample.link == LinkState::Up && sample.allocation.is_some()
            };
            if readings.iter().any(|reading| is_up(&reading.sample)) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{} has no guest", self.backends[at].name());
        }
    }

    /// What the balloon leaves the guest, by QEMU's answer on the lab's monitor.
    async fn actual(&mut self) -> Bytes {
        let reply = self.monitor.call(&QmpCommand::QueryBalloon).await.expect("an answer");
        let reply: serde_json::Value = serde_json::from_str(&reply).expect("an object");
        Bytes::new(reply["actual"].as_u64().expect("a size"))
    }
}
