//! Pins the exact bytes of rows: every variant of every enum of the model, and every event.
//!
//! `tests/golden/rows.txt` has the JSON of each row, one object per line. A difference is a change
//! of the format: see `RECORD_FORMAT` in `src/entry.rs`, and `tests/it/fixtures.rs`. Variants added
//! to the model belong here too; `BALLAST_WRITE_GOLDEN=1` writes the file.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::support::{OwnedTick, start, wall};
use ballast_model::*;
use ballast_store::{EntryContent, Event, JournalConfig, Range, Reader, Writer};

const KEEP: JournalConfig =
    JournalConfig { age_max: Duration::from_secs(1 << 40), bytes_max: Bytes::gib(1) };

const MS: Duration = Duration::from_millis(1);

fn id(at: usize) -> GuestId {
    format!("g{at:02}").parse().unwrap()
}

fn clamps() -> Vec<Clamped> {
    vec![
        Clamped::Floor { floor: Bytes::mib(128) },
        Clamped::Ceiling { ceiling: Bytes::gib(1) },
        Clamped::Unproven {
            claimed: Bytes::mib(900),
            believed: Bytes::mib(640),
            filled: Bytes::mib(512),
        },
        Clamped::Thrashed { held: Bytes::mib(400) },
        Clamped::NoSwap { least: Bytes::mib(300) },
        Clamped::StepUp { limit: Bytes::mib(64) },
        Clamped::StepDown { limit: Bytes::mib(32) },
        Clamped::AwaitingRelease { short: Bytes::mib(5) },
        Clamped::HostReserve { short: Bytes::mib(6) },
        Clamped::SampledAlone { most: Bytes::mib(576) },
    ]
}

fn reasons() -> Vec<Reason> {
    let (used, reserve, floor) = (Bytes::mib(300), Bytes::mib(30), Bytes::mib(128));
    let others = |more| Others { first: id(1), more };
    let share = || Reason::Share { budget: Bytes::gib(1), shares: 1, shares_total: 3 };
    let rent = |limit| Reason::Rent {
        floor,
        wanted: Bytes::mib(500),
        price_thousandths_per_kib: 1_250,
        credits: 77,
        limit,
    };
    let missing = |what| Reason::Missing { what, used, reserve };
    let scarce = Reason::Scarce { wanted: Bytes::mib(600), shares: 5, because: Box::new(share()) };
    let raised = |payers, because: Reason| Reason::Raised {
        need: Bytes::mib(700),
        priority: 3,
        taken: Bytes::mib(50),
        payers,
        because: Box::new(because),
    };
    let lowered = Reason::Lowered {
        given: Bytes::mib(20),
        priority: 1,
        takers: others(0),
        because: Box::new(scarce.clone()),
    };
    let tax = Tax::from_fraction(1 << 31);
    let mut all = vec![
        share(),
        Reason::UsedPlusReserve { used, reserve },
        Reason::IdleTax { used, tax, budget: Bytes::gib(1) },
        Reason::Custom { rule: "as it \"was\"".into(), used },
        Reason::Answered { target: Bytes::mib(777), used },
        Reason::Committed { committed: Bytes::mib(310) },
        Reason::Probed { working_set: Bytes::mib(290) },
        raised(None, share()),
        raised(Some(others(2)), Reason::Bound(Clamped::Floor { floor })),
        scarce,
        lowered,
        Reason::DemandAndBonus { demand: Bytes::mib(350) },
        Reason::FewestMisses { demand: Bytes::mib(350), misses_per_s: Some(9) },
        Reason::FewestMisses { demand: Bytes::mib(350), misses_per_s: None },
        Reason::RentableShare { floor, rentable: Bytes::gib(3) },
    ];
    all.extend(RentLimit::ALL.map(rent));
    all.extend(Input::ALL.map(missing));
    all.extend(clamps().into_iter().map(Reason::Bound));
    all
}

