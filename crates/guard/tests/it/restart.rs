//! The checker counts the promises of the last daemon.

use std::time::Duration;

use ballast_guard::check::{Checker, Promise, Rules, Violation};
use ballast_guard::{ComplianceLog, GuardSettings, Holding};
use ballast_model::{
    Action, Budget, Bytes, CheckedGuest, Generation, GuestId, GuestSample, GuestStats, Handover,
    HostSample, LeftGuest, LimitTable, LinkDown, LinkState, Measured, Plan, PolicyName,
    PressureLevel, ProcessId, Restart, Snapshot, Timestamp,
};

const PROCESS: ProcessId = ProcessId { pid: 7, start_ticks: 70 };

fn id(name: &str) -> GuestId {
    name.parse().unwrap()
}

fn guest(name: &str, holds_mib: u64) -> GuestSample {
    GuestSample {
        process: Some(PROCESS),
        allocation: Some(Measured::fresh(Bytes::mib(holds_mib))),
        boot_memory: Some(Bytes::gib(1)),
        resident: Some(Measured::fresh(Bytes::mib(holds_mib))),
        stats: Some(Measured::fresh(GuestStats {
            swap_out: Some(Bytes::mib(1)),
            ..GuestStats::default()
        })),
        ..GuestSample::unknown(id(name), LinkState::Up)
    }
}

fn down(name: &str) -> GuestSample {
    GuestSample::unknown(id(name), LinkState::Down(LinkDown::Connecting))
}

/// `a` had this target, and held 300 MiB.
fn left(target_mib: u64) -> LeftGuest {
    LeftGuest {
        process: PROCESS,
        held: Some(Bytes::mib(300)),
        target: Some(Bytes::mib(target_mib)),
        regret: None,
        handover: Handover::nothing(id("a")),
    }
}

/// The faults of granting 100 MiB to `b`, which holds 500 MiB, on a budget of 1,000 MiB, when `a`
/// was seen as given.
fn granting(left: Option<LeftGuest>, seen: [GuestSample; 2]) -> Vec<Violation> {
    ordering("b", 600, left, seen)
}

/// The same of ordering the guest `name` to hold `mib`.
fn ordering(
    name: &str,
    mib: u64,
    left: Option<LeftGuest>,
    seen: [GuestSample; 2],
) -> Vec<Violation> {
    let host = HostSample {
        memory_total: Some(Bytes::gib(16)),
        memory_available: Some(Bytes::gib(8)),
        ..HostSample::default()
    };
    let mut checker = Checker::default();
    let guests = Vec::from_iter(left.clone());
    checker.restore(&Restart { guests, ..Restart::default() });
    // The plan keeps the cap.
    let kept = |left: LeftGuest| {
        let cap = Some(left.handover.resident_cap?);
        Some(Promise { guest: id("a"), entitled: None, asked: None, cap })
    };
    let promises = Vec::from_iter(left.and_then(kept));
    let mut latest = None;
    for (second, a) in (1..).step_by(8).zip(seen) {
        let at = Timestamp::from_millis(second * 1000);
        let snapshot = Snapshot::new(at, host.clone(), vec![a, guest("b", 500)]);
        checker.observe(&snapshot, &LimitTable::default());
        latest = Some(snapshot);
    }
    let snapshot = latest.unwrap();
    let plan = Plan {
        generation: Generation(7),
        decided_at: snapshot.taken_at,
        policy: PolicyName::Global,
        budget: Budget::default(),
        guests: vec![],
        actions: vec![Action {
            guest: id(name),
            target: Bytes::mib(mib),
            plug: None,
            generation: Generation(7),
            deadline: snapshot.taken_at + Duration::from_secs(2),
        }],
        paging: vec![],
        host_pressure: PressureLevel::Normal,
        reservations: Vec::new(),
        notes: vec![],
    };
    let rules = Rules {
        budget: Some(Bytes::mib(1000)),
        host_reserve: Bytes::gib(1),
        stale_after: Duration::from_secs(10),
        step_up_max: None,
        step_down_max: None,
        limits: &LimitTable::default(),
    };
    checker.check(&plan, &promises, &snapshot, &rules)
}

fn too_much(free_mib: u64) -> Vec<Violation> {
    vec![Violation::Overcommitted { granted: Bytes::mib(100), free: Bytes::mib(free_mib) }]
}

#[test]
fn what_was_promised_is_not_free() {
    let seen = || [guest("a", 300), guest("a", 300)];
    assert_eq!(granting(None, seen()), []);
    assert_eq!(granting(Some(left(400)), seen()), []);
    assert_eq!(granting(Some(left(450)), seen()), too_much(50));
    let mut plugging = left(350);
    plugging.handover.transient_grant = Bytes::mib(120);
    assert_eq!(granting(Some(plugging), seen()), too_much(30));
}

#[test]
fn a_guest_whose_link_is_down_keeps_its_promise() {
    assert_eq!(granting(Some(left(450)), [down("a"), down("a")]), too_much(50));
    assert_eq!(granting(Some(left(450)), [down("a"), guest("a", 300)]), too_much(50));
    let mut holding = left(100);
    holding.held = Some(Bytes::mib(460));
    assert_eq!(granting(Some(holding), [down("a"), down("a")]), too_much(40));
}

