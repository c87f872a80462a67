//! Tests of guests with another kernel than the host's own, and of what only some kernels report.
//!
//! Limits: asserts states, counts and wide ratios, never times; needs QEMU, `lab-guest`,
//! `ballast-agent` and the page tracker as built for release, and a Debian mirror that has
//! [`SECOND`] until its kernel is in the cache.

use std::time::{Duration, Instant};

use crate::host_side::*;
use crate::qmp::qmp;
use ballast_agent_proto::host::AgentEvent;
use ballast_agent_proto::wire::{AgeGroup, Ages, RequestOutcome, capability};
use ballast_lab_guest::workload::Pattern;
use ballast_lab_host::{Cache, DiskSpec, Guest, GuestSpec, Kernel, KernelChoice, Speed};
use ballast_model::{Bytes, RequestKind};
use ballast_tracker::{TrackingSession, WatchSettings};
use ballast_tracker_proto::{Granule, GranuleSample, WatchMode};
use serde_json::Value;

/// The suite of the second kernel: 6.12; the host's own is 6.1.
const SECOND: &str = "bookworm-backports";

fn second() -> KernelChoice {
    SECOND.parse().unwrap()
}

/// The value that QEMU returns.
fn returned(guest: &Guest, command: &str) -> Value {
    let answer: Value = serde_json::from_str(&qmp(guest, command)).unwrap();
    answer.get("return").unwrap_or_else(|| panic!("{command}: {answer}")).clone()
}

