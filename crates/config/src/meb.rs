//! The table `[policy.meb]`: speed, step size and weighting of `meb`.

use ballast_model::Bytes;
use ballast_policy::meb::{MebSettings, Weighting};
use serde::Deserialize;

use crate::range::{BASIS_POINTS, Mistake, basis_points};

const STEP_MIN: Bytes = Bytes::pages(1);
const STEP_MAX: Bytes = Bytes::gib(1);

/// The table `[policy.meb]`.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MebTable {
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
        let MebSettings { step, shrink_basis_points, grow_basis_points, .. } =
            MebSettings::default();
        MebTable {
            step,
            shrink_max: f64::from(shrink_basis_points) / BASIS_POINTS,
            grow_max: f64::from(grow_basis_points) / BASIS_POINTS,
            weighting: WeightingWord::Shares,
        }
    }
}

impl MebTable {
    /// The validated settings.
    ///
    /// # Errors
    /// The key that is out of range, and what was expected.
    pub(crate) fn settings(&self) -> Result<MebSettings, Mistake> {
        let is_step = (STEP_MIN..=STEP_MAX).contains(&self.step);
        if !is_step || self.step.page_floor() != self.step {
            let message = format!("{}: expected {STEP_MIN} to {STEP_MAX}, whole pages", self.step);
            return Err(("step", message));
        }
        Ok(MebSettings {
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