#[test]
fn another_process_was_promised_nothing() {
    let another = || GuestSample {
        process: Some(ProcessId { start_ticks: 71, ..PROCESS }),
        ..guest("a", 300)
    };
    assert_eq!(granting(Some(left(450)), [another(), another()]), []);
    // It is found only once its link is up, and is a newcomer then.
    assert_eq!(granting(Some(left(450)), [down("a"), another()]), too_much(0));
}

#[test]
fn a_cap_that_is_in_force_counts() {
    let mut capped = left(700);
    capped.handover.resident_cap = Some(Bytes::mib(350));
    let holds =
        || GuestSample { resident: Some(Measured::fresh(Bytes::mib(340))), ..guest("a", 700) };
    assert_eq!(granting(Some(capped), [holds(), holds()]), []);
    assert_eq!(granting(Some(left(700)), [holds(), holds()]), too_much(0));
}

#[test]
fn what_a_guest_was_releasing_is_still_its_own() {
    let mut releasing = left(300);
    releasing.handover.granted_lately = Some(Bytes::mib(1000));
    let seen = || [guest("a", 900), guest("a", 900)];
    assert_eq!(ordering("a", 850, Some(releasing), seen()), []);
    let granted = Bytes::mib(850 - 300 - 4);
    let too_much = vec![Violation::Overcommitted { granted, free: Bytes::ZERO }];
    assert_eq!(ordering("a", 850, Some(left(300)), seen()), too_much, "it had complied");
}

#[test]
fn the_checkers_own_record_counts_before_the_guards() {
    let seen = || [guest("a", 300), guest("a", 300)];
    let mut forgotten = left(350);
    forgotten.handover.checked =
        Some(CheckedGuest { target: Some(Bytes::mib(450)), ..CheckedGuest::default() });
    assert_eq!(granting(Some(forgotten.clone()), seen()), too_much(50));
    forgotten.handover.checked = None;
    assert_eq!(granting(Some(forgotten), seen()), []);
}

#[test]
fn a_handover_has_what_the_guard_forgot() {
    let mut checker = Checker::default();
    checker.restore(&Restart { guests: vec![left(450)], ..Restart::default() });
    let at = Timestamp::from_millis(1000);
    let snapshot = Snapshot::new(at, HostSample::default(), vec![guest("a", 300)]);
    checker.observe(&snapshot, &LimitTable::default());
    let added = |held, target, change: fn(&mut Handover)| {
        let mut handover = Handover::nothing(id("a"));
        change(&mut handover);
        checker.hand_over(0, Some(Bytes::mib(held)), Some(Bytes::mib(target)), &mut handover);
        handover.checked
    };
    let same = |_: &mut Handover| {};
    assert_eq!(added(300, 450, same), None);
    assert_eq!(added(310, 450, same), None, "nobody loses by that");
    let (held, target) = (Some(Bytes::mib(300)), Some(Bytes::mib(450)));
    let own = CheckedGuest { held, target, granted: target, ..CheckedGuest::default() };
    assert_eq!(added(290, 450, same), Some(own));
    assert_eq!(added(300, 400, same), Some(own));
    assert_eq!(added(300, 450, |it| it.granted = Some(Bytes::mib(500))), Some(own));
    assert_eq!(added(300, 450, |it| it.granted_lately = Some(Bytes::mib(500))), Some(own));
    assert_eq!(added(300, 450, |it| it.transient_grant = Bytes::mib(64)), Some(own));
    assert_eq!(added(300, 450, |it| it.resident_cap = Some(Bytes::mib(400))), Some(own));
}

/// A guest's log, and what it hands over.
#[derive(Default)]
struct Logged {
    log: ComplianceLog,
    holding: Holding,
    second: u64,
}

impl Logged {
    fn holds(&mut self, mib: u64) {
        self.second += 1;
        let (sample, now) = (guest("a", mib), Timestamp::from_millis(self.second * 1000));
        self.holding.observe(&sample, now);
        self.log.observe(&sample, &self.holding, true, false, now, &GuardSettings::default());
    }

    fn handover(&self) -> Handover {
        let mut handover = Handover::nothing(id("a"));
        self.log.hand_over(&mut handover);
        handover
    }
}

#[test]
fn a_release_outlives_daemons_until_it_is_done() {
    let mut logged = Logged::default();
    logged.holds(800);
    for target in [800, 300] {
        logged.log.record_target(Bytes::mib(target), true);
        logged.holds(800);
    }
    for holds in [700, 600] {
        let handover = logged.handover();
        assert_eq!(handover.granted_lately, Some(Bytes::mib(800)), "{holds}");
        logged = Logged { second: logged.second, ..Logged::default() };
        let left = LeftGuest { handover, ..left(300) };
        logged.log.restore(&left, Timestamp::from_millis(logged.second * 1000));
        logged.holds(holds);
    }
    assert_eq!(logged.handover().granted_lately, Some(Bytes::mib(800)));
    logged.holds(300);
    assert_eq!(logged.handover(), Handover::nothing(id("a")), "it has given everything");
}
