//! `self-scheduling`: every guest what it uses and a reserve, while that fits (Global §3).
//!
//! Properties: gives no more than is asked for, so the host keeps what nobody needs; each target
//! depends on its own guest only, until the requests no longer fit the budget. From then on it is
//! `global`, until they fit again with a margin.
//!
//! Algorithm: `target_i = A_i + f` within bounds while `Σ target_i ≤ N`; handed over to
//! global-scheduling when that fails, taken back when `Σ target_i ≤ N − N/20`.
//!
//! Deviations: the reserve `+ f` and the margin are ours; the paper hands over when the hypervisor
//! runs out of free frames and does not say when it takes back.

use ballast_model::{Bytes, Clamped, Desired, PolicyName, Reason};

use crate::global::{PACING, tax_and_divide};
use crate::{Contender, Division, Pacing, Policy, PolicySettings, Problem, Wanted};

/// Part of the budget that must be to spare before self-scheduling takes back: a twentieth is more
/// than the dead band of a budget above 200 MiB, so a request that merely jitters flips nothing.
const MARGIN_DIVISOR: u64 = 20;

/// See the file's header.
#[derive(Clone, Debug)]
pub struct SelfScheduling {
    settings: PolicySettings,
    handed_over: bool,
}

impl SelfScheduling {
    /// With the reserve of `settings`, and its tax for when requests do not fit.
    pub fn new(settings: PolicySettings) -> Self {
        SelfScheduling { settings, handed_over: false }
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
        let wanted: Vec<Wanted> =
            problem.contenders().iter().map(|c| request(c, self.settings.reserve)).collect();
        let requested: Bytes = wanted.iter().map(|w| w.desired.target).sum();
        let budget = problem.budget();
        let fits_within = match self.handed_over {
            true => budget - budget.fraction(1, MARGIN_DIVISOR),
            false => budget,
        };
        self.handed_over = requested > fits_within;
        if self.handed_over {
            tax_and_divide(problem, &self.settings)
        } else {
            Division { wanted, shortfall: Bytes::ZERO, notes: Vec::new() }
        }
    }
}

/// What one guest asks for, within its bounds.
fn request(contender: &Contender, reserve: Bytes) -> Wanted {
    let asked = contender.used.saturating_add(reserve).page_ceil();
    let desired = if asked < contender.floor {
        let reason = Reason::Bound(Clamped::Floor { floor: contender.floor });
        Desired { target: contender.floor, reason }
    } else if asked > contender.ceiling {
        let reason = Reason::Bound(Clamped::Ceiling { ceiling: contender.ceiling });
        Desired { target: contender.ceiling, reason }
    } else {
        Desired { target: asked, reason: Reason::UsedPlusReserve { used: contender.used, reserve } }
    };
    Wanted { id: contender.id.clone(), desired }
}
