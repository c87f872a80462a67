//! How long planning takes, and how that grows: 30 guests a host, in three sizes of fleet.
//!
//! Three kinds of fleet: *calm*, where one host in fifty is short of floors; *busy*, where one in
//! five is, and as many would save misses; *full*, where half are, and there is room for few.
//! Times are of the processor, the least of some runs on one core: others on the machine make them
//! longer by what they take from its caches alone. The slope is that of the logarithms from the
//! smallest fleet to the largest: 1 is linear, n log n of guests comes to 1.09. Beside it stands
//! one pass over all records, which is linear in steps; its slope above 1 is the caches'.

use std::time::Duration;

use ballast_fleet::{
    CompactCurve, Compatibility, FleetSettings, FleetSnapshot, GuestRecord, HostRecord,
    HypervisorVersion, Label, check, plan,
};
use ballast_model::{Bytes, Timestamp};

const HOSTS: [usize; 3] = [1000, 3000, 10_000];
const GUESTS: usize = 30;
const RUNS: usize = 5;

/// Hosts in a hundred that are short of floors, and that would save misses; room elsewhere, in per
/// cent of the budget.
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
                dirty_per_s: Bytes::mib(rng.u64(0..200)),
                gives: true,
                stays: None,
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
            carries_moves: true,
            is_draining: false,
            reservations: Vec::new(),
            guests,
        });
    }
    let (snapshot, refused) = FleetSnapshot::admit(records);
    assert!(refused.is_empty(), "{refused:?}");
    snapshot
}

/// Reads every guest's record once, as sums over hosts do.
fn one_pass(snapshot: &FleetSnapshot) -> u64 {
    let mut sum = 0u64;
    for guest in snapshot.hosts().iter().flat_map(|host| &host.guests) {
        let last = guest.curve.as_ref().and_then(|curve| curve.points().last());
        let size = guest.floor.max(guest.demand) + last.map_or(Bytes::ZERO, |point| point.0);
        sum = sum.wrapping_add(size.get());
    }
    sum
}

/// Time that this thread has had of a processor.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

fn least(mut run: impl FnMut()) -> Duration {
    let times = (0..RUNS).map(|_| {
        let begun = processor_time();
        run();
        processor_time() - begun
    });
    times.min().unwrap_or_default()
}

/// The most memory that this process ever occupied.
fn peak() -> Option<Bytes> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:"))?;
    Some(Bytes::kib(line.trim().strip_suffix(" kB")?.parse().ok()?))
}

fn main() {
    let settings = FleetSettings { migrations_max: usize::MAX, ..FleetSettings::default() };
    println!("{GUESTS} guests a host; processor time, the least of {RUNS} runs");
    for kind in &KINDS {
        let (plan_name, check_name, pass_name) = ("plan", "check", "one pass");
        println!(
            "\n{:5} {plan_name:>11} {check_name:>11} {pass_name:>11} {:>11}",
            kind.name, "migrations"
        );
        let mut times: Vec<[Duration; 3]> = Vec::new();
        for hosts in HOSTS {
            let snapshot = fleet(hosts, kind);
            let planned = plan(&snapshot, &settings, Timestamp::ZERO);
            let took = least(|| {
                plan(&snapshot, &settings, Timestamp::ZERO);
            });
            let checked = least(|| {
                let found = check(&snapshot, &settings, &planned, Timestamp::ZERO);
                assert_eq!(found, Ok(()));
            });
            let passed = least(|| {
                std::hint::black_box(one_pass(&snapshot));
            });
            let all = [took, checked, passed];
            let [plan_ms, check_ms, pass_ms] = all.map(|it| it.as_secs_f64() * 1e3);
            let migrations = planned.migrations.len();
            println!(
                "{hosts:5} {plan_ms:8.1} ms {check_ms:8.1} ms {pass_ms:8.1} ms {migrations:11}"
            );
            times.push(all);
        }
        let slope = |which: usize| {
            let growth =
                times[HOSTS.len() - 1][which].as_secs_f64() / times[0][which].as_secs_f64();
            growth.ln() / (HOSTS[HOSTS.len() - 1] as f64 / HOSTS[0] as f64).ln()
        };
        println!("slope {:10.2} {:11.2} {:11.2}", slope(0), slope(1), slope(2));
    }
    if let Some(peak) = peak() {
        println!("\nmost memory of the process: {peak}, with one fleet at a time in it");
    }
}
