//! The number of guests that fit on a host.
//!
//! Idea: a scenario's guests are a template; `k` guests repeat the list as often as needed, each
//! copy with seeds of its own. All guests start with equal parts of the budget. `k` guests fit if
//! each does at least the required share of its work with unlimited memory (the consolidation ratio
//! of TWS §1). The largest `k` is found by doubling, then by bisection.
//!
//! Cost: O(log k) runs of up to `k` guests, two for each `k` tried.
//! Limits: the search assumes that more guests never perform better; since copies differ, this may
//! be wrong by a guest, so the next [`EXTRA_COUNTS`] counts are tried too.

use ballast_model::{Bytes, GuestId};
use ballast_policy::Policy;

use crate::limits::GUESTS_MAX;
use crate::scenario::{GuestSpec, Scenario};
use crate::scenario_error::ScenarioError;
use crate::simulation::Simulation;

/// Counts tried beyond the largest found.
const EXTRA_COUNTS: usize = 2;

/// The capacity of a host under a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Capacity {
    /// The largest number of guests at which none is slowed down too much; 0 if a single guest is.
    pub guests: usize,
    /// The work ratio of the slowest guest; `None` if no guest does any work.
    pub slowest: Option<f64>,
    /// The counts that were tried, each with the work ratio of the slowest guest.
    pub tried: Vec<(usize, Option<f64>)>,
}

/// Finds the most guests of `scenario`'s kind that fit on its host with at most `slowdown` (0 to 1:
/// the share of its work that a guest may lose). `policy` creates the policy for each run.
///
/// # Errors
/// When the scenario is invalid.
pub fn max_guests(
    scenario: &Scenario,
    policy: &dyn Fn() -> Box<dyn Policy>,
    slowdown: f64,
) -> Result<Capacity, ScenarioError> {
    scenario.validate()?;
    let most = most_by_floors(scenario).min(GUESTS_MAX);
    let mut search = CapacitySearch { scenario, policy, bound: 1.0 - slowdown, tried: Vec::new() };
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
    while beyond <= most.min(holds + 1 + EXTRA_COUNTS) {
        if search.holds(beyond)? {
            holds = beyond;
        }
        beyond += 1;
    }
    let slowest = search.tried.iter().find(|(n, _)| *n == holds).and_then(|(_, ratio)| *ratio);
    Ok(Capacity { guests: holds, slowest, tried: search.tried })
}

/// The number of guests whose floors and kernels fit the budget.
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

/// A guest's minimum: its floor, and more than its kernel.
fn least_of(guest: &GuestSpec) -> Bytes {
    let kernel = guest.kernel.uncounted.saturating_add(guest.kernel.unreclaimable);
    guest.limits.floor_for(guest.memory).max(kernel.saturating_add(Bytes::pages(1)))
}

struct CapacitySearch<'a> {
    scenario: &'a Scenario,
    policy: &'a dyn Fn() -> Box<dyn Policy>,
    bound: f64,
    tried: Vec<(usize, Option<f64>)>,
}

impl CapacitySearch<'_> {
    fn holds(&mut self, guests: usize) -> Result<bool, ScenarioError> {
        let scenario = replicated(self.scenario, guests);
        let best = run_to_end(Simulation::unlimited(&scenario)?);
        let own = run_to_end(Simulation::new(&scenario, (self.policy)())?);
        let ratios = own.iter().zip(&best).filter(|(_, best)| **best > 0);
        let ratios = ratios.map(|(own, best)| *own as f64 / *best as f64);
        let slowest = ratios.min_by(f64::total_cmp);
        self.tried.push((guests, slowest));
        Ok(slowest.is_none_or(|slowest| slowest >= self.bound))
    }
}

/// Runs a scenario and returns each guest's work.
fn run_to_end(mut simulation: Simulation) -> Vec<u64> {
    while simulation.step() {}
    simulation.report().guests.iter().map(|guest| guest.work).collect()
}

/// The scenario with `count` guests of its kinds.
fn replicated(scenario: &Scenario, count: usize) -> Scenario {
    let mut left = scenario.budget();
    let mut guests = Vec::with_capacity(count);
    for (number, template) in scenario.guests.iter().cycle().take(count).enumerate() {
        let mut guest = template.clone();
        // Names in sorted order, so that copy `i` is the same for every count.
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
