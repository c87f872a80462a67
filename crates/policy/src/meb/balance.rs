//! Computes every guest's target by MEB's Algorithm 1.
//!
//! Properties: in a decision no guest shrinks by more than a tenth or grows by more than three
//! tenths or one step (see [`MebSettings`]), unless the budget or its own bounds require it. Within
//! these limits all of the budget is allocated. No guest lacks memory while all demands fit. When
//! they do not, the allocation minimises, over all allocations on the grid of steps, the sum of
//! misses weighted by shares and of the margins of guests that lose memory. More shares never cost
//! a guest memory while demands fit; when they do not, a guest's misses on the grid never rise with
//! its shares, other things equal. Errors of misses of up to a seventeenth, drawn anew for each
//! decision, never move memory such that guests truly miss more, so they cannot move it back and
//! forth.
//!
//! Algorithm: `L = max(floor, 0.9 m)`, `H = min(ceiling, 1.3 m)`, `E` is the demand within floor
//! and ceiling, `P` the budget.
//!
//! - `P ≥ ΣE`: every guest gets `E` and a part of the bonus `P − ΣE` in proportion to `E` and
//!   shares, within `[L, H]`; what bounds cut off is shared out again.
//! - `P < ΣE`: the [exact solver](super::exact) allocates from `L` on, in steps of 8 tracking
//!   granules (1 MiB) from what guests have; a remainder below a step is divided by shares. The
//!   additional misses of a guest that loses memory count an eighth more than the misses that
//!   another one is spared, and one more for each step.
//! - `ΣL > P`: the lower bounds are reduced to the floors. If the floors exceed the budget, every
//!   guest gets its floor, and the shortfall is reported.
//!
//! The lower bound of a guest with a service objective is raised to the smallest size that meets
//! it, or to its upper bound if that is less, while the budget lasts, by priority and then the
//! cheapest first. Objectives that are not met are reported. A guest without a curve is assumed to
//! touch as many pages in an interval as it demands, with frequencies that fall linearly from the
//! hottest to the coldest, so that it misses `(E − m)² / E` of them.
//!
//! Misses are counted over the same interval for all guests, and as they happened (the paper's `NR`
//! too is the accesses of an epoch). A guest that waits for its disk touches less, and so misses
//! less, than it would at full speed. Its misses are not scaled up for that: if a miss takes the
//! time `t`, a guest with `n` misses a second waits for `n t` of each second, and that is the work
//! that it gains once it misses no more. Scaled by `1 / (1 − n t)`, a guest at a tenth of its speed
//! would seem to gain the work of nine guests.
//!
//! Source: MEB §4. Deviations: the paper does not clamp the bonus, which breaks its own limits.
//! Shares, objectives, guests without curves, the growth by a step, the margin of what guests have,
//! and the handling of bounds that do not fit are ours.
//! Cost: that of the solver with at most [`STEPS_MAX`] steps; with more, steps are doubled.
//! Limits: a miss is taken to cost every guest the same time, however slow its disk.

use std::cmp::Reverse;
use std::time::Duration;

use ballast_model::{Bytes, GuestId, MissCurve};

use super::MebSettings;
use super::exact;
use super::instance::{Instance, Sizes};
use super::proportion::{BoundedPart, divide};
use crate::{Contender, Problem};

/// Most steps between all lower and upper bounds; limits the cost of a decision.
pub const STEPS_MAX: u64 = 1 << 16;

/// The additional misses of a guest that loses memory count this part more. With errors of up to a
/// seventeenth, two counts of the same misses differ by at most 18 to 16, which is an eighth. IMT
/// (§4.2) takes two samples within 5 % as equal.
const MARGIN: u128 = 8;

/// The rule that decided a guest's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetRule {
    /// Its floor: the floors exceed the budget.
    Floor,
    /// Its demand plus a part of memory that no guest demands.
    Bonus,
    /// Fewest misses of all guests, from its curve.
    FewestMisses,
    /// Fewest misses of all guests, assumed from its demand because it has no curve.
    AssumedMisses,
}

/// An objective that is not met, or that cannot be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectiveViolation {
    /// The guest.
    pub id: GuestId,
    /// The objective: at most this many misses a second.
    pub misses_per_s_max: u64,
    /// Misses a second expected at its target; `None`: it has no curve.
    pub misses_per_s: Option<u64>,
}

/// One guest's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MebTarget {
    /// Memory in whole pages.
    pub size: Bytes,
    /// The rule that decided it.
    pub rule: TargetRule,
    /// The guest's demand, limited to floor and ceiling.
    pub demand: Bytes,
}