fn held() -> Vec<HoldReason> {
    let (gib, two) = (Bytes::gib(1), Bytes::gib(2));
    vec![
        HoldReason::Paused,
        HoldReason::OptedOut,
        HoldReason::Unreachable { why: "nobody listens".into() },
        HoldReason::NotRunning { state: RunState::Paused },
        HoldReason::NotRunning { state: RunState::Other("inmigrate".into()) },
        HoldReason::NoBalloon,
        HoldReason::NoAllocation,
        HoldReason::DiscardInhibited,
        HoldReason::NoStatistics,
        HoldReason::Stale { age: 7_001 * MS, limit: 5_000 * MS },
        HoldReason::Implausible(Implausible::TotalOverBoot { total: two, boot: gib }),
        HoldReason::Implausible(Implausible::FreeOverTotal { free: two, total: gib }),
        HoldReason::Implausible(Implausible::AvailableOverTotal { available: two, total: gib }),
        HoldReason::Implausible(Implausible::AvailableOverAllocation {
            available: two,
            allocation: gib,
        }),
        HoldReason::Stuck { idle: MS, asked: Bytes::mib(256), retry_in: 9 * MS },
        HoldReason::DeadBand { change: Bytes::mib(1), band: Bytes::mib(8) },
        HoldReason::AnotherOwner { owner: None },
        HoldReason::AnotherOwner { owner: Some(BalloonOwner::Qmemman) },
        HoldReason::OnTarget,
        HoldReason::PlanRefused { violation: "floor of a".into() },
        HoldReason::ClockBackwards,
        HoldReason::Observing,
        HoldReason::SampledAlone { working_set: Bytes::mib(96) },
    ]
}

fn changes() -> Vec<Change> {
    let mut all = vec![
        Change::Grow { by: Bytes::mib(3) },
        Change::Shrink { by: Bytes::mib(2) },
        Change::CancelShrink { why: HoldReason::NoStatistics },
    ];
    all.extend(held().into_iter().map(Change::Hold));
    all
}

fn whys() -> Vec<MechanismReason> {
    let mut all = vec![
        MechanismReason::BalloonHasIt,
        MechanismReason::BalloonTakesIt,
        MechanismReason::BalloonRunsOut { left: Bytes::mib(7) },
        MechanismReason::BallooningInhibited,
        MechanismReason::NoBalloon,
        MechanismReason::PluggedIdle { idle: 60_000 * MS },
        MechanismReason::NotOnlined { unused: Bytes::mib(128) },
        MechanismReason::AskedByOthers { more: Bytes::mib(256) },
        MechanismReason::UnplugStalled { idle: 30_000 * MS },
        MechanismReason::NotGiven { left: Bytes::mib(12), asked: 8_000 * MS },
        MechanismReason::BeyondEntitlement { entitlement: Bytes::mib(400) },
        MechanismReason::Growing,
    ];
    all.extend(PressureLevel::ALL.map(|level| MechanismReason::HostShort { level }));
    all
}

fn compliances() -> [Compliance; 5] {
    [
        Compliance::Compliant,
        Compliance::Releasing { left: Bytes::mib(9), idle: 1_500 * MS },
        Compliance::Slow { left: Bytes::mib(8), asked: 90_000 * MS },
        Compliance::Stuck { idle: 4 * MS },
        Compliance::Inhibited,
    ]
}

fn notes() -> Vec<Note> {
    let violated =
        |misses_per_s| Note::ObjectiveViolated { guest: id(2), misses_per_s_max: 40, misses_per_s };
    vec![
        Note::Infeasible { shortfall: Bytes::mib(1) },
        Note::BudgetReduced { configured: Bytes::gib(2), present: Bytes::gib(1) },
        Note::HostUnknown,
        Note::Uncounted { guests: 2 },
        Note::BeyondEntitlement { guests: 2, debt: Bytes::mib(600), collected: true },
        Note::Newcomers { guests: 1 },
        Note::Unmapped { guest: id(1), claimed: Bytes::gib(1024) },
        Note::MissingInput { what: Input::MissCurve, guests: 4, fallback: "as used".into() },
        violated(Some(55)),
        violated(None),
        Note::Refused { violation: "more than the budget".into() },
    ]
    .into_iter()
    .chain(faults().into_iter().map(|fault| Note::Unanswered { fault }))
    .collect()
}

fn faults() -> Vec<AnswerFault> {
    vec![
        AnswerFault::NotAsked,
        AnswerFault::NotStarted { why: "no such file".into() },
        AnswerFault::Ended { how: "signal 9".into() },
        AnswerFault::Late { deadline: 500 * MS },
        AnswerFault::TooLong { line_max: Bytes::mib(1) },
        AnswerFault::Malformed { why: "expected value".into() },
        AnswerFault::OutOfStep { asked: 8, answered: 7 },
        AnswerFault::UnknownGuest { guest: id(1) },
        AnswerFault::MissingGuest { guest: id(2) },
        AnswerFault::OverBudget { by: Bytes::mib(3) },
    ]
}

