//! Steering the tracker in one way, interval by interval.
//!
//! Idea: what the daemon does, on this thread: read the ring while the interval lasts, then analyse it,
//! and say how the next one is watched. Its processor time is counted beside the tracker's.

use std::time::{Duration, Instant};

use ballast_estimate::hot_set::{HotSet, HotSetInput};
use ballast_estimate::phase::{
    Intermittent, IntermittentSettings, Interval, Mode as Thresholds, Threshold,
};
use ballast_model::Bytes;
use ballast_mrc::{Aging, Avl, Counted, Curve, Engine, EngineName, Form, Granularity, List};
use ballast_track_wire::{Counters, Entry, Granule, HashKind, Mode, Sample};
use ballast_tracker::{Client, HEARTBEAT_EVERY};
use ballast_working_set::{Finished, Pilot, PilotSettings, Watch};

use super::subject::Running;
use super::way::Way;
use crate::bench::machine;

/// Time between two looks into the ring: it has room for some 65,000 entries.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Entries taken in one look at most; the rest waits for the next.
const ENTRIES_MAX: usize = 1 << 17;
/// Pages of one tag of list and tree (MEB §3.1.2).
const TAG_PAGES: u64 = 32;
/// The threshold of events where it is fixed, the middle of MEB Table II.
const THRESHOLD: f64 = 0.2;
/// The hot set where it does not change, in pages: what a dynamic one begins with.
const HOT_SET: u64 = 1024;

/// What happened in a window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    /// Touches a second.
    pub(super) rate: f64,
    /// Length, in seconds.
    pub(super) seconds: f64,
    /// Traps in it.
    pub(super) traps: u64,
    /// Touches that found the ring full.
    pub(super) dropped: u64,
    /// Processor time of the tracker's threads, in seconds.
    pub(super) tracker: f64,
    /// Processor time of the daemon's side, in seconds.
    pub(super) daemon: f64,
    /// Intervals, and those of them that were tracked.
    pub(super) intervals: u32,
    pub(super) tracked: u32,
    /// The working set at its end, in bytes.
    pub(super) wss: u64,
    /// The share of pages watched at its end.
    pub(super) share: f64,
}

/// A tracked program.
pub(super) struct Steer {
    client: Client,
    brain: Brain,
    allocation: Bytes,
    length: Duration,
    interval: u32,
    is_on: bool,
    sample: Sample,
    mode: Option<Mode>,
    pages: Vec<u64>,
    wss: Bytes,
    counters: Counters,
    /// When the tracker last heard of this side.
    heard: Instant,
}

/// What makes a working set of touches, and says how to go on.
enum Brain {
    Every(Box<Every>),
    Sampled(Box<Pilot>),
}

/// Every page, as MEB has it.
struct Every {
    engine: Box<dyn Engine>,
    aging: Aging,
    hot: Option<HotSet>,
    phase: Option<Intermittent>,
}

impl Steer {
    pub(super) fn new(running: &Running, way: Way) -> anyhow::Result<Steer> {
        let mut client = running.track()?;
        let counters = client.heartbeat()?;
        let allocation = Bytes::new(running.bytes());
        Ok(Steer {
            client,
            brain: Brain::new(way, allocation),
            allocation,
            length: way.interval(),
            interval: 0,
            is_on: false,
            sample: Sample::ALL,
            mode: None,
            pages: Vec::new(),
            wss: Bytes::ZERO,
            counters,
            heard: Instant::now(),
        })
    }

    /// A window without tracking.
    pub(super) fn rest(
        &mut self,
        running: &mut Running,
        length: Duration,
    ) -> anyhow::Result<Window> {
        self.client.rest()?;
        self.is_on = false;
        let (before, began) = running.touches()?;
        while began.elapsed() < length {
            self.wait(length.saturating_sub(began.elapsed()))?;
        }
        let (after, ended) = running.touches()?;
        let seconds = (ended - began).as_secs_f64();
        Ok(Window { rate: (after - before) as f64 / seconds, seconds, ..Window::default() })
    }

    /// A window of so many intervals.
    pub(super) fn window(
        &mut self,
        running: &mut Running,
        intervals: u32,
    ) -> anyhow::Result<Window> {
        let daemon = machine::seconds();
        let counters = self.client.heartbeat()?;
        let (before, began) = running.touches()?;
        let mut window = Window { intervals, ..Window::default() };
        let mut events = before;
        for _ in 0..intervals {
            window.tracked += u32::from(self.interval(running, &mut events)?);
        }
        let (after, ended) = running.touches()?;
        let end = self.client.heartbeat()?;
        window.seconds = (ended - began).as_secs_f64();
        window.rate = (after - before) as f64 / window.seconds;
        window.traps = end.traps - counters.traps;
        window.dropped = end.dropped - counters.dropped;
        let threads = |counters: Counters| counters.handler_ns + counters.control_ns;
        window.tracker = (threads(end) - threads(counters)) as f64 / 1e9;
        window.daemon = machine::seconds() - daemon;
        window.wss = self.wss.get();
        window.share = self.sample.share();
        Ok(window)
    }

