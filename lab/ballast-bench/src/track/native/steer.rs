//! Steering the tracker, interval by interval.
//!
//! Idea: what the daemon does, on this thread: read the ring while the interval lasts, then analyse it,
//! and say how the next one is watched. Its processor time is counted beside the tracker's.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ballast_model::Bytes;
use ballast_track_wire::{Counters, Entry, Granule, HashKind, Mode, Sample};
use ballast_tracker::{Client, HEARTBEAT_EVERY, TrackerError};
use ballast_working_set::{Finished, Watch};

use super::brain::{Brain, Told};
use super::clock::Spent;
use super::running::{Place, Running};
use crate::bench::machine;

/// Time between two looks into the ring: it has room for some 65,000 entries.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Entries taken in one look at most; the rest waits for the next.
const ENTRIES_MAX: usize = 1 << 17;

/// What happened in a window.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Window {
    /// Touches.
    pub(in super::super) touches: u64,
    /// Where the program's time went.
    pub(in super::super) spent: Spent,
    /// Traps in it.
    pub(in super::super) traps: u64,
    /// Touches that found the ring full.
    pub(in super::super) dropped: u64,
    /// Processor time of the tracker's thread that answers faults, in seconds.
    pub(in super::super) handler: f64,
    /// That of the one that takes commands and revokes.
    pub(in super::super) control: f64,
    /// Processor time of the daemon's side, in seconds.
    pub(in super::super) daemon: f64,
    /// How long a trap takes, as the tracker measured it last, in seconds.
    pub(in super::super) trap: f64,
    /// Its intervals.
    pub(in super::super) intervals: Vec<Interval>,
}

impl Window {
    /// Touches a second, of the time that others left to the program.
    pub(in super::super) fn rate(&self) -> f64 {
        self.touches as f64 / self.spent.own(self.handler).max(1e-9)
    }
}

/// An interval that is over.
#[derive(Clone, Debug)]
pub(in super::super) struct Interval {
    /// The numbers of the touches in it.
    pub(in super::super) touches: Range<u64>,
    /// How it was watched.
    pub(in super::super) watch: Watch,
    /// What it told; nothing where it was of rest.
    pub(in super::super) told: Option<Told>,
    /// The working set as it stands at its end.
    pub(in super::super) wss: Bytes,
    /// Traps in it.
    pub(in super::super) traps: u64,
    /// Processor time of the tracker's thread that answers faults, in seconds.
    pub(in super::super) handler: f64,
    /// Where the program's time went.
    pub(in super::super) spent: Spent,
}

impl Interval {
    /// Touches a second, of the time that others left to the program.
    pub(in super::super) fn rate(&self) -> f64 {
        let touches = self.touches.end.saturating_sub(self.touches.start);
        touches as f64 / self.spent.own(self.handler).max(1e-9)
    }
}

/// A tracked program.
pub(in super::super) struct Steer {
    client: Client,
    brain: Brain,
    allocation: Bytes,
    length: Duration,
    interval: u32,
    is_on: bool,
    is_beside: bool,
    sample: Sample,
    mode: Option<Mode>,
    pages: Vec<u64>,
    wss: Bytes,
    counters: Counters,
    /// The count of touches at the end of the last interval.
    touches: u64,
    /// When the tracker last heard of this side.
    heard: Instant,
}

impl Steer {
    /// Begins to track a program in intervals of `length`.
    ///
    /// # Errors
    /// The tracker is not there, or refuses.
    pub(in super::super) fn new(
        running: &mut Running,
        brain: Brain,
        length: Duration,
        place: Place,
    ) -> anyhow::Result<Steer> {
        let mut client = running.track(place)?;
        let counters = client.heartbeat()?;
        let (touches, _) = running.touches()?;
        Ok(Steer {
            client,
            brain,
            allocation: Bytes::new(running.bytes()),
            length,
            interval: 0,
            is_on: false,
            is_beside: place == Place::Beside,
            sample: Sample::ALL,
            mode: None,
            pages: Vec::new(),
            wss: Bytes::ZERO,
            counters,
            touches,
            heard: Instant::now(),
        })
    }

    /// The share of granules that is watched.
    pub(in super::super) fn share(&self) -> f64 {
        self.sample.share()
    }

