//! The checker finds every kind of bad plan, and no fault in a good one.

use std::collections::BTreeMap;
use std::time::Duration;

use ballast_guard::check::{Checker, Promise, Rules, Violation};
use ballast_model::{
    Action, AgentReport, Budget, Bytes, Change, Compliance, Generation, GuestId, GuestLimits,
    GuestPlan, GuestSample, GuestStats, HoldReason, HostSample, Hotplug, HotplugKind, LimitTable,
    LinkDown, LinkState, Measured, Mechanism, MemoryRoom, Mode, Paging, Plan, PolicyName,
    PressureLevel, ProcessId, Reservation, RunState, Snapshot, Timestamp,
};
use proptest::prelude::*;

fn id(name: &str) -> GuestId {
    name.parse().unwrap()
}

fn guest(name: &str, holds_mib: u64) -> GuestSample {
    GuestSample {
        allocation: Some(Measured::fresh(Bytes::mib(holds_mib))),
        boot_memory: Some(Bytes::gib(1)),
        resident: Some(Measured::fresh(Bytes::mib(holds_mib))),
        // It has been seen to write to swap.
        stats: Some(Measured::fresh(GuestStats {
            swap_out: Some(Bytes::mib(1)),
            ..GuestStats::default()
        })),
        ..GuestSample::unknown(id(name), LinkState::Up)
    }
}

/// What the checker learned of a guest before the plan.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    /// The target that a plan gave it.
    target: Option<Bytes>,
    /// The cap that a plan put on its process.
    cap: Option<Bytes>,
    /// What it held then, if not what it holds now.
    held: Option<Bytes>,
}

/// A case under construction: two guests with 512 MiB each, a budget of 1,100 MiB, an empty plan.
struct Case {
    guests: Vec<GuestSample>,
    available: Bytes,
    actions: Vec<Action>,
    paging: Vec<Paging>,
    promises: Vec<Promise>,
    limits: BTreeMap<GuestId, GuestLimits>,
    past: BTreeMap<GuestId, Past>,
    step: Option<Bytes>,
    /// The reservations in force, and those that the plan lists.
    reserved: Vec<Reservation>,
    listed: Vec<Reservation>,
    paused: bool,
    mode: Mode,
}

impl Case {
    fn new() -> Self {
        Case {
            guests: vec![guest("a", 512), guest("b", 512)],
            available: Bytes::gib(8),
            actions: Vec::new(),
            paging: Vec::new(),
            promises: Vec::new(),
            limits: BTreeMap::new(),
            past: ["a", "b"].into_iter().map(|name| (id(name), Past::default())).collect(),
            step: None,
            reserved: Vec::new(),
            listed: Vec::new(),
            paused: false,
            mode: Mode::Balance,
        }
    }

    fn act(mut self, name: &str, mib: u64) -> Self {
        self.actions.push(Action {
            guest: id(name),
            target: Bytes::mib(mib),
            plug: None,
            generation: Generation(7),
            deadline: Timestamp::from_millis(9000),
        });
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Case)) -> Self {
        change(&mut self);
        self
    }

    /// A checker that has seen the past and carried out its plan.
    fn checker(&self) -> Checker {
        let mut checker = Checker::default();
        let then = Timestamp::from_millis(1000);
        let mut guests = self.guests.clone();
        guests.retain(|guest| self.past.contains_key(&guest.id));
        for guest in &mut guests {
            let held = self.past[&guest.id].held.map(Measured::fresh);
            guest.allocation = held.or(guest.allocation);
            if held.is_some() {
                guest.link = LinkState::Up;
            }
        }
        let planned = guests.iter().map(|guest| planned(&guest.id, self.past[&guest.id])).collect();
        let promises: Vec<Promise> =
            self.past.iter().filter_map(|(id, past)| Some(capped(id, past.cap?))).collect();
        let snapshot = Snapshot::new(then, HostSample::default(), guests);
        checker.observe(&snapshot, &self.limits());
        checker.commit(&plan(Generation(6), then, planned), &promises);
        checker
    }

    fn limits(&self) -> LimitTable {
        LimitTable { named: self.limits.clone(), ..LimitTable::default() }
    }

    fn check(self) -> Vec<Violation> {
        let limits = self.limits();
        let mut checker = self.checker();
        checker.set_paused(self.paused);
        checker.set_mode(self.mode);
        self.reserved.iter().for_each(|it| checker.reserve(it));
        let host = host(self.available);
        let planned = self.guests.iter().map(|guest| planned(&guest.id, Past::default())).collect();
        let snapshot = Snapshot::new(Timestamp::from_millis(8000), host, self.guests);
        let plan = Plan {
            actions: self.actions,
            paging: self.paging,
            reservations: self.listed,
            ..plan(Generation(7), snapshot.taken_at, planned)
        };
        let rules = Rules { step_up_max: self.step, step_down_max: self.step, ..rules(&limits) };
        checker.observe(&snapshot, &limits);
        checker.check(&plan, &self.promises, &snapshot, &rules)
    }
}

