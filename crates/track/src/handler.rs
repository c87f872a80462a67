//! The thread that answers faults.
//!
//! Idea: wait, read what faults there are, give each its granule back, note it in the ring; then revoke
//! what has left the hot set. Nothing here allocates, takes a lock, or loops without a bound, because
//! a virtual processor waits meanwhile; and nothing here touches memory that could be revoked.
//!
//! When a fault cannot be answered, or the control thread has not shown itself for too long, everything is
//! unregistered at once and the thread ends: better untracked than hung. It does the same however it
//! ends, by a panic too.
//!
//! Cost: three system calls a trap when they come one by one, two each when they come together.
//! Source: MEB §3.4 for the hot set.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ballast_track_wire::{Entry, Mode, PAGE_SIZE, Producer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use crate::hot_set::{HOT_MAX, Hot, HotSet};
use crate::kernel::{Answer, Extent, FAULTS_MAX, Fault, Kernel, give_back};
use crate::ring_memory::RingMemory;
use crate::shared::{Counts, Shared, add};
use crate::slots::{Inside, SLOTS};

/// How long it waits for faults before it looks after the control thread.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// How long the control thread may not show itself. It does every 100 ms, and between batches.
const CONTROL_SILENCE_MAX_MS: u64 = 1000;
/// Where it has not, it is looked after once more so soon: a machine that stood still has stopped it too.
const SECOND_LOOK_MS: u64 = 50;
const SECOND_LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Granules that leave the hot set at once.
const EVICTED_MAX: usize = 128;
/// Turns of that between two looks for faults: the hot set may have shrunk by much.
const EVICT_TURNS_MAX: usize = 8;
/// How often a fault on the same page in a row may end without it.
const RETRIES_MAX: u32 = 1000;
/// Times are noted this far apart.
const TIME_STEP_MS: u64 = 10;

/// What the thread is made of.
pub(crate) struct Handler {
    pub(crate) kernel: Arc<dyn Kernel>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) ring: Arc<RingMemory>,
    /// Readable when the thread is to end.
    pub(crate) wake: Arc<OwnedFd>,
    /// Memory of the tracker's own, on which it measures traps.
    pub(crate) probe: Extent,
}

/// The thread's own state.
struct Turn<'a> {
    handler: &'a Handler,
    producer: Producer<'a>,
    mode: Mode,
    generation: u32,
    interval: u64,
    hot: HotSet,
    /// The granule noted last: two virtual processors often touch the same one at once.
    last: Option<u64>,
    retries: u32,
    time_ms: u64,
    /// For how long the control thread had not shown itself when it was missed first.
    missed_at_ms: Option<u64>,
}

/// Restores everything when the thread ends.
struct GiveUp<'a>(&'a Handler);

impl Drop for GiveUp<'_> {
    fn drop(&mut self) {
        let Handler { kernel, shared, probe, .. } = self.0;
        if !shared.is_stopped() {
            shared.fail(Errno::CANCELED);
        }
        for extent in SLOTS.take_all_watched() {
            // An error is of memory that is gone by now.
            let _ = kernel.unwatch(extent);
        }
        let _ = kernel.unwatch(*probe);
    }
}

impl Handler {
    /// Answers faults until it is told to stop, or cannot.
    pub(crate) fn run(&self) {
        let _give_up = GiveUp(self);
        self.shared.set_handler_tid(rustix::thread::gettid().as_raw_nonzero().get() as u32);
        let Ok(producer) = Producer::new(self.ring.words()) else {
            self.shared.fail(Errno::INVAL);
            return;
        };
        let Some((generation, mode)) = self.shared.mode() else {
            self.shared.fail(Errno::INVAL);
            return;
        };
        let mut turn = Turn {
            handler: self,
            producer,
            mode,
            generation,
            interval: self.shared.interval(),
            hot: HotSet::new(HOT_MAX),
            last: None,
            retries: 0,
            time_ms: 0,
            missed_at_ms: None,
        };
        while !self.shared.is_stopped() {
            if let Err(error) = turn.take() {
                self.shared.fail(error);
                return;
            }
        }
    }
}

