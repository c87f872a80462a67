//! The fast exact stack.
//!
//! Idea: time is divided into slots ([`window`]); a tag's distance is the number of tags whose
//! latest slot is its own or a later one. A tag needs one entry of `last` (its latest slot) and a
//! slot a few bits, so a million tags fit into a cache in which a tree of them would not. When the
//! slots are used up they are renumbered by rank, and their number doubles while more than a
//! quarter is live.
//!
//! Tags that are page numbers index `last` directly. If they are too far apart for that, they are
//! numbered in the order of their first reference ([`TagIndex`]). The same is done with tags below
//! [`DIRECT_MIN`] that are far apart, until there were enough references to pay for an array as
//! long as the greatest tag: a short trace would spend more time on the array's pages than on its
//! references.
//!
//! Cost: 20 to 160 million references a second, where an AVL tree does 1 to 20 (`ballast bench
//! mrc`; `docs/benchmarks/`). Memory: 4 bytes for each page number up to the greatest, and an
//! eighth of that to grow; 4 to 8 slots for each tag, of 0.16 bytes each. That is less than 6 bytes
//! for each tag if all page numbers are used. While page numbers are below [`DIRECT_MIN`] the array
//! is as long as the greatest, up to 64 MiB, once there were enough references. A numbered tag
//! costs up to 70 bytes: 8 in `last`, 16 and 40 in the index. While `last` grows, the old and the
//! new array exist together.
//!
//! Source: Bennett and Kruskal 1975 for the bit of each reference; the hierarchical counts are
//! ours.
//! Limits: [`TAGS_MAX`] tags.

mod run;
mod squeeze;
mod window;

use self::run::{FIRST, Loop, NO_SLOT, Path, Position, RECENT};
use self::squeeze::{BLOCK, Squeezer};
use self::window::{CAPACITY_MAX, CAPACITY_MIN, Window};
use crate::distances::add_distances;
use crate::index::TagIndex;
use crate::stack::count_blocks;
use crate::{Full, Stack, TAGS_MAX};

/// Entries that `last` may have with any number of tags, once there were enough references: page
/// numbers of 64 GiB, in 64 MiB.
const DIRECT_MIN: u64 = 1 << 24;
/// Entries that `last` may have from the first reference on: page numbers of 4 GiB, in 4 MiB, which
/// the system provides in about a millisecond.
const DIRECT_AT_ONCE: u64 = 1 << 20;
/// Entries that `last` may have for each reference so far, up to [`DIRECT_MIN`]: the system takes
/// as long to provide this many as it takes to find the number of a tag
/// (`docs/benchmarks/2026-11-27-short-traces.md`).
const DIRECT_PER_REFERENCE: u64 = 8;
/// Entries that `last` may have for each tag.
const DIRECT_SPREAD: u64 = 8;
/// The least number of slots for each live tag after renumbering.
const SLOTS_PER_TAG: usize = 4;
/// The number of tags from which on prefetching pays: their entries of `last` fill 1 MiB, the
/// second-level cache of many processors.
const FETCH_MIN: u32 = 1 << 18;

/// Tags in LRU order, as bits over time.
///
/// ```
/// use ballast_mrc::{COLD, Exact, Stack};
///
/// let mut stack = Exact::new();
/// let mut distances = [0; 4];
/// stack.reference(&[7, 8, 9, 7], &mut distances)?;
/// assert_eq!(distances, [COLD, COLD, COLD, 3]);
/// # Ok::<(), ballast_mrc::Full>(())
/// ```
#[derive(Clone, Debug)]
pub struct Exact {
    names: Names,
    /// The latest slot of each tag, by tag or by number ([`Names`]).
    last: Vec<u32>,
    window: Window,
    position: Position,
    path: Path,
    tags_max: u64,
    /// The number of references so far, without repetitions that were squeezed out.
    references: u64,
    /// The indices of a block's tags.
    ids: Vec<u32>,
    /// Created when a block is squeezed for the first time.
    scratch: Option<Box<Scratch>>,
}

/// How tags become indices of `last`.
#[derive(Clone, Debug)]
enum Names {
    /// Tags are the indices.
    Direct,
    /// By number, because the tags are too far apart.
    Numbered(TagIndex),
}

