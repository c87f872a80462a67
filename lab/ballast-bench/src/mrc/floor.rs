//! The floor: what any exact engine must do at least.
//!
//! Idea: for each reference an engine must find the page's latest reference, replace it, and count
//! something that depends on it in a histogram with as many entries as there are distances. Here it
//! counts the time since that reference, with everything longer than the greatest distance in one
//! entry. So the distances are wrong, but no engine that finds the right ones can do less. It gets
//! page numbers that are already indices of an array.
//!
//! Cost: one load, one store and one addition, at two places that depend on the page. Finding and
//! counting alternate by block: on Zipf that is 50 % faster than alternating by reference.

/// References whose ages are counted together, so that several wait for memory at the same time.
const BLOCK: usize = 1024;

/// Latest references and a histogram of reuse times.
pub(super) struct Floor {
    last: Vec<u32>,
    counts: Vec<u64>,
    now: u32,
}

impl Floor {
    /// For page numbers below `numbers`; `distinct` of them occur.
    pub(super) fn new(numbers: u64, distinct: u64) -> Self {
        let (last, counts) = (vec![0; numbers as usize], vec![0; distinct as usize + 1]);
        Self { last, counts, now: 0 }
    }

    /// References `pages`.
    pub(super) fn take(&mut self, pages: &[u64]) {
        let (last, counts) = (self.last.as_mut_slice(), self.counts.as_mut_slice());
        let greatest = counts.len() as u32 - 1;
        let mut now = self.now;
        let mut ages = [0; BLOCK];
        for pages in pages.chunks(BLOCK) {
            let ages = &mut ages[..pages.len()];
            for (&page, age) in pages.iter().zip(&mut *ages) {
                now = now.wrapping_add(1);
                let last = &mut last[page as usize];
                *age = now.wrapping_sub(*last).min(greatest);
                *last = now;
            }
            for &age in &*ages {
                counts[age as usize] += 1;
            }
        }
        self.now = now;
        std::hint::black_box(&self.counts);
    }
}
