//! Tracks a guest, interval by interval.
//!
//! At the start of an interval, the session updates the regions, sets the mode if it changed, and
//! revokes permissions. During the interval it empties the ring and sends heartbeats. At the end it
//! returns the touched pages, in order, and the cost. The caller decides how to watch each
//! interval.
//!
//! The cost of an interval is the time its traps stopped the guest, and processor time of the
//! thread that revokes ([`TrackerCounters::cost_since`]).
//!
//! Cost: a wake-up eight times a second; 8 bytes per touch.
//! Limits: [`TOUCHES_MAX`] touches per interval are kept; more are counted as lost.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use ballast_tracker_proto::{
    CAPACITY_DEFAULT, RegionSpec, RingEntry, TrackerAddress, TrackerCounters, WatchMode,
};

use crate::client::{HEARTBEAT_PERIOD, TrackerClient};
use crate::error::TrackerError;
use crate::handler_placement::HandlerPlacement;
use crate::regions::{MemoryFile, RegionTable, check_sizes, memory_files_of};

/// Most touches kept per interval: 32 MiB.
pub const TOUCHES_MAX: usize = 1 << 22;
/// Most entries taken from the ring at a time.
const READ_MAX: usize = 1 << 14;

/// How an interval is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchSettings {
    /// The watched granules.
    pub mode: WatchMode,
    /// Size of the hot set, first in first out; 0: all touched granules stay accessible until the
    /// end.
    pub hot_granules: u32,
}

/// The observations of an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalObservation {
    /// Touched pages, in order, each standing for its granule; numbered as in
    /// [`TrackingSession::regions`].
    pub touches: Vec<u64>,
    /// Touches lost.
    pub lost: u64,
    /// Granules watched.
    pub granules: u64,
    /// Processor time of the tracker and lost time of the guest.
    pub cost: Duration,
    /// Length of the interval.
    pub length: Duration,
    /// How long a trap stops the guest.
    pub trap: Duration,
    /// Duration of the revocation at the start.
    pub revoked_in: Duration,
}

/// A tracked guest. Dropping it ends tracking without a trace.
#[derive(Debug)]
pub struct TrackingSession {
    client: TrackerClient,
    pid: u32,
    paths: Vec<String>,
    regions: RegionTable,
    private: u64,
    mode: Option<WatchMode>,
    hot_granules: u32,
    number: u32,
    interval: Option<CurrentInterval>,
    /// Counters at the start of the interval.
    before: TrackerCounters,
    heartbeat_at: Instant,
    placement: HandlerPlacement,
}

#[derive(Debug)]
struct CurrentInterval {
    began: Instant,
    /// Whether its start was read from the ring: entries before that belong to the previous
    /// interval.
    has_begun: bool,
    is_watched: bool,
    observed: IntervalObservation,
}

impl TrackingSession {
    /// Starts tracking the guest of process `pid`, whose tracker is at `address`; `paths` are those
    /// of file-backed memory, and `device` is an open `/dev/userfaultfd`.
    ///
    /// # Errors
    /// The tracker is missing, refuses, or is another process's, or no guest memory is shared.
    pub fn begin(
        pid: u32,
        address: &TrackerAddress,
        paths: &[&str],
        device: Option<BorrowedFd<'_>>,
    ) -> Result<TrackingSession, TrackerError> {
        let client = TrackerClient::connect(address, pid, CAPACITY_DEFAULT, device)?;
        let mut tracking = TrackingSession {
            placement: HandlerPlacement::new(pid, client.handler_tid()),
            client,
            pid,
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            regions: RegionTable::default(),
            private: 0,
            mode: None,
            hot_granules: 0,
            number: 0,
            interval: None,
            before: TrackerCounters::default(),
            heartbeat_at: Instant::now(),
        };
        tracking.update_regions()?;
        Ok(tracking)
    }

    /// The connection, for requests beside intervals.
    pub fn client(&mut self) -> &mut TrackerClient {
        &mut self.client
    }

    /// The tracked regions, with their page numbers.
    pub fn regions(&self) -> &[RegionSpec] {
        self.regions.regions()
    }

    /// Bytes of guest memory that are mapped privately and cannot be tracked.
    pub fn private_memory(&self) -> u64 {
        self.private
    }

    /// Checks that all of the guest's memory is tracked; `total` is the guest's memory by its
    /// hypervisor.
    ///
    /// # Errors
    /// [`TrackerError::PartlyShared`].
    pub fn check(&self, total: u64) -> Result<(), TrackerError> {
        check_sizes(self.regions().iter().map(|region| region.len).sum(), self.private, total)
    }