/// A budget of 1,100 MiB, without limits to steps.
fn rules(limits: &LimitTable) -> Rules<'_> {
    Rules {
        budget: Some(Bytes::mib(1100)),
        host_reserve: Bytes::gib(1),
        stale_after: Duration::from_secs(10),
        step_up_max: None,
        step_down_max: None,
        limits,
    }
}

fn host(available: Bytes) -> HostSample {
    HostSample {
        memory_total: Some(Bytes::gib(16)),
        memory_available: Some(available),
        ..HostSample::default()
    }
}

fn plan(generation: Generation, decided_at: Timestamp, guests: Vec<GuestPlan>) -> Plan {
    Plan {
        generation,
        decided_at,
        policy: PolicyName::Global,
        budget: Budget::default(),
        guests,
        actions: Vec::new(),
        paging: Vec::new(),
        host_pressure: PressureLevel::Normal,
        reservations: Vec::new(),
        notes: Vec::new(),
    }
}

fn planned(id: &GuestId, past: Past) -> GuestPlan {
    GuestPlan {
        id: id.clone(),
        allocation: None,
        bounds: None,
        estimate: None,
        desired: None,
        clamps: Vec::new(),
        credits: None,
        compliance: Compliance::Compliant,
        target: past.target,
        change: match past.target {
            Some(_) => Change::Grow { by: Bytes::ZERO },
            None => Change::Hold(HoldReason::OnTarget),
        },
        moves: Vec::new(),
        balloon_rate: None,
        regret: None,
    }
}

fn capped(id: &GuestId, cap: Bytes) -> Promise {
    Promise { guest: id.clone(), entitled: None, asked: None, cap: Some(cap) }
}

fn page_out(name: &str, mib: u64) -> Paging {
    Paging {
        guest: id(name),
        mechanism: Mechanism::PageOut,
        resident: Bytes::mib(mib),
        generation: Generation(7),
        deadline: Timestamp::from_millis(9000),
    }
}

#[test]
fn good_plans_pass() {
    assert_eq!(Case::new().check(), []);
    assert_eq!(Case::new().act("b", 400).act("a", 588).check(), [], "what is free already");
    let shrinking = Case::new().with(|c| {
        c.past.entry(id("b")).or_default().target = Some(Bytes::mib(200));
        c.guests[1].stats = None;
    });
    assert_eq!(shrinking.act("b", 512).check(), [], "calling a reduction off on no figures");
}

