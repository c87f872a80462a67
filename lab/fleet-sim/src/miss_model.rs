//! The misses of a guest that has less than its working set.
//!
//! Idea: pages are not equally popular, so the first missing pages cost the least: misses rise with
//! the square of the missing part. A guest has an objective: at most [`MISSES_MAX`] misses a
//! second, which is reached when a fourteenth of its working set is missing.
//! Limits: one shape for all guests. Real curves are measured (`docs/curves.md`).

use std::sync::Arc;
use std::time::Duration;

use ballast_model::{Bytes, MissCurve};

/// A guest's kernel keeps one part in this many of what the guest holds.
const KEPT: u64 = 64;
/// Misses a second of a guest that holds none of its working set.
const MISSES_OF_ALL: u64 = 20_000;
/// The objective of every guest: at most this many misses a second.
pub(crate) const MISSES_MAX: u64 = 100;
/// The step of the curves that policies get, in MiB.
const STEP: u64 = 64;

/// How much of its allocation a guest can use, in MiB.
pub(crate) fn usable(allocation: u64) -> u64 {
    allocation - allocation / KEPT
}

/// The allocation that a guest needs to be able to use `usable`, in MiB.
pub(crate) fn held_for(usable: u64) -> u64 {
    usable + usable.div_ceil(KEPT - 1)
}

/// Misses a second with `usable` MiB of a working set of `demand` MiB.
pub(crate) fn misses_per_s(demand: u64, usable: u64) -> u64 {
    let per_mille = demand.saturating_sub(usable) * 1000 / demand.max(1);
    MISSES_OF_ALL * per_mille * per_mille / 1_000_000
}

/// Whether a guest misses its objective.
pub(crate) fn is_slow(demand: u64, usable: u64) -> bool {
    misses_per_s(demand, usable) > MISSES_MAX
}

/// The least usable memory with which it meets the objective, in MiB.
pub(crate) fn least_usable(demand: u64) -> u64 {
    (demand * 93).div_ceil(100)
}

/// The curve that an exact tracker reports of a guest with this working set in MiB.
pub(crate) fn tracked_curve(demand: u64) -> Arc<MissCurve> {
    let steps = held_for(demand).div_ceil(STEP);
    let misses = (0..=steps).map(|at| misses_per_s(demand, usable(at * STEP))).collect();
    let curve = MissCurve::new(Bytes::mib(STEP), Duration::from_secs(1), misses);
    Arc::new(curve.expect("misses fall with memory"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objective_is_met_with_93_percent() {
        assert!(!is_slow(1000, 930));
        assert!(is_slow(1000, 928));
        assert_eq!((misses_per_s(1000, 1000), misses_per_s(1000, 0)), (0, MISSES_OF_ALL));
        assert_eq!(tracked_curve(1000).size_for(MISSES_MAX), Some(Bytes::mib(960)));
        for demand in 1..20_000 {
            let held = held_for(least_usable(demand));
            assert!(!is_slow(demand, usable(held)), "{demand}");
        }
    }
}
