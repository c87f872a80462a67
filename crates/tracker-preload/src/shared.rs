//! The state that control thread and handler share: atomics only, so that neither blocks.
//!
//! The control thread writes settings, the handler reads them between faults; the handler counts,
//! the control thread reports. The mode spans several words: it is written while tracking rests,
//! and a generation counter tells readers whether they read a consistent one.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};
use std::time::Instant;

use ballast_tracker_proto::{Granule, GranuleSample, HashKind, WatchMode};
use rustix::io::Errno;

/// Shortest time between two checks of a silent thread.
pub(crate) const SECOND_CHECK_MS: u64 = 50;

#[derive(Default)]
pub(crate) struct HandlerCounters {
    pub(crate) traps: AtomicU64,
    pub(crate) strays: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) pages_restored: AtomicU64,
    pub(crate) retried: AtomicU64,
    pub(crate) granules_revoked: AtomicU64,
    pub(crate) hot_granules: AtomicU64,
}

/// Adds to a counter that has a single writer.
pub(crate) fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
}

/// What a thread knows about the silence of the other thread.
#[derive(Default)]
pub(crate) struct SilentWatch {
    /// How long the silence was when it was first found too long.
    first_ms: Option<u64>,
}

impl SilentWatch {
    /// Whether a silence of `silence_ms` is longer than `max_ms`, and was so [`SECOND_CHECK_MS`]
    /// before: a machine that stalls stops the other thread too.
    pub(crate) fn is_too_long(&mut self, silence_ms: u64, max_ms: u64) -> bool {
        if silence_ms <= max_ms {
            self.first_ms = None;
            return false;
        }
        let first_ms = *self.first_ms.get_or_insert(silence_ms);
        silence_ms.saturating_sub(first_ms) >= SECOND_CHECK_MS
    }

    /// Whether the last silence was too long.
    pub(crate) fn is_suspicious(&self) -> bool {
        self.first_ms.is_some()
    }
}

pub(crate) struct SharedState {
    started: Instant,
    pub(crate) counts: HandlerCounters,
    /// Whether the handler must end.
    stop: AtomicBool,
    /// 0, or the error with which the handler failed.
    failure: AtomicU32,
    /// When the control thread last reported, in milliseconds since `started`.
    control_seen_ms: AtomicU64,
    /// When the handler last reported, likewise.
    handler_seen_ms: AtomicU64,
    /// The handler's thread; 0 before it runs.
    pub(crate) handler_tid: AtomicU32,
    hot_max: AtomicU32,
    /// The interval's number; in the upper half, the number of revocations so far.
    interval: AtomicU64,
    mode: AtomicMode,
}

/// A [`WatchMode`] as atomics.
struct AtomicMode {
    generation: AtomicU32,
    granule_pages: AtomicU32,
    is_mix: AtomicU8,
    factor: AtomicU64,
    offset: AtomicU64,
    limit: AtomicU64,
}

