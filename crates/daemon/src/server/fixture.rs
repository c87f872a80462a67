//! Handmade views for tests of the server and of the commands' output.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use axum::http::{HeaderValue, Request, header};
use ballast_api::FairnessView;
use ballast_config::PageSettings;
use ballast_model::{
    Action, AgentReport, Bounds, Budget, Bytes, Capabilities, Change, Clamped, Compliance, Desired,
    Estimate, Fence, Generation, GuestId, GuestLimits, GuestPlan, GuestSample, GuestStats,
    HoldReason, HostSample, LinkDown, LinkState, Measured, MemoryRequest, MergingKnobs, ModeChoice,
    Note, Outcome, OutcomeKind, PageMerging, Plan, PolicyName, Pressure, PressureLevel, Provenance,
    Reason, RequestKind, RunState, Share, Snapshot, Tax, Timestamp, TrackerReport, Tracking,
    TrackingSource, TrackingState,
};

use super::page::{Entrance, Keys, Tokens};
use super::{Access, ReplayProgram, ServerConfig};
use crate::view::{ApiState, View};

/// The moment of the tick on the monotonic clock.
const NOW: Timestamp = Timestamp::from_millis(100_000);

/// Wall-clock time of the tick: 2026-01-02 03:04:05 UTC.
pub fn seen_at() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_323_045)
}

/// A server on `socket` for its own user. Its page explains a guest by its name.
pub fn config(socket: PathBuf) -> ServerConfig {
    ServerConfig {
        socket,
        group: None,
        page: PageSettings::default(),
        journal: None,
        // No test's program replays.
        replay: ReplayProgram {
            program: "/nonexistent/ballast".into(),
            ..ReplayProgram::default()
        },
        explain: |reply| format!("guest      {}\n", reply.guest),
        metrics: None,
    }
}

/// The access of a request with these headers, whatever they contain, on the page's port while
/// nobody is logged in. `None`: it names another host.
pub fn access_on_port(host: &[u8], cookie: &[u8]) -> Option<Access> {
    let mut request = Request::builder().uri("/v1/pause");
    for (name, value) in [(header::HOST, host), (header::COOKIE, cookie)] {
        request = request.header(name, HeaderValue::from_bytes(value).ok()?);
    }
    let (parts, ()) = request.body(()).ok()?.into_parts();
    let hosts = vec!["ballast.example.org".to_owned()];
    let keys = Keys::new(hosts, Tokens::default(), Some(7117)).unwrap();
    let visitor = keys.visitor(Entrance::Port, &parts.headers);
    assert!(visitor.is_browser && visitor.csrf.is_none());
    keys.answers(Entrance::Port, &parts).then_some(visitor.access)
}

/// The guest name `text`.
pub fn id(text: &str) -> GuestId {
    text.parse().unwrap()
}

fn estimate(used: u64, available: u64, age_ms: u64) -> Estimate {
    let provenance = Provenance::BalloonStatistics { age: Duration::from_millis(age_ms) };
    Estimate::of_used(Bytes::mib(used), Bytes::mib(available), provenance)
}

fn running(name: &str, allocation: u64, stats_age_ms: u64) -> GuestSample {
    GuestSample {
        run_state: Some(RunState::Running),
        allocation: Some(Measured {
            value: Bytes::mib(allocation),
            age: Duration::from_millis(100),
        }),
        boot_memory: Some(Bytes::gib(1)),
        resident: Some(Measured::fresh(Bytes::mib(allocation + 30))),
        stats: Some(Measured {
            value: GuestStats {
                total: Some(Bytes::mib(980)),
                free: Some(Bytes::mib(20)),
                available: Some(Bytes::mib(60)),
                disk_caches: Some(Bytes::mib(45)),
                swap_in: Some(Bytes::mib(7)),
                swap_out: Some(Bytes::mib(90)),
                major_faults: Some(1234),
                minor_faults: Some(99_000),
            },
            age: Duration::from_millis(stats_age_ms),
        }),
        capabilities: Capabilities {
            balloon: Some(true),
            statistics: Some(true),
            ..Capabilities::default()
        },
        ..GuestSample::unknown(id(name), LinkState::Up)
    }
}