/// Buffers for squeezing a block.
#[derive(Clone, Debug)]
struct Scratch {
    squeezer: Squeezer,
    /// The distances of the rest of the block.
    distances: Vec<u32>,
}

impl Scratch {
    fn new() -> Box<Self> {
        Box::new(Self { squeezer: Squeezer::new(), distances: vec![0; BLOCK] })
    }
}

impl Default for Exact {
    fn default() -> Self {
        Self::new()
    }
}

impl Exact {
    /// An empty stack that uses the vector instructions of this processor.
    #[must_use]
    pub fn new() -> Self {
        Self::on(Path::detected())
    }

    /// An empty stack that uses only baseline instructions; for comparison.
    #[must_use]
    pub fn portable() -> Self {
        Self::on(Path::Portable)
    }

    fn on(path: Path) -> Self {
        Self {
            names: Names::Direct,
            last: Vec::new(),
            window: Window::new(CAPACITY_MIN, 0..0),
            position: Position::after(0),
            path,
            tags_max: TAGS_MAX,
            references: 0,
            ids: Vec::with_capacity(BLOCK),
            scratch: None,
        }
    }

    /// The instructions that it uses: `avx2` or `portable`.
    #[must_use]
    pub fn path(&self) -> &'static str {
        self.path.name()
    }

    /// References a block of at most [`BLOCK`] tags.
    fn reference_block(&mut self, tags: &[u64], distances: &mut [u32]) -> Result<(), Full> {
        let room = self.tags_max - u64::from(self.position.live);
        if room < tags.len() as u64 {
            return self.reference_last(tags, distances);
        }
        self.identify(tags)?;
        self.run(distances);
        Ok(())
    }

    /// References the last tags before the limit one by one.
    #[cold]
    fn reference_last(&mut self, tags: &[u64], distances: &mut [u32]) -> Result<(), Full> {
        for (&tag, distance) in tags.iter().zip(distances) {
            if u64::from(self.position.live) == self.tags_max && !self.has(tag) {
                return Err(Full);
            }
            self.identify(&[tag])?;
            self.run(std::slice::from_mut(distance));
        }
        Ok(())
    }

    /// Counts the distances of a block for which there is room; the stack does not see repetitions
    /// within the block.
    fn count_squeezed(&mut self, tags: &[u64], counts: &mut Vec<u64>) {
        let mut scratch = self.scratch.take().unwrap_or_else(Scratch::new);
        let squeezed = scratch.squeezer.squeeze(self.path, tags);
        let left = scratch.squeezer.kept(squeezed);
        let found = &mut scratch.distances[..left.len()];
        self.reference(left, found).expect("there is room");
        add_distances(counts, self.len(), found);
        counts[1] += squeezed.ones;
        if squeezed.twos > 0 {
            counts[2] += squeezed.twos;
        }
        self.scratch = Some(scratch);
    }

    /// Writes the indices of `tags` to `ids`, all of them below `last.len()`.
    fn identify(&mut self, tags: &[u64]) -> Result<(), Full> {
        self.references += tags.len() as u64;
        if let Names::Direct = self.names {
            // A plain conversion, so that the compiler can use vectors.
            self.ids.clear();
            self.ids.extend(tags.iter().map(|&tag| tag as u32));
            let high = tags.iter().fold(0, |high, tag| high | (tag >> 32));
            let greatest = match high {
                0 => u64::from(self.path.greatest(&self.ids)),
                _ => tags.iter().fold(0, |greatest, &tag| greatest.max(tag)),
            };
            if greatest < self.last.len() as u64 || self.reach(greatest, tags.len()) {
                return Ok(());
            }
        }
        self.number(tags)
    }

    /// Makes `last` long enough for `greatest` if that is allowed when `more` tags may be new.
    fn reach(&mut self, greatest: u64, more: usize) -> bool {
        let live = u64::from(self.position.live) + more as u64;
        let paid = (self.references * DIRECT_PER_REFERENCE).clamp(DIRECT_AT_ONCE, DIRECT_MIN);
        if greatest >= paid.max(live * DIRECT_SPREAD).min(u64::from(u32::MAX)) {
            return false;
        }
        let grown = self.last.len() + self.last.len() / 8;
        let len = grown.min(u32::MAX as usize).max(greatest as usize + 1);
        // Zeroed memory from the system is not touched before it is used.
        let mut last = vec![NO_SLOT; len];
        last[..self.last.len()].copy_from_slice(&self.last);
        self.last = last;
        true
    }

    /// Writes the numbers of tags that are too far apart to be indices themselves.
    fn number(&mut self, tags: &[u64]) -> Result<(), Full> {
        if let Names::Direct = self.names {
            self.leave_direct()?;
        }
        let Names::Numbered(index) = &mut self.names else { unreachable!("just made") };
        self.ids.resize(tags.len(), 0);
        let result = index.number_all(tags, &mut self.ids);
        self.last.resize(index.len() as usize, NO_SLOT);
        // Half of what would be allowed, so that the greatest tag must double before tags are
        // numbered again.
        let paid = self.references * DIRECT_PER_REFERENCE / 2;
        if result.is_ok() && index.greatest() < paid.min(DIRECT_MIN) {
            self.return_to_direct();
            self.ids.clear();
            self.ids.extend(tags.iter().map(|&tag| tag as u32));
        }
        result
    }

    /// Uses tags as indices again: all are below [`DIRECT_MIN`].
    #[cold]
    fn return_to_direct(&mut self) {
        let Names::Numbered(index) = &self.names else { return };
        let mut last = vec![NO_SLOT; index.greatest() as usize + 1];
        for (&slot, number) in self.last.iter().zip(0..) {
            last[index.tag(number) as usize] = slot;
        }
        self.last = last;
        self.names = Names::Direct;
    }

    /// Numbers all present tags.
    #[cold]
    fn leave_direct(&mut self) -> Result<(), Full> {
        let mut index = TagIndex::default();
        let mut last = Vec::with_capacity(self.position.live as usize);
        for (tag, &slot) in self.last.iter().enumerate().filter(|(_, slot)| **slot != NO_SLOT) {
            index.number(tag as u64)?;
            last.push(slot);
        }
        self.last = last;
        self.names = Names::Numbered(index);
        Ok(())
    }

    /// References the tags in `ids`.
    fn run(&mut self, distances: &mut [u32]) {
        let may_fetch = self.position.live >= FETCH_MIN;
        let mut done = 0;
        while done < distances.len() {
            if self.position.next == self.window.capacity() {
                self.renumber();
            }
            let rest = &mut distances[done..];
            let (last, window) = (&mut self.last, &mut self.window);
            let block = Loop::new(last, window, &mut self.position, &self.ids[done..], rest);
            done += block.run(self.path, may_fetch);
        }
    }

    /// Gives live tags the first slots, in the same order, and makes room in the window again.
    #[cold]
    fn renumber(&mut self) {
        self.path.renumber(&mut self.last, &mut self.window, &self.position);
        self.position = Position::after(self.position.live);
        let next = self.position.next;
        let mut capacity = self.window.capacity();
        while next * SLOTS_PER_TAG > capacity && capacity < CAPACITY_MAX {
            capacity = (capacity * 2).min(CAPACITY_MAX);
        }
        // The latest tags are not in the window.
        let taken = FIRST..(next - RECENT).max(FIRST);
        if capacity == self.window.capacity() {
            self.window.restart(taken);
        } else {
            self.window = Window::new(capacity, taken);
        }
    }

    fn has(&self, tag: u64) -> bool {
        let index = match &self.names {
            Names::Direct => usize::try_from(tag).ok(),
            Names::Numbered(index) => index.find(tag).map(|number| number as usize),
        };
        index.and_then(|index| self.last.get(index)).is_some_and(|&slot| slot != NO_SLOT)
    }
}