    /// A window without tracking.
    ///
    /// # Errors
    /// The program or the tracker is gone.
    pub(in super::super) fn rest(
        &mut self,
        running: &mut Running,
        length: Duration,
    ) -> anyhow::Result<Window> {
        if self.is_on {
            self.client.rest()?;
        }
        self.is_on = false;
        let ((before, began), clock) = (running.touches()?, running.clock()?);
        while began.elapsed() < length {
            self.wait(length.saturating_sub(began.elapsed()))?;
        }
        let ((after, _), spent) = (running.touches()?, running.clock()?.since(clock));
        // What happens meanwhile is not of the next interval.
        self.touches = after;
        Ok(Window { touches: after - before, spent, ..Window::default() })
    }

    /// A window of so many intervals.
    ///
    /// # Errors
    /// The program or the tracker is gone.
    pub(in super::super) fn window(
        &mut self,
        running: &mut Running,
        intervals: u32,
    ) -> anyhow::Result<Window> {
        let daemon = machine::seconds();
        let counters = self.client.heartbeat()?;
        let ((before, _), clock) = (running.touches()?, running.clock()?);
        let mut seen = Vec::new();
        for _ in 0..intervals {
            seen.push(self.interval(running)?);
        }
        let ((after, _), spent) = (running.touches()?, running.clock()?.since(clock));
        let end = self.client.heartbeat()?;
        let seconds = |of: fn(&Counters) -> u64| (of(&end) - of(&counters)) as f64 / 1e9;
        Ok(Window {
            touches: after - before,
            spent,
            traps: end.traps - counters.traps,
            dropped: end.dropped - counters.dropped,
            handler: seconds(|it| it.handler_ns),
            control: seconds(|it| it.control_ns),
            daemon: machine::seconds() - daemon,
            trap: end.trap_ns_since(&counters, self.is_beside) as f64 / 1e9,
            intervals: seen,
        })
    }

    /// One interval.
    fn interval(&mut self, running: &mut Running) -> anyhow::Result<Interval> {
        let (began, clock) = (Instant::now(), running.clock()?);
        let watch = self.brain.watch();
        self.begin(watch)?;
        let (from, _) = running.touches()?;
        while began.elapsed() < self.length {
            self.wait(self.length.saturating_sub(began.elapsed()))?;
        }
        let counters = self.client.heartbeat()?;
        let ((to, _), spent) = (running.touches()?, running.clock()?.since(clock));
        self.look()?;
        let since = |of: fn(&Counters) -> u64| of(&counters).saturating_sub(of(&self.counters));
        let finished = Finished {
            touches: watch.is_on.then_some(self.pages.as_slice()),
            lost: since(|it| it.dropped),
            events: Some(to - self.touches),
            cost: counters.cost_since(&self.counters, self.is_beside),
            length: began.elapsed(),
            allocation: self.allocation,
        };
        let sample = self.sample;
        let brain = &mut self.brain;
        let told = heard_meanwhile(&mut self.client, || {
            brain.end_interval(finished, |granule| sample.has(granule))
        })?;
        self.heard = Instant::now();
        if let Some(told) = &told {
            self.wss = told.wss;
        }
        let (traps, handler) = (since(|it| it.traps), since(|it| it.handler_ns) as f64 / 1e9);
        (self.counters, self.touches) = (counters, to);
        self.pages.clear();
        Ok(Interval { touches: from..to, watch, told, wss: self.wss, traps, handler, spent })
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
        let sample = match watch.watched.share {
            share if share >= 1.0 => Sample::ALL,
            share => Sample::rate(HashKind::multiply_add(1), share),
        };
        let mode = Mode { granule: Granule::new(pages)?, sample };
        let is_new = self.mode != Some(mode);
        if is_new {
            self.client.set_mode(mode)?;
            (self.mode, self.sample) = (Some(mode), sample);
        }
        let hot = watch.hot.map_or(0, |granules| u32::try_from(granules).unwrap_or(u32::MAX));
        self.client.set_hot_set(hot)?;
        if is_new || !self.is_on || self.brain.revokes() {
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
            match entry {
                Entry::Touch { page, .. } => pages.push(page),
                // What came between the end of the last interval and the revocation is of neither.
                Entry::Interval(_) => pages.clear(),
                _ => {}
            }
        })?;
        Ok(())
    }
}

/// Does `work`, and lets the tracker hear of this side as long as it takes: hundreds of thousands of touches
/// may take longer than it bears with silence.
fn heard_meanwhile<T>(client: &mut Client, work: impl FnOnce() -> T) -> anyhow::Result<T> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let beats = scope.spawn(|| {
            std::thread::park_timeout(HEARTBEAT_EVERY);
            while !is_over.load(Ordering::Acquire) {
                client.heartbeat()?;
                std::thread::park_timeout(HEARTBEAT_EVERY);
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
