//! Counts the different tags.
//!
//! Idea: a bit for each tag as long as tags are numbers not far above their count. For tags that
//! are spread wider, HyperLogLog: the hash of a tag selects one of 2^16 registers, which keeps the
//! longest run of leading zeros seen. The count is updated along the way ("historic inverse
//! probability"): whenever a register changes, the reciprocal of the probability of that change is
//! added. This is unbiased at any count, needs no correction for small ones, and is known at any
//! time.
//!
//! Cost: one load and one test for each tag seen before. Memory: at most [`BITS_FREE`] bits or, if
//! that is more, twice [`BITS_PER_TAG`] bits for each different tag, because their number is
//! rounded up to a power of two; 64 KiB for HyperLogLog. Errors: none with bits; HyperLogLog has a
//! standard error of `0.833 / √65536 = 0.33 %`. When it replaces the bits it continues from their
//! exact count.
//!
//! Source: Flajolet 2007 (HyperLogLog); Cohen 2014 and Ting 2014 (the count along the way).

use crate::hash::mix;
use crate::shards::filter;

/// Tags that may always have a bit: 16 MiB of address space; only the pages in use take memory.
const BITS_FREE: u64 = 1 << 27;
/// Beyond that, bits are used while the greatest tag is below this times the number of different
/// tags; as in [`TagIndex`](crate::index::TagIndex), that is dense enough for an array.
const BITS_PER_TAG: u64 = 8;
/// Log2 of the number of HyperLogLog registers.
const REGISTER_BITS: u32 = 16;

/// Counts different tags.
#[derive(Clone, Debug)]
pub(crate) struct Distinct {
    counter: Counter,
    salt: u64,
}

#[derive(Clone, Debug)]
enum Counter {
    Bits(SeenBits),
    Sketch(HyperLogLog),
}

impl Distinct {
    /// Counts exactly while tags are dense; `seed` is used when they are not.
    pub(crate) fn new(seed: u64) -> Self {
        Self { counter: Counter::Bits(SeenBits::default()), salt: mix(!seed) }
    }

    /// Counts in constant memory, whatever the tags.
    pub(crate) fn constant(seed: u64) -> Self {
        Self { counter: Counter::Sketch(HyperLogLog::new()), salt: mix(!seed) }
    }

    /// Counts `tags`, which are consecutive numbers in rising order.
    pub(crate) fn note_scan(&mut self, tags: &[u64]) {
        if let (Counter::Bits(bits), Some(&first)) = (&self.counter, tags.first())
            && filter::is_seen(&bits.words, first, tags.len() as u64)
        {
            return;
        }
        self.note(tags);
    }

    /// Counts `tags`.
    pub(crate) fn note(&mut self, tags: &[u64]) {
        if let Counter::Bits(bits) = &mut self.counter {
            if bits.note(tags) {
                return;
            }
            let sketch = bits.sketch(self.salt);
            self.counter = Counter::Sketch(sketch);
        }
        if let Counter::Sketch(sketch) = &mut self.counter {
            let salt = self.salt;
            tags.iter().for_each(|&tag| sketch.insert(mix(tag ^ salt)));
        }
    }

    /// The number of different tags so far.
    pub(crate) fn count(&self) -> f64 {
        match &self.counter {
            Counter::Bits(bits) => bits.count as f64,
            Counter::Sketch(sketch) => sketch.count,
        }
    }

    /// Continues with tags that are coarser by `bits`. Returns whether it could; if not, it forgets
    /// all tags.
    pub(crate) fn coarser(&mut self, bits: u32) -> bool {
        match &mut self.counter {
            Counter::Bits(seen) => seen.coarser(bits),
            Counter::Sketch(_) if bits > 0 => self.clear(),
            Counter::Sketch(_) => {}
        }
        matches!(self.counter, Counter::Bits(_)) || bits == 0
    }

    /// Forgets all tags.
    pub(crate) fn clear(&mut self) {
        match &mut self.counter {
            Counter::Bits(bits) => *bits = SeenBits::default(),
            Counter::Sketch(sketch) => *sketch = HyperLogLog::new(),
        }
    }

    #[cfg(test)]
    fn is_exact(&self) -> bool {
        matches!(self.counter, Counter::Bits(_))
    }

    /// The memory that it occupies on the heap, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match &self.counter {
            Counter::Bits(bits) => (bits.words.capacity() * size_of::<u64>()) as u64,
            Counter::Sketch(sketch) => sketch.registers.len() as u64,
        }
    }
}

/// A bit for each tag.
#[derive(Clone, Debug, Default)]
struct SeenBits {
    words: Vec<u64>,
    count: u64,
}

impl SeenBits {
    /// Counts `tags`; `false`, with nothing done, if one of them is too large to have a bit.
    fn note(&mut self, tags: &[u64]) -> bool {
        if let Some(new) = filter::note(&mut self.words, tags) {
            self.count += new;
            return true;
        }
        let greatest = tags.iter().copied().max().unwrap_or(0);
        self.reach(greatest) && self.note(tags)
    }

