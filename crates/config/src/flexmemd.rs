//! The table `[policy.flexmemd]`: the components of flexmemd's six policies.
//!
//! Idea: omitted keys have the values with which the paper evaluates each algorithm, so one table
//! serves all six. The policy crate's `flexmemd` checks whether a combination is valid.

use std::time::Duration;

use ballast_model::Bytes;
use ballast_policy::flexmemd::{
    CombinationChoice, DemandInput, DemandThresholds, FlexmemdSettings, Frequency, PRICE_MAX,
    PriceRule, RoundLimit, Tariff, TariffStep,
};
use serde::Deserialize;

use crate::range::{BASIS_POINTS, Mistake, basis_points};

/// The table `[policy.flexmemd]`.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FlexmemdTable {
    #[serde(with = "ballast_toml_strict::duration")]
    period: Duration,
    tax_per_second: f64,
    swaps_per_second: u64,
    free_min: Bytes,
    gib: Bytes,
    round: RoundWord,
    frequency: Option<FrequencyWord>,
    price: Option<PriceWord>,
    price_per_kib: Option<u64>,
    tariff: Option<Vec<StepTable>>,
    demand: Option<DemandWord>,
}

impl Default for FlexmemdTable {
    fn default() -> Self {
        let FlexmemdSettings { period, tax_basis_points, thresholds, .. } =
            FlexmemdSettings::default();
        FlexmemdTable {
            period,
            tax_per_second: f64::from(tax_basis_points) / BASIS_POINTS,
            swaps_per_second: thresholds.swaps_per_second,
            free_min: thresholds.free_min,
            gib: thresholds.gib,
            round: RoundWord::Equal,
            frequency: None,
            price: None,
            price_per_kib: None,
            tariff: None,
            demand: None,
        }
    }
}

/// A step of a tariff: the price above this fraction of the rentable memory.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepTable {
    from: f64,
    per_kib: u32,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RoundWord {
    Equal,
    ByFloor,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum FrequencyWord {
    Once,
    Immediate,
    Periodic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum PriceWord {
    None,
    Fixed,
    Proportional,
    Custom,
    Market,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum DemandWord {
    Ignored,
    Explicit,
    Implicit,
}

impl FlexmemdTable {
    /// The validated settings.
    ///
    /// # Errors
    /// The key that is out of range or conflicts with another, and what was expected.
    pub(crate) fn settings(&self) -> Result<FlexmemdSettings, Mistake> {
        let longest = Duration::from_secs(3600);
        crate::range::in_range(self.period, FlexmemdSettings::PERIOD_MIN, longest)
            .map_err(|message| ("period", message))?;
        let sizes = DemandThresholds::GIB_MIN..=DemandThresholds::GIB_MAX;
        if !sizes.contains(&self.gib) {
            let (least, most) = (sizes.start(), sizes.end());
            return Err(("gib", format!("{}: expected {least} to {most}", self.gib)));
        }
        Ok(FlexmemdSettings {
            period: self.period,
            tax_basis_points: basis_points("tax_per_second", self.tax_per_second, 0.0..=1.0)?,
            thresholds: DemandThresholds {
                swaps_per_second: self.swaps_per_second,
                free_min: self.free_min,
                gib: self.gib,
            },
            round: match self.round {
                RoundWord::Equal => RoundLimit::Equal,
                RoundWord::ByFloor => RoundLimit::ByFloor,
            },
            choice: CombinationChoice {
                frequency: self.frequency.map(|word| match word {
                    FrequencyWord::Once => Frequency::Once,
                    FrequencyWord::Immediate => Frequency::Immediate,
                    FrequencyWord::Periodic => Frequency::Periodic,
                }),
                price: self.price()?,
                demand: self.demand.map(|word| match word {
                    DemandWord::Ignored => DemandInput::Ignored,
                    DemandWord::Explicit => DemandInput::Explicit,
                    DemandWord::Implicit => DemandInput::Implicit,
                }),
            },
        })
    }

    fn price(&self) -> Result<Option<PriceRule>, Mistake> {
        let priced = matches!(self.price, Some(PriceWord::Fixed | PriceWord::Proportional));
        match self.price_per_kib {
            Some(_) if !priced => {
                let message = "needs price = \"fixed\" or \"proportional\"".to_owned();
                return Err(("price_per_kib", message));
            }
            Some(price) if price > PRICE_MAX => {
                return Err(("price_per_kib", format!("{price}: expected at most {PRICE_MAX}")));
            }
            _ => {}
        }
        if self.tariff.is_some() != (self.price == Some(PriceWord::Custom)) {
            let message = "a tariff and price = \"custom\" need each other".to_owned();
            return Err((if self.tariff.is_some() { "tariff" } else { "price" }, message));
        }
        let per_kib = |default| self.price_per_kib.unwrap_or(default);
        Ok(Some(match self.price {
            None => return Ok(None),
            Some(PriceWord::None) => PriceRule::None,
            Some(PriceWord::Market) => PriceRule::Market,
            Some(PriceWord::Fixed) => PriceRule::Fixed(per_kib(PriceRule::FIXED_DEFAULT)),
            Some(PriceWord::Proportional) => {
                PriceRule::Proportional(per_kib(PriceRule::PROPORTIONAL_DEFAULT))
            }
            Some(PriceWord::Custom) => PriceRule::Custom(self.tariff()?),
        }))
    }

    fn tariff(&self) -> Result<Tariff, Mistake> {
        let step = |step: &StepTable| {
            let from_basis_points = basis_points("tariff", step.from, 0.0..=1.0)?;
            Ok(TariffStep { from_basis_points, per_kib: step.per_kib })
        };
        let steps = self.tariff.iter().flatten().map(step).collect::<Result<Vec<_>, Mistake>>()?;
        Tariff::new(&steps).map_err(|error| ("tariff", error.to_string()))
    }
}
