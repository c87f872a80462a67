//! A daemon that is killed, and its successor.

use std::time::Duration;

use crate::world::{Mood, ToyGuest, World, id, settings};
use ballast_actuation::hotplug::HotplugSettings;
use ballast_actuation::thrash::ThrashSettings;
use ballast_control::{Event, Settings};
use ballast_model::{Bytes, Change, Compliance, HoldReason, PolicyName, RequestKind};
use proptest::prelude::*;

/// Two guests of 1 GiB on a budget of 1 GiB; `a` was granted some of `b`'s memory.
fn two(policy: PolicyName) -> World {
    let guests = vec![ToyGuest::new("a", 1024, 512, 500), ToyGuest::new("b", 1024, 512, 100)];
    let mut world = World::new(settings(policy, 1024), guests);
    world.ticks(20);
    assert!(world.guest("a").holds > 512);
    world
}

#[test]
fn a_promise_outlives_the_daemon_that_made_it() {
    let mut world = two(PolicyName::Global);
    // It has a target but holds less for now, because its hypervisor cannot be reached.
    let target = world.guest("a").target;
    world.guest("a").holds = target - 100;
    world.tick_and_restart(9);
    world.guest("a").mood = Mood::Gone;
    let plan = world.tick();
    let a = plan.guest(&id("a")).unwrap();
    assert_eq!(a.target, Some(Bytes::mib(target)));
    let committed = Bytes::mib(target) + Bytes::mib(world.guest("b").target);
    assert_eq!(plan.budget.committed, committed);
}

#[test]
fn another_process_under_the_name_is_promised_nothing() {
    let mut world = two(PolicyName::Global);
    world.tick_and_restart(9);
    world.guest("a").pid += 1;
    world.guest("a").holds = 300;
    world.controller.handle_event(Event::Pause);
    let plan = world.tick();
    assert_eq!(plan.guest(&id("a")).unwrap().target, None);
    assert!(plan.guest(&id("b")).unwrap().target.is_some());
}

#[test]
fn another_process_under_the_name_is_another_guest() {
    let mut world = two(PolicyName::Global);
    assert!(world.tick().guest(&id("a")).unwrap().target.is_some());
    world.controller.handle_event(Event::Pause);
    world.guest("a").pid += 1;
    assert_eq!(world.tick().guest(&id("a")).unwrap().target, None);
}

#[test]
fn a_pause_outlives_a_daemon_and_so_does_acting() {
    let mut world = two(PolicyName::Global);
    world.tick_and_restart(0);
    assert!(!world.controller.paused());
    world.controller.handle_event(Event::Pause);
    world.tick_and_restart(0);
    assert!(world.controller.paused());
    world.guest("a").used = 800;
    let since = world.second;
    world.ticks(10);
    assert_eq!(world.actions_since(since), 0);
    world.controller.handle_event(Event::Resume);
    world.ticks(10);
    assert!(world.actions_since(since) > 0);
}

#[test]
fn a_target_recorded_and_never_sent_is_sent() {
    let mut world = two(PolicyName::Global);
    let before = world.guest("b").target;
    world.guest("a").used = 800;
    world.tick_and_restart(0);
    assert_eq!(world.guest("b").target, before, "it never heard of it");
    world.tick();
    assert!(world.guest("b").target < before, "{:?}", world.actions.last());
}

#[test]
fn what_a_guest_was_releasing_it_may_still_use() {
    let a = ToyGuest { has_swap: false, rate: 20, ..ToyGuest::new("a", 1024, 800, 700) };
    let b = ToyGuest::new("b", 1024, 224, 200);
    let mut world = World::new(settings(PolicyName::Global, 1024), vec![a, b]);
    world.ticks(20);
    world.guest("a").used = 100;
    world.guest("b").used = 900;
    for _ in 0..20 {
        if world.guest("a").target < 600 {
            break;
        }
        world.tick();
    }
    assert!(world.guest("a").target < 600 && world.guest("a").holds > 700, "{:?}", world.holds());
    world.tick_and_restart(9);
    // It has no swap, and has not given that yet.
    world.guest("a").used = 640;
    for _ in 0..30 {
        world.tick();
        assert!(world.guest("a").holds >= 640, "{:?}", world.holds());
    }
    assert_eq!(world.controller.plans_refused(), 0);
}

#[test]
fn a_stuck_guest_stays_set_aside() {
    let mut world = two(PolicyName::Global);
    world.guest("b").mood = Mood::Stubborn;
    world.guest("a").used = 800;
    world.ticks(20);
    let held = |world: &mut World| {
        let plan = world.tick();
        let b = plan.guest(&id("b")).unwrap().clone();
        assert!(matches!(b.compliance, Compliance::Stuck { .. }), "{:?}", b.compliance);
        let Change::Hold(HoldReason::Stuck { idle, asked, .. }) = b.change else {
            panic!("{:?}", b.change)
        };
        (idle, asked)
    };
    let (idle, asked) = held(&mut world);
    world.tick_and_restart(9);
    assert_eq!(held(&mut world), (idle + Duration::from_secs(2), asked));
}