/// Adds an agent's report.
fn with_agent(guest: GuestSample) -> GuestSample {
    let (number, kind) = (3, RequestKind::More);
    let value = AgentReport {
        committed: Some(Bytes::mib(700)),
        swap_used: Some(Bytes::mib(83)),
        swap_free: Some(Bytes::mib(429)),
        active: Some(Bytes::mib(300)),
        inactive: Some(Bytes::mib(150)),
        watermark_high: Some(Bytes::mib(12)),
        request: Some(MemoryRequest { number, kind, amount: Bytes::mib(64) }),
        ..AgentReport::default()
    };
    GuestSample {
        agent: Some(Box::new(Measured { value, age: Duration::from_millis(300) })),
        ..guest
    }
}

/// Adds a tracker's report.
fn tracked(guest: GuestSample, working_set: u64, tracking: Tracking) -> GuestSample {
    let report = TrackerReport {
        working_set: Bytes::mib(working_set),
        curve: None,
        source: TrackingSource::Library,
    };
    let age = Duration::from_millis(400);
    GuestSample {
        tracker: Some(Box::new(Measured { value: report, age })),
        tracking: Some(Box::new(tracking)),
        ..guest
    }
}

/// Adds a fence.
fn fenced(guest: GuestSample, limit: Option<Bytes>, trouble: Option<&str>) -> GuestSample {
    let fence = Fence { limit, trouble: trouble.map(str::to_owned) };
    GuestSample { fence: Some(fence), ..guest }
}

fn planned(name: &str, change: Change) -> GuestPlan {
    GuestPlan {
        id: id(name),
        allocation: None,
        bounds: None,
        estimate: None,
        desired: None,
        clamps: vec![],
        credits: None,
        compliance: Compliance::Compliant,
        target: None,
        change,
        moves: vec![],
        balloon_rate: None,
        regret: None,
    }
}

/// `grow` grows and is clamped; `mute` has never answered; `old` has stale statistics; `stuck`
/// releases nothing and its tracking fails; another client holds the monitor of `taken`.
fn guests() -> Vec<(GuestSample, GuestPlan)> {
    let bounds = Some(Bounds { floor: Bytes::mib(128), ceiling: Bytes::gib(1) });
    let tax = Tax::from_fraction(3 << 30);
    let taxed = |target, used| {
        let reason = Reason::IdleTax { used: Bytes::mib(used), tax, budget: Bytes::gib(2) };
        Some(Desired { target: Bytes::mib(target), reason })
    };
    let grow = GuestPlan {
        allocation: Some(Bytes::mib(512)),
        bounds,
        estimate: Some(estimate(452, 60, 800)),
        desired: taxed(700, 452),
        clamps: vec![
            Clamped::StepUp { limit: Bytes::mib(128) },
            Clamped::AwaitingRelease { short: Bytes::mib(64) },
        ],
        target: Some(Bytes::mib(576)),
        ..planned("grow", Change::Grow { by: Bytes::mib(64) })
    };
    let stale = HoldReason::Stale { age: Duration::from_secs(12), limit: Duration::from_secs(5) };
    let old = GuestPlan {
        allocation: Some(Bytes::mib(300)),
        bounds,
        target: Some(Bytes::mib(300)),
        ..planned("old", Change::Hold(stale))
    };
    let idle = Duration::from_secs(42);
    let asked = Bytes::mib(256);
    let why = HoldReason::Stuck { idle, asked, retry_in: Duration::from_secs(18) };
    let stuck = GuestPlan {
        allocation: Some(Bytes::mib(600)),
        bounds,
        estimate: Some(estimate(90, 510, 400)),
        desired: taxed(256, 90),
        compliance: Compliance::Stuck { idle },
        target: Some(Bytes::mib(600)),
        ..planned("stuck", Change::Hold(why))
    };
    let down = LinkDown::Taken;
    let unreachable = HoldReason::Unreachable { why: down.to_string() };
    let watching = Tracking {
        watched: Some(Share::from_millionths(3_906)),
        cost: Some(Share::from_millionths(5_500)),
        ..Tracking::new(TrackingState::Watching)
    };
    let failing = Tracking {
        trouble: Some("the guest is tracked by another client: stop that one first".to_owned()),
        ..Tracking::new(TrackingState::Failing)
    };
    let resting = Tracking::new(TrackingState::Resting);
    let old_sample = tracked(running("old", 300, 12_000), 210, resting);
    let stuck_sample = tracked(running("stuck", 600, 400), 80, failing);
    vec![
        (with_agent(tracked(running("grow", 512, 800), 600, watching)), grow),
        (
            GuestSample::unknown(id("mute"), LinkState::Up),
            planned("mute", Change::Hold(HoldReason::NoAllocation)),
        ),
        (fenced(old_sample, None, Some("the host has no swap: make some")), old),
        (fenced(stuck_sample, Some(Bytes::mib(812)), None), stuck),
        (
            GuestSample::unknown(id("taken"), LinkState::Down(down)),
            planned("taken", Change::Hold(unreachable)),
        ),
    ]
}

