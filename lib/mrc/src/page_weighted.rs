//! Distances in pages that were really touched, from tags of many pages.
//!
//! MEB reads a distance of `d` tags as `d × G` pages. That is wrong in two ways: of `G` neighbours
//! scanned in a row all but the first seem to hit at distance 1, and a tag counts as a whole even
//! if few of its pages are used.
//!
//! Idea: a layer over a [`Stack`] that sees the pages. Each page has two bits: ever touched, and
//! touched in the current *visit* of its tag. A visit begins when a page is touched that was
//! already touched in the current visit, and remembers the distance at which it found the tag. Then
//!
//! - a page never touched before is cold;
//! - a page not yet touched in this visit was last touched before the visit began: it counts at the
//!   distance at which the visit found the tag, wherever the tag is now;
//! - a page touched again in this visit begins the next visit, at the distance at which the tag is
//!   now.
//!
//! So the pages that follow in a scan are cold in its first pass, and at the loop's distance in
//! later ones. When the histogram is requested, a distance of `d` tags becomes the number of
//! touched pages in the first `d` tags of the LRU order. So dense and sparse tags have their true
//! weights, which a mean over all tags would not give them.
//!
//! Cost: O(1) for each reference in addition to the stack; O(tags) for a curve. Two bits for each
//! page of every tag, 8 bytes for each tag, and an index of tags in addition to that of the stack.
//!
//! Measured (`cargo run --release -p ballast-mrc --example granularity`): error of WSS(1 %), and
//! mean absolute error of the total miss ratio over 500 sizes, against `G = 1`.
//!
//! | workload (65,536 pages)      | WSS    | G   | paper: WSS, curve | touched: WSS, curve |
//! |------------------------------|--------|-----|-------------------|---------------------|
//! | scan, cyclic                 | 65,536 | 8   | +0 %, 0.872       | +0 %, 0.000         |
//! |                              |        | 32  | +0 %, 0.965       | +0 %, 0.000         |
//! |                              |        | 512 | −99 %, 0.988      | +0 %, 0.000         |
//! | 1 page of 512, at random     | 4,055  | 8   | +700 %, 0.437     | +0 %, 0.000         |
//! |                              |        | 32  | +3,100 %, 0.483   | +0 %, 0.000         |
//! |                              |        | 512 | +51,100 %, 0.498  | +0 %, 0.000         |
//! | 1 page of 8, at random       | 16,212 | 8   | +700 %, 0.435     | +0 %, 0.000         |
//! |                              |        | 32  | +700 %, 0.435     | +0 %, 0.002         |
//! |                              |        | 512 | +702 %, 0.437     | +0.3 %, 0.005       |
//! | Zipf(0.9), rank = place      | 58,310 | 8   | +6 %, 0.011       | +4 %, 0.007         |
//! |                              |        | 32  | +6 %, 0.013       | +4 %, 0.008         |
//! |                              |        | 512 | +7 %, 0.015       | +5 %, 0.013         |
//! | Zipf(0.9), shuffled          | 58,268 | 8   | +9 %, 0.092       | +8 %, 0.104         |
//! |                              |        | 32  | +10 %, 0.153      | +9 %, 0.168         |
//! |                              |        | 512 | +12 %, 0.260      | +11 %, 0.276        |
//! | phases (Zipf, loop, sparse)  | 86,234 | 8   | +32 %, 0.150      | +14 %, 0.041        |
//! |                              |        | 32  | −26 %, 0.164      | +15 %, 0.050        |
//! |                              |        | 512 | −27 %, 0.149      | +15 %, 0.064        |
//!
//! At `G = 1` both are exact.
//!
//! Limits: if hot pages are scattered among cold ones (Zipf, shuffled), a tag is as hot as its
//! hottest page, and neither reading knows which of its pages are hot. There, sampling pages at
//! rate `1/G` (SHARDS) costs as much memory and is more accurate. Composing the distances of
//! several visits, and remembering in which of three visits a page was touched, were tried: better
//! on shuffled pages, far worse on scans. The LRU order is that of the time of the request, for
//! distances of the whole interval.