fn curve(misses: &[u64]) -> MissCurve {
    MissCurve::new(Bytes::mib(100), 5_000 * MS, misses.to_vec()).unwrap()
}

fn estimates() -> Vec<Estimate> {
    let (used, available) = (Bytes::mib(500), Bytes::mib(200));
    let plain = Estimate::of_used(used, available, Provenance::BalloonStatistics { age: 3 * MS });
    let whys = [
        PassedOverReason::LessTrusted,
        PassedOverReason::Contradicts,
        PassedOverReason::Stale { age_max: 9_000 * MS },
    ];
    let passed_over = whys.map(|why| PassedOver {
        source: DemandSource::Committed,
        size: Bytes::mib(450),
        age: 2 * MS,
        why,
    });
    let by = |source, percent| Estimate {
        demand: Demand {
            size: Bytes::mib(420),
            source,
            age: MS,
            confidence: Confidence::from_percent(percent),
        },
        ..plain.clone()
    };
    let mut all = vec![
        plain.clone(),
        Estimate {
            passed_over: passed_over.to_vec(),
            curve: Some(curve(&[90, 30, 7, 0]).shifted(Bytes::mib(150)).into()),
            signals: Signals {
                free: Some(Bytes::mib(20)),
                committed: Some(Bytes::mib(450)),
                probed: Some(Bytes::mib(430)),
                swapped_pages_per_s: Some(11),
                request: requests().last().copied(),
            },
            ..plain.clone()
        },
        Estimate { curve: Some(curve(&[5, 5]).into()), ..plain.clone() },
        Estimate { swap_need: Bytes::mib(60), ..plain.clone() },
        Estimate { cache_need: Bytes::mib(200), ..plain.clone() },
        Estimate { provenance: Provenance::WorkingSet { age: 3 * MS }, ..plain.clone() },
    ];
    all.extend(DemandSource::ALL.map(|source| by(source, 80)));
    all
}

fn requests() -> [MemoryRequest; 3] {
    [RequestKind::More, RequestKind::Less, RequestKind::Emergency].map(|kind| MemoryRequest {
        number: 6,
        kind,
        amount: Bytes::mib(64),
    })
}

fn guest_plans() -> Vec<GuestPlan> {
    let (reasons, changes, whys) = (reasons(), changes(), whys());
    let (estimates, compliances) = (estimates(), compliances());
    let count = reasons.len().max(changes.len()).max(whys.len());
    let plan = |at: usize| GuestPlan {
        id: id(at),
        allocation: (at > 0).then(|| Bytes::mib(700)),
        bounds: (at > 1).then(|| Bounds { floor: Bytes::mib(128), ceiling: Bytes::gib(2) }),
        estimate: estimates.get(at).cloned(),
        desired: reasons
            .get(at)
            .map(|reason| Desired { target: Bytes::mib(400), reason: reason.clone() }),
        clamps: if at == 0 { clamps() } else { vec![] },
        credits: (at == 3).then_some(12_345),
        compliance: compliances[at % compliances.len()],
        target: (at > 0).then(|| Bytes::mib(403)),
        change: changes[at % changes.len()].clone(),
        moves: whys.get(at).map_or(vec![], |why| {
            vec![Move {
                mechanism: Mechanism::ALL[at % Mechanism::ALL.len()],
                from: Bytes::mib(700),
                to: Bytes::mib(403),
                why: why.clone(),
            }]
        }),
        balloon_rate: (at == 4).then(|| Bytes::mib(90)),
        regret: (at == 5).then(|| Regret {
            taken: Bytes::mib(80),
            read_back: Bytes::mib(8),
            undone: 1,
        }),
    };
    (0..count).map(plan).collect()
}

fn tracking(at: usize) -> Option<Tracking> {
    let states = [
        TrackingState::Waiting,
        TrackingState::Watching,
        TrackingState::Resting,
        TrackingState::Referenced,
        TrackingState::Absent,
        TrackingState::Failing,
        TrackingState::Sampling,
        TrackingState::Aging,
    ];
    Some(Tracking {
        state: *states.get(at)?,
        watched: (at == 1).then_some(Share::WHOLE),
        cost: (at == 1).then(|| Share::from_millionths(4_200)),
        trouble: (at == 5).then(|| "no ring".into()),
    })
}

