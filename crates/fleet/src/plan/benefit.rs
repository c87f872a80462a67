//! The migrations that save more misses than they cost.
//!
//! Idea: a host whose guests have their floors and objectives may still be too small for what they
//! all should have. The fewest misses that its own balancing can reach are estimated from its
//! guests' curves: memory goes where a byte saves most, and the lower hull of each curve makes that
//! the best division. Without one guest, which then has all it should have elsewhere, the others
//! miss less. The difference over the horizon has to exceed the pages copied times the misses that
//! the setting asks for each. The guest goes only where no guest has to give way for it.
//! Cost: O(guests × points) for each guest of such a host.
//! Limits: the estimate assumes the best division; a policy that divides by shares gains less. At
//! most one guest of a host goes in one plan, and none from a host that a migration comes to or
//! leaves.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use ballast_model::{Bytes, PAGE_SIZE};

use super::candidate::Candidate;
use super::destinations::{Destinations, Fit};
use super::host_figures::{GuestSizes, positive};
use super::restore::{PlanInput, PlannedMigration, all_candidates};
use crate::{CompactCurve, GuestRecord, MigrationReason};

/// One straight segment of a guest's hull: bytes more, and misses a second that they save.
struct Segment {
    guest: usize,
    bytes: u64,
    misses: u64,
}

/// What the guests of a host need, and what more memory saves each of them.
struct HostDivision {
    /// What each guest has in any case, in bytes, and its misses a second with that.
    base: Vec<(u64, u64)>,
    /// Sorted: the segment that saves most misses for each byte first.
    segments: Vec<Segment>,
    capacity: u64,
}

/// A migration that saves more misses than it costs.
struct BeneficialMove<'a> {
    candidate: Candidate<'a>,
    saved: u64,
    asked: u64,
}

/// Adds migrations that pay to those that are needed.
pub(crate) fn add_benefits<'a>(
    input: &PlanInput<'a>,
    destinations: &mut Destinations<'a>,
    chosen: &mut Vec<PlannedMigration<'a>>,
) {
    let mut touched: BTreeSet<u32> =
        chosen.iter().flat_map(|it| [it.candidate.host, it.to]).collect();
    let mut hosts: Vec<Vec<BeneficialMove<'a>>> = Vec::new();
    for (place, figures) in (0..).zip(input.figures) {
        let host = &input.snapshot.hosts()[place as usize];
        let is_short = figures.full > figures.capacity && figures.needed <= figures.capacity;
        let is_quiet = figures.moving == 0 && !host.is_draining && !touched.contains(&place);
        if is_short && is_quiet && figures.is_fresh {
            let moves = beneficial_moves(input, place);
            if !moves.is_empty() {
                hosts.push(moves);
            }
        }
    }
    hosts.sort_by_key(|moves| (Reverse(moves[0].gain()), moves[0].candidate.host));
    for moves in hosts {
        if touched.contains(&moves[0].candidate.host) {
            continue;
        }
        for BeneficialMove { candidate, saved, asked } in moves {
            if let Some(to) = destinations.reserve(&candidate, Fit::Spare) {
                touched.extend([candidate.host, to]);
                let reason = MigrationReason::Benefit { misses_saved: saved, misses_asked: asked };
                chosen.push(PlannedMigration { candidate, to, reason });
                break;
            }
        }
    }
}

impl BeneficialMove<'_> {
    fn gain(&self) -> u64 {
        self.saved - self.asked
    }
}

/// Guests of a host whose migration pays, the largest gain first.
fn beneficial_moves<'a>(input: &PlanInput<'a>, place: u32) -> Vec<BeneficialMove<'a>> {
    let host = &input.snapshot.hosts()[place as usize];
    let capacity = positive(input.figures[place as usize].capacity);
    let division = HostDivision::of(&host.guests, capacity);
    let before = division.misses_without(None);
    let horizon = input.settings.horizon.as_secs();
    let mut moves = Vec::new();
    for candidate in all_candidates(input, place) {
        let Some(curve) = &candidate.guest.curve else { continue };
        let Ok(at) = host.guests.binary_search_by(|it| it.id.cmp(&candidate.guest.id)) else {
            continue;
        };
        let elsewhere = curve.misses_per_s(Bytes::new(candidate.sizes.full));
        let after = division.misses_without(Some(at)).saturating_add(elsewhere);
        let saved = before.saturating_sub(after).saturating_mul(horizon);
        let pages = candidate.traffic.div_ceil(PAGE_SIZE);
        let asked = pages.saturating_mul(input.settings.misses_per_page);
        if saved > asked {
            moves.push(BeneficialMove { candidate, saved, asked });
        }
    }
    moves.sort_by_key(|it| (Reverse(it.gain()), &it.candidate.guest.id));
    moves
}

