//! What the two threads of the tracker share: atomics, nothing that could be waited for.
//!
//! Idea: the control thread writes what is wanted, the handler reads it between faults; the handler
//! counts, the control thread reports. The mode is several words; it is written while tracking rests and
//! its generation is counted up around it, so that a reader knows whether what it read is of one piece.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};
use std::time::Instant;

use ballast_track_wire::{Granule, HashKind, Mode, Sample};
use rustix::io::Errno;

/// Counters of the handler.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) traps: AtomicU64,
    pub(crate) strays: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) pages_restored: AtomicU64,
    pub(crate) retried: AtomicU64,
    pub(crate) granules_revoked: AtomicU64,
    pub(crate) hot_granules: AtomicU64,
}

/// Adds to a counter that only one thread writes.
pub(crate) fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
}

/// What both threads see.
pub(crate) struct Shared {
    started: Instant,
    pub(crate) counts: Counts,
    /// The handler ends.
    stop: AtomicBool,
    /// 0, or the error for which the handler has given up.
    failure: AtomicU32,
    /// When the control thread last showed itself, in milliseconds since `started`.
    control_seen_ms: AtomicU64,
    /// The handler's thread; 0 until it runs.
    pub(crate) handler_tid: AtomicU32,
    hot_max: AtomicU32,
    /// The interval's number and, in the top half, how often there was a revocation.
    interval: AtomicU64,
    mode: ModeCell,
}

/// A [`Mode`] in atomics.
struct ModeCell {
    generation: AtomicU32,
    granule_pages: AtomicU32,
    is_mix: AtomicU8,
    factor: AtomicU64,
    offset: AtomicU64,
    limit: AtomicU64,
}

impl Shared {
    pub(crate) fn new(mode: Mode) -> Shared {
        let shared = Shared {
            started: Instant::now(),
            counts: Counts::default(),
            stop: AtomicBool::new(false),
            failure: AtomicU32::new(0),
            control_seen_ms: AtomicU64::new(0),
            handler_tid: AtomicU32::new(0),
            hot_max: AtomicU32::new(0),
            interval: AtomicU64::new(0),
            mode: ModeCell {
                generation: AtomicU32::new(0),
                granule_pages: AtomicU32::new(1),
                is_mix: AtomicU8::new(0),
                factor: AtomicU64::new(1),
                offset: AtomicU64::new(0),
                limit: AtomicU64::new(u64::MAX),
            },
        };
        shared.set_mode(mode);
        shared
    }

    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The control thread is there.
    pub(crate) fn show(&self) {
        self.control_seen_ms.store(self.now_ms(), Relaxed);
    }

    /// For how long the control thread has not been there.
    pub(crate) fn control_silence_ms(&self) -> u64 {
        self.now_ms().saturating_sub(self.control_seen_ms.load(Relaxed))
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, SeqCst);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(SeqCst)
    }

    /// The handler gives up: set before it unregisters everything, and looked at by the control thread
    /// after it has registered something, so that nothing stays registered.
    pub(crate) fn fail(&self, error: Errno) {
        let number = crate::minor::errno(error).max(1);
        let _ = self.failure.compare_exchange(0, number, SeqCst, SeqCst);
    }

    /// The error for which the handler has given up.
    pub(crate) fn failure(&self) -> Option<u32> {
        Some(self.failure.load(SeqCst)).filter(|number| *number != 0)
    }

    pub(crate) fn set_hot_max(&self, granules: u32) {
        self.hot_max.store(granules, Relaxed);
    }

    pub(crate) fn hot_max(&self) -> usize {
        self.hot_max.load(Relaxed) as usize
    }

    /// A revocation begins.
    pub(crate) fn begin_interval(&self, number: u32) {
        let round = (self.interval.load(Relaxed) >> 32) + 1;
        self.interval.store(round << 32 | u64::from(number), SeqCst);
    }

    /// Differs from that of before as soon as a revocation has begun; its lower half is the number.
    pub(crate) fn interval(&self) -> u64 {
        self.interval.load(SeqCst)
    }

    pub(crate) fn set_mode(&self, mode: Mode) {
        let cell = &self.mode;
        // Odd while it is being written.
        cell.generation.fetch_add(1, SeqCst);
        cell.granule_pages.store(mode.granule.pages() as u32, SeqCst);
        let (is_mix, factor, offset) = match mode.sample.hash {
            HashKind::MultiplyAdd { factor, offset } => (0, factor, offset),
            HashKind::Mix { seed } => (1, seed, 0),
        };
        cell.is_mix.store(is_mix, SeqCst);
        cell.factor.store(factor, SeqCst);
        cell.offset.store(offset, SeqCst);
        cell.limit.store(mode.sample.limit, SeqCst);
        cell.generation.fetch_add(1, SeqCst);
    }

    pub(crate) fn mode_generation(&self) -> u32 {
        self.mode.generation.load(Acquire)
    }

    /// The mode and its generation; `None` while it is being written.
    pub(crate) fn mode(&self) -> Option<(u32, Mode)> {
        let cell = &self.mode;
        let generation = cell.generation.load(SeqCst);
        let (factor, offset) = (cell.factor.load(SeqCst), cell.offset.load(SeqCst));
        let hash = match cell.is_mix.load(SeqCst) {
            0 => HashKind::MultiplyAdd { factor, offset },
            _ => HashKind::Mix { seed: factor },
        };
        let sample = Sample { hash, limit: cell.limit.load(SeqCst) };
        let granule = Granule::new(cell.granule_pages.load(SeqCst)).ok()?;
        let is_whole = generation.is_multiple_of(2) && cell.generation.load(SeqCst) == generation;
        is_whole.then_some((generation, Mode { granule, sample }))
    }

    pub(crate) fn set_handler_tid(&self, tid: u32) {
        self.handler_tid.store(tid, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(pages: u32, seed: u64) -> Mode {
        let sample = Sample { hash: HashKind::Mix { seed }, limit: seed };
        Mode { granule: Granule::new(pages).unwrap(), sample }
    }

    #[test]
    fn a_mode_is_read_in_one_piece() {
        let shared = Shared::new(mode(1, 1));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for round in 0..20_000 {
                    shared.set_mode(mode(1 << (round % 11), 1 << (round % 11)));
                }
            });
            while !writer.is_finished() {
                if let Some((_, Mode { granule, sample })) = shared.mode() {
                    let HashKind::Mix { seed } = sample.hash else { panic!("{sample:?}") };
                    assert_eq!((seed, sample.limit), (granule.pages(), granule.pages()));
                }
            }
        });
        // 20,000 rounds end with 19,999 % 11 = 1.
        assert_eq!(shared.mode(), Some((shared.mode_generation(), mode(2, 2))));
    }

    #[test]
    fn the_same_interval_again_is_another() {
        let shared = Shared::new(mode(1, 1));
        shared.begin_interval(7);
        let first = shared.interval();
        shared.begin_interval(7);
        assert_ne!(first, shared.interval());
        assert_eq!((first as u32, shared.interval() as u32), (7, 7));
    }

    #[test]
    fn the_first_failure_stays() {
        let shared = Shared::new(mode(1, 1));
        assert_eq!(shared.failure(), None);
        shared.fail(Errno::IO);
        shared.fail(Errno::NOMEM);
        assert_eq!(shared.failure(), Some(5));
    }
}
