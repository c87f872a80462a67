//! `static`: gives every guest its share of the budget, whatever it uses.
//!
//! Properties: divides the whole budget; depends on shares, floors and ceilings only, so targets
//! change only when guests come or go or the operator changes a bound.
//!
//! Algorithm: `divide` without a tax: the pure share-based allocation of Global §3.2, `τ = 0`. It
//! is the baseline for all balancing policies.

use ballast_model::{Bytes, PolicyName, Reason, Tax};

use crate::divide::{TaxRule, divide};
use crate::global::PACING;
use crate::{Division, Pacing, Policy, Problem};

/// The policy `static`.
#[derive(Clone, Copy, Debug)]
pub struct StaticShares;

impl Policy for StaticShares {
    fn name(&self) -> PolicyName {
        PolicyName::Static
    }

    fn pacing(&self) -> Pacing {
        Pacing { on_need: false, ..PACING }
    }

    fn divide(&mut self, problem: &Problem) -> Division {
        let budget = problem.budget();
        let shares_total = problem.contenders().iter().map(|c| u64::from(c.shares)).sum();
        divide(problem, Bytes::ZERO, TaxRule::Fixed(Tax::ZERO), |contender, _| Reason::Share {
            budget,
            shares: contender.shares,
            shares_total,
        })
    }
}
