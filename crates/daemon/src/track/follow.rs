//! One guest, interval after interval.
//!
//! Idea: the pilot says how to watch; the tracker watches so; the pilot is told what was seen and what it
//! cost. Blocking: for a thread of its own.
//!
//! While tracking rests, what tells a new phase is still seen: misses of the data TLB where the machine counts
//! them, else the touches of a [`tiny`](super::tiny) sample.
//!
//! Limits: which granules are a sample is picked by a seed and stays, so that a smaller sample is a part
//! of the larger one.

use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use ballast_host::PROC;
use ballast_model::Bytes;
use ballast_reclaim::Coldness;
use ballast_track_wire::{Granule, HashKind, Mode, RegionSpec, Sample};
use ballast_tracker::{DataTlb, Observed, Trackable, TrackerError, Tracking, Watching};
use ballast_working_set::{Finished, Pilot, PilotSettings, Watch};

use super::coldness::Looks;
use super::row::{Row, Seen};
use super::tiny::{self, Moved, Tiny};

/// How a guest is followed.
#[derive(Clone, Debug)]
pub(crate) struct FollowSettings {
    /// How long an interval is.
    pub(crate) interval: Duration,
    /// What is watched, and when.
    pub(crate) pilot: PilotSettings,
    /// Picks the sample.
    pub(crate) seed: u64,
}

/// What is known of a guest while it is not followed: worth keeping as long as its pages keep their numbers.
pub(crate) struct Remembered {
    pilot: Pilot,
    regions: Vec<RegionSpec>,
}

/// A guest that is followed. Dropped, it is as if it had never been.
pub(crate) struct Follower {
    tracking: Tracking,
    pilot: Pilot,
    signal: Signal,
    hash: HashKind,
    interval: Duration,
    began: Instant,
    intervals: Intervals,
    known: Option<Bytes>,
    looks: Looks,
    seed: u64,
}

/// What tells a new phase.
enum Signal {
    /// Misses of the data TLB, and their number at the end of the last interval.
    DataTlb(DataTlb, Option<u64>),
    /// Touches of a tiny sample.
    Sample(Tiny),
}

/// How many there were.
#[derive(Default)]
struct Intervals {
    watched: u64,
    all: u64,
}

impl Follower {
    /// Begins to follow `guest`; `allocation` is what it holds, where that is known, and `remembered`
    /// what an earlier follower of it came to.
    ///
    /// # Errors
    /// Its tracker refuses, or is not there; it holds more memory than is tracked.
    pub(crate) fn begin(
        guest: &Trackable,
        settings: &FollowSettings,
        allocation: Option<Bytes>,
        remembered: Option<Remembered>,
    ) -> Result<Follower, TrackerError> {
        let tracking = attach(guest, allocation)?;
        let allocation = allocation.unwrap_or_else(|| memory_of(&tracking));
        let same = remembered.filter(|it| it.regions == tracking.regions());
        let pilot = same.map(|remembered| remembered.pilot);
        Ok(Follower {
            pilot: pilot.unwrap_or_else(|| Pilot::new(settings.pilot.clone(), allocation)),
            signal: Signal::of(guest.pid),
            tracking,
            hash: HashKind::multiply_add(settings.seed),
            interval: settings.interval,
            began: Instant::now(),
            intervals: Intervals::default(),
            known: None,
            looks: Looks::default(),
            seed: settings.seed,
        })
    }

    /// Ends it; what was learned of the guest stays.
    pub(crate) fn end(self) -> Remembered {
        Remembered { regions: self.tracking.regions().to_vec(), pilot: self.pilot }
    }

    /// Its memory, and how it is numbered.
    pub(super) fn tracking(&self) -> &Tracking {
        &self.tracking
    }

    /// Which of its pages are cold; `None` as long as that is not known.
    pub(crate) fn coldness(&self) -> Option<Coldness> {
        self.looks.coldness(&self.pilot.order(), self.known?, self.seed)
    }

    /// From now on intervals are so long.
    pub(crate) fn set_length(&mut self, length: Duration) {
        self.interval = length;
    }

