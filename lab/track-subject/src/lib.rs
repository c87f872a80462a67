//! Orders in which the program touches its memory.
//!
//! Idea: which page comes when follows from a few settings, so the program and whoever measures it make
//! the same order each for itself, and a count of touches says exactly which pages were touched: a truth
//! that costs the program nothing. An order is a *round* that begins anew when it is over; a round has
//! *parts*, each a list that is gone through some times.
//!
//! Cost: 4 bytes an entry of a list; O(touches), of a part one pass at most, to tell its pages.
//! Source: the cycle of the pointer chase is Sattolo 1986's; that of random pages the lab's `random-array`.

use std::collections::HashMap;
use std::ops::Range;

use thiserror::Error;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Cache lines of a page.
pub const PAGE_LINES: u32 = 64;
/// Pages that stand for one of a recorded program: recorded are kilobytes, and some seconds.
pub const STRETCH: u32 = 32;
/// Drawn pages, which are visited over and over: drawing costs more than visiting.
const DRAWN: usize = 1 << 20;
/// How often each page comes in the list of a part of random pages.
const DRAWS: usize = 4;
/// How unequal pages are visited by `zipf`.
const ZIPF_EXPONENT: f64 = 0.99;

/// An order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Every cache line in the order of addresses
    Scan,
    /// Every cache line once a round, each naming the next, far away
    Chase,
    /// Lines of pages of unequal popularity
    Zipf,
    /// Lines of random pages, of the first so many, which change from time to time
    Random,
    /// Lines of the pages of a recorded program, 32 pages in the place of one
    Trace,
}

/// What an order is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its kind.
    pub kind: Kind,
    /// Pages of memory.
    pub pages: u32,
    /// Picks one of many, where chance has a part in it.
    pub seed: u64,
    /// Of `random`: how many pages, part after part; none is all.
    pub sizes: Vec<u32>,
    /// Of `random`: touches of a part, at least.
    pub part_touches: u64,
    /// Of `trace`: the numbers of pages.
    pub trace: Vec<u64>,
}

/// Settings of which there is no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OrderError {
    /// No memory.
    #[error("no page of memory: expected one at least")]
    NoMemory,
    /// Nothing recorded.
    #[error("a trace without page numbers")]
    NoTrace,
    /// More memory is needed.
    #[error("{needed} pages, more than the {pages} there are: raise --mib")]
    TooFew {
        /// Pages needed.
        needed: u64,
        /// Pages there are.
        pages: u32,
    },
}

/// Pages in the order of touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    parts: Vec<Part>,
    pages: u32,
}

/// A list that is gone through some times. It has an entry, a touch, and a time at least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// What is touched.
    pub entries: Vec<u32>,
    /// How an entry is.
    pub each: Each,
    /// How often.
    pub times: u64,
}

/// How an entry of a list is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Each {
    /// It is a page that is touched so often in a row.
    Page(u32),
    /// It is so many pages, each of which is touched once.
    Pages(u32),
}

impl Each {
    /// Touches of an entry.
    pub const fn touches(self) -> u32 {
        match self {
            Each::Page(count) | Each::Pages(count) => count,
        }
    }

    /// The page of touch `number` of `entry`.
    #[inline]
    pub const fn page(self, entry: u32, number: u32) -> u32 {
        match self {
            Each::Page(_) => entry,
            Each::Pages(count) => entry * count + number,
        }
    }
}

impl Part {
    /// Touches of going through the list once.
    fn pass(&self) -> u64 {
        self.entries.len() as u64 * u64::from(self.each.touches())
    }

    /// All of its touches.
    fn touches(&self) -> u64 {
        self.pass() * self.times
    }
}

impl Order {
    /// The order of such settings.
    ///
    /// # Errors
    /// [`OrderError`].
    pub fn new(settings: &Settings) -> Result<Order, OrderError> {
        let Settings { kind, pages, seed, .. } = *settings;
        if pages == 0 {
            return Err(OrderError::NoMemory);
        }
        let mut rng = fastrand::Rng::with_seed(seed);
        let one = |entries, each| vec![Part { entries, each, times: 1 }];
        let parts = match kind {
            Kind::Scan => one((0..pages).collect(), Each::Page(PAGE_LINES)),
            Kind::Chase => one(chased(pages, seed), Each::Page(1)),
            Kind::Zipf => one((0..DRAWN).map(|_| zipf(&mut rng, pages)).collect(), Each::Page(1)),
            Kind::Random => random(settings, &mut rng)?,
            Kind::Trace => one(recorded(&settings.trace, pages)?, Each::Pages(STRETCH)),
        };
        Ok(Order { parts, pages })
    }

