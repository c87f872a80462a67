//! The orders in which the program touches its memory.
//!
//! Idea: the order of pages follows from a few settings. The program and the measuring process
//! compute the same order independently, and the number of touches determines exactly which pages
//! were touched, at no cost to the program. An order is a *round* that repeats; a round has
//! *parts*, each a list that is traversed a number of times.
//!
//! Cost: 4 bytes per list entry; O(touches) to compute the pages touched, at most one pass per
//! part.
//! Source: the cycle of the pointer chase is by Sattolo 1986; random pages are the lab's
//! `random-array`.

use std::collections::HashMap;
use std::ops::Range;

use thiserror::Error;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Cache lines of a page.
pub const PAGE_LINES: u32 = 64;
/// Pages per recorded page: recordings cover kilobytes and some seconds.
pub const STRETCH: u32 = 32;
/// Number of pages drawn in advance and visited repeatedly, because drawing costs more than
/// visiting.
const DRAWN: usize = 1 << 20;
/// Occurrences of each page in the list of a part of random pages.
const DRAWS: usize = 4;
/// Exponent of the popularity of pages in `zipf`.
const ZIPF_EXPONENT: f64 = 0.99;

/// An order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Every cache line, in address order
    Scan,
    /// Every cache line once per round, each pointing to a distant next one
    Chase,
    /// Lines of pages of unequal popularity
    Zipf,
    /// Lines of random pages among the first few, whose number changes over time
    Random,
    /// Lines of the pages of a recorded program, 32 pages for each recorded page
    Trace,
}

/// The settings of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its kind.
    pub kind: Kind,
    /// Pages of memory.
    pub pages: u32,
    /// Seed of random orders.
    pub seed: u64,
    /// For `random`: the number of pages of each part; empty: all pages.
    pub sizes: Vec<u32>,
    /// For `random`: fewest touches per part.
    pub part_touches: u64,
    /// For `trace`: the page numbers.
    pub trace: Vec<u64>,
}

/// Why settings are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OrderError {
    /// No memory.
    #[error("no memory: expected at least one page")]
    NoMemory,
    /// The trace is empty.
    #[error("a trace without page numbers")]
    NoTrace,
    /// There are too few pages.
    #[error("{needed} pages needed, only {pages} available: raise --mib")]
    TooFew {
        /// Pages needed.
        needed: u64,
        /// Pages available.
        pages: u32,
    },
}

/// Pages in the order of touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    parts: Vec<Part>,
    pages: u32,
}

/// A list that is traversed a number of times. It has at least one entry, one touch per entry, and
/// one traversal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The entries.
    pub entries: Vec<u32>,
    /// How each entry is touched.
    pub entry_touches: EntryTouches,
    /// Number of traversals.
    pub times: u64,
}

/// How an entry of a list is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryTouches {
    /// The entry is a page that is touched this many times in a row.
    Page(u32),
    /// The entry is this many consecutive pages, each touched once.
    Pages(u32),
}

impl EntryTouches {
    /// Number of touches per entry.
    pub const fn touches(self) -> u32 {
        match self {
            EntryTouches::Page(count) | EntryTouches::Pages(count) => count,
        }
    }

    /// The page of touch `number` of `entry`.
    #[inline]
    pub const fn page(self, entry: u32, number: u32) -> u32 {
        match self {
            EntryTouches::Page(_) => entry,
            EntryTouches::Pages(count) => entry * count + number,
        }
    }
}

impl Part {
    /// Number of touches per traversal.
    fn pass(&self) -> u64 {
        self.entries.len() as u64 * u64::from(self.entry_touches.touches())
    }

    /// Number of touches in total.
    fn touches(&self) -> u64 {
        self.pass() * self.times
    }
}

impl Order {
    /// Computes the order of the settings.
    ///
    /// # Errors
    /// When the settings are invalid.
    pub fn new(settings: &Settings) -> Result<Order, OrderError> {
        let Settings { kind, pages, seed, .. } = *settings;
        if pages == 0 {
            return Err(OrderError::NoMemory);
        }
        let mut rng = fastrand::Rng::with_seed(seed);
        let one = |entries, entry_touches| vec![Part { entries, entry_touches, times: 1 }];
        let parts = match kind {
            Kind::Scan => one((0..pages).collect(), EntryTouches::Page(PAGE_LINES)),
            Kind::Chase => one(chased(pages, seed), EntryTouches::Page(1)),
            Kind::Zipf => {
                one((0..DRAWN).map(|_| zipf(&mut rng, pages)).collect(), EntryTouches::Page(1))
            }
            Kind::Random => random(settings, &mut rng)?,
            Kind::Trace => one(recorded(&settings.trace, pages)?, EntryTouches::Pages(STRETCH)),
        };
        Ok(Order { parts, pages })
    }

