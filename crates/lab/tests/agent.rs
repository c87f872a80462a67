//! The agent inside real guests, in conversation with the host's side of it.
//!
//! Limits: asserts states and counts, never times; needs QEMU, and `lab-guest` and `ballast-agent` built.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ballast_agent_host::{Agent, Event, Known, Session, Settings};
use ballast_agent_wire::{Given, Outcome, Statistics, capability};
use ballast_lab::{DiskSpec, Guest, GuestSpec, Helper, Run, RunOptions, Speed};
use ballast_lab_guest::workload::Pattern;
use ballast_model::{Bytes, MemoryRequest, RequestKind, Timestamp};

/// Far beyond what anything here takes, so that only a hang fails.
const PATIENCE: Duration = Duration::from_secs(180);
const MEMORY: Bytes = Bytes::mib(384);

fn start(folder: &Path, guest: GuestSpec) -> Run {
    let options = RunOptions {
        helper: Helper { program: PathBuf::from(env!("CARGO_BIN_EXE_lab-helper")) },
        runs_folder: Some(folder.join("runs")),
        ..RunOptions::new("t".parse().unwrap(), vec![guest])
    };
    Run::start(&options, &|line| eprintln!("{line}")).unwrap()
}

fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("lab").tempdir_in("/tmp").unwrap()
}

fn spec() -> GuestSpec {
    GuestSpec { agent: true, ..GuestSpec::new("a".parse().unwrap(), MEMORY) }
}

fn shell(guest: &Guest, line: &str) -> String {
    let argv = ["/bin/sh", "-c", line].map(str::to_owned);
    let output = guest.exec(&argv, PATIENCE).unwrap();
    assert!(output.end.is_success(), "{line}: {output:?}");
    output.stdout.trim().to_owned()
}

/// Processor time the agent has used, by all of its threads.
fn processor_ns(guest: &Guest) -> u64 {
    let text = shell(guest, "cat /proc/$(pidof ballast-agent)/task/*/schedstat");
    let first = |line: &str| line.split_whitespace().next()?.parse::<u64>().ok();
    text.lines().filter_map(first).sum()
}

/// The host's side over the socket of the guest's port.
struct Host {
    stream: UnixStream,
    session: Session,
    began: Instant,
}

impl Host {
    fn connect(guest: &Guest, number: u64) -> Host {
        let settings = Settings {
            statistics_period: Duration::from_secs(1),
            emergency_period: Duration::from_secs(5),
            known: Known { memory_max: Some(MEMORY) },
        };
        Host::resume(guest, number, Session::new(settings, Timestamp::ZERO), Instant::now())
    }

    fn resume(guest: &Guest, number: u64, mut session: Session, began: Instant) -> Host {
        let stream = UnixStream::connect(guest.agent_socket().unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        session.connected(number, Timestamp::ZERO + began.elapsed());
        Host { stream, session, began }
    }

    /// The next event that `wanted` makes something of.
    fn wait<T>(&mut self, what: &str, mut wanted: impl FnMut(&Event) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            while let Some(event) = self.session.poll_event() {
                assert!(
                    !matches!(event, Event::Implausible(_) | Event::Unreadable(_)),
                    "{event:?}"
                );
                if let Some(found) = wanted(&event) {
                    return found;
                }
            }
            assert!(Instant::now() < end, "did not come about: {what}; {:?}", self.session.link());
            self.session.handle_timeout(self.now());
            while let Some(bytes) = self.session.poll_transmit() {
                self.stream.write_all(&bytes).unwrap();
            }
            let mut chunk = [0; 4096];
            if let Ok(n @ 1..) = self.stream.read(&mut chunk) {
                self.session.handle_bytes(&chunk[..n], self.now());
            }
        }
    }

    fn up(&mut self) -> (Agent, bool) {
        self.wait("the agent answers", |event| match event {
            Event::Up { agent, restarted } => Some((agent.clone(), *restarted)),
            _ => None,
        })
    }

    fn statistics(&mut self) -> (u64, Statistics) {
        self.wait("statistics", |event| match event {
            Event::Statistics { uptime_ms, statistics } => Some((*uptime_ms, **statistics)),
            _ => None,
        })
    }

    fn request(&mut self, wanted: impl Fn(&MemoryRequest) -> bool) -> (MemoryRequest, String) {
        self.wait("a request", |event| match event {
            Event::Request { request, why } if wanted(request) => {
                Some((*request, why.text.clone()))
            }
            _ => None,
        })
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.began.elapsed()
    }
}

