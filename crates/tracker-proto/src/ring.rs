//! The ring that carries traps from the tracker to the daemon.
//!
//! ```text
//! word 0   magic and version        word 8   head: entries ever written (producer)
//! word 1   capacity, 2^k entries    word 16  tail: entries ever read (consumer)
//! word 24 … 24 + capacity − 1       entries
//! ```
//!
//! One producer, one consumer, no locks. Head and tail only grow, and an entry's slot is its number
//! modulo the capacity. Each side keeps its own position privately and publishes it; it checks the
//! other side's position for plausibility. A full ring drops entries; the next entry that fits is
//! preceded by their number, so that readers know where entries are missing.
//!
//! Entries are 64 bits: a touched page, the beginning of an interval, a time, or a gap.
//!
//! Cost: one store and one release per trap. Memory: 2 MiB at the default capacity.
//! Limits: a lying producer can send garbage, which is refused, or false touches, which look like
//! real ones. A lying consumer can make the ring full, or have entries overwritten unread.

use std::sync::atomic::{AtomicU64, Ordering};

use thiserror::Error;

use crate::region::PAGES_MAX;
use crate::wire_error::VERSION;

/// Fewest entries.
pub const CAPACITY_MIN: u64 = 1 << 10;
/// Default number of entries: a quarter of a second at a million traps a second.
pub const CAPACITY_DEFAULT: u64 = 1 << 18;
/// Most entries: 32 MiB.
pub const CAPACITY_MAX: u64 = 1 << 22;

const MAGIC: u64 = 0x4241_4C4C_5452_0000 | VERSION as u64;
const MAGIC_AT: usize = 0;
const CAPACITY_AT: usize = 1;
/// Head and tail have a cache line each, because two processors write them.
const HEAD_AT: usize = 8;
const TAIL_AT: usize = 16;
const ENTRIES_AT: usize = 24;

const KIND_SHIFT: u32 = 60;
const TOUCH: u64 = 1;
const INTERVAL: u64 = 2;
const TIME: u64 = 3;
const GAP: u64 = 4;
const WRITE_BIT: u64 = 1 << 59;
/// Largest time or gap; larger values saturate.
const VALUE_MAX: u64 = (1 << 48) - 1;

/// An entry of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingEntry {
    /// A page of a watched granule was touched.
    Touch {
        /// The page's number, as the daemon numbered the region: below 2^52.
        page: u64,
        /// Whether it was written to.
        is_write: bool,
    },
    /// The interval of this number began: later entries follow the start of its revocation.
    Interval(u32),
    /// Milliseconds since the client attached.
    Time(u64),
    /// This number of entries were dropped here.
    Gap(u64),
}

impl RingEntry {
    const fn encode(self) -> u64 {
        match self {
            RingEntry::Touch { page, is_write } => {
                let write = if is_write { WRITE_BIT } else { 0 };
                TOUCH << KIND_SHIFT | write | (page & (PAGES_MAX - 1))
            }
            RingEntry::Interval(number) => INTERVAL << KIND_SHIFT | number as u64,
            RingEntry::Time(ms) => TIME << KIND_SHIFT | at_most(ms, VALUE_MAX),
            RingEntry::Gap(entries) => GAP << KIND_SHIFT | at_most(entries, VALUE_MAX),
        }
    }

    fn decode(word: u64) -> Result<RingEntry, RingError> {
        let value = word & ((1 << KIND_SHIFT) - 1);
        let (page, is_write) = (value & !WRITE_BIT, value & WRITE_BIT != 0);
        match word >> KIND_SHIFT {
            TOUCH if page < PAGES_MAX => Ok(RingEntry::Touch { page, is_write }),
            INTERVAL if value <= u64::from(u32::MAX) => Ok(RingEntry::Interval(value as u32)),
            TIME if value <= VALUE_MAX => Ok(RingEntry::Time(value)),
            GAP if value <= VALUE_MAX => Ok(RingEntry::Gap(value)),
            _ => Err(RingError::Entry(word)),
        }
    }
}

const fn at_most(value: u64, max: u64) -> u64 {
    if value < max { value } else { max }
}

/// Why memory is not a ring, or has invalid contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RingError {
    /// The memory has the wrong size.
    #[error("{0} words of memory: expected the size of a ring")]
    Size(usize),
    /// The header has another version, or does not match the size.
    #[error(
        "the ring's header is not that of version {VERSION}, or does not match the ring's size"
    )]
    Header,
    /// The producer claims to have written more than the ring holds, or less than before.
    #[error("the ring's producer claims position {head} while the reader is at {tail}")]
    Head {
        /// The producer's position.
        head: u64,
        /// The reader's position.
        tail: u64,
    },
    /// An invalid entry.
    #[error("an invalid ring entry {0:#018x}")]
    Entry(u64),
}

