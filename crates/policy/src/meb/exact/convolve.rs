//! Combines one guest's gaps with the least sums of the guests after it.
//!
//! Idea: `sum(x) = min over sizes of gap + behind(x − at)`, a convolution in (min, +). In general
//! each size takes one pass over the totals behind. In a run of equally spaced sizes with convex
//! gaps, the best total behind never falls as x grows; so the whole run takes about log T passes,
//! by halving the range of x and searching on either side of the result. In a run with equal gaps,
//! as on a straight part of a curve, the sum is the minimum in a sliding window.
//!
//! Cost: with T totals, O(T) for each single size, O(T log T) for a convex run, O(T) for a level
//! run.
//! Source: monotone minima as in Aggarwal, Klawe, Moran, Shor, Wilber 1987; their linear-time
//! method would gain little here.

use std::collections::VecDeque;

use super::relaxed::Size;
use crate::meb::cost::Cost;

/// Number of plain passes that take as long as halving the range once, as measured; passes are fast
/// because they run over memory in order without branches.
const PASSES_PER_HALVING: usize = 4;
/// Number of plain passes that take as long as a sliding window, as measured.
const PASSES_PER_SLIDE: usize = 8;

/// Sums by total, from `first` on.
pub(super) struct Sums<T> {
    pub(super) first: i64,
    pub(super) sums: T,
}

/// Lowers `here` to the convolution of `sizes`, from the smallest, with `behind`.
pub(super) fn convolve<C: Cost>(here: &mut Sums<&mut [C]>, behind: Sums<&[C]>, sizes: &[Size<C>]) {
    let halvings = 1 + behind.sums.len().max(1).ilog2() as usize;
    let mut sizes = sizes;
    while !sizes.is_empty() {
        let (run, others) = sizes.split_at(convex_run(sizes));
        let is_level = run.windows(2).all(|two| two[0].gap == two[1].gap);
        let passes = if is_level { PASSES_PER_SLIDE } else { PASSES_PER_HALVING * halvings };
        if run.len() > passes {
            in_classes(here, &behind, run, is_level);
        } else {
            run.iter().for_each(|size| pass(here, &behind, size));
        }
        sizes = others;
    }
}

/// Length of the first run of equally spaced sizes with convex gaps.
fn convex_run<C: Cost>(sizes: &[Size<C>]) -> usize {
    let goes_on = |three: &[Size<C>]| {
        let [a, b, c] = three else { return false };
        c.at - b.at == b.at - a.at && a.gap + c.gap >= b.gap + b.gap
    };
    match sizes.len() {
        0..=2 => sizes.len(),
        _ => 2 + sizes.windows(3).take_while(|three| goes_on(three)).count(),
    }
}

/// Lowers `here` by one size.
fn pass<C: Cost>(here: &mut Sums<&mut [C]>, behind: &Sums<&[C]>, size: &Size<C>) {
    let at = i64::from(size.at);
    let from = here.first.max(behind.first + at);
    let here_end = here.first + here.sums.len() as i64;
    let end = here_end.min(behind.first + behind.sums.len() as i64 + at);
    if from >= end {
        return;
    }
    let sums = &mut here.sums[(from - here.first) as usize..(end - here.first) as usize];
    let there = (from - at - behind.first) as usize..(end - at - behind.first) as usize;
    for (sum, &behind) in sums.iter_mut().zip(&behind.sums[there]) {
        *sum = (*sum).min(behind + size.gap);
    }
}

/// Lowers `here` by a convex run. Totals are split into classes by their remainder modulo the
/// spacing of the run, because those of different classes do not affect each other.
fn in_classes<C: Cost>(
    here: &mut Sums<&mut [C]>,
    behind: &Sums<&[C]>,
    run: &[Size<C>],
    is_level: bool,
) {
    let [first, second, ..] = run else { return };
    let (at, stride) = (i64::from(first.at), i64::from(second.at - first.at));
    for class in 0..stride.min(behind.sums.len() as i64) {
        // The totals behind are `behind.first + class + stride × y` for y below `count`, those here
        // are `base_here + stride × x`, and size x − y of the run leads from y to x.
        let count = (behind.sums.len() as i64 - class + stride - 1) / stride;
        let base_here = behind.first + class + at;
        let x_first = (here.first - base_here + stride - 1).div_euclid(stride).max(0);
        let here_last = here.first + here.sums.len() as i64 - 1;
        let x_last = (here_last - base_here).div_euclid(stride).min(count + run.len() as i64 - 2);
        let mut sums = Class {
            here: here.sums,
            here_offset: base_here - here.first,
            behind: behind.sums,
            behind_offset: class,
            stride,
            run,
        };
        if is_level {
            sums.slide(x_first, x_last, count - 1);
        } else {
            sums.halve(x_first, x_last, 0, count - 1);
        }
    }
}