use crate::index::TagIndex;
use crate::stack::{BLOCK, reference_block};
use crate::{Bucket, COLD, Curve, Full, Granularity, Histogram, Layout, Stack};

/// What is stored for a tag.
#[derive(Clone, Copy, Debug, Default)]
struct Tag {
    /// The distance at which the current visit found it.
    visit: u32,
    /// The number of its pages that were ever touched.
    touched: u32,
}

/// Turns references to pages into distances in touched pages, over a stack of tags.
#[derive(Clone, Debug)]
pub struct PageWeighted<S> {
    /// A stack of numbers from `index`, not of tags, so that its order leads to `tags` without a
    /// search.
    stack: S,
    granularity: Granularity,
    index: TagIndex,
    /// By the tag's number.
    tags: Vec<Tag>,
    ever: PageBits,
    visited: PageBits,
    /// By distance in tags; `counts[0]` is the number of cold references.
    counts: Vec<u64>,
    references: u64,
}

impl<S: Stack> PageWeighted<S> {
    /// A layer over `stack`, which must be empty, with tags of `granularity`.
    ///
    /// # Panics
    /// If the stack is not empty.
    #[must_use]
    pub fn new(stack: S, granularity: Granularity) -> Self {
        assert!(stack.is_empty(), "the pages of tags in the stack are not known");
        Self {
            stack,
            granularity,
            index: TagIndex::default(),
            tags: Vec::new(),
            ever: PageBits::new(granularity),
            visited: PageBits::new(granularity),
            counts: vec![0],
            references: 0,
        }
    }

    /// The tags, most recently referenced first.
    #[must_use]
    pub fn order(&self) -> Vec<u64> {
        self.stack.order().into_iter().map(|number| self.index.tag(number as u32)).collect()
    }

    /// The size of tags.
    #[must_use]
    pub fn granularity(&self) -> Granularity {
        self.granularity
    }

    /// The number of references since the interval started.
    #[must_use]
    pub fn references(&self) -> u64 {
        self.references
    }

    /// The number of different pages since the beginning.
    #[must_use]
    pub fn distinct(&self) -> u64 {
        self.tags.iter().map(|tag| u64::from(tag.touched)).sum()
    }

    /// Counts references to `pages`, in this order.
    ///
    /// # Errors
    /// [`Full`] if there are too many different tags; the references before that are counted.
    pub fn record(&mut self, pages: &[u64]) -> Result<(), Full> {
        let mut numbers = [0; BLOCK];
        let mut distances = [COLD; BLOCK];
        for block in pages.chunks(BLOCK) {
            let (numbered, full) = self.number(block, &mut numbers);
            let (numbers, distances) = (&numbers[..numbered], &mut distances[..numbered]);
            let (taken, result) = reference_block(&mut self.stack, numbers, distances);
            self.counts.resize(self.stack.len() as usize + 1, 0);
            for ((&page, &number), &distance) in
                block.iter().zip(numbers).zip(&*distances).take(taken)
            {
                let counted = self.touch(page, number as usize, distance);
                self.counts[counted as usize] += 1;
            }
            self.references += taken as u64;
            result.and(full)?;
        }
        Ok(())
    }

    /// Writes the numbers of the pages' tags; returns for how many pages there was room.
    fn number(&mut self, pages: &[u64], numbers: &mut [u64]) -> (usize, Result<(), Full>) {
        let mut result = (pages.len(), Ok(()));
        for (at, (number, &page)) in numbers.iter_mut().zip(pages).enumerate() {
            match self.index.number(self.granularity.tag(page)) {
                Ok((known, _)) => *number = u64::from(known),
                Err(full) => {
                    result = (at, Err(full));
                    break;
                }
            }
        }
        let tags = self.index.len() as usize;
        self.tags.resize(tags, Tag::default());
        self.ever.grow(tags);
        self.visited.grow(tags);
        result
    }