fn guest_samples() -> Vec<GuestSample> {
    let links = [
        LinkState::Up,
        LinkState::Up,
        LinkState::Down(LinkDown::Connecting),
        LinkState::Down(LinkDown::Taken),
        LinkState::Down(LinkDown::PermissionDenied),
        LinkState::Down(LinkDown::Refused),
        LinkState::Down(LinkDown::TimedOut),
        LinkState::Down(LinkDown::Protocol("no greeting".into())),
        LinkState::Down(LinkDown::Closed("end of file".into())),
    ];
    let states = [
        RunState::Running,
        RunState::Paused,
        RunState::Shutdown,
        RunState::Panicked,
        RunState::Other("prelaunch".into()),
    ];
    let hotplugs = [HotplugKind::VirtioMem, HotplugKind::Dimm].map(|kind| Hotplug {
        kind,
        plugged: Bytes::mib(512),
        requested: Bytes::mib(640),
        max: Bytes::gib(4),
        block: Bytes::mib(2),
    });
    let some = Some(Bytes::mib(77));
    let stats = GuestStats {
        total: some,
        free: some,
        available: some,
        disk_caches: some,
        swap_in: some,
        swap_out: some,
        major_faults: Some(8),
        minor_faults: Some(9),
    };
    let agent = |request| AgentReport {
        committed: some,
        swap_used: some,
        swap_free: some,
        active: some,
        inactive: some,
        watermark_high: some,
        refaulted_file_pages: Some(1),
        scanned_pages: Some(2),
        reclaimed_pages: Some(3),
        request: Some(request),
    };
    let agents = requests().map(agent);
    // The first two are as journals had them before there was another.
    let sources = [
        TrackingSource::Library,
        TrackingSource::Library,
        TrackingSource::Damon,
        TrackingSource::DamonHuge,
        TrackingSource::Referenced,
        TrackingSource::Mglru,
        TrackingSource::MglruHuge,
    ];
    let yes = Some(true);
    let capable = Capabilities {
        balloon: yes,
        statistics: yes,
        free_page_reporting: Some(false),
        deflate_on_oom: yes,
        memory_devices: yes,
        discard_inhibited: Some(false),
        shared_control: yes,
    };
    let aged = |at: usize| (at as u32 + 1) * MS;
    let sample = |(at, link): (usize, LinkState)| GuestSample {
        run_state: states.get(at).cloned(),
        allocation: (at == 1).then(|| Measured { value: Bytes::mib(700), age: aged(at) }),
        boot_memory: (at == 1).then(|| Bytes::gib(2)),
        hotplug: hotplugs.get(at).copied(),
        resident: (at == 1).then(|| Measured { value: Bytes::mib(650), age: aged(at) }),
        unmapped: (at == 1).then(|| Bytes::gib(3)),
        stats: [stats, GuestStats::default()]
            .get(at)
            .map(|&value| Measured { value, age: aged(at) }),
        disk_reads: (at == 1).then(|| {
            let value = DiskReads { read: Bytes::mib(90), requests: 2000, took: MS };
            Measured { value, age: aged(at) }
        }),
        agent: agents.get(at).map(|&value| Box::new(Measured { value, age: aged(at) })),
        tracker: sources.get(at).map(|&source| {
            let curve = (at == 1).then(|| curve(&[90, 30, 7, 0]).into());
            let value = TrackerReport { working_set: Bytes::mib(210), curve, source };
            Box::new(Measured { value, age: aged(at) })
        }),
        tracking: tracking(at).map(Box::new),
        fence: (at == 1).then(|| Fence {
            limit: Some(Bytes::mib(832)),
            trouble: Some("swap is full".to_owned()),
        }),
        capabilities: if at == 1 { capable } else { Capabilities::default() },
        ..GuestSample::unknown(id(at), link)
    };
    links.into_iter().enumerate().map(sample).collect()
}