impl Stack for Exact {
    fn reference(&mut self, tags: &[u64], distances: &mut [u32]) -> Result<(), Full> {
        assert_eq!(tags.len(), distances.len());
        for (tags, distances) in tags.chunks(BLOCK).zip(distances.chunks_mut(BLOCK)) {
            self.reference_block(tags, distances)?;
        }
        Ok(())
    }

    fn count(&mut self, tags: &[u64], counts: &mut Vec<u64>) -> (u64, Result<(), Full>) {
        let mut taken = 0;
        for block in tags.chunks(BLOCK) {
            let has_room = self.tags_max - self.len() >= block.len() as u64;
            if has_room && squeeze::pays(block) {
                self.count_squeezed(block, counts);
                taken += block.len() as u64;
                continue;
            }
            let (here, result) = count_blocks(self, block, counts);
            taken += here;
            if result.is_err() {
                return (taken, result);
            }
        }
        (taken, Ok(()))
    }

    fn len(&self) -> u64 {
        u64::from(self.position.live)
    }

    fn order(&self) -> Vec<u64> {
        let slots = self.last.iter().zip(0..).filter(|(slot, _)| **slot != NO_SLOT);
        let mut by_slot: Vec<(u32, u32)> = slots.map(|(&slot, number)| (slot, number)).collect();
        by_slot.sort_unstable_by_key(|&(slot, _)| std::cmp::Reverse(slot));
        let tag = |number| match &self.names {
            Names::Direct => u64::from(number),
            Names::Numbered(index) => index.tag(number),
        };
        by_slot.into_iter().map(|(_, number)| tag(number)).collect()
    }