#[test]
fn without_swap_nothing_that_a_guest_uses_can_be_taken() {
    let check = |target, reports: &dyn Fn(&mut GuestSample), swap| {
        let case = Case::new().with(|c| {
            let stats = GuestStats { available: Some(Bytes::mib(112)), ..GuestStats::default() };
            c.guests[0].stats = Some(Measured::fresh(stats));
            reports(&mut c.guests[0]);
            c.limits.insert(id("a"), GuestLimits { swap, ..GuestLimits::default() });
        });
        let found = case.act("a", target).check();
        assert!(matches!(found[..], [] | [Violation::BelowUse { .. }]), "{found:?}");
        found.is_empty()
    };
    let is_silent = |_: &mut GuestSample| {};
    let has_swapped = |guest: &mut GuestSample| {
        guest.stats.as_mut().unwrap().value.swap_out = Some(Bytes::mib(1));
    };
    let says_swap = |guest: &mut GuestSample| {
        let report = AgentReport { swap_free: Some(Bytes::mib(50)), ..AgentReport::default() };
        guest.agent = Some(Box::new(Measured::fresh(report)));
    };
    assert!(check(400, &is_silent, None) && !check(399, &is_silent, None));
    assert!(check(200, &is_silent, Some(true)) && !check(399, &has_swapped, Some(false)));
    assert!(check(200, &has_swapped, None));
    assert!(check(350, &says_swap, None) && !check(349, &says_swap, None));
}

#[test]
fn memory_still_held_or_promised_cannot_be_granted() {
    let overcommitted = |found: &[Violation]| matches!(found, [Violation::Overcommitted { .. }]);
    assert!(overcommitted(&Case::new().act("b", 300).act("a", 700).check()), "not released yet");
    let promised = Case::new().with(|c| {
        c.past.entry(id("b")).or_default().target = Some(Bytes::mib(580));
    });
    assert!(overcommitted(&promised.act("a", 540).check()), "promised to b");
    let gone = Case::new().with(|c| {
        c.guests[1] = GuestSample::unknown(id("b"), LinkState::Down(LinkDown::Refused));
        c.past.entry(id("b")).or_default().held = Some(Bytes::mib(512));
    });
    assert!(overcommitted(&gone.act("a", 700).check()), "b cannot be seen, but was");
    let host = Case::new().with(|c| c.available = Bytes::gib(1) + Bytes::mib(10));
    assert!(overcommitted(&host.act("a", 540).check()), "the host's reserve");
    let untouched = Case::new().with(|c| {
        c.available = Bytes::gib(1) + Bytes::mib(100);
        c.guests[1].resident = Some(Measured::fresh(Bytes::mib(412)));
    });
    assert!(overcommitted(&untouched.act("a", 520).check()), "b may touch the rest any time");
    let new = Case::new().with(|c| {
        c.past.remove(&id("b"));
    });
    assert!(overcommitted(&new.act("a", 540).check()), "b has just been found");
    let blind = Case::new().with(|c| c.guests[1].resident = None);
    assert_eq!(blind.act("a", 540).check(), [], "a host with room for all of it");
}

/// Puts guests below a limit of 1 GiB that leaves them this, in MiB.
fn with_room(case: &mut Case, guests: &[usize], by: &str, left: u64) {
    for guest in guests {
        let (by, limit) = (by.to_owned(), Bytes::gib(1));
        case.guests[*guest].rooms.push(MemoryRoom { by, limit, left: Bytes::mib(left) });
    }
}

#[test]
fn no_more_is_granted_than_limits_leave() {
    // Each may hold 512 MiB; the budget has room for 76 MiB more.
    let check = |rooms: &[(&[usize], u64)], a: u64, b: u64, resident: u64| {
        let mut case = Case::new();
        for (at, (guests, left)) in rooms.iter().enumerate() {
            with_room(&mut case, guests, &format!("{at}/memory.max"), *left);
        }
        case.guests[1].resident = Some(Measured::fresh(Bytes::mib(resident)));
        case.act("a", a).act("b", b).check()
    };
    let beyond = |found: &[Violation], room: &str| matches!(found, [Violation::BeyondRoom { by, .. }] if *by == format!("{room}/memory.max"));
    assert_eq!(check(&[(&[0, 1], 76)], 550, 550, 512), []);
    assert!(beyond(&check(&[(&[0, 1], 75)], 550, 550, 512), "0"), "together");
    assert_eq!(check(&[(&[0], 38), (&[1], 38)], 550, 550, 512), [], "each alone");
    assert!(beyond(&check(&[(&[0], 38), (&[1], 37)], 550, 550, 512), "1"));
    assert_eq!(check(&[(&[0, 1], 88)], 550, 512, 462), []);
    assert!(beyond(&check(&[(&[0, 1], 87)], 550, 512, 462), "0"), "b may fill 50 MiB more");
    assert_eq!(check(&[(&[0, 1], 0)], 512, 512, 512), [], "nothing is granted");
    assert_eq!(check(&[(&[1], 0)], 550, 512, 512), [], "another guest's limit");
}

