//! How many guests a host holds.
//!
//! Idea: a scenario's guests are a template; with `k` of them the list is gone through as often as
//! it takes, each copy with seeds of its own. All guests begin with equal parts of the budget. The
//! host holds `k` if none of them does less than its part of the work it does with unlimited memory
//! (the consolidation ratio of TWS §1). The largest `k` is found by doubling, then by bisection.
//!
//! Cost: O(log k) runs of up to `k` guests, two for each `k` tried.
//! Limits: that more guests never fare better is assumed by the search; as copies are not alike, it
//! may be wrong by a guest, so that the next [`LOOK_BEYOND`] sizes are tried as well.

use ballast_model::{Bytes, GuestId};
use ballast_policy::Policy;

use crate::scenario::{GUESTS_MAX, GuestSpec, Scenario};
use crate::scenario_error::ScenarioError;
use crate::simulation::Simulation;

/// Sizes tried beyond the largest found.
const LOOK_BEYOND: usize = 2;

/// How many guests a host holds under a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Capacity {
    /// Most guests of which none is slowed down too much; 0 where one is by itself.
    pub guests: usize,
    /// What the slowest of them does of its work with unlimited memory; `None` where none works.
    pub slowest: Option<f64>,
    /// Numbers of guests that were tried, each with the work ratio of the slowest.
    pub tried: Vec<(usize, Option<f64>)>,
}

/// The most guests of `scenario`'s kind that its host holds with at most `slowdown` (0 to 1: the
/// share of its work that a guest may lose), under the policy that `policy` makes anew for each run.
///
/// # Errors
/// Why the scenario cannot be.
pub fn max_guests(
    scenario: &Scenario,
    policy: &dyn Fn() -> Box<dyn Policy>,
    slowdown: f64,
) -> Result<Capacity, ScenarioError> {
    scenario.validate()?;
    let most = most_by_floors(scenario).min(GUESTS_MAX);
    let mut search = Search { scenario, policy, bound: 1.0 - slowdown, tried: Vec::new() };
    let mut holds = 0;
    let mut fails = most + 1;
    let mut next = 1;
    while next < fails {
        if search.holds(next)? {
            holds = next;
            next = (next * 2).min(most.max(next + 1));
        } else {
            fails = next;
        }
    }
    while fails - holds > 1 {
        let middle = holds + (fails - holds) / 2;
        if search.holds(middle)? { holds = middle } else { fails = middle }
    }
    let mut beyond = fails + 1;
    while beyond <= most.min(holds + 1 + LOOK_BEYOND) {
        if search.holds(beyond)? {
            holds = beyond;
        }
        beyond += 1;
    }
    let slowest = search.tried.iter().find(|(n, _)| *n == holds).and_then(|(_, ratio)| *ratio);
    Ok(Capacity { guests: holds, slowest, tried: search.tried })
}

/// As many guests as their floors and kernels leave room for.
fn most_by_floors(scenario: &Scenario) -> usize {
    let mut left = scenario.budget();
    let mut count = 0;
    for guest in scenario.guests.iter().cycle().take(GUESTS_MAX) {
        let least = least_of(guest);
        if least > left {
            break;
        }
        left -= least;
        count += 1;
    }
    count
}

/// What a guest needs at least: its floor, and more than its kernel.
fn least_of(guest: &GuestSpec) -> Bytes {
    let kernel = guest.kernel.uncounted.saturating_add(guest.kernel.unreclaimable);
    guest.limits.floor_for(guest.memory).max(kernel.saturating_add(Bytes::pages(1)))
}

struct Search<'a> {
    scenario: &'a Scenario,
    policy: &'a dyn Fn() -> Box<dyn Policy>,
    bound: f64,
    tried: Vec<(usize, Option<f64>)>,
}

impl Search<'_> {
    fn holds(&mut self, guests: usize) -> Result<bool, ScenarioError> {
        let scenario = replicated(self.scenario, guests);
        let best = to_the_end(Simulation::unlimited(&scenario)?);
        let own = to_the_end(Simulation::new(&scenario, (self.policy)())?);
        let ratios = own.iter().zip(&best).filter(|(_, best)| **best > 0);
        let ratios = ratios.map(|(own, best)| *own as f64 / *best as f64);
        let slowest = ratios.min_by(f64::total_cmp);
        self.tried.push((guests, slowest));
        Ok(slowest.is_none_or(|slowest| slowest >= self.bound))
    }
}

/// The work of each guest.
fn to_the_end(mut simulation: Simulation) -> Vec<u64> {
    while simulation.step() {}
    simulation.report().guests.iter().map(|guest| guest.work).collect()
}

/// The scenario with `count` guests of its kinds.
fn replicated(scenario: &Scenario, count: usize) -> Scenario {
    let mut left = scenario.budget();
    let mut guests = Vec::with_capacity(count);
    for (number, template) in scenario.guests.iter().cycle().take(count).enumerate() {
        let mut guest = template.clone();
        // Names in their order, so that which copy is which does not depend on their number.
        if let Ok(id) = format!("g{number:05}").parse::<GuestId>() {
            guest.id = id;
        }
        guest.start = Some(least_of(template).page_ceil());
        left = left.saturating_sub(guest.start());
        guests.push(guest);
    }
    let part = left.fraction(1, count as u64).page_floor();
    for guest in &mut guests {
        guest.start = Some(guest.start().saturating_add(part).min(guest.memory));
    }
    Scenario { guests, ..scenario.clone() }
}
