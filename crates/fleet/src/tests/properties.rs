//! Properties of every plan, on random fleets.

use std::collections::BTreeSet;

use ballast_model::{Bytes, GuestId, Timestamp};
use proptest::prelude::*;

use super::fleets::*;
use crate::*;

/// The room of a host for floors, computed in the plainest way: what there is, less all floors.
fn room_for_floors(host: &HostRecord) -> i128 {
    let floor = |guest: &GuestRecord| {
        let holds = guest.allocation.max(guest.resident);
        let kept = if guest.can_shrink { Bytes::ZERO } else { holds };
        i128::from(guest.floor.max(kept).page_ceil().get())
    };
    let sum = |of: fn(&GuestRecord) -> Bytes| -> i128 {
        host.guests.iter().map(|it| i128::from(of(it).get())).sum()
    };
    let arriving: i128 = host.reservations.iter().map(|it| i128::from(it.resident.get())).sum();
    let seen = i128::from(host.free.get()) + sum(|it| it.resident) + arriving
        - i128::from(host.reserve.get());
    let beyond = i128::from(host.committed.get()) - sum(|it| it.allocation);
    let floors: i128 = host.guests.iter().map(floor).sum();
    seen.min(i128::from(host.budget.get())) - beyond - floors
}

fn short_of_floors(snapshot: &FleetSnapshot) -> i128 {
    snapshot.hosts().iter().map(|it| (-room_for_floors(it)).max(0)).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn checker_accepts_every_plan(seed: u64, migrations_max in 0usize..12) {
        let snapshot = random(seed, MIDDLE);
        for migrations_max in [migrations_max, usize::MAX] {
            let settings = FleetSettings { migrations_max, ..FleetSettings::default() };
            let plan = plan(&snapshot, &settings, NOW);
            prop_assert_eq!(check(&snapshot, &settings, &plan, NOW), Ok(()));
            // Migrations that wait would also be safe if more could run at once.
            let all = MigrationPlan {
                migrations: plan.migrations.iter().chain(&plan.waiting).cloned().collect(),
                ..plan
            };
            prop_assert_eq!(check(&snapshot, &all_at_once(), &all, NOW), Ok(()));
        }
    }

    /// Any migration may succeed, fail, or still be under way. If a destination that reserved for
    /// all of them and lost no guest still has every floor, so it has when some of them fail.
    #[test]
    fn whichever_migrations_fail_no_host_loses_a_floor(seed: u64, fails: u64) {
        let snapshot = random(seed, MIDDLE);
        let plan = plan(&snapshot, &all_at_once(), NOW);
        let mut hosts = snapshot.hosts().to_vec();
        for migration in &plan.migrations {
            let to = snapshot.place(&migration.to).unwrap();
            let (guest, size) = (migration.guest.clone(), migration.reserve);
            let (resident, group) = (Bytes::ZERO, None);
            hosts[to].reservations.push(ReservationRecord { guest, size, resident, group });
            hosts[to].committed += size;
        }
        let reserved = fleet(hosts);
        let done: Vec<Migration> = (0..).zip(&plan.migrations)
            .filter(|(at, _)| fails >> (at % 64) & 1 == 0)
            .map(|(_, it)| it.clone())
            .collect();
        let after = applied(&snapshot, &done, NOW);
        for (at, before) in snapshot.hosts().iter().enumerate() {
            let (before, during) = (room_for_floors(before), room_for_floors(&reserved.hosts()[at]));
            prop_assert!(during >= before.min(0), "{before} {during} while all are under way");
            let after = room_for_floors(&after.hosts()[at]);
            prop_assert!(after >= before.min(0), "{before} {after} afterwards");
        }
        prop_assert!(short_of_floors(&after) <= short_of_floors(&snapshot));
    }

    /// So what a host shows of itself is what its guests are moved for.
    #[test]
    fn hosts_are_relieved_of_exactly_what_they_are_short_of(seed: u64) {
        let snapshot = random(seed, MIDDLE);
        for it in plan(&snapshot, &all_at_once(), NOW).migrations {
            let host = &snapshot.hosts()[snapshot.place(&it.from).unwrap()];
            let (floors, objectives) = (host.short_of_floors(), host.short_of_objectives());
            match it.reason {
                MigrationReason::Floors(short) => {
                    prop_assert_eq!((short, floors <= objectives), (floors, true));
                }
                MigrationReason::Objectives(short) => {
                    prop_assert_eq!((Bytes::ZERO, short), (floors, objectives));
                }
                MigrationReason::Drain | MigrationReason::Benefit { .. } => {}
            }
        }
    }

    /// All migrations are under way and every copy is complete: what arrived counts on both hosts.
    #[test]
    fn no_copy_takes_a_host_below_its_reserve(seed: u64) {
        let snapshot = random(seed, MIDDLE);
        let plan = plan(&snapshot, &all_at_once(), NOW);
        for host in snapshot.hosts() {
            let (mut filled, mut come, mut is_new) = (0, 0, false);
            for guest in &host.guests {
                let fills = guest.copied_resident.get().saturating_sub(guest.resident.get());
                let leaves = |it: &Migration| it.from == host.id && it.guest == guest.id;
                let is_planned = plan.migrations.iter().any(leaves);
                if is_planned || guest.moving_to.is_some() {
                    filled += fills;
                    is_new |= is_planned && fills > 0;
                }
            }
            for migration in plan.migrations.iter().filter(|it| it.to == host.id) {
                come += migration.reserve.get();
            }
            let left = i128::from(host.free.get()) - i128::from(filled) - i128::from(come);
            if is_new || filled > 0 && come > 0 {
                prop_assert!(left >= i128::from(host.reserve.get()), "{} left on {}", left, host.id);
            }
        }
    }

    #[test]
    fn order_of_records_does_not_matter(seed: u64) {
        let snapshot = random(seed, MIDDLE);
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut hosts = snapshot.hosts().to_vec();
        rng.shuffle(&mut hosts);
        for host in &mut hosts {
            rng.shuffle(&mut host.guests);
            rng.shuffle(&mut host.reservations);
            rng.shuffle(&mut host.compatibility.storage);
        }
        let settings = FleetSettings::default();
        let shuffled = fleet(hosts);
        prop_assert_eq!(plan(&shuffled, &settings, NOW), plan(&snapshot, &settings, NOW));
    }

    /// A leader that sees only a part of the fleet plans for that part, and its plan is safe for
    /// the whole fleet.
    #[test]
    fn plan_of_a_part_is_safe_in_the_whole(seed: u64, seen: u16) {
        let snapshot = random(seed, MIDDLE);
        let is_seen = |at: usize| seen >> (at % 16) & 1 == 1;
        let part = (0..).zip(snapshot.hosts()).filter(|(at, _)| is_seen(*at));
        let part = fleet(part.map(|(_, host)| host.clone()).collect());
        let plan = plan(&part, &all_at_once(), NOW);
        for it in &plan.migrations {
            prop_assert!(part.place(&it.from).is_some() && part.place(&it.to).is_some());
        }
        prop_assert_eq!(check(&snapshot, &all_at_once(), &plan, NOW), Ok(()));
        let after = applied(&snapshot, &plan.migrations, NOW);
        for (at, (before, after)) in snapshot.hosts().iter().zip(after.hosts()).enumerate() {
            if !is_seen(at) {
                prop_assert_eq!(&before.guests, &after.guests);
                prop_assert_eq!(before.free, after.free);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Under constant demand a fleet comes to rest. A guest goes back only where others have made
    /// room, so no placement of all guests occurs twice.
    #[test]
    fn constant_demand_comes_to_rest_without_ping_pong(seed: u64) {
        let settings = FleetSettings::default();
        let mut snapshot = random(seed, MIDDLE);
        let guests: usize = snapshot.hosts().iter().map(|it| it.guests.len()).sum();
        let mut placements = BTreeSet::from([placement(&snapshot)]);
        let (mut now, mut moved, mut quiet) = (NOW, 0, 0);
        // Two rounds without a migration, with the longest rest between them.
        while quiet < 2 {
            let plan = plan(&snapshot, &settings, now);
            prop_assert_eq!(check(&snapshot, &settings, &plan, now), Ok(()));
            snapshot = applied(&snapshot, &plan.migrations, now);
            if plan.migrations.is_empty() {
                quiet += 1;
            } else {
                quiet = 0;
                moved += plan.migrations.len();
                prop_assert!(placements.insert(placement(&snapshot)), "{plan:?} was undone before");
            }
            prop_assert!(moved <= 2 * guests, "{moved} migrations of {guests} guests");
            now = now + settings.cooldown_max;
            snapshot = seen(&snapshot, now);
        }
    }
}

/// The guests of each host.
fn placement(snapshot: &FleetSnapshot) -> Vec<BTreeSet<GuestId>> {
    let guests = |host: &HostRecord| host.guests.iter().map(|it| it.id.clone()).collect();
    snapshot.hosts().iter().map(guests).collect()
}

/// The same fleet with records made at `now`.
fn seen(snapshot: &FleetSnapshot, now: Timestamp) -> FleetSnapshot {
    let hosts = snapshot.hosts().iter().cloned();
    fleet(hosts.map(|host| HostRecord { seen_at: now, ..host }).collect())
}
