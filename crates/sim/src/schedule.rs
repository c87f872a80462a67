//! How large a workload is at a moment, how fast, and in which order it visits its pages.
//!
//! Idea: a pure function of the time since its start, as in the lab.
//! Limits: sizes are whole pages, at least one.

use std::time::Duration;

use ballast_model::Bytes;

use crate::workload::{Pattern, Workload, curve_size};

/// What a workload does at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Wanted<'a> {
    /// Its size, whole pages.
    pub(crate) size: Bytes,
    /// Most touches a second.
    pub(crate) touches_per_s: Option<u64>,
    /// What decides on the order of visits.
    pub(crate) pattern: &'a Pattern,
    /// Phases before this one.
    pub(crate) phase: u64,
}

/// What is wanted `elapsed` after the start; `None` once it has ended. `seed` settles what is drawn.
pub(crate) fn wanted(workload: &Workload, seed: u64, elapsed: Duration) -> Option<Wanted<'_>> {
    if workload.duration.is_some_and(|end| elapsed >= end) {
        return None;
    }
    let (pattern, within, phase) = match &workload.pattern {
        Pattern::Phases { phases, repeat } => {
            let cycle: Duration = phases.iter().map(|phase| phase.duration).sum();
            let (turns, mut left) = turns(elapsed, cycle);
            if turns > 0 && !repeat {
                return None;
            }
            let over = |phase: &&crate::Phase| match left.checked_sub(phase.duration) {
                Some(rest) => {
                    left = rest;
                    true
                }
                None => false,
            };
            let past = phases.iter().take_while(over).count();
            let phase = phases.get(past)?;
            (&phase.pattern, left, turns * phases.len() as u64 + past as u64)
        }
        single => (single, elapsed, 0),
    };
    if let Pattern::Mono { ramp, hold, cycles: Some(cycles), .. } = pattern {
        // The last cycle does not stay at `low`.
        let end = cycle(*ramp, *hold).saturating_mul(*cycles).saturating_sub(*hold);
        if within >= end {
            return None;
        }
    }
    let size = size_at(pattern, seed ^ phase, within).page_floor().max(Bytes::pages(1));
    let touches_per_s = rate_at(pattern, within).or(workload.touches_per_s);
    Some(Wanted { size, touches_per_s, pattern, phase })
}

fn size_at(pattern: &Pattern, seed: u64, elapsed: Duration) -> Bytes {
    match pattern {
        Pattern::Mono { low, high, ramp, hold, .. } => mono(*low, *high, *ramp, *hold, elapsed),
        Pattern::Flux { low, high, period } => {
            let (_, within) = turns(elapsed, *period);
            if within < *period / 2 { *low } else { *high }
        }
        Pattern::RandomDrawn { low, high, period } => {
            let (drawn, _) = turns(elapsed, *period);
            // A generator of its own for each draw: any moment can be asked for directly.
            let mut rng = fastrand::Rng::with_seed(seed.wrapping_add(drawn));
            let pages = high.saturating_sub(*low).to_pages();
            *low + Bytes::pages(rng.u64(0..=pages))
        }
        Pattern::RandomSteps { steps } => {
            let past = steps.partition_point(|step| step.at <= elapsed);
            steps.get(past.saturating_sub(1)).map(|step| step.size).unwrap_or_default()
        }
        Pattern::Trace { points } => {
            let past = points.partition_point(|point| point.at <= elapsed);
            points.get(past.saturating_sub(1)).map(|it| it.working_set).unwrap_or_default()
        }
        Pattern::Constant { size }
        | Pattern::Sequential { size, .. }
        | Pattern::FileRandom { size }
        | Pattern::Cold { size, .. }
        | Pattern::Zipf { size, .. } => *size,
        Pattern::Curve { curve } => curve_size(curve),
        // Phases have none of their own.
        Pattern::Phases { .. } => Bytes::ZERO,
    }
}

