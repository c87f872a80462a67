//! The order in which a workload visits its pages.
//!
//! Idea: one step of an iterator per touch, without a table: in the order of addresses, in a scattered
//! order that still visits every page once a pass (a stride without a common divisor with the number
//! of pages), at random, or by unequal popularity. Cost: a few nanoseconds a visit.
//! Limits: the number of pages may change at any time; a pass it cuts short is not counted.

use crate::rng::Rng;
use crate::workload::Pattern;

/// How pages follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Ascending,
    Scattered,
    Random,
    Popular,
}

/// Parts of equal weight that a distribution is cut into.
const QUANTILES: usize = 4096;
/// Fractions of a page that ranks are kept in.
const RANK_BITS: u32 = 16;

/// The visits to come.
#[derive(Clone, Debug)]
pub struct Visits {
    order: Order,
    rng: Rng,
    exponent: f64,
    /// The rank at the beginning of each part, and the last one's end; empty but for [`Order::Popular`].
    quantiles: Vec<u64>,
    pages: u64,
    stride: u64,
    next: u64,
    visited: u64,
    passes: u64,
}

impl Visits {
    /// The visits of a kind of workload; it has no pages yet.
    pub fn new(pattern: &Pattern, seed: u64) -> Self {
        let order = match pattern {
            Pattern::Mono { .. } | Pattern::Flux { .. } | Pattern::Sequential { .. } => {
                Order::Ascending
            }
            Pattern::Constant { .. } => Order::Scattered,
            Pattern::RandomArray { .. }
            | Pattern::FileRandom { .. }
            | Pattern::Cold { .. }
            | Pattern::Program { .. } => Order::Random,
            Pattern::Zipf { .. } => Order::Popular,
        };
        let exponent = match pattern {
            Pattern::Zipf { exponent, .. } => *exponent,
            _ => 0.0,
        };
        let (rng, quantiles) = (Rng::new(seed), Vec::new());
        let (pages, stride, next, visited, passes) = (0, 1, 0, 0, 0);
        Visits { order, rng, exponent, quantiles, pages, stride, next, visited, passes }
    }

    /// From now on there are `pages`. A pass goes on where it was, unless its place is gone.
    pub fn resize(&mut self, pages: u64) {
        if pages == self.pages {
            return;
        }
        self.pages = pages;
        match self.order {
            Order::Ascending if self.next >= pages => (self.next, self.visited) = (0, 0),
            Order::Ascending => {}
            Order::Scattered => {
                self.stride = scattered_stride(pages);
                (self.next, self.visited) = (self.rng.below(pages), 0);
            }
            Order::Random => self.visited = self.visited.min(pages),
            Order::Popular => {
                self.stride = scattered_stride(pages);
                self.quantiles = (0..=QUANTILES)
                    .map(|part| part as f64 / QUANTILES as f64)
                    .map(|u| zipf_rank(u, pages as f64, self.exponent))
                    .map(|rank| (rank * f64::from(1 << RANK_BITS)) as u64)
                    .collect();
                self.visited = self.visited.min(pages);
            }
        }
    }

    /// The next page to visit, less than the number of pages; 0 where there are none.
    pub fn next_page(&mut self) -> u64 {
        if self.pages == 0 {
            return 0;
        }
        let page = match self.order {
            Order::Random => self.rng.below(self.pages),
            Order::Popular => self.popular(),
            Order::Ascending | Order::Scattered => {
                let page = self.next;
                self.next += self.stride;
                if self.next >= self.pages {
                    self.next -= self.pages;
                }
                page
            }
        };
        self.visited += 1;
        let pass_over = match self.order {
            Order::Ascending => self.next == 0,
            Order::Scattered | Order::Random | Order::Popular => self.visited >= self.pages,
        };
        if pass_over {
            self.visited = 0;
            self.passes += 1;
        }
        page
    }

    /// A page drawn by popularity.
    fn popular(&mut self) -> u64 {
        let part = self.rng.below(QUANTILES as u64) as usize;
        let (begin, end) = (self.quantiles[part], self.quantiles[part + 1]);
        let rank = (begin + self.rng.below(end - begin)) >> RANK_BITS;
        let scattered = u128::from(rank.min(self.pages - 1)) * u128::from(self.stride);
        (scattered % u128::from(self.pages)) as u64
    }

    /// Times as many pages were visited as there were.
    pub const fn passes(&self) -> u64 {
        self.passes
    }
}

/// A stride near the golden section of `pages`, so that no two neighbours come soon after each other,
/// without a common divisor, so that every page comes once a pass.
fn scattered_stride(pages: u64) -> u64 {
    let golden = (pages as f64 * 0.618) as u64;
    (golden.max(1)..pages).find(|&stride| gcd(stride, pages) == 1).unwrap_or(1)
}

