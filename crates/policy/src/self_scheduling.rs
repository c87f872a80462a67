//! `self-scheduling`: gives every guest what it uses plus a reserve, while that fits (Global §3).
//!
//! Properties: gives no more than is requested, so the host keeps the rest; each target depends on
//! its own guest only, until the requests no longer fit the budget. Then it decides like `global`
//! until they fit again with a margin.
//!
//! Algorithm: `target_i = A_i + f` within bounds while `Σ target_i ≤ N`; switches to
//! global-scheduling when that fails, and back when `Σ target_i ≤ N − N/20`.
//!
//! Deviations: the reserve `+ f` and the margin are ours; the paper switches when the hypervisor
//! runs out of free frames, and does not say when it switches back.

use ballast_model::{Bytes, Desired, PolicyName, Reason};

use crate::global::{PACING, tax_and_divide};
use crate::wants::Want;
use crate::{Contender, Division, Pacing, Policy, PolicySettings, Problem};

/// Switches back when one part in this many of the budget is spare. A twentieth is more than the
/// dead band of a budget above 200 MiB, so small changes of requests do not switch back and forth.
const MARGIN_DIVISOR: u64 = 20;

/// The policy `self-scheduling`.
#[derive(Clone, Debug)]
pub struct SelfScheduling {
    settings: PolicySettings,
    /// Whether it decides like `global`.
    is_global: bool,
}

impl SelfScheduling {
    /// The policy with the reserve of `settings`, and its tax for when requests do not fit.
    pub fn new(settings: PolicySettings) -> Self {
        SelfScheduling { settings, is_global: false }
    }
}

impl Policy for SelfScheduling {
    fn name(&self) -> PolicyName {
        PolicyName::SelfScheduling
    }

    fn pacing(&self) -> Pacing {
        PACING
    }

    fn divide(&mut self, problem: &Problem) -> Division {
        let wanted: Vec<Desired> =
            problem.contenders().iter().map(|c| request(c, self.settings.reserve)).collect();
        let requested: Bytes = wanted.iter().map(|w| w.target).sum();
        let budget = problem.budget();
        let margin = if self.is_global { budget.fraction(1, MARGIN_DIVISOR) } else { Bytes::ZERO };
        self.is_global = requested > budget - margin;
        if self.is_global {
            tax_and_divide(problem, &self.settings)
        } else {
            Division { wanted, shortfall: Bytes::ZERO, notes: Vec::new() }
        }
    }
}

/// What one guest requests, within its bounds.
fn request(contender: &Contender, reserve: Bytes) -> Desired {
    let used = contender.used;
    let size = used.saturating_add(reserve).page_ceil();
    Want { size, reason: Reason::UsedPlusReserve { used, reserve } }.within(contender)
}