impl SharedState {
    pub(crate) fn new(mode: WatchMode) -> SharedState {
        let shared = SharedState {
            started: Instant::now(),
            counts: HandlerCounters::default(),
            stop: AtomicBool::new(false),
            failure: AtomicU32::new(0),
            control_seen_ms: AtomicU64::new(0),
            handler_seen_ms: AtomicU64::new(0),
            handler_tid: AtomicU32::new(0),
            hot_max: AtomicU32::new(0),
            interval: AtomicU64::new(0),
            mode: AtomicMode {
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

    /// Records that the control thread is alive.
    pub(crate) fn report_alive(&self) {
        self.control_seen_ms.store(self.now_ms(), Relaxed);
    }

    /// Time since the control thread last reported.
    pub(crate) fn control_silence_ms(&self) -> u64 {
        self.now_ms().saturating_sub(self.control_seen_ms.load(Relaxed))
    }

    /// Records that the handler's thread is alive.
    pub(crate) fn report_handler_alive(&self) {
        self.handler_seen_ms.store(self.now_ms(), Relaxed);
    }

    /// Time since the handler's thread last reported.
    pub(crate) fn handler_silence_ms(&self) -> u64 {
        self.now_ms().saturating_sub(self.handler_seen_ms.load(Relaxed))
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, SeqCst);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(SeqCst)
    }

    /// Records that the handler failed. The handler sets this before it unregisters everything, and
    /// the control thread checks it after registering memory, so that nothing stays registered.
    pub(crate) fn fail(&self, error: Errno) {
        let number = crate::minor::errno(error).max(1);
        let _ = self.failure.compare_exchange(0, number, SeqCst, SeqCst);
    }

    /// The error with which the handler failed.
    pub(crate) fn failure(&self) -> Option<u32> {
        Some(self.failure.load(SeqCst)).filter(|number| *number != 0)
    }

    pub(crate) fn set_hot_max(&self, granules: u32) {
        self.hot_max.store(granules, Relaxed);
    }

    pub(crate) fn hot_max(&self) -> usize {
        self.hot_max.load(Relaxed) as usize
    }

    /// Records that a revocation begins.
    pub(crate) fn begin_interval(&self, number: u32) {
        let round = (self.interval.load(Relaxed) >> 32) + 1;
        self.interval.store(round << 32 | u64::from(number), SeqCst);
    }

    /// A value that changes with each revocation; its lower half is the interval's number.
    pub(crate) fn interval(&self) -> u64 {
        self.interval.load(SeqCst)
    }

    pub(crate) fn set_mode(&self, mode: WatchMode) {
        let cell = &self.mode;
        // Odd while the mode is being written.
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
    pub(crate) fn mode(&self) -> Option<(u32, WatchMode)> {
        let cell = &self.mode;
        let generation = cell.generation.load(SeqCst);
        let (factor, offset) = (cell.factor.load(SeqCst), cell.offset.load(SeqCst));
        let hash = match cell.is_mix.load(SeqCst) {
            0 => HashKind::MultiplyAdd { factor, offset },
            _ => HashKind::Mix { seed: factor },
        };
        let sample = GranuleSample { hash, limit: cell.limit.load(SeqCst) };
        let granule = Granule::new(cell.granule_pages.load(SeqCst)).ok()?;
        let is_whole = generation.is_multiple_of(2) && cell.generation.load(SeqCst) == generation;
        is_whole.then_some((generation, WatchMode { granule, sample }))
    }

    pub(crate) fn set_handler_tid(&self, tid: u32) {
        self.handler_tid.store(tid, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(pages: u32, seed: u64) -> WatchMode {
        let sample = GranuleSample { hash: HashKind::Mix { seed }, limit: seed };
        WatchMode { granule: Granule::new(pages).unwrap(), sample }
    }

    #[test]
    fn modes_are_read_consistently() {
        let shared = SharedState::new(mode(1, 1));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for round in 0..20_000 {
                    shared.set_mode(mode(1 << (round % 11), 1 << (round % 11)));
                }
            });
            while !writer.is_finished() {
                if let Some((_, WatchMode { granule, sample })) = shared.mode() {
                    let HashKind::Mix { seed } = sample.hash else { panic!("{sample:?}") };
                    assert_eq!((seed, sample.limit), (granule.pages(), granule.pages()));
                }
            }
        });
        // 20,000 rounds end with 19,999 % 11 = 1.
        assert_eq!(shared.mode(), Some((shared.mode_generation(), mode(2, 2))));
    }

    #[test]
    fn repeated_interval_numbers_are_distinguished() {
        let shared = SharedState::new(mode(1, 1));
        shared.begin_interval(7);
        let first = shared.interval();
        shared.begin_interval(7);
        assert_ne!(first, shared.interval());
        assert_eq!((first as u32, shared.interval() as u32), (7, 7));
    }

    #[test]
    fn a_silence_is_too_long_once_seen_twice() {
        let mut watch = SilentWatch::default();
        for (silence_ms, is_too_long) in
            [(800, false), (900, false), (920, false), (10, false), (900, false), (950, true)]
        {
            assert_eq!(watch.is_too_long(silence_ms, 800), is_too_long, "{silence_ms}");
        }
    }

    #[test]
    fn the_first_failure_is_kept() {
        let shared = SharedState::new(mode(1, 1));
        assert_eq!(shared.failure(), None);
        shared.fail(Errno::IO);
        shared.fail(Errno::NOMEM);
        assert_eq!(shared.failure(), Some(5));
    }
}
