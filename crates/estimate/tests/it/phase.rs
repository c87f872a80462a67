//! Compares intermittent tracking with a transcription of its definition (MEB §3.5) in floating
//! point.
//!
//! Samples are multiples of k², so that every mean in the transcription is a whole number and
//! rounding causes no differences.

use ballast_estimate::phase::{
    FilterLength, Intermittent, IntermittentSettings, NextInterval, PhaseSample, RecordedInterval,
    Threshold, ThresholdChange, ThresholdMode, replay,
};
use ballast_model::Bytes;
use proptest::prelude::*;

/// A detector's judgement, with `|err_r − 1|`.
#[derive(Clone, Copy, PartialEq)]
enum Judgement {
    Filling,
    Stable(f64),
    Unstable(f64),
}

/// All samples of a phase, and every `f` computed from them.
#[derive(Default)]
struct Filter {
    samples: Vec<f64>,
    f: Vec<f64>,
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

impl Filter {
    fn judge(&mut self, k: usize, sample: f64, threshold: f64, unit: Option<f64>) -> Judgement {
        self.samples.push(sample);
        if self.samples.len() >= k {
            self.f.push(mean(&self.samples[self.samples.len() - k..]));
        }
        if self.f.len() < k {
            return Judgement::Filling;
        }
        let f_j = self.f[self.f.len() - 1];
        let f_mean = mean(&self.f[self.f.len() - k..]);
        let err_a = (f_j - f_mean).abs();
        // |err_r − 1|, without the rounding of a difference of nearly equal numbers.
        let deviation = if f_mean == 0.0 { 0.0 } else { err_a / f_mean };
        if deviation <= threshold || unit.is_some_and(|unit| err_a < unit) {
            Judgement::Stable(deviation)
        } else {
            Judgement::Unstable(deviation)
        }
    }

    fn clear(&mut self) {
        *self = Filter::default();
    }
}

/// For each interval whether the definition tracks it, and its estimate; and the final `T`.
fn transcribed(
    series: &[RecordedInterval],
    k: usize,
    unit: f64,
    fixed: Option<f64>,
) -> (Vec<(bool, u64)>, f64) {
    let (mut wss, mut events) = (Filter::default(), Filter::default());
    let mut t = fixed.unwrap_or(0.2);
    let (mut on, mut calibrating) = (true, false);
    let (mut off_for, mut ckpt) = (0, 10);
    let mut estimate = 0;
    let mut intervals = Vec::new();
    for recorded in series {
        if on {
            estimate = recorded.wss.get();
        }
        intervals.push((on, estimate));
        let judge_events = |events: &mut Filter| events.judge(k, recorded.events as f64, t, None);
        if on {
            let w = wss.judge(k, recorded.wss.get() as f64, 0.05, Some(unit));
            let e = judge_events(&mut events);
            let mut adjusted = false;
            let mut events_count_as_stable = matches!(e, Judgement::Stable(_));
            if fixed.is_none() {
                if let (Judgement::Stable(_), Judgement::Unstable(deviation)) = (w, e) {
                    t = deviation.min(0.30);
                    (adjusted, events_count_as_stable) = (true, true);
                }
                if let (Judgement::Unstable(_), Judgement::Stable(deviation)) = (w, e) {
                    t = deviation.clamp(0.05, 0.30);
                    adjusted = true;
                }
            }
            if matches!(w, Judgement::Unstable(_)) {
                wss.clear();
            }
            if matches!(e, Judgement::Unstable(_)) && !events_count_as_stable {
                events.clear();
            }
            if adjusted {
                ckpt = 10;
            } else if calibrating {
                ckpt = (ckpt + 5).min(20);
            }
            calibrating = false;
            let is_filling = w == Judgement::Filling || e == Judgement::Filling;
            let w_stable = matches!(w, Judgement::Stable(_));
            let off = !is_filling && w_stable && (fixed.is_some() || events_count_as_stable);
            if off {
                (on, off_for) = (false, 0);
            }
        } else {
            off_for += 1;
            match judge_events(&mut events) {
                Judgement::Unstable(_) => {
                    events.clear();
                    on = true;
                }
                Judgement::Filling => on = true,
                Judgement::Stable(_) if fixed.is_none() && off_for == ckpt => {
                    (on, calibrating) = (true, true);
                }
                Judgement::Stable(_) => {}
            }
        }
    }
    (intervals, t)
}

/// Phases with a level and relative noise each, some at zero; slow ramps; and random series.
fn series() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let noise = prop_oneof![Just(0u64), 1..20u64, 20..200u64, 200..1000u64];
    let level = prop_oneof![1 => Just(0u64), 4 => 1..100_000u64, 1 => 1..20u64];
    let phase = (level.clone(), noise.clone(), level, noise, 1..60usize).prop_flat_map(
        |(wss, wss_noise, events, events_noise, intervals)| {
            let around = |level: u64, noise: u64| {
                let reach = level * noise / 1000;
                level - reach.min(level)..=level + reach
            };
            let interval = (around(wss, wss_noise), around(events, events_noise));
            prop::collection::vec(interval, intervals)
        },
    );
    let phases = prop::collection::vec(phase, 0..8).prop_map(|phases| phases.concat());
    let ramp = (1..2000u64, 0..300u64, 0..300u64, 1..300u64).prop_map(|(from, wss, events, n)| {
        (0..n).map(|i| (from * 20 + i * wss, from * 20 + i * events)).collect()
    });
    let random = prop::collection::vec((0..1u64 << 30, 0..1u64 << 30), 0..300);
    prop_oneof![6 => phases, 1 => ramp, 1 => random]
}

