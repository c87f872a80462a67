//! What the controller does in situations that an operator would recognise.

use std::time::Duration;

use crate::world::{Mood, ToyGuest, World, id, mib, settings};
use ballast_actuation::paging::OVERHEAD;
use ballast_control::{Event, Settings};
use ballast_model::{
    Bytes, Change, Clamped, Compliance, GuestLimits, HoldReason, Measured, Mechanism,
    MechanismReason, Mode, Note, Pinned, Plan, PolicyName, PressureLevel, RequestKind, RunState,
    Snapshot, Timestamp,
};

/// Two guests of 1 GiB, 512 MiB each, on a budget of 1 GiB.
fn two(policy: PolicyName) -> World {
    let guests = vec![ToyGuest::new("a", 1024, 512, 100), ToyGuest::new("b", 1024, 512, 100)];
    World::new(settings(policy, 1024), guests)
}

#[test]
fn memory_follows_demand_and_comes_back() {
    let mut world = two(PolicyName::Global);
    world.ticks(10);
    assert_eq!(world.holds(), [512, 512], "no guest is short: each has its part");
    world.guest("a").used = 750;
    world.ticks(20);
    let [a, b] = world.holds()[..] else { panic!() };
    assert!(a >= 830 && b <= 190, "idle memory went where it is used: {a} {b}");
    world.guest("a").used = 100;
    world.ticks(20);
    assert_eq!(world.holds(), [512, 512], "and came back");
}

#[test]
fn a_guest_that_says_nothing_grows_by_what_it_touches() {
    let mut world = two(PolicyName::Global);
    world.guest("a").mood = Mood::Unheard;
    world.ticks(20);
    assert_eq!(world.holds(), [512, 512]);
    let plan = world.tick();
    let a = plan.guest(&id("a")).unwrap();
    let alone = HoldReason::SampledAlone { working_set: Bytes::mib(100) };
    assert_eq!(a.change, Change::Hold(alone.clone()), "{alone}");
    world.guest("a").used = 750;
    world.ticks(60);
    let [grown, b] = world.holds()[..] else { panic!() };
    assert!((750..=890).contains(&grown) && b <= 1024 - grown, "{grown} {b}");
    world.guest("a").used = 100;
    world.guest("b").used = 400;
    world.ticks(60);
    assert_eq!(world.holds()[0], grown, "it does not say what of that it could give back");
    world.guest("a").mood = Mood::Willing;
    world.ticks(60);
    assert!(world.holds()[0] < grown - 100, "it says so itself: {:?}", world.holds());
}

#[test]
fn a_guest_that_fills_its_memory_does_not_wait() {
    // The policy decides every other tick.
    let ticks_until_decided = |before: u64| {
        let mut world = two(PolicyName::Global);
        world.ticks(before);
        world.guest("a").used = 700;
        let wanted = |plan: &Plan| plan.guest(&id("b")).unwrap().desired.as_ref().unwrap().target;
        (1..10).find(|_| wanted(&world.tick()) < Bytes::mib(512))
    };
    assert_eq!(ticks_until_decided(10), ticks_until_decided(11));
    assert!(ticks_until_decided(10).is_some());
}

#[test]
fn credits_outlive_a_change_of_policy_and_of_controller() {
    let without_tax = || {
        let mut settings = settings(PolicyName::Fcfs, 1024);
        settings.policy_settings.flexmemd.tax_basis_points = 0;
        // Requests are believed without evidence.
        settings.guard.believed_percent = 100_000;
        settings
    };
    let guests = || vec![ToyGuest::new("a", 1024, 512, 500), ToyGuest::new("b", 1024, 512, 100)];
    let credits = |plan: &Plan| -> Vec<u64> {
        plan.guests.iter().map(|guest| guest.credits.expect("credits")).collect()
    };
    let mut world = World::new(without_tax(), guests());
    world.ticks(2);
    world.guest("b").ask(RequestKind::Less, Bytes::mib(300));
    world.ticks(8);
    world.guest("a").ask(RequestKind::More, Bytes::gib(2));
    world.ticks(10);
    let plan = world.tick();
    let had = credits(&plan);
    assert!(had[0] < had[1], "the guest that rents more has fewer: {had:?}");
    world.controller.handle_event(Event::SetPolicy(PolicyName::DirectAssign));
    assert_eq!(credits(&world.tick()), had);

    let accounts = plan.guests.iter().map(|guest| (guest.id.clone(), guest.credits.unwrap()));
    let mut another = World::new(without_tax(), guests());
    another.controller.handle_event(Event::Credits(accounts.collect()));
    assert_eq!(credits(&another.tick()), had);
    // A daemon without a journal gives both guests the same.
    let fresh = credits(&World::new(without_tax(), guests()).tick());
    assert_eq!(fresh[0], fresh[1]);
}

#[test]
fn memory_is_granted_only_after_it_was_released() {
    let mut world = two(PolicyName::Global);
    world.guest("b").rate = 10;
    world.ticks(5);
    world.guest("a").used = 750;
    let mut waited = false;
    for _ in 0..60 {
        let plan = world.tick();
        assert!(world.committed() <= 1024, "{:?}", world.holds());
        let a = plan.guest(&id("a")).unwrap();
        waited |= a.clamps.iter().any(|c| matches!(c, Clamped::AwaitingRelease { .. }));
    }
    assert!(waited, "the wait is reported");
    assert!(world.holds()[0] > 800);
}

#[test]
fn static_never_moves_for_demand() {
    let mut world = two(PolicyName::Static);
    world.guest("a").used = 900;
    world.ticks(30);
    assert_eq!(world.holds(), [512, 512]);
    // They were once granted what they hold.
    let sent: Vec<_> =
        world.actions.iter().map(|(_, it)| (it.guest.as_str(), mib(it.target))).collect();
    assert_eq!(sent, [("a", 512), ("b", 512)]);
}

