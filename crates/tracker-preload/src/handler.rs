//! The thread that answers faults.
//!
//! It waits for faults, restores the granule of each, records it in the ring, and then revokes
//! granules that have left the hot set. A virtual processor waits for the answer, so the thread
//! never allocates, takes a lock, or loops without a bound; and it never touches memory that could
//! be revoked.
//!
//! If a fault cannot be answered, or the control thread does not report for too long, the thread
//! unregisters everything and ends: an untracked guest is better than a hung one. It does the same
//! however it ends, even by a panic. If it does not go on at all, the control thread does it.
//!
//! Cost: three system calls per trap when traps come one by one, two when they come together.
//! Source: MEB §3.4 for the hot set.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ballast_tracker_proto::{PAGE_SIZE, RingEntry, RingProducer, WatchMode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use crate::hot_set::{HOT_MAX, HotGranule, HotQueue};
use crate::kernel::{Extent, FAULTS_MAX, FaultOutcome, PageFault, TrapMechanism, restore_granule};
use crate::ring_memory::RingMemory;
use crate::shared::{HandlerCounters, SECOND_CHECK_MS, SharedState, SilentWatch, add};
use crate::slots::{SLOTS, SlotGuard};

/// Longest wait for faults before the control thread is checked.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// Longest silence of the control thread, which reports every 100 ms and between batches.
const CONTROL_SILENCE_MAX_MS: u64 = 1000;
/// After that, the control thread is checked again this soon.
const SECOND_CHECK: Timespec = Timespec { tv_sec: 0, tv_nsec: SECOND_CHECK_MS as i64 * 1_000_000 };
/// Most granules evicted from the hot set at a time.
const EVICTED_MAX: usize = 128;
/// Most evictions between two reads of faults, when the hot set has shrunk.
const EVICTIONS_MAX: usize = 8;
/// Most retries of faults in a row.
const RETRIES_MAX: u32 = 1000;
/// Interval between time entries in the ring.
const TIME_STEP_MS: u64 = 10;

/// What the handler's thread works with.
pub(crate) struct Handler {
    pub(crate) kernel: Arc<dyn TrapMechanism>,
    pub(crate) shared: Arc<SharedState>,
    pub(crate) ring: Arc<RingMemory>,
    /// Readable when the thread must end.
    pub(crate) wake: Arc<OwnedFd>,
    /// The tracker's own memory, on which it measures traps.
    pub(crate) probe: Extent,
}

/// The thread's own state.
struct HandlerLoop<'a> {
    handler: &'a Handler,
    producer: RingProducer<'a>,
    mode: WatchMode,
    generation: u32,
    interval: u64,
    hot: HotQueue,
    /// The granule recorded last: two virtual processors often touch the same one at once.
    last: Option<u64>,
    retries: u32,
    time_ms: u64,
    control: SilentWatch,
}

/// Restores all permissions when the thread ends.
struct RestoreOnDrop<'a>(&'a Handler);

impl Drop for RestoreOnDrop<'_> {
    fn drop(&mut self) {
        let Handler { kernel, shared, probe, .. } = self.0;
        if !shared.is_stopped() {
            shared.fail(Errno::CANCELED);
        }
        for extent in SLOTS.take_all_watched() {
            // Fails only if the memory is gone.
            let _ = kernel.unwatch(extent);
        }
        let _ = kernel.unwatch(*probe);
    }
}

impl Handler {
    /// Answers faults until stopped, or until it fails.
    pub(crate) fn run(&self) {
        let _restore = RestoreOnDrop(self);
        self.shared.set_handler_tid(rustix::thread::gettid().as_raw_nonzero().get() as u32);
        let Ok(producer) = RingProducer::new(self.ring.words()) else {
            self.shared.fail(Errno::INVAL);
            return;
        };
        let Some((generation, mode)) = self.shared.mode() else {
            self.shared.fail(Errno::INVAL);
            return;
        };
        let mut state = HandlerLoop {
            handler: self,
            producer,
            mode,
            generation,
            interval: self.shared.interval(),
            hot: HotQueue::new(HOT_MAX),
            last: None,
            retries: 0,
            time_ms: 0,
            control: SilentWatch::default(),
        };
        while !self.shared.is_stopped() {
            if let Err(error) = state.run_once() {
                self.shared.fail(error);
                return;
            }
        }
    }
}