#[test]
fn a_raised_cap_takes_room_too() {
    let raise_cap = |left: u64| {
        let mut case = Case::new().with(with_cap);
        with_room(&mut case, &[0], "memory.max", left);
        case.promises.push(capped(&id("a"), Bytes::mib(500)));
        case.check()
    };
    assert_eq!(raise_cap(100), []);
    assert!(matches!(raise_cap(99)[..], [Violation::BeyondRoom { .. }]));
}

#[test]
fn a_newcomer_that_can_take_no_more_delays_no_grant() {
    type Change = fn(&mut Case);
    let check = |change: Change| {
        let whole = |c: &mut Case| {
            c.past.remove(&id("b"));
            c.guests[1].boot_memory = Some(Bytes::mib(512));
        };
        Case::new().with(whole).with(change).act("a", 540).check()
    };
    assert_eq!(check(|_| {}), []);
    let changes: [(&str, Change); 3] = [
        ("memory can be plugged in", |c| {
            c.guests[1].hotplug = Some(Hotplug {
                kind: HotplugKind::Dimm,
                plugged: Bytes::ZERO,
                requested: Bytes::ZERO,
                max: Bytes::mib(128),
                block: Bytes::mib(128),
            });
        }),
        ("it does not answer", |c| c.guests[1].link = LinkState::Down(LinkDown::Taken)),
        ("what it holds is not known", |c| c.guests[1].allocation = None),
    ];
    for (why, change) in changes {
        assert!(matches!(check(change)[..], [Violation::Overcommitted { .. }]), "{why}");
    }
}

#[test]
fn floors_ceilings_and_steps_hold() {
    assert!(matches!(Case::new().act("a", 100).check()[..], [Violation::BelowFloor { .. }]));
    let ceiling = |c: &mut Case| {
        let limits = GuestLimits { ceiling: Some(Bytes::mib(520)), ..GuestLimits::default() };
        c.limits.insert(id("a"), limits);
    };
    let found = Case::new().with(ceiling).act("a", 530).check();
    assert!(matches!(found[..], [Violation::AboveCeiling { .. }]), "{found:?}");
    // It may keep what it holds, even where the host caps its process below that.
    let bounded = |c: &mut Case| {
        ceiling(c);
        c.guests[0] = guest("a", 540);
        c.guests[0].resident = Some(Measured::fresh(Bytes::mib(400)));
        c.past.insert(id("a"), Past { cap: Some(Bytes::mib(400)), ..Past::default() });
    };
    assert_eq!(Case::new().with(bounded).act("a", 540).check(), []);
    let found = Case::new().with(bounded).act("a", 541).check();
    assert!(matches!(found[..], [Violation::AboveCeiling { .. }, ..]), "{found:?}");
    let stepped = |mib| Case::new().with(|c| c.step = Some(Bytes::mib(32))).act("a", mib).check();
    assert_eq!(stepped(480), []);
    assert_eq!(stepped(479), [Violation::StepTooLarge(id("a"))]);
    assert_eq!(stepped(545), [Violation::StepTooLarge(id("a"))]);
}

#[test]
fn steps_are_measured_from_what_the_host_sees() {
    let hiding = |c: &mut Case| {
        c.step = Some(Bytes::mib(32));
        c.guests[0] = GuestSample {
            allocation: Some(Measured::fresh(Bytes::mib(200))),
            overhead: Some(Bytes::ZERO),
            ..guest("a", 516)
        };
    };
    // 516 MiB are resident; 16 of these may be the hypervisor's.
    assert_eq!(Case::new().with(hiding).act("a", 500).check(), []);
    let found = Case::new().with(hiding).act("a", 533).check();
    assert_eq!(found, [Violation::StepTooLarge(id("a"))]);
}