#[test]
fn a_cap_outlives_the_daemon_that_set_it() {
    let mut world = two(PolicyName::Global);
    world.host_swaps = true;
    world.guest("b").mood = Mood::Stubborn;
    world.guest("a").used = 800;
    world.ticks(60);
    let paged_out = world.guest("b").paged_out;
    assert!(paged_out > 200, "{paged_out}");
    let before = world.tick().budget.committed;
    world.tick_and_restart(9);
    let plan = world.tick();
    assert_eq!(plan.budget.committed, before, "what it holds beyond the cap does not count again");
    world.ticks(30);
    assert!(world.guest("b").paged_out >= paged_out, "{}", world.guest("b").paged_out);
    assert_eq!(world.controller.plans_refused(), 0);
}

/// What guest `a` was granted beyond its target.
fn granted(world: &World) -> Bytes {
    let of_a = world.controller.handovers().into_iter().find(|it| it.guest == id("a"));
    of_a.map_or(Bytes::ZERO, |it| it.transient_grant)
}

/// Guest `a` is idle after memory was plugged in: the balloon holds what is to be unplugged.
fn lending() -> World {
    let mut settings = settings(PolicyName::Global, 2048);
    settings.hotplug = Some(HotplugSettings::default());
    let a = ToyGuest { plug_max: 1024, ..ToyGuest::new("a", 512, 512, 100) };
    let mut world = World::new(settings, vec![a, ToyGuest::new("b", 2048, 512, 100)]);
    world.ticks(10);
    world.guest("a").used = 1000;
    world.ticks(30);
    world.guest("a").used = 100;
    world.guest("b").used = 1500;
    for _ in 0..300 {
        world.tick();
        if granted(&world) > Bytes::ZERO {
            return world;
        }
    }
    panic!("no transient grant was made");
}

#[test]
fn memory_lent_to_be_unplugged_stays_granted() {
    let mut world = lending();
    let before = granted(&world);
    world.tick_and_restart(9);
    world.tick();
    assert!(granted(&world) >= before, "{} of {before}", granted(&world));
}

#[test]
fn memory_lent_ends_when_plugging_is_switched_off() {
    let mut world = lending();
    let settings = Settings { hotplug: None, ..world.controller.settings().clone() };
    world.controller.handle_event(Event::Reconfigure(Box::new(settings)));
    world.ticks(60);
    assert_eq!(granted(&world), Bytes::ZERO);
    assert_eq!(world.controller.plans_refused(), 0);
}

#[test]
fn where_a_guest_thrashed_is_not_forgotten() {
    let guests = vec![ToyGuest::new("a", 1024, 500, 300), ToyGuest::new("b", 1024, 900, 700)];
    let mut world = World::new(settings(PolicyName::Global, 1400), guests);
    world.ticks(20);
    world.guest("b").used = 100;
    world.ticks(10);
    world.guest("b").swap_in += 400;
    world.ticks(3);
    let thrashed = world.controller.handovers().into_iter().find_map(|it| it.thrashed);
    assert!(thrashed.is_some_and(|it| it.pause == ThrashSettings::PAUSE_DEFAULT), "{thrashed:?}");
    world.tick_and_restart(9);
    world.tick();
    let kept = world.controller.handovers().into_iter().find_map(|it| it.thrashed);
    assert_eq!(kept, thrashed);
}

fn mood() -> impl Strategy<Value = Mood> {
    prop_oneof![
        5 => Just(Mood::Willing),
        1 => Just(Mood::Stubborn),
        1 => Just(Mood::Silent),
        1 => Just(Mood::Gone),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Wherever daemons are killed (before, between or after their actions) and however long it
    /// takes until the next one starts.
    #[test]
    fn the_budget_holds_wherever_daemons_are_killed(
        sizes in prop::collection::vec((512..4096u64, 0..100u64, 10..400u64), 1..5),
        turns in prop::collection::vec(
            ((0..5usize, 0..4096u64, mood()), 1..15u64, option_of_kill(), any::<bool>()),
            1..12,
        ),
        policy in prop::sample::select(PolicyName::ALL.to_vec()),
        spare in 0..2000u64,
    ) {
        let toy = |(at, (boot, used, rate)): (usize, &(u64, u64, u64))| ToyGuest {
            rate: *rate,
            ..ToyGuest::new(&format!("g{at}"), *boot, boot / 2, boot * used / 100)
        };
        let guests: Vec<ToyGuest> = sizes.iter().enumerate().map(toy).collect();
        let budget = guests.iter().map(|guest| guest.holds).sum::<u64>() + spare;
        let mut world = World::new(settings(policy, budget), guests);
        world.tick();
        for ((at, used, mood), ticks, kill, asks) in turns {
            let at = at % world.guests.len();
            let guest = &mut world.guests[at];
            guest.used = used.min(guest.boot);
            guest.mood = mood;
            if asks {
                guest.ask(RequestKind::More, Bytes::mib(used));
            }
            if let Some((sent, away)) = kill {
                world.tick_and_restart(sent);
                for _ in 0..away {
                    world.pass();
                    prop_assert!(world.committed() <= budget, "{} > {budget}", world.committed());
                }
            }
            for _ in 0..ticks {
                world.tick();
                prop_assert_eq!(world.controller.plans_refused(), 0);
                prop_assert!(world.committed() <= budget, "{} > {budget}", world.committed());
            }
        }
    }
}

/// After how many actions a daemon is killed, and how many seconds pass without one.
fn option_of_kill() -> impl Strategy<Value = Option<(usize, u64)>> {
    prop::option::of((0..4usize, 0..4u64))
}
