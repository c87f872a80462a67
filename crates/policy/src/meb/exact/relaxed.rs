//! The gap of each size: how much worse it is than the choice of the relaxed problem.
//!
//! Idea: with λ, the worth of a step, the cost of a size is its misses plus λ for each of its
//! steps. Its *gap* is this cost minus that of the guest's cheapest size. The misses of any
//! allocation are then
//!
//! ```text
//! misses = bound + Σ gap_i(k_i) + λ × (steps left over)
//! ```
//!
//! with the same bound for all allocations. To minimise misses is to minimise the sum of gaps, and
//! a size whose gap alone exceeds the sum of a known allocation is in no best one. λ is a fraction;
//! gaps are counted in multiples of one over its denominator, so they are integers.
//!
//! Cost: O(sizes) for each exchange.
//! Source: like the bounds of the multiple-choice knapsack problem (Dyer, Kayal, Walker 1984;
//! Pisinger 1995), but with a price for each step left over.

use super::corners::{Corners, Slope};
use crate::meb::cost::{Cost, Narrow};

/// Most improvements of the first known allocation.
const EXCHANGES_MAX: usize = 4;

/// One size that a guest may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size<C> {
    /// Steps above the guest's lower bound.
    pub(super) at: u32,
    pub(super) gap: C,
}

/// All sizes with their gaps.
#[derive(Debug)]
pub(super) struct Relaxed<C> {
    /// Sizes of all guests, by guest, from the smallest.
    sizes: Vec<Size<C>>,
    /// Start of each guest's sizes, and the end of the last.
    starts: Vec<usize>,
    /// The smallest size of each guest that has no gap.
    pub(super) bases: Vec<u32>,
    /// Steps to allocate above all lower bounds.
    pub(super) spare: usize,
    /// The part of `spare` that the bases leave over.
    pub(super) rest: usize,
    /// The gap of a step left over: λ times its denominator, never zero.
    pub(super) price: C,
    /// The gap of one miss: the denominator of λ.
    pub(super) unit: C,
    /// The sum of gaps of a known allocation, not necessarily the best.
    pub(super) known: C,
}

/// Whether every gap and the first known sum fit 64 bits.
pub(super) fn fits_64_bits(corners: &Corners, worth: Slope, spare: usize) -> bool {
    let most = corners.by_guest().filter_map(|corners| corners.first());
    let misses = most.map(|corner| corner.misses).max().unwrap_or(0);
    let paid = u128::from(worth.misses) * (spare as u128 + 1);
    paid + u128::from(misses) * u128::from(worth.steps) < u128::from(u64::END)
}

impl<C: Cost> Relaxed<C> {
    /// The gaps with `worth` for a step; all must fit the type.
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
        // The bases lie before the edge on which the steps run out.
        let rest = spare - bases.iter().map(|&base| base as usize).sum::<usize>();
        let known = price * C::from(rest as u64);
        let mut relaxed = Self { sizes, starts, bases, spare, rest, price, unit, known };
        relaxed.exchange();
        relaxed
    }

    /// The same in 32 bits, without sizes that are in no best allocation; `None` if the known sum
    /// does not fit.
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
            // Values above the known sum only have to stay above it.
            price: narrow(self.price),
            unit: narrow(self.unit),
            known,
        })
    }

    /// The sizes of a guest.
    pub(super) fn of(&self, guest: usize) -> &[Size<C>] {
        &self.sizes[self.starts[guest]..self.starts[guest + 1]]
    }

    /// Improves the known sum by changing one guest's size at a time, the best change first.
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
