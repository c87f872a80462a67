//! `global`: global-scheduling with an idle-memory tax (Global §3.1–3.4).
//!
//! Properties: divides the whole budget; a guest that uses more than its part keeps the reserve `f`
//! free as long as others have idle memory to tax; if no guest is short, the tax is zero and every
//! guest has its share. Reacts to a change of demand within one decision, and takes back memory no
//! longer used within the next.
//!
//! Algorithm: `divide`, with the tax of the settings. The paper solves n linear equations in O(n³);
//! their closed form (its equation 5) is O(n). `tests/it/dense_solve.rs` checks one against the
//! other.
//!
//! Limits: under a fixed tax more shares never cost a guest memory while the taxed use of all
//! guests fits. Under the full tax with more in use than there is, the shortage is divided by
//! shares, so more shares cost memory. Under the dynamic tax they may too: other guests fall short
//! and the tax rises.
//!
//! Deviations: bounds and shares are ours. The budget is the host's memory for guests, not the sum
//! of the guests' MemTotal, which would shrink the total at every decision. A guest whose need
//! exceeds its target less the reserve is decided on at once: in the paper's two seconds it may
//! swap out what takes twenty seconds to read back.

use std::time::Duration;

use ballast_model::{Bytes, PolicyName, Reason};

use crate::divide::divide;
use crate::{Division, Pacing, Policy, PolicySettings, Problem};

/// The paper decides every two seconds and ignores changes up to 10 MiB (Global §4.1).
pub(crate) const PACING: Pacing =
    Pacing { on_need: true, ..Pacing::every(Duration::from_secs(2), Bytes::mib(10)) };

/// The policy `global`.
#[derive(Clone, Debug)]
pub struct Global {
    settings: PolicySettings,
}

impl Global {
    /// The policy with the reserve and the tax of `settings`.
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

/// Global-scheduling; self-scheduling falls back to it.
pub(crate) fn tax_and_divide(problem: &Problem, settings: &PolicySettings) -> Division {
    let budget = problem.budget();
    divide(problem, settings.reserve, settings.tax, |contender, tax| Reason::IdleTax {
        used: contender.used,
        tax,
        budget,
    })
}
