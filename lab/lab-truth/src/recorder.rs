//! The pages touched in each interval, and their sequence.
//!
//! Idea: each page has the number of the interval of its last touch, so that detecting the first
//! touch in an interval is one comparison. The trace omits repeated accesses to the same page: they
//! are most accesses, and each only has the stack distance zero.
//! Cost: O(1) per access, 4 bytes per page. Limits: pages from [`PAGES_MAX`] on are not recorded.

/// Most guest physical pages that are recorded: 256 GiB.
const PAGES_MAX: u64 = 1 << 26;
/// References of the trace per block.
pub(crate) const BLOCK: usize = 1 << 16;
/// Number of pages by which `stamps` grows.
const GROWTH: usize = 1 << 15;

/// The totals of one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    /// Number of the interval, from 0.
    pub(crate) interval: u32,
    /// Distinct pages touched.
    pub(crate) pages: u64,
    /// Loads and stores.
    pub(crate) accesses: u64,
    /// References in the trace up to the interval's end.
    pub(crate) references: u64,
}

/// The consumer of a record.
pub(crate) trait Sink {
    /// Takes the row of an interval that has ended.
    fn row(&mut self, row: Row);
    /// Takes the next references of the trace.
    fn references(&mut self, block: Vec<u64>);
}

/// Records the accesses of one guest.
pub(crate) struct Recorder<S> {
    sink: S,
    /// By page: the number of the interval of its latest access plus one; 0: never accessed.
    stamps: Vec<u32>,
    row: Row,
    /// The references of the current block; `None`: no trace.
    block: Option<Vec<u64>>,
    latest: u64,
}

impl<S: Sink> Recorder<S> {
    pub(crate) fn new(sink: S, trace: bool) -> Recorder<S> {
        let block = trace.then(|| Vec::with_capacity(BLOCK));
        Recorder { sink, stamps: Vec::new(), row: Row::default(), block, latest: u64::MAX }
    }

    /// Records a load or store of `page` in `interval`, which never decreases.
    pub(crate) fn access(&mut self, page: u64, interval: u32) {
        if interval != self.row.interval {
            self.advance(interval);
        }
        self.row.accesses += 1;
        if page == self.latest || page >= PAGES_MAX {
            return;
        }
        self.latest = page;
        let index = page as usize;
        if index >= self.stamps.len() {
            self.stamps.resize((index + 1).next_multiple_of(GROWTH), 0);
        }
        let stamp = interval + 1;
        if self.stamps[index] != stamp {
            self.stamps[index] = stamp;
            self.row.pages += 1;
        }
        if let Some(block) = &mut self.block {
            block.push(page);
            self.row.references += 1;
            if block.len() == BLOCK {
                self.sink.references(std::mem::replace(block, Vec::with_capacity(BLOCK)));
            }
        }
    }

    /// Counts accesses of the current interval to pages already recorded in it.
    pub(crate) fn count(&mut self, accesses: u64) {
        self.row.accesses += accesses;
    }

    /// Ends every interval before `interval`.
    pub(crate) fn advance(&mut self, interval: u32) {
        // References of an interval are passed on before its row, which counts them.
        if let Some(block) = self.block.as_mut().filter(|block| !block.is_empty()) {
            self.sink.references(std::mem::take(block));
        }
        while self.row.interval < interval {
            self.sink.row(self.row);
            let Row { interval, references, .. } = self.row;
            self.row = Row { interval: interval + 1, references, ..Row::default() };
        }
        // The first access of an interval counts even if its page was the last of the previous
        // interval.
        self.latest = u64::MAX;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[derive(Default)]
    pub(crate) struct MemorySink {
        pub(crate) rows: Vec<Row>,
        pub(crate) trace: Vec<u64>,
    }

    impl Sink for &mut MemorySink {
        fn row(&mut self, row: Row) {
            assert_eq!(row.references, self.trace.len() as u64);
            self.rows.push(row);
        }

        fn references(&mut self, block: Vec<u64>) {
            self.trace.extend(block);
        }
    }

    fn record(accesses: &[(u64, u32)], until: u32) -> MemorySink {
        let mut kept = MemorySink::default();
        let mut recorder = Recorder::new(&mut kept, true);
        accesses.iter().for_each(|&(page, interval)| recorder.access(page, interval));
        recorder.advance(until);
        kept
    }

    #[test]
    fn rows_and_trace_equal_those_by_hand() {
        let kept = record(&[(7, 0), (7, 0), (9, 0), (7, 0), (7, 2), (PAGES_MAX, 2)], 3);
        let row =
            |interval, pages, accesses, references| Row { interval, pages, accesses, references };
        assert_eq!(kept.rows, [row(0, 2, 4, 3), row(1, 0, 0, 3), row(2, 1, 2, 4)]);
        assert_eq!(kept.trace, [7, 9, 7, 7]);
    }

    proptest! {
        #[test]
        fn counts_equal_those_of_a_set(
            accesses in prop::collection::vec((0..40_u64, 0..2_u32), 0..300)
        ) {
            let mut interval = 0;
            let timed: Vec<(u64, u32)> = accesses
                .iter()
                .map(|&(page, step)| { interval += step; (page, interval) })
                .collect();
            let kept = record(&timed, interval + 1);
            for row in &kept.rows {
                let within = timed.iter().filter(|(_, it)| *it == row.interval);
                let pages: BTreeSet<u64> = within.clone().map(|&(page, _)| page).collect();
                prop_assert_eq!(row.pages, pages.len() as u64);
                prop_assert_eq!(row.accesses, within.count() as u64);
            }
            prop_assert_eq!(kept.rows.len() as u32, interval + 1);
            let mut expected = timed;
            expected.dedup();
            let pages: Vec<u64> = expected.into_iter().map(|(page, _)| page).collect();
            prop_assert_eq!(kept.trace, pages);
        }
    }
}
