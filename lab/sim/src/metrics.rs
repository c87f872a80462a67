//! The metrics of a run.
//!
//! Idea: a few sums per guest and tick, and series of bounded length. Definitions:
//!
//! - *Demand has changed* when some guest's demand differs by more than [`DEMAND_BAND`] from its
//!   value at the last change.
//! - *Converged*: the first moment after the last change of demand after which no guest's target
//!   moves by more than [`TARGET_BAND`], provided that this holds for [`STAYS_FOR`].
//! - A *reversal* is a target that grows after it shrank, or shrinks after it grew, counted after
//!   the last change of demand. *Restless* is the sum of all target moves since then; it restarts
//!   at each move beyond the band and so is the movement that remains after convergence.
//! - *Jain's index* of `x` is `(Σx)² / (n Σx²)`, with `x` a guest's work ratio by its shares.
//!
//! Limits: a guest that never had a target counts with its allocation.

use std::time::Duration;

use ballast_model::{Bytes, PolicyName};
use libm::{exp, log};

use crate::guest::Guest;
use crate::report::{GuestReport, POINTS_MAX, Point, PolicyReport};

/// A smaller difference is no change of demand.
const DEMAND_BAND: Bytes = Bytes::mib(4);
/// A target that moves by less is stable: twice the dead band of Global §4.1.
const TARGET_BAND: Bytes = Bytes::mib(20);
/// How long targets must be stable.
const STAYS_FOR: Duration = Duration::from_secs(30);

/// The sums of one run.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    guests: Vec<GuestMetricSums>,
    /// Ticks of one point of the series.
    ticks_per_point: u64,
    ticks: u64,
    changed_at: Duration,
    swap_used_max: Bytes,
    pub(crate) violations: u64,
}

/// The sums of one guest.
#[derive(Clone, Debug, Default)]
struct GuestMetricSums {
    series: Vec<Point>,
    /// Sums over the current point: allocation, used, demand, in bytes times ticks.
    parts: [u128; 3],
    faults_before: u64,
    work_before: u64,
    allocation: u128,
    least: Option<Bytes>,
    most: Bytes,
    swap_used_max: Bytes,
    demand: Bytes,
    target: Target,
}

/// The movements of one target.
#[derive(Clone, Copy, Debug, Default)]
struct Target {
    last: Bytes,
    /// The value from which it has not moved by more than the band, and since when.
    anchor: Bytes,
    since: Duration,
    grew: Option<bool>,
    reversals: u64,
    moved: Bytes,
}

impl Target {
    fn observe(&mut self, target: Bytes, now: Duration) {
        if target != self.last {
            let grows = target > self.last;
            if self.grew == Some(!grows) {
                self.reversals += 1;
            }
            self.grew = Some(grows);
            self.moved = self.moved.saturating_add(target.abs_diff(self.last));
            self.last = target;
        }
        if target.abs_diff(self.anchor) > TARGET_BAND {
            self.anchor = target;
            self.since = now;
            self.moved = Bytes::ZERO;
        }
    }
}

impl Metrics {
    /// Creates the metrics of a run of `ticks` over these guests.
    pub(crate) fn new(guests: &[Guest], ticks: u64) -> Metrics {
        let sums = |guest: &Guest| {
            let holds = guest.memory.allocation();
            let target = Target { last: holds, anchor: holds, ..Target::default() };
            GuestMetricSums { target, demand: guest.memory.demand(), ..GuestMetricSums::default() }
        };
        Metrics {
            guests: guests.iter().map(sums).collect(),
            ticks_per_point: ticks.div_ceil(POINTS_MAX as u64).max(1),
            ticks: 0,
            changed_at: Duration::ZERO,
            swap_used_max: Bytes::ZERO,
            violations: 0,
        }
    }

