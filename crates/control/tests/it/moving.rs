//! How memory is moved, seen from outside: pressure levels of the host, transfers, rates, and what
//! is undone.

use crate::world::{Mood, ToyGuest, World, id, mib, settings};
use ballast_actuation::host_pressure::HostPressureSettings;
use ballast_control::{Event, Settings};
use ballast_model::{
    Bytes, Change, Clamped, Compliance, GuestLimits, GuestSample, Handover, HoldReason, LeftGuest,
    Measured, Mechanism, MechanismReason, Plan, PolicyName, Pressure, PressureLevel, ProcessId,
    Restart, Snapshot, Timestamp,
};

/// `a` has what it needs; `b` holds much more than it uses.
fn rich_and_poor(settings: Settings) -> World {
    let guests = vec![ToyGuest::new("a", 1024, 512, 480), ToyGuest::new("b", 1024, 1024, 100)];
    World::new(settings, guests)
}

fn paged_out(plan: &Plan) -> impl Iterator<Item = &str> {
    let out = plan.paging.iter().filter(|it| it.mechanism == Mechanism::PageOut);
    out.map(|it| it.guest.as_str())
}

#[test]
fn host_pressure_escalates_and_recovers_level_by_level() {
    let mut settings = settings(PolicyName::Static, 4096);
    settings.guard.host_reserve = Bytes::mib(512);
    let mut world = rich_and_poor(settings);
    world.guest("b").mood = Mood::Stubborn;
    assert_eq!(world.ticks(5).host_pressure, PressureLevel::Normal);
    for (available, level) in [
        (300, PressureLevel::BalloonOnly),
        (220, PressureLevel::ReclaimOwed),
        (150, PressureLevel::ReclaimRichest),
        (100, PressureLevel::Freeze),
    ] {
        world.host_available = available;
        assert_eq!(world.ticks(3).host_pressure, level, "{available} MiB");
    }
    let plan = world.tick();
    assert_eq!(plan.budget.grantable, Bytes::ZERO);
    world.host_available = 4096;
    let left_after = HostPressureSettings::LEFT_AFTER_DEFAULT.as_secs();
    let levels: Vec<PressureLevel> =
        (0..4).map(|_| world.ticks(left_after + 1).host_pressure).collect();
    assert!(levels.is_sorted_by(|before, after| before >= after), "{levels:?}");
    assert_eq!(world.ticks(left_after).host_pressure, PressureLevel::Normal);
}

#[test]
fn a_short_host_pages_the_richest_and_later_reads_back() {
    let mut settings = settings(PolicyName::Global, 4096);
    settings.guard.host_reserve = Bytes::mib(512);
    // No balloon moves, so the host has to take what there is.
    settings.guard.step_down_max = Some(Bytes::ZERO);
    let guests = vec![ToyGuest::new("a", 512, 512, 480), ToyGuest::new("b", 1024, 1024, 100)];
    let mut world = World::new(settings, guests);
    world.host_swaps = true;
    world.ticks(5);
    world.host_available = 150;
    let plan = world.ticks(4);
    assert_eq!(plan.host_pressure, PressureLevel::ReclaimRichest);
    assert!(paged_out(&plan).eq(["b"]), "a holds what it is to: {:?}", plan.paging);
    let moves = &plan.guest(&id("b")).unwrap().moves;
    let short = MechanismReason::HostShort { level: PressureLevel::ReclaimRichest };
    assert!(moves.iter().any(|it| it.why == short), "{moves:?}");
    let b = world.guest("b");
    assert!(b.resident() < b.holds && b.resident() >= 128, "{} of {}", b.resident(), b.holds);
    // With what `b` gave, the host is less short, and keeps that memory.
    world.host_available = 200;
    let bound = world.guest("b").resident();
    world.ticks(2);
    assert!(world.guest("b").resident() <= bound);
    world.host_available = 4096;
    world.ticks(20);
    let b = world.guest("b");
    assert_eq!(b.resident(), b.holds, "read back");
    assert_eq!(world.controller.plans_refused(), 0);
}

