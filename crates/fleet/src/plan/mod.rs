//! From a snapshot to a plan.
//!
//! Idea: migrations for floors, drains and objectives come first, then those that pay. The most
//! urgent start now; the rest wait. Every figure is an integer and every list is sorted, so that a
//! snapshot has exactly one plan, whatever the order in which its records came.
//! Cost: O(n log n) over all guests. Memory beside the snapshot is O(hosts), and the guests of
//! hosts that need something.
//! Limits: a plan never relies on memory that one of its own migrations frees. Two guests that
//! would have to change places, or a chain of guests, take several plans, or never go.

mod benefit;
mod candidate;
mod cover;
mod destinations;
mod host_figures;
mod restore;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use ballast_model::{Bytes, GuestId, Timestamp};

use self::candidate::Candidate;
use self::destinations::Destinations;
use self::host_figures::{GuestSizes, HostFigures};
use self::restore::{PlanInput, PlannedMigration};
use crate::{
    FleetSettings, FleetSnapshot, Migration, MigrationPlan, MigrationReason, Obstacle, UnmetKind,
    UnmetNeed,
};

/// Which guests to move where at `now`, and why.
pub fn plan(snapshot: &FleetSnapshot, settings: &FleetSettings, now: Timestamp) -> MigrationPlan {
    let hosts = snapshot.hosts();
    let figures: Vec<HostFigures> =
        hosts.iter().map(|host| HostFigures::of(host, settings, now)).collect();
    let input = PlanInput { snapshot, figures: &figures, settings, now };
    let rooms = Destinations::new(snapshot, &figures);
    let attempt = restore::restore(&input, &rooms);
    let (mut chosen, mut destinations) = (attempt.chosen, attempt.destinations);
    let unmet = unmet_needs(&input, &destinations, &chosen);
    benefit::add_benefits(&input, &mut destinations, &mut chosen);

    chosen.sort_by_key(|it| {
        let Candidate { host, guest, .. } = it.candidate;
        (urgency(it.reason), host, &guest.id)
    });
    let mut migrations: Vec<Migration> = chosen.iter().map(|it| migration(snapshot, it)).collect();
    let under_way: usize = figures.iter().map(|it| it.moving).sum();
    let startable = settings.migrations_max.saturating_sub(under_way).min(migrations.len());
    let waiting = migrations.split_off(startable);
    let stale = hosts.iter().zip(&figures).filter(|(_, figures)| !figures.is_fresh);
    let stale_hosts = stale.map(|(host, _)| host.id.clone()).collect();
    MigrationPlan { migrations, waiting, unmet, stale_hosts }
}

/// The sort key: the kind of the reason, then how many bytes or misses it is about.
fn urgency(reason: MigrationReason) -> (u8, Reverse<u64>) {
    match reason {
        MigrationReason::Floors(short) => (0, Reverse(short.get())),
        MigrationReason::Drain => (1, Reverse(0)),
        MigrationReason::Objectives(short) => (2, Reverse(short.get())),
        MigrationReason::Benefit { misses_saved, misses_asked } => {
            (3, Reverse(misses_saved - misses_asked))
        }
    }
}

fn migration(snapshot: &FleetSnapshot, chosen: &PlannedMigration<'_>) -> Migration {
    let PlannedMigration { candidate, to, reason } = chosen;
    let (from, to) = (&snapshot.hosts()[candidate.host as usize], &snapshot.hosts()[*to as usize]);
    Migration {
        guest: candidate.guest.id.clone(),
        from: from.id.clone(),
        to: to.id.clone(),
        shrink_to: candidate.shrink_to.map(Bytes::new),
        reserve: Bytes::new(candidate.sizes.full),
        fills: Bytes::new(candidate.fills),
        bytes: Bytes::new(candidate.bytes),
        traffic: Bytes::new(candidate.traffic),
        copy_time: candidate.copy_time(from, to),
        reason: *reason,
    }
}

/// Needs of hosts beyond what `chosen` gives them, and why no other guest can go.
fn unmet_needs(
    input: &PlanInput<'_>,
    destinations: &Destinations<'_>,
    chosen: &[PlannedMigration<'_>],
) -> Vec<UnmetNeed> {
    let mut leaving: BTreeMap<u32, Vec<&PlannedMigration<'_>>> = BTreeMap::new();
    for it in chosen {
        leaving.entry(it.candidate.host).or_default().push(it);
    }
    let mut unmet = Vec::new();
    for (place, figures) in (0..).zip(input.figures) {
        if !figures.is_fresh {
            continue;
        }
        let host = &input.snapshot.hosts()[place as usize];
        let leaving = leaving.get(&place).map_or(&[][..], |it| it);
        let relief = |size: fn(&GuestSizes) -> u64| -> u64 {
            leaving.iter().map(|it| size(&it.candidate.sizes)).sum()
        };
        let floors = figures.short_of_floors().saturating_sub(relief(|it| it.floor));
        let needed = figures.short_of_needed().saturating_sub(relief(|it| it.needed));
        let staying = host.guests.len() - figures.moving - leaving.len();
        let kind = match (host.is_draining, floors, needed) {
            (true, _, _) if staying > 0 => UnmetKind::Drain(staying),
            (true, _, _) | (false, 0, 0) => continue,
            (false, 0, _) => UnmetKind::Objectives(Bytes::new(needed)),
            (false, _, _) => UnmetKind::Floors(Bytes::new(floors)),
        };
        let ids: BTreeSet<&GuestId> = leaving.iter().map(|it| &it.candidate.guest.id).collect();
        let obstacles = obstacles(input, destinations, place, &ids);
        unmet.push(UnmetNeed { host: host.id.clone(), kind, obstacles });
    }
    unmet
}

/// Why the guests that stay on a host do not go. Resting guests are one entry, with the time at
/// which the first of them may go.
fn obstacles(
    input: &PlanInput<'_>,
    destinations: &Destinations<'_>,
    place: u32,
    leaving: &BTreeSet<&GuestId>,
) -> Vec<(Obstacle, usize)> {
    let host = &input.snapshot.hosts()[place as usize];
    let (mut counts, mut resting) = (BTreeMap::new(), None);
    for guest in &host.guests {
        if guest.moving_to.is_some() || leaving.contains(&guest.id) {
            continue;
        }
        let obstacle = match Candidate::of(place, host, guest, input.settings, input.now) {
            Err(Obstacle::Rests(until)) => {
                let (first, count) = resting.unwrap_or((until, 0));
                resting = Some((until.min(first), count + 1));
                continue;
            }
            Err(obstacle) => obstacle,
            Ok(candidate) if !destinations.has_free_for_copy(&candidate) => Obstacle::FillsTooMuch,
            Ok(candidate) if destinations.has_room(&candidate) => Obstacle::NotEnough,
            Ok(_) => Obstacle::NoDestination,
        };
        *counts.entry(obstacle).or_insert(0) += 1;
    }
    let resting = resting.map(|(until, count)| (Obstacle::Rests(until), count));
    counts.into_iter().chain(resting).collect()
}