    /// Adds the state of the guests at the end of a tick, after the plan was executed.
    pub(crate) fn observe(&mut self, guests: &[Guest], now: Duration) {
        self.ticks += 1;
        let mut changed = false;
        let swap_used = guests.iter().map(|guest| guest.memory.swap_used()).sum();
        self.swap_used_max = self.swap_used_max.max(swap_used);
        let ends = self.ticks.is_multiple_of(self.ticks_per_point);
        for (sums, guest) in self.guests.iter_mut().zip(guests) {
            let memory = &guest.memory;
            let (allocation, demand) = (memory.allocation(), memory.demand());
            if demand.abs_diff(sums.demand) > DEMAND_BAND {
                sums.demand = demand;
                changed = true;
            }
            sums.target.observe(guest.target.unwrap_or(allocation), now);
            sums.least = Some(sums.least.map_or(allocation, |least| least.min(allocation)));
            sums.most = sums.most.max(allocation);
            sums.swap_used_max = sums.swap_used_max.max(memory.swap_used());
            sums.allocation += u128::from(allocation.get());
            for (sum, part) in sums.parts.iter_mut().zip([allocation, memory.used(), demand]) {
                *sum += u128::from(part.get());
            }
            if ends {
                sums.end_point(guest, now, self.ticks_per_point);
            }
        }
        if changed {
            self.changed_at = now;
            for sums in &mut self.guests {
                sums.target.reversals = 0;
                sums.target.moved = Bytes::ZERO;
            }
        }
    }

    /// The report, without the ratios to other runs.
    pub(crate) fn report(
        mut self,
        policy: PolicyName,
        guests: &[Guest],
        now: Duration,
        plans_refused: u64,
    ) -> PolicyReport {
        let left = self.ticks % self.ticks_per_point;
        if left > 0 {
            for (sums, guest) in self.guests.iter_mut().zip(guests) {
                sums.end_point(guest, now, left);
            }
        }
        let since = self.guests.iter().map(|sums| sums.target.since).max().unwrap_or_default();
        let settled = since.max(self.changed_at);
        let converges = now.saturating_sub(settled) >= STAYS_FOR;
        let watched = now.saturating_sub(self.changed_at);
        let reversals: u64 = self.guests.iter().map(|sums| sums.target.reversals).sum();
        let each = watched.as_secs_f64() * self.guests.len() as f64;
        let moved: Bytes = self.guests.iter().map(|sums| sums.target.moved).sum();
        let span_s = now.saturating_sub(settled).as_secs();
        let ticks = self.ticks;
        let guests: Vec<GuestReport> = self
            .guests
            .into_iter()
            .zip(guests)
            .map(|(sums, guest)| sums.report(guest, ticks))
            .collect();
        let sum = |part: fn(&GuestReport) -> Bytes| guests.iter().map(part).sum::<Bytes>();
        PolicyReport {
            policy,
            work: guests.iter().map(|guest| guest.work).sum(),
            work_ratio: None,
            speedup_vs_static: None,
            major_faults: guests.iter().map(|guest| guest.major_faults).sum(),
            swap_in: sum(|guest| guest.swap_in),
            swap_out: sum(|guest| guest.swap_out),
            swap_used_max: self.swap_used_max,
            moved: sum(|guest| guest.moved),
            jain: None,
            jain_series: Vec::new(),
            converge: converges.then(|| settled - self.changed_at),
            reversals_per_h: if each > 0.0 { reversals as f64 * 3600.0 / each } else { 0.0 },
            restless_per_h: moved.fraction(3600, span_s.max(1)),
            plans_refused,
            violations: self.violations,
            guests,
        }
    }
}

impl GuestMetricSums {
    fn end_point(&mut self, guest: &Guest, now: Duration, ticks: u64) {
        let counters = &guest.counters;
        let [allocation, used, demand] = self.parts.map(|sum| mean(sum, ticks));
        self.series.push(Point {
            at: now,
            allocation,
            target: guest.target,
            used,
            demand,
            major_faults: counters.major_faults - self.faults_before,
            work: counters.touches - self.work_before,
        });
        (self.faults_before, self.work_before) = (counters.major_faults, counters.touches);
        self.parts = [0; 3];
    }