fn outcomes() -> Vec<Outcome> {
    let kinds = [
        OutcomeKind::Accepted,
        OutcomeKind::Failed("device not found".into()),
        OutcomeKind::Expired,
        OutcomeKind::Superseded,
        OutcomeKind::Waiting,
    ];
    let (generation, target) = (Generation(3), Bytes::mib(400));
    let outcome = |(at, kind)| Outcome { guest: id(at), generation, target, kind };
    kinds.into_iter().enumerate().map(outcome).collect()
}

/// A tick in which every variant of every enum occurs.
fn everything() -> OwnedTick {
    let mut mode = ModeChoice::new(Mode::Observe);
    mode.set(Mode::Balance);
    let at = Timestamp::from_millis(60_000);
    let host = HostSample {
        balloon_owner: Some(BalloonOwner::Mom),
        merging: Some(PageMerging {
            knobs: MergingKnobs { is_running: true, pages_to_scan: 364, sleep: 10 * MS },
            shared: Bytes::mib(20),
            saved: Bytes::mib(300),
            full_scans: 17,
        }),
        memory_total: Some(Bytes::gib(128)),
        memory_available: Some(Bytes::gib(20)),
        swap_total: Some(Bytes::gib(8)),
        swap_free: Some(Bytes::gib(7)),
        pressure: Some(Pressure { some_basis_points: 12, full_basis_points: 3 }),
    };
    let (generation, deadline) = (Generation(4), Timestamp::from_millis(61_000));
    let target = Bytes::mib(403);
    let plug = [None, Some(Bytes::mib(640))];
    let paging = [Mechanism::PageOut, Mechanism::PageIn].map(|mechanism| Paging {
        guest: id(7),
        mechanism,
        resident: Bytes::mib(300),
        generation,
        deadline,
    });
    let bounded = GuestLimits {
        floor: Some(Bytes::mib(128)),
        ceiling: Some(Bytes::gib(1)),
        shares: 7,
        priority: 2,
        miss_rate_max: Some(40),
        swap: Some(false),
        fence: true,
        managed: false,
        take_over: true,
    };
    OwnedTick {
        wall_ms: 1_700_000_000_000,
        snapshot: Snapshot::new(at, host, guest_samples()),
        plan: Plan {
            generation,
            decided_at: at,
            policy: PolicyName::Meb,
            budget: Budget {
                distributable: Bytes::gib(96),
                committed: Bytes::gib(90),
                grantable: Bytes::mib(900),
            },
            guests: guest_plans(),
            actions: plug
                .map(|plug| Action { guest: id(19), target, plug, generation, deadline })
                .to_vec(),
            paging: paging.to_vec(),
            host_pressure: PressureLevel::ReclaimOwed,
            reservations: vec![Reservation {
                guest: id(9),
                size: Bytes::gib(1),
                until: Timestamp::from_millis(900_000),
                free: Bytes::mib(300),
            }],
            notes: notes(),
        },
        answer: Some(PolicyAnswer::Targets(vec![GuestTarget {
            guest: id(1),
            target: Bytes::mib(777),
        }])),
        outcomes: outcomes(),
        carried: vec![CarriedGuest {
            guest: id(2),
            credits: Some(70_000),
            thrashed: Some(Thrashed {
                least: Bytes::mib(300),
                until: Timestamp::from_millis(80_000),
                pause: Duration::from_secs(60),
            }),
        }],
        handovers: vec![Handover {
            guest: id(3),
            process: Some(ProcessId { pid: 4711, start_ticks: 12_345 }),
            held: Some(Bytes::mib(500)),
            transient_grant: Bytes::mib(64),
            granted: Some(Bytes::mib(250)),
            granted_lately: Some(Bytes::mib(280)),
            resident_cap: Some(Bytes::mib(300)),
            stuck: Some(Stuck {
                asked: Bytes::mib(200),
                since: Timestamp::from_millis(59_000),
                retry_at: Timestamp::from_millis(119_000),
                pause: Duration::from_secs(60),
            }),
            thrashed: Some(Thrashed {
                least: Bytes::mib(400),
                until: Timestamp::from_millis(90_000),
                pause: Duration::from_secs(120),
            }),
            first_held: Some(Bytes::mib(450)),
            carried_limits: Some(GuestChange {
                floor: Some(Bytes::mib(300)),
                ceiling: Some(Bytes::mib(600)),
                shares: Some(9),
                priority: Some(3),
                miss_rate_max: Some(40),
                managed: Some(true),
                take_over: Some(false),
                ..GuestChange::default()
            }),
            checked: Some(CheckedGuest {
                held: Some(Bytes::mib(510)),
                target: Some(Bytes::mib(210)),
                granted: Some(Bytes::mib(220)),
                granted_lately: Some(Bytes::mib(290)),
                entitled: Some(Bytes::mib(270)),
                resident_cap: Some(Bytes::mib(310)),
            }),
        }],
        limits: BTreeMap::from([
            (id(0), bounded),
            (id(1), GuestLimits { shares: 8, ..GuestLimits::default() }),
            (id(2), GuestLimits::default()),
        ]),
        paused: true,
        mode,
        decision_cost: Duration::from_micros(412),
    }
}