/// Of 1,100 MiB, one guest has 512, and one that holds 540 is capped at 400.
fn with_cap(case: &mut Case) {
    case.guests[0] = guest("a", 540);
    case.guests[0].resident = Some(Measured::fresh(Bytes::mib(400)));
    case.past.insert(id("a"), Past { cap: Some(Bytes::mib(400)), ..Past::default() });
}

#[test]
fn raising_a_cap_is_a_grant() {
    let raise_cap = |next: u64, grown: u64| {
        let mut case = Case::new().with(with_cap).act("b", grown);
        case.promises.push(capped(&id("a"), Bytes::mib(next)));
        case.check()
    };
    assert_eq!(raise_cap(500, 600), []);
    let [Violation::Overcommitted { granted, free }] = raise_cap(500, 601)[..] else {
        panic!("{:?}", raise_cap(500, 601))
    };
    assert_eq!((granted, free), (Bytes::mib(189), Bytes::mib(188)));
    assert_eq!(raise_cap(4000, 560), [], "more than it holds it cannot take");
    assert_eq!(raise_cap(392, 700), [], "to hold it to less frees nothing yet");
}

/// A guest that was asked to hold 541 MiB and holds 540 is capped at 400. What it may take up to
/// 541 counts once when the cap is raised.
#[test]
fn what_a_raised_cap_frees_counts_once() {
    let grant = |target: u64| {
        let mut case = Case::new().with(with_cap).act("a", target);
        let past = case.past.get_mut(&id("a")).unwrap();
        (past.target, past.held) = (Some(Bytes::mib(541)), Some(Bytes::mib(540)));
        case.promises.push(capped(&id("a"), Bytes::mib(target + 64)));
        case.check()
    };
    // 188 MiB are free besides the 400 and the other guest's 512.
    assert_eq!(grant(588), []);
    let found = grant(589);
    let [Violation::Overcommitted { granted, free }] = found[..] else { panic!("{found:?}") };
    assert_eq!((granted, free), (Bytes::mib(189), Bytes::mib(188)));
}

proptest! {
    /// Memory freed by a cap is available to no guest in the plan that ends the cap.
    #[test]
    fn no_grant_relies_on_a_cap_that_ends(
        holds in 100_u64..800,
        resident_percent in 10_u64..=100,
        cap in 64_u64..800,
        grown in 1_u64..600,
        ends: bool,
    ) {
        let resident = holds * resident_percent / 100;
        let mut case = Case::new().act("b", 512 + grown);
        case.guests[0] = guest("a", holds);
        case.guests[0].resident = Some(Measured::fresh(Bytes::mib(resident)));
        case.past.insert(id("a"), Past { cap: Some(Bytes::mib(cap)), ..Past::default() });
        if !ends {
            case.promises.push(capped(&id("a"), Bytes::mib(cap)));
        }
        let counts = if ends { holds } else { holds.min(resident.max(cap)) };
        let free = (1100_u64 - 512).saturating_sub(counts);
        let found = case.check();
        let is_found = found.iter().any(|it| matches!(it, Violation::Overcommitted { .. }));
        prop_assert_eq!(is_found, grown > free, "{} free: {:?}", free, found);
    }
}

proptest! {
    /// With a plan that is right otherwise, and with one that is not.
    #[test]
    fn while_observing_every_action_and_paging_is_refused(
        target in prop::option::of(100_u64..1200),
        resident in prop::option::of(100_u64..600),
    ) {
        let mut case = Case::new().with(|case| case.mode = Mode::Observe);
        if let Some(target) = target {
            case = case.act("a", target);
        }
        case.paging.extend(resident.map(|resident| page_out("b", resident)));
        let found = case.check();
        let refused = found.iter().filter(|it| **it == Violation::WhileObserving).count();
        prop_assert_eq!(refused, usize::from(target.is_some()) + usize::from(resident.is_some()));
    }
}

