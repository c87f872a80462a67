//! The JSON of `ballast imt --json`: a list, in the order of the table.

use serde::Serialize;

use super::runs::Run;

/// One threshold.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    mode: &'static str,
    /// The threshold, if it is fixed; null if it is adaptive.
    threshold: Option<f64>,
    /// The share of intervals that are tracked, from 0 to 1.
    up_ratio: Option<f64>,
    /// The mean relative error, 0 or more; null if every working set is 0.
    mre: Option<f64>,
}

impl From<&Run> for Figures {
    fn from(run: &Run) -> Figures {
        Figures {
            mode: run.mode(),
            threshold: run.fixed.map(|threshold| threshold.get()),
            up_ratio: run.replay.up_ratio,
            mre: run.replay.mre,
        }
    }
}