    /// The parts of a round.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Number of touches per round.
    pub fn round(&self) -> u64 {
        self.parts.iter().map(Part::touches).sum()
    }

    /// The distinct pages of a range of touches, in the order of their first touch.
    pub fn first_touches(&self, touches: Range<u64>) -> Vec<u32> {
        let mut seen = vec![false; self.pages as usize];
        let mut order = Vec::new();
        self.spans(touches, |part, span| {
            // Another traversal has the same pages.
            let end = span.end.min(span.start + part.pass());
            walk(part, span.start..end, &mut |page| {
                if !std::mem::replace(&mut seen[page as usize], true) {
                    order.push(page);
                }
            });
        });
        order
    }

    /// Calls `take` with each page of a range of touches, in order; repeated touches count once.
    pub fn visits(&self, touches: Range<u64>, mut take: impl FnMut(u32)) {
        self.spans(touches, |part, span| walk(part, span, &mut take));
    }

    /// Splits a range of touches by parts, with the touch numbers within each part.
    fn spans(&self, touches: Range<u64>, mut take: impl FnMut(&Part, Range<u64>)) {
        let mut at = touches.start;
        while at < touches.end {
            let (mut first, mut in_round) = (at - at % self.round(), at % self.round());
            for part in &self.parts {
                if in_round >= part.touches() {
                    in_round -= part.touches();
                    first += part.touches();
                    continue;
                }
                let end = (first + part.touches()).min(touches.end);
                take(part, in_round..end - first);
                at = end;
                break;
            }
        }
    }
}

/// The pages of a range of touches of a part.
fn walk(part: &Part, touches: Range<u64>, take: &mut impl FnMut(u32)) {
    let entry_touches = u64::from(part.entry_touches.touches());
    let mut at = touches.start;
    while at < touches.end {
        let entry = part.entries[(at / entry_touches % part.entries.len() as u64) as usize];
        let (number, left) = ((at % entry_touches) as u32, touches.end - at);
        match part.entry_touches {
            EntryTouches::Page(_) => {
                take(entry);
                at += entry_touches - u64::from(number);
            }
            EntryTouches::Pages(count) => {
                let end = number + left.min(u64::from(count - number)) as u32;
                (number..end).for_each(|number| take(part.entry_touches.page(entry, number)));
                at += u64::from(end - number);
            }
        }
    }
}

/// For each of `lines` its successor, in one random cycle through all.
pub fn links(lines: u32, seed: u64) -> Vec<u32> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut links: Vec<u32> = (0..lines).collect();
    for last in (1..links.len()).rev() {
        links.swap(last, rng.usize(0..last));
    }
    links
}

/// The pages of the lines of that cycle, from the first line on.
fn chased(pages: u32, seed: u64) -> Vec<u32> {
    let links = links(pages * PAGE_LINES, seed);
    let mut line = 0;
    let page = |_| {
        let page = line / PAGE_LINES;
        line = links[line as usize];
        page
    };
    (0..links.len()).map(page).collect()
}

/// Draws a page by popularity: the density at rank x is `(x + 1)^-exponent`, and ranks are
/// scattered.
fn zipf(rng: &mut fastrand::Rng, pages: u32) -> u32 {
    let rest = 1.0 - ZIPF_EXPONENT;
    let last = (f64::from(pages) + 1.0).powf(rest);
    let rank = (1.0 + rng.f64() * (last - 1.0)).powf(1.0 / rest) - 1.0;
    let rank = (rank as u64).min(u64::from(pages) - 1);
    // An odd factor scatters a power of two of pages without collisions, other numbers nearly so.
    (rank.wrapping_mul(0x9E37_79B1) % u64::from(pages)) as u32
}

fn random(settings: &Settings, rng: &mut fastrand::Rng) -> Result<Vec<Part>, OrderError> {
    let all = [settings.pages];
    let sizes = if settings.sizes.is_empty() { &all } else { settings.sizes.as_slice() };
    let part = |&size: &u32| {
        if size == 0 {
            return Err(OrderError::NoMemory);
        }
        if size > settings.pages {
            return Err(OrderError::TooFew { needed: size.into(), pages: settings.pages });
        }
        let mut entries = Vec::with_capacity(size as usize * DRAWS);
        for _ in 0..DRAWS {
            let mut once: Vec<u32> = (0..size).collect();
            rng.shuffle(&mut once);
            entries.append(&mut once);
        }
        let times = settings.part_touches.div_ceil(entries.len() as u64).max(1);
        Ok(Part { entries, entry_touches: EntryTouches::Page(1), times })
    };
    sizes.iter().map(part).collect()
}