    /// Follows it for an interval; `go_on` is asked ten times a second whether to end it early. With the row
    /// come the pages touched, in order.
    ///
    /// # Errors
    /// The tracker is gone, or has given up.
    pub(crate) fn interval(
        &mut self,
        allocation: Option<Bytes>,
        go_on: impl FnMut() -> bool,
    ) -> Result<(Row, Vec<u64>), TrackerError> {
        let watch = self.pilot.watch();
        let began = Instant::now();
        let holds = allocation.unwrap_or_else(|| memory_of(&self.tracking));
        let (mode, hot_granules) = self.watching(&watch);
        let granules = holds.to_pages() / mode.granule.pages();
        let tiny = self.signal.sample(self.hash, granules, mode.sample);
        let watching = if watch.is_on {
            Some(Watching { mode, hot_granules })
        } else {
            tiny.map(|sample| Watching { mode: Mode { sample, ..mode }, hot_granules: 0 })
        };
        self.tracking.begin_interval(watching)?;
        // What was plugged in since may not be shared.
        self.tracking.check(allocation.map_or(0, Bytes::get))?;
        pass(&mut self.tracking, began, self.interval, go_on)?;
        let mut observed = self.tracking.end_interval()?;
        for page in observed.iter_mut().flat_map(|observed| &mut observed.touches) {
            // Which page of a granule came first is chance: all are told as the granule's first.
            *page = mode.granule.first_page(mode.granule.of(*page));
        }
        let length = began.elapsed();
        let cost = observed.as_ref().map_or(Duration::ZERO, |observed| observed.cost);
        let events = self.signal.events(observed.as_ref(), mode, tiny);
        // What is touched of the tiny sample says when to look on, not what the working set is.
        let observed = observed.filter(|_| watch.is_on);
        let finished = Finished {
            touches: observed.as_ref().map(|observed| observed.touches.as_slice()),
            lost: observed.as_ref().map_or(0, |observed| observed.lost),
            events,
            cost,
            length,
            allocation: holds,
        };
        let (seen, step) = self.pilot.end_interval(finished, |granule| mode.sample.has(granule));
        let is_jump = step.is_some_and(|step| step.next.is_jump());
        let moved = self.signal.moved(events, watch.is_on, is_jump);
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
        self.looks.add(mode, self.tracking.regions());
        row.seen = Some(Seen {
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

    /// What the tracker is told.
    fn watching(&self, watch: &Watch) -> (Mode, u32) {
        let pages = u32::try_from(watch.watched.granule.pages()).unwrap_or(u32::MAX);
        let granule = Granule::new(pages).unwrap_or(Granule::PAGE);
        let sample = if watch.watched.share >= 1.0 {
            Sample::ALL
        } else {
            Sample::rate(self.hash, watch.watched.share)
        };
        let hot = watch.hot.map_or(0, |granules| u32::try_from(granules).unwrap_or(u32::MAX));
        (Mode { granule, sample }, hot)
    }
}

impl Signal {
    /// The best that there is for the guest of process `pid`.
    fn of(pid: u32) -> Signal {
        match DataTlb::open(Path::new(PROC), pid) {
            Some(mut misses) => {
                let before = misses.read();
                Signal::DataTlb(misses, before)
            }
            None => Signal::Sample(Tiny::new(tiny::GRANULES)),
        }
    }

    /// What is watched in rest, of so many granules.
    fn sample(&mut self, hash: HashKind, granules: u64, larger: Sample) -> Option<Sample> {
        match self {
            Signal::DataTlb(..) => None,
            Signal::Sample(tiny) => Some(tiny.sample(hash, granules, larger)),
        }
    }

    /// How often the event happened in the interval that is over.
    fn events(
        &mut self,
        observed: Option<&Observed>,
        mode: Mode,
        tiny: Option<Sample>,
    ) -> Option<u64> {
        match self {
            Signal::DataTlb(misses, before) => {
                let now = misses.read();
                let before = std::mem::replace(before, now);
                now?.checked_sub(before?)
            }
            Signal::Sample(_) => {
                // Of touches that were lost nobody knows whose they were.
                let observed = observed.filter(|observed| observed.lost == 0)?;
                Some(tiny::events(&observed.touches, mode, tiny?))
            }
        }
    }

    /// How the memory touched has moved, in an interval of rest in which its events jumped; misses of the data
    /// TLB do not tell that.
    fn moved(&mut self, events: Option<u64>, is_on: bool, is_jump: bool) -> Option<Moved> {
        let Signal::Sample(tiny) = self else { return None };
        if is_on {
            tiny.know(events);
            return None;
        }
        if is_jump { tiny.moved(events) } else { None }
    }
}

/// Attaches to the tracker of `guest`, which holds `allocation` where that is known.
pub(super) fn attach(
    guest: &Trackable,
    allocation: Option<Bytes>,
) -> Result<Tracking, TrackerError> {
    let device = device();
    let device = device.as_ref().map(AsFd::as_fd);
    let paths: Vec<&str> = guest.paths.iter().map(String::as_str).collect();
    let tracking = Tracking::begin(guest.pid, &guest.address, &paths, device)?;
    tracking.check(allocation.map_or(0, Bytes::get))?;
    Ok(tracking)
}

/// Lets the interval that began at `began` pass until it is `length` long; `go_on` is asked ten times a
/// second whether to end it early.
pub(super) fn pass(
    tracking: &mut Tracking,
    began: Instant,
    length: Duration,
    mut go_on: impl FnMut() -> bool,
) -> Result<(), TrackerError> {
    while go_on() {
        let left = length.saturating_sub(began.elapsed());
        if left.is_zero() {
            break;
        }
        tracking.pass(left.min(Duration::from_millis(100)))?;
    }
    Ok(())
}

fn memory_of(tracking: &Tracking) -> Bytes {
    tracking.regions().iter().map(|region| Bytes::new(region.len)).sum()
}

/// The device by which a hypervisor without privileges may have a userfaultfd; `None` where this process
/// may not open it, and then the hypervisor needs the privilege itself.
fn device() -> Option<OwnedFd> {
    let options = std::fs::OpenOptions::new().read(true).write(true).clone();
    options.open(Path::new("/dev/userfaultfd")).ok().map(OwnedFd::from)
}
