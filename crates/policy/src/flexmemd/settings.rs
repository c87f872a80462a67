//! What an operator can set about the policies of flexmemd.

use std::time::Duration;

use super::combination::{Algorithm, Combination, CombinationError, Demand, Frequency};
use super::credits::TAX_DEFAULT_BASIS_POINTS;
use super::demand::Thresholds;
use super::price::PriceRule;
use super::round_robin::RoundLimit;

/// What an operator can set about the policies of flexmemd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Time for which rent is paid, and after which a periodic policy decides; at least
    /// [`Settings::PERIOD_MIN`].
    pub period: Duration,
    /// Part of every balance that is shared out anew each second, in hundredths of a percent.
    pub tax_basis_points: u32,
    /// When statistics call for a change.
    pub thresholds: Thresholds,
    /// What guests may receive in one round of `round-robin`, compared with each other.
    pub round: RoundLimit,
    /// What differs from how the paper evaluates an algorithm.
    pub choice: Choice,
}

/// What an operator chose of a combination; `None`: as the paper evaluates the algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// When the algorithm runs.
    pub frequency: Option<Frequency>,
    /// What memory costs.
    pub price: Option<PriceRule>,
    /// Where demand is taken from.
    pub demand: Option<Demand>,
}

impl Choice {
    /// The combination the paper evaluates `algorithm` with, and its price.
    pub fn evaluated(algorithm: Algorithm) -> (Combination, PriceRule) {
        let combination = Combination::evaluated(algorithm);
        (combination, PriceRule::default_of(combination.pricing))
    }

    /// The combination with `algorithm`, and its price.
    ///
    /// # Errors
    /// It makes no sense.
    pub fn with(self, algorithm: Algorithm) -> Result<(Combination, PriceRule), CombinationError> {
        let (evaluated, default) = Choice::evaluated(algorithm);
        let price = self.price.unwrap_or(default);
        let combination = Combination {
            algorithm,
            frequency: self.frequency.unwrap_or(evaluated.frequency),
            pricing: (&price).into(),
            demand: self.demand.unwrap_or(evaluated.demand),
        };
        combination.validate().map(|()| (combination, price))
    }
}

impl Settings {
    /// Guests report once a second (flexmemd §3.1.2); more often there is nothing new to decide on.
    pub const PERIOD_DEFAULT: Duration = Duration::from_secs(1);
    /// Shortest period: a decision takes milliseconds.
    pub const PERIOD_MIN: Duration = Duration::from_millis(100);
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            period: Settings::PERIOD_DEFAULT,
            tax_basis_points: TAX_DEFAULT_BASIS_POINTS,
            thresholds: Thresholds::default(),
            round: RoundLimit::default(),
            choice: Choice::default(),
        }
    }
}
