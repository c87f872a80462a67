//! The time that work takes: processor time of the thread, and wall-clock time.
//!
//! Idea: processor time is what the work costs; wall-clock time also contains other programs that
//! had the core in between. Both are shown, so that readers can judge.

use std::time::Instant;

use serde::Serialize;

use super::machine;

/// One run, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RunTime {
    /// Processor time of this thread.
    pub(crate) processor: f64,
    /// Wall-clock time.
    pub(crate) wall: f64,
}

/// Does `work`; returns its result and how long it took.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, RunTime) {
    let (clock, processor) = (Instant::now(), machine::seconds());
    let done = work();
    let processor = machine::seconds() - processor;
    (done, RunTime { processor, wall: clock.elapsed().as_secs_f64() })
}

/// The median, of an even number of values the greater middle one; 0 if there are none.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// The mean; 0 if there are no values.
pub(crate) fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / f64::max(count, 1.0)
}

/// The median run and the worst one.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) worst: f64,
}

impl Spread {
    /// The spread of figures for which the greatest is the worst.
    pub(crate) fn of_costs(costs: impl Iterator<Item = f64> + Clone) -> Self {
        Self { median: median(costs.clone()), worst: costs.fold(0.0, f64::max) }
    }

    /// The spread of figures for which the least is the worst.
    pub(crate) fn of_speeds(speeds: impl Iterator<Item = f64> + Clone) -> Self {
        let worst = speeds.clone().fold(f64::INFINITY, f64::min);
        Self { median: median(speeds), worst: if worst.is_finite() { worst } else { 0.0 } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_is_the_greatest_cost_or_least_speed() {
        let figures = [3.0, 1.0, 2.0];
        let spread = |it: Spread| (it.median, it.worst);
        assert_eq!(spread(Spread::of_costs(figures.into_iter())), (2.0, 3.0));
        assert_eq!(spread(Spread::of_speeds(figures.into_iter())), (2.0, 1.0));
        assert_eq!(spread(Spread::of_speeds([].into_iter())), (0.0, 0.0));
    }

    #[test]
    fn processor_time_never_exceeds_elapsed_time() {
        let (sum, taken) =
            timed(|| (0..1_000_000u64).fold(0, |sum, n| std::hint::black_box(sum ^ n)));
        assert_eq!(sum, (0..1_000_000).fold(0, |sum, n| sum ^ n));
        assert!(taken.processor > 0.0 && taken.processor <= taken.wall * 1.1 + 1e-3, "{taken:?}");
    }
}
