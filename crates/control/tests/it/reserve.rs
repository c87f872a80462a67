//! Memory that is kept free for guests about to start.

use std::time::Duration;

use crate::world::{Mood, ToyGuest, World, id, settings};
use ballast_control::Event;
use ballast_model::{Bytes, CarriedGuest, PolicyName, Reservation, Thrashed, Timestamp};
use proptest::prelude::*;

/// Two guests of 1 GiB, each with half of a budget of 1 GiB, that use little.
fn two() -> World {
    let guests = vec![ToyGuest::new("a", 1024, 512, 100), ToyGuest::new("b", 1024, 512, 100)];
    let mut world = World::new(settings(PolicyName::Global, 1024), guests);
    world.ticks(5);
    world
}

/// Reserves this many MiB for `new` for a minute.
fn reserve(world: &mut World, mib: u64) {
    let until = Timestamp::from_millis(world.second * 1000) + Duration::from_secs(60);
    let reservation =
        Reservation { guest: id("new"), size: Bytes::mib(mib), until, free: Bytes::ZERO };
    world.controller.handle_event(Event::Reserve(reservation));
}

#[test]
fn reserved_memory_is_given_up_and_granted_to_no_guest() {
    let mut world = two();
    reserve(&mut world, 400);
    let plan = world.tick();
    assert!(!plan.reservations[0].is_ready(), "{:?}", plan.reservations);
    let plan = world.ticks(20);
    assert!(plan.reservations[0].is_ready(), "{:?}", plan.reservations);
    assert!(world.committed() <= 624, "{}", world.committed());
    world.guest("a").used = 1000;
    for _ in 0..30 {
        world.tick();
        assert!(world.committed() <= 624, "{}", world.committed());
    }
}

/// Each of many guests has less to give than the dead band.
#[test]
fn a_reservation_is_ready_in_spite_of_dead_bands() {
    let guests = (0..30).map(|at| ToyGuest::new(&format!("g{at:02}"), 1024, 512, 100));
    let mut world = World::new(settings(PolicyName::Global, 30 * 512), guests.collect());
    world.ticks(5);
    reserve(&mut world, 100);
    let plan = world.ticks(10);
    assert!(plan.reservations[0].is_ready(), "{:?}", plan.reservations);
    assert!(world.committed() <= 30 * 512 - 100, "{}", world.committed());
}

#[test]
fn a_guest_that_appears_was_granted_what_was_reserved() {
    let mut world = two();
    reserve(&mut world, 400);
    world.ticks(20);
    let others = world.committed();
    // It may take all of it as soon as it is there, so nobody else gets any.
    world.guests.push(ToyGuest { rate: 0, ..ToyGuest::new("new", 400, 200, 150) });
    let plan = world.tick();
    assert_eq!(plan.reservations, []);
    assert_eq!(plan.budget.committed, Bytes::mib(others + 400));
    world.guest("new").rate = 100;
    world.guest("new").used = 380;
    world.guest("a").used = 1000;
    world.ticks(30);
    assert!(world.guest("new").holds >= 370, "{:?}", world.holds());
    assert!(world.committed() <= 1024);
    assert_eq!(world.controller.plans_refused(), 0);
}

/// The guest's empty hypervisor has 1 GiB and uses none of it yet.
fn incoming() -> ToyGuest {
    ToyGuest { mood: Mood::Incoming, touched: Some(8), ..ToyGuest::new("new", 1024, 1024, 300) }
}

#[test]
fn a_guest_still_to_come_counts_as_its_reservation_once() {
    let mut world = two();
    reserve(&mut world, 400);
    world.ticks(20);
    let others = world.committed();
    world.guests.push(incoming());
    // By how much of it has arrived: less than was reserved, with the hypervisor's own memory, and
    // more.
    for (come, counts) in [(8, 400), (300, 400), (592, 400), (692, 500)] {
        world.guest("new").touched = Some(come);
        let plan = world.ticks(3);
        assert_eq!(plan.reservations, []);
        assert_eq!(plan.budget.committed, Bytes::mib(others + counts), "{come} MiB have come");
        assert_eq!(world.holds()[..2].iter().sum::<u64>(), others);
    }
    let came = world.guest("new");
    (came.mood, came.holds, came.target, came.touched) = (Mood::Willing, 400, 400, None);
    let plan = world.ticks(10);
    assert!(plan.budget.committed <= Bytes::mib(1024), "{plan:?}");
    assert_eq!(world.controller.plans_refused(), 0);
}

