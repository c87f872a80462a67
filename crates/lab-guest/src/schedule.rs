//! How large a workload is to be at a moment.
//!
//! Idea: a pure function from the time since the start to a size, so that a plot of what was wanted
//! needs no guest.
//! Limits: sizes are whole pages, at least one.

use std::time::Duration;

use ballast_model::Bytes;

use crate::rng::Rng;
use crate::workload::{Pattern, Step, WorkloadSpec};

/// The sizes of one workload over time.
#[derive(Clone, Debug)]
pub struct Schedule {
    shape: Shape,
    end: Option<Duration>,
}

/// What a schedule wants at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Size, in whole pages.
    pub size: Bytes,
    /// Sizes there were before this one, where sizes are drawn or listed; else 0.
    pub changes: u64,
}

#[derive(Clone, Debug)]
enum Shape {
    Fixed(Bytes),
    Mono { low: Bytes, high: Bytes, ramp: Duration, hold: Duration },
    Flux { low: Bytes, high: Bytes, period: Duration },
    Drawn { low: Bytes, high: Bytes, period: Duration, seed: u64 },
    Steps(Vec<Step>),
}

impl Schedule {
    /// The schedule of a valid workload.
    pub fn new(spec: &WorkloadSpec) -> Self {
        let own_end = spec.common.duration_s.map(seconds);
        let seed = spec.common.seed.unwrap_or_default();
        let mut end = own_end;
        let shape = match &spec.pattern {
            Pattern::Mono { low, high, ramp_s, grow_per_s, hold_s, cycles } => {
                let (ramp, hold) = (ramp(*low, *high, *ramp_s, *grow_per_s), hold_s.map(seconds));
                let hold = hold.unwrap_or_default();
                let cycled = cycles.map(|n| cycle(ramp, hold).saturating_mul(n));
                // The last cycle does not stay at `low`.
                let cycled = cycled.map(|all| all.saturating_sub(hold));
                end = own_end.into_iter().chain(cycled).min();
                Shape::Mono { low: *low, high: *high, ramp, hold }
            }
            Pattern::Flux { low, high, period_s } => {
                Shape::Flux { low: *low, high: *high, period: seconds(*period_s) }
            }
            Pattern::RandomArray { steps: Some(steps), .. } => Shape::Steps(steps.clone()),
            Pattern::RandomArray { low, high, period_s, .. } => Shape::Drawn {
                low: low.unwrap_or_default(),
                high: high.unwrap_or_default(),
                period: period_s.map(seconds).unwrap_or_default(),
                seed,
            },
            Pattern::Constant { size }
            | Pattern::Sequential { size, .. }
            | Pattern::FileRandom { size }
            | Pattern::Cold { size, .. }
            | Pattern::Zipf { size, .. }
            | Pattern::Program { size, .. } => Shape::Fixed(*size),
        };
        Schedule { shape, end }
    }

    /// What is wanted `elapsed` after the start; `None` once it has ended.
    pub fn at(&self, elapsed: Duration) -> Option<Wanted> {
        if self.end.is_some_and(|end| elapsed >= end) {
            return None;
        }
        let mut changes = 0;
        let size = match &self.shape {
            Shape::Fixed(size) => *size,
            Shape::Mono { low, high, ramp, hold } => mono(*low, *high, *ramp, *hold, elapsed),
            Shape::Flux { low, high, period } => {
                let (_, within) = turns(elapsed, *period);
                if within < *period / 2 { *low } else { *high }
            }
            Shape::Drawn { low, high, period, seed } => {
                (changes, _) = turns(elapsed, *period);
                // A generator of its own for each draw: any moment can be asked for directly.
                let mut rng = Rng::new(Rng::new(seed ^ changes).next_u64());
                *low + Bytes::pages(rng.below((*high - *low).to_pages() + 1))
            }
            Shape::Steps(steps) => {
                let past = steps.partition_point(|step| seconds(step.at_s) <= elapsed);
                changes = (past as u64).saturating_sub(1);
                steps.get(past.saturating_sub(1)).map(|step| step.size).unwrap_or_default()
            }
        };
        Some(Wanted { size: size.page_floor().max(Bytes::pages(1)), changes })
    }

    /// The largest size ever wanted.
    pub fn size_max(&self) -> Bytes {
        let size = match &self.shape {
            Shape::Fixed(size) => *size,
            Shape::Mono { high, .. } | Shape::Flux { high, .. } | Shape::Drawn { high, .. } => {
                *high
            }
            Shape::Steps(steps) => steps.iter().map(|step| step.size).max().unwrap_or_default(),
        };
        size.page_ceil()
    }
}

/// A span from valid seconds; what is no span gives zero.
fn seconds(s: f64) -> Duration {
    Duration::try_from_secs_f64(s).unwrap_or_default()
}

fn ramp(low: Bytes, high: Bytes, ramp_s: Option<f64>, grow_per_s: Option<Bytes>) -> Duration {
    match (ramp_s, grow_per_s) {
        (Some(ramp_s), _) => seconds(ramp_s),
        (None, Some(step)) if step > Bytes::ZERO => {
            seconds((high - low).get() as f64 / step.get() as f64)
        }
        _ => Duration::ZERO,
    }
}

