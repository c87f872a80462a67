//! The paper's dynamic programme (MEB §4, Algorithm 1).
//!
//! Idea: the fewest misses of a group of guests with a given total are those of one guest at one of
//! its sizes, plus the fewest misses of the others with the rest of the total.
//!
//! Cost: O(N M W) for N guests, M steps to allocate and W sizes of a guest, and N (M + 1) targets
//! of 4 bytes. It serves as a comparison; [`exact`](super::exact) decides.
//!
//! Deviations: totals start at the sum of lower bounds and end at the largest possible one. (The
//! paper starts its trace at P, which has no entry off the grid or above the sum of upper bounds.)
//! The tables go over the guests from the last to the first and the trace from the first to the
//! last, so that in a tie the first guests get the smallest sizes.

use super::cost::Cost;
use super::instance::{Instance, Sizes, Solution};

/// The allocation with the fewest misses.
#[must_use]
pub fn solve(instance: &Instance) -> Solution {
    let most: u128 = instance.guests().iter().map(|sizes| u128::from(sizes.misses[0])).sum();
    let above =
        if most < u128::from(u64::END) { run::<u64>(instance) } else { run::<u128>(instance) };
    instance.solution(&above)
}

/// The steps of each guest above its lower bound.
fn run<C: Cost>(instance: &Instance) -> Vec<usize> {
    let guests = instance.guests();
    // Fewest misses of the guests after the present one, by total.
    let mut behind: Vec<C> = vec![C::ZERO];
    let mut targets: Vec<Vec<u32>> = Vec::with_capacity(guests.len());
    for sizes in guests.iter().rev() {
        let (misses, target) = add_guest(sizes, &behind, instance.spare());
        behind = misses;
        targets.push(target);
    }
    let mut left = instance.spare();
    let mut above = Vec::with_capacity(guests.len());
    for target in targets.iter().rev() {
        let at = target[left] as usize;
        above.push(at);
        left -= at;
    }
    above
}

/// Fewest misses by total with one more guest, and that guest's size by total.
fn add_guest<C: Cost>(sizes: &Sizes, behind: &[C], spare: usize) -> (Vec<C>, Vec<u32>) {
    let total_max = spare.min(sizes.width() + behind.len() - 1);
    let costs: Vec<C> = sizes.misses.iter().map(|&misses| C::from(misses)).collect();
    let (mut misses, mut targets) = (vec![C::END; total_max + 1], vec![0; total_max + 1]);
    for total in 0..=total_max {
        let (first, last) = (total.saturating_sub(behind.len() - 1), total.min(sizes.width()));
        for (at, &cost) in costs.iter().enumerate().take(last + 1).skip(first) {
            let sum = cost + behind[total - at];
            if sum < misses[total] {
                misses[total] = sum;
                targets[total] = at as u32;
            }
        }
    }
    (misses, targets)
}
