//! Steers the tracker, interval by interval.
//!
//! Idea: does the daemon's work on this thread: reads the ring during the interval, then analyses
//! it, and decides how to watch the next one. Its processor time is counted in addition to the
//! tracker's.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ballast_model::Bytes;
use ballast_tracker::{HEARTBEAT_PERIOD, TrackerClient, TrackerError};
use ballast_tracker_proto::{
    Granule, GranuleSample, HashKind, RingEntry, TrackerCounters, WatchMode,
};
use ballast_working_set::{FinishedInterval, WatchPlan};

use super::algorithm::{IntervalResult, TrackingAlgorithm};
use super::clock::ThreadTimes;
use super::running::{HandlerPlacement, RunningProgram};
use crate::machine;

/// Time between two reads of the ring, which has room for some 65,000 entries.
const READ_PERIOD: Duration = Duration::from_millis(5);
/// The greatest number of entries taken in one read; the rest waits for the next.
const ENTRIES_MAX: usize = 1 << 17;

/// The counts of a window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    /// Touches.
    pub(crate) touches: u64,
    /// How the program spent its time.
    pub(crate) spent: ThreadTimes,
    /// Number of traps.
    pub(crate) traps: u64,
    /// Touches for which there was no room in the ring.
    pub(crate) dropped: u64,
    /// Processor time of the tracker's thread that answers faults, in seconds.
    pub(crate) handler: f64,
    /// Processor time of the tracker's thread that takes commands and revokes, in seconds.
    pub(crate) control: f64,
    /// Processor time of the daemon's side, in seconds.
    pub(crate) daemon: f64,
    /// How long a trap takes by the tracker's latest measurement, in seconds.
    pub(crate) trap: f64,
    /// Its intervals.
    pub(crate) intervals: Vec<Interval>,
}

impl Window {
    /// Touches a second, in the time that other programs left to the program.
    pub(crate) fn rate(&self) -> f64 {
        self.touches as f64 / self.spent.own(self.handler).max(1e-9)
    }
}

/// Windows with tracking, added up.
pub(crate) struct Totals {
    /// Wall-clock time; and the time in which the program ran or was stopped by traps, in seconds.
    pub(crate) seconds: f64,
    own: f64,
    pub(crate) traps: f64,
    pub(crate) dropped: f64,
    /// Time that traps stopped the program, in seconds.
    pub(crate) stopped: f64,
    /// Processor time of the thread that answers faults, of the thread that revokes, and of the
    /// daemon's side, in seconds.
    pub(crate) handler: f64,
    pub(crate) control: f64,
    pub(crate) daemon: f64,
}

impl Totals {
    /// The sum of `windows`.
    pub(crate) fn of(windows: &[Window]) -> Totals {
        let sum = |figure: fn(&Window) -> f64| windows.iter().map(figure).sum::<f64>();
        Totals {
            seconds: sum(|it| it.spent.wall).max(1e-9),
            own: sum(|it| it.spent.own(it.handler)).max(1e-9),
            traps: sum(|it| it.traps as f64),
            dropped: sum(|it| it.dropped as f64),
            stopped: sum(|it| it.spent.stopped()),
            handler: sum(|it| it.handler),
            control: sum(|it| it.control),
            daemon: sum(|it| it.daemon),
        }
    }

    /// The share of its time for which the program was stopped.
    pub(crate) fn stopped_share(&self) -> f64 {
        self.stopped / self.own
    }
}

/// A finished interval.
#[derive(Clone, Debug)]
pub(crate) struct Interval {
    /// The indices of the touches in it.
    pub(crate) touches: Range<u64>,
    /// How it was watched.
    pub(crate) watch: WatchPlan,
    /// The result; `None` for an interval of rest.
    pub(crate) result: Option<IntervalResult>,
    /// The working set as known at its end.
    pub(crate) wss: Bytes,
    /// Number of traps.
    pub(crate) traps: u64,
    /// Processor time of the tracker's thread that answers faults, in seconds.
    pub(crate) handler: f64,
    /// How the program spent its time.
    pub(crate) spent: ThreadTimes,
}

impl Interval {
    /// Touches a second, in the time that other programs left to the program.
    pub(crate) fn rate(&self) -> f64 {
        let touches = self.touches.end.saturating_sub(self.touches.start);
        touches as f64 / self.spent.own(self.handler).max(1e-9)
    }
}

