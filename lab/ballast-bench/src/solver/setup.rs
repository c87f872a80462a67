//! The hosts whose allocations are solved, and their instances.

use anyhow::Context;
use ballast_policy::meb::{Instance, Sizes};

use super::curves::{Curves, CurvesName, unit};
use crate::random::Random;

/// How much of the budget guests hold, in percent; instances take these in turn.
const HELD_PERCENT: [u64; 3] = [100, 85, 108];

/// Guests on a host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    /// Its name.
    pub(super) name: &'static str,
    guests: u64,
    budget_steps: u64,
    /// The goal for the exact solver, in milliseconds.
    pub(super) ms_max: f64,
    /// The goal for the exact solver against the dynamic programme, as a ratio, if there is one.
    pub(super) times_min: Option<f64>,
}

impl Setup {
    /// The hosts of the goals.
    pub(super) const ALL: [Self; 2] = [
        Self {
            name: "16 guests, 16 GiB, steps of 1 MiB",
            guests: 16,
            budget_steps: 16 << 10,
            ms_max: 1.0,
            times_min: Some(20.0),
        },
        Self {
            name: "1,000 guests, 1 TiB, steps of 16 MiB",
            guests: 1000,
            budget_steps: 64 << 10,
            ms_max: 100.0,
            times_min: None,
        },
    ];
    /// Small hosts.
    pub(super) const QUICK: [Self; 2] = [
        Self {
            name: "8 guests, 2 GiB, steps of 1 MiB",
            guests: 8,
            budget_steps: 2 << 10,
            ..Self::ALL[0]
        },
        Self {
            name: "50 guests, 50 GiB, steps of 16 MiB",
            guests: 50,
            budget_steps: 3200,
            ..Self::ALL[1]
        },
    ];

    /// The instance with this number, with one kind of curves.
    ///
    /// # Errors
    /// The instance is invalid.
    pub(super) fn instance(
        &self,
        curves: &Curves,
        name: CurvesName,
        number: usize,
    ) -> anyhow::Result<Instance> {
        let mut random = Random::new(number as u64 + 1);
        let are_equal = number.is_multiple_of(2);
        let weight = |random: &mut Random| match are_equal {
            true => 1.0,
            false => 16_f64.powf(unit(random)),
        };
        let weights: Vec<f64> = (0..self.guests).map(|_| weight(&mut random)).collect();
        let held_percent = HELD_PERCENT[number % HELD_PERCENT.len()];
        let held = (self.budget_steps * held_percent / 100) as f64;
        let step = held / weights.iter().sum::<f64>();
        let guest = |weight: &f64| {
            let held = (weight * step) as u64;
            // Rounded inwards, as the policy rounds its limits.
            let (first, last) = ((held * 9).div_ceil(10), held * 13 / 10);
            let misses = curves.misses(name, (first, held, last), &mut random);
            Sizes { lower: first, misses }
        };
        let guests = weights.iter().map(guest).collect();
        Instance::new(self.budget_steps, guests).context("the bench's own instance")
    }
}