#[test]
fn stale_statistics_hold_the_guest_and_call_its_shrinking_off() {
    let mut world = two(PolicyName::Global);
    world.ticks(3);
    world.guest("a").used = 750;
    world.guest("b").rate = 10;
    world.ticks(4);
    world.guest("b").mood = Mood::Silent;
    world.ticks(12);
    let held = world.guest("b").holds;
    assert_eq!(world.guest("b").target, held, "called off");
    let plan = world.ticks(20);
    assert_eq!(world.guest("b").holds, held, "held");
    assert!(matches!(plan.guest(&id("b")).unwrap().change, Change::Hold(HoldReason::Stale { .. })));
    assert!(world.committed() <= 1024);
}

#[test]
fn a_liar_is_held_and_harms_nobody() {
    let mut world = two(PolicyName::Global);
    world.ticks(3);
    world.guest("b").mood = Mood::Lying;
    world.guest("a").used = 700;
    let plan = world.ticks(20);
    assert_eq!(world.holds(), [512, 512]);
    let change = &plan.guest(&id("b")).unwrap().change;
    assert!(matches!(change, Change::Hold(HoldReason::Implausible(_))), "{change}");
}

#[test]
fn slow_releasing_and_stuck_guests_are_distinguished() {
    let mut world = World::new(
        settings(PolicyName::Global, 1536),
        vec![ToyGuest::new("a", 1024, 512, 480), ToyGuest::new("b", 1024, 1024, 100)],
    );
    world.guest("b").rate = 2;
    let plan = world.ticks(5);
    let compliance = |plan: &Plan| plan.guest(&id("b")).unwrap().compliance;
    assert!(matches!(compliance(&plan), Compliance::Releasing { .. }), "{:?}", compliance(&plan));
    let plan = world.ticks(60);
    let Compliance::Slow { left, asked } = compliance(&plan) else {
        panic!("{:?}", compliance(&plan))
    };
    assert!(left > Bytes::mib(100) && asked > Duration::from_secs(30), "{left} after {asked:?}");
    world.guest("b").rate = 1000;
    let plan = world.ticks(5);
    assert_eq!(compliance(&plan), Compliance::Compliant);
}

/// A guest of 512 MiB into which 1 GiB can be plugged, and one of 2 GiB, on a budget of 2 GiB.
fn with_hotplug() -> World {
    let mut a = ToyGuest::new("a", 512, 512, 100);
    a.plug_max = 1024;
    World::new(settings(PolicyName::Global, 2048), vec![a, ToyGuest::new("b", 2048, 512, 100)])
}

#[test]
fn a_guest_grows_beyond_boot_memory_and_shrinks_back() {
    let mut world = with_hotplug();
    world.ticks(10);
    world.guest("a").used = 1000;
    for _ in 0..30 {
        world.tick();
        assert!(world.committed() <= 2048, "{} at {} s", world.committed(), world.second);
    }
    let a = world.guest("a");
    assert!(a.holds > 1000 && a.plugged >= 512, "holds {}, plugged {}", a.holds, a.plugged);
    let plugs: Vec<u64> = world.actions.iter().filter_map(|(_, act)| act.plug.map(mib)).collect();
    assert!(plugs.windows(2).all(|two| two[1].saturating_sub(two[0]) <= 512), "{plugs:?}");
    world.guest("a").used = 100;
    world.guest("b").used = 1500;
    world.ticks(300);
    let a = world.guest("a");
    assert!(a.plugged <= 768, "what was idle was pulled out: {} left", a.plugged);
    let since = world.second;
    world.ticks(100);
    assert_eq!(world.actions_since(since), 0, "and then it is still");
}

#[test]
fn unused_plugged_memory_is_unplugged_and_reported() {
    let mut world = with_hotplug();
    world.guest("a").onlines = false;
    world.ticks(10);
    world.guest("a").used = 600;
    let mut is_reported = false;
    for _ in 0..60 {
        let plan = world.tick();
        let moves = &plan.guest(&id("a")).unwrap().moves;
        is_reported |=
            moves.iter().any(|moved| matches!(moved.why, MechanismReason::NotOnlined { .. }));
    }
    assert!(is_reported);
    assert_eq!(world.guest("a").plugged, 0);
    assert!(world.guest("b").holds >= 100 && world.committed() <= 2048);
}

#[test]
fn an_inhibited_balloon_leaves_hotplug_alone() {
    let mut world = with_hotplug();
    world.guest("a").inhibited = true;
    world.ticks(10);
    world.guest("a").used = 900;
    world.ticks(30);
    let a = world.guest("a");
    assert!(a.holds > 900 && a.holds == 512 + a.plugged, "{} with {}", a.holds, a.plugged);
    world.guest("a").used = 100;
    world.guest("b").used = 1500;
    world.ticks(60);
    let a = world.guest("a");
    assert!(a.plugged <= 2 && a.holds == 512 + a.plugged, "{} with {}", a.holds, a.plugged);
}

#[test]
fn a_reduction_ends_when_the_guest_is_pinned() {
    let a = ToyGuest { rate: 10, ..ToyGuest::new("a", 1024, 1024, 100) };
    let guests = vec![a, ToyGuest::new("b", 1024, 512, 900)];
    let mut world = World::new(settings(PolicyName::Global, 1536), guests);
    while world.guest("a").target + 50 >= world.guest("a").holds {
        world.tick();
        assert!(world.second < 100, "nothing was asked of it");
    }
    world.guest("a").inhibited = true;
    let plan = world.tick();
    let change = &plan.guest(&id("a")).unwrap().change;
    assert_eq!(*change, Change::CancelShrink { why: HoldReason::DiscardInhibited });
    let left = world.guest("a").holds;
    world.ticks(20);
    assert_eq!((world.guest("a").holds, world.guest("a").target), (left, left));
    assert_eq!(world.controller.plans_refused(), 0);
}

#[test]
fn an_inhibited_balloon_is_held_where_nothing_plugs() {
    let mut world = with_hotplug();
    world.guest("a").inhibited = true;
    let settings = world.controller.settings().clone();
    let without = Settings { hotplug: None, ..settings };
    world.controller.handle_event(Event::Reconfigure(Box::new(without)));
    world.guest("a").used = 900;
    for _ in 0..10 {
        let plan = world.tick();
        let change = &plan.guest(&id("a")).unwrap().change;
        assert_eq!(*change, Change::Hold(HoldReason::DiscardInhibited));
    }
    world.guest("a").pinned = Some(Pinned::Tdx);
    let plan = world.tick();
    let change = &plan.guest(&id("a")).unwrap().change;
    assert_eq!(*change, Change::Hold(HoldReason::Pinned { by: Pinned::Tdx }));
    assert_eq!(world.controller.plans_refused(), 0);
}

