//! Tracks one guest, interval by interval.
//!
//! Idea: the planner decides what to watch, the tracker watches it, and the planner gets the
//! touches and the cost. This blocks, so it runs in a thread.
//!
//! While tracking rests, a signal still detects new phases: data-TLB misses if the CPU counts them,
//! otherwise touches of a [`tiny`](super::tiny) sample.
//!
//! Limits: a fixed seed picks the sample's granules, so a smaller sample is part of a larger one.

use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use ballast_host::PROC;
use ballast_model::{Bytes, TrackingSource};
use ballast_reclaim::Coldness;
use ballast_tracker::{
    DataTlbCounter, IntervalObservation, TrackableGuest, TrackerError, TrackingSession,
    WatchSettings,
};
use ballast_tracker_proto::{Granule, GranuleSample, HashKind, TrackerCounters, WatchMode};
use ballast_working_set::{FinishedInterval, WatchPlan, WatchPlanner, WatchPlannerSettings};

use super::coldness::WatchHistory;
use super::row::{Row, WatchedInterval};
use super::source::{Remembered, SourceError, WorkingSetSource};
use super::tiny::{self, TinySample, WorkingSetShift};

/// How a guest is tracked.
#[derive(Clone, Debug)]
pub struct FollowSettings {
    /// Length of an interval.
    pub interval: Duration,
    /// What to watch, and when.
    pub planner: WatchPlannerSettings,
    /// Seed that picks the sampled granules.
    pub seed: u64,
}

/// A guest that is tracked. Dropping it ends the tracking without a trace.
pub struct Follower {
    tracking: TrackingSession,
    planner: WatchPlanner,
    signal: Signal,
    hash: HashKind,
    interval: Duration,
    began: Instant,
    intervals: Intervals,
    known: Option<Bytes>,
    history: WatchHistory,
    seed: u64,
}

/// The signal that detects a new phase while tracking rests.
enum Signal {
    /// Data-TLB misses.
    DataTlb(DataTlbCounter),
    /// Touches of a tiny sample.
    Sample(TinySample),
}

/// Number of intervals so far.
#[derive(Default)]
struct Intervals {
    watched: u64,
    all: u64,
}

impl Follower {
    /// Starts to track `guest`. `allocation` is its size, if known; `remembered` is the state of an
    /// earlier follower.
    ///
    /// # Errors
    /// The tracker refuses or is missing, or the guest has memory that is not tracked.
    pub fn begin(
        guest: &TrackableGuest,
        settings: &FollowSettings,
        allocation: Option<Bytes>,
        remembered: Option<Remembered>,
    ) -> Result<Follower, TrackerError> {
        let tracking = attach(guest, allocation)?;
        let allocation = allocation.unwrap_or_else(|| memory_of(&tracking));
        let same = remembered.filter(|it| it.regions == tracking.regions());
        let planner = same.map(|remembered| remembered.planner);
        Ok(Follower {
            planner: planner
                .unwrap_or_else(|| WatchPlanner::new(settings.planner.clone(), allocation)),
            signal: Signal::of(guest.pid),
            tracking,
            hash: HashKind::multiply_add(settings.seed),
            interval: settings.interval,
            began: Instant::now(),
            intervals: Intervals::default(),
            known: None,
            history: WatchHistory::default(),
            seed: settings.seed,
        })
    }

    /// The tracker's counters since its client connected.
    ///
    /// # Errors
    /// The tracker is gone or has given up.
    pub fn counters(&mut self) -> Result<TrackerCounters, TrackerError> {
        self.tracking.client().heartbeat()
    }

    /// Watches nothing for a while, so that the guest runs as if it were not tracked. What is known
    /// of it is kept.
    ///
    /// # Errors
    /// The tracker is gone or has given up.
    pub fn watch_nothing(&mut self, length: Duration) -> Result<(), TrackerError> {
        let began = Instant::now();
        self.tracking.begin_interval(None)?;
        wait_out(&mut self.tracking, began, length, &mut || true)?;
        self.tracking.end_interval().map(drop)
    }

