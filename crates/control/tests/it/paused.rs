//! Memory that operators move by hand during a pause.

use crate::world::{Mood, ToyGuest, World, id, mib, settings};
use ballast_control::Event;
use ballast_model::{Change, Compliance, HoldReason, Note, PolicyName};

/// Two guests of 1 GiB on a budget of 1 GiB and a host that can page; `a` uses most. Ballast is
/// paused.
fn paused(policy: PolicyName, is_shared: bool) -> World {
    let toy = |name, used| ToyGuest { is_shared, ..ToyGuest::new(name, 1024, 512, used) };
    let mut world = World::new(settings(policy, 1024), vec![toy("a", 500), toy("b", 100)]);
    world.host_swaps = true;
    world.ticks(20);
    world.controller.handle_event(Event::Pause);
    world
}

#[test]
fn what_operators_moved_during_a_pause_is_no_debt() {
    for is_shared in [false, true] {
        let mut world = paused(PolicyName::Global, is_shared);
        world.guest("b").target += 300;
        for second in 0..90 {
            if second == 60 {
                world.controller.handle_event(Event::Resume);
            }
            let plan = world.tick();
            let b = plan.guest(&id("b")).unwrap();
            let is_late =
                matches!(b.compliance, Compliance::Slow { .. } | Compliance::Stuck { .. });
            assert!(!is_late, "{second}: {:?}", b.compliance);
            assert!(plan.paging.is_empty(), "{second}: {:?}", plan.paging);
            let is_debt = |note: &Note| matches!(note, Note::BeyondEntitlement { .. });
            assert!(!plan.notes.iter().any(is_debt), "{second}: {:?}", plan.notes);
        }
        assert!(world.committed() <= 1024, "it gave that back: {:?}", world.holds());
        assert_eq!(world.controller.plans_refused(), 0);
    }
}

#[test]
fn what_operators_moved_during_a_pause_costs_no_credits() {
    let credits = |moved: u64| {
        let mut world = paused(PolicyName::DirectAssign, false);
        world.guest("b").target += moved;
        let mut credits = Vec::new();
        for _ in 0..120 {
            let plan = world.tick();
            credits.push(plan.guests.iter().map(|it| it.credits).collect::<Vec<_>>());
        }
        assert!(credits.iter().flatten().all(Option::is_some));
        credits
    };
    assert_eq!(credits(300), credits(0));
}

#[test]
fn a_guest_moved_during_a_pause_has_no_other_owner() {
    let mut world = paused(PolicyName::Global, true);
    let target = world.guest("b").target;
    for by_hand in [target - 60, target, target - 60, target, target - 60] {
        world.guest("b").target = by_hand;
        world.ticks(10);
    }
    world.controller.handle_event(Event::Resume);
    let plan = world.ticks(10);
    let b = plan.guest(&id("b")).unwrap();
    let is_owned = matches!(b.change, Change::Hold(HoldReason::AnotherOwner { .. }));
    assert!(!is_owned, "{:?}", b.change);
    assert_eq!(b.target.map(mib), Some(world.guest("b").holds), "its target was sent again");
}

#[test]
fn a_pause_makes_no_balloon_slow() {
    let mut world = paused(PolicyName::Global, false);
    let rate = world.tick().guest(&id("b")).unwrap().balloon_rate;
    world.guest("b").target += 300;
    assert_eq!(world.ticks(30).guest(&id("b")).unwrap().balloon_rate, rate);
}

/// On a budget of 1,250 MiB, an operator gives a guest without swap 950 MiB, and it uses 900.
#[test]
fn a_guest_may_use_what_an_operator_gave_it() {
    for restarts in [false, true] {
        let a = ToyGuest { is_shared: true, has_swap: false, ..ToyGuest::new("a", 1024, 625, 250) };
        let b = ToyGuest::new("b", 1024, 625, 250);
        let mut world = World::new(settings(PolicyName::Global, 1250), vec![a, b]);
        world.ticks(20);
        world.controller.handle_event(Event::Pause);
        world.guest("a").target = 950;
        world.guest("a").used = 900;
        world.ticks(5);
        if restarts {
            world.tick_and_restart(0);
        }
        world.controller.handle_event(Event::Resume);
        for _ in 0..30 {
            world.tick();
            assert!(world.guest("a").holds >= 900, "{restarts}: {:?}", world.holds());
        }
        assert!(world.committed() <= 1250, "{restarts}: {:?}", world.holds());
        assert_eq!(world.controller.plans_refused(), 0);
    }
}

/// `b` takes 400 MiB while it cannot be reached, and answers again during a pause. It has no swap
/// for what it uses.
#[test]
fn a_pause_forgives_no_silent_guest() {
    let b = ToyGuest { is_shared: true, has_swap: false, ..ToyGuest::new("b", 1024, 512, 100) };
    let guests = vec![ToyGuest::new("a", 1024, 512, 400), b];
    let mut world = World::new(settings(PolicyName::Global, 1024), guests);
    world.ticks(20);
    let b = world.guest("b");
    b.mood = Mood::Gone;
    b.holds += 400;
    b.used = b.holds - 50;
    world.ticks(2);
    world.controller.handle_event(Event::Pause);
    world.tick();
    world.guest("b").mood = Mood::Stubborn;
    world.ticks(5);
    world.controller.handle_event(Event::Resume);
    world.ticks(10);
    assert_eq!(world.controller.plans_refused(), 0, "guard and checker agree on what it owes");
}
