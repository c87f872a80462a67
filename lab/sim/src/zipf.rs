//! Draws of blocks by Zipf's law.
//!
//! Idea: inversion of the continuous distribution over pages, so that a block is visited as often
//! as its pages together. Inversion needs a power; instead, a table has the start of each block,
//! and a guide table finds the block of a draw to within one or two. A draw close to a block's
//! start is inverted after all, so that the result equals the formula's exactly.
//!
//! Cost: a few nanoseconds per draw, and one power per block. Source: indexed search (Chen, Asau
//! 1974). Limits: tables of at most [`TABLED_MAX`] blocks; with more, every draw is inverted.

use ballast_model::PAGE_SIZE;
use libm::{exp, log, pow};

/// Most blocks in a table: 12 MiB.
const TABLED_MAX: u32 = 1 << 20;

/// Distance to a block's start below which a draw is inverted. Table and formula differ by some
/// 10^−16, divided by `growth` if the exponent is near 1.
const NEAR: f64 = 1e-9;
/// See [`NEAR`].
const NEAR_BY_GROWTH: f64 = 1e-12;

/// Zipf's law over blocks of pages: the page at `x` has the popularity `(1 + x)^-exponent`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Zipf {
    pages: f64,
    blocks: u32,
    /// One minus the exponent.
    rest: f64,
    /// `end^rest − 1`, or `log(end)` if `rest` is 0, where `end` is the number of pages plus one.
    growth: f64,
    /// The share of visits before each block except the first.
    begins: Vec<f64>,
    /// For each of as many equal parts of all visits as blocks, the block in which the part starts.
    guide: Vec<u32>,
}

impl Zipf {
    /// Zipf's law over `blocks` blocks of `block` bytes.
    pub(crate) fn new(exponent: f64, blocks: u32, block: u64) -> Zipf {
        let pages = f64::from(blocks) * (block / PAGE_SIZE) as f64;
        let rest = 1.0 - exponent;
        let growth = if is_zero(rest) { log(pages + 1.0) } else { pow(pages + 1.0, rest) - 1.0 };
        let mut zipf = Zipf { pages, blocks, rest, growth, ..Zipf::default() };
        if (2..=TABLED_MAX).contains(&blocks) {
            zipf.table();
        }
        zipf
    }

    fn table(&mut self) {
        let per_block = self.pages / f64::from(self.blocks);
        self.begins = (1..self.blocks).map(|at| self.share(f64::from(at) * per_block)).collect();
        let mut at = 0;
        let part = |number: u32| f64::from(number) / f64::from(self.blocks);
        self.guide = (0..self.blocks)
            .map(|number| {
                while self.begins.get(at).is_some_and(|&begin| begin <= part(number)) {
                    at += 1;
                }
                at as u32
            })
            .collect();
    }

    /// The block that contains the quantile `u` of the visits, `0 ≤ u < 1`; 0 if there are no
    /// blocks.
    pub(crate) fn block(&self, u: f64) -> u32 {
        let Some(&guess) = self.guide.get((u * f64::from(self.blocks)) as usize) else {
            return self.inverted(u);
        };
        let near = NEAR + NEAR_BY_GROWTH / self.growth.abs();
        let mut at = guess as usize;
        // Sums rather than differences, so that a NaN in the table leads to inversion.
        while self.begins.get(at).is_some_and(|&begin| begin + near < u) {
            at += 1;
        }
        let is_after = at == 0 || self.begins.get(at - 1).is_some_and(|&begin| begin + near < u);
        let is_before = self.begins.get(at).is_none_or(|&begin| u + near < begin);
        if is_after && is_before { at as u32 } else { self.inverted(u) }
    }

    /// The share of visits to pages before `x`.
    fn share(&self, x: f64) -> f64 {
        if is_zero(self.rest) {
            log(1.0 + x) / self.growth
        } else {
            (pow(1.0 + x, self.rest) - 1.0) / self.growth
        }
    }

    /// The block of [`Zipf::rank`].
    fn inverted(&self, u: f64) -> u32 {
        let at = self.rank(u) / self.pages * f64::from(self.blocks);
        (at as u32).min(self.blocks.saturating_sub(1))
    }

    /// The inverse of [`Zipf::share`]: the fractional page below which a share `u` of the visits
    /// falls.
    fn rank(&self, u: f64) -> f64 {
        let x = if is_zero(self.rest) {
            exp(u * self.growth)
        } else {
            pow(1.0 + u * self.growth, 1.0 / self.rest)
        };
        x - 1.0
    }
}

/// Whether the exponent is 1, for which powers become exponentials.
fn is_zero(rest: f64) -> bool {
    rest.abs() < 1e-9
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// 16 pages: exponent 0 is uniform; exponent 1 gives half of the visits to the first `√17 − 1`.
    #[test]
    fn ranks_equal_those_by_hand() {
        let rank = |u, pages, exponent| Zipf::new(exponent, pages, PAGE_SIZE).rank(u);
        assert!((rank(0.5, 16, 0.0) - 8.0).abs() < 1e-9);
        assert!((rank(0.5, 16, 1.0) - (17f64.sqrt() - 1.0)).abs() < 1e-9);
        assert!(rank(0.999, 1_000_000, 1.2) < 1e6);
    }

    #[test]
    fn blocks_equal_those_by_hand() {
        // 3 blocks of a page, exponent 1: shares before them 0, log 2 / log 4 = 1/2, log 3 / log 4
        // = 0.79.
        let zipf = Zipf::new(1.0, 3, PAGE_SIZE);
        assert_eq!([0.0, 0.49, 0.51, 0.79, 0.8, 0.99].map(|u| zipf.block(u)), [0, 0, 1, 1, 2, 2]);
        // Exponent 0: all alike.
        let zipf = Zipf::new(0.0, 4, MIB);
        assert_eq!([0.0, 0.24, 0.26, 0.49, 0.51, 0.99].map(|u| zipf.block(u)), [0, 0, 1, 1, 2, 3]);
        assert_eq!(Zipf::new(0.8, 0, MIB).block(0.5), 0);
        assert_eq!(Zipf::new(0.8, 1, MIB).block(0.99), 0);
    }

    proptest! {
        /// For every exponent, also near 1, and also near the starts of blocks.
        #[test]
        fn lookup_equals_inversion(
            exponent in prop_oneof![0.0..4.0f64, 1.0 - 1e-6..1.0 + 1e-6, Just(1.0)],
            blocks in 1..3000u32,
            block in prop_oneof![Just(PAGE_SIZE), Just(MIB)],
            draws in prop::collection::vec(0.0..1.0f64, 50),
            off in -1e-12..1e-12f64,
        ) {
            let zipf = Zipf::new(exponent, blocks, block);
            let begins = zipf.begins.iter().map(|begin| begin + off);
            let edges = begins.step_by(1 + zipf.begins.len() / 50);
            for u in draws.into_iter().chain(edges).filter(|u| (0.0..1.0).contains(u)) {
                prop_assert_eq!(zipf.block(u), zipf.inverted(u), "{}", u);
            }
        }
    }
}
