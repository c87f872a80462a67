//! What every guest is to have, by MEB's Algorithm 1.
//!
//! Properties: no guest shrinks by more than a tenth or grows by more than three tenths in a decision
//! (or one step, if that is more; both as [`Settings`] say), but where the budget or its own bounds leave no other way. All of
//! the budget is given out that these limits allow. Nobody lacks memory while all demands fit. When
//! they do not, misses weighted by shares are fewest among all allocations on the grid of steps. More
//! shares never cost a guest memory while demands fit; when they do not, its own misses never rise
//! with its shares, other things equal, on the grid.
//!
//! Algorithm: `L = max(floor, 0.9 m)`, `H = min(ceiling, 1.3 m)`, `E` the demand within floor and
//! ceiling, `P` the budget.
//! `P ≥ ΣE`: everybody has `E` and a part of the bonus `P − ΣE` in proportion to `E` and shares, within
//! `[L, H]`, what bounds cut off shared out again. `P < ΣE`: the [exact solver](super::exact), in steps
//! of 8 tracking granules (1 MiB), from `L` on; what is left below a step goes out by shares.
//! `ΣL > P`: lower bounds fall to the floors. Floors above the budget: everybody has its floor, and
//! the shortfall is named.
//!
//! A guest with a service objective has the least size that meets it as its lower bound, within its
//! limits and while the budget lasts, by priority and then the cheapest first; objectives that are
//! not met are named. A guest without a curve is taken to touch as many pages in an interval as it
//! demands, from the hottest to the coldest evenly less often, so that it misses `(E − m)² / E` of them.
//!
//! Source: MEB §4. Deviations: the paper's bonus is not clamped, which breaks its own limits; shares,
//! objectives, guests without a curve, a step of growth for the smallest guests, and what happens when
//! bounds do not fit are ours. Costs count from the same interval for everybody.
//! Cost: that of the solver, over at most [`STEPS_MAX`] steps: beyond, steps are doubled.

use std::cmp::Reverse;
use std::time::Duration;

use ballast_model::{Bytes, GuestId, MissCurve};

use super::Settings;
use super::exact;
use super::instance::{Instance, Sizes};
use super::proportion::{Part, divide};
use crate::{Contender, Problem};

/// Most steps between all lower and upper bounds; keeps a decision on any number of guests in bounds.
pub const STEPS_MAX: u64 = 1 << 16;

/// By which rule a guest has what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Its floor: floors exceed the budget.
    Floor,
    /// Its demand and a part of what no one demands.
    Bonus,
    /// Fewest misses of all, by its curve.
    FewestMisses,
    /// The same, its misses assumed from its demand, as it has no curve.
    AssumedMisses,
}

/// An objective that is not met, or of which nobody knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The guest.
    pub id: GuestId,
    /// Misses a second that it should stay under.
    pub misses_per_s_max: u64,
    /// Misses a second that its target leads to; `None`: it has no curve.
    pub misses_per_s: Option<u64>,
}

/// One guest's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Memory, whole pages.
    pub size: Bytes,
    /// By which rule.
    pub rule: Rule,
    /// The demand that went in: within floor and ceiling.
    pub demand: Bytes,
}

/// A decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// In the order of the problem's contenders.
    pub targets: Vec<Target>,
    /// How far floors exceed the budget.
    pub shortfall: Bytes,
    /// Objectives that are not met, in the order of contenders.
    pub violations: Vec<Violation>,
}

/// A contender in pages.
#[derive(Clone, Copy, Debug)]
struct Party {
    demand: u64,
    lower: u64,
    upper: u64,
}

impl Party {
    fn new(contender: &Contender, settings: &Settings) -> Self {
        let pages = |size: Bytes| size.to_pages();
        let (floor, ceiling) = (pages(contender.floor), pages(contender.ceiling));
        let held = pages(contender.allocation);
        let lower = settings.least_pages(held).clamp(floor, ceiling);
        let upper = settings.most_pages(held).clamp(lower, ceiling);
        Self { demand: pages(contender.demand()).clamp(floor, ceiling), lower, upper }
    }
}

/// Decides.
#[must_use]
pub fn balance(problem: &Problem, settings: &Settings) -> Balance {
    let contenders = problem.contenders();
    let mut parties: Vec<Party> =
        contenders.iter().map(|contender| Party::new(contender, settings)).collect();
    let budget = problem.budget().to_pages();
    let shortfall = problem.shortfall();
    let (sizes, rules) = if shortfall > Bytes::ZERO {
        let floors = contenders.iter().map(|contender| contender.floor.to_pages()).collect();
        (floors, vec![Rule::Floor; contenders.len()])
    } else {
        if lowers(&parties) > budget {
            let floors = contenders.iter().map(|contender| contender.floor.to_pages());
            parties.iter_mut().zip(floors).for_each(|(party, floor)| party.lower = floor);
        }
        raise_to_objectives(contenders, &mut parties, budget);
        match parties.iter().map(|party| party.demand).sum::<u64>() <= budget {
            true => (
                share_bonus(contenders, &parties, budget, settings),
                vec![Rule::Bonus; parties.len()],
            ),
            false => {
                let rule = |contender: &Contender| match contender.curve {
                    Some(_) => Rule::FewestMisses,
                    None => Rule::AssumedMisses,
                };
                let sizes = fewest_misses(contenders, &parties, budget, settings);
                (sizes, contenders.iter().map(rule).collect())
            }
        }
    };
    let target = |((size, rule), party): ((u64, Rule), &Party)| Target {
        size: Bytes::pages(size),
        rule,
        demand: Bytes::pages(party.demand),
    };
    let targets: Vec<Target> = sizes.into_iter().zip(rules).zip(&parties).map(target).collect();
    let violations = contenders
        .iter()
        .zip(&targets)
        .filter_map(|(one, target)| violation(one, target))
        .collect();
    Balance { targets, shortfall, violations }
}

