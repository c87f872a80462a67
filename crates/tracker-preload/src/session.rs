//! What one client may have done: from its ring to its last permission restored.
//!
//! Idea: a session owns the userfaultfd, the handler's thread and the regions. It is *active* from a
//! revocation until it rests: only then are the regions registered, so that a resting tracker costs
//! nothing and hides nothing. However it ends, it unregisters the regions first, and then closes what
//! it has.
//!
//! Limits: one session in a process at a time, as its slots are the process's.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::thread::JoinHandle;
use std::time::Instant;

use ballast_track_wire::{
    Capabilities, Counters, Granule, Mode, Refusal, Refused, RegionSpec, Reply, Sample,
};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::give_way::Way;
use crate::handler::Handler;
use crate::kernel::{Extent, Kernel};
use crate::maps;
use crate::minor::{Minor, errno};
use crate::probe::Probe;
use crate::ring_memory::RingMemory;
use crate::shared::{Shared, add};
use crate::slots::{SLOTS, Tracked};
use crate::threads;
use crate::watched::Watched;

/// A region that is tracked.
struct Region {
    spec: RegionSpec,
    slot: usize,
    watched: Watched,
}

/// Tracking for one client.
pub(crate) struct Session {
    /// Goes before the kernel does.
    way: Option<Way>,
    kernel: Arc<Minor>,
    shared: Arc<Shared>,
    /// Its file, which no region may be of.
    ring_file: ((u32, u32), u64),
    wake: Arc<OwnedFd>,
    handler: Option<JoinHandle<()>>,
    probe: Probe,
    mode: Mode,
    regions: Vec<Region>,
    is_active: bool,
    trap_ns: u64,
    control_ns_before: u64,
}

fn refused(refusal: Refusal, error: Errno) -> Refused {
    Refused { refusal, errno: errno(error) }
}

fn plain(refusal: Refusal) -> Refused {
    Refused { refusal, errno: 0 }
}