    /// One interval; whether it was tracked.
    fn interval(&mut self, running: &mut Running, events: &mut u64) -> anyhow::Result<bool> {
        let began = Instant::now();
        let watch = self.brain.watch();
        self.begin(watch)?;
        while began.elapsed() < self.length {
            self.wait(self.length.saturating_sub(began.elapsed()))?;
        }
        let counters = self.client.heartbeat()?;
        self.look()?;
        let spent = |of: fn(&Counters) -> u64| of(&counters).saturating_sub(of(&self.counters));
        let stalls = spent(|it| it.traps + it.strays).saturating_mul(counters.trap_ns);
        let finished = Finished {
            touches: watch.is_on.then_some(self.pages.as_slice()),
            lost: spent(|it| it.dropped),
            events: {
                let (count, _) = running.touches()?;
                Some(count - std::mem::replace(events, count))
            },
            cost: Duration::from_nanos(stalls + spent(|it| it.control_ns)),
            length: began.elapsed(),
            allocation: self.allocation,
        };
        let sample = self.sample;
        if let Some(wss) = self.brain.end_interval(finished, |granule| sample.has(granule)) {
            self.wss = wss;
        }
        self.counters = counters;
        self.pages.clear();
        Ok(watch.is_on)
    }

    /// Has the interval watched as wanted.
    fn begin(&mut self, watch: Watch) -> anyhow::Result<()> {
        if !watch.is_on {
            if self.is_on {
                self.client.rest()?;
            }
            self.is_on = false;
            return Ok(());
        }
        let pages = u32::try_from(watch.watched.granule.pages())?;
        let sample = Sample::rate(HashKind::multiply_add(1), watch.watched.share);
        let mode = Mode { granule: Granule::new(pages)?, sample };
        let is_new = self.mode != Some(mode);
        if is_new {
            self.client.set_mode(mode)?;
            (self.mode, self.sample) = (Some(mode), sample);
        }
        let hot = watch.hot.map_or(0, |granules| u32::try_from(granules).unwrap_or(u32::MAX));
        self.client.set_hot_set(hot)?;
        // What is not hot is revoked already where everything is watched.
        if is_new || !self.is_on || matches!(self.brain, Brain::Sampled(_)) {
            self.interval = self.interval.wrapping_add(1);
            self.client.revoke(self.interval)?;
        }
        self.is_on = true;
        Ok(())
    }

    /// Waits a little, but not longer than `left`, with the tracker kept awake.
    fn wait(&mut self, left: Duration) -> anyhow::Result<()> {
        std::thread::sleep(LOOK_EVERY.min(left));
        if self.heard.elapsed() >= HEARTBEAT_EVERY {
            self.client.heartbeat()?;
            self.heard = Instant::now();
        }
        self.look()
    }

    fn look(&mut self) -> anyhow::Result<()> {
        let pages = &mut self.pages;
        self.client.read(ENTRIES_MAX, |entry| {
            if let Entry::Touch { page, .. } = entry {
                pages.push(page);
            }
        })?;
        Ok(())
    }
}

impl Brain {
    fn new(way: Way, allocation: Bytes) -> Brain {
        let rest = way.rests().then(|| match way {
            Way::Fixed => IntermittentSettings {
                mode: Threshold::new(THRESHOLD).map_or(Thresholds::Adaptive, Thresholds::Fixed),
                ..IntermittentSettings::default()
            },
            _ => IntermittentSettings::default(),
        });
        if way.is_sampled() {
            let settings = PilotSettings { rest, ..PilotSettings::default() };
            return Brain::Sampled(Box::new(Pilot::new(settings, allocation)));
        }
        let engine: Box<dyn Engine> = match way {
            Way::List | Way::HotList => Box::new(Counted::new(EngineName::List, List::new())),
            _ => Box::new(Counted::new(EngineName::Avl, Avl::new())),
        };
        let is_dynamic = !matches!(way, Way::List | Way::Avl);
        Brain::Every(Box::new(Every {
            engine,
            aging: Aging::default(),
            hot: is_dynamic.then(HotSet::default),
            phase: rest.map(Intermittent::new),
        }))
    }

    fn watch(&self) -> Watch {
        match self {
            Brain::Sampled(pilot) => pilot.watch(),
            Brain::Every(every) => Watch {
                is_on: every.phase.as_ref().is_none_or(Intermittent::is_tracking),
                watched: ballast_working_set::Watched::ALL,
                hot: Some(every.hot.as_ref().map_or(HOT_SET, HotSet::pages)),
            },
        }
    }

    /// The working set, if the interval told it.
    fn end_interval(&mut self, finished: Finished<'_>, has: impl Fn(u64) -> bool) -> Option<Bytes> {
        match self {
            Brain::Sampled(pilot) => {
                pilot.end_interval(finished, has).0.map(|seen| seen.report.working_set)
            }
            Brain::Every(every) => every.end_interval(finished),
        }
    }
}

impl Every {
    fn end_interval(&mut self, finished: Finished<'_>) -> Option<Bytes> {
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
            phase.observe(Interval { wss, events: finished.events });
        }
        wss
    }
}