    fn restore(&mut self, order: &[u64]) -> Result<(), Full> {
        let tags_max = self.tags_max;
        *self = Self { tags_max, ..Self::on(self.path) };
        let mut tags = [0; BLOCK];
        let mut distances = [0; BLOCK];
        // The oldest first; the tag nearest to the front is referenced last.
        for block in order.rchunks(BLOCK) {
            let tags = &mut tags[..block.len()];
            tags.copy_from_slice(block);
            tags.reverse();
            self.reference_block(tags, &mut distances[..block.len()])?;
        }
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        let names = match &self.names {
            Names::Direct => 0,
            Names::Numbered(index) => index.memory_bytes(),
        };
        let scratch = self.scratch.as_ref().map_or(0, |scratch| {
            scratch.squeezer.memory_bytes() + scratch.distances.capacity() * size_of::<u32>()
        });
        let numbers = self.last.capacity() + self.ids.capacity();
        let arrays = numbers * size_of::<u32>() + scratch;
        names + arrays as u64 + self.window.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::COLD;

    fn distances(stack: &mut Exact, tags: &[u64]) -> Vec<u32> {
        let mut distances = vec![u32::MAX; tags.len()];
        stack.reference(tags, &mut distances).unwrap();
        distances
    }

    fn both() -> [Exact; 2] {
        [Exact::new(), Exact::portable()]
    }

    #[test]
    fn distances_are_positions() {
        for (tags, expected) in [
            (&[][..], &[][..]),
            (&[5], &[0]),
            (&[5, 5, 5], &[0, 1, 1]),
            (&[1, 2, 3, 1, 2, 3], &[0, 0, 0, 3, 3, 3]),
            (&[1, 2, 3, 3, 2, 1], &[0, 0, 0, 1, 2, 3]),
            (&[1, 2, 1, 3, 2, 1], &[0, 0, 2, 0, 3, 3]),
            (&[u64::MAX, 0, u64::MAX, 1 << 40], &[0, 0, 2, 0]),
        ] {
            for mut stack in both() {
                assert_eq!(distances(&mut stack, tags), expected, "{tags:?}");
            }
        }
    }

    #[test]
    fn a_loop_has_its_length_as_distance_in_any_window() {
        // Each length is beyond another number of levels, or the edge of a word, line or window.
        for len in [1, 2, 63, 64, 65, 1000, 1024, 2047, 2048, 2049, 16_385, 70_000, 300_000] {
            for mut stack in both() {
                let first: Vec<u64> = (0..len).collect();
                assert!(distances(&mut stack, &first).iter().all(|&distance| distance == COLD));
                for _ in 0..7 {
                    let again = distances(&mut stack, &first);
                    assert!(again.iter().all(|&distance| u64::from(distance) == len), "{len}");
                }
                assert_eq!(stack.len(), len);
            }
        }
    }

    #[test]
    fn tags_far_apart_are_numbered_and_go_on() {
        let mut stack = Exact::new();
        distances(&mut stack, &[3, 1, 2]);
        assert!(matches!(stack.names, Names::Direct));
        assert_eq!(distances(&mut stack, &[1 << 40, 2, 3, 3, 1 << 40]), [0, 2, 4, 1, 3]);
        assert!(matches!(stack.names, Names::Numbered(_)));
        assert_eq!(stack.order(), [1 << 40, 3, 2, 1]);
    }

    #[test]
    fn few_tags_far_apart_are_numbered_until_an_array_pays() {
        // Below `DIRECT_MIN`, one in 25,000.
        let tags: Vec<u64> = (0..400).map(|at| at * 25_000 + 1).collect();
        let greatest = tags[399];
        for mut stack in both() {
            distances(&mut stack, &tags);
            assert!(matches!(stack.names, Names::Numbered(_)));
            let mut references = 400;
            while references * DIRECT_PER_REFERENCE / 2 <= greatest {
                assert!(matches!(stack.names, Names::Numbered(_)), "{references}");
                assert!(distances(&mut stack, &tags).iter().all(|&distance| distance == 400));
                references += 400;
            }
            assert!(matches!(stack.names, Names::Direct), "{references}");
            assert!(distances(&mut stack, &tags).iter().all(|&distance| distance == 400));
            assert_eq!(stack.len(), 400);
            // A somewhat greater tag does not change that; one beyond `DIRECT_MIN` does,
            // permanently.
            distances(&mut stack, &[greatest + 1]);
            assert!(matches!(stack.names, Names::Direct));
            distances(&mut stack, &[DIRECT_MIN]);
            assert!(matches!(stack.names, Names::Numbered(_)));
            assert_eq!(distances(&mut stack, &[greatest + 1, tags[399]]), [2, 3]);
        }
    }

    #[test]
    fn a_full_stack_says_so_and_keeps_what_it_took() {
        for mut stack in both() {
            stack.tags_max = 100;
            let tags: Vec<u64> = (0..98).chain([0, 1, 98, 99, 2, 0, 100, 3]).collect();
            let mut found = vec![u32::MAX; tags.len()];
            assert_eq!(stack.reference(&tags, &mut found), Err(Full));
            assert_eq!(found[98..], [98, 98, 0, 0, 100, 5, u32::MAX, u32::MAX]);
            assert_eq!(stack.len(), 100);
            assert_eq!(distances(&mut stack, &[0, 99, 3]), [1, 3, 100]);
        }
    }

    #[test]
    fn a_full_stack_counts_what_it_took() {
        for mut stack in both() {
            stack.tags_max = 100;
            let mut counts = Vec::new();
            let tags: Vec<u64> = (0..600).map(|at| [1, 2, 1, at / 4][at as usize % 4]).collect();
            let (taken, result) = stack.count(&tags, &mut counts);
            // Tags 1 and 2, and 0 and 3 to 99: the next reference is not counted.
            assert_eq!((taken, result), (403, Err(Full)));
            assert_eq!((counts[0], counts.iter().sum::<u64>()), (100, 403));
            assert_eq!(stack.order()[..4], [1, 2, 99, 98]);
        }
    }

    #[test]
    fn a_page_costs_less_than_6_bytes() {
        for pages in [300_000, 1_000_000, 1_100_000, 2_200_000] {
            let mut stack = Exact::new();
            let mut found = [0; 1000];
            let mut first = 0;
            while first < 5 * pages {
                let tags: Vec<u64> = (first..first + 1000).map(|page| page % pages).collect();
                stack.reference(&tags, &mut found).unwrap();
                first += 1000;
            }
            let bytes = stack.memory_bytes() as f64 / pages as f64;
            assert!(bytes < 6.0, "{bytes} bytes for each of {pages} pages");
        }
    }

    #[test]
    fn the_array_is_as_long_as_page_numbers_ask_for() {
        let mut stack = Exact::new();
        distances(&mut stack, &[DIRECT_AT_ONCE - 1]);
        assert!(matches!(stack.names, Names::Direct));
        assert!(stack.memory_bytes() < (DIRECT_AT_ONCE + (1 << 16)) * 4);
        distances(&mut stack, &[DIRECT_AT_ONCE]);
        assert!(matches!(stack.names, Names::Numbered(_)));
        assert!(stack.memory_bytes() < 1 << 20, "{}", stack.memory_bytes());
    }
}