#[test]
fn paged_memory_is_read_back_after_a_freeze_too() {
    let mut settings = settings(PolicyName::Static, 4096);
    settings.guard.host_reserve = Bytes::mib(512);
    settings.guard.step_down_max = Some(Bytes::ZERO);
    let mut world = rich_and_poor(settings);
    world.host_swaps = true;
    world.ticks(5);
    world.host_available = 100;
    assert_eq!(world.ticks(4).host_pressure, PressureLevel::Freeze);
    let b = world.guest("b");
    assert!(b.resident() < b.holds, "{} of {}", b.resident(), b.holds);
    // The pressure ends: the host stops taking at once, but steps back through the levels more
    // slowly.
    world.host_available = 4096;
    world.ticks(30);
    let b = world.guest("b");
    assert_eq!(b.resident(), b.holds, "read back");
    assert_eq!(world.controller.plans_refused(), 0);
}

#[test]
fn a_cap_ends_where_nothing_says_what_is_due() {
    let mut settings = settings(PolicyName::Static, 4096);
    settings.guard.budget = None;
    settings.guard.host_reserve = Bytes::mib(512);
    settings.guard.step_down_max = Some(Bytes::ZERO);
    let mut world = rich_and_poor(settings);
    world.host_swaps = true;
    // The last daemon capped it because the host was short, and had not granted it anything.
    let nothing = Handover::nothing(id("b"));
    let left = LeftGuest {
        process: ProcessId { pid: 1, start_ticks: 1 },
        held: Some(Bytes::mib(1024)),
        target: None,
        regret: None,
        handover: Handover { resident_cap: Some(Bytes::mib(600)), ..nothing },
    };
    let restart = Restart { guests: vec![left], ..Restart::default() };
    world.controller.handle_event(Event::Restart(Box::new(restart)));
    world.pass();
    // The host's own memory cannot be read, and the guest is silent and occupies more than it has.
    let mut snapshot = world.snapshot();
    snapshot.host.memory_total = None;
    let (at, host) = (snapshot.taken_at, snapshot.host.clone());
    let resident = Some(Measured::fresh(Bytes::mib(1200)));
    let guests = snapshot.into_guests().into_iter();
    let guests = guests.map(|guest| GuestSample { stats: None, resident, ..guest });
    let plan = world.controller.handle_sample(&Snapshot::new(at, host, guests.collect()));
    assert_eq!((plan.paging.as_slice(), world.controller.plans_refused()), (&[][..], 0));
}

#[test]
fn full_memory_pressure_freezes_grants_above_the_reserve_too() {
    let mut settings = settings(PolicyName::Static, 2048);
    settings.guard.host_reserve = Bytes::mib(512);
    let ceiling = |mib| GuestLimits { ceiling: Some(Bytes::mib(mib)), ..GuestLimits::default() };
    settings.limits.named.insert(id("a"), ceiling(512));
    let mut world = rich_and_poor(settings);
    // So little available memory that pressure counts.
    world.host_available = 900;
    world.ticks(5);
    world.host_pressure = Some(Pressure { some_basis_points: 9_000, full_basis_points: 5_000 });
    assert_eq!(world.ticks(3).host_pressure, PressureLevel::Freeze);
    world.controller.handle_event(Event::SetLimits(id("a"), ceiling(640)));
    let plan = world.ticks(5);
    assert!(plan.budget.distributable > plan.budget.committed, "{:?}", plan.budget);
    assert_eq!(world.guest("a").holds, 512, "nothing is granted");
    let clamps = &plan.guest(&id("a")).unwrap().clamps;
    assert!(clamps.iter().any(|it| matches!(it, Clamped::HostReserve { .. })), "{clamps:?}");
    world.host_pressure = None;
    world.ticks(20);
    assert_eq!(world.guest("a").holds, 640);
}

#[test]
fn guests_in_a_transfer_are_sampled_more_often() {
    let mut world = rich_and_poor(settings(PolicyName::Global, 1536));
    world.ticks(3);
    world.guest("a").used = 900;
    let mut fast = 0;
    for _ in 0..20 {
        world.tick();
        let now = Timestamp::from_millis(world.second * 1000);
        let wait = world.controller.poll_timeout().saturating_since(now);
        let concerned: Vec<&str> =
            world.controller.in_transfer().guests().iter().map(|id| id.as_str()).collect();
        if concerned.is_empty() {
            assert_eq!(wait, Settings::TICK_DEFAULT);
        } else {
            assert_eq!((wait, &concerned[..]), (Settings::TRANSFER_TICK_DEFAULT, &["a", "b"][..]));
            fast += 1;
        }
    }
    assert!(fast > 0, "there was a transfer");
    assert!(world.controller.in_transfer().guests().is_empty(), "and it is over");
    let plan = world.tick();
    let rate = plan.guest(&id("b")).unwrap().balloon_rate.map(mib);
    assert_eq!(rate, Some(100), "what its balloon was seen to take a second");
    assert_eq!(plan.guest(&id("a")).unwrap().balloon_rate, None, "it only ever got");
}

