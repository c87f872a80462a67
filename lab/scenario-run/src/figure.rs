//! The figures of one guest in one run.
//!
//! Idea: each figure is computed from the record of the guest's run and from the record of the same
//! guest with all its memory.
//! Limits: a figure that was not measured, or a state that was never reached, is absent.

use serde::Serialize;

use super::fixed_work::{of_best_around, time_of_work};
use super::record::{GuestInfo, GuestRun, RunRecord, Sample, ScenarioInfo, TrackingStatus};
use super::series;

/// How close to its final value, or to the guest's need, an allocation must be to count as settled,
/// as a ratio (TWS §4.1).
const SETTLED_WITHIN: f64 = 0.05;
/// How long the allocation has to stay near the guest's need, in seconds.
const NEAR_FOR_S: f64 = 5.0;

macro_rules! figures {
    ($($(#[$doc:meta])+ $figure:ident = $name:literal,)+) => {
        /// A figure of a run.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Figure {
            $($(#[$doc])+ $figure,)+
        }

        impl Figure {
            /// Every figure, in the order in which they are shown.
            pub const ALL: &'static [Figure] = &[$(Figure::$figure),+];

            /// Its name over a column.
            pub(super) const fn name(self) -> &'static str {
                match self {
                    $(Figure::$figure => $name,)+
                }
            }
        }
    };
}

figures! {
    /// Pages touched.
    Touches = "page touches",
    /// Touches against those in the same repetition with all its memory, as a ratio. With a fixed
    /// work: the time it took with all its memory against the time it took.
    OfBest = "of best",
    /// Time from the start of its first workload until its fixed work was done, in seconds; absent
    /// if it never was.
    WorkTime = "work done after",
    /// For a guest with a fixed work: touches until its allocation had settled, against those in
    /// the same seconds with all its memory, as a ratio.
    OfBestBefore = "of best, until settled",
    /// The same from the moment at which its allocation had settled.
    OfBestAfter = "of best, settled",
    /// Passes, or whatever the workload counts.
    Iterations = "passes",
    /// Time from a workload's start to its end, in seconds; the longest of several.
    RunTime = "run time",
    /// Faults that waited for a disk.
    MajorFaults = "major faults",
    /// Memory read back from swap, in bytes.
    SwapIn = "swap-in",
    /// Memory written to swap, in bytes.
    SwapOut = "swap-out",
    /// Mean allocation over time, in bytes.
    AllocationMean = "memory, mean",
    /// Allocation at the end, in bytes.
    AllocationLast = "memory, end",
    /// Time after which the allocation stayed within 5 % of the allocation at the end, in seconds;
    /// absent if it was never elsewhere.
    Settled = "settled after",
    /// The allocation at the end against what the guest needs, as a ratio.
    OfNeed = "of need",
    /// Time in seconds from when its workload has gone through its memory once until its allocation
    /// is within 5 % of its need for five seconds.
    NearNeed = "at need after",
    /// Time from the start of its last workload until it touches pages at full speed for a whole
    /// interval between two reports, in seconds; absent if it never did.
    FullSpeed = "full speed after",
    /// Share of the samples in which its pages were tracked, as a ratio.
    UpRatio = "tracked",
    /// Processor time of tracking as a ratio of one core; the mean over time.
    TrackingCost = "tracking",
}

impl Figure {
    /// Whether its column is left out when no guest has a value.
    pub(super) const fn is_rare(self) -> bool {
        use Figure::{AllocationLast, AllocationMean, Iterations, MajorFaults, RunTime};
        use Figure::{SwapIn, SwapOut, Touches};
        let is_work = matches!(self, Touches | Iterations | RunTime);
        let is_memory = matches!(self, AllocationMean | AllocationLast);
        !(is_work || is_memory || matches!(self, MajorFaults | SwapIn | SwapOut))
    }

    /// The figure of one guest in one run. `best` is the same guest with all its memory; `info` is
    /// its description in the scenario.
    pub(super) fn of(
        self,
        guest: &GuestRun,
        best: Option<&GuestRun>,
        info: &GuestInfo,
    ) -> Option<f64> {
        let inside = guest.last_inside();
        let count = |n: u64| n as f64;
        match self {
            Figure::Touches => guest.touches().map(count),
            Figure::OfBest if info.work.is_some() => {
                Some(time_of_work(best?, info.work?)? / time_of_work(guest, info.work?)?)
            }
            Figure::WorkTime => time_of_work(guest, info.work?),
            Figure::OfBestBefore | Figure::OfBestAfter => {
                info.work?;
                let held: Vec<(f64, f64)> = allocations(&guest.samples).collect();
                let around = of_best_around(guest, best?, settled(&held).unwrap_or(0.0));
                if self == Figure::OfBestBefore { around.0 } else { around.1 }
            }
            Figure::OfBest => {
                let most = best?.touches().filter(|touches| *touches > 0)?;
                Some(count(guest.touches()?) / count(most))
            }
            Figure::Iterations => guest.iterations().map(count),
            Figure::RunTime => {
                let longest = guest.workloads.iter().map(|workload| workload.elapsed_ms).max();
                longest.map(|ms| ms as f64 / 1000.0)
            }
            Figure::MajorFaults => inside.and_then(|inside| inside.major_faults).map(count),
            Figure::SwapIn => inside.and_then(|inside| inside.swap_in_bytes).map(count),
            Figure::SwapOut => inside.and_then(|inside| inside.swap_out_bytes).map(count),
            Figure::AllocationMean => mean_allocation(&guest.samples),
            Figure::AllocationLast => allocations(&guest.samples).last().map(|(_, held)| held),
            Figure::Settled => settled(&allocations(&guest.samples).collect::<Vec<_>>()),
            Figure::OfNeed => {
                let (_, held) = allocations(&guest.samples).last()?;
                Some(held / info.needs_bytes.filter(|need| *need > 0)? as f64)
            }
            Figure::NearNeed => near(&guest.samples, info.needs_bytes? as f64),
            Figure::FullSpeed => at_full_speed(guest, info.full_speed_per_s? as f64),
            Figure::UpRatio => mean(tracked(&guest.samples).filter_map(|it| match &*it.state {
                "watching" => Some(1.0),
                "resting" => Some(0.0),
                _ => None,
            })),
            // An interval of rest has no cost recorded; it counts as zero.
            Figure::TrackingCost => mean(tracked(&guest.samples).filter_map(|it| {
                let is_tracked = ["watching", "resting", "referenced"].contains(&&*it.state);
                is_tracked.then(|| it.cost.unwrap_or(0.0))
            })),
        }
    }

    /// The figure of all guests together: the sum over guests that have it; of times the longest;
    /// of shares the mean.
    pub(super) fn of_all(
        self,
        run: &RunRecord,
        best: Option<&RunRecord>,
        scenario: &ScenarioInfo,
    ) -> Option<f64> {
        let of_best = |guest: &GuestRun| best.and_then(|best| best.guest(&guest.guest));
        let of_guest =
            |guest: &GuestRun| self.of(guest, of_best(guest), scenario.guest(&guest.guest)?);
        let known = run.guests.iter().filter_map(of_guest);
        let guests = scenario.guests.iter();
        match self {
            Figure::NearNeed => longest_of(guests.filter_map(|it| it.needs_bytes).count(), known),
            Figure::FullSpeed => {
                longest_of(guests.filter_map(|it| it.full_speed_per_s).count(), known)
            }
            Figure::WorkTime => longest_of(guests.filter_map(|it| it.work).count(), known),
            Figure::OfBest
            | Figure::OfBestBefore
            | Figure::OfBestAfter
            | Figure::OfNeed
            | Figure::UpRatio => mean(known),
            Figure::RunTime | Figure::Settled => known.reduce(f64::max),
            _ => known.reduce(|a, b| a + b),
        }
    }
}

/// The longest of `count` times; `None` if a guest has none, because then not all of them got
/// there.
fn longest_of(count: usize, times: impl Iterator<Item = f64>) -> Option<f64> {
    let times: Vec<f64> = times.collect();
    let is_whole = times.len() == count;
    times.into_iter().reduce(f64::max).filter(|_| is_whole)
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), it| (sum + it, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

fn tracked(samples: &[Sample]) -> impl Iterator<Item = &TrackingStatus> {
    samples.iter().filter_map(|sample| sample.daemon.as_ref()?.tracking.as_ref())
}

fn allocations(samples: &[Sample]) -> impl Iterator<Item = (f64, f64)> {
    samples.iter().filter_map(|sample| {
        let held = sample.daemon.as_ref()?.allocation_bytes?;
        Some((sample.at_s, held as f64))
    })
}

/// The moment from which a series stays within 5 % of its last value; `None` if it always was.
fn settled(series: &[(f64, f64)]) -> Option<f64> {
    let (_, end) = *series.last()?;
    let outside = series.iter().rposition(|(_, held)| (held - end).abs() > SETTLED_WITHIN * end)?;
    series.get(outside + 1).map(|(at, _)| *at)
}

/// See [`Figure::NearNeed`].
fn near(samples: &[Sample], need: f64) -> Option<f64> {
    let is_through =
        |sample: &&Sample| sample.inside.as_ref().is_some_and(|inside| inside.iterations > 0);
    let from = samples.iter().find(is_through)?.at_s;
    let series: Vec<(f64, f64)> = allocations(samples).collect();
    let is_near = |held: f64| (held - need).abs() <= SETTLED_WITHIN * need;
    let mut since = None;
    for (at, held) in series {
        since = is_near(held).then_some(since.unwrap_or(at));
        if let Some(since) = since.filter(|since| at - since >= NEAR_FOR_S) {
            return Some(f64::max(since - from, 0.0));
        }
    }
    None
}

/// See [`Figure::FullSpeed`].
pub(super) fn at_full_speed(guest: &GuestRun, full_per_s: f64) -> Option<f64> {
    let began = guest.workloads.iter().map(|it| it.started_s).reduce(f64::max)?;
    let mut rates = series::touch_rates(guest).into_iter();
    let (at, _) = rates.find(|(at, rate)| *at >= began && *rate >= full_per_s)?;
    Some(at - began)
}

/// The mean over time; each value holds until the next one.
fn mean_allocation(samples: &[Sample]) -> Option<f64> {
    let known: Vec<(f64, f64)> = allocations(samples).collect();
    let (first, last) = (known.first()?, known.last()?);
    let span = last.0 - first.0;
    if span <= 0.0 {
        return Some(last.1);
    }
    let area: f64 = known.windows(2).map(|pair| (pair[1].0 - pair[0].0) * pair[0].1).sum();
    Some(area / span)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{InsideSample, OutsideSample};

    /// Within 5 % of 100 from 4 s on: 96 at 2 s was near, but 94 came after it.
    #[test]
    fn memory_has_settled_when_it_stays_where_it_ends() {
        let series = |held: &[f64]| -> Vec<(f64, f64)> {
            held.iter().enumerate().map(|(at, held)| (at as f64, *held)).collect()
        };
        assert_eq!(settled(&series(&[50.0, 80.0, 96.0, 94.0, 95.0, 104.0, 100.0])), Some(4.0));
        assert_eq!(settled(&series(&[100.0, 104.0, 100.0])), None);
        assert_eq!(settled(&[]), None);
    }

    /// Through its memory at 2 s; near 100 from 3 s on, but for good only from 6 s on.
    #[test]
    fn a_guest_is_at_its_need_when_near_it() {
        let sample = |at: usize, held: u64| Sample {
            at_s: at as f64,
            daemon: Some(OutsideSample {
                allocation_bytes: Some(held),
                ..OutsideSample::default()
            }),
            inside: Some(InsideSample {
                iterations: u64::from(at >= 2),
                ..InsideSample::default()
            }),
            ..Sample::default()
        };
        let series = |held: &[u64]| -> Vec<Sample> {
            held.iter().enumerate().map(|(at, held)| sample(at, *held)).collect()
        };
        let held = [50, 60, 80, 95, 98, 110, 104, 100, 96, 105, 100, 100];
        assert_eq!(near(&series(&held), 100.0), Some(4.0));
        assert_eq!(near(&series(&held[..11]), 100.0), None);
        // There before it has gone through its memory: at once.
        assert_eq!(near(&series(&[100; 9]), 100.0), Some(0.0));
        assert_eq!(near(&series(&[100; 2]), 100.0), None);
    }

    #[test]
    fn the_mean_allocation_weighs_by_time_and_skips_gaps() {
        let sample = |at_s, held: Option<u64>| Sample {
            at_s,
            daemon: held.map(|held| OutsideSample {
                allocation_bytes: Some(held),
                ..OutsideSample::default()
            }),
            ..Sample::default()
        };
        let samples = [sample(0.0, Some(10)), sample(1.0, None), sample(3.0, Some(20))];
        assert_eq!(mean_allocation(&samples), Some(10.0));
        let samples = [sample(0.0, Some(10)), sample(1.0, Some(40)), sample(3.0, Some(0))];
        assert_eq!(mean_allocation(&samples), Some(30.0));
        assert_eq!(mean_allocation(&samples[..1]), Some(10.0));
        assert_eq!(mean_allocation(&[]), None);
    }
}
