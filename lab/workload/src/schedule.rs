//! How large and how fast a workload is at a given time.
//!
//! Idea: a pure function of the time since the workload started, so that any moment can be asked
//! for directly and a plot of the schedule needs no guest. Limits: sizes are whole pages, at least
//! one; times are whole microseconds.

use std::time::Duration;

use ballast_model::Bytes;

use crate::pattern::{Pattern, WorkloadSpec, curve_size};

/// Draws a number of pages from 0 to `most`, inclusive, for the `draw`-th size of the workload
/// seeded with `seed`. The lab and the simulator use generators of their own.
pub type DrawPages = fn(seed: u64, draw: u64, most: u64) -> u64;

/// What a schedule calls for at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScheduleEntry<'a> {
    /// Size, in whole pages.
    pub size: Bytes,
    /// Number of sizes before this one, where sizes are drawn or listed; else 0.
    pub changes: u64,
    /// Most touches per second. For [`Pattern::Cold`] its share of the pages, rounded to whole
    /// touches.
    pub touches_per_s: Option<u64>,
    /// The pattern: the workload's, or that of its current phase.
    pub pattern: &'a Pattern,
    /// Number of phases before this one.
    pub phase: u64,
}

impl WorkloadSpec {
    /// What the schedule of a valid workload calls for, `elapsed` after its start; `None` once it
    /// has ended. `seed` and `draw` determine the sizes that are drawn.
    pub fn at(&self, elapsed: Duration, seed: u64, draw: DrawPages) -> Option<ScheduleEntry<'_>> {
        if self.duration.is_some_and(|end| elapsed >= end) {
            return None;
        }
        let (pattern, within, phase) = current_phase(&self.pattern, elapsed)?;
        if let Pattern::Mono { low, high, ramp, hold, cycles: Some(cycles) } = pattern {
            let cycle = cycle(ramp.duration(*low, *high), *hold);
            // The last cycle does not stay at `low`.
            if within >= cycle.saturating_mul(*cycles).saturating_sub(*hold) {
                return None;
            }
        }
        let (size, changes) = size_at(pattern, within, seed ^ phase, draw);
        let touches_per_s = rate_at(pattern, within).or(self.touches_per_s);
        let size = size.page_floor().max(Bytes::pages(1));
        Some(ScheduleEntry { size, changes, touches_per_s, pattern, phase })
    }
}

/// The pattern at work, the time since it began, and the number of phases before it.
fn current_phase(pattern: &Pattern, elapsed: Duration) -> Option<(&Pattern, Duration, u64)> {
    let Pattern::Phases { phases, repeat, .. } = pattern else {
        return Some((pattern, elapsed, 0));
    };
    let cycle: Duration = phases.iter().map(|phase| phase.duration).sum();
    let (rounds, mut left) = periods(elapsed, cycle);
    if rounds > 0 && !repeat {
        return None;
    }
    for (place, phase) in phases.iter().enumerate() {
        if left < phase.duration {
            let before = rounds * phases.len() as u64 + place as u64;
            return Some((&phase.pattern, left, before));
        }
        left -= phase.duration;
    }
    None
}

/// The size after `elapsed`, and the number of sizes before it.
fn size_at(pattern: &Pattern, elapsed: Duration, seed: u64, draw: DrawPages) -> (Bytes, u64) {
    let size = match pattern {
        Pattern::Mono { low, high, ramp, hold, .. } => {
            mono(*low, *high, ramp.duration(*low, *high), *hold, elapsed)
        }
        Pattern::Flux { low, high, period } => {
            let (_, within) = periods(elapsed, *period);
            if within < *period / 2 { *low } else { *high }
        }
        Pattern::RandomDrawn { low, high, period } => {
            let (drawn, _) = periods(elapsed, *period);
            let most = high.saturating_sub(*low).to_pages();
            return (*low + Bytes::pages(draw(seed, drawn, most)), drawn);
        }
        Pattern::RandomSteps { steps } => {
            let past = steps.partition_point(|step| step.at <= elapsed).saturating_sub(1);
            return (steps.get(past).map(|step| step.size).unwrap_or_default(), past as u64);
        }
        Pattern::Trace { points } => {
            let past = points.partition_point(|point| point.at <= elapsed).saturating_sub(1);
            points.get(past).map(|point| point.working_set).unwrap_or_default()
        }
        Pattern::Constant { size }
        | Pattern::Sequential { size, .. }
        | Pattern::FileRandom { size }
        | Pattern::Cold { size, .. }
        | Pattern::Zipf { size, .. }
        | Pattern::Program { size, .. } => *size,
        Pattern::Curve { curve } => curve_size(curve),
        // Phases do not nest.
        Pattern::Phases { .. } => Bytes::ZERO,
    };
    (size, 0)
}

