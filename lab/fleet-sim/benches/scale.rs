//! How long planning takes, and how that grows: 30 guests a host, in four sizes of fleet.
//!
//! Three kinds of fleet: *calm*, where one host in fifty is short of floors; *busy*, where one host
//! in five is short and as many could save misses; *full*, where half are short and there is little
//! room elsewhere. Times are processor times, the least of several runs on one core. Before each
//! run the caches are filled with other data: a leader plans once in ten seconds, and records that
//! are still in the caches from the previous run would make small fleets look cheaper than they
//! are. The slope is computed from the logarithms of the smallest and the largest fleet: 1 is
//! linear; n log n in the number of guests gives 1.08. Two more columns show what the caches add:
//! one pass over all records, which is linear in steps, and a sort of all records, which is n log
//! n.

use std::time::Duration;

use ballast_fleet::{
    CompactCurve, Compatibility, FleetSettings, FleetSnapshot, GuestRecord, HostRecord,
    HypervisorVersion, Label, check, plan,
};
use ballast_model::{Bytes, Timestamp};

const HOSTS: [usize; 4] = [1000, 3000, 10_000, 30_000];
const GUESTS: usize = 30;
const RUNS: usize = 5;
/// More than the last-level cache of any likely processor.
const CACHES: Bytes = Bytes::mib(256);

/// How many hosts in a hundred are short of floors, how many could save misses, and the room
/// elsewhere in per cent of the budget.
struct Kind {
    name: &'static str,
    short: u64,
    squeezed: u64,
    free: u64,
}

const KINDS: [Kind; 3] = [
    Kind { name: "calm", short: 2, squeezed: 2, free: 30 },
    Kind { name: "busy", short: 20, squeezed: 20, free: 30 },
    Kind { name: "full", short: 50, squeezed: 20, free: 2 },
];

fn label(text: &str) -> Label {
    text.parse().expect("a label")
}

fn fleet(hosts: usize, kind: &Kind) -> FleetSnapshot {
    let mut rng = fastrand::Rng::with_seed(hosts as u64);
    let budget = Bytes::gib(128);
    let mut records = Vec::with_capacity(hosts);
    for at in 0..hosts {
        let dice = rng.u64(0..100);
        let is_short = dice < kind.short;
        let is_squeezed = !is_short && dice < kind.short + kind.squeezed;
        let fill = match is_short {
            true => 101 + rng.u64(0..10),
            false => 98 - rng.u64(0..=2 * kind.free).min(90),
        };
        let mut guests = Vec::with_capacity(GUESTS);
        for index in 0..GUESTS {
            let mean = budget.get() * fill / 100 / GUESTS as u64;
            let floor = Bytes::new(mean / 2 + rng.u64(0..mean)).page_floor();
            let more = floor.fraction(if is_squeezed { rng.u64(0..60) } else { 0 }, 100);
            let points = (0..6).map(|step| {
                let size = floor + more.fraction(step, 5) + Bytes::pages(step);
                (size, 2000 * (5 - step))
            });
            guests.push(GuestRecord {
                id: format!("g{at}-{index}").parse().expect("a name"),
                floor,
                allocation: floor,
                demand: floor + more,
                curve: Some(CompactCurve::new(points.collect()).expect("a curve")),
                misses_per_s_max: None,
                resident: floor.fraction(rng.u64(30..=100), 100),
                copied_resident: Bytes::ZERO,
                dirty_per_s: Bytes::mib(rng.u64(0..200)),
                can_shrink: true,
                pinned_by: None,
                moving_to: None,
                group: (rng.u8(0..10) == 0).then(|| label(&format!("group{}", rng.u16(..)))),
                storage: vec![label("san")],
                networks: vec![label("lan")],
                moves_in_24h: 0,
                last_move: None,
            });
        }
        records.push(HostRecord {
            id: format!("host{at}").parse().expect("a name"),
            seen_at: Timestamp::ZERO,
            budget,
            reserve: Bytes::gib(4),
            committed: guests.iter().map(|it| it.allocation).sum(),
            free: Bytes::gib(140),
            bandwidth_per_s: Bytes::mib(1200),
            compatibility: Compatibility {
                hypervisor: label("qemu"),
                version: HypervisorVersion([7, 2, rng.u32(0..3)]),
                cpu_model: label(["x86-64-v3", "x86-64-v4"][rng.usize(0..2)]),
                storage: vec![label("san")],
                networks: vec![label("lan")],
            },
            executes_moves: true,
            is_draining: false,
            reservations: Vec::new(),
            guests,
        });
    }
    let (snapshot, refused) = FleetSnapshot::admit(records);
    assert!(refused.is_empty(), "{refused:?}");
    snapshot
}