/// A rate that comes with the pattern.
fn rate_at(pattern: &Pattern, elapsed: Duration) -> Option<u64> {
    match pattern {
        Pattern::Trace { points } => {
            let past = points.partition_point(|point| point.at <= elapsed);
            points.get(past.saturating_sub(1)).and_then(|point| point.touches_per_s)
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
    (ramp + hold) * 2
}

fn mono(low: Bytes, high: Bytes, ramp: Duration, hold: Duration, elapsed: Duration) -> Bytes {
    let (_, within) = turns(elapsed, cycle(ramp, hold));
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

/// Whole periods in `elapsed`, and what is left over.
fn turns(elapsed: Duration, period: Duration) -> (u64, Duration) {
    let (elapsed, period) = (micros(elapsed), micros(period).max(1));
    (elapsed / period, Duration::from_micros(elapsed % period))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Phase, TracePoint};

    const fn s(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    fn mib_at(pattern: Pattern, at: Duration) -> Option<u64> {
        wanted(&pattern.into(), 0, at).map(|wanted| wanted.size.get() >> 20)
    }

    #[test]
    fn mono_goes_up_stays_comes_down_and_ends() {
        let mono = Pattern::Mono {
            low: Bytes::mib(100),
            high: Bytes::mib(300),
            ramp: s(20),
            hold: s(5),
            cycles: Some(2),
        };
        let sizes = [(0, 100), (10, 200), (20, 300), (24, 300), (35, 200), (45, 100), (60, 200)];
        for (at, mib) in sizes {
            assert_eq!(mib_at(mono.clone(), s(at)), Some(mib), "{at} s");
        }
        assert_eq!(mib_at(mono, s(95)), None);
    }

    #[test]
    fn flux_jumps_and_draws_stay_within_their_sizes() {
        let (low, high) = (Bytes::mib(1), Bytes::mib(9));
        for (at, mib) in [(0, 1), (4, 1), (5, 9), (9, 9), (10, 1)] {
            assert_eq!(mib_at(Pattern::Flux { low, high, period: s(10) }, s(at)), Some(mib));
        }
        let drawn = |at| mib_at(Pattern::RandomDrawn { low, high, period: s(10) }, s(at));
        assert!((0..1000).all(|at| (1..=9).contains(&drawn(at).unwrap())));
        assert_eq!(drawn(11), drawn(19));
        assert!((0..100).any(|at| drawn(at) != drawn(at + 10)));
    }

    #[test]
    fn phases_follow_each_other_and_tell_their_time() {
        let flux = Pattern::Flux { low: Bytes::mib(1), high: Bytes::mib(9), period: s(10) };
        let phase = |seconds, pattern| Phase { duration: s(seconds), pattern };
        let phases =
            vec![phase(6, Pattern::Constant { size: Bytes::mib(4) }), phase(8, flux.clone())];
        let once = Pattern::Phases { phases: phases.clone(), repeat: false };
        for (at, mib) in [(0, Some(4)), (6, Some(1)), (10, Some(1)), (11, Some(9)), (14, None)] {
            assert_eq!(mib_at(once.clone(), s(at)), mib, "{at} s");
        }
        let again = Pattern::Phases { phases, repeat: true };
        assert_eq!(mib_at(again.clone(), s(14)), Some(4));
        let workload = again.into();
        let phase_at = |at| wanted(&workload, 0, s(at)).map(|wanted| wanted.phase);
        assert_eq!([0, 6, 14, 20].map(phase_at), [Some(0), Some(1), Some(2), Some(3)]);
    }

    #[test]
    fn a_trace_holds_until_its_next_point() {
        let point = |at, mib, rate| TracePoint {
            at: s(at),
            working_set: Bytes::mib(mib),
            touches_per_s: rate,
        };
        let points = vec![point(0, 5, Some(7)), point(10, 8, None)];
        let mut workload = Workload::from(Pattern::Trace { points });
        workload.touches_per_s = Some(99);
        for (at, mib, rate) in [(0, 5, 7), (9, 5, 7), (10, 8, 99), (1000, 8, 99)] {
            let wanted = wanted(&workload, 0, s(at)).unwrap();
            assert_eq!((wanted.size, wanted.touches_per_s), (Bytes::mib(mib), Some(rate)));
        }
    }
}