/// A view of a host that is short of memory, with one guest in each kind of trouble.
pub fn view() -> View {
    let (samples, plans): (Vec<_>, Vec<_>) = guests().into_iter().unzip();
    let host = HostSample {
        merging: Some(PageMerging {
            knobs: MergingKnobs {
                is_running: true,
                pages_to_scan: 364,
                sleep: Duration::from_millis(10),
            },
            shared: Bytes::mib(20),
            saved: Bytes::mib(300),
            full_scans: 17,
        }),
        balloon_owner: None,
        memory_total: Some(Bytes::gib(16)),
        memory_available: Some(Bytes::mib(9420)),
        swap_total: Some(Bytes::gib(2)),
        swap_free: Some(Bytes::gib(1)),
        pressure: Some(Pressure { some_basis_points: 112, full_basis_points: 3 }),
    };
    let target = Bytes::mib(576);
    let outcome = Outcome {
        guest: id("grow"),
        generation: Generation(41),
        target: Bytes::mib(512),
        kind: OutcomeKind::Accepted,
    };
    let plan = Plan {
        generation: Generation(42),
        decided_at: NOW,
        policy: PolicyName::Global,
        budget: Budget {
            distributable: Bytes::gib(2),
            committed: Bytes::mib(1412),
            grantable: Bytes::mib(64),
        },
        guests: plans,
        actions: vec![Action {
            guest: id("grow"),
            target,
            plug: None,
            generation: Generation(42),
            deadline: Timestamp::from_millis(102_000),
        }],
        paging: vec![],
        host_pressure: PressureLevel::Normal,
        reservations: Vec::new(),
        notes: vec![
            Note::BudgetReduced { configured: Bytes::gib(3), present: Bytes::gib(2) },
            Note::Infeasible { shortfall: Bytes::mib(100) },
        ],
    };
    let limits = GuestLimits { floor: Some(Bytes::mib(128)), ..GuestLimits::default() };
    View {
        started_at: seen_at() - Duration::from_secs(7380),
        seen_at: seen_at(),
        limit_sources: BTreeMap::new(),
        limit_changes: BTreeMap::new(),
        gone_with_limits: BTreeSet::new(),
        thrashed: BTreeMap::new(),
        carried_in: BTreeMap::new(),
        limits: samples.iter().map(|sample| (sample.id.clone(), limits.clone())).collect(),
        snapshot: Snapshot::new(NOW, host, samples),
        plan,
        outcomes: BTreeMap::from([(id("grow"), (seen_at() - Duration::from_secs(1), outcome))]),
        policy: PolicyName::Global,
        paused: false,
        mode: ModeChoice::default(),
        tick: Duration::from_secs(1),
        host_reserve: Bytes::mib(512),
        decision_cost: Duration::from_micros(420),
        ticks: 7300,
        plans_refused: 0,
        fairness: Some(FairnessView {
            latest_basis_points: 10_000,
            mean_basis_points: 9_312,
            decisions: 300,
        }),
        reload_error: None,
        journal_error: None,
        journal_aside: vec![],
        guests_refused: 0,
        log_lines_dropped: 0,
        api: ApiState::default(),
    }
}
