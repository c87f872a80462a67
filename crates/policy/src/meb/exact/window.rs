//! Finds the totals that can matter.
//!
//! Idea: let `D` be the steps that the guests before some place get beyond their bases, and `R` the
//! steps that all bases leave over. For any slope μ, the gaps of these guests add up to at least
//! `μD − A(μ)` with `A(μ) = Σ max over sizes of (μδ − gap)`, where δ is a size's steps beyond its
//! guest's base; and to at least `−μD − B(μ)` with `B(μ) = Σ max (−μδ − gap)`. The same holds for
//! the guests after the place, which get `R − D`. If both lower bounds together exceed the limit,
//! `D` can be skipped.
//!
//! Every μ is valid. The best is the one at which a gap as large as the limit buys the most steps;
//! a few are tried, from the limit itself downwards by a factor.
//!
//! Cost: O(sizes × slopes).
//! Limits: the limit is below 2^90 and widths add up to 2^26, so everything fits 128 bits.

use super::relaxed::Size;
use super::survivors::Survivors;
use crate::meb::cost::Cost;

/// Number of slopes tried, each [`SLOPE_FACTOR`] times flatter than the one before.
const SLOPES: u32 = 9;
/// Ratio of two slopes; the flattest is 2^-16 of the limit per step.
const SLOPE_FACTOR: i128 = 4;
/// Up to this limit, which bounds the slopes too, a guest's reach fits 64 bits.
const LIMIT_MAX_64_BITS: u128 = 1 << 36;

/// Range of steps that the guests from some place on may have; empty if `last < first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) first: i64,
    pub(super) last: i64,
}

impl Window {
    pub(super) fn len(&self) -> usize {
        usize::try_from(self.last - self.first + 1).unwrap_or(0)
    }
}

/// A guest's `max (μδ − gap)` and `max (−μδ − gap)`.
#[derive(Clone, Copy, Default)]
struct Reach {
    up: i128,
    down: i128,
}

/// The window before each guest, and at the end the window of the steps left over.
pub(super) fn windows<C: Cost>(survivors: &Survivors<C>) -> Vec<Window> {
    let mut beyond = spans(survivors);
    let limit = signed(survivors.limit);
    let mut slope = limit.max(1);
    let mut reaches: Vec<Reach> = Vec::with_capacity(survivors.guests());
    for _ in 0..SLOPES {
        reaches.clear();
        reaches.extend((0..survivors.guests()).map(|guest| reach(survivors, guest, slope)));
        let left_over =
            (slope - signed(survivors.relaxed.price)).max(0) * survivors.left_over_max as i128;
        let mut behind = Reach { up: left_over, down: 0 };
        for one in &reaches {
            behind = Reach { up: behind.up + one.up, down: behind.down + one.down };
        }
        let mut before = Reach::default();
        let rest = slope * survivors.relaxed.rest as i128;
        for (index, window) in beyond.iter_mut().enumerate() {
            let most = (limit + before.up + behind.down + rest).div_euclid(2 * slope);
            let least = -(limit + before.down + behind.up - rest).div_euclid(2 * slope);
            window.last = window.last.min(clamped(most));
            window.first = window.first.max(clamped(least));
            if let Some(one) = reaches.get(index) {
                before = Reach { up: before.up + one.up, down: before.down + one.down };
                behind = Reach { up: behind.up - one.up, down: behind.down - one.down };
            }
        }
        if slope == 1 {
            break;
        }
        slope = (slope / SLOPE_FACTOR).max(1);
    }
    // Converts the steps of guests before a place, beyond bases, to those of the guests after it.
    let mut available = survivors.relaxed.spare as i64;
    for (index, window) in beyond.iter_mut().enumerate() {
        let Window { first, last } = *window;
        *window = Window { first: (available - last).max(0), last: available - first };
        available -= survivors.relaxed.bases.get(index).map_or(0, |&base| i64::from(base));
    }
    beyond
}

/// For each place, the range of steps beyond bases that the smallest and largest sizes allow.
fn spans<C: Cost>(survivors: &Survivors<C>) -> Vec<Window> {
    let bounds = |guest: usize| {
        let (sizes, base) = (survivors.of(guest), i64::from(survivors.relaxed.bases[guest]));
        let beyond = |size: Option<&Size<C>>| size.map_or(0, |size| i64::from(size.at) - base);
        (beyond(sizes.first()), beyond(sizes.last()))
    };
    let (rest, left_over) = (survivors.relaxed.rest as i64, survivors.left_over_max as i64);
    let (mut least_behind, mut most_behind) = (0, left_over);
    for guest in 0..survivors.guests() {
        let (least, most) = bounds(guest);
        least_behind += least;
        most_behind += most;
    }
    let (mut least_before, mut most_before) = (0, 0);
    let mut spans = Vec::with_capacity(survivors.guests() + 1);
    for index in 0..=survivors.guests() {
        let first = i64::max(least_before, rest - most_behind);
        let last = i64::min(most_before, rest - least_behind);
        spans.push(Window { first, last });
        if index < survivors.guests() {
            let (least, most) = bounds(index);
            least_before += least;
            most_before += most;
            least_behind -= least;
            most_behind -= most;
        }
    }
    spans
}

fn reach<C: Cost>(survivors: &Survivors<C>, guest: usize, slope: i128) -> Reach {
    let base = survivors.relaxed.bases[guest];
    if survivors.limit.into() <= LIMIT_MAX_64_BITS {
        let (base, slope) = (i64::from(base), slope as i64);
        let (mut up, mut down) = (0, 0);
        for size in survivors.of(guest) {
            let gap: u128 = size.gap.into();
            let (worth, gap) = (slope * (i64::from(size.at) - base), gap as i64);
            (up, down) = (up.max(worth - gap), down.max(-worth - gap));
        }
        return Reach { up: up.into(), down: down.into() };
    }
    let base = i128::from(base);
    let mut reach = Reach::default();
    for size in survivors.of(guest) {
        let worth = slope * (i128::from(size.at) - base);
        reach.up = reach.up.max(worth - signed(size.gap));
        reach.down = reach.down.max(-worth - signed(size.gap));
    }
    reach
}

/// Converts a gap, which is below 2^90.
fn signed<C: Cost>(gap: C) -> i128 {
    gap.into() as i128
}

/// Converts a number of steps; no guest has more than 2^40.
fn clamped(steps: i128) -> i64 {
    steps.clamp(-(1 << 40), 1 << 40) as i64
}
