//! Tests: the memory of guard and controller is corrupted; the checker, which keeps its own, still
//! keeps the promises.

use std::sync::Arc;
use std::time::Duration;

use ballast_model::{Bytes, GuestId, Mode, PolicyName, Reservation, Timestamp};
use proptest::prelude::*;

use crate::state::GuestState;
use crate::world::{Mood, ToyGuest, World, id, settings};
use crate::{Controller, Event};

fn state<'a>(controller: &'a mut Controller, name: &str) -> &'a mut GuestState {
    let id: GuestId = name.parse().unwrap();
    controller.guests.named_mut(&id).unwrap()
}

/// Gives each guest the log of the other.
fn swap_logs(controller: &mut Controller, one: &str, other: &str) {
    let log = state(controller, one).log.clone();
    let log = std::mem::replace(&mut state(controller, other).log, log);
    state(controller, one).log = log;
}

/// Of 3,000 MiB, `a` holds 1,000 that `c` could use, but `a` cannot be seen.
#[test]
fn an_unseen_guest_counts_though_the_guard_forgot_it() {
    let guests = vec![
        ToyGuest::new("a", 2048, 1500, 1400),
        ToyGuest::new("b", 2048, 300, 290),
        ToyGuest::new("c", 2048, 1200, 1190),
    ];
    let mut world = World::new(settings(PolicyName::Global, 3000), guests);
    world.ticks(5);
    world.guest("a").mood = Mood::Gone;
    world.guest("c").used = 2000;
    world.ticks(2);
    assert_eq!(world.controller.plans_refused(), 0);
    swap_logs(&mut world.controller, "a", "b");
    world.ticks(3);
    assert!(world.controller.plans_refused() > 0);
    assert!(world.committed() <= 3000, "{}", world.committed());
}

/// The same, but the next daemon goes on from what the guard forgot, and sees nothing of `a`.
#[test]
fn a_restart_restores_no_corrupted_memory() {
    let guests = vec![
        ToyGuest::new("a", 2048, 1500, 1400),
        ToyGuest::new("b", 2048, 300, 290),
        ToyGuest::new("c", 2048, 1200, 1190),
    ];
    let mut world = World::new(settings(PolicyName::Global, 3000), guests);
    world.ticks(5);
    let a = world.guest("a");
    (a.mood, a.pid) = (Mood::Gone, 0);
    world.guest("c").used = 2000;
    world.ticks(2);
    assert_eq!(world.controller.plans_refused(), 0);
    swap_logs(&mut world.controller, "a", "b");
    world.tick_and_restart(9);
    for _ in 0..10 {
        world.tick();
        assert!(world.committed() <= 3000, "{}", world.committed());
    }
    assert!(world.controller.plans_refused() > 0);
}

/// `b` was promised memory and has not taken it yet; the guard takes that memory for free.
#[test]
fn promised_memory_counts_though_the_guard_forgot_it() {
    let guests = vec![ToyGuest::new("a", 4096, 500, 100), ToyGuest::new("b", 4096, 500, 100)];
    let mut world = World::new(settings(PolicyName::Static, 4000), guests);
    world.tick();
    world.ticks(2);
    let plan = world.tick();
    let promised = plan.guests[1].target.unwrap();
    assert_eq!(promised, Bytes::mib(2000));
    // `b` stays at what it had before it was promised more.
    world.guest("b").target = 500;
    world.guest("b").holds = 500;
    state(&mut world.controller, "b").log.record_target(Bytes::mib(500), true);
    state(&mut world.controller, "b").goal = None;
    let limits = &mut world.controller.settings().clone();
    limits.limits.default.shares = 1;
    limits.limits.named.insert(
        "a".parse().unwrap(),
        ballast_model::GuestLimits { shares: 7, ..Default::default() },
    );
    world.controller.handle_event(Event::Reconfigure(Box::new(limits.clone())));
    let plan = world.tick();
    assert!(world.controller.plans_refused() > 0, "{plan:?}");
}

/// Two guests of 1 GiB, each with half of a budget of 1 GiB, that use little.
fn two() -> World {
    let guests = vec![ToyGuest::new("a", 1024, 512, 100), ToyGuest::new("b", 1024, 512, 100)];
    let mut world = World::new(settings(PolicyName::Global, 1024), guests);
    world.ticks(5);
    world
}