    /// The distance at which a reference to `page` counts, if its tag was found at `distance`.
    fn touch(&mut self, page: u64, number: usize, distance: u32) -> u32 {
        let tag = &mut self.tags[number];
        let is_first_of_visit = self.visited.set(number, page);
        if self.ever.set(number, page) {
            tag.touched += 1;
            return COLD;
        }
        if is_first_of_visit {
            return tag.visit;
        }
        tag.visit = distance;
        self.visited.clear(number);
        self.visited.set(number, page);
        distance
    }

    /// Distances of the references since the interval started, in touched pages, log-linear.
    #[must_use]
    pub fn histogram(&self) -> Histogram {
        let mut histogram = Histogram::new(Layout::LogLinear);
        histogram.add_cold(self.counts[0] as f64);
        self.falls().for_each(|bucket| histogram.add(bucket.last, bucket.weight));
        histogram
    }

    /// The miss-ratio curve of the references since the interval started.
    #[must_use]
    pub fn curve(&self) -> Curve {
        let falls: Vec<Bucket> = self.falls().collect();
        Curve::of(falls.into_iter(), self.counts[0] as f64, 1.0)
    }

    /// The buckets of distances in touched pages, one for each distance.
    fn falls(&self) -> impl Iterator<Item = Bucket> + '_ {
        let pages = self.stack.order().into_iter().scan(0, |pages, number| {
            *pages += u64::from(self.tags[number as usize].touched);
            Some(*pages)
        });
        let counted = pages.zip(&self.counts[1..]).filter(|&(_, &count)| count > 0);
        counted.map(|(pages, &count)| Bucket { first: pages, last: pages, weight: count as f64 })
    }

    /// Starts an interval: counts start from zero again; the LRU order and the touched pages stay.
    pub fn start_interval(&mut self) {
        self.counts.fill(0);
        self.references = 0;
    }

    /// Continues with tags of another size, and starts an interval. The LRU order is regrouped
    /// ([`Granularity::regroup`]), but only those finer tags are kept that were touched. Each
    /// counts as last visited at its place in that order. Cost: O(pages).
    ///
    /// # Errors
    /// [`Full`] if there would be too many finer tags.
    pub fn regroup(&mut self, to: Granularity) -> Result<(), Full> {
        self.start_interval();
        let pages = |number: u64| {
            let first = self.index.tag(number as u32) * self.granularity.pages();
            self.ever.offsets(number as usize).map(move |offset| first + offset)
        };
        let touched: Vec<u64> = self.stack.order().into_iter().flat_map(pages).collect();
        let mut index = TagIndex::default();
        let mut tags: Vec<Tag> = Vec::new();
        let mut ever = PageBits::new(to);
        for page in touched {
            let (number, is_new) = index.number(to.tag(page))?;
            if is_new {
                tags.push(Tag { visit: number + 1, touched: 0 });
                ever.grow(tags.len());
            }
            tags[number as usize].touched += 1;
            ever.set(number as usize, page);
        }
        self.stack.restore(&(0..index.len()).collect::<Vec<u64>>())?;
        self.visited = PageBits::new(to);
        self.visited.grow(tags.len());
        self.counts.truncate(1);
        self.counts.resize(tags.len() + 1, 0);
        (self.granularity, self.index, self.tags, self.ever) = (to, index, tags, ever);
        Ok(())
    }

    /// The memory that it occupies on the heap, including its stack, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let own =
            self.tags.capacity() * size_of::<Tag>() + self.counts.capacity() * size_of::<u64>();
        let bits = self.ever.memory_bytes() + self.visited.memory_bytes();
        self.stack.memory_bytes() + self.index.memory_bytes() + bits + own as u64
    }
}

/// A bit for each page of each tag.
#[derive(Clone, Debug)]
struct PageBits {
    granularity: Granularity,
    words: Vec<u64>,
}

impl PageBits {
    fn new(granularity: Granularity) -> Self {
        Self { granularity, words: Vec::new() }
    }

    /// Makes room for `tags` tags.
    fn grow(&mut self, tags: usize) {
        self.words.resize((tags * self.granularity.pages() as usize).div_ceil(64), 0);
    }