fn recorded(series: &[(u64, u64)], k: u64) -> Vec<RecordedInterval> {
    let one = |(wss, events): &(u64, u64)| RecordedInterval {
        wss: Bytes::new(wss * k * k * 16),
        events: events * k * k,
    };
    series.iter().map(one).collect()
}

/// `None` for the adaptive mode, else a fixed threshold.
fn mode() -> impl Strategy<Value = Option<f64>> {
    let fixed = prop::sample::select(vec![0.05, 0.10, 0.15, 0.20, 0.25, 0.30]);
    prop_oneof![Just(None), fixed.prop_map(Some)]
}

fn threshold_mode(fixed: Option<f64>) -> ThresholdMode {
    match fixed {
        Some(threshold) => ThresholdMode::Fixed(Threshold::new(threshold).unwrap()),
        None => ThresholdMode::Adaptive,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn tracking_matches_the_transcribed_definition(
        series in series(),
        k in 2..6u64,
        fixed in mode(),
        unit in prop::sample::select(vec![0, 1 << 14, 1 << 20]),
    ) {
        let series = recorded(&series, k);
        let mode = threshold_mode(fixed);
        let samples = FilterLength::new(k).unwrap();
        let unit = Bytes::new(unit);
        let done = replay(&series, IntermittentSettings { mode, samples, unit, jumps: false });
        let (expected, threshold) = transcribed(&series, k as usize, unit.get() as f64, fixed);
        let intervals: Vec<_> =
            done.intervals.iter().map(|it| (it.is_tracked, it.estimate.get())).collect();
        prop_assert_eq!(intervals, expected);
        prop_assert_eq!(done.threshold.get(), threshold);
    }

    #[test]
    fn up_ratio_and_error_match_their_definitions(series in series(), fixed in mode()) {
        let mut series = recorded(&series, 3);
        series.retain(|interval| interval.wss > Bytes::ZERO);
        prop_assume!(!series.is_empty());
        let (intervals, _) = transcribed(&series, 3, (1u64 << 20) as f64, fixed);
        let n = series.len() as f64;
        let tracked = intervals.iter().filter(|(on, _)| *on).count() as f64;
        let errors = series.iter().zip(&intervals).map(|(recorded, (_, estimate))| {
            let m = recorded.wss.get() as f64;
            (m - *estimate as f64).abs() / m
        });
        let mode = threshold_mode(fixed);
        let done = replay(&series, IntermittentSettings { mode, ..Default::default() });
        prop_assert!((done.up_ratio.unwrap() - tracked / n).abs() < 1e-9);
        let mre = errors.sum::<f64>() / n;
        prop_assert!((done.mre.unwrap() - mre).abs() <= 1e-9 * mre.max(1.0));
    }

    #[test]
    fn any_series_keeps_threshold_and_rest_within_bounds(
        seen in prop::collection::vec(any::<(Option<u64>, Option<u64>)>(), 0..200), k in 2..8u64,
    ) {
        let samples = FilterLength::new(k).unwrap();
        let mut machine =
            Intermittent::new(IntermittentSettings { samples, ..Default::default() });
        let mut rested = 0;
        for (wss, events) in seen {
            let before = machine.threshold();
            let step = machine.observe(PhaseSample { wss: wss.map(Bytes::new), events });
            rested = if matches!(step.next, NextInterval::Rest(_)) { rested + 1 } else { 0 };
            prop_assert!(rested <= 20);
            prop_assert_eq!(machine.is_tracking(), rested == 0);
            let now = machine.threshold();
            prop_assert!((0.05..=0.30).contains(&now.get()));
            match step.adjusted {
                None => prop_assert_eq!(before, now),
                Some(ThresholdChange::Relaxed(to)) => prop_assert!(to == now && now >= before),
                Some(ThresholdChange::Tightened(to)) => prop_assert!(to == now && now <= before),
            }
        }
    }
}
