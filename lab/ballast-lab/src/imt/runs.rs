//! A series replayed under every threshold that is compared.
//!
//! Source: MEB §5.2.3, Table II, which has fixed thresholds of 0.05, 0.10, 0.20 and 0.30 and the
//! adaptive one; here there is a fixed one every 0.05.

use ballast_estimate::phase::{
    IntermittentSettings, PhaseReplay, RecordedInterval, Threshold, ThresholdMode, replay,
};

/// Fixed thresholds, in hundredths.
const FIXED_PERCENT: [u8; 6] = [5, 10, 15, 20, 25, 30];

/// A series under one threshold.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Run {
    /// The threshold if it is fixed; `None`: adaptive.
    pub(crate) fixed: Option<Threshold>,
    /// Its result.
    pub(crate) replay: PhaseReplay,
}

impl Run {
    /// The name of its mode: fixed or adaptive.
    pub(crate) fn mode(&self) -> &'static str {
        if self.fixed.is_some() { "fixed" } else { "adaptive" }
    }

    /// Its threshold as text.
    pub(crate) fn threshold(&self) -> String {
        match self.fixed {
            Some(threshold) => threshold.to_string(),
            None => format!("{} at last", self.replay.threshold),
        }
    }

    /// Its title over a plot.
    pub(crate) fn title(&self) -> String {
        match self.fixed {
            Some(_) => format!("T = {}", self.threshold()),
            None => format!("T adaptive, {}", self.threshold()),
        }
    }
}

/// Replays `series` under every threshold, the adaptive one last; the mode in `settings` is
/// ignored.
pub(crate) fn runs(series: &[RecordedInterval], settings: IntermittentSettings) -> Vec<Run> {
    let fixed = FIXED_PERCENT.iter().filter_map(|percent| {
        let threshold = Threshold::new(f64::from(*percent) / 100.0).ok()?;
        Some((Some(threshold), ThresholdMode::Fixed(threshold)))
    });
    let run = |(fixed, mode)| Run {
        fixed,
        replay: replay(series, IntermittentSettings { mode, ..settings }),
    };
    fixed.chain([(None, ThresholdMode::Adaptive)]).map(run).collect()
}