fn lowers(parties: &[Party]) -> u64 {
    parties.iter().map(|party| party.lower).sum()
}

/// Raises lower bounds to what objectives need, while the budget lasts.
fn raise_to_objectives(contenders: &[Contender], parties: &mut [Party], budget: u64) {
    let mut left = budget.saturating_sub(lowers(parties));
    let need = |(at, contender): (usize, &Contender)| {
        let size = contender.curve.as_ref()?.size_for(contender.miss_rate_max?)?;
        let pages = size.page_ceil().to_pages();
        let reachable = (parties[at].lower + 1..=parties[at].upper).contains(&pages);
        reachable.then(|| (Reverse(contender.priority), pages - parties[at].lower, at))
    };
    let mut needs: Vec<_> = contenders.iter().enumerate().filter_map(need).collect();
    needs.sort_unstable();
    for (_, more, at) in needs {
        if let Some(rest) = left.checked_sub(more) {
            left = rest;
            parties[at].lower += more;
        }
    }
}

fn share_bonus(
    contenders: &[Contender],
    parties: &[Party],
    budget: u64,
    settings: &Settings,
) -> Vec<u64> {
    let part = |(contender, party): (&Contender, &Party)| Part {
        base: party.demand,
        weight: party.demand.max(1) * settings.weight(contender.shares),
        lower: party.lower,
        upper: party.upper,
    };
    let parts: Vec<Part> = contenders.iter().zip(parties).map(part).collect();
    divide(&parts, budget)
}

fn fewest_misses(
    contenders: &[Contender],
    parties: &[Party],
    budget: u64,
    settings: &Settings,
) -> Vec<u64> {
    let step = step_pages(parties, settings);
    let interval = |contender: &Contender| contender.curve.as_ref().map(|curve| curve.interval());
    let longest = contenders.iter().filter_map(interval).max().unwrap_or(Duration::from_secs(1));
    let sizes = |(contender, party): (&Contender, &Party)| {
        let weight = settings.weight(contender.shares);
        let cost = |k| {
            let pages = party.lower + k * step;
            u128::from(weight).saturating_mul(misses(contender, party, longest, pages))
        };
        let cost = |k| u64::try_from(cost(k)).unwrap_or(u64::MAX);
        let misses = (0..=(party.upper - party.lower) / step).map(cost).collect();
        Sizes { lower: 0, misses }
    };
    let guests = contenders.iter().zip(parties).map(sizes).collect();
    let steps = match Instance::new(budget.saturating_sub(lowers(parties)) / step, guests) {
        Ok(instance) => exact::solve(&instance).steps,
        // Costs never rise and steps are few enough: it cannot be. Lower bounds harm nobody.
        Err(_) => vec![0; parties.len()],
    };
    // What is left below a step, or between the last step and an upper bound.
    let part = |((contender, party), steps): ((&Contender, &Party), u64)| {
        let pages = party.lower + steps * step;
        let weight = settings.weight(contender.shares);
        Part { base: pages, weight, lower: pages, upper: party.upper }
    };
    let parts: Vec<Part> = contenders.iter().zip(parties).zip(steps).map(part).collect();
    divide(&parts, budget)
}

/// The step: the least, or as large as it must be. Not that of the curves: bounds lie between their
/// points, so that a grid as coarse would step over a cliff.
fn step_pages(parties: &[Party], settings: &Settings) -> u64 {
    let mut step = settings.step_pages();
    let widths: u64 = parties.iter().map(|party| party.upper - party.lower).sum();
    while widths / step > STEPS_MAX {
        step = step.saturating_mul(2);
    }
    step
}

/// Misses in `interval` with so many pages; never rising with pages.
fn misses(contender: &Contender, party: &Party, interval: Duration, pages: u64) -> u128 {
    match contender.curve.as_deref() {
        Some(curve) => misses_in(curve, interval, Bytes::pages(pages)),
        None => {
            let lacking = u128::from(party.demand.saturating_sub(pages));
            lacking * lacking / u128::from(party.demand.max(1))
        }
    }
}

fn misses_in(curve: &MissCurve, interval: Duration, memory: Bytes) -> u128 {
    let misses = u128::from(curve.misses(memory));
    match curve.interval() == interval {
        true => misses,
        // Saturating: an interval of more than an hour's nanoseconds times 2^64 misses.
        false => misses.saturating_mul(interval.as_nanos()) / curve.interval().as_nanos().max(1),
    }
}

fn violation(contender: &Contender, target: &Target) -> Option<Violation> {
    let misses_per_s_max = contender.miss_rate_max?;
    let misses_per_s = contender.curve.as_ref().map(|curve| curve.misses_per_s(target.size));
    let is_met = misses_per_s.is_some_and(|misses| misses <= misses_per_s_max);
    (!is_met).then(|| Violation { id: contender.id.clone(), misses_per_s_max, misses_per_s })
}

#[cfg(test)]
mod tests;
