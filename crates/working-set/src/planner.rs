//! Plans how to watch a guest in the next interval.
//!
//! Idea: joins the mechanisms of MEB §3. Each watched interval is analysed. Its working set goes to
//! the phase detector, which decides whether the next interval is watched at all; its miss curve
//! sets how many pages stay accessible; its cost sets the share of granules watched. There are two
//! modes: watch a *sample* of pages, limited by the budget, or *every* granule as in MEB, with
//! granules that grow with the working set.
//!
//! Cost: that of [`Analysis`]. Source: MEB §3.1.2, §3.4, §3.5; the sample and its budget are ours.
//! Limits: at rest nothing is learned, so the estimate stays. The budget does not limit watching
//! every granule. An interval skipped by the budget gives the phase detector an event count and no
//! working set, like one of rest.

use std::time::Duration;

use ballast_estimate::granularity::GranularitySwitch;
use ballast_estimate::hot_set::{HotSet, HotSetInput};
use ballast_estimate::phase::{
    Intermittent, IntermittentSettings, NextInterval, PhaseSample, PhaseStep,
};
use ballast_model::Bytes;
use ballast_mrc::Granularity;

use crate::analysis::{Analysis, AnalysisSettings, IntervalAnalysis, IntervalTouches, Sampling};
use crate::budget::WatchBudget;

/// The operator's settings for watching.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchPlannerSettings {
    /// The CPU budget for watching a sample of pages; `None`: watch every granule.
    pub sample: Option<WatchBudget>,
    /// When to rest; `None`: always watch.
    pub rest: Option<IntermittentSettings>,
    /// Whether only the granules touched last, the hot set of MEB §3.4, stay accessible, so that
    /// older ones trap again in the same interval. Otherwise each granule traps once an interval.
    /// Off by default: with hardware virtualization even 512 pages sampled from 200 MiB then trap
    /// 50,000 times a second (`ballast bench track`), and no share is small enough for the budget.
    pub hot_set: bool,
    /// How touches are analysed.
    pub analysis: AnalysisSettings,
}

impl Default for WatchPlannerSettings {
    fn default() -> WatchPlannerSettings {
        WatchPlannerSettings {
            sample: Some(WatchBudget::default()),
            rest: Some(IntermittentSettings::live()),
            hot_set: false,
            analysis: AnalysisSettings::default(),
        }
    }
}

/// How to watch one interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WatchPlan {
    /// Whether the interval is watched at all.
    pub is_on: bool,
    /// Granule size, and share of granules watched.
    pub watched: Sampling,
    /// Size of the FIFO of watched granules that stay accessible; `None`: every touched granule
    /// stays accessible until the interval ends.
    pub hot: Option<u64>,
}

/// What was observed in an interval that has ended.
#[derive(Clone, Copy, Debug)]
pub struct FinishedInterval<'a> {
    /// Pages touched, in order; `None` for an interval that was not watched.
    pub touches: Option<&'a [u64]>,
    /// Touches that the tracker saw but lost.
    pub lost: u64,
    /// Count of the event that signals phase changes (see `ballast_estimate::phase`).
    pub events: Option<u64>,
    /// CPU time that watching took from tracker and guest, including that of a signal at rest.
    pub cost: Duration,
    /// Length of the interval.
    pub length: Duration,
    /// The guest's allocation.
    pub allocation: Bytes,
}

/// Plans each interval of one guest from the earlier ones.
#[derive(Debug)]
pub struct WatchPlanner {
    settings: WatchPlannerSettings,
    analysis: Analysis,
    granularity: GranularitySwitch,
    hot: HotSet,
    phase: Option<Intermittent>,
    is_on: bool,
    /// Whether the guest is not watched because its phase lasts, rather than for lack of budget.
    is_resting: bool,
    /// Intervals still to skip for lack of budget.
    pause: u32,
    allocation: Bytes,
}

impl WatchPlanner {
    /// A planner for a guest with `allocation` that was not watched before.
    pub fn new(settings: WatchPlannerSettings, allocation: Bytes) -> WatchPlanner {
        WatchPlanner {
            analysis: Analysis::new(settings.analysis),
            granularity: GranularitySwitch::default(),
            hot: HotSet::default(),
            phase: settings.rest.map(Intermittent::new),
            is_on: true,
            is_resting: false,
            pause: 0,
            allocation,
            settings,
        }
    }