/// The recorded pages, renumbered in the order of their first visit.
fn recorded(trace: &[u64], pages: u32) -> Result<Vec<u32>, OrderError> {
    let mut numbers = HashMap::new();
    let mut number = |page: &u64| {
        let next = numbers.len() as u32;
        *numbers.entry(*page).or_insert(next)
    };
    let visits: Vec<u32> = trace.iter().map(&mut number).collect();
    let needed = numbers.len() as u64 * u64::from(STRETCH);
    match needed {
        0 => Err(OrderError::NoTrace),
        _ if needed > u64::from(pages) => Err(OrderError::TooFew { needed, pages }),
        _ => Ok(visits),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn settings(kind: Kind, pages: u32) -> Settings {
        Settings { kind, pages, seed: 7, sizes: vec![], part_touches: 0, trace: vec![] }
    }

    fn order(kind: Kind, pages: u32) -> Order {
        Order::new(&settings(kind, pages)).unwrap()
    }

    /// Touches computed one by one.
    fn naive(order: &Order, touches: Range<u64>) -> Vec<u32> {
        let mut round = Vec::new();
        for part in &order.parts {
            for _ in 0..part.times {
                for &entry in &part.entries {
                    round.extend(
                        (0..part.entry_touches.touches())
                            .map(|it| part.entry_touches.page(entry, it)),
                    );
                }
            }
        }
        touches.map(|touch| round[(touch % round.len() as u64) as usize]).collect()
    }

    fn small() -> Vec<Order> {
        let random =
            Settings { sizes: vec![3, 9, 1], part_touches: 50, ..settings(Kind::Random, 16) };
        let trace =
            Settings { trace: vec![900, 5, 900, 1 << 40], ..settings(Kind::Trace, 3 * STRETCH) };
        vec![
            order(Kind::Scan, 5),
            order(Kind::Chase, 4),
            Order::new(&random).unwrap(),
            Order::new(&trace).unwrap(),
        ]
    }

    #[test]
    fn ranges_equal_touches_one_by_one() {
        for order in small() {
            let round = order.round();
            for (from, len) in
                [(0, 1), (1, 40), (63, 3), (round - 1, 2), (round + 5, round), (7, 3 * round)]
            {
                let naive = naive(&order, from..from + len);
                let mut visits = Vec::new();
                order.visits(from..from + len, |page| visits.push(page));
                visits.dedup();
                let mut runs = naive.clone();
                runs.dedup();
                assert_eq!(visits, runs, "{order:?} {from} {len}");
                let mut seen = BTreeSet::new();
                let firsts: Vec<u32> =
                    naive.into_iter().filter(|&page| seen.insert(page)).collect();
                assert_eq!(order.first_touches(from..from + len), firsts, "{order:?} {from} {len}");
            }
        }
    }

    #[test]
    fn chase_visits_every_line_once_per_round() {
        let links = links(640, 3);
        let mut line = 0;
        let mut seen = BTreeSet::new();
        while seen.insert(line) {
            line = links[line as usize];
        }
        assert_eq!((seen.len(), line), (640, 0));
        let order = order(Kind::Chase, 10);
        assert_eq!((order.round(), order.first_touches(0..640).len()), (640, 10));
    }

    #[test]
    fn random_parts_have_the_requested_touches() {
        let settings =
            Settings { sizes: vec![100, 10], part_touches: 1000, ..settings(Kind::Random, 100) };
        let order = Order::new(&settings).unwrap();
        assert_eq!(order.round(), 3 * 400 + 25 * 40);
        assert_eq!(order.first_touches(0..100).len(), 100);
        assert!(order.first_touches(1200..2200).iter().all(|&page| page < 10));
    }

    #[test]
    fn popular_pages_are_touched_more_often() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut counts = vec![0; 1000];
        (0..100_000).for_each(|_| counts[zipf(&mut rng, 1000) as usize] += 1);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let hot: i32 = counts[..10].iter().sum();
        assert!((25_000..45_000).contains(&hot), "{hot}");
    }

    #[test]
    fn invalid_settings_are_refused() {
        let of = |settings: Settings| Order::new(&settings).unwrap_err();
        assert_eq!(of(settings(Kind::Scan, 0)), OrderError::NoMemory);
        assert_eq!(of(settings(Kind::Trace, 9)), OrderError::NoTrace);
        let trace = Settings { trace: vec![1, 2], ..settings(Kind::Trace, 2 * STRETCH - 1) };
        assert_eq!(of(trace), OrderError::TooFew { needed: 64, pages: 63 });
        let sizes = |sizes| Settings { sizes, ..settings(Kind::Random, 8) };
        assert_eq!(of(sizes(vec![9])), OrderError::TooFew { needed: 9, pages: 8 });
        assert_eq!(of(sizes(vec![0])), OrderError::NoMemory);
    }
}