#[test]
fn a_cap_is_believed_only_while_it_is_enforced() {
    let check = |resident: u64, paging: Option<Paging>| {
        let mut case = Case::new().with(with_cap);
        case.guests[0].resident = Some(Measured::fresh(Bytes::mib(resident)));
        case.promises.push(capped(&id("a"), Bytes::mib(300)));
        case.paging.extend(paging);
        case.check()
    };
    assert_eq!(check(308, None), []);
    assert_eq!(check(400, Some(page_out("a", 300))), []);
    let unenforced = |found: &[Violation]| matches!(found, [Violation::CapNotEnforced { .. }]);
    assert!(unenforced(&check(309, None)));
    assert!(unenforced(&check(400, Some(page_out("a", 301)))), "not as far as promised");
    assert!(unenforced(&check(400, Some(page_out("b", 300)))), "another guest");
}

/// Memory for the guest `new` until the tenth second.
fn reservation(mib: u64) -> Reservation {
    let until = Timestamp::from_millis(10_000);
    Reservation { guest: id("new"), size: Bytes::mib(mib), until, free: Bytes::ZERO }
}

#[test]
fn reserved_memory_is_granted_to_no_guest() {
    let check = |mib| {
        let reserved = vec![reservation(mib)];
        let case = Case { reserved: reserved.clone(), listed: reserved, ..Case::new() };
        case.act("b", 400).act("a", 588).check()
    };
    assert_eq!(check(0), []);
    assert!(matches!(check(1)[..], [Violation::Overcommitted { .. }]));
}

#[test]
fn a_plan_lists_the_reservations_in_force() {
    let check = |listed| {
        Case { reserved: vec![reservation(50)], listed, ..Case::new() }.act("a", 500).check()
    };
    assert_eq!(check(vec![reservation(50)]), []);
    assert_eq!(check(vec![reservation(49)]), [Violation::OtherReservations]);
    assert_eq!(check(Vec::new()), [Violation::OtherReservations]);
}

#[test]
fn reservations_end_with_time_on_request_and_on_arrival() {
    let new =
        || GuestSample { process: Some(ProcessId { pid: 7, start_ticks: 70 }), ..guest("new", 40) };
    // Two guests hold 512 MiB each, and 60 are reserved.
    let grant = |mib: u64, seconds: u64, third: Option<GuestSample>, end: fn(&mut Checker)| {
        let case = Case::new().act("b", 512 + mib);
        let mut checker = case.checker();
        checker.reserve(&reservation(60));
        end(&mut checker);
        let mut guests = case.guests.clone();
        guests.extend(third);
        let mut found = Vec::new();
        for second in [seconds - 3, seconds] {
            let at = Timestamp::from_millis(second * 1000);
            let snapshot = Snapshot::new(at, host(Bytes::gib(8)), guests.clone());
            checker.observe(&snapshot, &LimitTable::default());
            let lines = guests.iter().map(|it| planned(&it.id, Past::default())).collect();
            let mut plan = plan(Generation(7), at, lines);
            plan.actions = case.actions.clone();
            plan.actions[0].deadline = at + Duration::from_secs(1);
            found = checker.check(&plan, &[], &snapshot, &rules(&LimitTable::default()));
        }
        found
    };
    let keeps = |_: &mut Checker| {};
    let in_force = |found: Vec<Violation>| found.contains(&Violation::OtherReservations);
    assert!(in_force(grant(16, 9, None, keeps)));
    assert_eq!(grant(76, 9, None, |checker| checker.unreserve(&id("new"))), []);
    assert_eq!(grant(76, 10, None, keeps), [], "it has expired");
    // The guest may still take what it does not hold of that.
    assert_eq!(grant(16, 9, Some(new()), keeps), []);
    let too_much = grant(17, 9, Some(new()), keeps);
    assert!(matches!(too_much[..], [Violation::Overcommitted { .. }]), "{too_much:?}");
}