    /// Makes room for the bit of `tag`, if it may have one.
    fn reach(&mut self, tag: u64) -> bool {
        if tag >= BITS_FREE.max(self.count.saturating_mul(BITS_PER_TAG)) {
            return false;
        }
        let mut longer = vec![0; ((tag / 64 + 1) as usize).next_power_of_two()];
        longer[..self.words.len()].copy_from_slice(&self.words);
        self.words = longer;
        true
    }

    fn coarser(&mut self, bits: u32) {
        let len = (self.words.len() >> bits.min(63)).max(1).next_power_of_two();
        let mut coarse = Self { words: vec![0; len], count: 0 };
        for tag in self.tags() {
            let tag = tag >> bits;
            let (word, bit) = (&mut coarse.words[(tag / 64) as usize], 1 << (tag % 64));
            coarse.count += u64::from(*word & bit == 0);
            *word |= bit;
        }
        *self = coarse;
    }

    fn tags(&self) -> impl Iterator<Item = u64> + '_ {
        (0_u64..).zip(&self.words).flat_map(|(index, &word)| {
            let left =
                std::iter::successors(Some(word), |left| Some(left & left.saturating_sub(1)));
            left.take_while(|&left| left != 0)
                .map(move |left| index * 64 + u64::from(left.trailing_zeros()))
        })
    }

    /// A sketch of the same tags; it continues from their known number.
    fn sketch(&self, salt: u64) -> HyperLogLog {
        let mut sketch = HyperLogLog::new();
        self.tags().for_each(|tag| sketch.insert(mix(tag ^ salt)));
        sketch.count = self.count as f64;
        sketch
    }
}

/// HyperLogLog that updates its count along the way.
#[derive(Clone, Debug)]
struct HyperLogLog {
    /// For each register one more than the longest run of leading zeros among its hashes.
    registers: Vec<u8>,
    /// `Σ 2^-register`; divided by the number of registers, the probability that a new tag changes
    /// one.
    open: f64,
    count: f64,
}

impl HyperLogLog {
    fn new() -> Self {
        let registers = 1 << REGISTER_BITS;
        Self { registers: vec![0; registers], open: registers as f64, count: 0.0 }
    }

    #[inline]
    fn insert(&mut self, hash: u64) {
        let register = &mut self.registers[(hash >> (64 - REGISTER_BITS)) as usize];
        // The bit after the hash ends the run of zeros.
        let rest = (hash << REGISTER_BITS) | (1 << (REGISTER_BITS - 1));
        let rank = rest.leading_zeros() as u8 + 1;
        if rank > *register {
            self.count += f64::from(1 << REGISTER_BITS) / self.open;
            // Exact enough: the terms are powers of two from 2^-49 up and the sum is at most 2^16,
            // which would need 65 bits; but terms below 2^-36 matter only beyond 2^50 tags.
            self.open += 2_f64.powi(-i32::from(rank)) - 2_f64.powi(-i32::from(*register));
            *register = rank;
        }
    }
}

#[cfg(test)]
mod tests {
    use hashbrown::HashSet;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_sketch_keeps_its_error_bound_at_any_count() {
        let (mut squares, mut worst, mut cases) = (0.0, 0.0_f64, 0.0);
        for seed in 0..8 {
            let mut sketch = Distinct::constant(seed);
            let mut before = 0;
            for count in [1, 100, 10_000, 100_000, 200_000, 400_000] {
                // Tags with a stride, which weak hashes do not spread.
                (before..count).for_each(|tag| sketch.note(&[tag << 12, tag << 12]));
                before = count;
                let error = sketch.count() / count as f64 - 1.0;
                worst = worst.max(error.abs());
                squares += error * error;
                cases += 1.0;
            }
        }
        assert!(worst < 0.012, "{worst}");
        assert!((squares / cases).sqrt() < 0.004, "{}", (squares / cases).sqrt());
    }

    #[test]
    fn dense_tags_are_exact_and_survive_a_sparse_one() {
        let mut distinct = Distinct::new(1);
        let dense: Vec<u64> = (0..100_000).chain(50_000..150_000).collect();
        dense.chunks(1024).for_each(|block| distinct.note(block));
        assert_eq!(distinct.count(), 150_000.0);
        assert!(distinct.is_exact());
        distinct.note(&[3, 1 << 40, u64::MAX]);
        assert!(!distinct.is_exact());
        // Two tags add at most a few times the reciprocal of the share of registers that they can
        // still change.
        assert!((150_000.0..150_100.0).contains(&distinct.count()), "{}", distinct.count());
        assert_eq!(distinct.memory_bytes(), 1 << 16);
        distinct.clear();
        assert_eq!(distinct.count(), 0.0);
    }

    proptest! {
        #[test]
        fn bits_count_as_a_set_does(
            blocks in prop::collection::vec(
                prop::collection::vec(prop_oneof![0..300_u64, 0..100_000_u64], 0..200), 0..8,
            ),
        ) {
            let (mut distinct, mut set) = (Distinct::new(0), HashSet::new());
            for block in &blocks {
                distinct.note(block);
                set.extend(block.iter().copied());
                prop_assert_eq!(distinct.count(), set.len() as f64);
            }
        }
    }
}