/// A decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Targets in the order of the problem's contenders.
    pub targets: Vec<MebTarget>,
    /// How far the floors exceed the budget.
    pub shortfall: Bytes,
    /// Objectives that are not met, in the order of contenders.
    pub violations: Vec<ObjectiveViolation>,
}

/// A contender's demand and bounds in this decision, in pages.
#[derive(Clone, Copy, Debug)]
struct SizeRange {
    demand: u64,
    lower: u64,
    upper: u64,
    /// Its memory now, within its bounds.
    held: u64,
}

impl SizeRange {
    fn new(contender: &Contender, settings: &MebSettings) -> Self {
        let pages = |size: Bytes| size.to_pages();
        let (floor, ceiling) = (pages(contender.floor), pages(contender.ceiling));
        let held = pages(contender.allocation);
        let lower = settings.least_pages(held).clamp(floor, ceiling);
        let upper = settings.most_pages(held).clamp(lower, ceiling);
        let demand = pages(contender.demand()).clamp(floor, ceiling);
        Self { demand, lower, upper, held: held.clamp(lower, upper) }
    }
}

/// Decides on the targets of all contenders.
#[must_use]
pub fn balance(problem: &Problem, settings: &MebSettings) -> Balance {
    let contenders = problem.contenders();
    let mut ranges: Vec<SizeRange> =
        contenders.iter().map(|contender| SizeRange::new(contender, settings)).collect();
    let budget = problem.budget().to_pages();
    let shortfall = problem.shortfall();
    let (sizes, rules) = if shortfall > Bytes::ZERO {
        let floors = contenders.iter().map(|contender| contender.floor.to_pages()).collect();
        (floors, vec![TargetRule::Floor; contenders.len()])
    } else {
        if lowers(&ranges) > budget {
            for (range, contender) in ranges.iter_mut().zip(contenders) {
                range.lower = contender.floor.to_pages();
            }
        }
        raise_to_objectives(contenders, &mut ranges, budget);
        if ranges.iter().map(|range| range.demand).sum::<u64>() <= budget {
            let sizes = share_bonus(contenders, &ranges, budget, settings);
            (sizes, vec![TargetRule::Bonus; ranges.len()])
        } else {
            let rule = |contender: &Contender| match contender.curve {
                Some(_) => TargetRule::FewestMisses,
                None => TargetRule::AssumedMisses,
            };
            let sizes = fewest_misses(contenders, &ranges, budget, settings);
            (sizes, contenders.iter().map(rule).collect())
        }
    };
    let target = |((size, rule), range): ((u64, TargetRule), &SizeRange)| MebTarget {
        size: Bytes::pages(size),
        rule,
        demand: Bytes::pages(range.demand),
    };
    let targets: Vec<MebTarget> = sizes.into_iter().zip(rules).zip(&ranges).map(target).collect();
    let violations = contenders
        .iter()
        .zip(&targets)
        .filter_map(|(one, target)| violation(one, target))
        .collect();
    Balance { targets, shortfall, violations }
}

fn lowers(ranges: &[SizeRange]) -> u64 {
    ranges.iter().map(|range| range.lower).sum()
}

/// Raises lower bounds to the sizes that objectives need, or as near to them as this decision may
/// go, while the budget lasts.
fn raise_to_objectives(contenders: &[Contender], ranges: &mut [SizeRange], budget: u64) {
    let mut left = budget.saturating_sub(lowers(ranges));
    let need = |(at, contender): (usize, &Contender)| {
        let size = contender.curve.as_ref()?.size_for(contender.miss_rate_max?)?;
        let more =
            size.page_ceil().to_pages().min(ranges[at].upper).checked_sub(ranges[at].lower)?;
        Some((Reverse(contender.priority), more, at))
    };
    let mut needs: Vec<_> = contenders.iter().enumerate().filter_map(need).collect();
    needs.sort_unstable();
    for (_, more, at) in needs {
        if let Some(rest) = left.checked_sub(more) {
            left = rest;
            ranges[at].lower += more;
            ranges[at].held = ranges[at].held.max(ranges[at].lower);
        }
    }
}

fn share_bonus(
    contenders: &[Contender],
    ranges: &[SizeRange],
    budget: u64,
    settings: &MebSettings,
) -> Vec<u64> {
    let part = |(contender, range): (&Contender, &SizeRange)| BoundedPart {
        base: range.demand,
        weight: range.demand.max(1) * settings.weight(contender.shares),
        lower: range.lower,
        upper: range.upper,
    };
    let parts: Vec<BoundedPart> = contenders.iter().zip(ranges).map(part).collect();
    divide(&parts, budget)
}

