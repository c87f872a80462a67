//! The checker finds every kind of bad plan, and finds nothing wrong with a good one.

use std::collections::BTreeMap;
use std::time::Duration;

use ballast_guard::check::{Before, Rules, Violation, violations};
use ballast_model::{
    Action, AgentReport, Budget, Bytes, Generation, GuestId, GuestLimits, GuestSample, GuestStats,
    HostSample, Hotplug, HotplugKind, LinkDown, LinkState, Measured, Mechanism, Paging, Plan,
    PolicyName, RunState, Rung, Snapshot, Timestamp,
};

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

/// A guest known for long, without a target.
const SETTLED: Before = Before {
    bound_next: None,
    target: None,
    lent: Bytes::ZERO,
    bound: None,
    last_seen: None,
    known_for: Duration::from_secs(60),
};

/// A case in the making: two guests with 512 MiB each, a budget of 1,100 MiB, an empty plan.
struct Case {
    guests: Vec<GuestSample>,
    available: Bytes,
    actions: Vec<Action>,
    paging: Vec<Paging>,
    limits: BTreeMap<GuestId, GuestLimits>,
    before: BTreeMap<GuestId, Before>,
    step: Option<Bytes>,
    paused: bool,
}

impl Case {
    fn new() -> Self {
        Case {
            guests: vec![guest("a", 512), guest("b", 512)],
            available: Bytes::gib(8),
            actions: Vec::new(),
            paging: Vec::new(),
            limits: BTreeMap::new(),
            before: ["a", "b"].into_iter().map(|name| (id(name), SETTLED)).collect(),
            step: None,
            paused: false,
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

    fn check(self) -> Vec<Violation> {
        let host = HostSample {
            memory_total: Some(Bytes::gib(16)),
            memory_available: Some(self.available),
            ..HostSample::default()
        };
        let snapshot = Snapshot::new(Timestamp::from_millis(8000), host, self.guests);
        let plan = Plan {
            generation: Generation(7),
            decided_at: snapshot.taken_at,
            policy: PolicyName::Global,
            budget: Budget::default(),
            guests: Vec::new(),
            actions: self.actions,
            paging: self.paging,
            rung: Rung::Normal,
            notes: Vec::new(),
        };
        let rules = Rules {
            budget: Some(Bytes::mib(1100)),
            host_reserve: Bytes::gib(1),
            stale_after: Duration::from_secs(10),
            step_up_max: self.step,
            step_down_max: self.step,
            limits: &self.limits,
            limits_default: &GuestLimits::default(),
            before: &self.before.iter().map(|(id, before)| (id, *before)).collect::<Vec<_>>(),
            paused: self.paused,
        };
        violations(&plan, &snapshot, &rules)
    }
}

#[test]
fn good_plans_pass() {
    assert_eq!(Case::new().check(), []);
    assert_eq!(Case::new().act("b", 400).act("a", 588).check(), [], "what is free already");
    let shrinking = Case::new().with(|c| {
        c.before.entry(id("b")).or_default().target = Some(Bytes::mib(200));
        c.guests[1].stats = None;
    });
    assert_eq!(shrinking.act("b", 512).check(), [], "calling a reduction off on no figures");
}

#[test]
fn without_swap_nothing_that_a_guest_uses_can_be_taken() {
    let check = |target, told: &dyn Fn(&mut GuestSample), swap| {
        let case = Case::new().with(|c| {
            let stats = GuestStats { available: Some(Bytes::mib(112)), ..GuestStats::default() };
            c.guests[0].stats = Some(Measured::fresh(stats));
            told(&mut c.guests[0]);
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
        guest.agent = Some(Measured::fresh(report));
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
        c.before.entry(id("b")).or_default().target = Some(Bytes::mib(580));
    });
    assert!(overcommitted(&promised.act("a", 540).check()), "promised to b");
    let gone = Case::new().with(|c| {
        c.guests[1] = GuestSample::unknown(id("b"), LinkState::Down(LinkDown::Refused));
        c.before.entry(id("b")).or_default().last_seen = Some(Bytes::mib(512));
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
        c.before.remove(&id("b"));
    });
    assert!(overcommitted(&new.act("a", 540).check()), "b has just been found");
    let blind = Case::new().with(|c| c.guests[1].resident = None);
    assert_eq!(blind.act("a", 540).check(), [], "a host with room for all of it");
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
    // What it holds it may keep, also where the host holds its process to less.
    let bounded = |c: &mut Case| {
        ceiling(c);
        c.guests[0] = guest("a", 540);
        c.guests[0].resident = Some(Measured::fresh(Bytes::mib(400)));
        c.before.insert(id("a"), Before { bound: Some(Bytes::mib(400)), ..SETTLED });
    };
    assert_eq!(Case::new().with(bounded).act("a", 540).check(), []);
    let found = Case::new().with(bounded).act("a", 541).check();
    assert!(matches!(found[..], [Violation::AboveCeiling { .. }, ..]), "{found:?}");
    let stepped = |mib| Case::new().with(|c| c.step = Some(Bytes::mib(32))).act("a", mib).check();
    assert_eq!(stepped(480), []);
    assert_eq!(stepped(479), [Violation::StepTooLarge(id("a"))]);
    assert_eq!(stepped(545), [Violation::StepTooLarge(id("a"))]);
}

/// Of 1,100 MiB one has 512, and one that holds 540 is held to 400.
#[test]
fn to_hold_a_guest_to_more_is_to_grant_it_that() {
    let let_go = |next: u64, grown: u64| {
        let held_to_more = |c: &mut Case| {
            c.guests[0] = guest("a", 540);
            c.guests[0].resident = Some(Measured::fresh(Bytes::mib(400)));
            let (bound, bound_next) = (Some(Bytes::mib(400)), Some(Bytes::mib(next)));
            c.before.insert(id("a"), Before { bound, bound_next, ..SETTLED });
        };
        Case::new().with(held_to_more).act("b", grown).check()
    };
    assert_eq!(let_go(500, 600), []);
    let [Violation::Overcommitted { granted, free }] = let_go(500, 601)[..] else {
        panic!("{:?}", let_go(500, 601))
    };
    assert_eq!((granted, free), (Bytes::mib(189), Bytes::mib(188)));
    assert_eq!(let_go(4000, 560), [], "more than it holds it cannot take");
    assert_eq!(let_go(100, 700), [], "to hold it to less frees nothing yet");
}

#[test]
fn plugged_memory_moves_within_its_device_and_never_against_the_balloon() {
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
    assert!(impossible(check(0, 0, 588, 258)), "more than there is");
    let mut none = Case::new().act("a", 512);
    none.actions[0].plug = Some(Bytes::ZERO);
    assert!(impossible(none.check()), "no device");
}

#[test]
fn the_host_pages_out_nobody_below_its_floor_or_on_old_figures() {
    let check = |change: fn(&mut Case), mib| {
        let mut case = Case::new().with(change);
        case.paging.push(Paging {
            guest: id("a"),
            mechanism: Mechanism::PageOut,
            resident: Bytes::mib(mib),
            generation: Generation(7),
            deadline: Timestamp::from_millis(9000),
        });
        case.check()
    };
    assert_eq!(check(|_| {}, 300), []);
    assert!(matches!(check(|_| {}, 100)[..], [Violation::BelowFloor { .. }]));
    let stale = [Violation::OnStaleFigures(id("a"))];
    assert_eq!(check(|c| c.guests[0].stats = None, 300), stale);
    let old = |c: &mut Case| c.guests[0].stats.as_mut().unwrap().age = Duration::from_secs(11);
    assert_eq!(check(old, 300), stale);
    assert_eq!(check(|c| c.paused = true, 300), [Violation::WhilePaused]);
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
    let odd = Case::new().act("a", 500).with(|c| c.actions[0].target = Bytes::new((500 << 20) + 1));
    assert!(matches!(odd.check()[..], [Violation::NotWholePages(..)]));
    let late = Case::new().act("a", 500).with(|c| {
        c.actions[0].deadline = Timestamp::from_millis(8000);
    });
    assert_eq!(late.check(), [Violation::Malformed(id("a"))]);
    let old = Case::new().act("a", 500).with(|c| c.actions[0].generation = Generation(6));
    assert_eq!(old.check(), [Violation::Malformed(id("a"))]);
}