#[test]
fn a_silent_guest_is_held_to_what_it_was_granted() {
    let guests = vec![ToyGuest::new("a", 1024, 512, 480), ToyGuest::new("b", 1024, 1024, 100)];
    let mut world = World::new(settings(PolicyName::Global, 1536), guests);
    world.guest("b").rate = 2;
    let pages_out = |plan: &Plan| plan.paging.iter().any(|it| it.mechanism == Mechanism::PageOut);
    assert!(pages_out(&world.ticks(40)), "slow, and reported");
    let granted = world.tick().guest(&id("b")).unwrap().target.unwrap();
    for mood in [Mood::Silent, Mood::Gone] {
        world.guest("b").mood = mood;
        for _ in 0..30 {
            let plan = world.tick();
            let to = plan.paging.iter().find(|it| it.mechanism == Mechanism::PageOut).unwrap();
            assert_eq!(to.resident, granted + OVERHEAD, "{mood:?}");
        }
    }
    assert_eq!(world.controller.plans_refused(), 0);
}

/// The kernel of `b` panics while the host pages it out, and `a` could use everything there is.
#[test]
fn a_panicked_guest_keeps_its_entitlement_and_its_cap() {
    let guests = vec![ToyGuest::new("a", 2048, 512, 480), ToyGuest::new("b", 1024, 1024, 100)];
    let mut world = World::new(settings(PolicyName::Global, 1536), guests);
    world.guest("b").rate = 2;
    world.ticks(40);
    let granted = world.tick().guest(&id("b")).unwrap().target.unwrap();
    world.guest("b").mood = Mood::Panicked;
    world.guest("a").used = 2000;
    let held = Change::Hold(HoldReason::NotRunning { state: RunState::Panicked });
    for _ in 0..30 {
        let plan = world.tick();
        assert_eq!(plan.guest(&id("b")).unwrap().change, held);
        let to = plan.paging.iter().find(|it| it.mechanism == Mechanism::PageOut).unwrap();
        assert_eq!(to.resident, granted + OVERHEAD);
        assert!(world.guest("a").target <= 1536 - mib(granted), "{plan:?}");
    }
    world.host_swaps = true;
    world.ticks(30);
    let b = world.guest("b").resident();
    assert_eq!(b, mib(granted + OVERHEAD));
    assert_eq!(world.guest("a").target, 1536 - b, "nobody pays for its debt");
    assert_eq!(world.controller.plans_refused(), 0);
}

/// The driver of `b` says that it has given everything, but has given nothing.
#[test]
fn a_guest_that_claims_to_have_given_is_paged_out() {
    let guests = vec![ToyGuest::new("a", 1024, 512, 480), ToyGuest::new("b", 1024, 1024, 100)];
    let mut world = World::new(settings(PolicyName::Global, 1536), guests);
    world.host_swaps = true;
    world.guest("b").mood = Mood::Hiding;
    world.guest("a").used = 900;
    world.ticks(8);
    assert!(world.guest("a").holds <= 512 + 64 + 128, "only what is hidden in the overhead");
    world.ticks(40);
    assert!(world.guest("a").holds > 900, "{:?}", world.holds());
    let b = world.guest("b");
    assert!(b.resident() <= b.target + 64 + 8, "{b:?}");
    assert_eq!(world.controller.plans_refused(), 0);
}

/// The driver of `b` is unloaded, and `b` fills its whole boot memory.
#[test]
fn no_guest_shrinks_for_one_that_takes_memory() {
    let both = || vec![ToyGuest::new("a", 2048, 1024, 900), ToyGuest::new("b", 2048, 1024, 900)];
    for pages in [true, false] {
        let mut settings = settings(PolicyName::Global, 2048);
        settings.paging = settings.paging.filter(|_| pages);
        let mut world = World::new(settings, both());
        world.host_swaps = pages;
        world.ticks(10);
        assert_eq!(world.holds(), [1024, 1024]);
        let b = world.guest("b");
        (b.mood, b.holds, b.target, b.rate) = (Mood::Silent, 2048, 2048, 0);
        for _ in 0..60 {
            let plan = world.tick();
            assert!(world.guest("a").target >= 1024, "{pages} {plan:?}");
        }
        let plan = world.tick();
        let debt = plan.notes.iter().find_map(|note| match note {
            Note::BeyondEntitlement { debt, collected, .. } => Some((*debt, *collected)),
            _ => None,
        });
        let b = world.guest("b");
        if pages {
            assert!(b.resident() <= 1024 + 64 + 8, "{b:?}");
            assert!(debt.is_none_or(|(_, collected)| collected));
        } else {
            assert_eq!(debt, Some((Bytes::mib(1024), false)));
        }
        assert_eq!(world.controller.plans_refused(), 0);
    }
}

/// `b` takes all its memory back and fills a little of it, on a host that is short and has no swap.
#[test]
fn memory_a_debtor_has_not_filled_shrinks_no_guest() {
    let mut settings = settings(PolicyName::Global, 2048);
    (settings.paging, settings.guard.host_reserve) = (None, Bytes::mib(64));
    let guests = vec![ToyGuest::new("a", 2048, 1024, 900), ToyGuest::new("b", 2048, 1024, 900)];
    let mut world = World::new(settings, guests);
    world.ticks(10);
    assert_eq!(world.holds(), [1024, 1024]);
    let b = world.guest("b");
    (b.mood, b.holds, b.target, b.rate, b.touched) = (Mood::Silent, 2048, 2048, 0, Some(1124));
    let mut was_short = false;
    for _ in 0..60 {
        // 10 MiB are free before any guest gives memory.
        let resident: u64 = world.guests.iter().map(ToyGuest::resident).sum();
        world.host_available = (10 + 1024 + 1124u64).saturating_sub(resident);
        was_short |= world.tick().host_pressure > PressureLevel::Normal;
    }
    let a = world.guest("a").holds;
    assert!(was_short && (850..1024).contains(&a), "it gives what b has filled: {a}");
}

