//! How many guests fit on a host under each policy.

use std::str::FromStr;

use ballast_sim::{Capacity, Scenario, max_guests};
use serde::Serialize;

use super::contestants::Contestants;
use ballast_report::figures;

/// The share of its work that a guest may lose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slowdown(f64);

impl FromStr for Slowdown {
    type Err = String;

    fn from_str(text: &str) -> Result<Slowdown, String> {
        let percent = text.strip_suffix('%').map(str::trim).and_then(|it| it.parse::<f64>().ok());
        match percent.filter(|percent| (0.0..100.0).contains(percent)) {
            Some(percent) => Ok(Slowdown(percent / 100.0)),
            None => Err("expected 0% to below 100%, such as 5%".to_owned()),
        }
    }
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct CapacityJson {
    scenario: String,
    /// Always true: no figure here was measured.
    simulated: bool,
    /// Share of its work that a guest may lose, 0 to 1.
    slowdown: f64,
    budget_bytes: u64,
    policies: Vec<PolicyCapacityJson>,
}

#[derive(Clone, Debug, Serialize)]
struct PolicyCapacityJson {
    policy: String,
    max_guests: usize,
    /// Work of the slowest guest against its work with unlimited memory; `None`: no guest does any.
    slowest_work_ratio: Option<f64>,
}

/// Finds the greatest number of guests for each policy.
///
/// # Errors
/// The scenario cannot be simulated.
pub fn find(
    scenario: &Scenario,
    contestants: &Contestants,
    slowdown: Slowdown,
) -> anyhow::Result<CapacityJson> {
    let mut policies = Vec::new();
    for policy in contestants.build(&scenario.control.policy_settings) {
        // Each number of guests is tried with a fresh policy, which remembers nothing of the last
        // try.
        let fresh = || policy.clone();
        let Capacity { guests, slowest, .. } = max_guests(scenario, &fresh, slowdown.0)?;
        policies.push(PolicyCapacityJson {
            policy: policy.name().to_string(),
            max_guests: guests,
            slowest_work_ratio: slowest,
        });
    }
    Ok(CapacityJson {
        scenario: scenario.name.clone(),
        simulated: true,
        slowdown: slowdown.0,
        budget_bytes: scenario.budget().get(),
        policies,
    })
}

/// The result as a table.
pub fn render(found: &CapacityJson) -> String {
    let mut out = format!(
        "{}: guests like these that {} hold while none loses more than {:.1} % of its work \
         (simulated)\n\n{:<20} {:>6}  {:>7}\n",
        found.scenario,
        figures::size(found.budget_bytes as f64),
        found.slowdown * 100.0,
        "POLICY",
        "GUESTS",
        "SLOWEST"
    );
    for it in &found.policies {
        let slowest = match it.slowest_work_ratio {
            Some(ratio) => format!("{:.1} %", ratio * 100.0),
            None => figures::NONE.to_owned(),
        };
        out.push_str(&format!("{:<20} {:>6}  {slowest:>7}\n", it.policy, it.max_guests));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slowdown_is_a_percentage() {
        assert_eq!("5%".parse(), Ok(Slowdown(0.05)));
        assert_eq!("0 %".parse(), Ok(Slowdown(0.0)));
        for text in ["5", "100%", "-1%", "NaN%", "x%", ""] {
            assert!(text.parse::<Slowdown>().is_err(), "{text}");
        }
    }
}
