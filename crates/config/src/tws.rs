//! The table `[policy.tws]`: how working sets are probed.
//!
//! Idea: probing runs under every policy, because its result may be a guest's demand. The policy
//! `tws` makes guests follow it.

use ballast_estimate::probing::ProbingSettings;
use ballast_model::Bytes;
use serde::Deserialize;

use crate::range::{BASIS_POINTS, Mistake, basis_points};

const COOL_DOWN_MAX: u32 = 3600;

/// The table `[policy.tws]`.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TwsTable {
    fast: f64,
    slow: f64,
    cool_down_epochs: u32,
    change: f64,
    change_min: Bytes,
}

impl Default for TwsTable {
    fn default() -> Self {
        let ProbingSettings {
            fast_basis_points,
            slow_basis_points,
            cool_down_epochs,
            change_basis_points,
            change_min,
        } = ProbingSettings::default();
        let part = |basis_points: u32| f64::from(basis_points) / BASIS_POINTS;
        TwsTable {
            fast: part(fast_basis_points),
            slow: part(slow_basis_points),
            cool_down_epochs,
            change: part(change_basis_points),
            change_min,
        }
    }
}

impl TwsTable {
    /// The validated settings.
    ///
    /// # Errors
    /// The key that is out of range, and what was expected.
    pub(crate) fn settings(&self) -> Result<ProbingSettings, Mistake> {
        let cool_down_epochs = self.cool_down_epochs;
        if !(1..=COOL_DOWN_MAX).contains(&cool_down_epochs) {
            let message = format!("{cool_down_epochs}: expected 1 to {COOL_DOWN_MAX}");
            return Err(("cool_down_epochs", message));
        }
        let fast_basis_points = basis_points("fast", self.fast, 0.001..=0.5)?;
        let slow_basis_points = basis_points("slow", self.slow, 0.0001..=0.5)?;
        if slow_basis_points > fast_basis_points {
            let message = format!("{}: expected at most that of fast, {}", self.slow, self.fast);
            return Err(("slow", message));
        }
        Ok(ProbingSettings {
            fast_basis_points,
            slow_basis_points,
            cool_down_epochs,
            change_basis_points: basis_points("change", self.change, 0.0..=1.0)?,
            change_min: self.change_min,
        })
    }
}