#[test]
fn a_guest_without_a_reservation_counts_whole_before_it_comes() {
    let mut world = two();
    let others = world.committed();
    world.guests.push(incoming());
    assert_eq!(world.tick().budget.committed, Bytes::mib(others + 1024));
}

/// A guest that has moved here and uses little is not shrunk to where it thrashed before. Its
/// history arrives while only its process is known.
#[test]
fn a_moved_guest_is_not_shrunk_to_where_it_thrashed() {
    for carries in [false, true] {
        let mut world = two();
        let mut undoing = world.controller.settings().clone();
        undoing.undo = true;
        world.controller.handle_event(Event::Reconfigure(Box::new(undoing)));
        reserve(&mut world, 400);
        world.ticks(20);
        world.guests.push(ToyGuest { mood: Mood::Gone, ..ToyGuest::new("new", 400, 400, 60) });
        world.tick();
        let now = Timestamp::from_millis(world.second * 1000);
        let (until, pause) = (now + Duration::from_secs(40), Duration::from_secs(60));
        if carries {
            let thrashed = Some(Thrashed { least: Bytes::mib(350), until, pause });
            let carried = CarriedGuest { guest: id("new"), credits: None, thrashed };
            world.controller.handle_event(Event::Carried(carried.clone()));
            world.controller.handle_event(Event::Carried(carried));
            let handed = world.controller.handovers();
            assert!(handed.iter().any(|it| it.guest == id("new") && it.thrashed == thrashed));
        }
        world.tick();
        world.guest("new").mood = Mood::Willing;
        for name in ["a", "b"] {
            world.guest(name).used = 300;
        }
        world.ticks(30);
        assert_eq!(world.guest("new").holds >= 350, carries, "{:?}", world.holds());
        world.ticks(40);
        assert!(world.guest("new").holds < 350, "its pause is over: {:?}", world.holds());
    }
}

#[test]
fn reservations_end_in_time_and_on_request() {
    for on_request in [false, true] {
        let mut world = two();
        reserve(&mut world, 400);
        world.guest("a").used = 1000;
        assert_eq!(world.ticks(30).reservations.len(), 1);
        let held = world.guest("a").holds;
        if on_request {
            world.controller.handle_event(Event::Unreserve(id("new")));
        }
        let plan = world.ticks(40);
        assert_eq!(plan.reservations, []);
        assert!(world.guest("a").holds > held + 200, "{held}: {:?}", world.holds());
    }
}

#[test]
fn a_reservation_outlives_a_daemon() {
    let mut world = two();
    reserve(&mut world, 400);
    world.tick_and_restart(9);
    world.guest("a").used = 1000;
    let plan = world.ticks(20);
    assert!(plan.reservations[0].is_ready() && world.committed() <= 624);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Once all reserved memory is free, no guest gets any of it, whatever guests want or refuse,
    /// and no plan is refused.
    #[test]
    fn no_guest_gets_reserved_memory_once_all_is_free(
        size in 1..1500u64,
        spare in 0..1000u64,
        turns in prop::collection::vec((0..3usize, 0..1024u64, 0..4usize, 1..20u64), 1..12),
        policy in prop::sample::select(PolicyName::ALL.to_vec()),
    ) {
        let moods = [Mood::Willing, Mood::Stubborn, Mood::Silent, Mood::Gone];
        let names = ["a", "b", "c"];
        let guests: Vec<ToyGuest> =
            names.iter().map(|name| ToyGuest::new(name, 1024, 512, 100)).collect();
        let budget = 3 * 512 + spare;
        let mut world = World::new(settings(policy, budget), guests);
        world.ticks(3);
        reserve(&mut world, size);
        let mut was_ready = false;
        for (at, used, mood, ticks) in turns {
            world.guests[at].used = used;
            world.guests[at].mood = moods[mood];
            for _ in 0..ticks {
                let plan = world.tick();
                let Some(reservation) = plan.reservations.first() else { return Ok(()) };
                was_ready |= reservation.is_ready();
                prop_assert!(!was_ready || reservation.is_ready(), "{:?}", reservation);
                prop_assert!(!was_ready || world.committed() + size <= budget);
                prop_assert!(world.committed() <= budget);
                prop_assert_eq!(world.controller.plans_refused(), 0, "{:?}", plan.notes);
            }
        }
    }
}
