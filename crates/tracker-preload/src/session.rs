//! The session of one client: from its ring until the last permission is restored.
//!
//! A session owns the userfaultfd, the handler's thread and the regions. It is *active* from a
//! revocation until it rests. Regions are registered only while it is active, so a resting tracker
//! costs nothing. However a session ends, it unregisters the regions first.
//!
//! Limits: one session per process, because the slots are global.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::thread::JoinHandle;
use std::time::Instant;

use ballast_tracker_proto::{
    Granule, GranuleSample, RefusalReason, RegionSpec, TrackerCapabilities, TrackerCounters,
    TrackerRefusal, TrackerReply, WatchMode,
};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::give_way::GiveWayGuard;
use crate::handler::Handler;
use crate::kernel::{Extent, TrapMechanism};
use crate::maps;
use crate::minor::{MinorFaults, errno};
use crate::probe::TrapProbe;
use crate::ring_memory::RingMemory;
use crate::shared::{SharedState, SilentWatch, add};
use crate::slots::{SLOTS, TrackedMemory};
use crate::threads;
use crate::watched::WatchedRanges;

/// Longest silence of the handler's thread, which reports every 200 ms and with each fault. With
/// the check period of the control thread, permissions are restored within a second.
const HANDLER_SILENCE_MAX_MS: u64 = 800;

struct TrackedRegion {
    spec: RegionSpec,
    slot: usize,
    watched: WatchedRanges,
}

/// Tracking for one client.
pub(crate) struct TrackerSession {
    /// Dropped before the kernel mechanism.
    give_way: Option<GiveWayGuard>,
    kernel: Arc<MinorFaults>,
    shared: Arc<SharedState>,
    /// The ring's file: no region may be of this file.
    ring_file: ((u32, u32), u64),
    wake: Arc<OwnedFd>,
    handler: Option<JoinHandle<()>>,
    handler_silence: SilentWatch,
    probe: TrapProbe,
    mode: WatchMode,
    regions: Vec<TrackedRegion>,
    is_active: bool,
    trap_ns: u64,
    control_ns_before: u64,
}

fn refusal(reason: RefusalReason, error: Errno) -> TrackerRefusal {
    TrackerRefusal { reason, errno: errno(error) }
}