    fn report(self, guest: &Guest, ticks: u64) -> GuestReport {
        let counters = &guest.counters;
        GuestReport {
            id: guest.id().clone(),
            shares: guest.spec.limits.shares,
            work: counters.touches,
            working: guest.working,
            work_ratio: None,
            major_faults: counters.major_faults,
            swap_in: Bytes::pages(counters.swap_in_pages),
            swap_out: Bytes::pages(counters.swap_out_pages),
            swap_used_max: self.swap_used_max,
            refaulted_file_pages: counters.refaulted_file_pages,
            oom_kills: guest.oom_kills,
            moved: guest.moved,
            allocation_min: self.least.unwrap_or_default(),
            allocation_mean: mean(self.allocation, ticks),
            allocation_max: self.most,
            allocation_last: guest.memory.allocation(),
            series: self.series,
        }
    }
}

fn mean(sum: u128, ticks: u64) -> Bytes {
    Bytes::new(u64::try_from(sum / u128::from(ticks.max(1))).unwrap_or(u64::MAX))
}

impl PolicyReport {
    /// Fills in the ratios to two other runs of the same scenario: one with unlimited memory, and
    /// one under `static`.
    pub(crate) fn compare(&mut self, unlimited: &PolicyReport, equal: &PolicyReport) {
        for (guest, best) in self.guests.iter_mut().zip(&unlimited.guests) {
            guest.work_ratio = guest.work_of(best);
        }
        let ratios: Vec<f64> = self.guests.iter().filter_map(|guest| guest.work_ratio).collect();
        let n = ratios.len() as f64;
        self.work_ratio = (n > 0.0).then(|| ratios.iter().sum::<f64>() / n);
        let pairs = self.guests.iter().zip(&equal.guests);
        let logs: Vec<f64> = pairs
            .filter_map(|(own, other)| own.work_of(other))
            .filter(|times| *times > 0.0)
            .map(log)
            .collect();
        self.speedup_vs_static =
            (!logs.is_empty()).then(|| exp(logs.iter().sum::<f64>() / logs.len() as f64));
        let by_shares = |guest: &GuestReport, ratio: f64| ratio / f64::from(guest.shares.max(1));
        let whole = self.guests.iter();
        self.jain = jain(whole.filter_map(|guest| Some(by_shares(guest, guest.work_ratio?))));
        let points = self.guests.iter().map(|guest| guest.series.len()).max().unwrap_or(0);
        let at = |k: usize| {
            let pairs = self.guests.iter().zip(&unlimited.guests);
            jain(pairs.filter_map(|(own, best)| {
                let (done, most) = (own.series.get(k)?.work, best.series.get(k)?.work);
                Some(by_shares(own, ratio(done, most)?))
            }))
        };
        self.jain_series = (0..points).map(at).collect();
    }
}

fn ratio(done: u64, most: u64) -> Option<f64> {
    (most > 0).then(|| done as f64 / most as f64)
}

/// Jain's index; `None` if there are no values or all are zero.
fn jain(parts: impl Iterator<Item = f64>) -> Option<f64> {
    let (n, sum, squares) =
        parts.fold((0.0, 0.0, 0.0), |(n, sum, squares), x| (n + 1.0, sum + x, squares + x * x));
    (squares > 0.0).then(|| sum * sum / (n * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_equals_that_by_hand() {
        for (parts, index) in [
            (&[1.0, 1.0, 1.0, 1.0][..], Some(1.0)),
            (&[1.0, 0.0, 0.0, 0.0], Some(0.25)),
            (&[1.0, 0.5], Some(0.9)),
            (&[], None),
            (&[0.0], None),
        ] {
            assert_eq!(jain(parts.iter().copied()), index);
        }
    }

    #[test]
    fn oscillating_target_reverses_and_never_converges() {
        let mut target = Target::default();
        let s = Duration::from_secs;
        for (second, mib) in [(1, 100), (2, 110), (3, 100), (4, 100), (5, 90), (6, 200), (7, 205)] {
            target.observe(Bytes::mib(mib), s(second));
        }
        // 100 110 100 90 | 200 205: down after up at 3 s, up after down at 6 s.
        assert_eq!((target.reversals, target.since, target.moved), (2, s(6), Bytes::mib(5)));
    }
}