/// A tick with the fewest known figures.
fn nothing(policy: PolicyName, level: PressureLevel) -> OwnedTick {
    let one = everything();
    let unknown = GuestSample::unknown(id(0), LinkState::Up);
    OwnedTick {
        snapshot: Snapshot::new(one.snapshot.taken_at, HostSample::default(), vec![unknown]),
        plan: Plan {
            policy,
            host_pressure: level,
            reservations: Vec::new(),
            guests: one.plan.guests[..1]
                .iter()
                .map(|guest| GuestPlan {
                    estimate: None,
                    desired: None,
                    clamps: vec![],
                    moves: vec![],
                    ..guest.clone()
                })
                .collect(),
            actions: vec![],
            paging: vec![],
            notes: vec![],
            ..one.plan
        },
        answer: Some(PolicyAnswer::Fault(AnswerFault::NotAsked)),
        outcomes: vec![],
        carried: vec![],
        handovers: vec![],
        limits: BTreeMap::new(),
        paused: false,
        mode: ModeChoice::new(Mode::Observe),
        ..one
    }
}

fn ticks() -> Vec<OwnedTick> {
    let mut all = vec![everything(), everything()];
    all.extend(PolicyName::ALL.map(|policy| nothing(policy, PressureLevel::Normal)));
    all.extend(PressureLevel::ALL.map(|level| nothing(PolicyName::Static, level)));
    all
}

fn events() -> Vec<Event> {
    let command = |answer| Event::Command { who: "uid 0".into(), command: "pause".into(), answer };
    vec![
        Event::Started,
        Event::ConfigLoaded { toml: "budget = \"1GiB\"\n".into() },
        Event::ConfigRefused { why: "line 1".into() },
        command(Ok("ok".into())),
        command(Err("no".into())),
        Event::Gap { ticks: 3, events: 1, why: "no space".into() },
        Event::Stopped { why: "SIGTERM".into() },
    ]
}

fn write(path: &Path) {
    let mut writer = Writer::open(path, KEEP, start()).unwrap();
    writer.write_all_whole();
    for event in events().into_iter().skip(1) {
        writer.record_event(wall(5), Timestamp::from_millis(6), event).unwrap();
    }
    for owned in ticks() {
        writer.record(&owned.tick()).unwrap();
    }
}

/// The JSON of every row of `table`, one object per line.
fn rows(path: &Path, table: &str) -> String {
    let connection = rusqlite::Connection::open(path).unwrap();
    let mut statement =
        connection.prepare(&format!("SELECT body FROM {table} ORDER BY id")).unwrap();
    let bodies: Vec<Vec<u8>> =
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let mut text = String::new();
    for (nth, body) in bodies.iter().enumerate() {
        let json = String::from_utf8(zstd::stream::decode_all(&body[..]).unwrap()).unwrap();
        let json = json.replace("{\"", "\n{\"");
        text.push_str(&format!("# {table} {}{json}\n", nth + 1));
    }
    text
}

#[test]
fn rows_match_the_golden_file_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    write(&path);
    let found = rows(&path, "entry") + &rows(&path, "curve");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/rows.txt");
    if std::env::var_os("BALLAST_WRITE_GOLDEN").is_some() {
        std::fs::write(&golden, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&golden).unwrap();
    for (at, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
        assert_eq!(found, expected, "line {} of {}", at + 1, golden.display());
    }
    assert_eq!(found.lines().count(), expected.lines().count());
}

