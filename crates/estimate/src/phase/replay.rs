//! Intermittent tracking of a recorded series, and how well it does.
//!
//! Idea: the series was recorded with tracking always on. The machine is shown only what it would have
//! seen, and the estimate it would have had, `m_i`, is held against what was recorded, `M_i`: the
//! *up ratio* is the share of intervals that are tracked, the *mean relative error* is
//! `mean(|M_i − m_i| / M_i)`.
//! Cost: O(nk). Source: MEB §5.2.3.
//! Limits: intervals with a working set of 0 have no relative error and are left out of that mean.

use ballast_model::Bytes;

use super::Threshold;
use super::machine::{Intermittent, IntermittentSettings, Interval};

/// One interval as it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The working set: `M_i`.
    pub wss: Bytes,
    /// How often the event happened: `P_i`.
    pub events: u64,
}

/// One interval as it would have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayInterval {
    /// Whether it is tracked.
    pub is_tracked: bool,
    /// The working set as estimated: `m_i`.
    pub estimate: Bytes,
}

/// What came of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// As many as were recorded.
    pub intervals: Vec<ReplayInterval>,
    /// The share of intervals that are tracked, from 0 to 1; `None` of an empty series.
    pub up_ratio: Option<f64>,
    /// The mean relative error, from 0; `None` where there is no working set to err about.
    pub mre: Option<f64>,
    /// The threshold of events at the end.
    pub threshold: Threshold,
}

/// Replays `series`.
pub fn replay(series: &[Recorded], settings: IntermittentSettings) -> Replay {
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
        machine.observe(Interval { wss, events: Some(recorded.events) });
    }
    let tracked = intervals.iter().map(|it| f64::from(u8::from(it.is_tracked)));
    let errors = series.iter().zip(&intervals).filter(|(it, _)| it.wss > Bytes::ZERO);
    let errors = errors.map(|(recorded, it)| {
        recorded.wss.abs_diff(it.estimate).get() as f64 / recorded.wss.get() as f64
    });
    Replay { up_ratio: mean(tracked), mre: mean(errors), threshold: machine.threshold(), intervals }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0u64), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phase::Mode;

    fn of_mib(wss: &[u64]) -> Vec<Recorded> {
        let recorded = |mib: &u64| Recorded { wss: Bytes::mib(*mib), events: 1000 };
        wss.iter().map(recorded).collect()
    }

    /// Five intervals to fill, then rest: the last two of ten are 200 and taken for 100, so
    /// MRE = 2 × 0.5 / 10, and 5 of 10 are tracked.
    #[test]
    fn a_worked_example() {
        let series = of_mib(&[100, 100, 100, 100, 100, 100, 100, 100, 200, 200]);
        let mode = Mode::Fixed(Threshold::MIN);
        let done = replay(&series, IntermittentSettings { mode, ..Default::default() });
        assert_eq!((done.up_ratio, done.mre), (Some(0.5), Some(0.1)));
        let tracked: Vec<bool> = done.intervals.iter().map(|it| it.is_tracked).collect();
        assert_eq!(tracked, [[true; 5], [false; 5]].concat());
        assert_eq!(done.intervals[9].estimate, Bytes::mib(100));
    }

    /// 5 to fill, then 10, 15 and 20 at rest with one tracked after each: 8 of 53.
    #[test]
    fn a_constant_series_is_tracked_at_checkpoints_only() {
        let done = replay(&of_mib(&[64; 53]), IntermittentSettings::default());
        assert_eq!((done.up_ratio, done.mre), (Some(8.0 / 53.0), Some(0.0)));
    }

    #[test]
    fn what_cannot_be_told_is_not() {
        let none = replay(&[], IntermittentSettings::default());
        assert_eq!((none.up_ratio, none.mre), (None, None));
        let idle = replay(&of_mib(&[0; 9]), IntermittentSettings::default());
        assert_eq!((idle.up_ratio, idle.mre), (Some(5.0 / 9.0), None));
    }
}
