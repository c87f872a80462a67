//! Journals of every past format load, and today's format does not change unnoticed.
//!
//! A new format needs a new pair of files, here of version 4: write it with
//! `BALLAST_WRITE_FIXTURE=v4 cargo test -p ballast-store --test it fixtures`. The older files stay
//! as they are.

use crate::support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::{OwnedTick, start, wall};
use ballast_model::*;
use ballast_store::{Event, JournalConfig, Range, Reader, Writer};
use serde_json::Value;

const KEEP: JournalConfig =
    JournalConfig { age_max: Duration::from_secs(1 << 40), bytes_max: Bytes::gib(1) };

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// One of everything that a record can say.
fn everything() -> OwnedTick {
    let held = [
        HoldReason::Paused,
        HoldReason::OptedOut,
        HoldReason::Unreachable { why: "nobody listens".into() },
        HoldReason::NotRunning { state: RunState::Other("inmigrate".into()) },
        HoldReason::NoBalloon,
        HoldReason::NoAllocation,
        HoldReason::DiscardInhibited,
        HoldReason::NoStatistics,
        HoldReason::Stale { age: Duration::from_millis(7_001), limit: Duration::from_secs(5) },
        HoldReason::Implausible(Implausible::TotalOverBoot {
            total: Bytes::gib(2),
            boot: Bytes::gib(1),
        }),
        HoldReason::Implausible(Implausible::FreeOverTotal {
            free: Bytes::gib(2),
            total: Bytes::gib(1),
        }),
        HoldReason::Implausible(Implausible::AvailableOverTotal {
            available: Bytes::gib(2),
            total: Bytes::gib(1),
        }),
        HoldReason::Implausible(Implausible::AvailableOverAllocation {
            available: Bytes::gib(2),
            allocation: Bytes::gib(1),
        }),
        HoldReason::Stuck {
            idle: Duration::from_millis(1),
            asked: Bytes::mib(256),
            retry_in: Duration::from_millis(9),
        },
        HoldReason::DeadBand { change: Bytes::mib(1), band: Bytes::mib(8) },
        HoldReason::OnTarget,
        HoldReason::PlanRefused { violation: "floor of a".into() },
        HoldReason::ClockBackwards,
    ];
    let mut changes: Vec<Change> = held.into_iter().map(Change::Hold).collect();
    changes.push(Change::CancelShrink { why: HoldReason::NoStatistics });
    changes.push(Change::Grow { by: Bytes::mib(3) });
    changes.push(Change::Shrink { by: Bytes::mib(2) });
    let reasons = [
        Reason::Share { budget: Bytes::gib(1), shares: 1, shares_total: 3 },
        Reason::UsedPlusReserve { used: Bytes::mib(300), reserve: Bytes::mib(30) },
        Reason::IdleTax {
            used: Bytes::mib(300),
            tax: Tax::from_fraction(1 << 31),
            budget: Bytes::gib(1),
        },
        Reason::Bound(Clamped::Ceiling { ceiling: Bytes::gib(1) }),
    ];
    let clamps = vec![
        Clamped::Floor { floor: Bytes::mib(128) },
        Clamped::Ceiling { ceiling: Bytes::gib(1) },
        Clamped::StepUp { limit: Bytes::mib(64) },
        Clamped::StepDown { limit: Bytes::mib(32) },
        Clamped::AwaitingRelease { short: Bytes::mib(5) },
        Clamped::HostReserve { short: Bytes::mib(6) },
    ];
    let compliances = [
        Compliance::Compliant,
        Compliance::Releasing { left: Bytes::mib(9), idle: Duration::from_millis(1_500) },
        Compliance::Stuck { idle: Duration::from_millis(4) },
    ];
    let links = [
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
    let outcomes = [
        OutcomeKind::Accepted,
        OutcomeKind::Failed("device not found".into()),
        OutcomeKind::Expired,
        OutcomeKind::Superseded,
    ];
    let one = support::realistic(3, 1);
    let id = |at: usize| -> GuestId { format!("g{at:02}").parse().unwrap() };
    let guests = changes.into_iter().enumerate().map(|(at, change)| GuestPlan {
        id: id(at),
        desired: reasons
            .get(at)
            .map(|reason| Desired { target: Bytes::mib(400), reason: reason.clone() }),
        clamps: if at == 0 { clamps.clone() } else { vec![] },
        compliance: compliances[at % compliances.len()],
        change,
        ..one.plan.guests[0].clone()
    });
    let samples = links.into_iter().enumerate().map(|(at, link)| GuestSample {
        id: id(at),
        link,
        run_state: states.get(at).cloned(),
        ..match at {
            0 => one.snapshot.guests()[0].clone(),
            _ => GuestSample::unknown(id(at), LinkState::Up),
        }
    });
    OwnedTick {
        snapshot: Snapshot::new(
            one.snapshot.taken_at,
            one.snapshot.host.clone(),
            samples.collect(),
        ),
        plan: Plan {
            guests: guests.collect(),
            actions: vec![Action {
                guest: id(19),
                target: Bytes::mib(403),
                plug: None,
                generation: Generation(4),
                deadline: Timestamp::from_millis(5),
            }],
            notes: vec![
                Note::Infeasible { shortfall: Bytes::mib(1) },
                Note::BudgetReduced { configured: Bytes::gib(2), present: Bytes::gib(1) },
                Note::HostUnknown,
                Note::Uncounted { guests: 2 },
                Note::Newcomers { guests: 1 },
                Note::Refused { violation: "more than the budget".into() },
            ],
            ..one.plan.clone()
        },
        outcomes: outcomes
            .into_iter()
            .enumerate()
            .map(|(at, kind)| Outcome {
                guest: id(at),
                generation: Generation(3),
                target: Bytes::mib(400),
                kind,
            })
            .collect(),
        limits: BTreeMap::from([(
            id(0),
            GuestLimits {
                floor: Some(Bytes::mib(128)),
                ceiling: Some(Bytes::gib(1)),
                shares: 7,
                managed: false,
                ..GuestLimits::default()
            },
        )]),
        paused: true,
        ..one
    }
}

/// `owned` with a tracked working set and its curve for every guest.
fn tracked(mut owned: OwnedTick) -> OwnedTick {
    let step = Bytes::mib(100);
    let curve = MissCurve::new(step, Duration::from_secs(5), vec![90, 30, 7, 0]).unwrap();
    let tracker = Measured {
        value: TrackerReport {
            working_set: Bytes::mib(210),
            curve: Some(curve.clone().into()),
            source: TrackingSource::Library,
        },
        age: Duration::from_millis(20),
    };
    let Snapshot { taken_at, host, .. } = owned.snapshot.clone();
    let guests = owned.snapshot.guests().iter();
    let guests =
        guests.map(|it| GuestSample { tracker: Some(Box::new(tracker.clone())), ..it.clone() });
    owned.snapshot = Snapshot::new(taken_at, host, guests.collect());
    for estimate in owned.plan.guests.iter_mut().filter_map(|guest| guest.estimate.as_mut()) {
        estimate.curve = Some(curve.shifted(step).into());
    }
    owned
}

fn write_today(path: &Path) {
    let mut writer = Writer::open(path, KEEP, start()).unwrap();
    for event in [
        Event::ConfigLoaded { toml: "budget = \"1GiB\"\n".into() },
        Event::ConfigRefused { why: "line 1".into() },
        Event::Command { who: "uid 0".into(), command: "pause".into(), answer: Ok("ok".into()) },
        Event::Command { who: "uid 1".into(), command: "pause".into(), answer: Err("no".into()) },
        Event::Gap { ticks: 3, events: 1, why: "no space".into() },
    ] {
        writer.record_event(wall(5), Timestamp::from_millis(6), event).unwrap();
    }
    writer.record(&everything().tick()).unwrap();
    writer.record(&support::realistic(1, 2).tick()).unwrap();
    // Curves are written with the first tick that has them, and referred to by the next.
    for nth in [2, 3] {
        writer.record(&tracked(support::realistic(nth, 2)).tick()).unwrap();
    }
    let stopped = Event::Stopped { why: "SIGTERM".into() };
    writer.record_event(wall(7), Timestamp::from_millis(8), stopped).unwrap();
}

fn export(path: &Path) -> String {
    let mut out = Vec::new();
    Reader::open(path).unwrap().export(Range::default(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// The lines without their sentences: any version may change the wording; the rest is the format.
fn without_sentences(text: &str) -> Vec<Value> {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                let sentence = fields.contains_key("code") && fields.contains_key("text");
                if sentence {
                    fields.remove("text");
                }
                fields.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let line = |line: &str| {
        let mut value: Value = serde_json::from_str(line).unwrap();
        strip(&mut value["plan"]);
        value
    };
    text.lines().map(line).collect()
}

/// Copies a fixture, so that reading leaves no side files beside it, and works where its folder may
/// not be written.
fn copy_of(name: &str, folder: &Path) -> PathBuf {
    let copy = folder.join(name);
    std::fs::copy(fixture(name), &copy).unwrap();
    copy
}

#[test]
fn journals_of_every_format_load() {
    let folder = tempfile::tempdir().unwrap();
    for (version, entries) in [("v1", 10), ("v2", 12), ("v3", 12)] {
        let path = copy_of(&format!("{version}.db"), folder.path());
        let expected = std::fs::read_to_string(fixture(&format!("{version}.jsonl"))).unwrap();
        assert_eq!(without_sentences(&export(&path)), without_sentences(&expected));
        let latest = Reader::open(&path).unwrap().latest().unwrap().unwrap();
        assert_eq!(latest.stopped.as_deref(), Some("SIGTERM"));
        // The next daemon appends to it.
        let mut writer = Writer::open(&path, KEEP, start()).unwrap();
        let more = tracked(support::realistic(2, 2));
        writer.record(&more.tick()).unwrap();
        let (entry, tick) = Reader::open(&path).unwrap().last_tick().unwrap().unwrap();
        assert_eq!((entry.id, tick.snapshot), (entries + 1, more.snapshot.clone()));
        assert_eq!(without_sentences(&export(&path)).len() as i64, entries + 1);
    }
}

#[test]
fn todays_rows_have_the_declared_format() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("today.db");
    write_today(&path);
    if let Some(name) = std::env::var_os("BALLAST_WRITE_FIXTURE") {
        let name = name.to_str().unwrap();
        std::fs::create_dir_all(fixture("")).unwrap();
        std::fs::copy(&path, fixture(&format!("{name}.db"))).unwrap();
        std::fs::write(fixture(&format!("{name}.jsonl")), export(&path)).unwrap();
    }
    let expected = std::fs::read_to_string(fixture("v3.jsonl")).unwrap();
    assert_eq!(
        without_sentences(&export(&path)),
        without_sentences(&expected),
        "the format has changed: raise RECORD_FORMAT and keep the old one loading"
    );
}
