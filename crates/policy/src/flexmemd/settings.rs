//! The operator's settings for the policies of flexmemd.

use std::time::Duration;

use super::combination::{Algorithm, Combination, CombinationError, DemandInput, Frequency};
use super::credits::TAX_DEFAULT_BASIS_POINTS;
use super::demand::DemandThresholds;
use super::price::PriceRule;
use super::round_robin::RoundLimit;

/// The operator's settings for the policies of flexmemd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlexmemdSettings {
    /// Time for which rent is paid. A periodic policy decides at its end; an auction that sold at a
    /// price waits until balloons have moved what was sold. At least
    /// [`FlexmemdSettings::PERIOD_MIN`].
    pub period: Duration,
    /// Part of every balance that is collected and redistributed each second, in hundredths of a
    /// percent.
    pub tax_basis_points: u32,
    /// When statistics call for a change.
    pub thresholds: DemandThresholds,
    /// Relative size of what each guest may receive in a round of `round-robin`.
    pub round: RoundLimit,
    /// Differences from the combination that the paper evaluates.
    pub choice: CombinationChoice,
}

/// The operator's choice of a combination; `None`: as the paper evaluates the algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CombinationChoice {
    /// When the algorithm runs.
    pub frequency: Option<Frequency>,
    /// Price of memory.
    pub price: Option<PriceRule>,
    /// Source of demand.
    pub demand: Option<DemandInput>,
}

impl CombinationChoice {
    /// The combination that the paper evaluates for `algorithm`, and its price.
    pub fn evaluated(algorithm: Algorithm) -> (Combination, PriceRule) {
        let combination = Combination::evaluated(algorithm);
        (combination, PriceRule::default_of(combination.pricing))
    }

    /// The combination chosen for `algorithm`, and its price.
    ///
    /// # Errors
    /// The combination is not valid.
    pub fn with(self, algorithm: Algorithm) -> Result<(Combination, PriceRule), CombinationError> {
        let (evaluated, default) = CombinationChoice::evaluated(algorithm);
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

impl FlexmemdSettings {
    /// Guests report once a second (flexmemd §3.1.2), so shorter periods see nothing new.
    pub const PERIOD_DEFAULT: Duration = Duration::from_secs(1);
    /// Shortest period: a decision takes milliseconds.
    pub const PERIOD_MIN: Duration = Duration::from_millis(100);
}

impl Default for FlexmemdSettings {
    fn default() -> FlexmemdSettings {
        FlexmemdSettings {
            period: FlexmemdSettings::PERIOD_DEFAULT,
            tax_basis_points: TAX_DEFAULT_BASIS_POINTS,
            thresholds: DemandThresholds::default(),
            round: RoundLimit::default(),
            choice: CombinationChoice::default(),
        }
    }
}