/// Sums of one class; `x` and `y` are as in [`in_classes`].
struct Class<'a, C> {
    here: &'a mut [C],
    here_offset: i64,
    behind: &'a [C],
    behind_offset: i64,
    stride: i64,
    run: &'a [Size<C>],
}

impl<C: Cost> Class<'_, C> {
    fn behind(&self, y: i64) -> C {
        self.behind[(self.behind_offset + self.stride * y) as usize]
    }

    fn lower(&mut self, x: i64, sum: C) {
        let here = &mut self.here[(self.here_offset + self.stride * x) as usize];
        *here = (*here).min(sum);
    }

    /// Lowers the sums of all x from `x_first` to `x_last` for a run of equal gaps.
    fn slide(&mut self, x_first: i64, x_last: i64, y_last: i64) {
        let (gap, reach) = (self.run[0].gap, self.run.len() as i64 - 1);
        // The y within reach without a smaller sum after them, so their sums rise.
        let mut rising: VecDeque<(i64, C)> = VecDeque::new();
        let mut y = (x_first - reach).max(0);
        for x in x_first..=x_last {
            while y <= x.min(y_last) {
                let sum = self.behind(y);
                while rising.pop_back_if(|last| last.1 >= sum).is_some() {}
                rising.push_back((y, sum));
                y += 1;
            }
            while rising.pop_front_if(|first| first.0 < x - reach).is_some() {}
            if let Some(&(_, sum)) = rising.front() {
                self.lower(x, sum + gap);
            }
        }
    }

    /// Lowers the sums of all x from `x_first` to `x_last`, with the best y from `y_first` to
    /// `y_last`. Recursion is as deep as x has bits.
    fn halve(&mut self, x_first: i64, x_last: i64, y_first: i64, y_last: i64) {
        if x_first > x_last {
            return;
        }
        let x = x_first + (x_last - x_first) / 2;
        let (from, to) = (y_first.max(x + 1 - self.run.len() as i64), y_last.min(x));
        let (mut least, mut best) = (None, from);
        for y in from..=to {
            let sum = self.behind(y) + self.run[(x - y) as usize].gap;
            if least.is_none_or(|least| sum < least) {
                (least, best) = (Some(sum), y);
            }
        }
        if let Some(least) = least {
            self.lower(x, least);
        }
        self.halve(x_first, x - 1, y_first, best);
        self.halve(x + 1, x_last, best, y_last);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sizes() -> impl Strategy<Value = Vec<Size<u64>>> {
        let runs =
            prop::collection::vec((1..4_u32, 0..80_u32, 0..3_u64, 0..3_u64, 0..40_u64), 1..4);
        runs.prop_map(|runs| {
            let (mut at, mut sizes) = (0, Vec::new());
            for (stride, len, curvature, slope, gap) in runs {
                for step in 0..u64::from(len) {
                    let gap = gap + slope * step + curvature * step * step;
                    sizes.push(Size { at, gap });
                    at += stride;
                }
            }
            sizes
        })
    }

    proptest! {
        #[test]
        fn sums_equal_the_definition_of_the_convolution(
            sizes in sizes(), first in 0..20_i64, here_first in 0..60_i64, len in 0..300_usize,
            behind in prop::collection::vec(prop_oneof![0..500_u64, Just(u64::END)], 0..60),
        ) {
            let mut sums = vec![u64::END; len];
            let there = Sums { first, sums: &behind[..] };
            convolve(&mut Sums { first: here_first, sums: &mut sums[..] }, there, &sizes);
            for (x, &found) in (here_first..).zip(&sums) {
                let sum = |size: &Size<u64>| {
                    let y = usize::try_from(x - i64::from(size.at) - first).ok()?;
                    behind.get(y).map(|behind| behind + size.gap)
                };
                let least = sizes.iter().filter_map(sum).min().unwrap_or(u64::END);
                prop_assert_eq!(found, least.min(u64::END), "{}", x);
            }
        }
    }
}