    /// Its parts.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Touches of a round.
    pub fn round(&self) -> u64 {
        self.parts.iter().map(Part::touches).sum()
    }

    /// Pages of the touches of numbers `touches`, each once, in the order of their first.
    pub fn first_touches(&self, touches: Range<u64>) -> Vec<u32> {
        let mut seen = vec![false; self.pages as usize];
        let mut order = Vec::new();
        self.spans(touches, |part, span| {
            // Another pass has no other pages.
            let end = span.end.min(span.start + part.pass());
            walk(part, span.start..end, &mut |page| {
                if !std::mem::replace(&mut seen[page as usize], true) {
                    order.push(page);
                }
            });
        });
        order
    }

    /// Hands each page of the touches of numbers `touches` to `take`, in order; one that is touched
    /// several times in a row once.
    pub fn visits(&self, touches: Range<u64>, mut take: impl FnMut(u32)) {
        self.spans(touches, |part, span| walk(part, span, &mut take));
    }

    /// The parts that touches are of, and their numbers in them.
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

/// Pages of touches of a part.
fn walk(part: &Part, touches: Range<u64>, take: &mut impl FnMut(u32)) {
    let each = u64::from(part.each.touches());
    let mut at = touches.start;
    while at < touches.end {
        let entry = part.entries[(at / each % part.entries.len() as u64) as usize];
        let (number, left) = ((at % each) as u32, touches.end - at);
        match part.each {
            Each::Page(_) => {
                take(entry);
                at += each - u64::from(number);
            }
            Each::Pages(count) => {
                let end = number + left.min(u64::from(count - number)) as u32;
                (number..end).for_each(|number| take(part.each.page(entry, number)));
                at += u64::from(end - number);
            }
        }
    }
}

/// For each of `lines` the one that comes after it, in one random circle through all.
pub fn links(lines: u32, seed: u64) -> Vec<u32> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut links: Vec<u32> = (0..lines).collect();
    for last in (1..links.len()).rev() {
        links.swap(last, rng.usize(0..last));
    }
    links
}

/// The pages of the lines of that circle, from the first line on.
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

/// A page by popularity: the density at rank x is `(x + 1)^-exponent`, and ranks lie scattered.
fn zipf(rng: &mut fastrand::Rng, pages: u32) -> u32 {
    let rest = 1.0 - ZIPF_EXPONENT;
    let last = (f64::from(pages) + 1.0).powf(rest);
    let rank = (1.0 + rng.f64() * (last - 1.0)).powf(1.0 / rest) - 1.0;
    let rank = (rank as u64).min(u64::from(pages) - 1);
    // An odd factor would scatter a power of two of pages without collisions; others nearly so.
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
        Ok(Part { entries, each: Each::Page(1), times })
    };
    sizes.iter().map(part).collect()
}

/// The recorded pages, numbered in the order of their first visit.
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

    /// Touch by touch.
    fn naive(order: &Order, touches: Range<u64>) -> Vec<u32> {
        let mut round = Vec::new();
        for part in &order.parts {
            for _ in 0..part.times {
                for &entry in &part.entries {
                    round.extend((0..part.each.touches()).map(|it| part.each.page(entry, it)));
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
    fn touches_are_told_as_they_come() {
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
    fn a_chase_comes_by_every_line_once_a_round() {
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
    fn parts_of_random_pages_last_as_long_as_wanted() {
        let settings =
            Settings { sizes: vec![100, 10], part_touches: 1000, ..settings(Kind::Random, 100) };
        let order = Order::new(&settings).unwrap();
        assert_eq!(order.round(), 3 * 400 + 25 * 40);
        assert_eq!(order.first_touches(0..100).len(), 100);
        assert!(order.first_touches(1200..2200).iter().all(|&page| page < 10));
    }

    #[test]
    fn popular_pages_come_more_often() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut counts = vec![0; 1000];
        (0..100_000).for_each(|_| counts[zipf(&mut rng, 1000) as usize] += 1);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let hot: i32 = counts[..10].iter().sum();
        assert!((25_000..45_000).contains(&hot), "{hot}");
    }

    #[test]
    fn settings_without_an_order() {
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
