//! A record made up for tests: two guests, `a` working and `b` idle, ten seconds.

use ballast_lab_host::BEST;

use super::fleet_record::{
    FleetHostInfo, FleetInfo, FleetRun, FloorInfo, HostRun, HostSample, KillRecord, LeaderRecord,
    MigrationRecord, PhaseRecord, PlaceRecord,
};
use super::record::{
    FORMAT_VERSION, GuestInfo, GuestRun, InsideSample, Machine, OutsideSample, Record, RunRecord,
    Sample, ScenarioInfo, WorkloadRecord,
};

const SECONDS: u64 = 10;
const MIB: u64 = 1 << 20;

/// A record in which guest `a` does the given work under each policy; one figure for each
/// repetition.
pub(super) fn record(work: &[(&str, &[u64])]) -> Record {
    let repetitions = work.iter().map(|(_, done)| done.len()).max().unwrap_or(0);
    let runs = (0..repetitions).flat_map(|repetition| {
        work.iter().filter_map(move |(policy, done)| {
            Some(run(policy, repetition as u32 + 1, *done.get(repetition)?))
        })
    });
    Record {
        format_version: FORMAT_VERSION,
        started_at: "2026-01-02T03:04:05Z".to_owned(),
        scenario: ScenarioInfo {
            name: "made-up".to_owned(),
            description: "One guest works, the other idles.".to_owned(),
            budget_bytes: 1024 * MIB,
            duration_s: SECONDS as f64,
            repetitions: repetitions as u32,
            policies: work.iter().map(|(policy, _)| (*policy).to_owned()).collect(),
            best: work.iter().any(|(policy, _)| *policy == BEST).then(|| BEST.to_owned()),
            guests: vec![info("a", &["grow: mono, 50MiB to 650MiB"]), info("b", &[])],
            ..ScenarioInfo::default()
        },
        machine: Machine {
            cpu: Some("Example <CPU> & Co".to_owned()),
            cores: Some(2),
            memory_bytes: Some(8192 * MIB),
            kernel: Some("6.1.0".to_owned()),
            guest_kernel: Some("6.1.0-cloud".to_owned()),
            qemu: Some("7.2".to_owned()),
            accelerator: "tcg".to_owned(),
            ballast: "0.1.0".to_owned(),
            commit: None,
        },
        runs: runs.collect(),
    }
}

fn info(name: &str, workloads: &[&str]) -> GuestInfo {
    GuestInfo {
        guest: name.to_owned(),
        boot_bytes: 1024 * MIB,
        start_bytes: 512 * MIB,
        swap: Some("1GiB ssd".to_owned()),
        workloads: workloads.iter().map(|text| (*text).to_owned()).collect(),
        ..GuestInfo::default()
    }
}

fn run(policy: &str, repetition: u32, work: u64) -> RunRecord {
    let workload = WorkloadRecord {
        workload: "grow".to_owned(),
        end: "was stopped".to_owned(),
        ended_well: true,
        touches: work,
        iterations: work / 10,
        elapsed_ms: SECONDS * 1000,
        ..WorkloadRecord::default()
    };
    let moved = policy != "static";
    let a = guest("a", moved, work, vec![workload]);
    let b = guest("b", moved, 0, Vec::new());
    RunRecord {
        policy: policy.to_owned(),
        repetition,
        measured_s: SECONDS as f64,
        guests: vec![a, b],
        ..RunRecord::default()
    }
}