/// Words of memory of a ring of `capacity` entries.
pub const fn ring_words(capacity: u64) -> usize {
    capacity as usize + ENTRIES_AT
}

/// Bytes of the ring's file: whole pages.
pub const fn ring_bytes(capacity: u64) -> u64 {
    (ring_words(capacity) as u64 * 8).next_multiple_of(crate::granule::PAGE_SIZE)
}

/// Makes `words`, which must be zero, an empty ring of `capacity` entries. The daemon does this
/// before it sends the memory to the tracker.
///
/// # Errors
/// [`RingError::Size`] unless the capacity is a power of two within the bounds, and fits the
/// memory.
pub fn initialize_ring(words: &[AtomicU64], capacity: u64) -> Result<(), RingError> {
    check_size(words, capacity)?;
    words[CAPACITY_AT].store(capacity, Ordering::Relaxed);
    words[MAGIC_AT].store(MAGIC, Ordering::Release);
    Ok(())
}

fn check_size(words: &[AtomicU64], capacity: u64) -> Result<(), RingError> {
    let is_good = capacity.is_power_of_two() && (CAPACITY_MIN..=CAPACITY_MAX).contains(&capacity);
    if is_good && words.len() >= ring_words(capacity) {
        Ok(())
    } else {
        Err(RingError::Size(words.len()))
    }
}

/// Checks that `words` are a ring; returns its capacity.
fn check(words: &[AtomicU64]) -> Result<u64, RingError> {
    if words.len() < ENTRIES_AT {
        return Err(RingError::Size(words.len()));
    }
    if words[MAGIC_AT].load(Ordering::Acquire) != MAGIC {
        return Err(RingError::Header);
    }
    let capacity = words[CAPACITY_AT].load(Ordering::Relaxed);
    check_size(words, capacity).map_err(|_| RingError::Header)?;
    Ok(capacity)
}

/// The writing side: the thread that answers faults. It never blocks or allocates.
#[derive(Debug)]
pub struct RingProducer<'a> {
    words: &'a [AtomicU64],
    mask: u64,
    head: u64,
    /// The consumer's position when last read.
    tail: u64,
    /// Entries dropped since the last one written.
    gap: u64,
    dropped: u64,
}

impl<'a> RingProducer<'a> {
    /// The producer of an empty ring.
    ///
    /// # Errors
    /// [`RingError`] unless the memory is an empty ring.
    pub fn new(words: &'a [AtomicU64]) -> Result<Self, RingError> {
        let capacity = check(words)?;
        if words[HEAD_AT].load(Ordering::Relaxed) != 0 {
            return Err(RingError::Header);
        }
        Ok(RingProducer { words, mask: capacity - 1, head: 0, tail: 0, gap: 0, dropped: 0 })
    }

    /// Appends an entry; if there is no room, drops and counts it and returns `false`.
    pub fn push(&mut self, entry: RingEntry) -> bool {
        let needed = if self.gap > 0 { 2 } else { 1 };
        if !self.has_room(needed) {
            self.gap = self.gap.saturating_add(1);
            self.dropped = self.dropped.saturating_add(1);
            return false;
        }
        if self.gap > 0 {
            self.write(RingEntry::Gap(self.gap));
            self.gap = 0;
        }
        self.write(entry);
        self.words[HEAD_AT].store(self.head, Ordering::Release);
        true
    }

    /// Entries dropped so far.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn has_room(&mut self, entries: u64) -> bool {
        let capacity = self.mask + 1;
        if self.head.wrapping_sub(self.tail) + entries <= capacity {
            return true;
        }
        let tail = self.words[TAIL_AT].load(Ordering::Acquire);
        // A tail beyond the head, or one that went back, is a lie: treat the ring as full.
        if self.head.wrapping_sub(tail) > capacity || tail < self.tail {
            return false;
        }
        self.tail = tail;
        self.head - tail + entries <= capacity
    }

    fn write(&mut self, entry: RingEntry) {
        // The mask keeps it below the capacity, for which `check` found enough memory.
        let index = ENTRIES_AT + (self.head & self.mask) as usize;
        self.words[index].store(entry.encode(), Ordering::Relaxed);
        self.head += 1;
    }
}