/// Reads every guest's record once, as computing the sums of hosts does.
fn one_pass(snapshot: &FleetSnapshot) -> u64 {
    let mut sum = 0u64;
    for guest in snapshot.hosts().iter().flat_map(|host| &host.guests) {
        let last = guest.curve.as_ref().and_then(|curve| curve.points().last());
        let size = guest.floor.max(guest.demand) + last.map_or(Bytes::ZERO, |point| point.0);
        sum = sum.wrapping_add(size.get());
    }
    sum
}

/// Sorts all guests' records by what they need, without moving the records.
fn sorted(snapshot: &FleetSnapshot) -> Vec<&GuestRecord> {
    let mut all: Vec<&GuestRecord> =
        snapshot.hosts().iter().flat_map(|host| &host.guests).collect();
    all.sort_by_key(|guest| guest.demand);
    all
}

/// Processor time of this thread so far.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// The least time of several runs; before each run the caches are filled with `other`.
fn least(other: &mut [u64], mut run: impl FnMut()) -> Duration {
    let times = (0..RUNS).map(|_| {
        other.iter_mut().for_each(|word| *word = word.wrapping_add(1));
        std::hint::black_box(&mut *other);
        let begun = processor_time();
        run();
        processor_time() - begun
    });
    times.min().unwrap_or_default()
}

/// The greatest memory that this process ever occupied.
fn peak() -> Option<Bytes> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:"))?;
    Some(Bytes::kib(line.trim().strip_suffix(" kB")?.parse().ok()?))
}

fn main() {
    let settings = FleetSettings { migrations_max: usize::MAX, ..FleetSettings::default() };
    let mut other = vec![0u64; CACHES.get() as usize / size_of::<u64>()];
    println!("{GUESTS} guests a host; processor time with cold caches, the least of {RUNS} runs");
    for kind in &KINDS {
        println!(
            "\n{:5} {:>11} {:>11} {:>11} {:>11} {:>11}",
            kind.name, "plan", "check", "one pass", "one sort", "migrations"
        );
        let mut times: Vec<[f64; 4]> = Vec::new();
        for hosts in HOSTS {
            let snapshot = fleet(hosts, kind);
            let planned = plan(&snapshot, &settings, Timestamp::ZERO);
            let took = [
                least(&mut other, || {
                    std::hint::black_box(plan(&snapshot, &settings, Timestamp::ZERO));
                }),
                least(&mut other, || {
                    let found = check(&snapshot, &settings, &planned, Timestamp::ZERO);
                    assert_eq!(found, Ok(()));
                }),
                least(&mut other, || {
                    std::hint::black_box(one_pass(&snapshot));
                }),
                least(&mut other, || {
                    std::hint::black_box(sorted(&snapshot));
                }),
            ];
            let took = took.map(|it| it.as_secs_f64());
            let [plan_ms, check_ms, pass_ms, sort_ms] = took.map(|it| it * 1e3);
            let migrations = planned.migrations.len();
            println!(
                "{hosts:5} {plan_ms:8.1} ms {check_ms:8.1} ms {pass_ms:8.1} ms {sort_ms:8.1} ms \
                 {migrations:11}"
            );
            times.push(took);
        }
        let (first, last) = (times[0], times[HOSTS.len() - 1]);
        let larger = HOSTS[HOSTS.len() - 1] as f64 / HOSTS[0] as f64;
        let slope = |which: usize| (last[which] / first[which]).ln() / larger.ln();
        println!("slope {:10.2} {:11.2} {:11.2} {:11.2}", slope(0), slope(1), slope(2), slope(3));
    }
    if let Some(peak) = peak() {
        println!(
            "\nmost memory of the process: {peak}, with one fleet at a time and {CACHES} to fill caches"
        );
    }
}
