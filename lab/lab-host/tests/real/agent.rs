//! Tests of the agent inside real guests, in conversation with the host's side.
//!
//! Limits: asserts states and counts, never times; needs QEMU, and built `lab-guest` and
//! `ballast-agent`.

use std::time::{Duration, Instant};

use crate::host_side::*;
use ballast_agent_proto::host::AgentEvent;
use ballast_agent_proto::wire::{RequestOutcome, ShrinkerResult, Statistics, capability};
use ballast_lab_guest::workload::{Pattern, Program};
use ballast_lab_host::{DiskSpec, Guest, GuestSpec, Speed};
use ballast_model::{Bytes, RequestKind};

/// Processor time the agent has used, by all of its threads.
fn processor_ns(guest: &Guest) -> u64 {
    let text = shell(guest, "cat /proc/$(pidof ballast-agent)/task/*/schedstat");
    let first = |line: &str| line.split_whitespace().next()?.parse::<u64>().ok();
    text.lines().filter_map(first).sum()
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
    // What the lab's own program in the guest reads from the same kernel.
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

    // The agent is killed; another one answers, and the guest's uptime goes on.
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
    host.session.answer(RequestOutcome::Refused, Bytes::ZERO, Some("a test".to_owned()), now);
    // Reclaim shows in the counters, which count from boot.
    let swapped = |said: &Statistics| said.counters.swap_out_pages.unwrap();
    let swapping = host.wait("swapping", |event| match event {
        AgentEvent::Statistics { statistics, .. } if swapped(statistics) > swapped(&before) => {
            Some(**statistics)
        }
        _ => None,
    });
    assert!(swapping.memory.free_bytes < before.memory.free_bytes);
}

/// Orders 24 MiB; `shrinker` must offer all of it and give at least half.
fn order_shrinking(host: &mut Host, shrinker: &str) {
    let asked = Bytes::mib(24);
    let now = host.now();
    let order = host.session.shrink(asked, Duration::from_secs(60), now);
    let mut offered = None;
    let given: Vec<ShrinkerResult> = host.wait("the order is done", |event| match event {
        AgentEvent::Shrinking { number, offers } if *number == order => {
            offered = offers.iter().find(|it| it.shrinker == shrinker).map(|it| it.can_give_bytes);
            None
        }
        AgentEvent::Shrunk { number, given, .. } if *number == order => Some(given.clone()),
        _ => None,
    });
    assert!(offered.is_some_and(|it| it >= asked.get()), "{offered:?}");
    let gave = given.iter().find(|it| it.shrinker == shrinker).map(|it| it.gave_bytes);
    assert!(gave.is_some_and(|it| it >= asked.get() / 2), "{given:?}");
}

/// A memcached whose keys are read all the time.
#[test]
fn a_memcached_gives_memory_back_when_told_to() {
    let folder = folder();
    let program = Program::Memcached;
    let with = [program.packed().to_owned()].into();
    let run = start(folder.path(), GuestSpec { with, ..spec() });
    let guest = run.guest("a").unwrap();
    let filled = Pattern::Program { program, size: Bytes::mib(96) };
    guest.start_workload("w", &filled.into(), PATIENCE).unwrap();
    let keys = || {
        let report = guest.latest_report().unwrap();
        report.and_then(|report| report.workloads.first().map(|it| it.touches)).unwrap_or(0)
    };
    let mut host = Host::connect(guest, 1);
    host.up();
    while keys() == 0 {
        host.statistics();
    }
    shell(
        guest,
        "mkdir -p /etc/ballast && printf '[shrinkers.memcached]\\naddress = \"%s\"\\n' /tmp/memcached-* \
         > /etc/ballast/agent.toml && kill -9 $(pidof ballast-agent)",
    );
    let (agent, _) = host.up();
    assert!(agent.shrinkers.iter().any(|it| it == "memcached"), "{agent:?}");
    let resident_mib = || -> u64 {
        let text = shell(guest, "grep VmRSS /proc/$(pidof memcached)/status");
        text.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
    };
    let before = resident_mib();
    order_shrinking(&mut host, "memcached");
    let after = resident_mib();
    assert!(before > 96 && after + 8 < before, "{before} {after}");
    // It answers, and may grow again when released: its old limit is no longer noted.
    let answered = keys();
    let noted = || shell(guest, "ls /run/ballast-agent");
    let is_noted = || noted().lines().any(|name| name == "memcached");
    assert!(is_noted(), "{}", noted());
    let now = host.now();
    host.session.release(now);
    let end = Instant::now() + PATIENCE;
    while is_noted() || keys() <= answered {
        assert!(Instant::now() < end, "{}; {} keys of {answered}", noted(), keys());
        host.statistics();
    }
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
    // 64 MiB, in values of 1 MiB.
    shell(
        guest,
        "head -c 1048576 /dev/urandom > /tmp/v; for i in $(seq 64); do \
         redis-cli -x set k$i < /tmp/v; done > /dev/null; rm /tmp/v",
    );
    let mut host = Host::connect(guest, 1);
    let agent = host.wait("the agent with its redis", |event| match event {
        AgentEvent::Up { agent, .. } => Some(agent.clone()),
        _ => None,
    });
    assert!(agent.shrinkers.iter().any(|it| it == "redis"), "{agent:?}");
    let free_before = host.statistics().1.memory.free_bytes.unwrap();
    order_shrinking(&mut host, "redis");
    let free_after = host.statistics().1.memory.free_bytes.unwrap();
    assert!(free_after > free_before + Bytes::mib(8).get(), "{free_before} {free_after}");
    // It still runs, holds less than before, and may grow again when released.
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
