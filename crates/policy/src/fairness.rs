//! How fairly memory is divided, whatever the policy.
//!
//! Idea: a guest is entitled to its part of the budget by shares, but to no more than its demand;
//! what others do not demand is divided again among those who do (weighted max-min fairness, as
//! `wants` has it). Its satisfaction is what it has of use, `min(allocation, demand)`, by that
//! entitlement. Jain's index over n guests of satisfaction `x`,
//!
//! ```text
//! J = (Σx)² / (n Σx²)
//! ```
//!
//! is 1 where all are satisfied alike and 1/n where one has everything. Memory beyond demand counts
//! for nothing, so a host with plenty is fair under every policy. [`Fairness`] averages the index
//! over the last [`WINDOW_DECISIONS`] decisions: one guest may wait for another, but not for ever.
//!
//! Cost: that of one division by `wants` for a decision.
//! Source: R. Jain, D. Chiu, W. Hawe, *A Quantitative Measure of Fairness and Discrimination for
//! Resource Allocation in Shared Computer Systems*, DEC TR-301, 1984. The entitlement is ours.
//! Limits: floating point, for reports only; demand is what is known of it.

use std::collections::VecDeque;

use ballast_model::{Bytes, Reason};

use crate::Problem;
use crate::wants::{Want, grant};

/// Decisions the average is taken over: five to ten minutes of most policies.
pub const WINDOW_DECISIONS: usize = 300;

/// Jain's index of these, from 1/n to 1; `None` where nobody or nothing is counted.
pub fn jain(satisfactions: &[f64]) -> Option<f64> {
    let counted = || satisfactions.iter().filter(|x| x.is_finite() && **x >= 0.0);
    // Divided by the largest first, so that no square overflows or vanishes.
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

/// Per guest of `problem`, in its order, what it has of its entitlement: 1 is all, more is at the
/// expense of others. Guests that are entitled to nothing, since they demand nothing, have 1.
pub fn satisfactions(problem: &Problem) -> Vec<f64> {
    let demand = |size| Want { size, reason: Reason::Committed { committed: size } };
    let entitled = grant(problem, |contender| demand(contender.demand()));
    let each = problem.contenders().iter().zip(entitled.wanted);
    each.map(|(contender, entitled)| {
        let useful = contender.allocation.min(contender.demand().max(contender.floor));
        match entitled.desired.target {
            Bytes::ZERO => 1.0,
            entitled => useful.get() as f64 / entitled.get() as f64,
        }
    })
    .collect()
}

/// Fairness over time: see the file's header.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fairness {
    indexes: VecDeque<f64>,
}

impl Fairness {
    /// Takes in the moment before a decision.
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

    /// Decisions the mean is taken over.
    pub fn decisions(&self) -> usize {
        self.indexes.len()
    }
}
