//! Estimates the page cache that a guest needs, from what it reads from its disks.
//!
//! Idea: page cache counts as available, so memory in use does not show that a program lives on it.
//! But a guest whose cache is too small reads from its disks what it has read before. The
//! hypervisor counts reads, not addresses, so a first read and a repeated one look alike. Two signs
//! tell them apart well enough:
//!
//! - A copy, a backup or a scan reads in order, and its kernel reads ahead: 128 KiB and more a
//!   request. A program that returns to its data reads in small requests. So of `b` bytes in `n`
//!   requests, `b × (1 − b / (n × 128 KiB))` count: nearly all if requests have a page, nothing if
//!   they are as large as read-ahead makes them. Swap-ins are small requests too, and are deducted.
//! - A guest that has free memory does not lack cache, whatever it reads. One that leaves memory
//!   free for half a minute while it reads does not read through its cache.
//!
//! A guest that reads so, and has no free memory, needs the cache that it has, and what it would
//! read in the next seconds. Where it reads no more, its cache is large enough, but how much of it
//! is needed does not show. So the need then falls by a sixteenth a pause, until the guest reads
//! again: by then its kernel has dropped what was touched least. Each time that forgetting was
//! wrong the pause doubles, as in ESX a guest's idle memory is taken slowly and returned at once.
//!
//! If an agent reports refaults (files read again soon after their eviction), those count instead
//! of small requests, but no more than was read.
//!
//! Cost: O(1) per reading. Source: ours. Geiger (Jones et al., ASPLOS 2006) finds evictions by the
//! addresses of disk requests, which stock hypervisors do not show.
//! Limits: a file mapped into memory is read in large requests, so lack of cache for it shows only
//! where an agent reports refaults. A program that reads small parts of new files at random is
//! taken for one that lacks cache. Both harm nobody else, because the need is met only from memory
//! that no guest uses, first within the guest's own share (`needs.rs` of control). The need is
//! lost when the daemon restarts, and shows again once the guest reads.

use std::time::Duration;

use ballast_model::{Bytes, DiskReads};

/// Linux reads ahead at most this much by default (`read_ahead_kb`), and sequential readers get
/// there within a few requests.
const READ_AHEAD: Bytes = Bytes::kib(128);

/// Fewer reads a second are no sign of need: a slow disk manages 75 random requests of 4 KiB.
const READS_MIN_PER_S: Bytes = Bytes::kib(256);

/// A guest with more free memory does not lack cache: twice what a Linux kernel keeps free in a
/// guest of some GiB, or [`FREE_PART`] of a larger guest's memory.
const FREE_MAX: Bytes = Bytes::mib(128);

/// A Linux kernel's high watermark is up to three thousandths of all memory.
const FREE_PART: u64 = 256;

/// A guest that reads fills free memory within this time, if it reads through its cache.
const FILL_TIME: Duration = Duration::from_secs(30);

/// What the guest would read in this time is needed too: as for swap (`swap_need.rs`).
const HORIZON: Duration = Duration::from_secs(8);

/// Part of the need that is forgotten after a pause without reads: with the first pause, half of it
/// in eleven minutes.
const FORGET_PART: u64 = 16;

/// The first pause before a part of the need is forgotten.
const PAUSE: Duration = Duration::from_secs(60);

/// The longest pause: after a quarter of an hour a guest's load may have changed.
const PAUSE_MAX: Duration = Duration::from_secs(960);

/// So many parts forgotten without harm make the next pause a first one again.
const HARMLESS_MIN: u32 = 4;

/// Between two readings of one guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheReading {
    /// What was read from its disks for lack of cache.
    pub reads: Bytes,
    /// Its page cache.
    pub cache: Bytes,
    /// Its free memory.
    pub free: Bytes,
    /// The most memory that it can have.
    pub memory: Bytes,
    /// The longest time that there can have been between the readings; more than zero.
    pub interval: Duration,
}

