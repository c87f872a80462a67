//! `global`: global-scheduling with an idle-memory tax (Global §3.1–3.4).
//!
//! Properties: divides the whole budget; a guest that uses more than its part keeps the reserve `f`
//! free as long as the others have idle memory to tax; when nobody is short the tax is zero and
//! everyone has its share. Answers a change of demand within one decision, and memory that a guest
//! merely once used within the next.
//!
//! Algorithm: `divide`, with the tax of the settings. The paper solves n linear equations in
//! O(n³); their closed form (its own equation 5) is O(n), and `tests/dense_solve.rs` checks one
//! against the other.
//!
//! Limits: more shares never cost a guest memory under a fixed tax while the taxed use of all fits. Under
//! the full tax and with more in use than there is, everybody goes without by shares, so that more of
//! them cost memory; and under the dynamic tax they may, as others fall short and the tax rises.
//!
//! Deviations: bounds and shares (the paper has none); the budget is what the host has for guests,
//! not the sum of the guests' MemTotal, which would shrink the total at every decision.

use std::time::Duration;

use ballast_model::{Bytes, PolicyName, Reason};

use crate::divide::divide;
use crate::{Division, Pacing, Policy, PolicySettings, Problem};

/// The paper decides every two seconds and ignores changes up to 10 MiB (Global §4.1).
pub(crate) const PACING: Pacing =
    Pacing { interval: Duration::from_secs(2), dead_band: Bytes::mib(10), on_request: false };

/// See the file's header.
#[derive(Clone, Debug)]
pub struct Global {
    settings: PolicySettings,
}

impl Global {
    /// With the reserve and the tax of `settings`.
    pub fn new(settings: PolicySettings) -> Self {
        Global { settings }
    }
}

impl Policy for Global {
    fn name(&self) -> PolicyName {
        PolicyName::Global
    }

    fn pacing(&self) -> Pacing {
        PACING
    }

    fn divide(&mut self, problem: &Problem) -> Division {
        tax_and_divide(problem, &self.settings)
    }
}

/// Global-scheduling; also what self-scheduling falls back to.
pub(crate) fn tax_and_divide(problem: &Problem, settings: &PolicySettings) -> Division {
    let budget = problem.budget();
    divide(problem, settings.reserve, settings.tax, |contender, tax| Reason::IdleTax {
        used: contender.used,
        tax,
        budget,
    })
}