#[test]
fn a_stuck_guest_is_not_sampled_more_often() {
    let mut world = rich_and_poor(settings(PolicyName::Global, 1536));
    world.guest("b").mood = Mood::Stubborn;
    world.guest("a").used = 900;
    world.ticks(4);
    for _ in 0..30 {
        world.tick();
        assert!(world.controller.in_transfer().guests().is_empty());
    }
}

/// `b` is shrunk, then reads back much of that.
fn thrashing(undo: bool) -> (World, u64) {
    let mut settings = settings(PolicyName::Global, 1400);
    settings.undo = undo;
    let guests = vec![ToyGuest::new("a", 1024, 500, 300), ToyGuest::new("b", 1024, 900, 700)];
    let mut world = World::new(settings, guests);
    world.ticks(20);
    let before = world.guest("b").holds;
    world.guest("b").used = 100;
    world.ticks(10);
    let after = world.guest("b").holds;
    assert!(before - after >= 100, "{before} to {after}");
    world.guest("b").swap_in += 400;
    (world, before)
}

#[test]
fn what_made_a_guest_thrash_is_undone() {
    let (mut world, before) = thrashing(true);
    let mut clamp = None;
    for _ in 0..10 {
        let plan = world.tick();
        let b = plan.guest(&id("b")).unwrap();
        let is_given_back = |clamp: &&Clamped| matches!(clamp, Clamped::Thrashed { .. });
        clamp = clamp.or(b.clamps.iter().find(is_given_back).cloned());
    }
    assert_eq!(clamp, Some(Clamped::Thrashed { held: Bytes::mib(before) }));
    assert_eq!(world.guest("b").holds, before);
    let regret = world.tick().guest(&id("b")).unwrap().regret.unwrap();
    assert!(regret.undone == 1 && regret.basis_points() > 2_500, "{regret:?}");
    // Once the pause is over, it may be tried again.
    world.ticks(70);
    assert!(world.guest("b").holds < before);
}

#[test]
fn with_undo_off_thrashing_is_counted_only() {
    let (mut world, before) = thrashing(false);
    let plan = world.ticks(10);
    assert!(world.guest("b").holds < before);
    assert!(plan.guest(&id("b")).unwrap().regret.unwrap().undone == 1);
}

#[test]
fn nothing_is_undone_while_another_guest_lacks_memory() {
    let (mut world, before) = thrashing(true);
    for _ in 0..10 {
        world.guest("a").swap_in += 20;
        world.tick();
    }
    assert!(world.guest("b").holds < before);
}

/// The floor of an idle guest is not available to others.
#[test]
fn swap_traffic_takes_nothing_of_what_others_use() {
    let full = |name| ToyGuest::new(name, 1024, 344, 1024);
    let guests = vec![full("a"), full("b"), ToyGuest::new("idle", 4096, 512, 100)];
    let mut world = World::new(settings(PolicyName::Global, 1200), guests);
    world.ticks(10);
    let before = world.guest("a").holds;
    for _ in 0..60 {
        let b = world.guest("b");
        (b.swap_in, b.swap_out) = (b.swap_in + 40, b.swap_out + 80);
        world.tick();
    }
    let after = world.guest("a").holds;
    assert!(after + 10 >= before, "{before} to {after}");
}

/// A guest that lives on its page cache, one that grows to need more than its share, and one that
/// hardly needs anything.
fn with_a_database(file: u64) -> World {
    let database = ToyGuest { file, ..ToyGuest::new("database", 4096, 1024, 200) };
    let guests =
        [("grows", 300), ("idle", 100)].map(|(name, used)| ToyGuest::new(name, 4096, 1024, used));
    let mut world = World::new(settings(PolicyName::Global, 3072), vec![database]);
    world.guests.extend(guests);
    world.ticks(10);
    world.guest("grows").used = 1500;
    world.ticks(120);
    world
}