/// The tracker of a program in one way. Errors of all functions: the program or the tracker is
/// gone.
pub(crate) trait WayTracker {
    /// The share of granules that was watched last.
    fn share(&self) -> f64;

    /// The tracker's counters now.
    fn counters(&mut self) -> anyhow::Result<TrackerCounters>;

    /// How long a trap takes by the latest measurement between two readings, in seconds.
    fn trap(&self, before: &TrackerCounters, after: &TrackerCounters) -> f64;

    /// A window without tracking.
    fn rest(&mut self, running: &mut RunningProgram, length: Duration) -> anyhow::Result<Window>;

    /// One interval.
    fn interval(&mut self, running: &mut RunningProgram) -> anyhow::Result<Interval>;

    /// A window of `count` intervals.
    fn window(&mut self, running: &mut RunningProgram, count: u32) -> anyhow::Result<Window> {
        let daemon = machine::seconds();
        let before = self.counters()?;
        let ((from, _), clock) = (running.touches()?, running.clock()?);
        let mut intervals = Vec::new();
        for _ in 0..count {
            intervals.push(self.interval(running)?);
        }
        let ((to, _), spent) = (running.touches()?, running.clock()?.since(clock));
        let after = self.counters()?;
        let seconds = |of: fn(&TrackerCounters) -> u64| (of(&after) - of(&before)) as f64 / 1e9;
        Ok(Window {
            touches: to - from,
            spent,
            traps: after.traps - before.traps,
            dropped: after.dropped - before.dropped,
            handler: seconds(|it| it.handler_ns),
            control: seconds(|it| it.control_ns),
            daemon: machine::seconds() - daemon,
            trap: self.trap(&before, &after),
            intervals,
        })
    }
}

/// A program that the tables' own code tracks.
pub(crate) struct Steer {
    client: TrackerClient,
    algorithm: TrackingAlgorithm,
    allocation: Bytes,
    length: Duration,
    interval: u32,
    is_on: bool,
    is_on_same_cpu: bool,
    sample: GranuleSample,
    mode: Option<WatchMode>,
    pages: Vec<u64>,
    wss: Bytes,
    counters: TrackerCounters,
    /// The number of touches at the end of the last interval.
    touches: u64,
    /// When the tracker last heard from this side.
    heartbeat_at: Instant,
}

impl Steer {
    /// Begins to track a program in intervals of `length`.
    ///
    /// # Errors
    /// The tracker is missing, or refuses.
    pub(crate) fn new(
        running: &mut RunningProgram,
        algorithm: TrackingAlgorithm,
        length: Duration,
        place: HandlerPlacement,
    ) -> anyhow::Result<Steer> {
        let mut client = running.track(place)?;
        let counters = client.heartbeat()?;
        let (touches, _) = running.touches()?;
        Ok(Steer {
            client,
            algorithm,
            allocation: Bytes::new(running.bytes()),
            length,
            interval: 0,
            is_on: false,
            is_on_same_cpu: place == HandlerPlacement::Beside,
            sample: GranuleSample::ALL,
            mode: None,
            pages: Vec::new(),
            wss: Bytes::ZERO,
            counters,
            touches,
            heartbeat_at: Instant::now(),
        })
    }

    fn stop_watching(&mut self) -> anyhow::Result<()> {
        if self.is_on {
            self.client.rest()?;
        }
        self.is_on = false;
        Ok(())
    }

    /// Has the interval watched as `watch` says.
    fn begin(&mut self, watch: WatchPlan) -> anyhow::Result<()> {
        if !watch.is_on {
            return self.stop_watching();
        }
        let pages = u32::try_from(watch.watched.granule.pages())?;
        let sample = match watch.watched.share {
            share if share >= 1.0 => GranuleSample::ALL,
            share => GranuleSample::rate(HashKind::multiply_add(1), share),
        };
        let mode = WatchMode { granule: Granule::new(pages)?, sample };
        let is_new = self.mode != Some(mode);
        if is_new {
            self.client.set_mode(mode)?;
            (self.mode, self.sample) = (Some(mode), sample);
        }
        let hot = watch.hot.map_or(0, |granules| u32::try_from(granules).unwrap_or(u32::MAX));
        self.client.set_hot_set(hot)?;
        if is_new || !self.is_on || self.algorithm.revokes() {
            self.interval = self.interval.wrapping_add(1);
            self.client.revoke(self.interval)?;
        }
        self.is_on = true;
        Ok(())
    }

