//! The migrations that are needed for floors, objectives and drains.
//!
//! Idea: hosts that are short of floors come first, then those to be drained, then those short of
//! objectives; among those short of the same, the one that lacks most comes first. Each host gets
//! the cheapest choice of guests that finds room. If there is no room for all that it needs, its
//! floors alone are tried, and then as many floors as there is room for. Hosts compete for room, so
//! if something stays unmet, another attempt begins with the hosts that failed and fills rooms in
//! another way. The best attempt counts.
//! Cost: O(n log n) over the guests of hosts that need something, at most three times; the search
//! of `cover` has [`STEPS_MAX`] steps for all hosts together.
//! Limits: hosts are planned one after the other. A choice that costs one host more and leaves room
//! for another one is found only by the order of attempts.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use ballast_model::{Bytes, GuestId, Timestamp};

use super::candidate::Candidate;
use super::cover::{Item, by_price, cheapest_cover, drop_needless};
use super::destinations::{Destinations, Fit};
use super::host_figures::HostFigures;
use crate::{FleetSettings, FleetSnapshot, MigrationReason};

/// Steps of the search for all hosts together.
const STEPS_MAX: usize = 1 << 22;
/// The least and the most steps for one host.
const STEPS_PER_HOST: (usize, usize) = (1 << 8, 1 << 14);

pub(crate) struct PlanInput<'a> {
    pub(crate) snapshot: &'a FleetSnapshot,
    pub(crate) figures: &'a [HostFigures],
    pub(crate) settings: &'a FleetSettings,
    pub(crate) now: Timestamp,
}

/// A guest to move.
#[derive(Clone, Debug)]
pub(crate) struct PlannedMigration<'a> {
    pub(crate) candidate: Candidate<'a>,
    pub(crate) to: u32,
    pub(crate) reason: MigrationReason,
}

/// How an attempt chooses.
#[derive(Clone, Copy, Debug)]
struct Approach {
    fit: Fit,
    /// All floors are met before any objective, even on one host.
    floors_first: bool,
}

/// Guests that are to leave one host, each with the host that it is placed on.
type Placements<'a> = Vec<(Candidate<'a>, u32)>;

/// An attempt and its result so far.
pub(crate) struct Attempt<'a, 's> {
    input: &'s PlanInput<'a>,
    approach: Approach,
    /// Steps of the search for one host.
    steps: usize,
    pub(crate) destinations: Destinations<'a>,
    pub(crate) chosen: Vec<PlannedMigration<'a>>,
    score: Score,
    /// Hosts, by index, with a need that is still unmet.
    failed: Vec<u32>,
}

/// How bad a result is: less is better; earlier fields count first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Score {
    floors: u64,
    left_to_drain: usize,
    objectives: u64,
    traffic: u64,
}

/// How far a host is to be relieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Floors,
    Needed,
}

/// The best of up to three attempts.
pub(crate) fn restore<'a, 's>(
    input: &'s PlanInput<'a>,
    rooms: &Destinations<'a>,
) -> Attempt<'a, 's> {
    let approach = |fit, floors_first| Approach { fit, floors_first };
    let mut best = attempt(input, rooms, approach(Fit::Comfortable, false), &[]);
    for approach in [approach(Fit::Tight, false), approach(Fit::Tight, true)] {
        if best.failed.is_empty() {
            break;
        }
        let next = attempt(input, rooms, approach, &best.failed);
        if next.score < best.score {
            best = next;
        }
    }
    best
}

fn attempt<'a, 's>(
    input: &'s PlanInput<'a>,
    rooms: &Destinations<'a>,
    approach: Approach,
    first: &[u32],
) -> Attempt<'a, 's> {
    let needy = HostsInNeed::of(input, first);
    let hosts = needy.floors.len() + needy.objectives.len();
    let (least, most) = STEPS_PER_HOST;
    let steps = (STEPS_MAX / hosts.max(1)).clamp(least, most);
    let mut attempt = Attempt {
        input,
        approach,
        steps,
        destinations: rooms.clone(),
        chosen: Vec::new(),
        score: Score::default(),
        failed: Vec::new(),
    };
    let mut relieved = Vec::new();
    for &host in &needy.floors {
        let mut leaving = Vec::new();
        let figures = &input.figures[host as usize];
        let tries_all = !approach.floors_first;
        if !(tries_all && attempt.relieve(host, Level::Needed, &mut leaving)) {
            // Without objectives, what is needed is the floors alone: that was just tried.
            let tried_floors = tries_all && figures.short_of_floors() == figures.short_of_needed();
            if tried_floors || !attempt.relieve(host, Level::Floors, &mut leaving) {
                attempt.relieve_in_part(host, &mut leaving);
            }
        }
        relieved.push((host, leaving, tries_all));
    }
    for &host in &needy.drains {
        attempt.drain(host);
    }
    relieved.extend(needy.objectives.iter().map(|&host| (host, Vec::new(), false)));
    for (host, mut leaving, tried_all) in relieved {
        if !tried_all {
            attempt.relieve(host, Level::Needed, &mut leaving);
        }
        attempt.finish(host, leaving);
    }
    attempt
}