    /// Sets the bit of `page`, which belongs to the tag with this number; returns whether it was
    /// unset.
    fn set(&mut self, number: usize, page: u64) -> bool {
        let pages = self.granularity.pages();
        let bit = number * pages as usize + (page & (pages - 1)) as usize;
        let mask = 1 << (bit % 64);
        let was = self.words[bit / 64];
        self.words[bit / 64] = was | mask;
        was & mask == 0
    }

    /// Unsets the bits of a tag.
    fn clear(&mut self, number: usize) {
        let pages = self.granularity.pages() as usize;
        let bit = number * pages;
        if pages < 64 {
            self.words[bit / 64] &= !(((1 << pages) - 1) << (bit % 64));
        } else {
            self.words[bit / 64..][..pages / 64].fill(0);
        }
    }

    /// The set pages of a tag, counted from its first page.
    fn offsets(&self, number: usize) -> impl Iterator<Item = u64> + '_ {
        let pages = self.granularity.pages();
        let start = number * pages as usize;
        (0..pages).filter(move |&offset| {
            let bit = start + offset as usize;
            self.words[bit / 64] >> (bit % 64) & 1 == 1
        })
    }

    fn memory_bytes(&self) -> u64 {
        (self.words.capacity() * size_of::<u64>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::{CountingEngine, Engine, EngineName, List};

    fn granularity(pages: u64) -> Granularity {
        Granularity::new(pages).unwrap()
    }

    fn weighted(pages: u64, references: &[u64]) -> PageWeighted<List> {
        let mut weighted = PageWeighted::new(List::new(), granularity(pages));
        weighted.record(references).unwrap();
        weighted
    }

    /// Distances in pages with their weights, and the weight of cold references.
    fn falls(weighted: &PageWeighted<List>) -> (Vec<(u64, f64)>, f64) {
        let falls = weighted.falls().map(|bucket| (bucket.last, bucket.weight)).collect();
        (falls, weighted.curve().cold())
    }

    #[test]
    fn a_scan_is_cold_and_then_a_loop() {
        for pages in [1, 8, 32, 64, 512] {
            let scan: Vec<u64> = (0..1024).chain(0..1024).chain(0..1024).collect();
            assert_eq!(falls(&weighted(pages, &scan)), (vec![(1024, 2048.0)], 1024.0), "{pages}");
        }
    }

    #[test]
    fn a_tag_weighs_what_was_touched_of_it() {
        // One page each of tags 0 and 1, and three of tag 2.
        let mut references = vec![5, 40, 64, 65, 95, 5];
        assert_eq!(falls(&weighted(32, &references)), (vec![(5, 1.0)], 5.0));
        references.push(64);
        // Tag 2 is behind tag 0: four pages.
        assert_eq!(falls(&weighted(32, &references)), (vec![(4, 1.0), (5, 1.0)], 5.0));
        assert_eq!(weighted(32, &references).distinct(), 5);
    }

    #[test]
    fn an_untouched_page_counts_where_the_visit_began() {
        // Pages 0 and 1 of tag 0; two other tags; then both pages again.
        assert_eq!(falls(&weighted(8, &[0, 1, 8, 16, 0, 1])), (vec![(4, 2.0)], 4.0));
        // Touched twice in a row it is a new visit, at distance 1.
        assert_eq!(falls(&weighted(8, &[0, 1, 8, 16, 0, 0])), (vec![(2, 1.0), (4, 1.0)], 4.0));
    }

    #[test]
    fn intervals_keep_order_and_pages() {
        let mut weighted = weighted(8, &[0, 8, 9]);
        weighted.start_interval();
        assert_eq!((weighted.references(), weighted.curve().cold()), (0, 0.0));
        weighted.record(&[0]).unwrap();
        assert_eq!(falls(&weighted), (vec![(3, 1.0)], 0.0));
        assert_eq!(weighted.histogram().weight_at(3), 1.0);
        assert_eq!(weighted.order(), [0, 1]);
    }

    #[test]
    fn regrouped_tags_keep_their_pages() {
        let mut weighted = weighted(8, &[0, 3, 40, 17, 70]);
        weighted.regroup(granularity(32)).unwrap();
        assert_eq!((weighted.order(), weighted.distinct()), (vec![2, 0, 1], 5));
        weighted.record(&[40, 41]).unwrap();
        // Pages 70; 0, 3, 17; 40; and, at the time of the request, 41, which however is a first
        // touch.
        assert_eq!(falls(&weighted), (vec![(6, 1.0)], 1.0));
        weighted.regroup(granularity(1)).unwrap();
        assert_eq!(weighted.order(), [40, 41, 70, 0, 3, 17]);
        assert_eq!(weighted.references(), 0);
    }

    #[test]
    #[should_panic(expected = "not known")]
    fn a_stack_in_use_is_refused() {
        let mut stack = List::new();
        stack.reference(&[1], &mut [0]).unwrap();
        let _ = PageWeighted::new(stack, Granularity::PAGE);
    }

    /// The rules of the header, with sets and lists.
    fn naive(pages: u64, references: &[u64]) -> (Vec<(u64, f64)>, f64) {
        let mut order: Vec<u64> = Vec::new();
        let mut ever: BTreeSet<u64> = BTreeSet::new();
        let mut visits: BTreeMap<u64, (usize, BTreeSet<u64>)> = BTreeMap::new();
        let mut counts = vec![0.0; references.len() + 1];
        for &page in references {
            let tag = page / pages;
            let index = order.iter().position(|&one| one == tag);
            index.map(|index| order.remove(index));
            order.insert(0, tag);
            let distance = index.map_or(0, |index| index + 1);
            let visit = visits.entry(tag).or_default();
            let counted = if ever.insert(page) {
                0
            } else if visit.1.contains(&page) {
                *visit = (distance, BTreeSet::new());
                distance
            } else {
                visit.0
            };
            visit.1.insert(page);
            counts[counted] += 1.0;
        }
        let within = |tags: usize| {
            ever.iter().filter(|&page| order[..tags].contains(&(page / pages))).count() as u64
        };
        let falls = (1..=order.len()).filter(|&tags| counts[tags] > 0.0);
        (falls.map(|tags| (within(tags), counts[tags])).collect(), counts[0])
    }

    fn references() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec(prop_oneof![0..40_u64, 0..600_u64], 0..400)
    }

    proptest! {
        #[test]
        fn it_is_what_the_header_says(references in references(), shift in 0..9_u32) {
            let pages = 1 << shift;
            prop_assert_eq!(falls(&weighted(pages, &references)), naive(pages, &references));
        }

        #[test]
        fn tags_of_one_page_are_exact(references in references()) {
            let mut exact = CountingEngine::new(EngineName::List, List::new());
            exact.record(&references).unwrap();
            let exact = Curve::new(&exact.histogram().unwrap(), Granularity::PAGE);
            prop_assert_eq!(weighted(1, &references).curve(), exact);
        }

        #[test]
        fn regrouping_forgets_no_page_and_keeps_the_order(
            references in references(), shifts in (0..9_u32, 0..9_u32),
        ) {
            let (from, to) = (granularity(1 << shifts.0), granularity(1 << shifts.1));
            let mut weighted = weighted(from.pages(), &references);
            let (distinct, order) = (weighted.distinct(), weighted.order());
            weighted.regroup(to).unwrap();
            prop_assert_eq!(weighted.distinct(), distinct);
            prop_assert_eq!(weighted.granularity(), to);
            let touched: BTreeSet<u64> = references.iter().map(|&page| to.tag(page)).collect();
            let expected: Vec<u64> = from.regroup(to, &order).into_iter()
                .filter(|tag| touched.contains(tag)).collect();
            prop_assert_eq!(weighted.order(), expected);
            // Every page is known: none is cold.
            let again: BTreeSet<u64> = references.iter().copied().collect();
            weighted.record(&again.into_iter().collect::<Vec<u64>>()).unwrap();
            prop_assert_eq!(weighted.curve().cold(), 0.0);
        }
    }
}