/// The driver of `b` takes all its memory back, reports that, and `b` fills it.
#[test]
fn what_is_taken_without_a_grant_proves_no_need() {
    for policy in [PolicyName::Global, PolicyName::SelfScheduling, PolicyName::Meb] {
        let both = vec![ToyGuest::new("a", 2048, 800, 1500), ToyGuest::new("b", 2048, 800, 1500)];
        let mut world = World::new(settings(policy, 2048), both);
        world.host_swaps = true;
        world.ticks(10);
        assert_eq!(world.holds(), [1024, 1024], "{policy}");
        let b = world.guest("b");
        (b.mood, b.holds, b.used) = (Mood::Stubborn, 2048, 2048);
        for _ in 0..120 {
            let plan = world.tick();
            // The host keeps room for b's hypervisor while it pages b out.
            assert!(world.guest("a").target >= 1024 - 64 - 10, "{policy} {plan:?}");
            let claims = &plan.guest(&id("b")).unwrap().clamps;
            let first = claims.first();
            assert!(matches!(first, None | Some(Clamped::Unproven { .. })), "{policy} {claims:?}");
        }
        let b = world.guest("b");
        assert!(b.resident() <= 1024 + 64 + 8, "{policy} {b:?}");
        assert_eq!(world.controller.plans_refused(), 0);
    }
}

/// A hypervisor that claims 1 TiB for its guest has mapped 600 MiB.
#[test]
fn memory_that_is_not_mapped_takes_nothing_from_others() {
    let mut world = two(PolicyName::Global);
    world.ticks(5);
    let honest = world.snapshot();
    let (claimed, mapped) = (Bytes::gib(1024), Bytes::mib(600));
    let host = honest.host.clone();
    let mut guests = honest.into_guests();
    guests[0].boot_memory = Some(claimed);
    guests[0].allocation = Some(Measured::fresh(claimed));
    guests[0].cut_to_mapped(mapped);
    let id = guests[0].id.clone();
    world.second += 1;
    let later = Timestamp::from_millis(world.second * 1000);
    let plan = world.controller.handle_sample(&Snapshot::new(later, host, guests));
    let note = Note::Unmapped { guest: id.clone(), claimed: claimed - mapped };
    assert!(plan.notes.contains(&note), "{:?}", plan.notes);
    let bounds = plan.guest(&id).unwrap().bounds.unwrap();
    assert_eq!((bounds.floor, bounds.ceiling), (Bytes::mib(128), mapped));
    assert!(plan.budget.committed <= Bytes::gib(2), "{:?}", plan.budget);
}

/// `b` says that it uses all its boot memory, but has touched little of it.
#[test]
fn a_claim_without_evidence_takes_a_quarter_at_most() {
    let most_of_b = |touched| {
        let guests = vec![ToyGuest::new("a", 2048, 512, 100), ToyGuest::new("b", 2048, 512, 100)];
        let mut world = World::new(settings(PolicyName::Global, 1024), guests);
        world.ticks(10);
        let b = world.guest("b");
        (b.used, b.touched) = (2048, touched);
        world.ticks(60);
        assert_eq!(world.controller.plans_refused(), 0);
        world.guest("b").holds
    };
    assert!(most_of_b(Some(100)) <= 512, "none of what it was granted is filled");
    let filled = most_of_b(Some(512));
    assert_eq!(filled, 512 + 128 + 100, "a quarter more than it filled, and the reserve");
    assert!(most_of_b(None) > 640, "it fills whatever it is granted");
}

/// Another process under the same name has promised nothing and was promised nothing.
#[test]
fn a_new_process_begins_without_the_old_ones_past() {
    let mut world = two(PolicyName::Global);
    world.guest("b").mood = Mood::Stubborn;
    world.guest("a").used = 900;
    world.ticks(30);
    let plan = world.tick();
    assert!(matches!(plan.guest(&id("b")).unwrap().compliance, Compliance::Stuck { .. }));
    world.guest("b").pid += 1;
    let plan = world.tick();
    assert_eq!(plan.guest(&id("b")).unwrap().compliance, Compliance::Compliant);
    assert!(plan.notes.contains(&Note::Newcomers { guests: 1 }), "{:?}", plan.notes);
}

#[test]
fn what_a_stuck_guest_owes_is_paged_for_its_neighbour() {
    let guests = vec![ToyGuest::new("a", 1024, 512, 480), ToyGuest::new("b", 1024, 1024, 100)];
    let mut world = World::new(settings(PolicyName::Global, 1536), guests);
    world.guest("b").mood = Mood::Stubborn;
    world.guest("a").used = 900;
    let plan = world.ticks(40);
    assert!(world.guest("a").holds < 600, "nothing is granted that the host has not taken");
    let moves = &plan.guest(&id("b")).unwrap().moves;
    assert!(moves.iter().any(|it| it.mechanism == Mechanism::PageOut), "{moves:?}");
    world.host_swaps = true;
    for _ in 0..40 {
        world.tick();
        let occupied: u64 = world.guests.iter().map(ToyGuest::resident).sum();
        assert!(occupied <= 1536, "{occupied}");
    }
    let (a, b) = (world.guest("a").holds, world.guest("b").resident());
    assert!(a >= 700 && b <= 768 + 64, "what b was asked for, and its hypervisor: a {a}, b {b}");
    // A host whose swap is full cannot enforce a cap, so everything that the guest holds counts
    // again.
    world.host_swap_free = Bytes::mib(800);
    let plan = world.tick();
    assert_eq!((plan.paging.len(), plan.budget.grantable), (0, Bytes::ZERO));
    world.host_swap_free = Bytes::gib(4);
    world.ticks(5);
    // At last the guest gives: the cap ends, and the host reads back what it took.
    world.guest("b").mood = Mood::Willing;
    let mut read_back = false;
    for _ in 0..120 {
        let plan = world.tick();
        read_back |= plan.paging.iter().any(|it| it.mechanism == Mechanism::PageIn);
    }
    assert!(read_back && world.guest("b").resident() >= 128);
    assert_eq!(world.controller.plans_refused(), 0);
}