/// The pattern's own rate after `elapsed`.
fn rate_at(pattern: &Pattern, elapsed: Duration) -> Option<u64> {
    match pattern {
        Pattern::Trace { points } => {
            let past = points.partition_point(|point| point.at <= elapsed).saturating_sub(1);
            points.get(past).and_then(|point| point.touches_per_s)
        }
        Pattern::Cold { size, share_per_s } => {
            Some((size.to_pages() as f64 * share_per_s).round() as u64)
        }
        Pattern::Curve { curve } => Some(curve.misses_per_s(Bytes::ZERO)),
        _ => None,
    }
}

/// Length of one cycle of `mono`.
fn cycle(ramp: Duration, hold: Duration) -> Duration {
    ramp.saturating_add(hold).saturating_mul(2)
}

fn mono(low: Bytes, high: Bytes, ramp: Duration, hold: Duration, elapsed: Duration) -> Bytes {
    let (_, within) = periods(elapsed, cycle(ramp, hold));
    let part = if within < ramp {
        within
    } else if within < ramp + hold {
        ramp
    } else {
        (ramp * 2 + hold).saturating_sub(within)
    };
    low + high.saturating_sub(low).fraction(micros(part), micros(ramp))
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// Whole periods in `elapsed`, and the remainder.
fn periods(elapsed: Duration, period: Duration) -> (u64, Duration) {
    let (elapsed, period) = (micros(elapsed), micros(period).max(1));
    (elapsed / period, Duration::from_micros(elapsed % period))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::{Pace, Phase, Ramp, Step, TracePoint};
    use proptest::prelude::*;

    const LOW: Bytes = Bytes::mib(1);
    const HIGH: Bytes = Bytes::mib(9);

    const fn s(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    /// A generator good enough to test with.
    fn draw(seed: u64, draw: u64, most: u64) -> u64 {
        (seed ^ draw).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32) % (most + 1)
    }

    fn at(workload: &WorkloadSpec, at: Duration) -> Option<ScheduleEntry<'_>> {
        workload.at(at, workload.seed, draw)
    }

    fn mib_at(pattern: &Pattern, time: Duration) -> Option<u64> {
        at(&pattern.clone().into(), time).map(|entry| entry.size.get() >> 20)
    }

    #[test]
    fn mono_grows_stays_shrinks_and_ends() {
        for ramp in [Ramp::Time(s(20)), Ramp::GrowthPerS(Bytes::mib(10))] {
            let (low, high) = (Bytes::mib(100), Bytes::mib(300));
            let mono = Pattern::Mono { low, high, ramp, hold: s(5), cycles: Some(2) };
            for (at_ms, mib) in [
                (0, Some(100)),
                (10_000, Some(200)),
                (20_000, Some(300)),
                (24_900, Some(300)),
                (35_000, Some(200)),
                (45_000, Some(100)),
                (49_900, Some(100)),
                (60_000, Some(200)),
                (94_000, Some(110)),
                (95_000, None),
            ] {
                assert_eq!(mib_at(&mono, Duration::from_millis(at_ms)), mib, "{at_ms} {ramp:?}");
            }
        }
    }

    #[test]
    fn mono_of_one_size_and_no_time_has_that_size() {
        let ramp = Ramp::GrowthPerS(LOW);
        let mono = Pattern::Mono { low: LOW, high: LOW, ramp, hold: s(0), cycles: None };
        assert_eq!(mib_at(&mono, Duration::from_millis(12_300)), Some(1));
    }

    #[test]
    fn flux_jumps_between_its_two_sizes() {
        let flux = Pattern::Flux { low: LOW, high: HIGH, period: s(10) };
        for (at, mib) in [(0, 1), (4, 1), (5, 9), (9, 9), (10, 1), (15, 9)] {
            assert_eq!(mib_at(&flux, s(at)), Some(mib), "{at} s");
        }
    }

    #[test]
    fn steps_follow_their_times_and_are_counted() {
        let step = |at, mib| Step { at: s(at), size: Bytes::mib(mib) };
        let mut array: WorkloadSpec =
            Pattern::RandomSteps { steps: vec![step(0, 2), step(5, 7), step(6, 3)] }.into();
        array.duration = Some(s(20));
        for (time, mib, changes) in [(0, 2, 0), (4, 2, 0), (5, 7, 1), (19, 3, 2)] {
            let entry = at(&array, s(time)).unwrap();
            assert_eq!((entry.size, entry.changes), (Bytes::mib(mib), changes), "{time} s");
        }
        assert_eq!(at(&array, s(20)), None);
        assert_eq!(array.pattern.size_max(), Bytes::mib(7));
    }

    #[test]
    fn sizes_are_whole_pages_and_at_least_one() {
        for (size, scheduled, largest) in [(10_000, 8192, 12_288), (5, 4096, 4096)] {
            let constant: WorkloadSpec = Pattern::Constant { size: Bytes::new(size) }.into();
            assert_eq!(at(&constant, s(0)).unwrap().size, Bytes::new(scheduled));
            assert_eq!(constant.pattern.size_max(), Bytes::new(largest));
        }
    }

    #[test]
    fn phases_follow_each_other_and_count_their_own_time() {
        let phase = |seconds, pattern| Phase { duration: s(seconds), pattern };
        let flux = Pattern::Flux { low: LOW, high: HIGH, period: s(10) };
        let phases = vec![phase(6, Pattern::Constant { size: Bytes::mib(4) }), phase(8, flux)];
        let pace = Pace::Clock;
        let once = Pattern::Phases { phases: phases.clone(), repeat: false, pace };
        for (at, mib) in [(0, Some(4)), (6, Some(1)), (10, Some(1)), (11, Some(9)), (14, None)] {
            assert_eq!(mib_at(&once, s(at)), mib, "{at} s");
        }
        let again = Pattern::Phases { phases, repeat: true, pace };
        assert_eq!(mib_at(&again, s(14)), Some(4));
        let workload = again.into();
        let phase_at = |time| at(&workload, s(time)).map(|entry| entry.phase);
        assert_eq!([0, 6, 14, 20].map(phase_at), [Some(0), Some(1), Some(2), Some(3)]);
    }

    #[test]
    fn trace_point_holds_until_the_next() {
        let point = |at, mib, touches_per_s| TracePoint {
            at: s(at),
            working_set: Bytes::mib(mib),
            touches_per_s,
        };
        let points = vec![point(0, 5, Some(7)), point(10, 8, None)];
        let mut workload = WorkloadSpec::from(Pattern::Trace { points });
        workload.touches_per_s = Some(99);
        for (time, mib, rate) in [(0, 5, 7), (9, 5, 7), (10, 8, 99), (1000, 8, 99)] {
            let entry = at(&workload, s(time)).unwrap();
            assert_eq!((entry.size, entry.touches_per_s), (Bytes::mib(mib), Some(rate)));
        }
    }

    proptest! {
        #[test]
        fn drawn_sizes_stay_in_bounds_and_repeat(seed: u64, at_ms in 0u64..1_000_000) {
            let mut array: WorkloadSpec =
                Pattern::RandomDrawn { low: LOW, high: HIGH, period: s(2) }.into();
            array.seed = seed;
            let entry = at(&array, Duration::from_millis(at_ms)).unwrap();
            prop_assert!((LOW..=HIGH).contains(&entry.size));
            prop_assert_eq!(entry.changes, at_ms / 2000);
            let same_period = Duration::from_millis(at_ms - at_ms % 2000);
            prop_assert_eq!(at(&array, same_period), Some(entry));
        }

        #[test]
        fn mono_stays_between_its_sizes(
            ramp_ms in 1u64..10_000, hold_ms in 0u64..10_000, at_ms in 0u64..100_000_000
        ) {
            let (ramp, hold) = (Duration::from_millis(ramp_ms), Duration::from_millis(hold_ms));
            let size = mono(LOW, HIGH, ramp, hold, Duration::from_millis(at_ms));
            prop_assert!((LOW..=HIGH).contains(&size), "{}", size);
        }
    }
}