#[test]
fn idle_memory_moves_before_page_cache_that_is_read() {
    let mut world = with_a_database(700);
    let holds = ["database", "grows", "idle"].map(|name| world.guest(name).holds);
    assert!(holds[0] >= 900 && holds[1] >= 1500, "{holds:?}");
    let read = world.guest("database").read;
    world.ticks(600);
    let again = world.guest("database").read - read;
    assert!(again <= 600 * 40 / 10, "read {again} MiB again in 600 s");
}

#[test]
fn page_cache_beyond_a_share_takes_nothing_from_others() {
    let mut world = with_a_database(4000);
    let holds = ["database", "grows", "idle"].map(|name| world.guest(name).holds);
    assert!(holds[0] >= 900 && holds[1] >= 1500, "{holds:?}");
}

#[test]
fn a_guest_that_cannot_free_host_memory_is_reported() {
    let mut world = rich_and_poor(settings(PolicyName::Global, 1536));
    world.guest("b").inhibited = true;
    let plan = world.ticks(5);
    assert_eq!(plan.guest(&id("b")).unwrap().compliance, Compliance::Inhibited);
    assert_eq!(plan.guest(&id("a")).unwrap().compliance, Compliance::Compliant);
    assert!(world.actions.iter().all(|(_, action)| action.guest != id("b")));
}

#[test]
fn a_stuck_guest_above_its_ceiling_delays_nobody() {
    let mut settings = settings(PolicyName::Global, 1536);
    let ceiling = GuestLimits { ceiling: Some(Bytes::mib(200)), ..GuestLimits::default() };
    settings.limits.named.insert(id("b"), ceiling);
    let mut world = rich_and_poor(settings);
    world.host_swaps = true;
    world.guest("a").used = 900;
    world.guest("b").mood = Mood::Stubborn;
    world.ticks(100);
    // The host has paged out what it did not give. What it is still asked for is called off and
    // requested again.
    assert!(world.guest("b").resident() <= 200 + 64, "{}", world.guest("b").resident());
    assert!(world.guest("a").holds > 900);
    assert_eq!(world.controller.plans_refused(), 0);
}

#[test]
fn what_a_cgroup_keeps_from_a_guest_others_get() {
    let guests = vec![ToyGuest::new("a", 2048, 256, 200), ToyGuest::new("b", 2048, 256, 200)];
    let mut world = World::new(settings(PolicyName::Static, 2048), guests);
    world.slices = vec![(vec![id("a")], 640)];
    world.ticks(100);
    let (a, b) = (world.guest("a").holds, world.guest("b").holds);
    assert!((500..=640 - 64).contains(&a) && b >= 1300, "{a} {b}");
}

#[test]
fn a_guest_grows_as_far_as_its_cgroup_allows() {
    let guests = vec![ToyGuest::new("a", 2048, 512, 480), ToyGuest::new("b", 2048, 512, 480)];
    let mut world = World::new(settings(PolicyName::Global, 4096), guests);
    world.slices = vec![(vec![id("a")], 1024)];
    world.ticks(3);
    world.guest("a").used = 1500;
    world.guest("b").used = 1500;
    world.ticks(80);
    let (a, b) = (world.guest("a").holds, world.guest("b").holds);
    assert!((900..=1024 - 64).contains(&a) && b >= 1500, "{a} {b}");
    let mut held = Vec::new();
    for _ in 0..10 {
        let plan = world.tick();
        let line = plan.guest(&id("a")).unwrap();
        let no_room = |clamp: &Clamped| matches!(clamp, Clamped::NoRoom { .. });
        assert!(line.clamps.iter().any(no_room), "{line:?}");
        held.push(line.change.clone());
    }
    let (by, limit) = ("slice-0/memory.max".to_owned(), Bytes::gib(1));
    let no_room = Change::Hold(HoldReason::NoRoom { by, limit });
    assert!(held.contains(&no_room), "{held:?}");
    world.slices[0].1 = 4096;
    world.ticks(80);
    assert!(world.guest("a").holds >= 1500, "{:?}", world.holds());
    assert_eq!(world.controller.plans_refused(), 0);
}