/// The reading side: the daemon. Create it once per ring.
#[derive(Debug)]
pub struct RingConsumer {
    mask: u64,
    tail: u64,
}

impl RingConsumer {
    /// The consumer of the ring in `words`, at its beginning.
    ///
    /// # Errors
    /// [`RingError`] unless the memory is a ring.
    pub fn new(words: &[AtomicU64]) -> Result<RingConsumer, RingError> {
        Ok(RingConsumer { mask: check(words)? - 1, tail: 0 })
    }

    /// Passes up to `entries_max` entries to `take`, in order, and frees their slots; returns their
    /// number.
    ///
    /// # Errors
    /// [`RingError`] at the first invalid entry: `take` has received the entries before it, and
    /// those after it cannot be trusted. [`RingError::Size`] if `words` are fewer than at first.
    pub fn read(
        &mut self,
        words: &[AtomicU64],
        entries_max: usize,
        mut take: impl FnMut(RingEntry),
    ) -> Result<usize, RingError> {
        if words.len() < ring_words(self.mask + 1) {
            return Err(RingError::Size(words.len()));
        }
        let head = words[HEAD_AT].load(Ordering::Acquire);
        let (tail, capacity) = (self.tail, self.mask + 1);
        // A head behind the tail wraps around to a large number.
        let available = head.wrapping_sub(tail);
        if available > capacity {
            return Err(RingError::Head { head, tail });
        }
        let count = usize::try_from(available).unwrap_or(usize::MAX).min(entries_max);
        let mut result = Ok(count);
        for _ in 0..count {
            let index = ENTRIES_AT + (self.tail & self.mask) as usize;
            match RingEntry::decode(words[index].load(Ordering::Relaxed)) {
                Ok(entry) => take(entry),
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
            self.tail += 1;
        }
        words[TAIL_AT].store(self.tail, Ordering::Release);
        result
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn memory(capacity: u64) -> Vec<AtomicU64> {
        (0..ring_words(capacity)).map(|_| AtomicU64::new(0)).collect()
    }

    fn ring() -> Vec<AtomicU64> {
        let words = memory(CAPACITY_MIN);
        initialize_ring(&words, CAPACITY_MIN).unwrap();
        words
    }

    fn touch(page: u64) -> RingEntry {
        RingEntry::Touch { page, is_write: page % 2 == 1 }
    }

    fn drain(consumer: &mut RingConsumer, words: &[AtomicU64]) -> Vec<RingEntry> {
        let mut all = Vec::new();
        consumer.read(words, usize::MAX, |entry| all.push(entry)).unwrap();
        all
    }

    #[test]
    fn entries_are_read_in_order() {
        let words = ring();
        let mut producer = RingProducer::new(&words).unwrap();
        let mut consumer = RingConsumer::new(&words).unwrap();
        assert_eq!(drain(&mut consumer, &words), []);
        let entries = [
            RingEntry::Interval(u32::MAX),
            touch(0),
            touch(PAGES_MAX - 1),
            RingEntry::Time(VALUE_MAX),
            RingEntry::Gap(1),
        ];
        assert!(entries.iter().all(|entry| producer.push(*entry)));
        let mut first = Vec::new();
        assert_eq!(consumer.read(&words, 2, |entry| first.push(entry)), Ok(2));
        first.extend(drain(&mut consumer, &words));
        assert_eq!(first, entries);
    }

    #[test]
    fn a_full_ring_drops_entries_and_marks_the_gap() {
        let words = ring();
        let mut producer = RingProducer::new(&words).unwrap();
        let mut consumer = RingConsumer::new(&words).unwrap();
        for page in 0..CAPACITY_MIN {
            assert!(producer.push(touch(page)));
        }
        for page in 0..10 {
            assert!(!producer.push(touch(page)));
        }
        assert_eq!(consumer.read(&words, 1, |_| ()), Ok(1));
        assert!(!producer.push(touch(7)), "no room for the gap and the entry");
        assert_eq!((drain(&mut consumer, &words).len(), producer.dropped()), (1023, 11));
        assert!(producer.push(touch(8)));
        assert_eq!(drain(&mut consumer, &words), [RingEntry::Gap(11), touch(8)]);
    }

    #[test]
    fn invalid_rings_are_refused() {
        for capacity in [0, 1, 512, 1000, 1025, 1 << 23, u64::MAX] {
            assert!(initialize_ring(&memory(1 << 11), capacity).is_err(), "{capacity}");
        }
        assert_eq!(initialize_ring(&memory(1 << 10), 1 << 11), Err(RingError::Size(1048)));
        assert_eq!(RingConsumer::new(&memory(CAPACITY_MIN)).unwrap_err(), RingError::Header);
        assert_eq!(RingConsumer::new(&[]).unwrap_err(), RingError::Size(0));
        let words = ring();
        words[CAPACITY_AT].store(CAPACITY_MIN * 2, Ordering::Relaxed);
        assert_eq!(RingProducer::new(&words).unwrap_err(), RingError::Header);
        let words = ring();
        words[HEAD_AT].store(1, Ordering::Relaxed);
        assert_eq!(RingProducer::new(&words).unwrap_err(), RingError::Header);
    }

    #[test]
    fn a_lying_producer_is_detected() {
        let words = ring();
        let mut consumer = RingConsumer::new(&words).unwrap();
        words[HEAD_AT].store(CAPACITY_MIN + 1, Ordering::Relaxed);
        let error = RingError::Head { head: CAPACITY_MIN + 1, tail: 0 };
        assert_eq!(consumer.read(&words, 9, |_| ()), Err(error));
        words[HEAD_AT].store(2, Ordering::Relaxed);
        words[ENTRIES_AT].store(touch(5).encode(), Ordering::Relaxed);
        let mut taken = Vec::new();
        let read = consumer.read(&words, 9, |entry| taken.push(entry));
        assert_eq!((read, taken), (Err(RingError::Entry(0)), vec![touch(5)]));
        words[HEAD_AT].store(0, Ordering::Relaxed);
        assert!(matches!(consumer.read(&words, 9, |_| ()), Err(RingError::Head { .. })));
        assert_eq!(consumer.read(&words[..100], 9, |_| ()), Err(RingError::Size(100)));
    }

    #[test]
    fn a_lying_consumer_makes_the_ring_full() {
        let words = ring();
        let mut producer = RingProducer::new(&words).unwrap();
        for lie in [u64::MAX, CAPACITY_MIN + 5, 0] {
            while producer.push(touch(1)) {}
            words[TAIL_AT].store(lie, Ordering::Relaxed);
            assert!(!producer.push(touch(2)), "{lie}");
        }
        words[TAIL_AT].store(500, Ordering::Relaxed);
        assert!(producer.push(touch(3)));
    }

    #[test]
    fn two_threads_keep_order_and_count_every_loss() {
        const COUNT: u64 = 200_000;
        let words = ring();
        let mut consumer = RingConsumer::new(&words).unwrap();
        let (mut seen, mut missing) = (Vec::new(), 0);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut producer = RingProducer::new(&words).unwrap();
                for page in 0..COUNT {
                    producer.push(touch(page));
                }
                // The last gap is written with the next entry that fits.
                while !producer.push(RingEntry::Time(0)) {
                    std::thread::yield_now();
                }
                producer.dropped()
            });
            let mut is_over = false;
            while !is_over {
                consumer
                    .read(&words, 100, |entry| match entry {
                        RingEntry::Touch { page, .. } => seen.push(page),
                        RingEntry::Gap(entries) => missing += entries,
                        _ => is_over = true,
                    })
                    .unwrap();
            }
            assert_eq!(writer.join().unwrap(), missing);
        });
        assert!(seen.is_sorted_by(|a, b| a < b));
        // Failed attempts to push the time count as missing too.
        assert!(seen.len() as u64 + missing >= COUNT);
    }

    proptest! {
        /// Whatever a producer leaves in memory, reading ends and yields valid entries only.
        #[test]
        fn arbitrary_memory_is_read_or_refused(
            words in prop::collection::vec(any::<u64>(), 1100), head in 0..1100_u64, kinds in 0..6_u64,
        ) {
            let memory = ring();
            for (slot, word) in memory[ENTRIES_AT..].iter().zip(&words) {
                let word = (word >> 4) | (kinds << KIND_SHIFT);
                slot.store(word, Ordering::Relaxed);
            }
            memory[HEAD_AT].store(head, Ordering::Relaxed);
            let mut consumer = RingConsumer::new(&memory).unwrap();
            let mut count = 0;
            let read = consumer.read(&memory, usize::MAX, |entry| {
                count += 1;
                assert_eq!(RingEntry::decode(entry.encode()), Ok(entry));
            });
            prop_assert!(count as u64 <= head.min(CAPACITY_MIN));
            if let Ok(read) = read {
                prop_assert_eq!(read, count);
            }
        }
    }
}