impl Turn<'_> {
    /// Waits for faults and answers them.
    fn take(&mut self) -> Result<(), Errno> {
        let Handler { kernel, shared, wake, .. } = self.handler;
        let mut fds = [
            PollFd::from_borrowed_fd(kernel.faults(), PollFlags::IN),
            PollFd::new(wake, PollFlags::IN),
        ];
        let wait = if self.missed_at_ms.is_some() { &SECOND_LOOK } else { &WAIT };
        match poll(&mut fds, Some(wait)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        self.look_after_control()?;
        let mut faults = [Fault::default(); FAULTS_MAX];
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

    /// Whether the control thread is still there.
    fn look_after_control(&mut self) -> Result<(), Errno> {
        let silence_ms = self.handler.shared.control_silence_ms();
        if silence_ms <= CONTROL_SILENCE_MAX_MS {
            self.missed_at_ms = None;
            return Ok(());
        }
        let missed_at_ms = *self.missed_at_ms.get_or_insert(silence_ms);
        if silence_ms.saturating_sub(missed_at_ms) < SECOND_LOOK_MS {
            Ok(())
        } else {
            Err(Errno::TIMEDOUT)
        }
    }

    /// What the control thread wants by now.
    fn reload(&mut self) {
        let shared = &self.handler.shared;
        if shared.mode_generation() != self.generation
            && let Some((generation, mode)) = shared.mode()
        {
            (self.generation, self.mode) = (generation, mode);
            // Of granules of another size, which are all accessible while the mode changes.
            self.hot.clear();
            self.last = None;
        }
        let interval = shared.interval();
        if interval != self.interval && self.producer.push(Entry::Interval(interval as u32)) {
            // All of the hot set is revoked with the rest.
            self.hot.clear();
            (self.interval, self.last) = (interval, None);
        }
        let time_ms = shared.now_ms();
        if time_ms >= self.time_ms + TIME_STEP_MS && self.producer.push(Entry::Time(time_ms)) {
            self.time_ms = time_ms;
        }
    }

    fn answer(&mut self, fault: Fault) -> Result<(), Errno> {
        let kernel: &dyn Kernel = &*self.handler.kernel;
        let counts = &self.handler.shared.counts;
        let alone = Extent::page(fault.address);
        if self.handler.probe.has(fault.address) {
            return self.judge(give_back(kernel, alone, fault.address).answer);
        }
        // Out of the slot again before it is answered, as restoring does no harm wherever it is.
        let entered = SLOTS.enter_at(fault.address);
        let place =
            entered.map(|(slot, inside)| Place::of(slot, &inside, self.mode, fault.address));
        let watched = place.as_ref().filter(|place| self.mode.sample.has(place.granule));
        // Before it is answered: when the touch is done, it has been seen.
        match watched {
            Some(place) => note(&mut self.producer, &mut self.last, counts, place, fault),
            None => add(&counts.strays, 1),
        }
        let given = match &place {
            Some(place) => give_back(kernel, place.extent, fault.address),
            None => give_back(kernel, alone, fault.address),
        };
        add(&counts.pages_restored, given.pages);
        // Where it has no room the granule keeps its permission until the next revocation.
        if let Some(place) = watched
            && given.pages > 0
            && self.handler.shared.hot_max() > 0
        {
            self.hot.push(place.hot);
        }
        self.judge(given.answer)
    }

    /// Whether it goes on after such an answer.
    fn judge(&mut self, answer: Answer) -> Result<(), Errno> {
        let counts = &self.handler.shared.counts;
        match answer {
            Answer::Resolved | Answer::Gone => self.retries = 0,
            Answer::Retried => {
                self.retries += 1;
                add(&counts.retried, 1);
                if self.retries > RETRIES_MAX {
                    return Err(Errno::AGAIN);
                }
            }
            Answer::Failed(error) => return Err(error),
        }
        Ok(())
    }

    /// Revokes what has left the hot set.
    fn evict(&mut self) {
        let hot_max = self.handler.shared.hot_max();
        if hot_max == 0 {
            self.hot.clear();
            return;
        }
        for _ in 0..EVICT_TURNS_MAX {
            let mut batch = [Extent::default(); EVICTED_MAX];
            let (mut count, mut inside): (usize, Option<(usize, Inside<'_>)>) = (0, None);
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

    /// Revokes ranges of the slot that this thread is inside of.
    fn revoke(&self, ranges: &[Extent]) {
        // Where it fails (locked memory) they keep their permission until it is all given up.
        if !ranges.is_empty() && self.handler.kernel.revoke(ranges).is_ok() {
            add(&self.handler.shared.counts.granules_revoked, ranges.len() as u64);
        }
    }
}

/// A watched granule was touched. One that was the last is being given back already: two virtual
/// processors touched it at once, or one was interrupted by a signal and came again. It cannot have been
/// revoked meanwhile, as only another that enters the hot set would make it leave.
fn note(
    producer: &mut Producer<'_>,
    last: &mut Option<u64>,
    counts: &Counts,
    place: &Place,
    fault: Fault,
) {
    if last.replace(place.granule) != Some(place.granule) {
        add(&counts.traps, 1);
        producer.push(Entry::Touch { page: place.page, is_write: fault.is_write });
    }
}

/// Where a fault was.
struct Place {
    page: u64,
    granule: u64,
    extent: Extent,
    hot: Hot,
}

impl Place {
    fn of(slot: usize, inside: &Inside<'_>, mode: Mode, address: u64) -> Place {
        let tracked = inside.tracked;
        let page = tracked.first_page + (address - tracked.extent.start) / PAGE_SIZE;
        let granule = mode.granule.of(page);
        // A region begins where a granule of any size does.
        let first = mode.granule.first_page(granule) - tracked.first_page;
        let extent = granule_extent(inside, first, mode);
        Place { page, granule, extent, hot: Hot { slot, first } }
    }
}

/// The granule that begins at page `first` of a slot, as far as the slot goes.
fn granule_extent(inside: &Inside<'_>, first: u64, mode: Mode) -> Extent {
    let whole = inside.tracked.extent;
    let start =
        whole.start.saturating_add(first.saturating_mul(PAGE_SIZE)).min(whole.end() - PAGE_SIZE);
    let len = (mode.granule.pages() * PAGE_SIZE).min(whole.end() - start);
    Extent::new(start, len)
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, BorrowedFd};
    use std::sync::Mutex;

    use ballast_track_wire::{CAPACITY_MIN, Consumer, Granule, Sample, begin};
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;
    use crate::slots::Tracked;

    /// A kernel with one fault to tell, of which restoring and reading do what the test wants.
    struct Faulty {
        waiting: OwnedFd,
        restore: fn() -> Result<u64, Errno>,
        read: fn() -> Result<usize, Errno>,
        address: u64,
        unwatched: Mutex<Vec<Extent>>,
    }

    impl Kernel for Faulty {
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

        fn read(&self, faults: &mut [Fault; FAULTS_MAX]) -> Result<usize, Errno> {
            faults[0] = Fault { address: self.address, is_write: true };
            (self.read)()
        }

        fn faults(&self) -> BorrowedFd<'_> {
            self.waiting.as_fd()
        }
    }

    /// Runs a handler whose kernel is like that until it ends by itself; says why it did.
    fn ends_by(restore: fn() -> Result<u64, Errno>, read: fn() -> Result<usize, Errno>) -> u32 {
        let extent = Extent::new(1 << 40, 64 * PAGE_SIZE);
        let slot = SLOTS.claim(Tracked { extent, first_page: 1024 }).unwrap();
        assert!(SLOTS.open(slot));
        SLOTS.set_watched(slot);
        // Of this the hypervisor itself may have a userfaultfd.
        let beside = Extent::new(1 << 42, 64 * PAGE_SIZE);
        let unregistered = SLOTS.claim(Tracked { extent: beside, first_page: 2048 }).unwrap();
        assert!(SLOTS.open(unregistered));
        let kernel = Arc::new(Faulty {
            // Always readable.
            waiting: eventfd(1, EventfdFlags::CLOEXEC).unwrap(),
            restore,
            read,
            address: extent.start + 5 * PAGE_SIZE,
            unwatched: Mutex::default(),
        });
        let mode = Mode { granule: Granule::PAGE, sample: Sample::ALL };
        let shared = Arc::new(Shared::new(mode));
        let probe = Extent::new(1 << 41, PAGE_SIZE);
        let ring = Arc::new(RingMemory::of_test(|words| begin(words, CAPACITY_MIN).unwrap()));
        let handler = Handler {
            kernel: Arc::<Faulty>::clone(&kernel),
            shared: Arc::clone(&shared),
            ring: Arc::clone(&ring),
            wake: Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap()),
            probe,
        };
        // A panic ends the thread, and is no matter of this one's.
        let _ = std::thread::spawn(move || handler.run()).join();
        SLOTS.free(slot);
        SLOTS.free(unregistered);
        let unwatched = kernel.unwatched.lock().unwrap();
        assert_eq!(*unwatched, [extent, probe]);
        assert!(Consumer::new(ring.words()).is_ok());
        shared.failure().expect("it says that it has ended")
    }

    #[test]
    fn however_it_ends_everything_is_restored() {
        let errno = |error: Errno| crate::minor::errno(error);
        let one = || Ok(1);
        assert_eq!(ends_by(|| Err(Errno::IO), one), errno(Errno::IO), "a page cannot be had");
        assert_eq!(ends_by(|| Err(Errno::AGAIN), one), errno(Errno::AGAIN), "again and again");
        assert_eq!(ends_by(|| Ok(PAGE_SIZE), || Err(Errno::BADF)), errno(Errno::BADF));
        let panics = || -> Result<usize, Errno> { panic!("on purpose") };
        assert_eq!(ends_by(|| Ok(PAGE_SIZE), panics), errno(Errno::CANCELED));
        // Nobody shows itself: this test is no control thread.
        assert_eq!(ends_by(|| Ok(PAGE_SIZE), || Ok(0)), errno(Errno::TIMEDOUT));
    }
}
