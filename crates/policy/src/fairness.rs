//! Measures how fairly memory is divided, under any policy.
//!
//! Idea: a guest is entitled to its part of the budget by shares, but to no more than its demand;
//! memory that others do not demand is divided again among the rest (weighted max-min fairness, as
//! in `wants`). Its satisfaction is its useful memory, `min(allocation, demand)`, divided by that
//! entitlement. Jain's index over the satisfactions `x` of n guests,
//!
//! ```text
//! J = (Σx)² / (n Σx²)
//! ```
//!
//! is 1 if all are equally satisfied and 1/n if one has everything. Memory beyond demand does not
//! count, so with enough memory every policy is fair. [`Fairness`] averages the index over the last
//! [`WINDOW_DECISIONS`] decisions, because a guest may wait for another, but not forever.
//!
//! Cost: that of one division by `wants` per decision.
//! Source: R. Jain, D. Chiu, W. Hawe, *A Quantitative Measure of Fairness and Discrimination for
//! Resource Allocation in Shared Computer Systems*, DEC TR-301, 1984. The entitlement is ours.
//! Limits: floating point, for reports only; demand is an estimate.

use std::collections::VecDeque;

use ballast_model::Bytes;

use crate::wants::sizes;
use crate::{Contender, Problem};

/// Decisions to average over: five to ten minutes with most policies.
pub const WINDOW_DECISIONS: usize = 300;

/// Jain's index of `satisfactions`, from 1/n to 1; `None` if none is positive and finite.
pub fn jain(satisfactions: &[f64]) -> Option<f64> {
    let counted = || satisfactions.iter().filter(|x| x.is_finite() && **x >= 0.0);
    // Divided by the largest first, so that no square overflows or underflows.
    let largest = counted().copied().fold(0.0, f64::max);
    if largest <= 0.0 {
        return None;
    }
    let (n, sum, squares) = counted().fold((0.0, 0.0, 0.0), |(n, sum, squares), x| {
        let x = x / largest;
        (n + 1.0, sum + x, squares + x * x)
    });
    Some(sum * sum / (n * squares))
}

/// Useful memory by entitlement of each guest in `problem`: 1 is all of it, more is at the expense
/// of others. A guest without demand, and thus without entitlement, has 1.
pub fn satisfactions(problem: &Problem) -> Vec<f64> {
    let entitled = sizes(problem, Contender::demand);
    let each = problem.contenders().iter().zip(entitled);
    each.map(|(contender, entitled)| {
        let useful = contender.allocation.min(contender.demand().max(contender.floor));
        match entitled {
            Bytes::ZERO => 1.0,
            entitled => useful.get() as f64 / entitled.get() as f64,
        }
    })
    .collect()
}

/// Jain's index over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fairness {
    indexes: VecDeque<f64>,
}

impl Fairness {
    /// Records the index just before a decision.
    pub fn observe(&mut self, problem: &Problem) {
        let Some(index) = jain(&satisfactions(problem)) else { return };
        if self.indexes.len() >= WINDOW_DECISIONS {
            self.indexes.pop_front();
        }
        self.indexes.push_back(index);
    }

    /// The index at the last decision.
    pub fn latest(&self) -> Option<f64> {
        self.indexes.back().copied()
    }

    /// The mean index of the last [`WINDOW_DECISIONS`] decisions.
    pub fn mean(&self) -> Option<f64> {
        let n = self.indexes.len();
        (n > 0).then(|| self.indexes.iter().sum::<f64>() / n as f64)
    }

    /// Number of decisions in the mean.
    pub fn decisions(&self) -> usize {
        self.indexes.len()
    }
}
