//! The table `[policy.meb]`: how fast, how finely and by what weight `meb` balances.

use ballast_model::Bytes;
use ballast_policy::meb::{Settings, Weighting};
use serde::Deserialize;

use super::knobs::{BASIS_POINTS, Mistake, basis_points};

const STEP_MIN: Bytes = Bytes::pages(1);
const STEP_MAX: Bytes = Bytes::gib(1);

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct MebTable {
    step: Bytes,
    shrink_max: f64,
    grow_max: f64,
    weighting: WeightingWord,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum WeightingWord {
    Shares,
    Equal,
}

impl Default for MebTable {
    fn default() -> Self {
        let Settings { step, shrink_basis_points, grow_basis_points, .. } = Settings::default();
        MebTable {
            step,
            shrink_max: f64::from(shrink_basis_points) / BASIS_POINTS,
            grow_max: f64::from(grow_basis_points) / BASIS_POINTS,
            weighting: WeightingWord::Shares,
        }
    }
}

impl MebTable {
    /// The settings it means.
    ///
    /// # Errors
    /// The key that is out of range, and what was expected.
    pub(super) fn settings(&self) -> Result<Settings, Mistake> {
        let is_step = (STEP_MIN..=STEP_MAX).contains(&self.step);
        if !is_step || self.step.page_floor() != self.step {
            let message = format!("{}: expected {STEP_MIN} to {STEP_MAX}, whole pages", self.step);
            return Err(("step", message));
        }
        Ok(Settings {
            step: self.step,
            shrink_basis_points: basis_points("shrink_max", self.shrink_max, 0.001..=1.0)?,
            grow_basis_points: basis_points("grow_max", self.grow_max, 0.001..=10.0)?,
            weighting: match self.weighting {
                WeightingWord::Shares => Weighting::Shares,
                WeightingWord::Equal => Weighting::Equal,
            },
        })
    }
}