#[test]
fn it_reports_comes_back_and_is_started_again() {
    let folder = folder();
    let run = start(folder.path(), spec());
    let guest = run.guest("a").unwrap();
    let mut host = Host::connect(guest, 1);
    let (agent, restarted) = host.up();
    assert!(!restarted && agent.system.starts_with("linux 6."), "{agent:?}");
    for has in [capability::STATISTICS, capability::WATERMARKS, capability::REQUESTS] {
        assert!(agent.capabilities.iter().any(|it| it == has), "{has}: {agent:?}");
    }
    let (first_ms, said) = host.statistics();
    let memory = said.memory;
    let (total, free) = (memory.total_bytes.unwrap(), memory.free_bytes.unwrap());
    assert!(total > MEMORY.get() / 2 && total < MEMORY.get(), "{total}");
    assert!(free < total && memory.committed_bytes.is_some(), "{memory:?}");
    // What the lab's own program inside the guest reads of the same kernel.
    let report = loop {
        match guest.latest_report().unwrap() {
            Some(report) => break report,
            None => drop(host.statistics()),
        }
    };
    assert_eq!(report.memory.total.map(Bytes::get), Some(total));
    let (second_ms, _) = host.statistics();
    let (third_ms, _) = host.statistics();
    assert!(second_ms > first_ms && third_ms >= first_ms + 900, "{first_ms} {third_ms}");

    let used_ns = processor_ns(guest);
    let samples = (0..10).map(|_| host.statistics()).count();
    let used_us = (processor_ns(guest) - used_ns) / 1_000;
    let resident = shell(guest, "grep VmRSS /proc/$(pidof ballast-agent)/status");
    let kib: u64 = resident.split_whitespace().nth(1).unwrap().parse().unwrap();
    eprintln!("agent: {kib} KiB resident, {used_us} us of processor time for {samples} samples");
    assert!(kib < 4096, "{kib}");

    // The host is started again.
    let Host { stream, mut session, began } = host;
    session.disconnected();
    drop(stream);
    let mut host = Host::resume(guest, 2, session, began);
    assert!(!host.up().1);
    assert!(host.statistics().0 > third_ms);

    // The agent is killed; another one answers, with the guest's uptime going on.
    let before = host.statistics().0;
    shell(guest, "kill -9 $(pidof ballast-agent)");
    let (another, restarted) = host.up();
    assert!(restarted && another.instance != agent.instance);
    assert!(host.statistics().0 > before);
}

#[test]
fn a_guest_whose_memory_runs_out_asks_for_more() {
    let folder = folder();
    let swap = Some(DiskSpec { size: Bytes::mib(512), speed: Speed::Ssd });
    let run = start(folder.path(), GuestSpec { swap, ..spec() });
    let guest = run.guest("a").unwrap();
    let mut host = Host::connect(guest, 1);
    host.up();
    let (_, before) = host.statistics();
    let hog = Pattern::Constant { size: Bytes::mib(420) };
    guest.start_workload("hog", &hog.into(), PATIENCE).unwrap();
    let (request, why) = host.request(|request| request.kind != RequestKind::Less);
    assert!(!why.is_empty() && request.amount <= MEMORY, "{request:?} {why}");
    let now = host.now();
    host.session.answer(Outcome::Refused, Bytes::ZERO, Some("a test".to_owned()), now);
    // Reclaim shows in the counters, from boot on.
    let swapped = |said: &Statistics| said.counters.swap_out_pages.unwrap();
    let swapping = host.wait("swapping", |event| match event {
        Event::Statistics { statistics, .. } if swapped(statistics) > swapped(&before) => {
            Some(**statistics)
        }
        _ => None,
    });
    assert!(swapping.memory.free_bytes < before.memory.free_bytes);
}

#[test]
fn a_redis_gives_memory_back_when_told_to() {
    let folder = folder();
    let with = ["redis-server".to_owned()].into();
    let run = start(folder.path(), GuestSpec { with, ..spec() });
    let guest = run.guest("a").unwrap();
    shell(
        guest,
        "mkdir -p /etc/ballast && printf '[shrinkers.redis]\\naddress = \"127.0.0.1:6379\"\\n' \
         > /etc/ballast/agent.toml && kill -9 $(pidof ballast-agent)",
    );
    shell(
        guest,
        "redis-server --save '' --maxmemory-policy allkeys-lru --daemonize yes > /dev/null \
         && until redis-cli ping; do sleep 0.1; done > /dev/null",
    );
    // 64 MiB in values of 1 MiB.
    shell(
        guest,
        "head -c 1048576 /dev/urandom > /tmp/v; for i in $(seq 64); do \
         redis-cli -x set k$i < /tmp/v; done > /dev/null; rm /tmp/v",
    );
    let mut host = Host::connect(guest, 1);
    let agent = host.wait("the agent with its redis", |event| match event {
        Event::Up { agent, .. } => Some(agent.clone()),
        _ => None,
    });
    assert!(agent.shrinkers.iter().any(|it| it == "redis"), "{agent:?}");
    let free_before = host.statistics().1.memory.free_bytes.unwrap();
    let asked = Bytes::mib(24);
    let now = host.now();
    let order = host.session.shrink(asked, Duration::from_secs(60), now);
    let mut offered = None;
    let (gave, given): (Bytes, Vec<Given>) = host.wait("the order is done", |event| match event {
        Event::Shrinking { number, offers } if *number == order => {
            offered = offers.iter().find(|it| it.shrinker == "redis").map(|it| it.can_give_bytes);
            None
        }
        Event::Shrunk { number, gave, given } if *number == order => Some((*gave, given.clone())),
        _ => None,
    });
    assert!(offered.is_some_and(|it| it >= asked.get()), "{offered:?}");
    assert!(gave >= Bytes::mib(12), "{gave:#}: {given:?}");
    let free_after = host.statistics().1.memory.free_bytes.unwrap();
    assert!(free_after > free_before + Bytes::mib(8).get(), "{free_before} {free_after}");
    // It runs, holds less than before, and may grow again when released.
    let kept: u32 = shell(guest, "redis-cli dbsize").parse().unwrap();
    assert!((1..64).contains(&kept), "{kept}");
    let limit = || shell(guest, "redis-cli config get maxmemory | tail -n 1");
    assert_ne!(limit(), "0");
    let now = host.now();
    host.session.release(now);
    let end = Instant::now() + PATIENCE;
    while limit() != "0" {
        assert!(Instant::now() < end, "the limit stays at {}", limit());
        host.statistics();
    }
}
