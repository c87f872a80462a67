//! The table `[policy.flexmemd]`: what the six policies of flexmemd are put together from.
//!
//! Idea: what is left out is as the paper evaluates each algorithm, so that the same table serves
//! whichever of the six is chosen; whether a choice makes sense with one is `flexmemd`'s to say.

use std::time::Duration;

use ballast_model::Bytes;
use ballast_policy::flexmemd::{
    Choice, Demand, Frequency, PRICE_MAX, PriceRule, RoundLimit, Settings, Tariff, TariffStep,
    Thresholds,
};
use serde::Deserialize;

use super::knobs::{BASIS_POINTS, Mistake, basis_points};

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct FlexmemdTable {
    #[serde(with = "ballast_toml_strict::duration")]
    period: Duration,
    tax_per_second: f64,
    swaps_per_second: u64,
    free_min: Bytes,
    round: RoundWord,
    frequency: Option<FrequencyWord>,
    price: Option<PriceWord>,
    price_per_kib: Option<u64>,
    tariff: Option<Vec<StepTable>>,
    demand: Option<DemandWord>,
}

impl Default for FlexmemdTable {
    fn default() -> Self {
        let Settings { period, tax_basis_points, thresholds, .. } = Settings::default();
        FlexmemdTable {
            period,
            tax_per_second: f64::from(tax_basis_points) / BASIS_POINTS,
            swaps_per_second: thresholds.swaps_per_second,
            free_min: thresholds.free_min,
            round: RoundWord::Equal,
            frequency: None,
            price: None,
            price_per_kib: None,
            tariff: None,
            demand: None,
        }
    }
}

/// A step of a tariff: from this part of rentable memory on, this price.
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
    /// The settings it means.
    ///
    /// # Errors
    /// The key that is out of range or fits no other, and what was expected.
    pub(super) fn settings(&self) -> Result<Settings, Mistake> {
        let longest = Duration::from_secs(3600);
        super::in_range(self.period, Settings::PERIOD_MIN, longest)
            .map_err(|message| ("period", message))?;
        Ok(Settings {
            period: self.period,
            tax_basis_points: basis_points("tax_per_second", self.tax_per_second, 0.0..=1.0)?,
            thresholds: Thresholds {
                swaps_per_second: self.swaps_per_second,
                free_min: self.free_min,
            },
            round: match self.round {
                RoundWord::Equal => RoundLimit::Equal,
                RoundWord::ByFloor => RoundLimit::ByFloor,
            },
            choice: Choice {
                frequency: self.frequency.map(|word| match word {
                    FrequencyWord::Once => Frequency::Once,
                    FrequencyWord::Immediate => Frequency::Immediate,
                    FrequencyWord::Periodic => Frequency::Periodic,
                }),
                price: self.price()?,
                demand: self.demand.map(|word| match word {
                    DemandWord::Ignored => Demand::Ignored,
                    DemandWord::Explicit => Demand::Explicit,
                    DemandWord::Implicit => Demand::Implicit,
                }),
            },
        })
    }

    fn price(&self) -> Result<Option<PriceRule>, Mistake> {
        let priced = matches!(self.price, Some(PriceWord::Fixed | PriceWord::Proportional));
        match self.price_per_kib {
            Some(_) if !priced => {
                let message = "goes with price = \"fixed\" or \"proportional\" only".to_owned();
                return Err(("price_per_kib", message));
            }
            Some(price) if price > PRICE_MAX => {
                return Err(("price_per_kib", format!("{price}: expected at most {PRICE_MAX}")));
            }
            _ => {}
        }
        if self.tariff.is_some() != (self.price == Some(PriceWord::Custom)) {
            let message = "goes with price = \"custom\", and that with it".to_owned();
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
