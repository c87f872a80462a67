//! The order in which a workload visits its blocks.
//!
//! Idea: one step per visit: by address, scattered, at random, by Zipf's law, or by the stack
//! distances of a miss curve.
//! Cost: a few nanoseconds per visit; for a curve, a move to the front of a list of its size.
//! Source: stack distances as in MEB §3.1.
//! Limits: misses of a curve that no allocation avoids become hits; every policy would have them.

use std::sync::Arc;

use ballast_model::{Bytes, MissCurve};
use ballast_workload::{Order, Pattern, scattered_stride};
use fastrand::Rng;

use crate::zipf::Zipf;

/// How blocks follow each other, with what each order remembers.
#[derive(Clone, Debug)]
enum BlockOrder {
    Ascending,
    Scattered {
        stride: u32,
    },
    Random,
    /// At random, after each block was visited once.
    FilledThenRandom {
        filled: u32,
    },
    Zipf {
        exponent: f64,
        law: Zipf,
    },
    /// `stack` has the blocks, the most recently visited first.
    Curve {
        curve: Arc<MissCurve>,
        stack: Vec<u32>,
    },
}

/// Iterates over the blocks a workload visits.
#[derive(Clone, Debug)]
pub(crate) struct Visits {
    order: BlockOrder,
    rng: Rng,
    block: u64,
    blocks: u32,
    next: u32,
}

impl Visits {
    /// The visits of a pattern in blocks of `block` bytes; there are no blocks yet.
    pub(crate) fn new(pattern: &Pattern, block: u64, seed: u64) -> Visits {
        let order = match (pattern, pattern.order()) {
            (Pattern::Curve { curve }, _) => {
                BlockOrder::Curve { curve: curve.clone(), stack: Vec::new() }
            }
            (_, Order::Ascending) => BlockOrder::Ascending,
            (_, Order::Scattered) => BlockOrder::Scattered { stride: 1 },
            (_, Order::FilledThenRandom) => BlockOrder::FilledThenRandom { filled: 0 },
            (_, Order::Zipf { exponent }) => BlockOrder::Zipf { exponent, law: Zipf::default() },
            (_, Order::Random | Order::StackDistances) => BlockOrder::Random,
        };
        Visits { order, rng: Rng::with_seed(seed), block, blocks: 0, next: 0 }
    }

    /// Sets the number of blocks.
    pub(crate) fn resize(&mut self, blocks: u32) {
        if blocks == self.blocks {
            return;
        }
        self.blocks = blocks;
        if self.next >= blocks {
            self.next = 0;
        }
        match &mut self.order {
            BlockOrder::Scattered { stride } => {
                *stride = scattered_stride(u64::from(blocks)) as u32;
                self.next = if blocks == 0 { 0 } else { self.rng.u32(0..blocks) };
            }
            BlockOrder::Zipf { exponent, law } => *law = Zipf::new(*exponent, blocks, self.block),
            BlockOrder::Curve { stack, .. } => {
                stack.retain(|&block| block < blocks);
                let from = stack.len() as u32;
                stack.extend(from..blocks);
            }
            _ => {}
        }
    }

    /// Whether blocks follow each other by address, so that the next can be read ahead.
    pub(crate) fn is_ascending(&self) -> bool {
        matches!(self.order, BlockOrder::Ascending)
    }

    /// Whether every block is visited once before any is visited again.
    pub(crate) fn is_cyclic(&self) -> bool {
        matches!(self.order, BlockOrder::Ascending | BlockOrder::Scattered { .. })
    }

    /// The miss curve that the visits follow, if any.
    pub(crate) fn curve(&self) -> Option<&Arc<MissCurve>> {
        match &self.order {
            BlockOrder::Curve { curve, .. } => Some(curve),
            _ => None,
        }
    }

    /// Exponent of the popularity of pages; 0 is uniform.
    pub(crate) fn zipf_exponent(&self) -> f64 {
        match self.order {
            BlockOrder::Zipf { exponent, .. } => exponent,
            _ => 0.0,
        }
    }

    /// Skips `visits` visits of a cyclic order. Returns the first block skipped.
    pub(crate) fn skip(&mut self, visits: u64) -> u32 {
        let first = self.next;
        let blocks = u64::from(self.blocks.max(1));
        let by = match self.order {
            BlockOrder::Scattered { stride } => visits % blocks * u64::from(stride),
            _ => visits,
        };
        self.next = ((u64::from(first) + by) % blocks) as u32;
        first
    }

