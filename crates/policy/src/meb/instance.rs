//! The input and output of MEB's solvers.
//!
//! Idea: memory is divided in steps of equal size. Each guest may have from its lower to its upper
//! bound of steps, and its misses at each of these sizes are known. A solver finds the allocation
//! with the fewest misses in sum (MEB §4, equation of Algorithm 1).
//!
//! Every solver gives the same result. Its total is the largest that the budget and the upper
//! bounds allow, because more memory never costs misses. Of the allocations with the fewest misses
//! it is the lexicographically smallest, so that plans do not depend on the solver.
//!
//! Limits: misses are integers that never rise with memory; the curves need not be convex. The
//! bounds below keep every sum of the solvers within 128 bits.

use thiserror::Error;

use crate::GUESTS_MAX;

/// Most steps that a guest may have above its lower bound: 4 TiB in steps of 1 MiB.
pub const WIDTH_MAX: usize = 1 << 22;

/// Most steps that all guests together may have above their lower bounds.
pub const WIDTHS_MAX: usize = 1 << 26;

/// The largest lower bound, in steps.
pub const LOWER_MAX: u64 = 1 << 40;

/// An invalid instance.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InstanceError {
    /// A guest without sizes to choose from.
    #[error("guest {guest} has no sizes: expected misses at least at its lower bound")]
    NoSizes {
        /// Number of the guest, from 0.
        guest: usize,
    },
    /// Misses that rise with memory.
    #[error("guest {guest}: misses rise {step} steps above its lower bound: they must never rise")]
    Rises {
        /// Number of the guest, from 0.
        guest: usize,
        /// The step at which misses rise, from 1.
        step: usize,
    },
    /// A number above the limits of the solvers.
    #[error("{what}: {found}, at most {most} expected")]
    TooMany {
        /// The items counted.
        what: &'static str,
        /// Their number.
        found: u64,
        /// The limit.
        most: u64,
    },
    /// Lower bounds that alone exceed the budget.
    #[error("the lower bounds exceed the budget by {steps} steps")]
    OverBudget {
        /// The excess.
        steps: u64,
    },
}

/// The sizes that one guest may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Lower bound in steps.
    pub lower: u64,
    /// Misses with `lower` steps, with one more, and so on to the upper bound; never rising.
    pub misses: Vec<u64>,
}

impl Sizes {
    /// Steps from the lower to the upper bound.
    pub(super) fn width(&self) -> usize {
        self.misses.len().saturating_sub(1)
    }
}

/// A budget, and the guests to divide it among.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    guests: Vec<Sizes>,
    spare: usize,
}

impl Instance {
    /// Checks all conditions that solvers rely on.
    ///
    /// # Errors
    /// See [`InstanceError`].
    pub fn new(budget_steps: u64, guests: Vec<Sizes>) -> Result<Self, InstanceError> {
        at_most("guests", guests.len() as u64, GUESTS_MAX as u64)?;
        let (mut lowers, mut widths) = (0, 0);
        for (guest, sizes) in guests.iter().enumerate() {
            if sizes.misses.is_empty() {
                return Err(InstanceError::NoSizes { guest });
            }
            at_most("steps of a lower bound", sizes.lower, LOWER_MAX)?;
            at_most("steps between bounds", sizes.width() as u64, WIDTH_MAX as u64)?;
            if let Some(at) = sizes.misses.windows(2).position(|pair| pair[0] < pair[1]) {
                return Err(InstanceError::Rises { guest, step: at + 1 });
            }
            lowers += sizes.lower;
            widths += sizes.width();
        }
        at_most("steps between all bounds", widths as u64, WIDTHS_MAX as u64)?;
        let Some(spare) = budget_steps.checked_sub(lowers) else {
            return Err(InstanceError::OverBudget { steps: lowers - budget_steps });
        };
        let spare = usize::try_from(spare).unwrap_or(usize::MAX).min(widths);
        Ok(Self { guests, spare })
    }

    /// The guests; ties are settled in their order.
    #[must_use]
    pub fn guests(&self) -> &[Sizes] {
        &self.guests
    }

    /// Steps to allocate above the lower bounds: as many as budget and upper bounds allow.
    #[must_use]
    pub fn spare(&self) -> usize {
        self.spare
    }

    /// The solution that gives guest i `above[i]` steps above its lower bound.
    pub(super) fn solution(&self, above: &[usize]) -> Solution {
        let chosen = || self.guests.iter().zip(above);
        let misses = |(sizes, &at): (&Sizes, &usize)| sizes.misses.get(at).copied();
        Solution {
            steps: chosen().map(|(sizes, &at)| sizes.lower + at as u64).collect(),
            misses: chosen().filter_map(misses).map(u128::from).sum(),
        }
    }
}

fn at_most(what: &'static str, found: u64, most: u64) -> Result<(), InstanceError> {
    if found > most {
        return Err(InstanceError::TooMany { what, found, most });
    }
    Ok(())
}

/// An allocation and its misses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Solution {
    /// Steps of each guest, including its lower bound.
    pub steps: Vec<u64>,
    /// Misses of all guests in sum.
    pub misses: u128,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(lower: u64, misses: &[u64]) -> Sizes {
        Sizes { lower, misses: misses.to_vec() }
    }

    #[test]
    fn invalid_instances_are_refused_with_the_cause() {
        let cases: [(u64, Vec<Sizes>, &str); 5] = [
            (9, vec![sizes(1, &[1]), sizes(1, &[])], "guest 1 has no sizes"),
            (9, vec![sizes(1, &[5, 5, 6])], "guest 0: misses rise 2 steps above"),
            (9, vec![sizes(4, &[5]), sizes(6, &[5])], "exceed the budget by 1 steps"),
            (9, vec![sizes(1 << 41, &[5])], "steps of a lower bound: 2199023255552, at most"),
            (9, vec![sizes(0, &vec![0; WIDTH_MAX + 2])], "steps between bounds: 4194305, at most"),
        ];
        for (budget, guests, expected) in cases {
            let error = Instance::new(budget, guests).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn spare_steps_are_limited_by_budget_and_bounds() {
        let guests = || vec![sizes(3, &[9, 8, 8]), sizes(5, &[9])];
        for (budget, spare) in [(8, 0), (9, 1), (10, 2), (11, 2), (u64::MAX, 2)] {
            assert_eq!(Instance::new(budget, guests()).unwrap().spare(), spare, "{budget}");
        }
    }
}