/// Sets the balloon and waits until the guest holds `target`.
fn balloon(guest: &Guest, target: Bytes) {
    returned(
        guest,
        &format!(
            r#"{{"execute":"balloon","arguments":{{"value":{target}}}}}"#,
            target = target.get()
        ),
    );
    let end = Instant::now() + PATIENCE;
    let actual = || returned(guest, r#"{"execute":"query-balloon"}"#)["actual"].as_u64();
    while actual() != Some(target.get()) {
        assert!(Instant::now() < end, "the balloon stays at {:?}", actual());
    }
}

/// A balloon statistic, once the guest has sent it.
fn balloon_statistic(guest: &Guest, name: &str) -> u64 {
    let property = |command: &str, rest: &str| {
        let path = "/machine/peripheral/balloon0";
        returned(
            guest,
            &format!(r#"{{"execute":"{command}","arguments":{{"path":"{path}",{rest}}}}}"#),
        )
    };
    property("qom-set", r#""property":"guest-stats-polling-interval","value":1"#);
    let end = Instant::now() + PATIENCE;
    loop {
        let all = property("qom-get", r#""property":"guest-stats""#);
        // A statistic that was not sent is the largest number.
        if let Some(value) = all["stats"][name].as_u64().filter(|value| *value != u64::MAX)
            && all["last-update"].as_u64() > Some(0)
        {
            return value;
        }
        assert!(Instant::now() < end, "{name} does not come: {all}");
    }
}

/// Checks that an interval shows at least `least` of memory touched by a guest.
fn assert_tracked(guest: &Guest, least: Bytes) {
    if !ballast_lab_host::is_tracking_permitted() {
        return eprintln!("not tracked: this user may not");
    }
    let pid = u32::try_from(guest.pid()).unwrap();
    let mut tracking = TrackingSession::begin(pid, &guest.tracker().unwrap(), &[], None).unwrap();
    let mode = WatchMode { granule: Granule::new(32).unwrap(), sample: GranuleSample::ALL };
    let end = Instant::now() + PATIENCE;
    loop {
        tracking.begin_interval(Some(WatchSettings { mode, hot_granules: 0 })).unwrap();
        tracking.track_for(Duration::from_secs(1)).unwrap();
        let observed = tracking.end_interval().unwrap().unwrap();
        let touched = Bytes::pages(observed.touches.len() as u64 * mode.granule.pages());
        eprintln!("{touched} touched, {} lost", observed.lost);
        if observed.lost == 0 && touched >= least && touched <= MEMORY {
            return;
        }
        assert!(Instant::now() < end, "{touched} of {least} touched");
    }
}

#[test]
fn a_guest_with_another_kernel_is_balanced_like_any() {
    let folder = folder();
    let swap = Some(DiskSpec { size: Bytes::mib(512), speed: Speed::Ssd });
    let run = start_with(folder.path(), GuestSpec { swap, tracked: true, ..spec() }, second());
    let guest = run.guest("a").unwrap();
    let ready = guest.ready().unwrap();
    assert_eq!(ready.complaints, Vec::<String>::new());
    let first = Kernel::fetch(&Cache::open().unwrap(), &KernelChoice::Default, &|_| {}).unwrap();
    assert_ne!(ready.kernel, first.version);
    eprintln!("{} beside {}", ready.kernel, first.version);

    // The agent sends hello and has all its figures from this kernel.
    let mut host = Host::connect(guest, 1);
    let (agent, _) = host.up();
    assert_eq!(agent.system, format!("linux {}", ready.kernel));
    for has in
        [capability::STATISTICS, capability::WATERMARKS, capability::REQUESTS, capability::PRESSURE]
    {
        assert!(agent.capabilities.iter().any(|it| it == has), "{has}: {agent:?}");
    }
    let (_, before) = host.statistics();
    let lacks = before.fields().filter(|(_, figure)| figure.is_none()).map(|(name, _)| name);
    assert_eq!(lacks.collect::<Vec<_>>(), Vec::<&str>::new());

    // The balloon reports the same, and it takes memory.
    let total = before.memory.total_bytes.unwrap();
    assert_eq!(balloon_statistic(guest, "stat-total-memory"), total);
    for name in ["stat-free-memory", "stat-available-memory", "stat-disk-caches"] {
        assert!((1..total).contains(&balloon_statistic(guest, name)), "{name}");
    }
    let taken = Bytes::mib(128);
    balloon(guest, MEMORY - taken);
    let shrunk = |now: u64| now + taken.get() == total;
    host.wait("the guest has less", |event| total_of(event).filter(|now| shrunk(*now)));

    // When short of memory the agent asks; when refused it asks again, and it gets what it is
    // granted.
    let hog = Pattern::Constant { size: Bytes::mib(240) };
    guest.start_workload("hog", &hog.into(), PATIENCE).unwrap();
    for outcome in [RequestOutcome::Refused, RequestOutcome::Granted] {
        let (request, why) = host.request(|request| request.kind != RequestKind::Less);
        eprintln!("{outcome:?}: {request:?} {why}");
        assert!(!why.is_empty() && request.amount > Bytes::ZERO, "{request:?} {why}");
        let (amount, now) = (request.amount, host.now());
        let given = if outcome == RequestOutcome::Granted { amount } else { Bytes::ZERO };
        host.session.answer(outcome, given, Some("a test".to_owned()), now);
    }
    balloon(guest, MEMORY);
    host.wait("the guest has it all", |event| total_of(event).filter(|now| *now == total));
    let (_, after) = host.statistics();
    let [was, is] = [before.counters, after.counters];
    assert!(is.swap_out_pages > was.swap_out_pages, "{is:?}");
    let reclaimed = |it: ballast_agent_proto::wire::KernelCounters| {
        (it.steal_kswapd_pages.unwrap() + it.steal_direct_pages.unwrap(), it.refault_anon_pages)
    };
    assert!(reclaimed(is).0 > reclaimed(was).0, "{is:?}");
    assert!(balloon_statistic(guest, "stat-swap-out") > 0);
    // The rest of it comes back from swap meanwhile.
    assert_tracked(guest, Bytes::mib(96));
}

/// `MemTotal`, if the event has it.
fn total_of(event: &AgentEvent) -> Option<u64> {
    match event {
        AgentEvent::Statistics { statistics, .. } => statistics.memory.total_bytes,
        _ => None,
    }
}

/// Ages the pages by one generation; pages that are used afterwards return to the youngest.
const AGE: &str = r#"cd /sys/kernel/debug && awk '
    $1 == "memcg" { group = $2 }
    $1 == "node" { node = $2 }
    $1 ~ /^[0-9]+$/ { last[group " " node] = $1 }
    END { for (of in last) print "+ " of " " last[of] " 1 1" }' lru_gen > /tmp/age \
    && while read -r line; do echo "$line" > lru_gen; done < /tmp/age"#;

#[test]
fn generations_of_either_kernel_are_told_and_reclaimed() {
    for kernel in [KernelChoice::Default, second()] {
        let folder = folder();
        let data = Some(DiskSpec { size: Bytes::mib(96), speed: Speed::Ssd });
        let run = start_with(folder.path(), GuestSpec { data, ..spec() }, kernel);
        let guest = run.guest("a").unwrap();
        // The first kernel has generations but leaves them off; neither kernel mounts debugfs.
        shell(guest, "mount -t debugfs none /sys/kernel/debug");
        shell(guest, "echo y > /sys/kernel/mm/lru_gen/enabled");
        shell(
            guest,
            "mkdir -p /etc/ballast && printf '[ages]\\nevery = \"1s\"\\n' > /etc/ballast/agent.toml \
             && kill -9 $(pidof ballast-agent)",
        );
        let mut host = Host::connect(guest, 1);
        let (agent, _) = host.up();
        eprintln!("{}: {:?}", agent.system, agent.capabilities);
        assert!(agent.capabilities.iter().any(|it| it == capability::AGES), "{agent:?}");

        // A file is written and left alone, while a program goes on using its memory.
        let (file, hog) = (Bytes::mib(48), Bytes::mib(64));
        shell(
            guest,
            "mkdir /files && mke2fs -m 0 /dev/vda > /dev/null && mount -t ext4 /dev/vda /files \
             && dd if=/dev/zero of=/files/file bs=1M count=48 2> /dev/null && sync",
        );
        guest.start_workload("hog", &Pattern::Constant { size: hog }.into(), PATIENCE).unwrap();
        let total = host.statistics().1.memory.total_bytes.unwrap();
        let end = Instant::now() + PATIENCE;
        loop {
            shell(guest, AGE);
            let ages = host.wait("a histogram", ages_of);
            eprintln!("{ages:?}");
            let sum = |of: fn(&AgeGroup) -> u64| ages.groups.iter().map(of).sum::<u64>();
            let (programs, cache) = (sum(|it| it.anon_bytes), sum(|it| it.file_bytes));
            assert!(programs + cache < total, "{ages:?}");
            assert!(ages.groups.is_sorted_by(|a, b| a.idle_ms > b.idle_ms), "{ages:?}");
            let idle = |of: fn(&AgeGroup) -> u64, least: Bytes| {
                ages.groups.iter().find(|it| of(it) >= least.get() / 10 * 9).map(|it| it.idle_ms)
            };
            // The age groups that have most of either; no group is older than the guest's memory.
            let (used, unused) = (idle(|it| it.anon_bytes, hog), idle(|it| it.file_bytes, file));
            if used.is_some() && unused > used {
                break;
            }
            assert!(Instant::now() < end, "the file does not get older than the program's memory");
        }

        // The agent can reclaim the old part of the page cache, and nothing else.
        let asked = Bytes::mib(24);
        let now = host.now();
        let order = host.session.shrink(asked, Duration::from_secs(60), now);
        let gave = host.wait("the order is done", |event| match event {
            AgentEvent::Shrunk { number, gave, .. } if *number == order => Some(*gave),
            _ => None,
        });
        assert!(gave >= asked.fraction(1, 2), "{gave}");
    }
}

#[test]
fn a_missing_suite_is_reported_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path()).unwrap();
    let error = Kernel::fetch(&cache, &"no-such-suite".parse().unwrap(), &|_| {}).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("`no-such-suite`") && error.contains("`default`"), "{error}");
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().flatten().collect();
    assert!(left.iter().all(|it| it.file_name() == ".lock"), "{left:?}");
}

fn ages_of(event: &AgentEvent) -> Option<Ages> {
    match event {
        AgentEvent::Ages(ages) => Some(ages.clone()),
        _ => None,
    }
}