impl Session {
    /// Begins one that puts traps into the ring in `ring`.
    pub(crate) fn begin(ring: OwnedFd, device: Option<OwnedFd>) -> Result<Session, Refused> {
        let ring = RingMemory::map(ring.as_fd())?;
        let mut kernel = Minor::open(device.as_ref().map(AsFd::as_fd))?;
        let system = |error| refused(Refusal::System, error);
        let probe = Probe::new().map_err(system)?;
        kernel.probe_batch(probe.extent());
        let kernel = Arc::new(kernel);
        let mode = Mode { granule: Granule::PAGE, sample: Sample::ALL };
        let shared = Arc::new(Shared::new(mode));
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(system)?);
        let ring_file = ring.file;
        let handler = Handler {
            kernel: Arc::<Minor>::clone(&kernel),
            shared: Arc::clone(&shared),
            ring: Arc::new(ring),
            wake: Arc::clone(&wake),
            probe: probe.extent(),
        };
        let thread = threads::spawn("ballast-faults", move || handler.run());
        let session = Session {
            way: Some(Way::new(kernel.faults())),
            kernel,
            shared,
            ring_file,
            wake,
            handler: Some(thread.map_err(|_| refused(Refusal::System, Errno::AGAIN))?),
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

    /// What the client is told first.
    pub(crate) fn attached(&self) -> Reply {
        let batch = if self.kernel.has_batch() { Capabilities::BATCH } else { Capabilities(0) };
        let handler_tid = self.shared.handler_tid.load(Acquire);
        Reply::Attached { handler_tid, capabilities: batch }
    }

    /// The control thread is there: to be called ten times a second.
    pub(crate) fn show(&self) {
        self.shared.show();
    }

    /// Why the handler has given up, if it has: then everything is restored.
    pub(crate) fn failure(&self) -> Option<u32> {
        self.shared.failure()
    }

    /// Tracks another region. It is revoked with the next interval.
    pub(crate) fn add_region(&mut self, spec: RegionSpec) -> Result<(), Refused> {
        let pages = |it: &RegionSpec| Extent::new(it.first_page, it.pages());
        let is_taken =
            |it: &Region| it.spec.id == spec.id || pages(&it.spec).overlaps(pages(&spec));
        if self.regions.iter().any(is_taken) {
            return Err(plain(Refusal::RegionTaken));
        }
        // Were the handler to wait for its own answer, nobody would answer.
        if (spec.device, spec.inode) == self.ring_file {
            return Err(plain(Refusal::NoMapping));
        }
        let extent = find(&spec)?;
        let is_there = |it: &Region| SLOTS.extent(it.slot).overlaps(extent);
        if extent.overlaps(self.probe.extent()) || self.regions.iter().any(is_there) {
            return Err(plain(Refusal::RegionTaken));
        }
        let tracked = Tracked { extent, first_page: spec.first_page };
        let watched = Watched::list(tracked, self.mode).map_err(plain)?;
        let slot = SLOTS.claim(tracked).ok_or(plain(Refusal::RegionTaken))?;
        let added = self.open_slot(&spec, slot, extent);
        if added.is_err() {
            SLOTS.free(slot);
        } else {
            self.regions.push(Region { spec, slot, watched });
        }
        added
    }

    /// Opens a claimed slot, once it is certain that the region is still where it was.
    fn open_slot(&self, spec: &RegionSpec, slot: usize, extent: Extent) -> Result<(), Refused> {
        // Who wants the slot closed waits until it is known whether it is registered.
        let inside = SLOTS.hold(slot);
        // What was unmapped before the slot was claimed shows here, and what is unmapped later closes
        // the slot.
        if find(spec)? != extent {
            return Err(plain(Refusal::RegionGone));
        }
        let register = |error| refused(Refusal::Register, error);
        if !self.kernel.watch_small(extent).map_err(register)? {
            return Err(plain(Refusal::HugePages));
        }
        if self.is_active {
            SLOTS.set_watched(slot);
        } else {
            self.kernel.unwatch(extent).map_err(register)?;
        }
        drop(inside);
        let opened = match SLOTS.open(slot) {
            true => self.check_failure(),
            false => Err(plain(Refusal::RegionGone)),
        };
        if opened.is_err() {
            // It is not among the regions yet, that are unregistered with the session.
            self.unwatch(slot);
        }
        opened
    }

    /// No longer tracks a region.
    pub(crate) fn remove_region(&mut self, id: u8) -> Result<(), Refused> {
        let place = self.regions.iter().position(|region| region.spec.id == id);
        let place = place.ok_or(plain(Refusal::NoRegion))?;
        let region = self.regions.remove(place);
        self.let_go(&region);
        Ok(())
    }

    fn let_go(&self, region: &Region) {
        self.unwatch(region.slot);
        SLOTS.free(region.slot);
    }

    /// Restores all permissions of a slot's memory, if it is registered.
    fn unwatch(&self, slot: usize) {
        if let Some(extent) = SLOTS.take_watched(slot) {
            // It fails where the memory is gone, and then nothing is left to unregister.
            let _ = self.kernel.unwatch(extent);
        }
    }

    /// The numbers of regions that the hypervisor has unmapped since the last call.
    pub(crate) fn take_gone(&mut self) -> Option<u8> {
        let place = self.regions.iter().position(|region| SLOTS.is_closed(region.slot))?;
        let region = self.regions.remove(place);
        self.let_go(&region);
        Some(region.spec.id)
    }

    /// Watches something else from the next revocation on.
    pub(crate) fn set_mode(&mut self, mode: Mode) -> Result<(), Refused> {
        let list = |region: &Region| {
            let extent = SLOTS.extent(region.slot);
            Watched::list(Tracked { extent, first_page: region.spec.first_page }, mode)
        };
        let lists: Result<Vec<Watched>, Refusal> = self.regions.iter().map(list).collect();
        let lists = lists.map_err(plain)?;
        self.rest();
        for (region, watched) in self.regions.iter_mut().zip(lists) {
            region.watched = watched;
        }
        self.mode = mode;
        self.shared.set_mode(mode);
        Ok(())
    }

    /// Keeps so many granules accessible.
    pub(crate) fn set_hot_set(&mut self, granules: u32) {
        self.shared.set_hot_max(granules.min(crate::hot_set::HOT_MAX as u32));
    }

    /// Revokes everything that is watched. `go_on` is asked between batches.
    pub(crate) fn revoke(
        &mut self,
        interval: u32,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Reply, Refused> {
        let began = Instant::now();
        self.activate()?;
        self.shared.begin_interval(interval);
        let mut granules = 0;
        'regions: for region in &self.regions {
            for batch in region.watched.batches() {
                self.shared.show();
                if !go_on() {
                    break 'regions;
                }
                let Some(_inside) = SLOTS.enter(region.slot) else { continue 'regions };
                let revoked = self.kernel.revoke(batch);
                revoked.map_err(|error| refused(Refusal::Revoke, error))?;
            }
            granules += region.watched.granules;
        }
        self.shared.show();
        let measured = self.probe.measure(&*self.kernel);
        self.trap_ns = measured.map_err(|error| refused(Refusal::Revoke, error))?;
        add(&self.shared.counts.granules_revoked, granules);
        let took_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Ok(Reply::Revoked { interval, granules, took_ns })
    }

    fn activate(&mut self) -> Result<(), Refused> {
        if self.is_active {
            return self.check_failure();
        }
        let register = |error| refused(Refusal::Register, error);
        self.is_active = true;
        self.kernel.watch(self.probe.extent()).map_err(register)?;
        for region in &self.regions {
            let Some(inside) = SLOTS.enter(region.slot) else { continue };
            let watched = self.kernel.watch(inside.tracked.extent);
            if let Err(error) = watched {
                drop(inside);
                self.rest();
                return Err(register(error));
            }
            // Still inside, so that nobody looks for it before.
            SLOTS.set_watched(region.slot);
        }
        self.check_failure()
    }

    /// The handler may have given up since, and would not answer what was registered after that.
    fn check_failure(&self) -> Result<(), Refused> {
        let Some(errno) = self.failure() else { return Ok(()) };
        self.unwatch_all();
        Err(Refused { refusal: Refusal::Unresolved, errno })
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
        // The probe's memory is the tracker's alone.
        let _ = self.kernel.unwatch(self.probe.extent());
    }

    /// What was done so far.
    pub(crate) fn counters(&self) -> Counters {
        let counts = &self.shared.counts;
        Counters {
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

fn find(spec: &RegionSpec) -> Result<Extent, Refused> {
    let text = std::fs::read_to_string("/proc/self/maps");
    let text = text.map_err(|error| {
        refused(Refusal::System, Errno::from_io_error(&error).unwrap_or(Errno::IO))
    })?;
    maps::find(&text, spec).map_err(plain)
}

impl Drop for Session {
    fn drop(&mut self) {
        self.rest();
        drop(self.way.take());
        self.shared.stop();
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        if let Some(handler) = self.handler.take() {
            // A panic in it has restored everything; there is nobody to tell.
            let _ = handler.join();
        }
        for region in &self.regions {
            SLOTS.free(region.slot);
        }
    }
}
