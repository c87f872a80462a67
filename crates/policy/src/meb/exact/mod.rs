//! The exact solver, for curves of any shape.
//!
//! Idea: most sizes can be ruled out. The worth of a step of memory, with fractions allowed
//! (`corners`), gives each size a gap to a bound that no allocation beats (`relaxed`). An
//! allocation is known from the start, so a size whose gap exceeds that allocation's sum of gaps is
//! in no best allocation. The dynamic programme then runs over the few remaining sizes and the
//! totals they can lead to (`window`, `layer`, `convolve`).
//!
//! The search tries limits of the sum, each twice the last. A least sum within the limit is the
//! best of all allocations, because every allocation within the limit was considered. A larger one
//! shows that the limit was too low, but belongs to a real allocation and may improve the known
//! sum. All best allocations are within the limit, so ties are settled as in the other solvers.
//!
//! Sums above the known one do not matter. The known one usually fits 32 bits, because only gaps
//! are added up; then the rest runs in 32 bits, and a processor adds four such sums at once.
//!
//! Cost: O(C + E log E) for C corners of the curves and E edges of their hulls, plus the last few
//! limits. Curves of programs and random curves leave one to a few sizes per guest, as `ballast
//! bench solver` measures. At worst, with all sizes of all guests equally good and no convex runs
//! (a sawtooth), every size remains, and the cost is that of the
//! [`dynamic_programme`](super::dynamic_programme), O(N M W). Memory for sums is at most
//! [`SUMS_BYTES_MAX`] or, if that is not enough, 2 √N layers of at most M + 1 sums at twice the
//! time.
//!
//! Source: reduction and bounds of the multiple-choice knapsack problem (Dyer, Kayal, Walker 1984;
//! Pisinger 1995) with the capacity filled exactly; doubling limits, the tie rule, convex runs and
//! the windows of totals are ours.

mod convolve;
mod corners;
mod layer;
mod relaxed;
mod survivors;
mod window;

use corners::Corners;
use layer::Layer;
use relaxed::{Relaxed, Size, fits_64_bits};
use survivors::Survivors;
use window::{Window, windows};

use super::cost::Cost;
use super::instance::{Instance, Solution};

/// The first limit is the known sum divided by this.
const LIMIT_PARTS: u64 = 64;
/// Ratio of a limit to the previous one.
const LIMIT_FACTOR: u64 = 2;

/// If the sums need no more memory than this, all are kept for the trace.
pub const SUMS_BYTES_MAX: usize = 256 << 20;

/// The allocation with the fewest misses.
#[must_use]
pub fn solve(instance: &Instance) -> Solution {
    solve_with(instance, SUMS_BYTES_MAX)
}

fn solve_with(instance: &Instance, bytes_max: usize) -> Solution {
    let corners = Corners::of(instance);
    let spare = instance.spare();
    let mut above = match corners.worth(spare) {
        None => corners.by_guest().map(|it| it.last().map_or(0, |last| last.at as usize)).collect(),
        Some(worth) if fits_64_bits(&corners, worth, spare) => {
            search(&Relaxed::<u64>::new(&corners, worth, spare), bytes_max)
        }
        Some(worth) => search(&Relaxed::<u128>::new(&corners, worth, spare), bytes_max),
    };
    allocate_rest(instance, &mut above);
    instance.solution(&above)
}

/// Gives steps left over to the last guests that can have them.
fn allocate_rest(instance: &Instance, above: &mut [usize]) {
    let mut left = instance.spare() - above.iter().sum::<usize>();
    for (at, sizes) in above.iter_mut().zip(instance.guests()).rev() {
        let more = left.min(sizes.width() - *at);
        *at += more;
        left -= more;
    }
}

/// The lexicographically smallest of the best allocations; some steps may be left over.
fn search<C: Cost>(relaxed: &Relaxed<C>, bytes_max: usize) -> Vec<usize> {
    match relaxed.narrowed() {
        Some(narrowed) => search_within(&narrowed, bytes_max),
        None => search_within(relaxed, bytes_max),
    }
}

/// Searches with doubling limits.
fn search_within<C: Cost>(relaxed: &Relaxed<C>, bytes_max: usize) -> Vec<usize> {
    let mut known = relaxed.known;
    // Different sums differ by at least a miss.
    let mut limit = (known / C::from(LIMIT_PARTS)).max(relaxed.unit).min(known);
    // Each turn at least doubles the limit; at the known sum it is high enough.
    loop {
        let survivors = Survivors::new(relaxed, limit, known);
        let tables = Tables::new(&survivors, bytes_max);
        if let Some(least) = tables.least {
            if least <= limit {
                return tables.trace(least);
            }
            known = known.min(least);
        }
        limit = (limit * C::from(LIMIT_FACTOR)).min(known);
    }
}

/// The layers kept for the trace, from the one after all guests on.
struct Tables<'a, C> {
    survivors: &'a Survivors<'a, C>,
    windows: Vec<Window>,
    /// Guests from one kept layer to the next.
    stride: usize,
    kept: Vec<Layer<C>>,
    /// The least sum for all guests.
    least: Option<C>,
}

impl<'a, C: Cost> Tables<'a, C> {
    fn new(survivors: &'a Survivors<'a, C>, bytes_max: usize) -> Self {
        let windows = windows(survivors);
        let guests = survivors.guests();
        let sums: usize = windows.iter().map(Window::len).sum();
        let all_fit = sums <= bytes_max / size_of::<C>();
        let stride = if all_fit { 1 } else { guests.isqrt().max(1) };
        let mut kept = Vec::with_capacity(guests / stride + 1);
        let mut layer = Layer::behind_all(survivors, windows[guests]);
        for guest in (0..guests).rev() {
            let next = layer.with(survivors, guest, windows[guest]);
            if (guests - guest - 1).is_multiple_of(stride) {
                kept.push(layer);
            }
            layer = next;
        }
        let least = layer.sum(survivors.relaxed.spare as i64);
        Self { survivors, windows, stride, kept, least }
    }

    /// The lexicographically smallest sizes whose gaps add up to `least`.
    fn trace(self, mut least: C) -> Vec<usize> {
        let guests = self.survivors.guests();
        let mut left = self.survivors.relaxed.spare as i64;
        let mut above = Vec::with_capacity(guests);
        for (index, kept) in self.kept.into_iter().enumerate().rev() {
            // The layers after each guest of this part, from the last guest to the first.
            let end = guests - index * self.stride;
            let mut layers = vec![kept];
            for guest in (end.saturating_sub(self.stride) + 1..end).rev() {
                let layer =
                    layers[layers.len() - 1].with(self.survivors, guest, self.windows[guest]);
                layers.push(layer);
            }
            for behind in layers.iter().rev() {
                let fits = |size: &&Size<C>| {
                    let sum = behind.sum(left - i64::from(size.at));
                    sum.is_some_and(|sum| sum + size.gap == least)
                };
                let Some(size) = self.survivors.of(above.len()).iter().find(fits) else {
                    unreachable!("the layers were computed from these sizes");
                };
                above.push(size.at as usize);
                left -= i64::from(size.at);
                least = least - size.gap;
            }
        }
        above
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::instance;
    use super::*;

    proptest! {
        #[test]
        fn a_memory_limit_does_not_change_the_solution(
            instance in instance(12), bytes_max in 0..2000_usize,
        ) {
            prop_assert_eq!(solve_with(&instance, bytes_max), solve(&instance));
        }
    }
}
