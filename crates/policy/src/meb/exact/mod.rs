//! The exact solver, for curves of any shape.
//!
//! Idea: most sizes can be ruled out. What a step of memory is worth when fractions are allowed
//! (`corners`) says how far each size is from a bound that no allocation beats (`relaxed`); some
//! allocation is known from the start, so that a size further off than this one in all is in no best
//! allocation. The dynamic programme then runs over the few sizes that survive and the totals that
//! they can lead to (`window`, `layer`, `convolve`).
//!
//! How far is far enough is tried in doubling limits. If a limit is too low, the sums say so: a least
//! sum within the limit is the best of all allocations, as every one within it was looked at, and a
//! sum beyond it is that of an allocation, and a better one to know. All best allocations are within
//! the limit, so the first guests' smallest sizes that lead to one settle ties as everywhere.
//!
//! Sums that matter are at most the one known, which mostly fits 32 bits when gaps are all that is
//! added up; then everything from there on is of 32 bits, of which a processor adds four at once.
//!
//! Cost: O(C + E log E) for C corners of the curves and E edges of their hulls, and what the last few
//! limits take. Curves of programs and random ones leave one to a few sizes per guest, which
//! `ballast bench solver` measures. At worst, where all sizes of all guests are equally good and make
//! no convex runs (teeth of a saw), every size survives and it is the dynamic programme: O(N M W),
//! as with [`dynamic_programme`](super::dynamic_programme). Memory for sums is at most
//! [`SUMS_BYTES_MAX`], or where that is not enough 2 √N layers of at most M + 1 sums, and time twice
//! as much.
//!
//! Source: reduction and bounds as of the multiple-choice knapsack problem (Dyer, Kayal, Walker 1984;
//! Pisinger 1995), its capacity filled exactly; limits by doubling, the tie rule, convex runs and
//! the bounds of totals are ours.

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

/// The first limit is this part of the sum that is known.
const LIMIT_PARTS: u64 = 64;
/// Each further one is so many times as much.
const LIMIT_FACTOR: u64 = 2;

/// Memory for sums up to which all of them are kept for the trace.
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
    hand_out_rest(instance, &mut above);
    instance.solution(&above)
}

/// Gives steps left over to the last guests that can have them.
fn hand_out_rest(instance: &Instance, above: &mut [usize]) {
    let mut left = instance.spare() - above.iter().sum::<usize>();
    for (at, sizes) in above.iter_mut().zip(instance.guests()).rev() {
        let more = left.min(sizes.width() - *at);
        *at += more;
        left -= more;
    }
}

/// The best allocation, some steps of which may be left over; the lexicographically smallest.
fn search<C: Cost>(relaxed: &Relaxed<C>, bytes_max: usize) -> Vec<usize> {
    match relaxed.narrowed() {
        Some(narrowed) => search_within(&narrowed, bytes_max),
        None => search_within(relaxed, bytes_max),
    }
}

/// The same with limits that double.
fn search_within<C: Cost>(relaxed: &Relaxed<C>, bytes_max: usize) -> Vec<usize> {
    let mut known = relaxed.known;
    // No two sums are nearer to each other than a miss, unless they are equal.
    let mut limit = (known / C::from(LIMIT_PARTS)).max(relaxed.unit).min(known);
    // Each turn at least doubles the limit, and at what is known it is high enough.
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

/// Layers at equal distances, from the one behind all guests on.
struct Tables<'a, C> {
    survivors: &'a Survivors<'a, C>,
    windows: Vec<Window>,
    /// Guests between layers that are kept.
    stride: usize,
    kept: Vec<Layer<C>>,
    /// The least sum of all guests.
    least: Option<C>,
}

impl<'a, C: Cost> Tables<'a, C> {
    fn new(survivors: &'a Survivors<'a, C>, bytes_max: usize) -> Self {
        let windows = windows(survivors);
        let guests = survivors.guests();
        let sums: usize = windows.iter().map(Window::len).sum();
        let stride = match sums <= bytes_max / size_of::<C>() {
            true => 1,
            false => guests.isqrt().max(1),
        };
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
            // Behind each guest of this part, from the last guest to the first.
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
        fn little_memory_changes_nothing(instance in instance(12), bytes_max in 0..2000_usize) {
            prop_assert_eq!(solve_with(&instance, bytes_max), solve(&instance));
        }
    }
}