#[test]
fn every_variant_reads_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    write(&path);
    let reader = Reader::open(&path).unwrap();
    let mut recorded = ticks().into_iter();
    let mut expected = events().into_iter();
    for entry in reader.entries(Range::default()) {
        match entry.unwrap().content {
            EntryContent::Event(event) => assert_eq!(Some(event), expected.next()),
            EntryContent::Tick(tick) => {
                let owned = recorded.next().unwrap();
                assert_eq!((&tick.snapshot, &tick.plan), (&owned.snapshot, &owned.plan));
                assert_eq!(tick.answer, owned.answer);
                assert_eq!(tick.outcomes, owned.outcomes);
                assert_eq!(tick.handovers, owned.handovers);
                assert_eq!(tick.carried, owned.carried);
                for (id, limits) in &owned.limits {
                    assert_eq!(&tick.limits_of(id), limits);
                }
                assert_eq!((tick.paused, tick.mode), (owned.paused, owned.mode));
                assert_eq!(tick.decision_cost, owned.decision_cost);
            }
        }
    }
    assert_eq!((recorded.next().is_some(), expected.next()), (false, None));
}

/// The reader's error for row 8, after `from` was replaced by `to` in that row.
fn refusal(from: &str, to: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    write(&path);
    let connection = rusqlite::Connection::open(&path).unwrap();
    let row = "SELECT body FROM entry WHERE id = 8";
    let body: Vec<u8> = connection.query_row(row, [], |row| row.get(0)).unwrap();
    let json = String::from_utf8(zstd::stream::decode_all(&body[..]).unwrap()).unwrap();
    assert!(json.contains(from), "{from}");
    let body = zstd::stream::encode_all(json.replacen(from, to, 1).as_bytes(), 1).unwrap();
    connection.execute("UPDATE entry SET body = ?1 WHERE id = 8", [body]).unwrap();
    let reader = Reader::open(&path).unwrap();
    let mut ticks = reader.ticks(Range::default());
    let error = ticks.next().unwrap().unwrap_err().to_string();
    assert!(ticks.all(|tick| tick.is_ok()), "other ticks are still readable");
    error
}

#[test]
fn invalid_values_are_refused_with_row_and_expectation() {
    for (from, to, expected) in [
        (r#""policy":"meb""#, r#""policy":"mebb""#, "`mebb` is not a policy"),
        (r#""rung":"reclaim-owed""#, r#""rung":"x""#, "`x`"),
        (r#""mechanism":"dimm""#, r#""mechanism":"x""#, "`x`"),
        (r#"{"code":"up"}"#, r#"{"code":"x"}"#, "unknown variant `x`, expected one of `up`"),
        (r#"{"code":"paused"}"#, r#"{"code":"x"}"#, "unknown variant `x`, expected one of"),
        (r#"{"code":"grow","#, r#"{"code":"x","#, "unknown variant `x`, expected one of `grow`"),
        (r#""id":"g01""#, r#""id":"g/1""#, "`g/1` is not a guest name: expected 1 to 64"),
        (
            r#""total_bytes":80740352"#,
            r#""total_bytes":-1"#,
            "invalid value: integer `-1`, expected u64",
        ),
        (r#""total_bytes":80740352"#, r#""total_bytes":"77MiB""#, "invalid type: string"),
        (r#""confidence_percent":80"#, r#""confidence_percent":300"#, "expected u8"),
        (r#""stats":{"age_ns":1000000,"#, r#""stats":{"#, "missing field `age_ns`"),
        (r#""taken_at_ms":60000,"#, "", "missing field `taken_at_ms`"),
        (r#""curve":{"id":1}"#, r#""curve":{"id":99}"#, "curve 99: there is none"),
        (
            r#""curve":{"id":1}"#,
            r#""curve":{"step_bytes":4096,"interval_ns":1,"misses":[3,4]}"#,
            "a miss curve that rises from 3 misses at 0B to 4 at 4KiB",
        ),
        (
            r#""curve":{"id":1,"shifted":2}"#,
            r#""curve":{"id":1,"shifted":4294967295}"#,
            "expected at most 16777216",
        ),
        (r#""curve":{"id":1}"#, r#""curve":7"#, "expected a miss curve: `step_bytes`"),
        (r#"{"code":"share","#, r#"{"code":"x","#, "expected a reason with its figures"),
    ] {
        let error = refusal(from, to);
        assert!(error.contains("journal.db: damaged: row 8: "), "{error}");
        assert!(error.contains(expected), "{to}: {error}");
    }
}