fn fewest_misses(
    contenders: &[Contender],
    ranges: &[SizeRange],
    budget: u64,
    settings: &MebSettings,
) -> Vec<u64> {
    let step = step_pages(ranges, settings);
    let ranges = &on_grid(ranges, budget, step);
    let interval = |contender: &Contender| contender.curve.as_ref().map(|curve| curve.interval());
    let longest = contenders.iter().filter_map(interval).max().unwrap_or(Duration::from_secs(1));
    let mut guests = Vec::with_capacity(ranges.len());
    for (contender, range) in contenders.iter().zip(ranges) {
        let weight = settings.weight(contender.shares);
        let misses = weighted_misses(contender, range, longest, step, weight);
        guests.push(Sizes { lower: 0, misses });
    }
    let steps = match Instance::new(budget.saturating_sub(lowers(ranges)) / step, guests) {
        Ok(instance) => exact::solve(&instance).steps,
        // Impossible, because misses never rise and steps are few enough. Lower bounds are safe.
        Err(_) => vec![0; ranges.len()],
    };
    // Divides the remainder below a step, or between the last step and an upper bound.
    let part = |((contender, range), steps): ((&Contender, &SizeRange), u64)| {
        let pages = range.lower + steps * step;
        let weight = settings.weight(contender.shares);
        BoundedPart { base: pages, weight, lower: pages, upper: range.upper }
    };
    let parts: Vec<BoundedPart> = contenders.iter().zip(ranges).zip(steps).map(part).collect();
    divide(&parts, budget)
}

/// A guest's misses in `interval` with its lower bound, with one step more, and so on to its upper
/// bound: each with the margin of what the guest has, and times its `weight`.
fn weighted_misses(
    contender: &Contender,
    range: &SizeRange,
    interval: Duration,
    step: u64,
    weight: u64,
) -> Vec<u64> {
    let misses_held = misses(contender, range, interval, range.held);
    let steps = (range.upper - range.lower) / step;
    let mut weighted = Vec::with_capacity(steps as usize + 1);
    for k in 0..=steps {
        let pages = range.lower + k * step;
        let misses = misses(contender, range, interval, pages);
        let lost = u128::from(range.held.saturating_sub(pages) / step);
        let margin = misses.saturating_sub(misses_held) / MARGIN + lost;
        let cost = u128::from(weight).saturating_mul(misses.saturating_add(margin));
        weighted.push(u64::try_from(cost).unwrap_or(u64::MAX));
    }
    weighted
}

/// The ranges with lower bounds a whole number of steps below what guests have, so that their
/// present sizes can be chosen. Unchanged if the budget does not suffice for that.
fn on_grid(ranges: &[SizeRange], budget: u64, step: u64) -> Vec<SizeRange> {
    let raised = |range: &SizeRange| {
        let off = (range.held - range.lower) % step;
        SizeRange { lower: range.lower + off, ..*range }
    };
    let raised: Vec<SizeRange> = ranges.iter().map(raised).collect();
    if lowers(&raised) <= budget { raised } else { ranges.to_vec() }
}

/// The step from the settings, doubled until [`STEPS_MAX`] suffice. The step of the curves would be
/// too coarse: bounds lie between their points, and it could skip a steep fall.
fn step_pages(ranges: &[SizeRange], settings: &MebSettings) -> u64 {
    let mut step = settings.step_pages();
    let widths: u64 = ranges.iter().map(|range| range.upper - range.lower).sum();
    while widths / step > STEPS_MAX {
        step = step.saturating_mul(2);
    }
    step
}

/// Misses in `interval` with `pages`; never rising with pages.
fn misses(contender: &Contender, range: &SizeRange, interval: Duration, pages: u64) -> u128 {
    match contender.curve.as_deref() {
        Some(curve) => misses_in(curve, interval, Bytes::pages(pages)),
        None => {
            let lacking = u128::from(range.demand.saturating_sub(pages));
            lacking * lacking / u128::from(range.demand.max(1))
        }
    }
}

fn misses_in(curve: &MissCurve, interval: Duration, memory: Bytes) -> u128 {
    let misses = u128::from(curve.misses(memory));
    if curve.interval() == interval {
        return misses;
    }
    // Saturates only with more than 2^64 misses in more than an hour.
    misses.saturating_mul(interval.as_nanos()) / curve.interval().as_nanos().max(1)
}

fn violation(contender: &Contender, target: &MebTarget) -> Option<ObjectiveViolation> {
    let misses_per_s_max = contender.miss_rate_max?;
    let misses_per_s = contender.curve.as_ref().map(|curve| curve.misses_per_s(target.size));
    let is_met = misses_per_s.is_some_and(|misses| misses <= misses_per_s_max);
    (!is_met).then(|| ObjectiveViolation {
        id: contender.id.clone(),
        misses_per_s_max,
        misses_per_s,
    })
}

#[cfg(test)]
mod tests;
