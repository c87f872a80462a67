//! A test oracle for the solvers: tries every allocation, in lexicographic order.
//!
//! Cost: the product of all guests' sizes; for tests only (MEB §4 measures 5 % of a core with four
//! guests; with sixteen it does not finish).

use super::instance::{Instance, Solution};

/// The first of the best allocations.
pub(super) fn solve(instance: &Instance) -> Solution {
    let mut search = SizeSearch { instance, above: vec![], best: None };
    search.extend(instance.spare(), 0);
    let (_, above) = search.best.expect("the spare steps are at most those between bounds");
    instance.solution(&above)
}

struct SizeSearch<'a> {
    instance: &'a Instance,
    above: Vec<usize>,
    best: Option<(u128, Vec<usize>)>,
}

impl SizeSearch<'_> {
    fn extend(&mut self, left: usize, misses: u128) {
        let Some(sizes) = self.instance.guests().get(self.above.len()) else {
            if left == 0 && self.best.as_ref().is_none_or(|(least, _)| misses < *least) {
                self.best = Some((misses, self.above.clone()));
            }
            return;
        };
        for (at, &more) in sizes.misses.iter().enumerate().take(left + 1) {
            self.above.push(at);
            self.extend(left - at, misses + u128::from(more));
            self.above.pop();
        }
    }
}
