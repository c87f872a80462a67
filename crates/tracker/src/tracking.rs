//! A guest's touches, interval by interval.
//!
//! Idea: at the start of an interval the regions are brought up to date, the mode is set where it
//! changed, and permission is revoked; while it lasts, the ring is emptied and the tracker hears that
//! somebody is there; at its end there are the pages touched, in order, and what it cost. How to watch
//! the next is for others to say.
//!
//! What an interval cost is the time that its traps stopped the guest for, and processor time of the thread
//! that revokes ([`Counters::cost_since`]).
//!
//! Cost: a wake-up ten times a second; 8 bytes a touch.
//! Limits: [`TOUCHES_MAX`] touches an interval are kept, more are counted as lost.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use ballast_track_wire::{Address, CAPACITY_DEFAULT, Counters, Entry, Mode, RegionSpec};

use crate::TrackerError;
use crate::client::{Client, HEARTBEAT_EVERY};
use crate::place::Place;
use crate::regions::{MemoryFile, Regions, compare, memory_files_of};

/// Most touches of an interval that are kept: 32 MiB of them.
pub const TOUCHES_MAX: usize = 1 << 22;
/// Entries taken from the ring between two looks at the clock.
const READ_MAX: usize = 1 << 14;

/// How an interval is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watching {
    /// Which granules.
    pub mode: Mode,
    /// Granules that stay accessible, first in first out; 0: all that were touched do, until the end.
    pub hot_granules: u32,
}

/// What was seen in an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Pages touched, in order, each with those of its granule; pages are numbered as in
    /// [`Tracking::regions`].
    pub touches: Vec<u64>,
    /// Touches that were seen and lost.
    pub lost: u64,
    /// Granules that were watched.
    pub granules: u64,
    /// Processor time of the tracker and lost time of the guest.
    pub cost: Duration,
    /// How long it was.
    pub length: Duration,
    /// How long a trap stops the guest.
    pub trap: Duration,
    /// How long revoking took at its start.
    pub revoked_in: Duration,
}

/// A tracked guest. Dropped, it is as if it had never been tracked.
#[derive(Debug)]
pub struct Tracking {
    client: Client,
    pid: u32,
    paths: Vec<String>,
    regions: Regions,
    private: u64,
    mode: Option<Mode>,
    hot_granules: u32,
    number: u32,
    now: Option<Now>,
    before: Counters,
    heard: Instant,
    place: Place,
}

/// The interval that is under way.
#[derive(Debug)]
struct Now {
    began: Instant,
    /// Whether its beginning was seen in the ring: what comes before is of the last.
    has_begun: bool,
    is_on: bool,
    observed: Observed,
}

impl Tracking {
    /// Begins to track the guest of process `pid`, whose tracker is at `address`; `paths` are those of
    /// its memory backends in files, and `device` an open `/dev/userfaultfd`.
    ///
    /// # Errors
    /// When the tracker is not there or refuses, or no memory of the guest is shared.
    pub fn begin(
        pid: u32,
        address: &Address,
        paths: &[&str],
        device: Option<BorrowedFd<'_>>,
    ) -> Result<Tracking, TrackerError> {
        let client = Client::connect(address, CAPACITY_DEFAULT, device)?;
        let mut tracking = Tracking {
            place: Place::new(pid, client.handler_tid()),
            client,
            pid,
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            regions: Regions::default(),
            private: 0,
            mode: None,
            hot_granules: 0,
            number: 0,
            now: None,
            before: Counters::default(),
            heard: Instant::now(),
        };
        tracking.update_regions()?;
        Ok(tracking)
    }

    /// The connection, for what is not of intervals.
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// The regions, and how their pages are numbered.
    pub fn regions(&self) -> &[RegionSpec] {
        self.regions.known()
    }

    /// Guest memory that is mapped privately, in bytes, and cannot be tracked.
    pub fn private_memory(&self) -> u64 {
        self.private
    }

    /// Compares what is tracked with `told`, the memory that the guest has by the word of its hypervisor. A
    /// working set of a part would be taken for that of all.
    ///
    /// # Errors
    /// [`TrackerError::Partly`].
    pub fn check(&self, told: u64) -> Result<(), TrackerError> {
        compare(self.regions().iter().map(|region| region.len).sum(), self.private, told)
    }

