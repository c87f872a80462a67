//! Touches memory in an order.

use ballast_track_subject::{Kind, Order, PAGE, links};

use crate::memory::Memory;

/// Words of a cache line.
const LINE_WORDS: u64 = 8;
/// Words of a page.
const PAGE_WORDS: u64 = PAGE / 8;

/// The position of a walk.
pub(crate) enum Walk {
    /// Every line of every page, without a list.
    Scan {
        next: u64,
    },
    /// The chase: the word in memory is the next position.
    Chase {
        next: u64,
    },
    Listed(Listed),
}

/// A position in an order.
pub(crate) struct Listed {
    order: Order,
    part: usize,
    time: u64,
    entry: usize,
    number: u32,
    line: u64,
}

impl Walk {
    /// Starts a walk in `order` of `kind`; for a chase, writes the links to `memory`.
    pub(crate) fn new(kind: Kind, order: Order, memory: &Memory, seed: u64) -> Walk {
        match kind {
            Kind::Scan => Walk::Scan { next: 0 },
            Kind::Chase => {
                let lines = (memory.words() / LINE_WORDS) as u32;
                for (line, next) in links(lines, seed).into_iter().enumerate() {
                    memory.write(line as u64 * LINE_WORDS, u64::from(next) * LINE_WORDS);
                }
                Walk::Chase { next: 0 }
            }
            Kind::Zipf | Kind::Random | Kind::Trace => {
                Walk::Listed(Listed { order, part: 0, time: 0, entry: 0, number: 0, line: 0 })
            }
        }
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
            Walk::Listed(listed) => memory.read(listed.next()),
        }
    }
}

impl Listed {
    #[inline(always)]
    fn next(&mut self) -> u64 {
        let part = &self.order.parts()[self.part];
        let page = part.entry_touches.page(part.entries[self.entry], self.number);
        self.line = (self.line + LINE_WORDS * 7) % PAGE_WORDS;
        self.number += 1;
        if self.number == part.entry_touches.touches() {
            self.number = 0;
            self.entry += 1;
            if self.entry == part.entries.len() {
                self.entry = 0;
                self.time += 1;
                if self.time == part.times {
                    self.time = 0;
                    self.part = (self.part + 1) % self.order.parts().len();
                }
            }
        }
        u64::from(page) * PAGE_WORDS + self.line
    }
}

#[cfg(test)]
mod tests {
    use ballast_track_subject::Settings;

    use super::*;

    /// The pages touched equal those of the order.
    #[test]
    fn walk_follows_its_order() {
        let pages = 96;
        for kind in [Kind::Scan, Kind::Zipf, Kind::Random, Kind::Trace, Kind::Chase] {
            let settings = Settings {
                kind,
                pages,
                seed: 5,
                sizes: vec![40, 7],
                part_touches: 300,
                trace: vec![9, 8, 8, 7],
            };
            let order = Order::new(&settings).unwrap();
            let memory = Memory::new(u64::from(pages) * PAGE).unwrap();
            for word in 0..memory.words() {
                memory.write(word, word);
            }
            let mut walk = Walk::new(kind, order.clone(), &memory, 5);
            let count = order.round().min(4000) + 500;
            let mut touched: Vec<u64> =
                (0..count).map(|_| walk.touch(&memory) / PAGE_WORDS).collect();
            if kind == Kind::Chase {
                // Each word is the position of the next; the first is in page 0.
                touched.insert(0, 0);
                touched.pop();
            }
            touched.dedup();
            let mut expected = Vec::new();
            order.visits(0..count, |page| expected.push(u64::from(page)));
            expected.dedup();
            assert_eq!(touched, expected, "{kind:?}");
        }
    }
}