    /// The next block to visit, less than the number of blocks; 0 if there are no blocks.
    pub(crate) fn next(&mut self) -> u32 {
        if self.blocks == 0 {
            return 0;
        }
        match &mut self.order {
            BlockOrder::Ascending => self.step(1),
            BlockOrder::Scattered { stride } => {
                let stride = *stride;
                self.step(stride)
            }
            BlockOrder::Random => self.rng.u32(0..self.blocks),
            BlockOrder::FilledThenRandom { filled } => {
                if *filled < self.blocks {
                    *filled += 1;
                    return *filled - 1;
                }
                self.rng.u32(0..self.blocks)
            }
            BlockOrder::Zipf { law, .. } => law.block(self.rng.f64()),
            BlockOrder::Curve { curve, stack } => {
                let references = curve.misses(Bytes::ZERO).max(1);
                let drawn = self.rng.u64(0..references);
                let steps = curve.points().partition_point(|&misses| misses > drawn) as u64;
                let step = curve.step().get();
                let depth = steps.saturating_sub(1) * step + self.rng.u64(0..step);
                let at = (depth / self.block).min(stack.len() as u64 - 1) as usize;
                stack[..=at].rotate_right(1);
                stack[0]
            }
        }
    }

    fn step(&mut self, stride: u32) -> u32 {
        let block = self.next;
        let next = u64::from(block) + u64::from(stride);
        let blocks = u64::from(self.blocks);
        self.next = (if next >= blocks { next - blocks } else { next }) as u32;
        block
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ballast_model::Bytes;
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;
    const SIZE: Bytes = Bytes::mib(1);

    fn visits(pattern: &Pattern, blocks: u32) -> Visits {
        let mut visits = Visits::new(pattern, MIB, 7);
        visits.resize(blocks);
        visits
    }

    #[test]
    fn ascending_pass_continues_after_a_change_of_size() {
        let mut visits = visits(&Pattern::Sequential { size: SIZE, passes: None }, 3);
        let taken: Vec<u32> = (0..5).map(|_| visits.next()).collect();
        assert_eq!(taken, [0, 1, 2, 0, 1]);
        visits.resize(4);
        assert_eq!([visits.next(), visits.next(), visits.next()], [2, 3, 0]);
        visits.resize(1);
        assert_eq!([visits.next(), visits.next()], [0, 0]);
    }

    #[test]
    fn no_blocks_are_visited_without_panic() {
        let mut visits = visits(&Pattern::Constant { size: SIZE }, 0);
        assert_eq!((visits.next(), visits.skip(5)), (0, 0));
    }

    /// The number of references beyond `k` steps of the stack is the curve's misses at `k` steps.
    #[test]
    fn stack_distances_follow_the_curve() {
        let misses = vec![1000, 400, 400, 100, 0];
        let curve = MissCurve::new(Bytes::mib(1), Duration::from_secs(1), misses.clone()).unwrap();
        let mut visits = visits(&Pattern::Curve { curve: Arc::new(curve) }, 4);
        let mut beyond = [0u32; 5];
        let mut own: Vec<u32> = (0..4).collect();
        for _ in 0..100_000 {
            let block = visits.next();
            let at = own.iter().position(|&it| it == block).unwrap();
            own[..=at].rotate_right(1);
            (0..=at).for_each(|k| beyond[k] += 1);
        }
        for (k, expected) in misses.into_iter().enumerate() {
            let found = u64::from(beyond[k]) / 100;
            assert!(found.abs_diff(expected) <= 10, "{k}: {found} for {expected}");
        }
    }

    proptest! {
        #[test]
        fn every_order_stays_within_its_blocks(blocks in 0..300u32, exponent in 0.0..4.0f64) {
            let curve = MissCurve::new(SIZE, Duration::from_secs(1), vec![9, 5, 0]).unwrap();
            for pattern in [
                Pattern::Sequential { size: SIZE, passes: None },
                Pattern::Constant { size: SIZE },
                Pattern::FileRandom { size: SIZE },
                Pattern::Cold { size: SIZE, share_per_s: 0.1 },
                Pattern::Zipf { size: SIZE, exponent, file: false },
                Pattern::Curve { curve: Arc::new(curve) },
            ] {
                let mut visits = visits(&pattern, blocks);
                for _ in 0..100 {
                    prop_assert!(visits.next() < blocks.max(1));
                }
            }
        }

        #[test]
        fn skip_equals_as_many_steps(blocks in 1..200u32, skipped in 0..1000u64, scattered: bool) {
            let pattern = match scattered {
                true => Pattern::Constant { size: SIZE },
                false => Pattern::Sequential { size: SIZE, passes: None },
            };
            let (mut one, mut other) = (visits(&pattern, blocks), visits(&pattern, blocks));
            one.skip(skipped);
            (0..skipped).for_each(|_| { other.next(); });
            prop_assert_eq!(one.next(), other.next());
        }

        #[test]
        fn scattered_pass_visits_every_block_once(blocks in 1..2000u32) {
            let mut constant = visits(&Pattern::Constant { size: SIZE }, blocks);
            let mut seen: Vec<u32> = (0..blocks).map(|_| constant.next()).collect();
            seen.sort_unstable();
            prop_assert!(seen.into_iter().eq(0..blocks));
        }
    }
}