    /// The watch mode and number of hot granules for the tracker.
    fn mode(&self, watch: &WatchPlan) -> (WatchMode, u32) {
        let pages = u32_or_max(watch.watched.granule.pages());
        let granule = Granule::new(pages).unwrap_or(Granule::PAGE);
        let sample = if watch.watched.share >= 1.0 {
            GranuleSample::ALL
        } else {
            GranuleSample::rate(self.hash, watch.watched.share)
        };
        let hot = watch.hot.map_or(0, u32_or_max);
        (WatchMode { granule, sample }, hot)
    }
}

impl WorkingSetSource for Follower {
    fn interval(
        &mut self,
        allocation: Option<Bytes>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(Row, Vec<u64>), SourceError> {
        let watch = self.planner.watch();
        let began = Instant::now();
        let holds = allocation.unwrap_or_else(|| memory_of(&self.tracking));
        let (mode, hot_granules) = self.mode(&watch);
        let granules = holds.to_pages() / mode.granule.pages();
        let tiny = self.signal.sample(self.hash, granules, mode.sample);
        let watching = if watch.is_on {
            Some(WatchSettings { mode, hot_granules })
        } else {
            tiny.map(|sample| WatchSettings { mode: WatchMode { sample, ..mode }, hot_granules: 0 })
        };
        self.tracking.begin_interval(watching)?;
        // Memory plugged in since may not be shared.
        self.tracking.check(allocation.map_or(0, Bytes::get))?;
        wait_out(&mut self.tracking, began, self.interval, go_on)?;
        let mut observed = self.tracking.end_interval()?;
        for page in observed.iter_mut().flat_map(|observed| &mut observed.touches) {
            // Which page of a granule was touched first is chance, so the granule's first page is
            // reported.
            *page = mode.granule.first_page(mode.granule.of(*page));
        }
        let length = began.elapsed();
        let cost = observed.as_ref().map_or(Duration::ZERO, |observed| observed.cost);
        let events = self.signal.events(observed.as_ref(), mode, tiny);
        let touch = observed.as_ref().and_then(|observed| {
            observed.cost.checked_div(u32_or_max(observed.touches.len() as u64))
        });
        // Touches of the tiny sample detect new phases; they do not measure the working set.
        let observed = observed.filter(|_| watch.is_on);
        let finished = FinishedInterval {
            touches: observed.as_ref().map(|observed| observed.touches.as_slice()),
            lost: observed.as_ref().map_or(0, |observed| observed.lost),
            events,
            cost,
            length,
            allocation: holds,
        };
        let (seen, step) = self.planner.end_interval(finished, |granule| mode.sample.has(granule));
        let is_jump = step.is_some_and(|step| step.next.is_jump());
        let moved = self.signal.moved(events, watch.is_on, is_jump);
        if let (Some(touch), Some(allowed)) = (touch, self.planner.rest_allowance(length)) {
            self.signal.fit(events, touch, allowed);
        }
        self.known = match (&seen, moved) {
            (Some(seen), _) => Some(seen.report.working_set),
            (None, Some(moved)) => self.known.map(|known| moved.applied_to(known).min(holds)),
            (None, None) => self.known,
        };
        self.intervals.watched += u64::from(watch.is_on);
        self.intervals.all += 1;
        let mut row = Row {
            at: self.began.elapsed(),
            length,
            tracked: memory_of(&self.tracking),
            known: self.known,
            moved,
            events,
            step,
            up_ratio: self.intervals.watched as f64 / self.intervals.all as f64,
            cost,
            seen: None,
        };
        let Some((seen, observed)) = seen.zip(observed) else { return Ok((row, Vec::new())) };
        self.history.add(mode, self.tracking.regions());
        row.seen = Some(WatchedInterval {
            source: TrackingSource::Library,
            working_set: seen.report.working_set,
            touched: seen.touched,
            half_miss: Some(seen.half_miss),
            curve: seen.report.curve,
            granule_pages: mode.granule.pages(),
            share: watch.watched.share,
            hot_granules: watch.hot,
            touches: observed.touches.len() as u64,
            lost: seen.lost,
            trap: observed.trap,
            revoked_in: observed.revoked_in,
        });
        Ok((row, observed.touches))
    }

    fn set_length(&mut self, length: Duration) {
        self.interval = length;
    }

    fn set_budget(&mut self, limit: f64) {
        self.planner.set_budget(limit);
    }

    fn private_memory(&self) -> Bytes {
        Bytes::new(self.tracking.private_memory())
    }

    fn coldness(&self) -> Option<Coldness> {
        self.history.coldness(&self.planner.order(), self.known?, self.seed)
    }

    fn end(self: Box<Self>) -> Option<Remembered> {
        let regions = self.tracking.regions().to_vec();
        Some(Remembered { regions, planner: self.planner })
    }
}

impl Signal {
    /// The best available signal for the guest of process `pid`.
    fn of(pid: u32) -> Signal {
        match DataTlbCounter::open(Path::new(PROC), pid) {
            Some(misses) => Signal::DataTlb(misses),
            None => Signal::tiny_sample(),
        }
    }