/// The rank, from 0 to `pages`, below which a share `u` of all visits lies: ranks have the density
/// `(rank + 1)^-exponent`.
fn zipf_rank(u: f64, pages: f64, exponent: f64) -> f64 {
    let rest = 1.0 - exponent;
    if rest.abs() < 1e-9 {
        return (pages + 1.0).powf(u) - 1.0;
    }
    (1.0 - u + u * (pages + 1.0).powf(rest)).powf(1.0 / rest) - 1.0
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
    use ballast_model::Bytes;
    use proptest::prelude::*;

    fn visits(pattern: &Pattern, seed: u64, pages: u64) -> Visits {
        let mut visits = Visits::new(pattern, seed);
        visits.resize(pages);
        visits
    }

    fn take(visits: &mut Visits, n: usize) -> Vec<u64> {
        (0..n).map(|_| visits.next_page()).collect()
    }

    const SIZE: Bytes = Bytes::mib(1);
    const CONSTANT: Pattern = Pattern::Constant { size: SIZE };
    const SEQUENTIAL: Pattern = Pattern::Sequential { size: SIZE, passes: None };
    const ZIPF: Pattern = Pattern::Zipf { size: SIZE, exponent: 1.0 };
    const FILE: Pattern = Pattern::FileRandom { size: SIZE };

    #[test]
    fn sequential_is_in_order_and_survives_a_change_of_size() {
        let mut sequential = visits(&SEQUENTIAL, 0, 3);
        assert_eq!(take(&mut sequential, 5), [0, 1, 2, 0, 1]);
        assert_eq!(sequential.passes(), 1);
        sequential.resize(4);
        assert_eq!(take(&mut sequential, 3), [2, 3, 0]);
        assert_eq!(sequential.passes(), 2);
        take(&mut sequential, 2);
        sequential.resize(2);
        assert_eq!(take(&mut sequential, 3), [0, 1, 0]);
        assert_eq!(sequential.passes(), 3);
    }

    #[test]
    fn scattered_neighbours_are_far_apart() {
        let mut constant = visits(&CONSTANT, 5, 1000);
        let order = take(&mut constant, 1000);
        assert!(order.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 100), "{order:?}");
    }

    #[test]
    fn random_reaches_most_pages_and_nothing_else() {
        let mut file = visits(&FILE, 9, 100);
        let seen: std::collections::BTreeSet<u64> = take(&mut file, 1000).into_iter().collect();
        assert!(seen.len() > 95 && seen.iter().all(|&page| page < 100), "{seen:?}");
        assert_eq!(file.passes(), 10);
    }

    /// With exponent 1, ranks below r of n get log(r + 1) / log(n + 1) of all visits.
    #[test]
    fn popular_pages_are_visited_as_often_as_they_should_be() {
        let mut zipf = visits(&ZIPF, 3, 1000);
        let mut counts = vec![0_u64; 1000];
        take(&mut zipf, 1_000_000).into_iter().for_each(|page| counts[page as usize] += 1);
        assert!(counts[1] < counts[0], "rank 1 is elsewhere");
        counts.sort_unstable_by(|a, b| b.cmp(a));
        for ranks in [1, 10, 100, 1000] {
            let share = counts[..ranks].iter().sum::<u64>() as f64 / 1e6;
            let expected = ((ranks + 1) as f64).ln() / 1001_f64.ln();
            assert!((share - expected).abs() < 0.01, "{ranks}: {share} of {expected}");
        }
        // Exponent 0 is at random.
        let even = Pattern::Zipf { size: SIZE, exponent: 0.0 };
        let below = take(&mut visits(&even, 3, 100), 10_000).into_iter().filter(|&page| page < 50);
        assert!((4_700..5_300).contains(&below.count()));
    }

    #[test]
    fn nothing_to_visit_is_no_panic() {
        for pattern in [CONSTANT, SEQUENTIAL, FILE, ZIPF] {
            let mut none = visits(&pattern, 0, 0);
            assert_eq!(take(&mut none, 3), [0, 0, 0]);
        }
    }

    proptest! {
        #[test]
        fn scattered_visits_every_page_once_a_pass(pages in 1u64..3000, seed: u64) {
            let mut constant = visits(&CONSTANT, seed, pages);
            let mut order = take(&mut constant, pages as usize);
            prop_assert_eq!(constant.passes(), 1);
            order.sort_unstable();
            prop_assert!(order.into_iter().eq(0..pages));
        }

        #[test]
        fn a_seed_settles_the_order(seed: u64, sizes in prop::collection::vec(0u64..500, 1..5)) {
            for pattern in [CONSTANT, SEQUENTIAL, FILE, ZIPF] {
                let (mut one, mut other) = (Visits::new(&pattern, seed), Visits::new(&pattern, seed));
                for &pages in &sizes {
                    one.resize(pages);
                    other.resize(pages);
                    let order = take(&mut one, 50);
                    prop_assert!(order.iter().all(|&page| page < pages.max(1)));
                    prop_assert_eq!(order, take(&mut other, 50));
                }
            }
        }
    }
}