/// Hosts, by index, that need something; of those short of memory the one that lacks most first.
struct HostsInNeed {
    floors: Vec<u32>,
    drains: Vec<u32>,
    objectives: Vec<u32>,
}

impl HostsInNeed {
    fn of(input: &PlanInput<'_>, first: &[u32]) -> HostsInNeed {
        let first: BTreeSet<u32> = first.iter().copied().collect();
        let mut needy =
            HostsInNeed { floors: Vec::new(), drains: Vec::new(), objectives: Vec::new() };
        let hosts = input.snapshot.hosts().iter().zip(input.figures);
        for (place, (host, figures)) in (0..).zip(hosts) {
            if !figures.is_fresh {
                continue;
            }
            if host.is_draining {
                needy.drains.push(place);
            } else if figures.short_of_floors() > 0 {
                needy.floors.push(place);
            } else if figures.short_of_needed() > 0 {
                needy.objectives.push(place);
            }
        }
        for hosts in [&mut needy.floors, &mut needy.objectives] {
            hosts.sort_by_key(|&it| {
                let short = input.figures[it as usize].short_of_needed();
                (!first.contains(&it), Reverse(short), it)
            });
        }
        needy
    }
}

impl<'a> Attempt<'a, '_> {
    /// By how much the host is still short at a level, in bytes, without the guests that leave.
    fn short(&self, host: u32, level: Level, leaving: &[(Candidate<'a>, u32)]) -> u64 {
        let figures = &self.input.figures[host as usize];
        let short = match level {
            Level::Floors => figures.short_of_floors(),
            Level::Needed => figures.short_of_needed(),
        };
        let relief: u64 = leaving.iter().map(|(it, _)| relief_of(it, level)).sum();
        short.saturating_sub(relief)
    }

    /// Guests of the host that may go, find room elsewhere, and would relieve it.
    fn candidates(
        &self,
        host: u32,
        level: Level,
        leaving: &[(Candidate<'a>, u32)],
    ) -> Vec<Candidate<'a>> {
        let guests = all_candidates(self.input, host);
        let is_leaving = |id: &GuestId| leaving.iter().any(|(it, _)| it.guest.id == *id);
        let useful = guests.into_iter().filter(|it| {
            relief_of(it, level) > 0 && !is_leaving(&it.guest.id) && self.destinations.has_room(it)
        });
        useful.collect()
    }

    /// Relieves the host of its whole shortage, and returns whether that was possible; if not,
    /// nothing changes.
    fn relieve(&mut self, host: u32, level: Level, leaving: &mut Placements<'a>) -> bool {
        let short = self.short(host, level, leaving);
        if short == 0 {
            return true;
        }
        let candidates = self.candidates(host, level, leaving);
        let items = items(&candidates, level);
        let greedy = self.greedy(&candidates, &items, short);
        let traffic = |chosen: &[usize]| chosen.iter().map(|&it| items[it].traffic).sum::<u64>();
        let below = greedy.as_deref().map_or(u64::MAX, traffic);
        let steps = self.steps;
        let mut place = |chosen: &[usize]| {
            let placed = self.place(&candidates, chosen);
            self.give_back(placed.as_deref().unwrap_or_default());
            placed.is_some()
        };
        let best = cheapest_cover(&items, short, below, steps, &mut place).or(greedy);
        match best.and_then(|chosen| self.place(&candidates, &chosen)) {
            Some(placed) => {
                leaving.extend(placed);
                true
            }
            None => false,
        }
    }

    /// Relieves the host of floors as far as there is room, the cheapest relief first.
    fn relieve_in_part(&mut self, host: u32, leaving: &mut Placements<'a>) {
        let candidates = self.candidates(host, Level::Floors, leaving);
        for item in by_price(&items(&candidates, Level::Floors)) {
            if self.short(host, Level::Floors, leaving) == 0 {
                return;
            }
            let candidate = candidates[item];
            if let Some(to) = self.destinations.reserve(&candidate, self.approach.fit) {
                leaving.push((candidate, to));
            }
        }
    }

    /// A greedy choice: the cheapest relief that finds room first. It keeps no reservation.
    fn greedy(
        &mut self,
        candidates: &[Candidate<'a>],
        items: &[Item],
        short: u64,
    ) -> Option<Vec<usize>> {
        let (mut chosen, mut placed, mut relieved) = (Vec::new(), Vec::new(), 0);
        for item in by_price(items) {
            if relieved >= short {
                break;
            }
            let candidate = candidates[item];
            if let Some(to) = self.destinations.reserve(&candidate, self.approach.fit) {
                placed.push((candidate, to));
                chosen.push(item);
                relieved += items[item].relief;
            }
        }
        self.give_back(&placed);
        if relieved < short {
            return None;
        }
        drop_needless(items, &mut chosen, short);
        // The reduced choice is placed largest first, so it may not fit although it did one by one.
        let placed = self.place(candidates, &chosen)?;
        self.give_back(&placed);
        Some(chosen)
    }

    /// Reserves room for all of `chosen`, the largest first. `None` if there is not enough room;
    /// then nothing is reserved.
    fn place(&mut self, candidates: &[Candidate<'a>], chosen: &[usize]) -> Option<Placements<'a>> {
        let mut largest: Vec<&Candidate<'a>> = chosen.iter().map(|&it| &candidates[it]).collect();
        largest.sort_by_key(|it| (Reverse(it.sizes.full), &it.guest.id));
        let fits = [self.approach.fit, Fit::Tight];
        let tries = if self.approach.fit == Fit::Tight { &fits[..1] } else { &fits };
        for &fit in tries {
            let mut placed = Vec::new();
            for &candidate in &largest {
                match self.destinations.reserve(candidate, fit) {
                    Some(to) => placed.push((*candidate, to)),
                    None => break,
                }
            }
            if placed.len() == largest.len() {
                return Some(placed);
            }
            self.give_back(&placed);
        }
        None
    }

    fn give_back(&mut self, placed: &[(Candidate<'a>, u32)]) {
        for (candidate, to) in placed {
            self.destinations.give_back(candidate, *to);
        }
    }

    /// Moves all guests of a host that can go, the largest first.
    fn drain(&mut self, host: u32) {
        let figures = &self.input.figures[host as usize];
        let mut leaving = all_candidates(self.input, host);
        leaving.sort_by_key(|it| (Reverse(it.sizes.full), &it.guest.id));
        let guests = self.input.snapshot.hosts()[host as usize].guests.len();
        let mut left = guests - figures.moving;
        for candidate in leaving {
            if let Some(to) = self.destinations.reserve(&candidate, self.approach.fit) {
                left -= 1;
                self.choose(candidate, to, MigrationReason::Drain);
            }
        }
        self.score.left_to_drain += left;
        if left > 0 {
            self.failed.push(host);
        }
    }

    /// Adds the migrations that relieve a host to the plan, without those that it does not need.
    fn finish(&mut self, host: u32, mut leaving: Placements<'a>) {
        let figures = &self.input.figures[host as usize];
        let (floors, needed) = (figures.short_of_floors(), figures.short_of_needed());
        if self.short(host, Level::Needed, &leaving) == 0 {
            let items = items(leaving.iter().map(|(it, _)| it), Level::Needed);
            let mut chosen: Vec<usize> = (0..items.len()).collect();
            drop_needless(&items, &mut chosen, needed);
            for at in (0..items.len()).rev().filter(|at| !chosen.contains(at)) {
                let (candidate, to) = leaving.remove(at);
                self.destinations.give_back(&candidate, to);
            }
        }
        self.score.floors += self.short(host, Level::Floors, &leaving);
        let unmet = self.short(host, Level::Needed, &leaving);
        self.score.objectives += unmet;
        if unmet > 0 {
            self.failed.push(host);
        }
        let reason = match floors {
            0 => MigrationReason::Objectives(Bytes::new(needed)),
            _ => MigrationReason::Floors(Bytes::new(floors)),
        };
        for (candidate, to) in leaving {
            self.choose(candidate, to, reason);
        }
    }

    fn choose(&mut self, candidate: Candidate<'a>, to: u32, reason: MigrationReason) {
        self.score.traffic += candidate.traffic;
        self.chosen.push(PlannedMigration { candidate, to, reason });
    }
}

/// What moving each guest costs, and by how much it relieves its host.
fn items<'c, 'a: 'c>(
    candidates: impl IntoIterator<Item = &'c Candidate<'a>>,
    level: Level,
) -> Vec<Item> {
    let item = |it: &Candidate<'_>| Item { traffic: it.traffic, relief: relief_of(it, level) };
    candidates.into_iter().map(item).collect()
}

fn relief_of(candidate: &Candidate<'_>, level: Level) -> u64 {
    match level {
        Level::Floors => candidate.sizes.floor,
        Level::Needed => candidate.sizes.needed,
    }
}

/// Guests of a host that may be moved, by name.
pub(crate) fn all_candidates<'a>(input: &PlanInput<'a>, host: u32) -> Vec<Candidate<'a>> {
    let record = &input.snapshot.hosts()[host as usize];
    let staying = record.guests.iter().filter(|guest| guest.moving_to.is_none());
    let (settings, now) = (input.settings, input.now);
    staying.filter_map(|it| Candidate::of(host, record, it, settings, now).ok()).collect()
}
