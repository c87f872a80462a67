//! What a solver of MEB is asked, and what it answers.
//!
//! Idea: memory is divided in steps of one size. Each guest may have from its lower to its upper
//! bound of them, and how many misses each of these sizes costs is known. Wanted is the allocation
//! with the fewest misses in all (MEB §4, equation of Algorithm 1).
//!
//! Every solver gives the same answer: the total is the largest that both the budget and the upper
//! bounds allow (more memory never costs misses), and of the allocations with the fewest misses it
//! is the lexicographically smallest, so that plans are equal whoever solved them.
//!
//! Limits: misses are integers that never rise with memory, but the curve need not be convex. The
//! bounds below keep every sum of the solvers within 128 bits.

use thiserror::Error;

use crate::GUESTS_MAX;

/// Most steps that a guest may have above its lower bound: 4 TiB in steps of 1 MiB.
pub const WIDTH_MAX: usize = 1 << 22;

/// Most steps that all guests together may have above their lower bounds.
pub const WIDTHS_MAX: usize = 1 << 26;

/// The largest lower bound, in steps.
pub const LOWER_MAX: u64 = 1 << 40;

/// Why there is nothing to solve.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InstanceError {
    /// A guest without any size to choose.
    #[error("guest {guest} has no sizes: misses of at least its lower bound are expected")]
    NoSizes {
        /// Its number, from 0.
        guest: usize,
    },
    /// More memory would cost misses.
    #[error("guest {guest}: misses rise {step} steps above its lower bound; they must not")]
    Rises {
        /// Its number, from 0.
        guest: usize,
        /// The step at which they do, from 1.
        step: usize,
    },
    /// More than the solvers are made for.
    #[error("{what}: {found}, at most {most} expected")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        found: u64,
        /// How many there may be.
        most: u64,
    },
    /// The lower bounds alone exceed the budget.
    #[error("the lower bounds exceed the budget by {steps} steps")]
    OverBudget {
        /// By how much.
        steps: u64,
    },
}

/// The sizes that one guest may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Its lower bound, in steps.
    pub lower: u64,
    /// Misses with `lower` steps, with one more, and so on to the upper bound; none of them more
    /// than the one before.
    pub misses: Vec<u64>,
}

impl Sizes {
    /// Steps from the lower to the upper bound.
    pub(super) fn width(&self) -> usize {
        self.misses.len().saturating_sub(1)
    }
}

/// A budget and those among whom it is divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    guests: Vec<Sizes>,
    spare: usize,
}

impl Instance {
    /// Checks everything that solvers rely on.
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

    /// The guests, in the order that settles ties.
    #[must_use]
    pub fn guests(&self) -> &[Sizes] {
        &self.guests
    }

    /// Steps to give out above the lower bounds: as many as the budget and the upper bounds allow.
    #[must_use]
    pub fn spare(&self) -> usize {
        self.spare
    }

    /// The solution that gives each guest so many steps above its lower bound.
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

/// An allocation and what it costs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Solution {
    /// Steps of each guest, lower bounds included.
    pub steps: Vec<u64>,
    /// Misses of all guests.
    pub misses: u128,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(lower: u64, misses: &[u64]) -> Sizes {
        Sizes { lower, misses: misses.to_vec() }
    }

    #[test]
    fn what_cannot_be_solved_is_named() {
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
    fn the_spare_steps_are_those_of_budget_and_bounds() {
        let guests = || vec![sizes(3, &[9, 8, 8]), sizes(5, &[9])];
        for (budget, spare) in [(8, 0), (9, 1), (10, 2), (11, 2), (u64::MAX, 2)] {
            assert_eq!(Instance::new(budget, guests()).unwrap().spare(), spare, "{budget}");
        }
    }
}
