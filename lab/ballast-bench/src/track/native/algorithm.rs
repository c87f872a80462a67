//! Computes a working set from touches, and decides how to watch the next interval.
//!
//! Idea: the daemon's own planner; every granule of one size; and the algorithms of MEB, with which
//! the tables compare it.

use std::sync::Arc;

use ballast_estimate::hot_set::{HotSet, HotSetInput};
use ballast_estimate::phase::{
    Intermittent, IntermittentSettings, PhaseSample, Threshold, ThresholdMode,
};
use ballast_model::{Bytes, MissCurve};
use ballast_mrc::{Aging, Avl, CountingEngine, Curve, Engine, EngineName, Form, Granularity, List};
use ballast_working_set::{
    Analysis, AnalysisSettings, FinishedInterval, IntervalAnalysis, Sampling, WatchPlan,
    WatchPlanner, WatchPlannerSettings,
};

use super::way::Way;

/// Pages per tag of list and tree (MEB §3.1.2).
const TAG_PAGES: u64 = 32;
/// The fixed threshold of events, the middle of MEB Table II.
const THRESHOLD: f64 = 0.2;
/// The hot set of fixed size, in pages; a dynamic one begins with this size.
const HOT_SET: u64 = 1024;

/// Computes a working set from touches, and decides how to watch the next interval.
pub(crate) enum TrackingAlgorithm {
    /// The algorithms of MEB, with every page watched.
    EveryPage(Box<EveryPage>),
    /// The daemon's planner.
    Planner(Box<WatchPlanner>),
    /// Every granule of one size, once in an interval.
    Granules(Box<Analysis>, Granularity),
}

/// The result of an interval.
#[derive(Clone, Debug)]
pub(crate) struct IntervalResult {
    pub(crate) wss: Bytes,
    pub(crate) curve: Option<Arc<MissCurve>>,
}

/// Every page, as in MEB.
pub(crate) struct EveryPage {
    engine: Box<dyn Engine>,
    aging: Aging,
    hot: Option<HotSet>,
    phase: Option<Intermittent>,
}

impl TrackingAlgorithm {
    /// The one for a way to track.
    pub(crate) fn of(way: Way, allocation: Bytes) -> TrackingAlgorithm {
        let rest = way.rests().then(|| match way {
            Way::Fixed => IntermittentSettings {
                mode: Threshold::new(THRESHOLD)
                    .map_or(ThresholdMode::Adaptive, ThresholdMode::Fixed),
                ..IntermittentSettings::default()
            },
            _ if way.is_sampled() => IntermittentSettings::live(),
            _ => IntermittentSettings::default(),
        });
        if way.is_sampled() {
            let settings = WatchPlannerSettings { rest, ..WatchPlannerSettings::default() };
            return TrackingAlgorithm::planner(settings, allocation);
        }
        let engine: Box<dyn Engine> = match way {
            Way::List | Way::HotList => {
                Box::new(CountingEngine::new(EngineName::List, List::new()))
            }
            _ => Box::new(CountingEngine::new(EngineName::Avl, Avl::new())),
        };
        let is_dynamic = !matches!(way, Way::List | Way::Avl);
        TrackingAlgorithm::EveryPage(Box::new(EveryPage {
            engine,
            aging: Aging::default(),
            hot: is_dynamic.then(HotSet::default),
            phase: rest.map(Intermittent::new),
        }))
    }

    /// The daemon's planner with these settings.
    pub(crate) fn planner(settings: WatchPlannerSettings, allocation: Bytes) -> TrackingAlgorithm {
        TrackingAlgorithm::Planner(Box::new(WatchPlanner::new(settings, allocation)))
    }

    /// Every granule of `granule` pages.
    pub(crate) fn granules(granule: Granularity) -> TrackingAlgorithm {
        TrackingAlgorithm::Granules(Box::new(Analysis::new(AnalysisSettings::default())), granule)
    }

    /// Whether all watched pages have to be revoked at the start of an interval; else pages outside
    /// the hot set are revoked already.
    pub(super) fn revokes(&self) -> bool {
        !matches!(self, TrackingAlgorithm::EveryPage(_))
    }

    pub(super) fn watch(&self) -> WatchPlan {
        match self {
            TrackingAlgorithm::Planner(planner) => planner.watch(),
            TrackingAlgorithm::Granules(_, granule) => {
                WatchPlan { is_on: true, watched: all_in(*granule), hot: None }
            }
            TrackingAlgorithm::EveryPage(every) => WatchPlan {
                is_on: every.phase.as_ref().is_none_or(Intermittent::is_tracking),
                watched: Sampling::ALL,
                hot: Some(every.hot.as_ref().map_or(HOT_SET, HotSet::pages)),
            },
        }
    }

    /// The working set of the interval, if the interval has one.
    pub(super) fn end_interval(
        &mut self,
        finished: FinishedInterval<'_>,
        has: impl Fn(u64) -> bool,
    ) -> Option<IntervalResult> {
        let to_result = |analysis: IntervalAnalysis| IntervalResult {
            wss: analysis.report.working_set,
            curve: analysis.report.curve,
        };
        match self {
            TrackingAlgorithm::Planner(planner) => {
                planner.end_interval(finished, has).0.map(to_result)
            }
            TrackingAlgorithm::Granules(analysis, granule) => {
                let FinishedInterval { touches, lost, length, .. } = finished;
                let watched = all_in(*granule);
                let interval = |touches| ballast_working_set::IntervalTouches {
                    watched,
                    touches,
                    lost,
                    length,
                };
                touches.map(|touches| to_result(analysis.end_interval(interval(touches), has)))
            }
            TrackingAlgorithm::EveryPage(every) => every.end_interval(finished),
        }
    }
}

fn all_in(granule: Granularity) -> Sampling {
    Sampling { granule, share: 1.0 }
}

impl EveryPage {
    fn end_interval(&mut self, finished: FinishedInterval<'_>) -> Option<IntervalResult> {
        let wss = finished.touches.and_then(|pages| {
            let tags: Vec<u64> = pages.iter().map(|page| page / TAG_PAGES).collect();
            self.engine.record(&tags).ok()?;
            let histogram = self.engine.histogram()?;
            self.engine.start_interval();
            self.aging.end_interval(&histogram);
            let curve = Curve::new(self.aging.histogram(), Granularity::new(TAG_PAGES)?);
            let wss = Bytes::pages(curve.working_set(0.01));
            let half_miss = Bytes::pages(curve.inverse(0.5, Form::Warm).unwrap_or(0));
            if let Some(hot) = &mut self.hot {
                hot.update(HotSetInput { wss, half_miss, allocation: finished.allocation });
            }
            Some(wss)
        });
        if let Some(phase) = &mut self.phase {
            phase.observe(PhaseSample { wss, events: finished.events });
        }
        wss.map(|wss| IntervalResult { wss, curve: None })
    }
}
