//! The height of fences: around what a guest should hold, and never where they would do harm.

use std::time::Duration;

use ballast_actuation::fence::{FenceOrder, Fences, fences};
use ballast_actuation::paging::OVERHEAD;
use ballast_model::{
    Bounds, Budget, Bytes, Change, Compliance, Generation, GuestId, GuestLimits, GuestPlan,
    GuestSample, Handover, HoldReason, LimitTable, LinkState, Measured, Mechanism, Note, Paging,
    Plan, PolicyName, PressureLevel, ProcessId, RunState, Snapshot, Timestamp,
};
use proptest::prelude::*;

const FLOOR: Bytes = Bytes::mib(128);
const BOOT: Bytes = Bytes::gib(1);

/// One guest of a GiB, and the plan for it.
#[derive(Clone, Debug)]
struct Case {
    sample: GuestSample,
    planned: GuestPlan,
    handovers: Vec<Handover>,
    paging: Vec<Paging>,
    notes: Vec<Note>,
    limits: GuestLimits,
    paused: bool,
}

fn id() -> GuestId {
    "a".parse().unwrap()
}

/// A guest that holds what it should.
fn compliant(target: Bytes) -> Case {
    let sample = GuestSample {
        run_state: Some(RunState::Running),
        allocation: Some(Measured::fresh(target)),
        boot_memory: Some(BOOT),
        process: Some(ProcessId { pid: 7, start_ticks: 70 }),
        ..GuestSample::unknown(id(), LinkState::Up)
    };
    let planned = GuestPlan {
        id: id(),
        allocation: Some(target),
        bounds: Some(Bounds { floor: FLOOR, ceiling: BOOT }),
        estimate: None,
        desired: None,
        clamps: vec![],
        credits: None,
        compliance: Compliance::Compliant,
        target: Some(target),
        change: Change::Hold(HoldReason::OnTarget),
        moves: vec![],
        balloon_rate: None,
        regret: None,
    };
    Case {
        sample,
        planned,
        handovers: vec![],
        paging: vec![],
        notes: vec![],
        limits: GuestLimits { fence: true, ..GuestLimits::default() },
        paused: false,
    }
}

impl Case {
    fn fences(self) -> Fences {
        let plan = Plan {
            generation: Generation(1),
            decided_at: Timestamp::ZERO,
            policy: PolicyName::Static,
            budget: Budget::default(),
            guests: vec![self.planned],
            actions: vec![],
            paging: self.paging,
            host_pressure: PressureLevel::Normal,
            reservations: Vec::new(),
            notes: self.notes,
        };
        let snapshot = Snapshot::new(Timestamp::ZERO, Default::default(), vec![self.sample]);
        let limits = LimitTable { default: self.limits, ..LimitTable::default() };
        fences(&snapshot, &plan, &self.handovers, &limits, self.paused)
    }

    /// The order for the guest, if there is one.
    fn order(self) -> Option<FenceOrder> {
        match self.fences() {
            Fences::Set(orders) => orders.into_iter().next(),
            Fences::Keep => panic!("kept"),
        }
    }

    /// Its height in MiB, and whether it takes memory.
    fn mib(self) -> Option<(u64, bool)> {
        self.order().map(|order| (order.height.get() >> 20, order.takes))
    }
}

#[test]
fn a_fence_stands_beyond_target_and_overhead() {
    // 64 MiB and an eighth for the hypervisor, 8 MiB for the kernel.
    let case = compliant(Bytes::mib(512));
    assert_eq!(case.clone().mib(), Some((512 + 64 + 128 + 8, false)));
    let order = case.order().unwrap();
    assert_eq!((order.guest, order.process.pid), (id(), 7));
}

#[test]
fn a_measured_overhead_counts_within_what_is_assumed() {
    for (measured, counted) in [(10, 64), (100, 116), (900, 192)] {
        let mut case = compliant(Bytes::mib(512));
        case.sample.overhead = Some(Bytes::mib(measured));
        assert_eq!(case.mib(), Some((512 + counted + 8, false)), "{measured}");
    }
}

#[test]
fn a_guest_that_is_releasing_is_not_fenced_in() {
    let mut case = compliant(Bytes::mib(256));
    case.planned.allocation = Some(Bytes::mib(700));
    let left = Bytes::mib(444);
    case.planned.compliance = Compliance::Releasing { left, idle: Duration::ZERO };
    assert_eq!(case.clone().mib(), Some((700 + 200, false)));
    case.planned.compliance = Compliance::Slow { left, asked: Duration::from_secs(30) };
    assert_eq!(case.mib(), Some((256 + 200, true)));
}

#[test]
fn a_stuck_guest_is_fenced_to_what_it_was_granted() {
    let mut case = compliant(Bytes::mib(700));
    case.planned.compliance = Compliance::Stuck { idle: Duration::from_secs(20) };
    let mut handover = Handover::nothing(id());
    handover.granted = Some(Bytes::mib(300));
    case.handovers = vec![handover];
    assert_eq!(case.mib(), Some((300 + 200, true)));
}

#[test]
fn a_paged_guest_owes_and_a_transient_grant_counts() {
    let mut case = compliant(Bytes::mib(512));
    let mut handover = Handover::nothing(id());
    handover.transient_grant = Bytes::mib(64);
    case.handovers = vec![handover];
    case.paging = vec![Paging {
        guest: id(),
        mechanism: Mechanism::PageOut,
        resident: Bytes::mib(576),
        generation: Generation(1),
        deadline: Timestamp::ZERO,
    }];
    assert_eq!(case.clone().mib(), Some((512 + 64 + 200, true)));
    case.paging[0].mechanism = Mechanism::PageIn;
    assert_eq!(case.mib(), Some((512 + 64 + 200, false)));
}

#[test]
fn a_guest_that_is_left_alone_gets_no_fence() {
    type Change = fn(&mut Case);
    let changes: [Change; 10] = [
        |case| case.limits.fence = false,
        |case| case.limits.managed = false,
        |case| case.paused = true,
        |case| case.planned.target = None,
        |case| case.planned.bounds = None,
        |case| case.sample.process = None,
        |case| case.sample.run_state = Some(RunState::Other("finish-migrate".to_owned())),
        |case| case.sample.capabilities.discard_inhibited = Some(true),
        |case| case.sample.capabilities.balloon = Some(false),
        |case| case.planned.compliance = Compliance::Inhibited,
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let mut case = compliant(Bytes::mib(512));
        assert!(case.clone().order().is_some());
        change(&mut case);
        assert_eq!(case.order(), None, "change {at}");
    }
}

#[test]
fn a_refused_plan_moves_no_fence() {
    let mut case = compliant(Bytes::mib(512));
    case.notes = vec![Note::Refused { violation: "a".to_owned() }];
    assert_eq!(case.fences(), Fences::Keep);
}

proptest! {
    /// A guest that keeps to its target, with a hypervisor that needs no more than is assumed,
    /// stays below its fence, and the fence is never below the floor.
    #[test]
    fn a_guest_at_its_target_stays_below_its_fence(
        target in 0..1024u64, own in 0..192u64, measured in any::<bool>(),
    ) {
        let mut case = compliant(Bytes::mib(target));
        case.sample.overhead = measured.then_some(Bytes::mib(own));
        let height = case.order().unwrap().height;
        let most = Bytes::mib(target + own).saturating_add(BOOT.fraction(1, 256));
        prop_assert!(height >= most, "{height} < {most}");
        prop_assert!(height >= FLOOR.saturating_add(OVERHEAD));
    }
}