    fn tiny_sample() -> Signal {
        Signal::Sample(TinySample::new(tiny::GRANULES))
    }

    /// The sample to watch during rest, out of `granules`.
    fn sample(
        &mut self,
        hash: HashKind,
        granules: u64,
        larger: GranuleSample,
    ) -> Option<GranuleSample> {
        match self {
            Signal::DataTlb(_) => None,
            Signal::Sample(tiny) => Some(tiny.sample(hash, granules, larger)),
        }
    }

    /// Fits the tiny sample to the cost of a `touch`; data-TLB misses cost nothing.
    fn fit(&mut self, events: Option<u64>, touch: Duration, allowed: Duration) {
        if let (Signal::Sample(tiny), Some(events)) = (self, events) {
            tiny.fit(events, touch, allowed);
        }
    }

    /// Number of events in the interval that just ended.
    fn events(
        &mut self,
        observed: Option<&IntervalObservation>,
        mode: WatchMode,
        tiny: Option<GranuleSample>,
    ) -> Option<u64> {
        match self {
            Signal::DataTlb(counter) => {
                let misses = counter.take();
                if misses.is_none() {
                    *self = Signal::tiny_sample();
                }
                misses
            }
            Signal::Sample(_) => {
                // Lost touches may have been in the sample: the count is unknown.
                let observed = observed.filter(|observed| observed.lost == 0)?;
                Some(tiny::events(&observed.touches, mode, tiny?))
            }
        }
    }

    /// How the working set shifted in a resting interval whose events jumped. Data-TLB misses
    /// cannot tell.
    fn moved(
        &mut self,
        events: Option<u64>,
        is_on: bool,
        is_jump: bool,
    ) -> Option<WorkingSetShift> {
        let Signal::Sample(tiny) = self else { return None };
        if is_on {
            tiny.set_known(events);
            return None;
        }
        if is_jump { tiny.moved(events) } else { None }
    }
}

/// Attaches to the tracker of `guest`; `allocation` is its size, if known.
pub(super) fn attach(
    guest: &TrackableGuest,
    allocation: Option<Bytes>,
) -> Result<TrackingSession, TrackerError> {
    let device = device();
    let device = device.as_ref().map(AsFd::as_fd);
    let paths: Vec<&str> = guest.paths.iter().map(String::as_str).collect();
    let tracking = TrackingSession::begin(guest.pid, &guest.address, &paths, device)?;
    tracking.check(allocation.map_or(0, Bytes::get))?;
    Ok(tracking)
}

/// Waits until the interval that began at `began` is `length` long. `go_on` is called ten times per
/// second and ends the wait early by returning `false`.
pub(super) fn wait_out(
    tracking: &mut TrackingSession,
    began: Instant,
    length: Duration,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<(), TrackerError> {
    while go_on() {
        let left = length.saturating_sub(began.elapsed());
        if left.is_zero() {
            break;
        }
        tracking.track_for(left.min(Duration::from_millis(100)))?;
    }
    Ok(())
}

fn u32_or_max(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn memory_of(tracking: &TrackingSession) -> Bytes {
    tracking.regions().iter().map(|region| Bytes::new(region.len)).sum()
}

/// The device that gives an unprivileged hypervisor a userfaultfd. `None`: this process may not
/// open it, so the hypervisor needs the privilege itself.
fn device() -> Option<OwnedFd> {
    let options = std::fs::OpenOptions::new().read(true).write(true).clone();
    options.open(Path::new("/dev/userfaultfd")).ok().map(OwnedFd::from)
}