fn guest(name: &str, moved: bool, work: u64, workloads: Vec<WorkloadRecord>) -> GuestRun {
    let works = !workloads.is_empty();
    let held = |at: u64| match (moved, works) {
        (false, _) => 512 * MIB,
        (true, true) => (512 + 20 * at) * MIB,
        (true, false) => (512 - 20 * at) * MIB,
    };
    let faults = |at: u64| if works && !moved { at * 100 } else { 0 };
    let sample = |at: u64| Sample {
        at_s: at as f64,
        daemon: Some(OutsideSample {
            allocation_bytes: Some(held(at)),
            target_bytes: Some(held((at + 1).min(SECONDS))),
            used_bytes: Some(if works { (60 + 40 * at) * MIB } else { 60 * MIB }),
            tracking: None,
            doing: Some(if moved { "grow" } else { "hold" }.to_owned()),
            doing_text: None,
        }),
        // A report that was late.
        inside: (at != 4).then(|| InsideSample {
            at_ms: (at * 1000) as i64,
            used_bytes: Some(60 * MIB),
            available_bytes: Some(400 * MIB),
            swap_used_bytes: Some(faults(at) * 4096),
            touches: work * at / SECONDS,
            iterations: work * at / SECONDS / 10,
            size_bytes: if works { 40 * at * MIB } else { 0 },
            size_wanted_bytes: if works { 40 * at * MIB } else { 0 },
            major_faults: Some(faults(at)),
            swap_in_bytes: Some(faults(at) * 4096),
            swap_out_bytes: Some(faults(at) * 8192),
        }),
        touched_bytes: (works && at != 4).then_some(35 * at * MIB),
    };
    GuestRun { guest: name.to_owned(), samples: (0..=SECONDS).map(sample).collect(), workloads }
}

/// A scenario of two guests and three workloads, twice under two policies.
pub(super) fn scenario() -> ballast_lab_host::Scenario {
    const TEXT: &str = r#"
name = "made-up"
duration = "10s"
repetitions = 2
policies = ["static", "global"]
[host]
budget = "1GiB"
reserve = "256MiB"
[settings]
tick = "500ms"
[[guests]]
name = "a"
memory = "1GiB"
start = "512MiB"
floor = "200MiB"
ceiling = "900MiB"
shares = 2000
swap = { size = "1GiB", speed = "ssd" }
[[guests.workloads]]
kind = "sequential"
id = "late"
at = "3s"
size = "32MiB"
[[guests.workloads]]
kind = "mono"
low = "50MiB"
high = "650MiB"
ramp_s = 5.0
[[guests]]
name = "b"
memory = "1GiB"
start = "512MiB"
[[guests.workloads]]
kind = "cold"
size = "64MiB"
share_per_s = 0.01
"#;
    ballast_lab_host::Scenario::parse(TEXT, std::path::Path::new("made-up.toml")).unwrap()
}

/// Guest `a` moves from `x` to `y` at 3 s. Its work is 100 without moves and 400 with them.
pub(super) fn fleet() -> Record {
    let mut record = record(&[("advise", &[100]), ("move", &[400])]);
    let floor = |guest: &str| FloorInfo { guest: guest.to_owned(), floor_bytes: 128 << 20 };
    record.scenario.fleet = Some(FleetInfo {
        hosts: vec![FleetHostInfo { host: "x".to_owned(), budget_bytes: 100, guests: Vec::new() }],
        overloaded: "x".to_owned(),
        kills_leader: true,
        window_s: 5.0,
        work_times: 1.5,
        floors: vec![floor("a"), floor("b")],
    });
    let sample =
        HostSample { at_s: 1.0, budget_bytes: 100, held_bytes: 90, ..HostSample::default() };
    let hosts = vec![HostRun { host: "x".to_owned(), plans_refused: 0, samples: vec![sample] }];
    for run in &mut record.runs {
        run.fleet = Some(FleetRun { hosts: hosts.clone(), ..FleetRun::default() });
    }
    let phases = ["ordered", "copying", "copied", "moved"].map(|phase| PhaseRecord {
        phase: phase.to_owned(),
        at_s: if phase == "ordered" { 2.0 } else { 3.0 },
    });
    let leader =
        |host: Option<&str>, from_s| LeaderRecord { host: host.map(str::to_owned), from_s };
    record.runs[1].fleet = Some(FleetRun {
        hosts,
        places: vec![PlaceRecord { guest: "a".to_owned(), host: "y".to_owned(), from_s: 3.0 }],
        migrations: vec![MigrationRecord {
            guest: "a".to_owned(),
            from: "x".to_owned(),
            to: "y".to_owned(),
            phases: phases.to_vec(),
            ended: Some("moved".to_owned()),
            removed_s: Some(4.0),
        }],
        leaders: vec![leader(Some("z"), -1.0), leader(None, 3.5), leader(Some("y"), 3.7)],
        kill: Some(KillRecord {
            host: "z".to_owned(),
            at_s: 2.5,
            guest: "a".to_owned(),
            phase: "ordered".to_owned(),
        }),
        discarded: Vec::new(),
    });
    record
}
