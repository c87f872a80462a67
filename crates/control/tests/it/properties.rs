//! Promises that hold whatever guests do.

use crate::world::{Mood, ToyGuest, World, mib, settings};
use ballast_control::{Controller, Event, Settings};
use ballast_model::{
    Bytes, Capabilities, Change, GuestLimits, GuestSample, GuestStats, HoldReason, HostSample,
    Hotplug, HotplugKind, LinkState, Measured, MemoryRoom, Mode, PolicyName, RequestKind, Snapshot,
    Timestamp,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Turn {
    guest: usize,
    used: u64,
    mood: Mood,
    ticks: u64,
}

fn mood() -> impl Strategy<Value = Mood> {
    prop_oneof![
        6 => Just(Mood::Willing),
        1 => Just(Mood::Stubborn),
        1 => Just(Mood::Silent),
        1 => Just(Mood::Gone),
        1 => Just(Mood::Lying),
        1 => Just(Mood::Unheard),
    ]
}

fn guest() -> impl Strategy<Value = ToyGuest> {
    (512..4096u64, 0..100u64, 10..400u64, any::<bool>()).prop_map(|(boot, used, rate, has_swap)| {
        ToyGuest { rate, has_swap, ..ToyGuest::new("x", boot, boot / 2, boot * used / 100) }
    })
}

fn guests() -> impl Strategy<Value = Vec<ToyGuest>> {
    prop::collection::vec(guest(), 1..6).prop_map(|mut guests| {
        for (i, guest) in guests.iter_mut().enumerate() {
            guest.id = format!("g{i}").parse().unwrap();
        }
        guests
    })
}

fn turn() -> impl Strategy<Value = Turn> {
    (0..6usize, 0..4096u64, mood(), 1..25u64).prop_map(|(guest, used, mood, ticks)| Turn {
        guest,
        used,
        mood,
        ticks,
    })
}

fn request_kind() -> impl Strategy<Value = RequestKind> {
    prop::sample::select(vec![RequestKind::More, RequestKind::Less, RequestKind::Emergency])
}

fn amount() -> impl Strategy<Value = Bytes> {
    prop_oneof![Just(u64::MAX), 0..1u64 << 32].prop_map(Bytes::new)
}

fn policy() -> impl Strategy<Value = PolicyName> {
    prop::sample::select(PolicyName::ALL.to_vec())
}

/// Policies under which allocations settle while demand is constant. Three others sell memory,
/// where the owner has paid for it and the next guest can pay more (flexmemd §4.6).
fn settling_policy() -> impl Strategy<Value = PolicyName> {
    use PolicyName::{Auction, DirectAssign, RoundRobin};
    let others = [DirectAssign, Auction, RoundRobin];
    let settling = PolicyName::ALL.into_iter().filter(|policy| !others.contains(policy));
    prop::sample::select(settling.collect::<Vec<_>>())
}

/// A guest with pluggable memory in any state: requests by others, devices with blocks of different
/// sizes, balloons that are missing or take nothing, and claims that contradict the host's own view
/// or exceed what is mapped.
fn plugging_guest() -> impl Strategy<Value = GuestSample> {
    let kinds = prop::sample::select(vec![
        (HotplugKind::VirtioMem, 2, 2),
        (HotplugKind::VirtioMem, 128, 128),
        (HotplugKind::VirtioMem, 128, 2),
        (HotplugKind::Dimm, 128, 128),
    ]);
    let some = || prop::option::of(0..2000u64);
    let sizes = (0..8u64, 0..2000u64, 0..2000u64, some(), some());
    let flags = prop::option::of(any::<bool>());
    (kinds, 0..40u64, 0..40u64, 0..40u64, sizes, flags.clone(), flags).prop_map(
        |((kind, block, unit), max, plugged, requested, sizes, balloon, discard_inhibited)| {
            let (boot, claims, available, resident, mapped) = sizes;
            let stats =
                GuestStats { available: Some(Bytes::mib(available)), ..GuestStats::default() };
            let mut guest = GuestSample {
                boot_memory: Some(Bytes::mib(boot * 128)),
                hotplug: Some(Hotplug {
                    kind,
                    plugged: Bytes::mib(unit * plugged.min(max)),
                    requested: Bytes::mib(unit * requested.min(max)),
                    max: Bytes::mib(unit * max),
                    block: Bytes::mib(block),
                }),
                resident: resident.map(|size| Measured::fresh(Bytes::mib(size))),
                stats: Some(Measured::fresh(stats)),
                capabilities: Capabilities {
                    balloon,
                    discard_inhibited,
                    ..Capabilities::default()
                },
                ..GuestSample::unknown("x".parse().unwrap(), LinkState::Up)
            };
            let present = guest.present_memory().unwrap_or_default();
            // Without a balloon a guest holds everything it has, and a balloon takes nothing from
            // memory plugged in by virtio-mem.
            let least = match (balloon, kind) {
                (Some(false), _) => present,
                (_, HotplugKind::VirtioMem) => Bytes::mib(unit * plugged.min(max)),
                (_, HotplugKind::Dimm) => Bytes::ZERO,
            };
            let claims = Bytes::mib(claims).clamp(least, present);
            guest.allocation = Some(Measured::fresh(claims));
            if let Some(mapped) = mapped {
                guest.cut_to_mapped(Bytes::mib(mapped));
            }
            guest
        },
    )
}

fn floor_of(guest: &ToyGuest) -> u64 {
    mib(GuestLimits::default().floor_for(Bytes::mib(guest.boot)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Conservation, floors and the checker, under any sequence of demands and misbehaviour.
    #[test]
    fn the_budget_and_every_floor_hold_at_all_times(
        guests in guests(),
        turns in prop::collection::vec(turn(), 1..12),
        policy in policy(),
        spare in 0..2000u64,
    ) {
        let budget = guests.iter().map(|g| g.holds).sum::<u64>() + spare;
        let started: Vec<u64> = guests.iter().map(|g| g.holds).collect();
        let mut world = World::new(settings(policy, budget), guests);
        world.tick(); // what a guest holds that was never seen cannot be counted
        for turn in turns {
            let at = turn.guest % world.guests.len();
            let boot = world.guests[at].boot;
            world.guests[at].used = turn.used.min(boot);
            world.guests[at].mood = turn.mood;
            // As soon as a guest without swap says that it uses more, none of that is taken any
            // more.
            let mut left = None;
            for _ in 0..turn.ticks {
                let plan = world.tick();
                let guest = &world.guests[at];
                if guest.mood == Mood::Willing && !guest.has_swap {
                    let left = *left.get_or_insert(guest.holds.min(guest.used));
                    // This near its target, a guest has complied.
                    prop_assert!(guest.holds + 4 >= left, "{left} used of {guest:?}");
                }
                prop_assert!(world.committed() <= budget, "{} > {budget}", world.committed());
                for (guest, started) in world.guests.iter().zip(&started) {
                    let floor = floor_of(guest).min(*started);
                    prop_assert!(guest.holds >= floor && guest.target >= floor, "{guest:?}");
                    prop_assert!(guest.holds <= guest.boot);
                }
                prop_assert_eq!(world.controller.plans_refused(), 0, "{:?}", plan.notes);
            }
        }
    }

    /// Guests below one limit of the kernel are never granted more together than it leaves them,
    /// whatever they do. What the host pages out of one is left to the others.
    #[test]
    fn grants_fit_every_limit_on_processes(
        guests in guests(),
        turns in prop::collection::vec((turn(), 0..200u64), 1..12),
        slices in prop::collection::vec((0..64usize, 0..8192u64), 1..4),
        policy in policy(),
        spare in 0..4000u64,
        host_swaps in any::<bool>(),
    ) {
        let budget = guests.iter().map(|g| g.holds).sum::<u64>() + spare;
        let mut world = World::new(settings(policy, budget), guests);
        world.host_swaps = host_swaps;
        if host_swaps {
            world.guests.iter_mut().for_each(|guest| guest.has_swap = true);
        }
        for (bits, limit) in slices {
            let places = (0..world.guests.len()).filter(|place| (bits >> place) & 1 == 1);
            world.slices.push((places.map(|place| world.guests[place].id.clone()).collect(), limit));
        }
        world.tick();
        let mut before = world.in_slices();
        for (turn, reads_back) in turns {
            let at = turn.guest % world.guests.len();
            let guest = &mut world.guests[at];
            (guest.used, guest.mood) = (turn.used.min(guest.boot), turn.mood);
            guest.reads_back = reads_back;
            for _ in 0..turn.ticks {
                let plan = world.tick();
                let now = world.in_slices();
                for ((now, before), (members, limit)) in now.iter().zip(&before).zip(&world.slices) {
                    let fits = host_swaps || *now <= (*before).max(*limit);
                    prop_assert!(fits, "{now} of {limit}, {before} before: {members:?}");
                }
                before = now;
                prop_assert_eq!(world.controller.plans_refused(), 0, "{:?}", plan.notes);
            }
        }
    }

    /// Guard and checker agree on limits that come, change and go, also over pauses and killed
    /// daemons.
    #[test]
    fn limits_that_come_and_go_refuse_no_plan(
        guests in guests(),
        turns in prop::collection::vec(
            (turn(), 0..64usize, 0..8192u64, prop::option::of(0..4usize), any::<bool>()),
            1..12,
        ),
        policy in policy(),
        spare in 0..2000u64,
    ) {
        let budget = guests.iter().map(|g| g.holds).sum::<u64>() + spare;
        let mut world = World::new(settings(policy, budget), guests);
        world.tick();
        for (turn, bits, limit, kill, pauses) in turns {
            let at = turn.guest % world.guests.len();
            let guest = &mut world.guests[at];
            (guest.used, guest.mood) = (turn.used.min(guest.boot), turn.mood);
            let places = (0..world.guests.len()).filter(|place| (bits >> place) & 1 == 1);
            let members = places.map(|place| world.guests[place].id.clone()).collect();
            world.slices = vec![(members, limit)];
            if let Some(sent) = kill {
                world.tick_and_restart(sent);
            }
            let event = if pauses { Event::Pause } else { Event::Resume };
            world.controller.handle_event(event);
            for _ in 0..turn.ticks {
                let plan = world.tick();
                prop_assert_eq!(world.controller.plans_refused(), 0, "{:?}", plan.notes);
            }
        }
    }

    /// A silent guest is never asked for memory. At a time it is given no more than its kernel
    /// takes and keeps free beyond what the host sees it touch.
    #[test]
    fn a_guest_that_says_nothing_grows_by_steps_alone(
        guests in guests(),
        unheard in 0..6usize,
        turns in prop::collection::vec(turn(), 1..12),
        policy in policy(),
        spare in 0..2000u64,
    ) {
        const STEP_MAX: u64 = 128;
        let unheard = unheard % guests.len();
        // The budget may also be too small from the start.
        let budget = guests.iter().map(|g| g.holds).sum::<u64>() / 2 + spare;
        let mut world = World::new(settings(policy, budget), guests);
        for turn in turns {
            let at = turn.guest % world.guests.len();
            let boot = world.guests[at].boot;
            world.guests[at].used = turn.used.min(boot);
            world.guests[at].mood = turn.mood;
            world.guests[unheard].mood = Mood::Unheard;
            for _ in 0..turn.ticks {
                let before = world.guests[unheard].clone();
                let plan = world.tick();
                let guest = &world.guests[unheard];
                prop_assert!(guest.holds >= before.holds && guest.target >= before.holds);
                prop_assert!(guest.target <= before.target.max(guest.holds + STEP_MAX), "{guest:?}");
                let lacks = guest.used.min(guest.holds) + STEP_MAX.min(guest.holds / 2) > guest.holds;
                prop_assert!(lacks || guest.target <= before.target, "{guest:?}");
                prop_assert_eq!(world.controller.plans_refused(), 0, "{:?}", plan.notes);
            }
        }
    }

    /// A plan that the checker refuses is carried out for no guest.
    #[test]
    fn no_plan_is_refused_whatever_guests_plug(
        ticks in prop::collection::vec(prop::collection::vec(plugging_guest(), 2), 1..8),
        policy in policy(),
        budget in 0..4000u64,
        step in prop::option::of(0..300u64),
        plugs in any::<bool>(),
        swap in prop::option::of(any::<bool>()),
        left in prop::option::of(0..3000u64),
    ) {
        let mut settings = settings(policy, budget);
        (settings.guard.step_up_max, settings.guard.step_down_max) =
            (step.map(Bytes::mib), step.map(Bytes::mib));
        settings.hotplug = settings.hotplug.filter(|_| plugs);
        settings.limits.default.swap = swap;
        let mut controller = Controller::new(settings, Timestamp::ZERO);
        for (second, mut guests) in ticks.into_iter().enumerate() {
            guests[1].id = "y".parse().unwrap();
            if let Some(left) = left {
                let (by, limit) = ("slice/memory.max".to_owned(), Bytes::gib(8));
                let room = MemoryRoom { by, limit, left: Bytes::mib(left) };
                guests.iter_mut().for_each(|guest| guest.rooms = vec![room.clone()]);
            }
            let host = HostSample {
                memory_total: Some(Bytes::gib(8)),
                memory_available: Some(Bytes::gib(4)),
                ..HostSample::default()
            };
            let now = Timestamp::from_millis(3000 * second as u64);
            let snapshot = Snapshot::new(now, host, guests);
            let plan = controller.handle_sample(&snapshot);
            prop_assert_eq!(controller.plans_refused(), 0, "{:?} of {:?}", plan, snapshot);
        }
    }

    /// The same where the host pages out what guests do not give, and guests read it back whether
    /// or not they answer. Guests without swap that begin to use more are left out: no cap holds
    /// them.
    #[test]
    fn the_budget_holds_where_the_host_pages(
        guests in guests(),
        turns in prop::collection::vec((turn(), 0..4usize, 0..200u64), 1..12),
        policy in policy(),
        spare in 0..2000u64,
    ) {
        let moods = [Mood::Willing, Mood::Stubborn, Mood::Silent, Mood::Gone];
        let budget = guests.iter().map(|g| g.holds).sum::<u64>() + spare;
        let mut world = World::new(settings(policy, budget), guests);
        world.guests.iter_mut().for_each(|guest| guest.has_swap = true);
        world.host_swaps = true;
        world.tick();
        // An amount that is not worth paging out.
        let most = budget + 8 * world.guests.len() as u64;
        for (turn, mood, reads_back) in turns {
            let at = turn.guest % world.guests.len();
            let guest = &mut world.guests[at];
            guest.used = turn.used.min(guest.boot);
            guest.mood = moods[mood];
            guest.reads_back = reads_back;
            for _ in 0..turn.ticks {
                let plan = world.tick();
                prop_assert!(world.occupied() <= most, "{} > {budget}", world.occupied());
                prop_assert_eq!(world.controller.plans_refused(), 0, "{:?}", plan.notes);
            }
        }
    }

    /// Whatever was balanced before and whatever guests do, nothing moves in observe mode, and
    /// plans still say what each guest would have.
    #[test]
    fn no_plan_moves_anything_while_observing(
        guests in guests(),
        turns in prop::collection::vec((turn(), any::<bool>(), 0..200u64), 1..12),
        policy in policy(),
        spare in 0..2000u64,
    ) {
        let budget = guests.iter().map(|g| g.holds).sum::<u64>() + spare;
        let mut world = World::new(settings(policy, budget), guests);
        world.guests.iter_mut().for_each(|guest| guest.has_swap = true);
        world.host_swaps = true;
        world.tick();
        for (turn, observes, reads_back) in turns {
            let at = turn.guest % world.guests.len();
            let guest = &mut world.guests[at];
            guest.used = turn.used.min(guest.boot);
            (guest.mood, guest.reads_back) = (turn.mood, reads_back);
            let mode = if observes { Mode::Observe } else { Mode::Balance };
            world.controller.handle_event(Event::SetMode(mode));
            for _ in 0..turn.ticks {
                let plan = world.tick();
                prop_assert_eq!(world.controller.plans_refused(), 0, "{:?}", plan.notes);
                if !observes {
                    continue;
                }
                prop_assert!(plan.actions.is_empty() && plan.paging.is_empty(), "{:?}", plan);
                for guest in &plan.guests {
                    let Change::Hold(why) = &guest.change else { panic!("{guest:?}") };
                    let is_movable = guest.estimate.is_some();
                    prop_assert_eq!(*why == HoldReason::Observing, is_movable, "{:?}", guest);
                    prop_assert!(!is_movable || guest.desired.is_some(), "{:?}", guest);
                }
            }
        }
    }

    /// Whatever its neighbours ask for, a guest that asks for what it needs gets that or its fair
    /// part of the budget, and no guest has less than its floor.
    #[test]
    fn a_guest_that_asks_honestly_has_its_part_among_liars(
        need in 150..1024u64,
        budget in 3 * 200..3 * 1024u64,
        lies in prop::collection::vec((0..2usize, request_kind(), amount(), 1..4u64), 10..40),
    ) {
        let name = |at: usize| format!("g{at}");
        let guests = (0..3).map(|at| ToyGuest::new(&name(at), 1024, budget / 3, 120));
        let mut world = World::new(settings(PolicyName::DemandProportional, budget), guests.collect());
        world.tick();
        let turn = |world: &mut World, at: usize, kind, amount, ticks| {
            world.guest(&name(1 + at)).ask(kind, amount);
            for _ in 0..ticks {
                let honest = world.guest("g0");
                let short = need.saturating_sub(honest.target);
                if short > 0 {
                    honest.ask(RequestKind::More, Bytes::mib(short));
                }
                world.tick();
                prop_assert!(world.committed() <= budget, "{} > {budget}", world.committed());
            }
            Ok(())
        };
        for (at, kind, amount, ticks) in lies {
            turn(&mut world, at, kind, amount, ticks)?;
        }
        // The last request is released at 100 MiB a second.
        turn(&mut world, 0, RequestKind::Emergency, Bytes::gib(1 << 20), 15)?;
        let due = need.min(budget / 3);
        let honest = world.guest("g0").holds;
        prop_assert!(honest + 1 >= due, "{honest} of {due}");
        for guest in &world.guests {
            prop_assert!(guest.holds >= floor_of(guest));
        }
    }

    /// Under constant demand, after a while nothing moves any more.
    #[test]
    fn constant_input_does_not_oscillate(guests in guests(), policy in settling_policy(), spare in 0..2000u64) {
        let budget = guests.iter().map(|g| g.holds).sum::<u64>() + spare;
        let mut world = World::new(settings(policy, budget), guests);
        // The slowest guest gives 10 MiB a second and may have 2 GiB to give.
        world.ticks(400);
        let settled = world.second;
        world.ticks(100);
        prop_assert_eq!(world.actions_since(settled), 0, "{:?}", world.actions.last());
    }

    /// The order in which guests are found does not matter, and a replay gives the same plans.
    #[test]
    fn same_inputs_give_the_same_plans(guests in guests(), policy in policy(), spare in 0..500u64) {
        let budget = guests.iter().map(|g| g.holds).sum::<u64>() + spare;
        let mut world = World::new(settings(policy, budget), guests);
        let mut recorded: Vec<(Snapshot, String)> = Vec::new();
        for n in 0..30u64 {
            let at = (n % world.guests.len() as u64) as usize;
            world.guests[at].used = (n * 977) % world.guests[at].boot;
            let plan = world.tick();
            recorded.push((world.snapshot(), format!("{plan:?}")));
        }
        let mut replay = Controller::new(settings(policy, budget), Timestamp::ZERO);
        for (snapshot, recorded) in recorded {
            let mut reversed: Vec<_> = snapshot.guests().to_vec();
            reversed.reverse();
            let reversed = Snapshot::new(snapshot.taken_at, snapshot.host, reversed);
            let plan = replay.handle_sample(&reversed);
            while replay.poll_action().is_some() {}
            prop_assert_eq!(format!("{plan:?}"), recorded);
        }
    }
}

/// A dry run has no effect.
#[test]
fn dry_run_has_no_effect() {
    let guests = vec![ToyGuest::new("a", 1024, 512, 700), ToyGuest::new("b", 1024, 512, 100)];
    let mut with = World::new(Settings::clone(&settings(PolicyName::Global, 1024)), guests.clone());
    let mut without = World::new(settings(PolicyName::Global, 1024), guests);
    for _ in 0..20 {
        with.controller.dry_run(&with.snapshot());
        assert_eq!(with.tick(), without.tick());
    }
}