/// The host's swap fills in the very tick in which the memory that it took would be granted.
#[test]
fn no_grant_relies_on_a_cap_that_ends() {
    let mut granted = 0;
    for full_at in 0..40 {
        let guests = vec![ToyGuest::new("a", 1024, 512, 480), ToyGuest::new("b", 1024, 1024, 100)];
        let mut world = World::new(settings(PolicyName::Global, 1536), guests);
        world.guest("b").mood = Mood::Stubborn;
        world.guest("a").used = 900;
        world.ticks(40);
        world.host_swaps = true;
        for _ in 0..full_at {
            world.tick();
        }
        let before = world.guest("a").holds;
        world.host_swap_free = Bytes::mib(800);
        let plan = world.tick();
        assert_eq!(plan.budget.grantable, Bytes::ZERO, "full at {full_at}");
        granted += u64::from(before > 600);
    }
    assert!(granted > 0, "the host took nothing");
}

/// The cap on a slow guest's process leaves room for its hypervisor. The guest may not have that
/// room.
#[test]
fn a_capped_guest_may_not_grow_into_its_cap() {
    let guests = vec![ToyGuest::new("a", 1024, 1024, 100), ToyGuest::new("b", 1024, 512, 100)];
    let mut world = World::new(settings(PolicyName::Static, 1536), guests);
    world.guest("a").rate = 15;
    let is_slow = |plan: &Plan| matches!(plan.guests[0].compliance, Compliance::Slow { .. });
    (0..60).find(|_| is_slow(&world.tick())).expect("a slow guest");
    let holds = world.holds()[0];
    assert!((768..832).contains(&holds), "less than its target: {holds}");
    // Now it may have more than it has left, and the other guest gives that slowly.
    world.guest("b").rate = 2;
    let limits = GuestLimits { ceiling: Some(Bytes::mib(500)), ..GuestLimits::default() };
    world.controller.handle_event(Event::SetLimits(id("b"), limits));
    for _ in 0..40 {
        world.tick();
        assert!(world.committed() <= 1536, "{}", world.committed());
    }
    assert!(world.holds()[0] > holds, "{:?}", world.holds());
}

/// A guest that gives nothing keeps its part all the same. Of what it owes, the host pages out as
/// much as the policy wants for others now, and lets it read back what no other guest is to have.
#[test]
fn what_a_stuck_guest_is_held_to_follows_the_policy() {
    let guests = vec![ToyGuest::new("a", 1024, 512, 300), ToyGuest::new("b", 1024, 1024, 300)];
    let mut world = World::new(settings(PolicyName::Static, 1536), guests);
    world.host_swaps = true;
    world.guest("b").mood = Mood::Stubborn;
    world.guest("b").reads_back = 8;
    let ceiling = |world: &mut World, name: &str, mib: Option<u64>| {
        let limits = GuestLimits { ceiling: mib.map(Bytes::mib), ..GuestLimits::default() };
        world.controller.handle_event(Event::SetLimits(id(name), limits));
        for _ in 0..60 {
            world.tick();
            assert!(world.occupied() <= 1536 + 8, "{}", world.occupied());
        }
        (world.guest("a").holds, world.guest("b").resident())
    };
    let about = |seen: (u64, u64), a: u64, b: u64| {
        assert!(seen.0.abs_diff(a) <= 16 && seen.1.abs_diff(b) <= 16, "{seen:?}");
    };
    // Its cap has room for its hypervisor, 64 MiB.
    about(ceiling(&mut world, "a", None), 768 - 32, 768 + 32);
    about(ceiling(&mut world, "a", Some(600)), 600, 936);
    about(ceiling(&mut world, "b", Some(500)), 600, 564);
    about(ceiling(&mut world, "a", None), 964, 564);
    about(ceiling(&mut world, "b", None), 768 - 32, 768 + 32);
    assert!(matches!(world.tick().guests[1].compliance, Compliance::Stuck { .. }));
    about(ceiling(&mut world, "a", Some(400)), 400, 1024);
    assert_eq!(
        world.tick().guests[1].compliance,
        Compliance::Compliant,
        "it has all of its memory"
    );
    assert_eq!(world.controller.plans_refused(), 0);
}

/// `b` holds its part of the budget at the first decision, so nothing moves. Then it takes more.
#[test]
fn what_is_taken_after_a_first_decision_earns_nothing() {
    let guests = vec![ToyGuest::new("a", 1024, 512, 500), ToyGuest::new("b", 1024, 512, 500)];
    let mut world = World::new(settings(PolicyName::Global, 1024), guests);
    world.host_swaps = true;
    world.tick();
    assert_eq!(world.holds(), [512, 512]);
    let taker = world.guest("b");
    (taker.mood, taker.holds, taker.used) = (Mood::Stubborn, 1024, 1024);
    world.ticks(120);
    let room = mib(OVERHEAD);
    assert!(world.holds()[0] >= 500 - room, "{:?}", world.holds());
    assert_eq!(world.controller.plans_refused(), 0);
}

#[test]
fn a_stuck_guest_is_named_and_moves_nobody_else() {
    let guests = vec![
        ToyGuest::new("a", 1024, 512, 480),
        ToyGuest::new("b", 1024, 512, 100),
        ToyGuest::new("c", 1024, 512, 300),
    ];
    let mut world = World::new(settings(PolicyName::Global, 1536), guests);
    world.guest("b").mood = Mood::Stubborn;
    world.ticks(30);
    let plan = world.tick();
    let b = plan.guest(&id("b")).unwrap();
    assert!(matches!(b.compliance, Compliance::Stuck { .. }), "{:?}", b.compliance);
    assert_eq!(world.guest("b").target, 512, "it is no longer pressed");
    // From here on, repeated requests to it must not move the others at all.
    world.ticks(10);
    let (since, before) = (world.second, (world.holds()[0], world.holds()[2]));
    world.ticks(300);
    assert_eq!((world.holds()[0], world.holds()[2]), before);
    let others = world.actions.iter().filter(|(at, act)| *at > since && act.guest != id("b"));
    assert_eq!(others.count(), 0);
    let reminders = world.actions.iter().filter(|(at, act)| *at > since && act.guest == id("b"));
    assert!((2..=12).contains(&reminders.count()), "asked again, ever more rarely");
    // When it gives at last, it takes part in the division again.
    world.guest("b").mood = Mood::Willing;
    world.ticks(1000);
    assert!(world.guest("b").holds < 512);
}