    /// Begins an interval: watched, or of rest where there is nothing said.
    ///
    /// # Errors
    /// When the tracker is gone or refuses; everything is accessible then.
    pub fn begin_interval(&mut self, watching: Option<Watching>) -> Result<(), TrackerError> {
        self.update_regions()?;
        self.drain()?;
        let mut now = Now {
            began: Instant::now(),
            has_begun: false,
            is_on: watching.is_some(),
            observed: Observed::default(),
        };
        if let Some(watching) = watching {
            if self.mode != Some(watching.mode) {
                self.client.set_mode(watching.mode)?;
                self.mode = Some(watching.mode);
            }
            if self.hot_granules != watching.hot_granules {
                self.client.set_hot_set(watching.hot_granules)?;
                self.hot_granules = watching.hot_granules;
            }
            self.number = self.number.wrapping_add(1);
            self.place.update();
            // Counts of before the revocation, which is part of what the interval costs.
            self.before = self.client.heartbeat()?;
            let revoked = self.client.revoke(self.number)?;
            now.observed.granules = revoked.granules;
            now.observed.revoked_in = revoked.took;
        } else {
            self.client.rest()?;
            self.before = self.client.heartbeat()?;
        }
        self.heard = Instant::now();
        self.now = Some(now);
        Ok(())
    }

    /// Lets `time` of the interval pass.
    ///
    /// # Errors
    /// When the tracker is gone, or has given up: with the reason.
    pub fn pass(&mut self, time: Duration) -> Result<(), TrackerError> {
        let end = Instant::now() + time;
        loop {
            self.drain()?;
            if self.heard.elapsed() >= HEARTBEAT_EVERY {
                self.client.heartbeat()?;
                self.heard = Instant::now();
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(HEARTBEAT_EVERY / 2));
        }
    }

    /// Ends the interval; `None` if none was begun, or it was of rest.
    ///
    /// # Errors
    /// When the tracker is gone, or has given up: with the reason.
    pub fn end_interval(&mut self) -> Result<Option<Observed>, TrackerError> {
        let counters = self.client.heartbeat()?;
        self.heard = Instant::now();
        self.drain()?;
        let Some(now) = self.now.take().filter(|now| now.is_on) else { return Ok(None) };
        let Now { began, mut observed, .. } = now;
        let is_beside = self.place.is_beside();
        observed.cost = counters.cost_since(&self.before, is_beside);
        observed.trap = Duration::from_nanos(counters.trap_ns_since(&self.before, is_beside));
        observed.length = began.elapsed();
        // The gap in the ring shows when there is room again, which may be in the next interval.
        observed.lost = observed.lost.max(counters.dropped.saturating_sub(self.before.dropped));
        Ok(Some(observed))
    }

    /// Brings the regions up to date with the hypervisor's mappings.
    fn update_regions(&mut self) -> Result<(), TrackerError> {
        while let Some(id) = self.client.take_gone_region() {
            self.regions.remove(id);
        }
        let paths: Vec<&str> = self.paths.iter().map(String::as_str).collect();
        let files = memory_files_of(self.pid, &paths)?;
        let (shared, private): (Vec<MemoryFile>, Vec<MemoryFile>) =
            files.into_iter().partition(|file| file.is_shared);
        self.private = private.iter().map(|file| file.len).sum();
        compare(shared.iter().map(|file| file.len).sum(), self.private, 0)?;
        let changes = self.regions.update(&shared);
        for id in changes.removed {
            // The tracker may have noticed by itself, and say so later.
            match self.client.remove_region(id) {
                Ok(()) | Err(TrackerError::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        for region in changes.added {
            if let Err(error) = self.client.add_region(region) {
                self.regions.remove(region.id);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Takes what is in the ring.
    fn drain(&mut self) -> Result<(), TrackerError> {
        let (regions, number) = (&self.regions, self.number);
        let now = &mut self.now;
        loop {
            let read = self.client.read(READ_MAX, |entry| take(entry, now, number, regions))?;
            if read < READ_MAX {
                return Ok(());
            }
        }
    }
}

fn take(entry: Entry, now: &mut Option<Now>, number: u32, regions: &Regions) {
    let Some(now) = now.as_mut().filter(|now| now.is_on) else { return };
    match entry {
        Entry::Interval(begun) => now.has_begun = begun == number,
        Entry::Touch { page, .. } if now.has_begun && regions.has(page) => {
            if now.observed.touches.len() < TOUCHES_MAX {
                now.observed.touches.push(page);
            } else {
                now.observed.lost = now.observed.lost.saturating_add(1);
            }
        }
        Entry::Gap(entries) if now.has_begun => {
            now.observed.lost = now.observed.lost.saturating_add(entries);
        }
        _ => {}
    }
}
