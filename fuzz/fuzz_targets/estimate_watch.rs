//! Estimates from any sequence of samples: each has its inputs, is in range, and can be printed.
#![no_main]

use std::collections::BTreeMap;

use ballast_estimate::Estimator;
use ballast_estimate::probing::ProbingSettings;
use ballast_fuzz::Source;
use ballast_model::Timestamp;

/// Most samples in a row.
const SAMPLES_MAX: usize = 24;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut from = Source::new(bytes);
    let mut estimators: BTreeMap<_, Estimator> = BTreeMap::new();
    let mut now = Timestamp::ZERO;
    for _ in 0..SAMPLES_MAX {
        if from.is_empty() {
            break;
        }
        now = from.moment(now);
        let snapshot = from.snapshot(now);
        let host_memory = snapshot.host.memory_total.unwrap_or_default();
        for guest in snapshot.guests() {
            let estimator = estimators.entry(guest.id.clone()).or_default();
            estimator.observe(guest, now, ProbingSettings::default());
            let Ok(estimate) = estimator.estimate(guest, host_memory, now) else { continue };
            assert!(guest.allocation.is_some() && guest.stats.is_some());
            assert!(estimate.demand.confidence.percent() <= 100);
            // While a guest shrinks, the curve of an earlier report stays in use.
            assert!(estimate.curve.is_none() || guest.tracker.is_some());
            for source in &estimate.passed_over {
                // If no source is fresh, the source in use is among the stale ones, and its
                // confidence is 0.
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
