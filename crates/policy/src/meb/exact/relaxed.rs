//! How far each size is from what the relaxed problem would choose.
//!
//! Idea: with λ, what a step is worth, each size has a *gap*: its misses and its steps at λ each,
//! beyond the same of the guest's cheapest size. The misses of any allocation are then
//!
//! ```text
//! misses = bound + Σ gap_i(k_i) + λ × (steps given to nobody)
//! ```
//!
//! with the same bound for all of them: to minimise misses is to minimise gaps, and a size whose gap
//! alone is more than the sum of a known allocation is in no best one. λ is a fraction; gaps are
//! multiples of one over its denominator, so that they are integers.
//!
//! Cost: O(sizes) for each exchange.
//! Source: as of the bounds of the multiple-choice knapsack problem (Dyer, Kayal, Walker 1984;
//! Pisinger 1995), with the price of a step left over in the place of its bound.

use super::corners::{Corners, Slope};
use crate::meb::cost::{Cost, Narrow};

/// How often the allocation first known is made better.
const EXCHANGES_MAX: usize = 4;

/// One size that a guest may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size<C> {
    /// Steps above its lower bound.
    pub(super) at: u32,
    /// Its gap.
    pub(super) gap: C,
}

/// All sizes with their gaps.
#[derive(Debug)]
pub(super) struct Relaxed<C> {
    /// Sizes of all guests, one guest after the other, each guest's from the smallest.
    sizes: Vec<Size<C>>,
    /// Where each guest's begin, and the end.
    starts: Vec<usize>,
    /// Per guest the smallest of its sizes without a gap.
    pub(super) bases: Vec<u32>,
    /// Steps to give out above all lower bounds.
    pub(super) spare: usize,
    /// Those of them that the bases leave over.
    pub(super) rest: usize,
    /// The gap of a step given to nobody: λ times its denominator, not zero.
    pub(super) price: C,
    /// The gap of one miss: the denominator of λ.
    pub(super) unit: C,
    /// The sum of gaps of some allocation, which may not be the best.
    pub(super) known: C,
}

/// Whether 64 bits are enough for every gap and for the sum of gaps that is first known.
pub(super) fn fits_64_bits(corners: &Corners, worth: Slope, spare: usize) -> bool {
    let most = corners.by_guest().filter_map(|corners| corners.first());
    let misses = most.map(|corner| corner.misses).max().unwrap_or(0);
    let paid = u128::from(worth.misses) * (spare as u128 + 1);
    paid + u128::from(misses) * u128::from(worth.steps) < u128::from(u64::END)
}

impl<C: Cost> Relaxed<C> {
    /// The gaps where a step is worth `worth`, of which every gap must fit.
    pub(super) fn new(corners: &Corners, worth: Slope, spare: usize) -> Self {
        let (price, unit) = (C::from(worth.misses), C::from(worth.steps));
        let (mut sizes, mut starts, mut bases) = (Vec::new(), vec![0], Vec::new());
        for corners in corners.by_guest() {
            let start = sizes.len();
            let (mut cheapest, mut base) = (None, 0);
            for corner in corners {
                let gap = C::from(corner.misses) * unit + C::from(u64::from(corner.at)) * price;
                sizes.push(Size { at: corner.at, gap });
                if cheapest.is_none_or(|cheapest| gap < cheapest) {
                    (cheapest, base) = (Some(gap), corner.at);
                }
            }
            let cheapest = cheapest.unwrap_or(C::ZERO);
            sizes[start..].iter_mut().for_each(|size| size.gap = size.gap - cheapest);
            bases.push(base);
            starts.push(sizes.len());
        }
        // Bases lie before the edge on which the steps run out.
        let rest = spare - bases.iter().map(|&base| base as usize).sum::<usize>();
        let known = price * C::from(rest as u64);
        let mut relaxed = Self { sizes, starts, bases, spare, rest, price, unit, known };
        relaxed.exchange();
        relaxed
    }

    /// The same in 32 bits, without the sizes that are in no best allocation; `None` where that is not
    /// enough for what is known.
    pub(super) fn narrowed(&self) -> Option<Relaxed<Narrow>> {
        let narrow = |cost: C| {
            let cost: u128 = cost.into();
            Narrow::from(u64::try_from(cost).unwrap_or(u64::MAX))
        };
        let known = narrow(self.known);
        if known >= Narrow::END {
            return None;
        }
        let (mut sizes, mut starts) = (Vec::new(), vec![0]);
        for guest in 0..self.bases.len() {
            let near = self.of(guest).iter().filter(|size| size.gap <= self.known);
            sizes.extend(near.map(|size| Size { at: size.at, gap: narrow(size.gap) }));
            starts.push(sizes.len());
        }
        Some(Relaxed {
            sizes,
            starts,
            bases: self.bases.clone(),
            spare: self.spare,
            rest: self.rest,
            // Either is only compared with what is known where it is more.
            price: narrow(self.price),
            unit: narrow(self.unit),
            known,
        })
    }

    /// The sizes of a guest.
    pub(super) fn of(&self, guest: usize) -> &[Size<C>] {
        &self.sizes[self.starts[guest]..self.starts[guest + 1]]
    }

    /// Gives one guest another size while that is better, each time what is best.
    fn exchange(&mut self) {
        let mut chosen: Vec<Size<C>> =
            self.bases.iter().map(|&at| Size { at, gap: C::ZERO }).collect();
        let mut rest = self.rest;
        for _ in 0..EXCHANGES_MAX {
            let mut best: Option<(usize, Size<C>, usize)> = None;
            let mut least = self.known;
            for (guest, now) in chosen.iter().enumerate() {
                let others = self.known - now.gap - self.price * C::from(rest as u64);
                let free = rest + now.at as usize;
                for &size in self.of(guest) {
                    if size.gap >= least || size.at as usize > free {
                        continue;
                    }
                    let left_over = free - size.at as usize;
                    let sum = others + size.gap + self.price * C::from(left_over as u64);
                    if sum < least {
                        (least, best) = (sum, Some((guest, size, left_over)));
                    }
                }
            }
            let Some((guest, size, left_over)) = best else { break };
            (chosen[guest], rest, self.known) = (size, left_over, least);
        }
    }
}