#[test]
fn a_guest_may_keep_what_a_plan_entitled_it_to() {
    let check = |entitled: Option<u64>| {
        let case = Case::new().act("a", 540);
        let mut checker = case.checker();
        let now = Timestamp::from_millis(2000);
        let host = host(Bytes::gib(8));
        let entitled = entitled.map(|mib| Promise {
            guest: id("b"),
            entitled: Some(Bytes::mib(mib)),
            asked: None,
            cap: None,
        });
        let lines = || case.guests.iter().map(|it| planned(&it.id, Past::default())).collect();
        checker.commit(&plan(Generation(6), now, lines()), entitled.as_slice());
        let snapshot = Snapshot::new(Timestamp::from_millis(8000), host, case.guests.clone());
        checker.observe(&snapshot, &LimitTable::default());
        let plan = Plan {
            actions: case.actions.clone(),
            ..plan(Generation(7), snapshot.taken_at, lines())
        };
        checker.check(&plan, &[], &snapshot, &rules(&LimitTable::default()))
    };
    assert_eq!(check(None), []);
    assert_eq!(check(Some(560)), []);
    assert!(matches!(check(Some(561))[..], [Violation::Overcommitted { .. }]));
}

#[test]
fn hotplug_stays_within_its_device_and_never_opposes_the_balloon() {
    let hotplug = |plugged, requested| Hotplug {
        kind: HotplugKind::VirtioMem,
        plugged: Bytes::mib(plugged),
        requested: Bytes::mib(requested),
        max: Bytes::mib(256),
        block: Bytes::mib(2),
    };
    // `a` holds 512 MiB of its GiB; 76 MiB more can be granted.
    let check = |plugged, requested, target, plug| {
        let with = |c: &mut Case| c.guests[0].hotplug = Some(hotplug(plugged, requested));
        let mut case = Case::new().with(with).act("a", target);
        case.actions[0].plug = Some(Bytes::mib(plug));
        case.check()
    };
    assert_eq!(check(0, 0, 576, 64), [], "plugged in, the balloon as it is");
    assert_eq!(check(0, 0, 588, 64), [], "both give");
    assert_eq!(check(64, 64, 448, 0), [], "pulled out, the balloon as it is");
    assert_eq!(check(64, 64, 440, 0), [], "both take");
    let against = [Violation::PlugAgainstBalloon(id("a"))];
    assert_eq!(
        check(0, 0, 512, 64),
        against,
        "the balloon takes what is plugged in before it is there"
    );
    assert_eq!(
        check(64, 64, 512, 0),
        against,
        "the balloon gives before what is pulled out has gone"
    );
    assert_eq!(check(64, 0, 512, 64), [], "a pull that is called off");
    let impossible =
        |found: Vec<Violation>| matches!(found[..], [Violation::PlugImpossible { .. }]);
    assert!(impossible(check(0, 0, 513, 1)), "half a block");
    assert_eq!(check(63, 63, 512, 63), [], "as it is, in devices of smaller blocks");
    assert_eq!(check(63, 63, 514, 65), [], "a whole block more");
    assert!(impossible(check(0, 0, 588, 258)), "more than there is");
    let mut none = Case::new().act("a", 512);
    none.actions[0].plug = Some(Bytes::ZERO);
    assert!(impossible(none.check()), "no device");
}

#[test]
fn paging_respects_floors_and_needs_fresh_figures() {
    let check = |change: fn(&mut Case), mib| {
        let mut case = Case::new().with(change);
        case.paging.push(page_out("a", mib));
        case.check()
    };
    assert_eq!(check(|_| {}, 300), []);
    assert!(matches!(check(|_| {}, 100)[..], [Violation::BelowFloor { .. }]));
    let stale = [Violation::OnStaleFigures(id("a"))];
    assert_eq!(check(|c| c.guests[0].stats = None, 300), stale);
    let old = |c: &mut Case| c.guests[0].stats.as_mut().unwrap().age = Duration::from_secs(11);
    assert_eq!(check(old, 300), stale);
    let ancient = |c: &mut Case| c.guests[0].stats.as_mut().unwrap().age = Duration::MAX;
    assert_eq!(check(ancient, 300), stale);
    assert_eq!(check(|c| c.paused = true, 300), [Violation::WhilePaused]);
    assert_eq!(check(|c| c.mode = Mode::Observe, 300), [Violation::WhileObserving]);
}