    /// Begins an interval, watched by `settings`, or resting without.
    ///
    /// # Errors
    /// The tracker is gone or refuses; then everything is accessible.
    pub fn begin_interval(&mut self, settings: Option<WatchSettings>) -> Result<(), TrackerError> {
        self.update_regions()?;
        self.drain()?;
        let mut interval = CurrentInterval {
            began: Instant::now(),
            has_begun: false,
            is_watched: settings.is_some(),
            observed: IntervalObservation::default(),
        };
        if let Some(settings) = settings {
            if self.mode != Some(settings.mode) {
                self.client.set_mode(settings.mode)?;
                self.mode = Some(settings.mode);
            }
            if self.hot_granules != settings.hot_granules {
                self.client.set_hot_set(settings.hot_granules)?;
                self.hot_granules = settings.hot_granules;
            }
            self.number = self.number.wrapping_add(1);
            self.placement.update();
            // Read before the revocation, which is part of the interval's cost.
            self.before = self.client.heartbeat()?;
            let revoked = self.client.revoke(self.number)?;
            interval.observed.granules = revoked.granules;
            interval.observed.revoked_in = revoked.took;
        } else {
            self.client.rest()?;
            self.before = self.client.heartbeat()?;
        }
        self.heartbeat_at = Instant::now();
        self.interval = Some(interval);
        Ok(())
    }

    /// Tracks for `time`.
    ///
    /// # Errors
    /// The tracker is gone or has ended tracking, with the reason.
    pub fn track_for(&mut self, time: Duration) -> Result<(), TrackerError> {
        let end = Instant::now() + time;
        loop {
            self.drain()?;
            if self.heartbeat_at.elapsed() >= HEARTBEAT_PERIOD {
                self.client.heartbeat()?;
                self.heartbeat_at = Instant::now();
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(HEARTBEAT_PERIOD / 2));
        }
    }

    /// Ends the interval and returns its observations; `None` if it was not watched.
    ///
    /// # Errors
    /// The tracker is gone or has ended tracking, with the reason.
    pub fn end_interval(&mut self) -> Result<Option<IntervalObservation>, TrackerError> {
        let counters = self.client.heartbeat()?;
        self.heartbeat_at = Instant::now();
        self.drain()?;
        let Some(interval) = self.interval.take().filter(|interval| interval.is_watched) else {
            return Ok(None);
        };
        let CurrentInterval { began, mut observed, .. } = interval;
        let is_on_same_cpu = self.placement.is_on_same_cpu();
        observed.cost = counters.cost_since(&self.before, is_on_same_cpu);
        observed.trap = Duration::from_nanos(counters.trap_ns_since(&self.before, is_on_same_cpu));
        observed.length = began.elapsed();
        // A gap appears in the ring only when there is room again, perhaps in the next interval.
        observed.lost = observed.lost.max(counters.dropped.saturating_sub(self.before.dropped));
        Ok(Some(observed))
    }

    /// Updates the regions from the hypervisor's mappings.
    fn update_regions(&mut self) -> Result<(), TrackerError> {
        while let Some(id) = self.client.take_unmapped_region() {
            self.regions.remove(id);
        }
        let paths: Vec<&str> = self.paths.iter().map(String::as_str).collect();
        let files = memory_files_of(self.pid, &paths)?;
        let (shared, private): (Vec<MemoryFile>, Vec<MemoryFile>) =
            files.into_iter().partition(|file| file.is_shared);
        self.private = private.iter().map(|file| file.len).sum();
        check_sizes(shared.iter().map(|file| file.len).sum(), self.private, 0)?;
        let changes = self.regions.update(&shared);
        for id in changes.removed {
            // The tracker may have removed the region already; its event then follows.
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

    /// Empties the ring.
    fn drain(&mut self) -> Result<(), TrackerError> {
        let (regions, number) = (&self.regions, self.number);
        let interval = &mut self.interval;
        loop {
            let read =
                self.client.read(READ_MAX, |entry| take_entry(entry, interval, number, regions))?;
            if read < READ_MAX {
                return Ok(());
            }
        }
    }
}

fn take_entry(
    entry: RingEntry,
    interval: &mut Option<CurrentInterval>,
    number: u32,
    regions: &RegionTable,
) {
    let Some(interval) = interval.as_mut().filter(|interval| interval.is_watched) else { return };
    match entry {
        RingEntry::Interval(begun) => interval.has_begun = begun == number,
        RingEntry::Touch { page, .. } if interval.has_begun && regions.has(page) => {
            if interval.observed.touches.len() < TOUCHES_MAX {
                interval.observed.touches.push(page);
            } else {
                interval.observed.lost = interval.observed.lost.saturating_add(1);
            }
        }
        RingEntry::Gap(entries) if interval.has_begun => {
            interval.observed.lost = interval.observed.lost.saturating_add(entries);
        }
        _ => {}
    }
}