    /// Waits a short time, at most `left`, and keeps the tracker from giving up on this side.
    fn wait(&mut self, left: Duration) -> anyhow::Result<()> {
        std::thread::sleep(READ_PERIOD.min(left));
        if self.heartbeat_at.elapsed() >= HEARTBEAT_PERIOD {
            self.client.heartbeat()?;
            self.heartbeat_at = Instant::now();
        }
        self.read_touches()
    }

    fn read_touches(&mut self) -> anyhow::Result<()> {
        let pages = &mut self.pages;
        self.client.read(ENTRIES_MAX, |entry| {
            match entry {
                RingEntry::Touch { page, .. } => pages.push(page),
                // Touches between the end of the last interval and the revocation belong to
                // neither.
                RingEntry::Interval(_) => pages.clear(),
                _ => {}
            }
        })?;
        Ok(())
    }
}

impl WayTracker for Steer {
    fn share(&self) -> f64 {
        self.sample.share()
    }

    fn counters(&mut self) -> anyhow::Result<TrackerCounters> {
        Ok(self.client.heartbeat()?)
    }

    fn trap(&self, before: &TrackerCounters, after: &TrackerCounters) -> f64 {
        after.trap_ns_since(before, self.is_on_same_cpu) as f64 / 1e9
    }

    fn rest(&mut self, running: &mut RunningProgram, length: Duration) -> anyhow::Result<Window> {
        self.stop_watching()?;
        let ((before, began), clock) = (running.touches()?, running.clock()?);
        while began.elapsed() < length {
            self.wait(length.saturating_sub(began.elapsed()))?;
        }
        let ((after, _), spent) = (running.touches()?, running.clock()?.since(clock));
        // Touches during the rest do not belong to the next interval.
        self.touches = after;
        Ok(Window { touches: after - before, spent, ..Window::default() })
    }

    fn interval(&mut self, running: &mut RunningProgram) -> anyhow::Result<Interval> {
        let (began, clock) = (Instant::now(), running.clock()?);
        let watch = self.algorithm.watch();
        self.begin(watch)?;
        let (from, _) = running.touches()?;
        while began.elapsed() < self.length {
            self.wait(self.length.saturating_sub(began.elapsed()))?;
        }
        let counters = self.client.heartbeat()?;
        let ((to, _), spent) = (running.touches()?, running.clock()?.since(clock));
        self.read_touches()?;
        let since =
            |of: fn(&TrackerCounters) -> u64| of(&counters).saturating_sub(of(&self.counters));
        let finished = FinishedInterval {
            touches: watch.is_on.then_some(self.pages.as_slice()),
            lost: since(|it| it.dropped),
            events: Some(to - self.touches),
            cost: counters.cost_since(&self.counters, self.is_on_same_cpu),
            length: began.elapsed(),
            allocation: self.allocation,
        };
        let sample = self.sample;
        let algorithm = &mut self.algorithm;
        let result = with_heartbeats(&mut self.client, || {
            algorithm.end_interval(finished, |granule| sample.has(granule))
        })?;
        self.heartbeat_at = Instant::now();
        if let Some(result) = &result {
            self.wss = result.wss;
        }
        let (traps, handler) = (since(|it| it.traps), since(|it| it.handler_ns) as f64 / 1e9);
        (self.counters, self.touches) = (counters, to);
        self.pages.clear();
        Ok(Interval { touches: from..to, watch, result, wss: self.wss, traps, handler, spent })
    }
}

/// Does `work` and meanwhile sends the tracker signs of life: analysing hundreds of thousands of
/// touches may take longer than the silence that the tracker tolerates.
fn with_heartbeats<T>(client: &mut TrackerClient, work: impl FnOnce() -> T) -> anyhow::Result<T> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let beats = scope.spawn(|| {
            std::thread::park_timeout(HEARTBEAT_PERIOD);
            while !is_over.load(Ordering::Acquire) {
                client.heartbeat()?;
                std::thread::park_timeout(HEARTBEAT_PERIOD);
            }
            Ok::<(), TrackerError>(())
        });
        let done = work();
        is_over.store(true, Ordering::Release);
        beats.thread().unpark();
        beats.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(done)
    })
}
