//! The order in which a pattern visits its pages.
//!
//! Idea: a pattern names its order; the lab and the simulator each produce the visits themselves.
//! Limits: see the crate's header for why the visits are not shared.

use crate::pattern::Pattern;

/// The order in which a pattern visits its pages or blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// By address.
    Ascending,
    /// By a fixed stride that reaches every page once per pass; see [`scattered_stride`].
    Scattered,
    /// Uniformly at random.
    Random,
    /// Uniformly at random, after each page was visited once. The lab fills memory before it visits
    /// it, so for the lab this is [`Order::Random`].
    FilledThenRandom,
    /// By popularity; see [`Pattern::Zipf`].
    Zipf {
        /// How unequal the popularity is; 0 is uniform.
        exponent: f64,
    },
    /// By the stack distances of a miss curve; see [`Pattern::Curve`].
    StackDistances,
}

impl Pattern {
    /// The order in which this pattern visits its pages.
    pub const fn order(&self) -> Order {
        match self {
            Pattern::Mono { .. } | Pattern::Flux { .. } | Pattern::Sequential { .. } => {
                Order::Ascending
            }
            Pattern::Constant { .. } => Order::Scattered,
            Pattern::Cold { .. } => Order::FilledThenRandom,
            Pattern::Zipf { exponent, .. } => Order::Zipf { exponent: *exponent },
            Pattern::Curve { .. } => Order::StackDistances,
            Pattern::RandomSteps { .. }
            | Pattern::RandomDrawn { .. }
            | Pattern::FileRandom { .. }
            | Pattern::Program { .. }
            | Pattern::Trace { .. }
            | Pattern::Phases { .. } => Order::Random,
        }
    }
}

/// The stride of [`Order::Scattered`] through `pages`: near their golden section, so that
/// neighbours are visited far apart, and coprime to `pages`, so that a pass visits every page once.
pub fn scattered_stride(pages: u64) -> u64 {
    let golden = u128::from(pages) * 618 / 1000;
    let golden = u64::try_from(golden).unwrap_or(u64::MAX);
    (golden.max(1)..pages).find(|&stride| gcd(stride, pages) == 1).unwrap_or(1)
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn stride_visits_every_page_once_per_pass(pages in 1u64..3000) {
            let stride = scattered_stride(pages);
            let mut visited: Vec<u64> = (0..pages).map(|visit| visit * stride % pages).collect();
            visited.sort_unstable();
            prop_assert!(visited.into_iter().eq(0..pages));
        }
    }
}