impl HandlerLoop<'_> {
    /// Waits for faults and answers them.
    fn run_once(&mut self) -> Result<(), Errno> {
        let Handler { kernel, shared, wake, .. } = self.handler;
        let mut fds = [
            PollFd::from_borrowed_fd(kernel.faults(), PollFlags::IN),
            PollFd::new(wake, PollFlags::IN),
        ];
        let wait = if self.control.is_suspicious() { &SECOND_CHECK } else { &WAIT };
        match poll(&mut fds, Some(wait)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        shared.report_handler_alive();
        self.check_control_thread()?;
        let mut faults = [PageFault::default(); FAULTS_MAX];
        let count = kernel.read(&mut faults)?;
        self.reload();
        for fault in &faults[..count] {
            self.answer(*fault)?;
        }
        self.evict();
        let counts = &shared.counts;
        counts.hot_granules.store(self.hot.len() as u64, Relaxed);
        counts.dropped.store(self.producer.dropped(), Relaxed);
        Ok(())
    }

    /// Fails if the control thread is silent for too long.
    fn check_control_thread(&mut self) -> Result<(), Errno> {
        let silence_ms = self.handler.shared.control_silence_ms();
        match self.control.is_too_long(silence_ms, CONTROL_SILENCE_MAX_MS) {
            true => Err(Errno::TIMEDOUT),
            false => Ok(()),
        }
    }

    /// Adopts the control thread's settings, and writes intervals and times to the ring.
    fn reload(&mut self) {
        let shared = &self.handler.shared;
        if shared.mode_generation() != self.generation
            && let Some((generation, mode)) = shared.mode()
        {
            (self.generation, self.mode) = (generation, mode);
            // Its granules may have another size, and all are accessible while the mode changes.
            self.hot.clear();
            self.last = None;
        }
        let interval = shared.interval();
        if interval != self.interval && self.producer.push(RingEntry::Interval(interval as u32)) {
            // The revocation includes the hot set.
            self.hot.clear();
            (self.interval, self.last) = (interval, None);
        }
        let time_ms = shared.now_ms();
        if time_ms >= self.time_ms + TIME_STEP_MS && self.producer.push(RingEntry::Time(time_ms)) {
            self.time_ms = time_ms;
        }
    }

    fn answer(&mut self, fault: PageFault) -> Result<(), Errno> {
        let kernel: &dyn TrapMechanism = &*self.handler.kernel;
        let counts = &self.handler.shared.counts;
        self.handler.shared.report_handler_alive();
        let alone = Extent::page(fault.address);
        if self.handler.probe.has(fault.address) {
            return self.check_outcome(restore_granule(kernel, alone, fault.address).answer);
        }
        // The slot is left before the fault is answered: restoring is harmless anywhere.
        let entered = SLOTS.enter_at(fault.address);
        let location = entered
            .map(|(slot, inside)| FaultLocation::of(slot, &inside, self.mode, fault.address));
        let watched = location.as_ref().filter(|location| self.mode.sample.has(location.granule));
        // Recorded before it is answered: a completed touch has always been seen.
        match watched {
            Some(location) => record(&mut self.producer, &mut self.last, counts, location, fault),
            None => add(&counts.strays, 1),
        }
        let restored = match &location {
            Some(location) => restore_granule(kernel, location.extent, fault.address),
            None => restore_granule(kernel, alone, fault.address),
        };
        add(&counts.pages_restored, restored.pages);
        // If the queue is full, the granule keeps its permission until the next revocation.
        if let Some(location) = watched
            && restored.pages > 0
            && self.handler.shared.hot_max() > 0
        {
            self.hot.push(location.hot);
        }
        self.check_outcome(restored.answer)
    }

    /// Fails if tracking cannot continue after this outcome.
    fn check_outcome(&mut self, answer: FaultOutcome) -> Result<(), Errno> {
        let counts = &self.handler.shared.counts;
        match answer {
            FaultOutcome::Resolved | FaultOutcome::Gone => self.retries = 0,
            FaultOutcome::Retried => {
                self.retries += 1;
                add(&counts.retried, 1);
                if self.retries > RETRIES_MAX {
                    return Err(Errno::AGAIN);
                }
            }
            FaultOutcome::Failed(error) => return Err(error),
        }
        Ok(())
    }

    /// Revokes granules that leave the hot set.
    fn evict(&mut self) {
        let hot_max = self.handler.shared.hot_max();
        if hot_max == 0 {
            self.hot.clear();
            return;
        }
        for _ in 0..EVICTIONS_MAX {
            let mut batch = [Extent::default(); EVICTED_MAX];
            let mut count = 0;
            // The slot that all granules of the batch are in, and this thread's presence inside it.
            let mut inside: Option<(usize, SlotGuard<'_>)> = None;
            while count < EVICTED_MAX
                && let Some(hot) = self.hot.pop_above(hot_max)
            {
                if inside.as_ref().is_none_or(|(slot, _)| *slot != hot.slot) {
                    self.revoke(&batch[..count]);
                    count = 0;
                    drop(inside.take());
                    inside = SLOTS.enter(hot.slot).map(|it| (hot.slot, it));
                }
                if let Some((_, inside)) = &inside {
                    batch[count] = granule_extent(inside, hot.first, self.mode);
                    count += 1;
                }
            }
            self.revoke(&batch[..count]);
            if self.hot.len() <= hot_max {
                break;
            }
        }
    }

    /// Revokes ranges of the slot that this thread has entered.
    fn revoke(&self, ranges: &[Extent]) {
        // On failure (locked memory) they stay accessible.
        if !ranges.is_empty() && self.handler.kernel.revoke(ranges).is_ok() {
            add(&self.handler.shared.counts.granules_revoked, ranges.len() as u64);
        }
    }
}

/// Records the touch of a watched granule, unless it was also the last: then two virtual processors
/// touched it at once, or one was interrupted by a signal and retried. It cannot have been revoked
/// in between, because only another granule that enters the hot set evicts it.
fn record(
    producer: &mut RingProducer<'_>,
    last: &mut Option<u64>,
    counts: &HandlerCounters,
    location: &FaultLocation,
    fault: PageFault,
) {
    if last.replace(location.granule) != Some(location.granule) {
        add(&counts.traps, 1);
        producer.push(RingEntry::Touch { page: location.page, is_write: fault.is_write });
    }
}

struct FaultLocation {
    page: u64,
    granule: u64,
    extent: Extent,
    hot: HotGranule,
}

impl FaultLocation {
    fn of(slot: usize, inside: &SlotGuard<'_>, mode: WatchMode, address: u64) -> FaultLocation {
        let tracked = inside.tracked();
        let page = tracked.first_page + (address - tracked.extent.start) / PAGE_SIZE;
        let granule = mode.granule.of(page);
        // A region's first page is aligned to granules of any size.
        let first = mode.granule.first_page(granule) - tracked.first_page;
        let extent = granule_extent(inside, first, mode);
        FaultLocation { page, granule, extent, hot: HotGranule { slot, first } }
    }
}

/// The granule that begins at page `first` of a slot, cut at the slot's end.
fn granule_extent(inside: &SlotGuard<'_>, first: u64, mode: WatchMode) -> Extent {
    let whole = inside.tracked().extent;
    let start =
        whole.start.saturating_add(first.saturating_mul(PAGE_SIZE)).min(whole.end() - PAGE_SIZE);
    let len = (mode.granule.pages() * PAGE_SIZE).min(whole.end() - start);
    Extent::new(start, len)
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, BorrowedFd};
    use std::sync::Mutex;

    use ballast_tracker_proto::{
        CAPACITY_MIN, Granule, GranuleSample, RingConsumer, initialize_ring,
    };
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;
    use crate::slots::TrackedMemory;

    /// A mechanism with one pending fault; the test chooses how restoring and reading fail.
    struct FaultyMechanism {
        waiting: OwnedFd,
        restore: fn() -> Result<u64, Errno>,
        read: fn() -> Result<usize, Errno>,
        address: u64,
        unwatched: Mutex<Vec<Extent>>,
    }

    impl TrapMechanism for FaultyMechanism {
        fn watch(&self, _: Extent) -> Result<(), Errno> {
            Ok(())
        }

        fn unwatch(&self, range: Extent) -> Result<(), Errno> {
            self.unwatched.lock().unwrap().push(range);
            Ok(())
        }

        fn revoke(&self, _: &[Extent]) -> Result<(), Errno> {
            Ok(())
        }

        fn restore(&self, _: Extent) -> Result<u64, Errno> {
            (self.restore)()
        }

        fn wake(&self, _: Extent) {}

        fn read(&self, faults: &mut [PageFault; FAULTS_MAX]) -> Result<usize, Errno> {
            faults[0] = PageFault { address: self.address, is_write: true };
            (self.read)()
        }

        fn faults(&self) -> BorrowedFd<'_> {
            self.waiting.as_fd()
        }
    }

    /// Runs a handler with such a mechanism until it ends; returns the error it reports.
    fn run_until_failure(
        restore: fn() -> Result<u64, Errno>,
        read: fn() -> Result<usize, Errno>,
    ) -> u32 {
        let extent = Extent::new(1 << 40, 64 * PAGE_SIZE);
        let slot = SLOTS.claim(TrackedMemory { extent, first_page: 1024 }).unwrap();
        assert!(SLOTS.open(slot));
        SLOTS.set_watched(slot);
        // The hypervisor may have its own userfaultfd for this memory.
        let beside = Extent::new(1 << 42, 64 * PAGE_SIZE);
        let unregistered = SLOTS.claim(TrackedMemory { extent: beside, first_page: 2048 }).unwrap();
        assert!(SLOTS.open(unregistered));
        let kernel = Arc::new(FaultyMechanism {
            // Always readable.
            waiting: eventfd(1, EventfdFlags::CLOEXEC).unwrap(),
            restore,
            read,
            address: extent.start + 5 * PAGE_SIZE,
            unwatched: Mutex::default(),
        });
        let mode = WatchMode { granule: Granule::PAGE, sample: GranuleSample::ALL };
        let shared = Arc::new(SharedState::new(mode));
        let probe = Extent::new(1 << 41, PAGE_SIZE);
        let ring =
            Arc::new(RingMemory::of_test(|words| initialize_ring(words, CAPACITY_MIN).unwrap()));
        let handler = Handler {
            kernel: Arc::<FaultyMechanism>::clone(&kernel),
            shared: Arc::clone(&shared),
            ring: Arc::clone(&ring),
            wake: Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap()),
            probe,
        };
        // A panic ends only that thread.
        let _ = std::thread::spawn(move || handler.run()).join();
        SLOTS.free(slot);
        SLOTS.free(unregistered);
        let unwatched = kernel.unwatched.lock().unwrap();
        assert_eq!(*unwatched, [extent, probe]);
        assert!(RingConsumer::new(ring.words()).is_ok());
        shared.failure().expect("the handler must report a failure")
    }

    #[test]
    fn all_permissions_are_restored_however_the_handler_ends() {
        let errno = |error: Errno| crate::minor::errno(error);
        let one = || Ok(1);
        assert_eq!(
            run_until_failure(|| Err(Errno::IO), one),
            errno(Errno::IO),
            "a page cannot be had"
        );
        assert_eq!(
            run_until_failure(|| Err(Errno::AGAIN), one),
            errno(Errno::AGAIN),
            "again and again"
        );
        assert_eq!(run_until_failure(|| Ok(PAGE_SIZE), || Err(Errno::BADF)), errno(Errno::BADF));
        let panics = || -> Result<usize, Errno> { panic!("on purpose") };
        assert_eq!(run_until_failure(|| Ok(PAGE_SIZE), panics), errno(Errno::CANCELED));
        // No control thread reports.
        assert_eq!(run_until_failure(|| Ok(PAGE_SIZE), || Ok(0)), errno(Errno::TIMEDOUT));
    }
}
