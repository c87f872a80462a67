//! Replays a recorded series through intermittent tracking and measures the result.
//!
//! Idea: the series was recorded with tracking always on. The replay feeds the machine only the
//! inputs it would have seen, and compares its estimate `m_i` with the recorded working set `M_i`.
//! The *up ratio* is the share of intervals tracked; the *mean relative error* is `mean(|M_i − m_i|
//! / M_i)`.
//! Cost: O(nk). Source: MEB §5.2.3.
//! Limits: intervals with a working set of 0 have no relative error and are left out of the mean.

use ballast_model::Bytes;

use super::Threshold;
use super::machine::{Intermittent, IntermittentSettings, PhaseSample};

/// One interval of a recorded series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedInterval {
    /// The working set: `M_i`.
    pub wss: Bytes,
    /// Event count: `P_i`.
    pub events: u64,
}

/// One interval of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayInterval {
    /// Whether the interval is tracked.
    pub is_tracked: bool,
    /// The estimated working set: `m_i`.
    pub estimate: Bytes,
}

/// Result of a replay.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseReplay {
    /// One for each recorded interval.
    pub intervals: Vec<ReplayInterval>,
    /// The share of intervals tracked, 0 to 1; `None` for an empty series.
    pub up_ratio: Option<f64>,
    /// The mean relative error; `None` if every working set is 0.
    pub mre: Option<f64>,
    /// The event threshold at the end.
    pub threshold: Threshold,
}

/// Replays `series`.
pub fn replay(series: &[RecordedInterval], settings: IntermittentSettings) -> PhaseReplay {
    let mut machine = Intermittent::new(settings);
    let mut estimate = Bytes::ZERO;
    let mut intervals = Vec::with_capacity(series.len());
    for recorded in series {
        let is_tracked = machine.is_tracking();
        if is_tracked {
            estimate = recorded.wss;
        }
        intervals.push(ReplayInterval { is_tracked, estimate });
        let wss = is_tracked.then_some(recorded.wss);
        machine.observe(PhaseSample { wss, events: Some(recorded.events) });
    }
    let tracked = intervals.iter().map(|it| f64::from(u8::from(it.is_tracked)));
    let errors = series.iter().zip(&intervals).filter(|(it, _)| it.wss > Bytes::ZERO);
    let errors = errors.map(|(recorded, it)| {
        recorded.wss.abs_diff(it.estimate).get() as f64 / recorded.wss.get() as f64
    });
    PhaseReplay {
        up_ratio: mean(tracked),
        mre: mean(errors),
        threshold: machine.threshold(),
        intervals,
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0u64), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phase::ThresholdMode;

    fn of_mib(wss: &[u64]) -> Vec<RecordedInterval> {
        let recorded = |mib: &u64| RecordedInterval { wss: Bytes::mib(*mib), events: 1000 };
        wss.iter().map(recorded).collect()
    }

    /// Five intervals fill the filters, then tracking rests. The last two of ten are 200 and
    /// estimated at 100, so MRE = 2 × 0.5 / 10, and 5 of 10 are tracked.
    #[test]
    fn up_ratio_and_error_match_a_hand_calculation() {
        let series = of_mib(&[100, 100, 100, 100, 100, 100, 100, 100, 200, 200]);
        let mode = ThresholdMode::Fixed(Threshold::MIN);
        let done = replay(&series, IntermittentSettings { mode, ..Default::default() });
        assert_eq!((done.up_ratio, done.mre), (Some(0.5), Some(0.1)));
        let tracked: Vec<bool> = done.intervals.iter().map(|it| it.is_tracked).collect();
        assert_eq!(tracked, [[true; 5], [false; 5]].concat());
        assert_eq!(done.intervals[9].estimate, Bytes::mib(100));
    }

    /// 5 intervals to fill, then 10, 15 and 20 at rest with one tracked after each: 8 of 53.
    #[test]
    fn a_constant_series_is_tracked_only_at_checkpoints() {
        let done = replay(&of_mib(&[64; 53]), IntermittentSettings::default());
        assert_eq!((done.up_ratio, done.mre), (Some(8.0 / 53.0), Some(0.0)));
    }

    #[test]
    fn undefined_figures_are_none() {
        let none = replay(&[], IntermittentSettings::default());
        assert_eq!((none.up_ratio, none.mre), (None, None));
        let idle = replay(&of_mib(&[0; 9]), IntermittentSettings::default());
        assert_eq!((idle.up_ratio, idle.mre), (Some(5.0 / 9.0), None));
    }
}