    /// Limits the cost of later intervals to a share of one core, above 0 and at most 1.
    pub fn set_budget(&mut self, limit: f64) {
        if let Some(budget) = &mut self.settings.sample {
            budget.set_limit(limit);
        }
    }

    /// What an interval of rest of this `length` may cost; `None`: no budget limits it.
    pub fn rest_allowance(&self, length: Duration) -> Option<Duration> {
        self.settings.sample.as_ref().map(|budget| budget.rest_allowance(length))
    }

    /// How to watch the interval that begins now.
    pub fn watch(&self) -> WatchPlan {
        let watched = self.watched();
        let hot =
            (self.hot.pages() as f64 * watched.share / watched.granule.pages() as f64).round();
        WatchPlan {
            is_on: self.is_on,
            watched,
            hot: self.settings.hot_set.then_some((hot as u64).max(1)),
        }
    }

    /// Processes the interval planned by the last [`watch`](Self::watch); `has` tells which
    /// granules were watched. Returns the analysis of its touches and the phase detector's step.
    pub fn end_interval(
        &mut self,
        finished: FinishedInterval<'_>,
        has: impl Fn(u64) -> bool,
    ) -> (Option<IntervalAnalysis>, Option<PhaseStep>) {
        let FinishedInterval { touches, lost, events, cost, length, allocation } = finished;
        let watched = self.watched();
        let analysis = touches.map(|touches| {
            self.analysis.end_interval(IntervalTouches { watched, touches, lost, length }, has)
        });
        self.allocation = allocation;
        self.pause = self.pause.saturating_sub(1);
        if let Some(analysis) = &analysis {
            let wss = analysis.report.working_set;
            let _ = self.granularity.update(wss);
            self.hot.update(HotSetInput { wss, half_miss: analysis.half_miss, allocation });
            if let Some(budget) = &mut self.settings.sample {
                budget.update(cost, length, allocation.to_pages());
                self.pause = budget.pause();
            }
        } else if let Some(budget) = self.settings.sample.as_mut().filter(|_| self.is_resting) {
            budget.rest(cost, length);
        }
        let wss = analysis.as_ref().map(|analysis| analysis.report.working_set);
        let step = self.phase.as_mut().map(|phase| phase.observe(PhaseSample { wss, events }));
        let is_moving = step.is_none_or(|step| matches!(step.next, NextInterval::Track(_)));
        self.is_resting = !is_moving;
        self.is_on = is_moving && self.pause == 0;
        (analysis, step)
    }

    /// Numbers of the watched granules ever touched, latest touch first; O(their number).
    pub fn order(&self) -> Vec<u64> {
        self.analysis.order()
    }

