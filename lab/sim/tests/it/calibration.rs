//! The model compared to calculations by hand, and blocks compared to pages.

use std::time::Duration;

use ballast_control::Settings;
use ballast_model::{Bytes, PolicyName};
use ballast_sim::{
    Disk, GuestReport, GuestSpec, HostReclaim, HostSpec, Pace, Pattern, Phase, Scenario,
    Simulation, Swap, WorkloadSpec, max_guests, named,
};

const fn s(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// One guest that holds `allocation` throughout.
fn alone(workload: impl Into<WorkloadSpec>, allocation: u64, block: Bytes) -> Scenario {
    let guest = GuestSpec::new("g".parse().unwrap(), Bytes::mib(allocation));
    let mut control = Settings::new(PolicyName::Static);
    control.guard.budget = Some(Bytes::mib(allocation));
    Scenario {
        name: "alone".to_owned(),
        duration: s(60),
        seed: 5,
        block,
        host: HostSpec::new(Bytes::gib(16)),
        control,
        guests: vec![guest.with(s(0), workload)],
    }
}

fn run(scenario: &Scenario) -> GuestReport {
    let mut simulation = Simulation::new(scenario, named(scenario, PolicyName::Static)).unwrap();
    while simulation.step() {}
    let mut report = simulation.report();
    assert_eq!((report.violations, report.plans_refused), (0, 0));
    report.guests.remove(0)
}

/// 60 s of touches of 1 µs, minus 1 µs more for the first touch of each of 51,200 pages.
#[test]
fn enough_memory_means_no_waiting() {
    let report = run(&alone(Pattern::Constant { size: Bytes::mib(200) }, 512, Bytes::mib(1)));
    assert_eq!(report.work, 60_000_000 - 51_200);
    assert_eq!((report.major_faults, report.swap_out), (0, Bytes::ZERO));
}

/// A scattered loop over twice the memory: a fault costs 100 µs, its page 8.2 µs of the disk's time
/// each way, and writing 3.1 µs as a 32nd of a request. Up to half of the touches hit, on active
/// blocks; the others are limited by the disk.
#[test]
fn starved_guest_is_limited_by_its_disk() {
    let report = run(&alone(Pattern::Constant { size: Bytes::mib(800) }, 512, Bytes::mib(1)));
    let per_fault_us = 60e6 / report.major_faults as f64;
    assert!((105.0..135.0).contains(&per_fault_us), "{per_fault_us} us a fault");
    assert!(report.work < 2 * report.major_faults + 204_800, "{}", report.work);
}

/// A disk with ten times the latency serves about a tenth of the faults.
#[test]
fn number_of_faults_follows_the_disk() {
    let faults = |latency| {
        let mut scenario = alone(Pattern::Constant { size: Bytes::mib(800) }, 512, Bytes::mib(1));
        let disk = Disk { latency: Duration::from_micros(latency), ..Disk::NVME };
        scenario.guests[0].swap = Some(Swap::new(Bytes::gib(1), disk));
        run(&scenario).major_faults as f64
    };
    let ratio = faults(100) / faults(1000);
    assert!((8.0..11.0).contains(&ratio), "{ratio}");
}

/// The 256 pages of a block are read one after the other in 2.1 s, so every second counts some.
#[test]
fn long_visits_are_counted_while_they_last() {
    let mut scenario = alone(Pattern::Constant { size: Bytes::mib(800) }, 512, Bytes::mib(1));
    scenario.guests[0].swap = Some(Swap::new(Bytes::gib(1), Disk::HDD));
    let series = run(&scenario).series;
    let faults: Vec<u64> = series.iter().skip(40).map(|point| point.major_faults).collect();
    assert_eq!(faults.len(), 20);
    assert!(faults.iter().all(|faults| (40..=121).contains(faults)), "{faults:?}");
}

/// In random order, the share of misses is the share of memory that is not held.
#[test]
fn random_misses_are_the_share_not_held() {
    let mut workload = WorkloadSpec::from(Pattern::FileRandom { size: Bytes::mib(400) });
    workload.touches_per_s = Some(4_000);
    let held = 300.0;
    // The kernel's 83 MiB, and 54 free: half-way between its watermarks.
    let report = run(&alone(workload, 300 + 83 + 54, Bytes::mib(1)));
    let ratio = report.major_faults as f64 / report.work as f64;
    let expected = 1.0 - held / 400.0;
    // The first touches of resident pages are misses too.
    let first = held * 256.0 / report.work as f64 * (1.0 - expected);
    assert!((ratio - expected - first).abs() < 0.1, "{ratio} for {expected} and {first}");
}

#[test]
fn less_memory_means_more_faults() {
    let patterns = [
        Pattern::Constant { size: Bytes::mib(400) },
        Pattern::Sequential { size: Bytes::mib(400), passes: None },
        Pattern::Zipf { size: Bytes::mib(400), exponent: 0.9, file: false },
        Pattern::FileRandom { size: Bytes::mib(400) },
    ];
    for pattern in patterns {
        let mut workload = WorkloadSpec::from(pattern);
        workload.touches_per_s = Some(20_000);
        let at = |mib| run(&alone(workload.clone(), mib, Bytes::mib(1)));
        let faults = [600, 500, 400, 300].map(|mib| at(mib).major_faults);
        let rises = faults.windows(2).all(|pair| pair[0] <= pair[1] + pair[1] / 50);
        assert!(rises && faults[0] < faults[3], "{:?}: {faults:?}", workload.pattern);
        assert!(at(300).work <= at(600).work);
    }
}

/// Blocks of 1 MiB approximate pages: work within 15 %, faults within 20 %, with memory for all,
/// most and half of the data.
#[test]
fn blocks_behave_like_pages() {
    let size = Bytes::mib(120);
    let patterns = [
        Pattern::Constant { size },
        Pattern::Sequential { size, passes: None },
        Pattern::RandomDrawn { low: Bytes::mib(60), high: size, period: s(10) },
        Pattern::Zipf { size, exponent: 0.8, file: false },
        Pattern::FileRandom { size },
    ];
    for pattern in patterns {
        for allocation in [400, 235, 180] {
            let mut workload = WorkloadSpec::from(pattern.clone());
            workload.touches_per_s = Some(20_000);
            let [blocks, pages] = [Bytes::mib(1), Bytes::pages(1)]
                .map(|block| run(&alone(workload.clone(), allocation, block)));
            let near = |one: u64, other: u64, percent: u64| {
                one.abs_diff(other) * 100 <= one.max(other) * percent + 100 * 2_000
            };
            let what = format!("{pattern:?} in {allocation} MiB");
            assert!(near(blocks.work, pages.work, 15), "{what}: {} {}", blocks.work, pages.work);
            let (one, other) = (blocks.major_faults, pages.major_faults);
            assert!(near(one, other, 20), "{what}: {one} {other}");
        }
    }
}

/// Ten seconds of work on 100 MiB, then ten on 800 MiB, with `memory` MiB of memory.
fn two_phases(pace: Pace, memory: u64) -> GuestReport {
    let phase = |size| {
        let pattern = Pattern::Constant { size: Bytes::mib(size) };
        Phase { duration: s(10), pattern }
    };
    let phases = vec![phase(100), phase(800)];
    let pattern = Pattern::Phases { phases, repeat: false, pace };
    let mut scenario = alone(pattern, memory, Bytes::mib(1));
    scenario.duration = s(3_600);
    run(&scenario)
}

#[test]
fn a_program_paced_by_work_ends_once_it_is_done() {
    let (ample, starved) = (two_phases(Pace::Work, 2048), two_phases(Pace::Work, 512));
    // First touches take longer, so the work ends a tick later: a twentieth more time.
    assert_eq!((ample.working, ample.work / 1_000_000), (s(21), 20));
    let done = starved.work as f64 / ample.work as f64;
    assert!((0.95..1.05).contains(&done), "{done} of the work");
    // Ten million touches, half of them faults or more, at 100 us and more each.
    assert!(starved.working > s(500), "{:?}", starved.working);
    let slower = ample.work_of(&starved).unwrap();
    let by_time = starved.working.as_secs_f64() / ample.working.as_secs_f64();
    assert!((slower / by_time - 1.0).abs() < 0.05, "{slower} by work, {by_time} by time");
    let clock = two_phases(Pace::Clock, 512);
    assert!(clock.working == s(20) && clock.work < starved.work * 2 / 3, "{}", clock.work);
}

/// Without swap nothing can be reclaimed: the OOM killer acts.
#[test]
fn oom_killer_acts_without_swap() {
    let mut scenario = alone(Pattern::Constant { size: Bytes::mib(800) }, 512, Bytes::mib(1));
    scenario.guests[0].swap = None;
    let report = run(&scenario);
    assert_eq!(report.oom_kills, 1);
    assert!(report.work < 512 * 256);
    assert_eq!(report.working, s(60), "what was killed has its work still to do");
}

/// Two guests that swap to one disk get half of its speed each.
#[test]
fn shared_disk_halves_the_speed() {
    let faults = |shared| {
        let mut scenario = alone(Pattern::Constant { size: Bytes::mib(800) }, 512, Bytes::mib(1));
        let other = GuestSpec { id: "h".parse().unwrap(), ..scenario.guests[0].clone() };
        scenario.guests.push(other);
        scenario.control.guard.budget = Some(Bytes::gib(1));
        scenario.host.swap_shared = shared;
        run(&scenario).major_faults as f64
    };
    let ratio = faults(false) / faults(true);
    assert!((1.8..2.2).contains(&ratio), "{ratio}");
}

/// A guest with hotplug grows beyond the memory it booted with.
#[test]
fn hotplug_lets_a_guest_outgrow_its_boot_memory() {
    let grown = |memory_max| {
        let mut scenario = alone(Pattern::Constant { size: Bytes::mib(1200) }, 512, Bytes::mib(1));
        scenario.guests[0].memory_max = memory_max;
        scenario.control.guard.budget = Some(Bytes::gib(2));
        run(&scenario).allocation_max
    };
    assert_eq!(grown(None), Bytes::mib(512));
    assert!(grown(Some(Bytes::gib(2))) > Bytes::mib(1300));
}

/// The host pages out memory of a guest whose balloon hardly moves.
#[test]
fn host_pages_out_what_is_not_released() {
    let faults = |reclaim| {
        let size = Bytes::mib(600);
        let mut scenario = alone(Pattern::Constant { size }, 1024, Bytes::mib(1));
        scenario.guests[0].balloon.inflate_idle = Bytes::mib(2);
        scenario.guests[0].balloon.inflate_pressed = Bytes::mib(2);
        scenario.guests[0].limits.ceiling = Some(Bytes::mib(400));
        scenario.host.reclaim = reclaim;
        run(&scenario).work
    };
    let paged = faults(Some(HostReclaim { grace: s(5), disk: Disk::NVME }));
    let left_alone = faults(None);
    assert!(paged < left_alone / 2, "{paged} {left_alone}");
}

/// By hand: guests that need 283 MiB each, with their kernel, on 2 GiB. Six get 341 each, 58 of it
/// free; seven get 292, 9 of it free. Below the low watermark, 48, they start to swap.
#[test]
fn capacity_is_the_number_that_fits() {
    let mut workload = WorkloadSpec::from(Pattern::Constant { size: Bytes::mib(200) });
    workload.touches_per_s = Some(100_000);
    let mut scenario = alone(workload, 512, Bytes::mib(1));
    scenario.control.guard.budget = Some(Bytes::gib(2));
    scenario.guests[0].start = Some(Bytes::mib(300));
    let policy = || named(&scenario, PolicyName::Static);
    let capacity = max_guests(&scenario, &policy, 0.05).unwrap();
    assert!((5..=7).contains(&capacity.guests), "{capacity:?}");
    assert!(capacity.slowest.unwrap() >= 0.95);
    let beyond = capacity.tried.iter().filter(|(n, _)| *n > capacity.guests);
    assert!(beyond.clone().count() > 0 && beyond.into_iter().all(|(_, it)| it.unwrap() < 0.95));
}