/// What it was asked for is less than its floor by now, and must not be sent again.
#[test]
fn a_stuck_guest_is_asked_anew_when_its_floor_rises() {
    let guests = vec![ToyGuest::new("a", 1024, 512, 300), ToyGuest::new("b", 1024, 1024, 300)];
    let mut world = World::new(settings(PolicyName::Static, 1024), guests);
    world.host_swaps = true;
    world.guest("b").mood = Mood::Stubborn;
    let asked = match world.ticks(60).guest(&id("b")).unwrap().change {
        Change::Hold(HoldReason::Stuck { asked, .. }) => asked,
        ref other => panic!("{other:?}"),
    };
    let floor = asked + Bytes::mib(16);
    let limits = GuestLimits { floor: Some(floor), ..GuestLimits::default() };
    world.controller.handle_event(Event::SetLimits(id("b"), limits));
    world.guest("b").mood = Mood::Willing;
    let plan = world.ticks(400);
    assert_eq!(plan.guest(&id("b")).unwrap().compliance, Compliance::Compliant);
    assert!(world.guest("b").holds >= mib(floor));
}

#[test]
fn an_unreachable_guest_counts_until_it_is_gone() {
    let mut world = two(PolicyName::Global);
    world.ticks(5);
    world.guest("b").mood = Mood::Gone;
    world.guest("a").used = 800;
    let plan = world.ticks(10);
    assert!(matches!(
        plan.guest(&id("b")).unwrap().change,
        Change::Hold(HoldReason::Unreachable { .. })
    ));
    world.guests.pop();
    world.ticks(10);
    assert!(world.holds()[0] > 900, "its memory is free once it is gone");
}

#[test]
fn a_guest_never_seen_is_noted_as_uncounted() {
    let mut world = two(PolicyName::Global);
    (world.guest("b").mood, world.guest("b").pid) = (Mood::Gone, 0);
    world.guest("a").used = 700;
    let plan = world.ticks(9);
    assert!(plan.notes.contains(&Note::Uncounted { guests: 1 }));
    assert!(plan.notes.contains(&Note::Newcomers { guests: 1 }));
    assert_eq!(world.holds(), [512, 512], "what b holds may be anything");
    world.ticks(10);
    assert!(world.holds()[0] > 700, "one that never answers does not stop the others for ever");
    let mut world = two(PolicyName::Global);
    world.guest("b").mood = Mood::Gone;
    world.tick();
    world.guest("b").mood = Mood::Willing;
    assert_eq!(world.ticks(3).notes, []);
}

/// A daemon that is killed after it granted memory and before the guest took it.
#[test]
fn nothing_is_granted_before_it_is_certain_what_guests_hold() {
    let mut world = two(PolicyName::Global);
    world.guest("a").used = 400;
    world.guest("b").holds = 300;
    world.guest("b").target = 300;
    let plan = world.tick();
    assert!(plan.notes.contains(&Note::Newcomers { guests: 2 }));
    world.guest("b").target = 512; // the promise made before
    for _ in 0..10 {
        world.tick();
        assert!(world.committed() <= 1024, "{:?}", world.holds());
    }
}

#[test]
fn guests_that_start_one_after_the_other_delay_nobody() {
    let guests = vec![ToyGuest::new("a", 2048, 512, 900)];
    let mut world = World::new(settings(PolicyName::Global, 8192), guests);
    for number in 0..20 {
        // Its balloon is empty.
        world.guests.push(ToyGuest::new(&format!("n{number}"), 256, 256, 200));
        let plan = world.tick();
        assert!(number < 2 || plan.notes.is_empty(), "{:?} at {number} s", plan.notes);
        assert!(world.committed() <= 8192);
    }
    assert!(world.guest("a").holds > 900, "{}", world.guest("a").holds);
    assert_eq!(world.controller.plans_refused(), 0);
}

#[test]
fn the_host_comes_first() {
    let mut settings = settings(PolicyName::Global, 4096);
    settings.guard.host_reserve = Bytes::mib(512);
    let guests = vec![ToyGuest::new("a", 4096, 512, 500)];
    let mut world = World::new(settings, guests);
    world.host_available = 700;
    let plan = world.ticks(3);
    let a = plan.guest(&id("a")).unwrap();
    assert_eq!(mib(a.target.unwrap()), 512 + 700 - 512, "no grant into the reserve");
    assert!(plan.notes.iter().any(|note| matches!(note, Note::BudgetReduced { .. })));
}

#[test]
fn a_missing_figure_shrinks_no_guest() {
    // The host can count only some of a guest's memory, and dates that too old to be acted on.
    let incomplete = Measured { value: Bytes::mib(100), age: Duration::from_secs(3600) };
    for resident in [None, Some(incomplete)] {
        let mut world = two(PolicyName::Global);
        world.guests.iter_mut().for_each(|guest| guest.used = 480);
        world.host_available = 20;
        world.ticks(5);
        for _ in 0..5 {
            let seen = world.snapshot();
            let (host, mut guests) = (seen.host.clone(), seen.into_guests());
            guests[0].resident = resident;
            world.second += 1;
            let later = Timestamp::from_millis(world.second * 1000);
            let plan = world.controller.handle_sample(&Snapshot::new(later, host, guests));
            let distributable = plan.budget.distributable;
            assert_eq!(distributable, Bytes::mib(1024), "{resident:?}: {:?}", plan.notes);
            assert_eq!(plan.budget.grantable, Bytes::ZERO, "{resident:?}");
            assert!(plan.actions.is_empty() && plan.paging.is_empty(), "{resident:?}: {plan:?}");
        }
        assert_eq!(world.controller.plans_refused(), 0, "{resident:?}");
    }
}