impl TrackerSession {
    /// Begins a session that writes traps to the ring in `ring`.
    pub(crate) fn begin(
        ring: OwnedFd,
        device: Option<OwnedFd>,
    ) -> Result<TrackerSession, TrackerRefusal> {
        SLOTS.forget_lateness();
        let ring = RingMemory::map(ring.as_fd())?;
        let mut kernel = MinorFaults::open(device.as_ref().map(AsFd::as_fd))?;
        let system = |error| refusal(RefusalReason::System, error);
        let probe = TrapProbe::new().map_err(system)?;
        kernel.probe_batch(probe.extent());
        let kernel = Arc::new(kernel);
        let mode = WatchMode { granule: Granule::PAGE, sample: GranuleSample::ALL };
        let shared = Arc::new(SharedState::new(mode));
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(system)?);
        let ring_file = ring.file;
        let handler = Handler {
            kernel: Arc::<MinorFaults>::clone(&kernel),
            shared: Arc::clone(&shared),
            ring: Arc::new(ring),
            wake: Arc::clone(&wake),
            probe: probe.extent(),
        };
        let thread = threads::spawn("ballast-faults", move || handler.run());
        let session = TrackerSession {
            give_way: Some(GiveWayGuard::new(kernel.faults())),
            kernel,
            shared,
            ring_file,
            wake,
            handler: Some(thread.map_err(|_| refusal(RefusalReason::System, Errno::AGAIN))?),
            handler_silence: SilentWatch::default(),
            probe,
            mode,
            regions: Vec::new(),
            is_active: false,
            trap_ns: 0,
            control_ns_before: threads::own_time_ns(),
        };
        while session.shared.handler_tid.load(Acquire) == 0 && session.failure().is_none() {
            std::thread::yield_now();
        }
        Ok(session)
    }

    /// The reply to `Attach`.
    pub(crate) fn attached(&self) -> TrackerReply {
        let batch = if self.kernel.has_batch() {
            TrackerCapabilities::BATCH
        } else {
            TrackerCapabilities(0)
        };
        let handler_tid = self.shared.handler_tid.load(Acquire);
        TrackerReply::Attached { handler_tid, capabilities: batch }
    }

    /// Records that the control thread is alive. Checks that the handler's thread is alive, and
    /// that the hypervisor has not waited for either in vain. Must be called ten times a second.
    pub(crate) fn report_alive(&mut self) {
        check_threads(&self.shared, &mut self.handler_silence);
    }

    /// The error with which the handler failed; then all permissions are restored.
    pub(crate) fn failure(&self) -> Option<u32> {
        self.shared.failure()
    }

    /// Adds a region; it is first revoked in the next interval.
    pub(crate) fn add_region(&mut self, spec: RegionSpec) -> Result<(), TrackerRefusal> {
        let pages = |it: &RegionSpec| Extent::new(it.first_page, it.pages());
        let is_taken =
            |it: &TrackedRegion| it.spec.id == spec.id || pages(&it.spec).overlaps(pages(&spec));
        if self.regions.iter().any(is_taken) {
            return Err(RefusalReason::RegionTaken.into());
        }
        // The handler writes to the ring: a fault there would never be answered.
        if (spec.device, spec.inode) == self.ring_file {
            return Err(RefusalReason::NoMapping.into());
        }
        let extent = find(&spec)?;
        let overlaps = |it: &TrackedRegion| SLOTS.extent(it.slot).overlaps(extent);
        if extent.overlaps(self.probe.extent()) || self.regions.iter().any(overlaps) {
            return Err(RefusalReason::RegionTaken.into());
        }
        let tracked = TrackedMemory { extent, first_page: spec.first_page };
        let watched = WatchedRanges::list(tracked, self.mode)?;
        let slot = SLOTS.claim(tracked).ok_or(RefusalReason::RegionTaken)?;
        let added = self.open_slot(&spec, slot, extent);
        if added.is_err() {
            SLOTS.free(slot);
        } else {
            self.regions.push(TrackedRegion { spec, slot, watched });
        }
        added
    }

    /// Opens a claimed slot, after checking that the region is still mapped where it was.
    fn open_slot(
        &self,
        spec: &RegionSpec,
        slot: usize,
        extent: Extent,
    ) -> Result<(), TrackerRefusal> {
        // Closing the slot waits until it is known whether its memory is registered.
        let inside = SLOTS.hold(slot);
        // Detects unmapping before the slot was claimed; later unmapping closes the slot.
        if find(spec)? != extent {
            return Err(RefusalReason::RegionGone.into());
        }
        let register = |error| refusal(RefusalReason::Register, error);
        if !self.kernel.watch_small(extent).map_err(register)? {
            return Err(RefusalReason::HugePages.into());
        }
        if self.is_active {
            SLOTS.set_watched(slot);
        } else {
            self.kernel.unwatch(extent).map_err(register)?;
        }
        drop(inside);
        let opened = match SLOTS.open(slot) {
            true => self.check_failure(),
            false => Err(RefusalReason::RegionGone.into()),
        };
        if opened.is_err() {
            // The session would not unregister it: it is not in the list of regions yet.
            self.unwatch(slot);
        }
        opened
    }

    pub(crate) fn remove_region(&mut self, id: u8) -> Result<(), TrackerRefusal> {
        let place = self.regions.iter().position(|region| region.spec.id == id);
        let place = place.ok_or(RefusalReason::NoRegion)?;
        let region = self.regions.remove(place);
        self.release(&region);
        Ok(())
    }

    fn release(&self, region: &TrackedRegion) {
        self.unwatch(region.slot);
        SLOTS.free(region.slot);
    }

    /// Restores the permissions of a slot's memory, if it is registered.
    fn unwatch(&self, slot: usize) {
        if let Some(extent) = SLOTS.take_watched(slot) {
            // Fails only if the memory is gone, and then nothing is registered.
            let _ = self.kernel.unwatch(extent);
        }
    }

    /// Takes the number of a region that the hypervisor has unmapped.
    pub(crate) fn take_gone(&mut self) -> Option<u8> {
        let place = self.regions.iter().position(|region| SLOTS.is_closed(region.slot))?;
        let region = self.regions.remove(place);
        self.release(&region);
        Some(region.spec.id)
    }

    /// Changes which granules are watched, from the next revocation on.
    pub(crate) fn set_mode(&mut self, mode: WatchMode) -> Result<(), TrackerRefusal> {
        let list = |region: &TrackedRegion| {
            let extent = SLOTS.extent(region.slot);
            WatchedRanges::list(TrackedMemory { extent, first_page: region.spec.first_page }, mode)
        };
        let lists = self.regions.iter().map(list).collect::<Result<Vec<_>, _>>()?;
        self.rest();
        for (region, watched) in self.regions.iter_mut().zip(lists) {
            region.watched = watched;
        }
        self.mode = mode;
        self.shared.set_mode(mode);
        Ok(())
    }

    /// Sets the size of the hot set.
    pub(crate) fn set_hot_set(&mut self, granules: u32) {
        self.shared.set_hot_max(granules.min(crate::hot_set::HOT_MAX as u32));
    }

    /// Revokes all watched granules; stops early if `go_on`, called between batches, returns false.
    pub(crate) fn revoke(
        &mut self,
        interval: u32,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<TrackerReply, TrackerRefusal> {
        let began = Instant::now();
        self.activate()?;
        self.shared.begin_interval(interval);
        let mut granules = 0;
        'regions: for region in &self.regions {
            for batch in region.watched.batches() {
                check_threads(&self.shared, &mut self.handler_silence);
                if !go_on() || self.shared.failure().is_some() {
                    break 'regions;
                }
                let Some(_inside) = SLOTS.enter(region.slot) else { continue 'regions };
                let revoked = self.kernel.revoke(batch);
                revoked.map_err(|error| refusal(RefusalReason::Revoke, error))?;
            }
            granules += region.watched.granules;
        }
        check_threads(&self.shared, &mut self.handler_silence);
        self.check_failure()?;
        let measured = self.probe.measure(&*self.kernel);
        if measured == Err(Errno::TIMEDOUT) {
            self.shared.fail(Errno::TIMEDOUT);
            self.check_failure()?;
        }
        self.trap_ns = measured.map_err(|error| refusal(RefusalReason::Revoke, error))?;
        add(&self.shared.counts.granules_revoked, granules);
        let took_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Ok(TrackerReply::Revoked { interval, granules, took_ns })
    }

    fn activate(&mut self) -> Result<(), TrackerRefusal> {
        if self.is_active {
            return self.check_failure();
        }
        let register = |error| refusal(RefusalReason::Register, error);
        self.is_active = true;
        self.kernel.watch(self.probe.extent()).map_err(register)?;
        for region in &self.regions {
            let Some(inside) = SLOTS.enter(region.slot) else { continue };
            let watched = self.kernel.watch(inside.tracked().extent);
            if let Err(error) = watched {
                drop(inside);
                self.rest();
                return Err(register(error));
            }
            // Still inside the slot, so closing it waits until this is recorded.
            SLOTS.set_watched(region.slot);
        }
        self.check_failure()
    }

    /// The handler may have failed before memory was registered; then it would not answer its
    /// faults.
    fn check_failure(&self) -> Result<(), TrackerRefusal> {
        let Some(errno) = self.failure() else { return Ok(()) };
        self.unwatch_all();
        Err(TrackerRefusal { reason: RefusalReason::Unresolved, errno })
    }

    /// Restores all permissions.
    pub(crate) fn rest(&mut self) {
        self.unwatch_all();
        self.is_active = false;
    }

    fn unwatch_all(&self) {
        for region in &self.regions {
            self.unwatch(region.slot);
        }
        // The probe's memory is always mapped, so errors do not matter.
        let _ = self.kernel.unwatch(self.probe.extent());
    }

    /// The counters so far.
    pub(crate) fn counters(&self) -> TrackerCounters {
        let counts = &self.shared.counts;
        TrackerCounters {
            traps: counts.traps.load(Relaxed),
            strays: counts.strays.load(Relaxed),
            dropped: counts.dropped.load(Relaxed),
            pages_restored: counts.pages_restored.load(Relaxed),
            retried: counts.retried.load(Relaxed),
            granules_revoked: counts.granules_revoked.load(Relaxed),
            hot_granules: counts.hot_granules.load(Relaxed),
            handler_ns: threads::time_ns(self.shared.handler_tid.load(Acquire)),
            control_ns: threads::own_time_ns().saturating_sub(self.control_ns_before),
            trap_ns: self.trap_ns,
            granules_watched: self.regions.iter().map(|region| region.watched.granules).sum(),
            regions: self.regions.len() as u64,
            is_active: u64::from(self.is_active && self.failure().is_none()),
        }
    }
}

/// See [`TrackerSession::report_alive`].
fn check_threads(shared: &SharedState, handler_silence: &mut SilentWatch) {
    shared.report_alive();
    let is_silent =
        handler_silence.is_too_long(shared.handler_silence_ms(), HANDLER_SILENCE_MAX_MS);
    if is_silent || SLOTS.is_late() {
        shared.fail(Errno::TIMEDOUT);
    }
}

fn find(spec: &RegionSpec) -> Result<Extent, TrackerRefusal> {
    let text = std::fs::read_to_string("/proc/self/maps");
    let text = text.map_err(|error| {
        refusal(RefusalReason::System, Errno::from_io_error(&error).unwrap_or(Errno::IO))
    })?;
    Ok(maps::find(&text, spec)?)
}

impl Drop for TrackerSession {
    fn drop(&mut self) {
        self.rest();
        drop(self.give_way.take());
        self.shared.stop();
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        if let Some(handler) = self.handler.take() {
            // If the handler panicked, it restored everything.
            let _ = handler.join();
        }
        for region in &self.regions {
            SLOTS.free(region.slot);
        }
    }
}
