//! A guest's demand for memory: use, demand with its source, misses by size.
//!
//! Limits: a miss curve may have millions of points. A reply has only those at [`CURVE_PERCENTS`]
//! of the guest's allocation; the journal has all.

use ballast_model::{Bytes, CURVE_PERCENTS, Demand, Estimate, MissCurve, PassedOver};
use serde::{Deserialize, Serialize};

use crate::Coded;
use crate::tick::millis;

/// What is known about a guest's need for memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EstimateView {
    /// Memory that it uses and could not give up without reclaim.
    pub used_bytes: u64,
    /// Memory that it could give up without swapping.
    pub available_bytes: u64,
    /// Memory that it needs beyond what it uses: it swaps that out for lack of room, or reads it
    /// back.
    #[serde(default)]
    pub swap_need_bytes: u64,
    /// Page cache that it needs, because it reads from its disks for lack of it; part of
    /// `available_bytes` as far as it has it.
    #[serde(default)]
    pub cache_need_bytes: u64,
    /// Where `used_bytes` and `available_bytes` come from, in words for people.
    pub provenance: String,
    /// Memory that it needs to run as well as it can.
    pub demand: DemandView,
    /// What other sources say; the most trusted first.
    pub passed_over: Vec<PassedOverView>,
    /// Its misses by size; `null`: unknown.
    pub curve: Option<CurveView>,
}

/// A guest's demand for memory, and its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DemandView {
    /// The demand.
    pub size_bytes: u64,
    /// Its source; from the most to the least trusted: `working-set` (memory that the guest was
    /// seen to touch, and its swap in use), `sampled` (the same, from a small sample), `probing`
    /// (memory that the guest was found to live with), `used` (memory in use), `coarse` (memory
    /// that it was seen to touch, in huge pages: an upper bound) or `committed` (memory that its
    /// kernel has promised to processes).
    pub source: Coded,
    /// Time from the source's last confirmation of it to the tick.
    pub age_ms: u64,
    /// How far it can be relied on, 0 (not at all) to 100.
    pub confidence_percent: u8,
}

/// A source that was not chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PassedOverView {
    /// The source, with the codes of `demand.source`.
    pub source: Coded,
    /// The demand by this source.
    pub size_bytes: u64,
    /// Time from the source's last confirmation of it to the tick.
    pub age_ms: u64,
    /// Why it was not chosen: `less-trusted` (than the chosen one), `contradicts` (it is also
    /// trusted less) or `stale` (it is too old).
    pub why: Coded,
}

/// The misses of a guest by its size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CurveView {
    /// Time in which the misses were counted.
    pub interval_ms: u64,
    /// Distance between two sizes for which misses were counted.
    pub step_bytes: u64,
    /// The misses at some sizes, in ascending order; empty: the guest's allocation is unknown.
    pub points: Vec<CurvePointView>,
    /// The least size that keeps the guest's objective; absent: it has none, or no size keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective_bytes: Option<u64>,
}

/// The misses at one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CurvePointView {
    /// The size in percent of the guest's allocation: 25, 50, 75, 100, 125 or 150.
    pub percent: u32,
    /// The size.
    pub memory_bytes: u64,
    /// Misses a second at this size, rounded up.
    pub misses_per_s: u64,
}

impl EstimateView {
    /// The view of `estimate` for a guest with this allocation, and this objective in misses a
    /// second.
    pub(crate) fn new(
        estimate: &Estimate,
        allocation: Option<Bytes>,
        objective: Option<u64>,
    ) -> Self {
        let curve = estimate.curve.as_deref();
        EstimateView {
            used_bytes: estimate.used.get(),
            available_bytes: estimate.available.get(),
            swap_need_bytes: estimate.swap_need.get(),
            cache_need_bytes: estimate.cache_need.get(),
            provenance: estimate.provenance.to_string(),
            demand: DemandView::from(&estimate.demand),
            passed_over: estimate.passed_over.iter().map(PassedOverView::from).collect(),
            curve: curve.map(|curve| CurveView::new(curve, allocation, objective)),
        }
    }
}

impl From<&Demand> for DemandView {
    fn from(Demand { size, source, age, confidence }: &Demand) -> Self {
        DemandView {
            size_bytes: size.get(),
            source: Coded::from(source),
            age_ms: millis(*age),
            confidence_percent: confidence.percent(),
        }
    }
}

impl From<&PassedOver> for PassedOverView {
    fn from(PassedOver { source, size, age, why }: &PassedOver) -> Self {
        PassedOverView {
            source: Coded::from(source),
            size_bytes: size.get(),
            age_ms: millis(*age),
            why: Coded::new(why.code(), why),
        }
    }
}

impl CurveView {
    fn new(curve: &MissCurve, allocation: Option<Bytes>, objective: Option<u64>) -> Self {
        let mut points = Vec::new();
        if let Some(allocation) = allocation {
            for (percent, (memory, misses_per_s)) in
                CURVE_PERCENTS.into_iter().zip(curve.around(allocation))
            {
                points.push(CurvePointView { percent, memory_bytes: memory.get(), misses_per_s });
            }
        }
        CurveView {
            interval_ms: millis(curve.interval()),
            step_bytes: curve.step().get(),
            points,
            objective_bytes: objective.and_then(|most| curve.size_for(most)).map(Bytes::get),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn points_surround_the_guests_allocation() {
        let curve = MissCurve::new(Bytes::mib(128), Duration::from_secs(2), vec![90, 40, 30, 5, 0]);
        let view = CurveView::new(&curve.unwrap(), Some(Bytes::mib(400)), Some(15));
        let points =
            view.points.iter().map(|it| (it.percent, it.memory_bytes >> 20, it.misses_per_s));
        // 100, 200, 300, 400, 500, 600 MiB: the misses of the step below each.
        let expected = [(25, 100, 45), (50, 200, 20), (75, 300, 15)];
        let expected = expected.into_iter().chain([(100, 400, 3), (125, 500, 3), (150, 600, 0)]);
        assert!(points.eq(expected), "{view:?}");
        assert_eq!((view.interval_ms, view.step_bytes), (2000, 128 << 20));
        assert_eq!(view.objective_bytes, Some(256 << 20));
    }

    #[test]
    fn every_size_has_misses() {
        let curve = MissCurve::new(Bytes::mib(1), Duration::from_secs(1), vec![7]).unwrap();
        let view = CurveView::new(&curve, Some(Bytes::MAX), Some(6));
        assert!(view.points.iter().all(|point| point.misses_per_s == 7));
        assert_eq!(view.points[5].memory_bytes, Bytes::MAX.get());
        assert_eq!(view.objective_bytes, None);
        assert_eq!(CurveView::new(&curve, None, None).points, []);
    }
}