/// `b` says that it holds less than its floor, and nothing can be granted yet.
#[test]
fn a_claim_below_the_floor_orders_nothing_below_it() {
    let mut world = two(PolicyName::Global);
    let b = world.guest("b");
    (b.said, b.touched, b.used) = (Some(84), Some(80), 450);
    world.ticks(12);
    let orders = world.actions.iter().filter(|(_, order)| order.guest == id("b"));
    let targets: Vec<u64> = orders.map(|(_, order)| mib(order.target)).collect();
    assert!(!targets.is_empty() && targets.iter().all(|&target| target >= 128), "{targets:?}");
}

#[test]
fn a_host_that_cannot_be_read_grants_nothing() {
    let mut world = two(PolicyName::Global);
    world.guest("a").used = 600;
    world.guest("b").holds = 300;
    world.guest("b").target = 300;
    let mut snapshot = world.snapshot();
    snapshot.host = Default::default();
    let plan = world.controller.handle_sample(&snapshot);
    assert!(plan.notes.contains(&Note::HostUnknown));
    assert!(plan.actions.iter().all(|action| mib(action.target) <= 512), "{:?}", plan.actions);
}

/// Each of many guests has less to give than the dead band.
#[test]
fn a_raised_floor_is_reached_in_spite_of_dead_bands() {
    let guests = (0..30).map(|at| ToyGuest::new(&format!("g{at:02}"), 1024, 512, 100));
    let mut world = World::new(settings(PolicyName::Global, 30 * 512), guests.collect());
    world.ticks(5);
    let limits = GuestLimits { floor: Some(Bytes::mib(600)), ..GuestLimits::default() };
    world.controller.handle_event(Event::SetLimits(id("g00"), limits));
    world.ticks(10);
    assert!(world.holds()[0] >= 600, "{:?}", world.holds());
    assert!(world.committed() <= 30 * 512, "{}", world.committed());
}

#[test]
fn floors_beyond_the_budget_are_noted_and_kept() {
    let mut settings = settings(PolicyName::Global, 700);
    settings.limits.default =
        GuestLimits { floor: Some(Bytes::mib(400)), ..GuestLimits::default() };
    let guests = vec![ToyGuest::new("a", 1024, 512, 100), ToyGuest::new("b", 1024, 512, 100)];
    let mut world = World::new(settings, guests);
    let plan = world.ticks(10);
    assert!(plan.notes.contains(&Note::Infeasible { shortfall: Bytes::mib(100) }));
    assert_eq!(world.holds(), [400, 400]);
}

#[test]
fn limits_and_opting_out_take_effect_at_once() {
    let mut world = two(PolicyName::Global);
    world.guest("a").used = 700;
    world.ticks(20);
    let limits = GuestLimits { ceiling: Some(Bytes::mib(600)), ..GuestLimits::default() };
    world.controller.handle_event(Event::SetLimits(id("a"), limits));
    world.ticks(10);
    assert_eq!(world.holds(), [600, 424]);
    let out = GuestLimits { managed: false, ..GuestLimits::default() };
    world.controller.handle_event(Event::SetLimits(id("a"), out));
    world.guest("a").used = 10;
    let plan = world.ticks(10);
    assert_eq!(world.holds(), [600, 424]);
    assert_eq!(plan.guest(&id("a")).unwrap().change, Change::Hold(HoldReason::OptedOut));
}

#[test]
fn pausing_stops_every_action_and_resuming_goes_on() {
    let mut world = two(PolicyName::Global);
    world.ticks(3);
    world.controller.handle_event(Event::Pause);
    world.guest("a").used = 700;
    let (since, plan) = (world.second, world.ticks(10));
    assert_eq!(world.actions_since(since), 0);
    assert_eq!(plan.guest(&id("a")).unwrap().change, Change::Hold(HoldReason::Paused));
    let dry = world.controller.dry_run(&world.snapshot());
    assert!(!dry.actions.is_empty(), "a dry run says what would be done");
    assert_eq!(world.actions_since(since), 0, "and does not do it");
    world.controller.handle_event(Event::Resume);
    world.ticks(20);
    assert!(world.holds()[0] > 750);
}

#[test]
fn observing_says_what_balancing_would_do_and_does_nothing() {
    let mut settings = settings(PolicyName::Global, 1024);
    settings.mode = Mode::Observe;
    let mut guests = vec![ToyGuest::new("a", 1024, 512, 500), ToyGuest::new("b", 1024, 512, 100)];
    guests.push(ToyGuest { mood: Mood::Gone, ..ToyGuest::new("c", 1024, 0, 0) });
    let mut world = World::new(settings, guests);
    let plan = world.ticks(20);
    assert_eq!((world.actions.len(), world.holds()), (0, vec![512, 512, 0]));
    let a = plan.guest(&id("a")).unwrap();
    assert_eq!((&a.change, a.target), (&Change::Hold(HoldReason::Observing), None));
    assert!(a.desired.as_ref().unwrap().target > Bytes::mib(550), "{a:?}");
    let c = plan.guest(&id("c")).unwrap();
    assert!(
        matches!(c.change, Change::Hold(HoldReason::Unreachable { .. })),
        "its own reason: {c:?}"
    );
    let dry = world.controller.dry_run(&world.snapshot());
    assert!(!dry.actions.is_empty(), "a dry run says what would be done");
    world.controller.handle_event(Event::Pause);
    world.controller.handle_event(Event::SetMode(Mode::Balance));
    let plan = world.tick();
    assert_eq!(plan.guest(&id("a")).unwrap().change, Change::Hold(HoldReason::Paused));
    world.controller.handle_event(Event::Resume);
    world.ticks(20);
    assert!(world.holds()[0] > 550);
}

