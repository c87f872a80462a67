//! Orders in which memory is touched.

use std::path::Path;

use anyhow::{Context, ensure};

use crate::memory::{Memory, PAGE};

/// Words of a cache line.
const LINE_WORDS: u64 = 8;
/// Words of a page.
const PAGE_WORDS: u64 = PAGE / 8;
/// Drawn pages, which are visited over and over: drawing costs more than visiting.
const DRAWN: usize = 1 << 20;
/// How unequal pages are visited by `zipf`.
const ZIPF_EXPONENT: f64 = 0.99;

/// An order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// Every cache line in the order of addresses
    Scan,
    /// Every cache line once a round, each naming the next, far away
    Chase,
    /// Lines of pages of unequal popularity
    Zipf,
    /// Lines of the pages of a recorded program
    Trace,
}

/// Where it is.
pub(crate) enum Walk {
    Scan {
        next: u64,
    },
    Chase {
        next: u64,
    },
    /// Pages to visit, over and over, and the line of each.
    Pages {
        pages: Vec<u32>,
        next: usize,
        line: u64,
    },
}

impl Walk {
    /// The order of `kind` over `memory`, which `chase` writes to.
    pub(crate) fn new(
        kind: Kind,
        memory: &Memory,
        trace: Option<&Path>,
        seed: u64,
    ) -> anyhow::Result<Walk> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let pages = memory.bytes() / PAGE;
        Ok(match kind {
            Kind::Scan => Walk::Scan { next: 0 },
            Kind::Chase => {
                link(memory, &mut rng);
                Walk::Chase { next: 0 }
            }
            Kind::Zipf => pages_of((0..DRAWN).map(|_| zipf(&mut rng, pages)).collect()),
            Kind::Trace => pages_of(recorded(trace.context("no trace")?, pages)?),
        })
    }

    /// Touches the next word.
    #[inline(always)]
    pub(crate) fn touch(&mut self, memory: &Memory) -> u64 {
        match self {
            Walk::Scan { next } => {
                let word = *next;
                *next = if word + LINE_WORDS < memory.words() { word + LINE_WORDS } else { 0 };
                memory.read(word)
            }
            Walk::Chase { next } => {
                *next = memory.read(*next);
                *next
            }
            Walk::Pages { pages, next, line } => {
                let page = u64::from(pages[*next]);
                *next = if *next + 1 < pages.len() { *next + 1 } else { 0 };
                *line = (*line + LINE_WORDS * 7) % PAGE_WORDS;
                memory.read(page * PAGE_WORDS + *line)
            }
        }
    }
}

fn pages_of(pages: Vec<u32>) -> Walk {
    Walk::Pages { pages, next: 0, line: 0 }
}

/// Writes into each cache line which one is next, in one random circle through all (Sattolo 1986).
fn link(memory: &Memory, rng: &mut fastrand::Rng) {
    let mut lines: Vec<u64> = (0..memory.words() / LINE_WORDS).collect();
    for last in (1..lines.len()).rev() {
        lines.swap(last, rng.usize(0..last));
    }
    for (line, next) in lines.iter().enumerate() {
        memory.write(line as u64 * LINE_WORDS, next * LINE_WORDS);
    }
}

/// A page by popularity: the density at rank x is `(x + 1)^-exponent`, and ranks lie scattered.
fn zipf(rng: &mut fastrand::Rng, pages: u64) -> u32 {
    let rest = 1.0 - ZIPF_EXPONENT;
    let last = (pages as f64 + 1.0).powf(rest);
    let rank = (1.0 + rng.f64() * (last - 1.0)).powf(1.0 / rest) - 1.0;
    let rank = (rank as u64).min(pages - 1);
    // An odd factor would scatter a power of two of pages without collisions; others nearly so.
    ((rank.wrapping_mul(0x9E37_79B1)) % pages) as u32
}

/// The recorded pages, numbered in the order of their first visit.
fn recorded(path: &Path, pages: u64) -> anyhow::Result<Vec<u32>> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut numbers = std::collections::HashMap::new();
    let mut number = |word: &[u8; 8]| {
        let next = numbers.len() as u32;
        *numbers.entry(u64::from_le_bytes(*word)).or_insert(next)
    };
    let (words, _) = bytes.as_chunks::<8>();
    let visits: Vec<u32> = words.iter().map(&mut number).collect();
    ensure!(!visits.is_empty(), "{} has no page numbers", path.display());
    ensure!(
        numbers.len() as u64 <= pages,
        "{} has {} pages, more than the {pages} there are: raise --mib",
        path.display(),
        numbers.len()
    );
    Ok(visits)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn touched(walk: &mut Walk, memory: &Memory, count: usize) -> Vec<u64> {
        (0..count).map(|_| walk.touch(memory)).collect()
    }

    #[test]
    fn a_chase_comes_by_every_line_once_a_round() {
        let memory = Memory::new(1 << 20).unwrap();
        let mut walk = Walk::new(Kind::Chase, &memory, None, 7).unwrap();
        let lines = 1 << 14;
        let round = touched(&mut walk, &memory, lines);
        assert_eq!(round.iter().collect::<BTreeSet<_>>().len(), lines);
        assert_eq!(touched(&mut walk, &memory, lines), round);
    }

    #[test]
    fn a_scan_reads_every_page() {
        let memory = Memory::new(1 << 20).unwrap();
        let mut walk = Walk::new(Kind::Scan, &memory, None, 0).unwrap();
        // Each page's first word is its number, the others are zero.
        let sum: u64 = touched(&mut walk, &memory, 1 << 14).iter().sum();
        assert_eq!(sum, (0..256).sum::<u64>());
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
    fn a_recorded_program_is_visited_in_its_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.u64");
        let words = [900_u64, 5, 900, 1 << 40];
        std::fs::write(&path, words.map(u64::to_le_bytes).concat()).unwrap();
        assert_eq!(recorded(&path, 256).unwrap(), [0, 1, 0, 2]);
        assert!(recorded(&path, 2).unwrap_err().to_string().contains("raise --mib"));
        std::fs::write(&path, "").unwrap();
        assert!(recorded(&path, 2).is_err());
        assert!(recorded(&folder.path().join("no"), 2).is_err());
    }
}