/// How much page cache one guest needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheNeed {
    need: Bytes,
    /// For how long it has not lacked cache since a part was last forgotten.
    quiet: Duration,
    /// For how long it has left memory free while it read.
    unfilled: Duration,
    /// The cache that it had when it left memory free for too long: more is no use.
    futile: Option<Bytes>,
    pause: Duration,
    /// Parts forgotten since it last read much.
    forgotten: u32,
}

impl Default for CacheNeed {
    fn default() -> Self {
        CacheNeed {
            need: Bytes::ZERO,
            quiet: Duration::ZERO,
            unfilled: Duration::ZERO,
            futile: None,
            pause: PAUSE,
            forgotten: 0,
        }
    }
}

impl CacheNeed {
    /// Page cache that the guest needs.
    pub fn get(self) -> Bytes {
        self.need
    }

    /// Takes in a reading.
    pub fn update(&mut self, reading: CacheReading) {
        let CacheReading { reads, cache, free, memory, interval } = reading;
        let is_reading = reads >= READS_MIN_PER_S.fraction(millis(interval), 1000);
        let has_room = free > FREE_MAX.max(memory.fraction(1, FREE_PART));
        if has_room {
            self.leave_room(is_reading, cache, free, interval);
        } else if is_reading {
            self.unfilled = Duration::ZERO;
            self.grow(reads, cache, interval);
        }
        self.quiet = match is_reading && !has_room {
            true => Duration::ZERO,
            false => self.quiet.saturating_add(interval),
        };
        // If readings were missing for long, there were several pauses: some hundreds forget any
        // need.
        while self.quiet >= self.pause {
            self.quiet -= self.pause;
            self.forget();
            if self.need == Bytes::ZERO {
                self.quiet = Duration::ZERO;
            }
        }
    }

    /// It has memory free: what it may fill soon stays needed for a while.
    fn leave_room(&mut self, is_reading: bool, cache: Bytes, free: Bytes, interval: Duration) {
        self.unfilled = match is_reading {
            true => self.unfilled.saturating_add(interval),
            false => Duration::ZERO,
        };
        let is_filling = is_reading && self.unfilled < FILL_TIME;
        if is_reading && !is_filling {
            self.futile = Some(cache);
        }
        let most = if is_filling { cache.saturating_add(free) } else { cache };
        self.need = self.need.min(most);
    }

    /// It reads for lack of cache.
    fn grow(&mut self, reads: Bytes, cache: Bytes, interval: Duration) {
        if (1..HARMLESS_MIN).contains(&self.forgotten) {
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
        self.forgotten = 0;
        // The cache may have grown for another reason.
        self.futile = self.futile.filter(|&then| cache <= then.saturating_add(then.fraction(1, 8)));
        let soon = match self.futile {
            Some(_) => Bytes::ZERO,
            None => reads.fraction(millis(HORIZON), millis(interval).max(1)),
        };
        self.need = self.need.max(cache.saturating_add(soon));
    }

    fn forget(&mut self) {
        let part = self.need.fraction(1, FORGET_PART).max(Bytes::pages(1));
        self.need = self.need.saturating_sub(part);
        self.forgotten = self.forgotten.saturating_add(1);
        self.futile = None;
        if self.forgotten >= HARMLESS_MIN {
            self.pause = PAUSE;
        }
    }
}

/// What was read from a guest's disks between two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadBetween {
    /// The earlier reading.
    pub then: DiskReads,
    /// The later reading. Its counters may be smaller, after a disk was unplugged: then nothing was
    /// read.
    pub now: DiskReads,
    /// What the guest says that it swapped in meanwhile.
    pub swapped_in: Bytes,
}

impl ReadBetween {
    /// What was read, for whatever reason.
    pub fn in_all(self) -> Bytes {
        self.now.read.saturating_sub(self.then.read)
    }

