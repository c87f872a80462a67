//! A program that the daemon's own code follows.
//!
//! Idea: [`Follower`] is what the daemon runs for each guest: the planner, the tiny sample that is
//! watched at rest, and the placement of the thread that answers faults. So this measures the cost
//! for an operator with default settings.
//! Limits: the follower decides where the thread that answers faults runs.

use std::time::Duration;

use anyhow::Context;
use ballast_daemon::track::{FollowSettings, Follower, WorkingSetSource};
use ballast_estimate::phase::IntermittentSettings;
use ballast_model::Bytes;
use ballast_mrc::Granularity;
use ballast_tracker_proto::TrackerCounters;
use ballast_working_set::{Sampling, WatchPlan, WatchPlannerSettings};

use super::algorithm::IntervalResult;
use super::running::RunningProgram;
use super::steer::{Interval, WayTracker, Window};

/// The seed that selects the sampled granules.
const SEED: u64 = 1;

/// A followed program.
pub(crate) struct Followed {
    follower: Follower,
    allocation: Bytes,
    wss: Bytes,
    share: f64,
    trap: Duration,
}

impl Followed {
    /// Begins to follow a program in intervals of `length`, with the daemon's defaults.
    ///
    /// # Errors
    /// The tracker is missing, or refuses.
    pub(crate) fn new(running: &RunningProgram, length: Duration) -> anyhow::Result<Followed> {
        let planner = WatchPlannerSettings {
            rest: Some(IntermittentSettings::live()),
            ..WatchPlannerSettings::default()
        };
        let settings = FollowSettings { interval: length, planner, seed: SEED };
        let allocation = Bytes::new(running.bytes());
        let follower = Follower::begin(&running.as_guest(), &settings, Some(allocation), None)?;
        let (wss, share, trap) = (Bytes::ZERO, 1.0, Duration::ZERO);
        Ok(Followed { follower, allocation, wss, share, trap })
    }
}

impl WayTracker for Followed {
    fn share(&self) -> f64 {
        self.share
    }

    fn counters(&mut self) -> anyhow::Result<TrackerCounters> {
        Ok(self.follower.counters()?)
    }

    fn trap(&self, _: &TrackerCounters, _: &TrackerCounters) -> f64 {
        self.trap.as_secs_f64()
    }

    fn rest(&mut self, running: &mut RunningProgram, length: Duration) -> anyhow::Result<Window> {
        let ((before, _), clock) = (running.touches()?, running.clock()?);
        self.follower.watch_nothing(length)?;
        let ((after, _), spent) = (running.touches()?, running.clock()?.since(clock));
        Ok(Window { touches: after - before, spent, ..Window::default() })
    }

    fn interval(&mut self, running: &mut RunningProgram) -> anyhow::Result<Interval> {
        let clock = running.clock()?;
        let counters = self.follower.counters()?;
        let (from, _) = running.touches()?;
        let (row, _) = self.follower.interval(Some(self.allocation), &mut || true)?;
        let ((to, _), spent) = (running.touches()?, running.clock()?.since(clock));
        let end = self.follower.counters()?;
        self.wss = row.known.unwrap_or(self.wss);
        let mut watch = WatchPlan { is_on: row.seen.is_some(), watched: Sampling::ALL, hot: None };
        let mut result = None;
        if let Some(seen) = row.seen {
            let granule = Granularity::new(seen.granule_pages).context("a granule of no pages")?;
            watch.watched = Sampling { granule, share: seen.share };
            (self.share, self.trap) = (seen.share, seen.trap);
            result = Some(IntervalResult { wss: seen.working_set, curve: seen.curve });
        }
        Ok(Interval {
            touches: from..to,
            watch,
            result,
            wss: self.wss,
            traps: end.traps - counters.traps,
            handler: (end.handler_ns - counters.handler_ns) as f64 / 1e9,
            spent,
        })
    }
}