#[test]
fn actions_not_fetched_are_dropped_when_observing_begins() {
    for reconfigures in [false, true] {
        let mut world = two(PolicyName::Global);
        world.guest("a").used = 700;
        world.pass();
        assert!(!world.controller.handle_sample(&world.snapshot()).actions.is_empty());
        let settings = Settings { mode: Mode::Observe, ..world.controller.settings().clone() };
        world.controller.handle_event(match reconfigures {
            true => Event::Reconfigure(Box::new(settings)),
            false => Event::SetMode(Mode::Observe),
        });
        assert_eq!(world.controller.poll_action(), None);
    }
}

#[test]
fn a_clock_going_backwards_holds_every_guest() {
    let mut world = two(PolicyName::Global);
    world.ticks(20);
    world.guest("a").used = 750;
    world.second = 5;
    let plan = world.tick();
    assert!(plan.actions.is_empty());
    assert_eq!(plan.guest(&id("a")).unwrap().change, Change::Hold(HoldReason::ClockBackwards));
    world.second = 20;
    world.ticks(20);
    assert!(world.holds()[0] > 830);
}

#[test]
fn failed_actions_and_restarted_guests_get_new_orders() {
    let mut world = two(PolicyName::Global);
    world.guest("a").used = 750;
    world.ticks(20);
    // The guest's process is replaced: the new one holds its boot memory and never heard of its
    // target.
    world.guest("b").mood = Mood::Gone;
    world.tick();
    let b = world.guest("b");
    (b.mood, b.holds, b.target) = (Mood::Willing, 1024, 1024);
    world.ticks(30);
    assert!(world.holds()[1] < 200, "{:?}", world.holds());
    assert!(world.committed() <= 1024 + 10);
}

/// A balloon driver that restarts with nothing to move writes nothing, so QEMU reports the size
/// from before.
#[test]
fn a_stale_balloon_size_after_a_reboot_is_nudged() {
    let mut world = World::new(
        settings(PolicyName::Static, 2048),
        vec![ToyGuest::new("a", 1024, 900, 100), ToyGuest::new("b", 1024, 900, 100)],
    );
    world.ticks(5);
    // In the second case it claims to hold less than its kernel says is available.
    for said in [1000, 700] {
        world.guest("a").said = Some(said);
        let before = world.second;
        world.ticks(20);
        assert_eq!(world.actions_since(before), 0, "it may be on its way");
        world.ticks(20);
        assert_eq!((world.guest("a").said, world.actions_since(before)), (None, 1));
        assert!(world.holds()[0] >= 1022, "by next to nothing: {:?}", world.holds());
    }
    // A nudge must not ask for less than the guest's floor.
    let limits = GuestLimits { floor: Some(Bytes::gib(1)), ..GuestLimits::default() };
    world.controller.handle_event(Event::SetLimits(id("b"), limits));
    world.guest("b").said = Some(700);
    world.ticks(40);
    assert_eq!(world.guest("b").target, 1024);
}

#[test]
fn operators_may_limit_steps_under_every_policy() {
    let mut settings = settings(PolicyName::Global, 1024);
    settings.guard.step_up_max = Some(Bytes::mib(64));
    settings.guard.step_down_max = Some(Bytes::mib(32));
    let guests = vec![ToyGuest::new("a", 1024, 512, 750), ToyGuest::new("b", 1024, 512, 100)];
    let mut world = World::new(settings, guests);
    let mut last = (512u64, 512u64);
    for _ in 0..40 {
        // A tick decides at most once.
        world.tick();
        let now = (world.guest("a").target, world.guest("b").target);
        assert!(now.0 <= last.0 + 64 && now.1 + 32 >= last.1, "{last:?} {now:?}");
        last = now;
    }
    assert!(last.0 > 830, "{last:?}");
}

/// `b` says that it uses all it is given and has no swap, but has filled little of it.
#[test]
fn a_claim_to_have_no_swap_weighs_nothing() {
    for policy in [PolicyName::Proportional, PolicyName::DemandProportional, PolicyName::Fcfs] {
        let mut world = two(policy);
        let b = world.guest("b");
        (b.used, b.has_swap, b.touched) = (1024, false, Some(200));
        world.ticks(120);
        assert_eq!(world.holds(), [512, 512], "{policy}");
    }
}

/// The operator lowers its ceiling below what it uses, and then it uses more.
#[test]
fn a_guest_without_swap_keeps_what_it_uses() {
    let squeezed = |has_swap| {
        let mut a = ToyGuest::new("a", 1024, 800, 500);
        a.has_swap = has_swap;
        let mut world = World::new(settings(PolicyName::Static, 1600), vec![a]);
        world.ticks(3);
        let limits = GuestLimits { ceiling: Some(Bytes::mib(300)), ..GuestLimits::default() };
        world.controller.handle_event(Event::SetLimits(id("a"), limits));
        world.ticks(2);
        world.guest("a").used = 600;
        world.ticks(30);
        world
    };
    assert_eq!(squeezed(true).holds(), [300]);
    let mut world = squeezed(false);
    assert_eq!(world.holds(), [632], "what it uses, and 32 MiB to spare");
    let plan = world.tick();
    let clamp = plan.guests[0].clamps.last().cloned();
    assert_eq!(clamp, Some(Clamped::NoSwap { least: Bytes::mib(632) }));
    world.guest("a").used = 200;
    world.ticks(30);
    assert_eq!(world.holds(), [300]);
    assert_eq!(world.controller.plans_refused(), 0);
}

#[test]
fn actions_not_fetched_are_decided_again() {
    let mut world = two(PolicyName::Global);
    world.ticks(2);
    world.guest("a").used = 600;
    world.second += 1;
    world.guests.iter_mut().for_each(ToyGuest::step);
    let plan = world.controller.handle_sample(&world.snapshot());
    assert!(!plan.actions.is_empty());
    world.controller.handle_timeout(Timestamp::from_millis(60_000));
    assert_eq!(world.controller.poll_action(), None, "too late for those");
    world.ticks(30);
    assert!(world.holds()[0] > 690, "decided and sent again");
}

#[test]
fn default_settings_are_the_documented_ones() {
    let settings = Settings::new(PolicyName::Global);
    assert_eq!(settings.tick, Settings::TICK_DEFAULT);
    assert_eq!(settings.policy_settings.reserve, Bytes::mib(100));
    assert_eq!(settings.guard.dead_band, None);
}