#[test]
fn reserved_memory_stays_free_though_the_controller_forgot_it() {
    let mut world = two();
    let until = Timestamp::from_millis(world.second * 1000) + Duration::from_secs(600);
    let reservation =
        Reservation { guest: id("new"), size: Bytes::mib(400), until, free: Bytes::ZERO };
    world.controller.handle_event(Event::Reserve(reservation));
    let plan = world.ticks(20);
    assert!(plan.reservations[0].is_ready(), "{:?}", plan.reservations);
    world.guest("a").used = 1000;
    world.controller.reservations.end(&id("new"));
    for _ in 0..30 {
        world.tick();
        assert!(world.committed() <= 624, "{}", world.committed());
    }
    assert!(world.controller.plans_refused() > 0);
}

#[test]
fn a_pause_or_observing_holds_though_the_controller_forgot_it() {
    type Forget = fn(&mut Controller);
    let forgotten: [(Event, Forget); 2] = [
        (Event::Pause, |controller| controller.paused = false),
        (Event::SetMode(Mode::Observe), |controller| {
            Arc::make_mut(&mut controller.settings).mode = Mode::Balance;
        }),
    ];
    for (event, forget) in forgotten {
        let mut world = two();
        world.controller.handle_event(event);
        forget(&mut world.controller);
        assert_eq!(world.controller.held(), None);
        world.guest("a").used = 1000;
        let sent = world.actions.len();
        world.ticks(30);
        assert!(world.controller.plans_refused() > 0);
        assert_eq!(world.actions.len(), sent);
    }
}

#[derive(Clone, Copy, Debug)]
enum Corruption {
    SwapLogs(usize, usize),
    /// The target in force, MiB.
    Target(usize, u64),
    ForgetGoal(usize),
}

fn corruption() -> impl Strategy<Value = Corruption> {
    prop_oneof![
        (0..5usize, 0..5usize).prop_map(|(one, other)| Corruption::SwapLogs(one, other)),
        (0..5usize, 0..4096u64).prop_map(|(guest, mib)| Corruption::Target(guest, mib)),
        (0..5usize).prop_map(Corruption::ForgetGoal),
    ]
}

fn corrupt(world: &mut World, corruption: Corruption) {
    let n = world.guests.len();
    let name = |at: usize| format!("g{}", at % n);
    let controller = &mut world.controller;
    match corruption {
        Corruption::SwapLogs(one, other) => swap_logs(controller, &name(one), &name(other)),
        Corruption::Target(guest, mib) => {
            state(controller, &name(guest)).log.record_target(Bytes::mib(mib), true);
        }
        Corruption::ForgetGoal(guest) => state(controller, &name(guest)).goal = None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever the guard remembers wrongly, and hands over to the next daemon, guests never hold,
    /// or may take, more than the budget.
    #[test]
    fn the_budget_holds_whatever_the_guard_forgets(
        sizes in prop::collection::vec((512..4096u64, 0..100u64, 10..400u64), 2..6),
        turns in prop::collection::vec(
            (0..5usize, 0..4096u64, 0..4u8, corruption(), 1..8u64, any::<bool>()),
            1..12,
        ),
        spare in 0..1500u64,
    ) {
        let toy = |(at, (boot, used, rate)): (usize, &(u64, u64, u64))| {
            let guest = ToyGuest::new(&format!("g{at}"), *boot, boot / 2, boot * used / 100);
            ToyGuest { rate: *rate, ..guest }
        };
        let guests: Vec<ToyGuest> = sizes.iter().enumerate().map(toy).collect();
        let budget = guests.iter().map(|guest| guest.holds).sum::<u64>() + spare;
        let mut world = World::new(settings(PolicyName::Global, budget), guests);
        world.ticks(3);
        for (at, used, mood, corruption, ticks, restarts) in turns {
            let at = at % world.guests.len();
            let guest = &mut world.guests[at];
            guest.used = used.min(guest.boot);
            guest.mood = [Mood::Willing, Mood::Stubborn, Mood::Silent, Mood::Gone][usize::from(mood)];
            corrupt(&mut world, corruption);
            if restarts {
                world.tick_and_restart(usize::MAX);
                prop_assert!(world.committed() <= budget, "{} > {budget}", world.committed());
            }
            for _ in 0..ticks {
                world.tick();
                prop_assert!(world.committed() <= budget, "{} > {budget}", world.committed());
            }
        }
    }
}
