//! Estimates from any sequence of samples: each has its inputs, is in range, and can be printed.
#![no_main]

use ballast_estimate::Estimator;
use ballast_fuzz::Source;
use ballast_model::Timestamp;

/// Most samples in a row.
const SAMPLES_MAX: usize = 24;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut from = Source::new(bytes);
    let mut estimator = Estimator::default();
    let mut now = Timestamp::ZERO;
    for _ in 0..SAMPLES_MAX {
        if from.is_empty() {
            break;
        }
        now = from.moment(now);
        let snapshot = from.snapshot(now);
        estimator.observe(&snapshot);
        for place in 0..=snapshot.guests().len() {
            let Ok(estimate) = estimator.estimate(&snapshot, place) else { continue };
            let guest = &snapshot.guests()[place];
            assert!(guest.allocation.is_some() && guest.stats.is_some());
            assert!(estimate.demand.confidence.percent() <= 100);
            let tracker = guest.tracker.as_ref().and_then(|it| it.value.curve.as_ref());
            assert_eq!(estimate.curve.is_some(), tracker.is_some());
            for source in &estimate.passed_over {
                // Where nothing is fresh, what stands is among the stale ones, and nothing relies
                // on it.
                let stands = source.source == estimate.demand.source;
                assert!(
                    !stands || estimate.demand.confidence.percent() == 0,
                    "{:?}",
                    estimate.demand
                );
                let _ = source.to_string();
            }
            let _ = estimate.demand.to_string();
        }
    }
});