/// Length of one cycle of `mono`; never zero, which would divide time into nothing.
fn cycle(ramp: Duration, hold: Duration) -> Duration {
    ((ramp + hold) * 2).max(Duration::from_millis(1))
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
    low + (high - low).fraction(micros(part), micros(ramp))
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
    use proptest::prelude::*;

    fn schedule(text: &str) -> Schedule {
        let spec: WorkloadSpec = serde_json::from_str(text).unwrap();
        spec.validate().unwrap();
        Schedule::new(&spec)
    }

    fn mib_at(schedule: &Schedule, at_s: f64) -> Option<u64> {
        schedule.at(seconds(at_s)).map(|wanted| wanted.size.get() >> 20)
    }

    #[test]
    fn mono_goes_up_stays_comes_down_and_ends() {
        for text in [
            r#"{"kind":"mono","low":"100MiB","high":"300MiB","ramp_s":20,"hold_s":5,"cycles":2}"#,
            r#"{"kind":"mono","low":"100MiB","high":"300MiB","grow_per_s":"10MiB","hold_s":5,"cycles":2}"#,
        ] {
            let mono = schedule(text);
            for (at_s, mib) in [
                (0.0, Some(100)),
                (10.0, Some(200)),
                (20.0, Some(300)),
                (24.9, Some(300)),
                (35.0, Some(200)),
                (45.0, Some(100)),
                (49.9, Some(100)),
                (60.0, Some(200)),
                (94.0, Some(110)),
                (95.0, None),
            ] {
                assert_eq!(mib_at(&mono, at_s), mib, "{at_s} s of {text}");
            }
            assert_eq!(mono.size_max(), Bytes::mib(300));
        }
    }

    #[test]
    fn a_mono_without_any_length_still_has_a_size() {
        let mono = schedule(r#"{"kind":"mono","low":"1MiB","high":"1MiB","grow_per_s":"1MiB"}"#);
        assert_eq!(mib_at(&mono, 12.3), Some(1));
    }

    #[test]
    fn flux_jumps() {
        let flux = schedule(r#"{"kind":"flux","low":"1MiB","high":"9MiB","period_s":10}"#);
        for (at_s, mib) in [(0.0, 1), (4.9, 1), (5.0, 9), (9.9, 9), (10.0, 1), (15.0, 9)] {
            assert_eq!(mib_at(&flux, at_s), Some(mib), "{at_s} s");
        }
    }

    #[test]
    fn steps_are_kept_to_and_counted() {
        let array = schedule(
            r#"{"kind":"random-array","duration_s":20,
                "steps":[{"at_s":0,"size":"2MiB"},{"at_s":5,"size":"7MiB"},{"at_s":6.5,"size":"3MiB"}]}"#,
        );
        for (at_s, mib, changes) in [(0.0, 2, 0), (4.9, 2, 0), (5.0, 7, 1), (19.0, 3, 2)] {
            let wanted = array.at(seconds(at_s)).unwrap();
            assert_eq!((wanted.size, wanted.changes), (Bytes::mib(mib), changes), "{at_s} s");
        }
        assert_eq!(array.at(seconds(20.0)), None);
        assert_eq!(array.size_max(), Bytes::mib(7));
    }

    #[test]
    fn sizes_are_whole_pages_and_at_least_one() {
        let constant = schedule(r#"{"kind":"constant","size":10000}"#);
        assert_eq!(constant.at(Duration::ZERO).unwrap().size, Bytes::new(8192));
        assert_eq!(constant.size_max(), Bytes::new(12288));
    }

    proptest! {
        #[test]
        fn drawn_sizes_keep_to_their_bounds_and_seed(seed in 0..i64::MAX as u64, at_ms in 0u64..1_000_000) {
            let text = format!(
                r#"{{"kind":"random-array","low":"10MiB","high":"20MiB","period_s":2,"seed":{seed}}}"#
            );
            let elapsed = Duration::from_millis(at_ms);
            let wanted = schedule(&text).at(elapsed).unwrap();
            prop_assert!((Bytes::mib(10)..=Bytes::mib(20)).contains(&wanted.size));
            prop_assert_eq!(wanted.changes, at_ms / 2000);
            prop_assert_eq!(schedule(&text).at(elapsed), Some(wanted));
            let same_period = Duration::from_millis(at_ms - at_ms % 2000);
            prop_assert_eq!(schedule(&text).at(same_period), Some(wanted));
        }

        #[test]
        fn mono_is_never_outside_its_sizes(ramp_ms in 1u64..10_000, hold_ms in 0u64..10_000, at_ms in 0u64..100_000_000) {
            let (low, high) = (Bytes::mib(3), Bytes::mib(50));
            let (ramp, hold) = (Duration::from_millis(ramp_ms), Duration::from_millis(hold_ms));
            let size = mono(low, high, ramp, hold, Duration::from_millis(at_ms));
            prop_assert!((low..=high).contains(&size), "{}", size);
        }
    }
}