#[test]
fn guests_that_must_not_be_touched_are_not() {
    type Change = fn(&mut Case);
    let changes: [(&str, Change); 6] = [
        ("excluded by the operator", |c| {
            c.limits.insert(id("a"), GuestLimits { managed: false, ..GuestLimits::default() });
        }),
        ("unreachable", |c| c.guests[0].link = LinkState::Down(LinkDown::Taken)),
        ("not running", |c| c.guests[0].run_state = Some(RunState::Paused)),
        ("no balloon", |c| c.guests[0].capabilities.balloon = Some(false)),
        ("discard inhibited", |c| c.guests[0].capabilities.discard_inhibited = Some(true)),
        ("not running", |c| c.guests[0].run_state = Some(RunState::Panicked)),
    ];
    for (why, change) in changes {
        let found = Case::new().with(change).act("a", 400).check();
        assert_eq!(found, [Violation::Untouchable(id("a"), why)]);
    }
}

#[test]
fn a_reduction_of_a_pinned_guest_may_be_called_off() {
    let pinned = |c: &mut Case| {
        let past = Past { target: Some(Bytes::mib(400)), ..Past::default() };
        c.past.insert(id("a"), past);
        c.guests[0].capabilities.discard_inhibited = Some(true);
    };
    for (target, is_allowed) in [(399, false), (400, true), (512, true), (513, false)] {
        let found = Case::new().with(pinned).act("a", target).check();
        let untouchable = Violation::Untouchable(id("a"), "discard inhibited");
        let expected = if is_allowed { vec![] } else { vec![untouchable] };
        assert_eq!(found, expected, "{target}");
    }
}

#[test]
fn nothing_moves_on_missing_or_old_figures() {
    type Change = fn(&mut Case);
    let changes: [Change; 4] = [
        |c| c.guests[0].stats = None,
        |c| c.guests[0].stats.as_mut().unwrap().age = Duration::from_secs(11),
        |c| c.guests[0].allocation.as_mut().unwrap().age = Duration::from_secs(11),
        |c| c.guests[0].boot_memory = None,
    ];
    for change in changes {
        for mib in [400, 520] {
            let found = Case::new().with(change).act("a", mib).check();
            assert_eq!(found, [Violation::OnStaleFigures(id("a"))], "{mib}");
        }
    }
}

#[test]
fn form_is_checked_too() {
    assert_eq!(Case::new().act("x", 200).check(), [Violation::UnknownGuest(id("x"))]);
    assert_eq!(Case::new().act("a", 400).act("a", 300).check(), [Violation::Twice(id("a"))]);
    let found = Case::new().act("a", 540).act("b", 500).check();
    assert_eq!(found, [Violation::ReleaseAfterGrant(id("b"))]);
    assert_eq!(
        Case::new().with(|c| c.paused = true).act("a", 500).check(),
        [Violation::WhilePaused]
    );
    let both = Case::new().with(|c| (c.paused, c.mode) = (true, Mode::Observe)).act("a", 500);
    assert_eq!(both.check(), [Violation::WhileObserving]);
    let odd = Case::new().act("a", 500).with(|c| c.actions[0].target = Bytes::new((500 << 20) + 1));
    assert!(matches!(odd.check()[..], [Violation::NotWholePages(..)]));
    let late = Case::new().act("a", 500).with(|c| {
        c.actions[0].deadline = Timestamp::from_millis(8000);
    });
    assert_eq!(late.check(), [Violation::Malformed(id("a"))]);
    let old = Case::new().act("a", 500).with(|c| c.actions[0].generation = Generation(6));
    assert_eq!(old.check(), [Violation::Malformed(id("a"))]);
}