    /// What was read from files in small requests. Swap-ins from memory (zram) are deducted, too,
    /// though no disk has read them.
    pub fn at_random(self) -> Bytes {
        let read = self.in_all();
        let requests = self.now.requests.saturating_sub(self.then.requests);
        let read_ahead = READ_AHEAD.get().saturating_mul(requests);
        let in_order = read.fraction(read.get(), read_ahead.max(1));
        read.saturating_sub(in_order).saturating_sub(self.swapped_in)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(5);

    /// Reads in MiB in five seconds, by a guest with 60 MiB free.
    fn reading(reads_mib: u64, cache_mib: u64) -> CacheReading {
        let [reads, cache, free] = [reads_mib, cache_mib, 60].map(Bytes::mib);
        CacheReading { reads, cache, free, memory: Bytes::gib(4), interval: INTERVAL }
    }

    fn quiet_for(need: &mut CacheNeed, time: Duration) {
        for _ in 0..time.as_secs() / INTERVAL.as_secs() {
            need.update(reading(0, 0));
        }
    }

    #[test]
    fn cache_is_needed_where_it_is_too_small() {
        let mut need = CacheNeed::default();
        need.update(reading(1, 500));
        assert_eq!(need.get(), Bytes::ZERO, "a few reads");
        need.update(reading(10, 500));
        assert_eq!(need.get(), Bytes::mib(516), "its cache, and eight seconds of reads");
        need.update(reading(10, 300));
        assert_eq!(need.get(), Bytes::mib(516), "with less cache it needs as much");
    }

    #[test]
    fn a_guest_with_free_memory_lacks_no_cache() {
        let mut need = CacheNeed::default();
        let free = Bytes::mib(129);
        need.update(CacheReading { free, ..reading(10, 500) });
        assert_eq!(need.get(), Bytes::ZERO);
        need.update(reading(10, 500));
        need.update(CacheReading { free, ..reading(0, 200) });
        assert_eq!(need.get(), Bytes::mib(200));
        let memory = Bytes::gib(64);
        need.update(CacheReading { free, memory, ..reading(10, 500) });
        assert_eq!(need.get(), Bytes::mib(516), "a kernel with 64 GiB keeps as much free");
    }

    /// A program that reads past the page cache, as some databases do.
    #[test]
    fn memory_that_reads_do_not_fill_is_not_needed() {
        let mut need = CacheNeed::default();
        need.update(reading(100, 500));
        assert_eq!(need.get(), Bytes::mib(660));
        let free = Bytes::mib(220);
        for _ in 0..5 {
            need.update(CacheReading { free, ..reading(100, 500) });
            assert_eq!(need.get(), Bytes::mib(660), "it may be filling it");
        }
        need.update(CacheReading { free, ..reading(100, 500) });
        assert_eq!(need.get(), Bytes::mib(500));
        need.update(reading(100, 500));
        assert_eq!(need.get(), Bytes::mib(500), "more was no use");
        need.update(reading(100, 600));
        assert_eq!(need.get(), Bytes::mib(760), "its cache has grown meanwhile");
    }

    #[test]
    fn memory_is_left_unfilled_only_while_the_guest_reads() {
        let mut need = CacheNeed::default();
        need.update(reading(100, 500));
        let free = Bytes::mib(220);
        for _ in 0..6 {
            need.update(CacheReading { free, ..reading(0, 660) });
        }
        need.update(CacheReading { free, ..reading(100, 500) });
        assert_eq!(need.get(), Bytes::mib(660));
    }

    #[test]
    fn half_is_forgotten_in_eleven_quiet_minutes() {
        let mut need = CacheNeed::default();
        need.update(reading(10, 1008));
        assert_eq!(need.get(), Bytes::gib(1));
        quiet_for(&mut need, Duration::from_secs(59));
        assert_eq!(need.get(), Bytes::gib(1));
        quiet_for(&mut need, Duration::from_secs(11 * 60));
        assert!((Bytes::mib(480)..Bytes::mib(530)).contains(&need.get()), "{}", need.get());
        quiet_for(&mut need, Duration::from_secs(86_400));
        assert!(need.get() < Bytes::mib(1), "{}", need.get());
    }

    #[test]
    fn readings_that_were_missing_delay_no_forgetting() {
        let mut need = CacheNeed::default();
        need.update(reading(10, 1008));
        let mut seldom = need;
        quiet_for(&mut need, Duration::from_secs(11 * 60));
        seldom.update(CacheReading { interval: Duration::from_secs(11 * 60), ..reading(0, 0) });
        assert_eq!(seldom.get(), need.get());
        seldom.update(CacheReading { interval: Duration::MAX, ..reading(0, 0) });
        assert_eq!(seldom.get(), Bytes::ZERO);
    }

    #[test]
    fn the_pause_doubles_when_forgetting_did_harm() {
        let mut need = CacheNeed::default();
        let mut pauses = Vec::new();
        for _ in 0..6 {
            need.update(reading(10, 1008));
            let before = need.get();
            let mut pause = Duration::ZERO;
            while need.get() == before {
                need.update(reading(0, 1008));
                pause += INTERVAL;
            }
            pauses.push(pause.as_secs());
        }
        assert_eq!(pauses, [60, 120, 240, 480, 960, 960]);
        quiet_for(&mut need, Duration::from_secs(4 * 960));
        need.update(reading(10, 1008));
        assert_eq!(need.pause, PAUSE, "four parts were forgotten without harm");
    }

    fn read_mib(mib: u64, requests: u64) -> u64 {
        let before = DiskReads { read: Bytes::gib(7), requests: 1 << 20, ..DiskReads::default() };
        let now = DiskReads {
            read: before.read.saturating_add(Bytes::mib(mib)),
            requests: before.requests + requests,
            ..before
        };
        ReadBetween { then: before, now, swapped_in: Bytes::ZERO }.at_random().get() >> 20
    }

    #[test]
    fn only_small_requests_count() {
        assert_eq!(read_mib(64, 64 << 8), 62, "a page a request");
        assert_eq!(read_mib(64, 64 << 4), 32, "64 KiB a request");
        assert_eq!(read_mib(64, 64 << 3), 0, "as large as read-ahead");
        assert_eq!(read_mib(64, 64), 0, "larger");
        assert_eq!(read_mib(64, 0), 0);
        // Half of the bytes by pages, half by read-ahead.
        assert_eq!(read_mib(64, (32 << 8) + (32 << 3)), 60);
    }

    proptest! {
        #[test]
        fn counters_that_fall_or_lie_are_no_reads(
            before in any::<[u64; 2]>(),
            now in any::<[u64; 2]>(),
            swapped in any::<u64>(),
        ) {
            let reads = |[read, requests]: [u64; 2]| {
                DiskReads { read: Bytes::new(read), requests, ..DiskReads::default() }
            };
            let (then, now) = (reads(before), reads(now));
            let between = ReadBetween { then, now, swapped_in: Bytes::new(swapped) };
            let files = between.in_all().saturating_sub(between.swapped_in);
            prop_assert!(between.at_random() <= files);
        }

        /// Without reads the need never grows, and it never exceeds what was seen.
        #[test]
        fn the_need_is_never_more_than_was_seen(
            readings in prop::collection::vec((0..1u64 << 40, 0..1u64 << 40, 0..1u64 << 30), 1..60),
        ) {
            let mut need = CacheNeed::default();
            let mut most = Bytes::ZERO;
            for (reads, cache, free) in readings {
                let [reads, cache, free] = [reads, cache, free].map(Bytes::new);
                let before = need.get();
                let memory = Bytes::gib(64);
                need.update(CacheReading { reads, cache, free, memory, interval: INTERVAL });
                most = most.max(cache.saturating_add(reads.fraction(8, 5)));
                prop_assert!(need.get() <= most);
                if reads < Bytes::mib(1) {
                    prop_assert!(need.get() <= before);
                }
            }
        }
    }
}
