//! How long a guest's fixed work took, before and after its allocation settled.
//!
//! Idea: with a fixed duration a run counts the work done. A policy that probes at the beginning
//! pays for that in every run, and the more the shorter the run is. With a fixed work the time is
//! measured instead, and the part before the allocation settled is kept apart from the part after
//! it.
//! Limits: work is taken to be steady between two reports.

use super::record::GuestRun;

/// A guest's cumulative work over time, on its own clock: (seconds, work).
fn done_over_time(guest: &GuestRun) -> Vec<(f64, f64)> {
    let reports = guest.samples.iter().filter_map(|sample| sample.inside.as_ref());
    let points = reports.map(|inside| (inside.at_ms as f64 / 1000.0, inside.touches as f64));
    std::iter::once((0.0, 0.0)).chain(points.filter(|(at, _)| *at > 0.0)).collect()
}

/// The y at `x` on the line through the rising `points`; `None` beyond its end.
fn at(points: &[(f64, f64)], x: f64) -> Option<f64> {
    let next = points.iter().position(|(there, _)| *there >= x)?;
    let (x1, y1) = points[next];
    let Some(&(x0, y0)) = next.checked_sub(1).and_then(|before| points.get(before)) else {
        return Some(y1);
    };
    Some(if x1 > x0 { y0 + (y1 - y0) * (x - x0) / (x1 - x0) } else { y1 })
}

/// How long a guest took for `work`, in seconds from the start of its first workload; `None`: it
/// never finished.
pub(super) fn time_of_work(guest: &GuestRun, work: u64) -> Option<f64> {
    let starts = guest.workloads.iter().map(|workload| workload.started_s);
    let started = starts.reduce(f64::min).unwrap_or(0.0);
    let turned = done_over_time(guest).into_iter().map(|(at, done)| (done, at));
    Some(at(&turned.collect::<Vec<_>>(), work as f64)? - started)
}

/// The guest's work against its work in the same seconds with all its memory, as ratios: until
/// `settled` (in seconds), and from then to the end of the shorter run. `None`: that part is empty,
/// or there is nothing to compare with.
pub(super) fn of_best_around(
    guest: &GuestRun,
    best: &GuestRun,
    settled: f64,
) -> (Option<f64>, Option<f64>) {
    let (own, best) = (done_over_time(guest), done_over_time(best));
    let end_of = |points: &[(f64, f64)]| points.last().map_or(0.0, |(at, _)| *at);
    let end = f64::min(end_of(&own), end_of(&best));
    let between = settled.min(end);
    let ratio = |from: f64, to: f64| {
        let done = |points: &[(f64, f64)]| Some(at(points, to)? - at(points, from)?);
        let most = done(&best).filter(|most| *most > 0.0)?;
        Some(done(&own)? / most)
    };
    (ratio(0.0, between), ratio(between, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{InsideSample, Sample, WorkloadRecord};

    fn started_at(started_s: f64) -> WorkloadRecord {
        WorkloadRecord { started_s, ..WorkloadRecord::default() }
    }

    /// With all its memory: 100 touches a second. Under the policy: 40 a second until its
    /// allocation has settled at 4 s, and 80 after that.
    #[test]
    fn a_fixed_work_is_timed_without_its_beginning() {
        let guest = |rates: [u64; 2]| GuestRun {
            samples: (0..=10_u64)
                .map(|second| Sample {
                    at_s: second as f64,
                    inside: Some(InsideSample {
                        at_ms: second as i64 * 1000,
                        touches: second.min(4) * rates[0] + second.saturating_sub(4) * rates[1],
                        ..InsideSample::default()
                    }),
                    ..Sample::default()
                })
                .collect(),
            ..GuestRun::default()
        };
        let (own, best) = (guest([40, 80]), guest([100, 100]));
        assert_eq!(time_of_work(&own, 400), Some(7.0));
        assert_eq!(time_of_work(&best, 400), Some(4.0));
        assert_eq!(time_of_work(&own, 10_000), None, "it never got there");
        let later = GuestRun { workloads: vec![started_at(1.5), started_at(3.0)], ..own.clone() };
        assert_eq!(time_of_work(&later, 400), Some(5.5));
        assert_eq!(of_best_around(&own, &best, 4.0), (Some(0.4), Some(0.8)));
        assert_eq!(of_best_around(&best, &best, 0.0), (None, Some(1.0)));
    }
}