    fn watched(&self) -> Sampling {
        match &self.settings.sample {
            Some(budget) => Sampling {
                granule: Granularity::PAGE,
                share: budget.share(self.allocation.to_pages()),
            },
            None => Sampling {
                granule: Granularity::new(self.granularity.now().pages())
                    .unwrap_or(Granularity::PAGE),
                share: 1.0,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn finished(touches: Option<&[u64]>) -> FinishedInterval<'_> {
        FinishedInterval {
            touches,
            lost: 0,
            events: Some(1000),
            cost: touches.map_or(Duration::ZERO, |_| Duration::from_millis(2)),
            length: SECOND,
            allocation: Bytes::gib(1),
        }
    }

    #[test]
    fn a_steady_guest_is_watched_again_when_its_events_change() {
        let mut planner = WatchPlanner::new(WatchPlannerSettings::default(), Bytes::gib(1));
        let touches: Vec<u64> = (0..5000).collect();
        let mut watched = 0;
        while planner.watch().is_on {
            let (analysis, _) = planner.end_interval(finished(Some(&touches)), |_| true);
            assert!(analysis.is_some());
            watched += 1;
            assert!(watched < 20);
        }
        assert!(watched >= 5, "the filters need five intervals: {watched}");
        let (analysis, step) = planner.end_interval(finished(None), |_| true);
        assert!(analysis.is_none() && matches!(step.unwrap().next, NextInterval::Rest(_)));
        for _ in 0..3 {
            planner
                .end_interval(FinishedInterval { events: Some(9000), ..finished(None) }, |_| true);
        }
        assert!(planner.watch().is_on);
    }

    #[test]
    fn a_cheap_sample_grows_and_an_expensive_one_shrinks() {
        let mut planner = WatchPlanner::new(
            WatchPlannerSettings { rest: None, ..WatchPlannerSettings::default() },
            Bytes::gib(1),
        );
        let before = planner.watch().watched.share;
        let cheap =
            FinishedInterval { cost: Duration::from_micros(10), ..finished(Some(&[1, 2, 3])) };
        planner.end_interval(cheap, |_| true);
        planner.end_interval(cheap, |_| true);
        assert_eq!(planner.watch().watched.share, before * 4.0);
        let expensive =
            FinishedInterval { cost: Duration::from_millis(50), ..finished(Some(&[1])) };
        planner.end_interval(expensive, |_| true);
        assert!(planner.watch().watched.share < before);
    }

    #[test]
    fn budget_saved_at_rest_is_spent_on_the_next_phase() {
        let touches: Vec<u64> = (0..5000).collect();
        let share_after = |rests| {
            let mut planner = WatchPlanner::new(WatchPlannerSettings::default(), Bytes::gib(1));
            while planner.watch().is_on {
                planner.end_interval(finished(Some(&touches)), |_| true);
            }
            for _ in 0..rests {
                planner.end_interval(finished(None), |_| true);
            }
            while !planner.watch().is_on {
                planner.end_interval(
                    FinishedInterval { events: Some(9000), ..finished(None) },
                    |_| true,
                );
            }
            // 1.4 times the limit.
            let expensive =
                FinishedInterval { cost: Duration::from_millis(7), ..finished(Some(&touches)) };
            planner.end_interval(expensive, |_| true);
            planner.watch().watched.share
        };
        assert_eq!(share_after(10), share_after(0) * 2.0);
    }

    #[test]
    fn a_guest_with_expensive_traps_is_watched_less_often() {
        let settings = WatchPlannerSettings { rest: None, ..WatchPlannerSettings::default() };
        let mut planner = WatchPlanner::new(settings, Bytes::mib(2));
        // 512 pages in total cost 3 % of a core; at most 1 % is allowed.
        let expensive = FinishedInterval {
            cost: Duration::from_millis(30),
            allocation: Bytes::mib(2),
            ..finished(Some(&[1, 2, 3]))
        };
        let mut is_on = Vec::new();
        for _ in 0..6 {
            let now = planner.watch().is_on;
            is_on.push(now);
            planner.end_interval(
                FinishedInterval { touches: expensive.touches.filter(|_| now), ..expensive },
                |_| true,
            );
        }
        assert_eq!(is_on, [true, false, false, true, false, false]);
    }

    #[test]
    fn granules_grow_when_the_working_set_exceeds_2_gib() {
        let settings = WatchPlannerSettings {
            sample: None,
            rest: None,
            hot_set: true,
            ..WatchPlannerSettings::default()
        };
        let mut planner = WatchPlanner::new(settings, Bytes::gib(4));
        assert_eq!(planner.watch().watched.granule.pages(), 32);
        assert_eq!(planner.watch().hot, Some(32), "1,024 pages");
        // One page of each granule in 2.5 GiB.
        let touches: Vec<u64> = (0..20_480).map(|granule| granule * 32).collect();
        let large = FinishedInterval { allocation: Bytes::gib(4), ..finished(Some(&touches)) };
        let (analysis, _) = planner.end_interval(large, |_| true);
        assert_eq!(analysis.unwrap().report.working_set, Bytes::mib(2560));
        let WatchPlan { watched, hot, .. } = planner.watch();
        assert_eq!((watched.granule.pages(), watched.share), (512, 1.0));
        assert!(hot.is_some_and(|hot| hot >= 1));
    }
}