impl HostDivision {
    fn of(guests: &[GuestRecord], capacity: u64) -> HostDivision {
        let mut division = HostDivision { base: Vec::new(), segments: Vec::new(), capacity };
        for (at, guest) in guests.iter().enumerate() {
            let sizes = GuestSizes::of(guest);
            let Some(curve) = &guest.curve else {
                // Without a curve its misses are unknown: it keeps what it should have.
                division.base.push((sizes.full, 0));
                continue;
            };
            let hull = lower_hull(curve, sizes.needed);
            division.base.push(hull[0]);
            for pair in hull.windows(2) {
                let (bytes, misses) = (pair[1].0 - pair[0].0, pair[0].1 - pair[1].1);
                division.segments.push(Segment { guest: at, bytes, misses });
            }
        }
        division.segments.sort_by(|a, b| {
            let (left, right) = (
                u128::from(a.misses) * u128::from(b.bytes),
                u128::from(b.misses) * u128::from(a.bytes),
            );
            right.cmp(&left).then(a.guest.cmp(&b.guest))
        });
        division
    }

    /// Misses a second of all guests but `absent` under the best division.
    fn misses_without(&self, absent: Option<usize>) -> u64 {
        let (mut base, mut misses) = (0, 0u64);
        for (at, (bytes, here)) in self.base.iter().enumerate() {
            if Some(at) != absent {
                base += bytes;
                misses = misses.saturating_add(*here);
            }
        }
        let mut rest = self.capacity.saturating_sub(base);
        for segment in self.segments.iter().filter(|it| Some(it.guest) != absent) {
            if rest == 0 {
                break;
            }
            let used = segment.bytes.min(rest);
            let saved =
                u128::from(segment.misses) * u128::from(used) / u128::from(segment.bytes.max(1));
            misses = misses.saturating_sub(u64::try_from(saved).unwrap_or(segment.misses));
            rest -= used;
        }
        misses
    }
}

/// The lower hull of a curve from size `from` on: along it each further byte saves less.
fn lower_hull(curve: &CompactCurve, from: u64) -> Vec<(u64, u64)> {
    let mut hull = vec![(from, curve.misses_per_s(Bytes::new(from)))];
    let beyond = curve.points().iter().filter(|(size, _)| size.get() > from);
    for &(size, misses) in beyond {
        let point = (size.get(), misses);
        while let [.., before, last] = hull[..] {
            // The last point is on or above the line from the one before it to this one.
            let rise = u128::from(before.1 - last.1) * u128::from(point.0 - before.0);
            let line = u128::from(before.1 - point.1) * u128::from(last.0 - before.0);
            if rise > line {
                break;
            }
            hull.pop();
        }
        hull.push(point);
    }
    hull
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tests::fleets::guest;

    fn curve(points: &[(u64, u64)]) -> CompactCurve {
        let points = points.iter().map(|&(size, misses)| (Bytes::new(size), misses)).collect();
        CompactCurve::new(points).unwrap()
    }

    #[test]
    fn lower_hull_is_convex() {
        let curve = curve(&[(0, 100), (10, 95), (20, 20), (30, 15), (40, 0)]);
        assert_eq!(lower_hull(&curve, 0), [(0, 100), (20, 20), (40, 0)]);
        assert_eq!(lower_hull(&curve, 15), [(15, 95), (20, 20), (40, 0)]);
        assert_eq!(lower_hull(&curve, 99), [(99, 0)]);
    }

    proptest! {
        /// On curves that are their own hulls, the best division is found page by page: each page
        /// goes to the guest whose misses it reduces most.
        #[test]
        fn division_is_as_good_as_page_by_page(
            falls in prop::collection::vec(prop::collection::vec(0u64..30, 1..5), 1..5),
            pages in 0u64..16,
        ) {
            let mut guests = Vec::new();
            for (at, falls) in falls.iter().enumerate() {
                let mut falls = falls.clone();
                falls.sort_by_key(|fall| Reverse(*fall));
                let mut left: u64 = falls.iter().sum();
                let mut points = vec![(0, left)];
                for (page, fall) in (1..).zip(falls) {
                    left -= fall;
                    points.push((page * PAGE_SIZE, left));
                }
                let curve = Some(curve(&points));
                let name = format!("g{at}");
                let bare = GuestRecord { floor: Bytes::ZERO, demand: Bytes::ZERO, ..guest(&name, 0) };
                guests.push(GuestRecord { curve, ..bare });
            }
            let mut has = vec![0u64; guests.len()];
            let misses = |at: usize, pages: u64| {
                guests[at].curve.as_ref().map_or(0, |it| it.misses_per_s(Bytes::pages(pages)))
            };
            for _ in 0..pages {
                let best = (0..guests.len())
                    .max_by_key(|&at| misses(at, has[at]) - misses(at, has[at] + 1));
                has[best.unwrap()] += 1;
            }
            let all: u64 = has.iter().enumerate().map(|(at, &pages)| misses(at, pages)).sum();
            let division = HostDivision::of(&guests, pages * PAGE_SIZE);
            prop_assert_eq!(division.misses_without(None), all);
        }
    }
}
