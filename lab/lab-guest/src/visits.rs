//! The order in which a workload visits its pages.
//!
//! Idea: one step of an iterator per touch, without a table: by address, in a scattered order that
//! still visits every page once per pass, at random, or by unequal popularity. Cost: a few
//! nanoseconds per visit. Limits: the number of pages may change at any time; a pass cut short by
//! that is not counted. Memory is filled before it is visited, so no order starts with a filling
//! pass.

use ballast_workload::{Order, Pattern, scattered_stride};

use crate::rng::Rng;

/// Number of parts of equal weight that a popularity distribution is divided into.
const QUANTILES: usize = 4096;
/// Binary digits after the point of the ranks in a table of quantiles.
const RANK_BITS: u32 = 16;

/// Iterates over the pages a workload visits.
#[derive(Clone, Debug)]
pub struct Visits {
    order: Order,
    rng: Rng,
    /// The rank at which each part begins, and where the last ends; empty unless [`Order::Zipf`].
    quantiles: Vec<u64>,
    pages: u64,
    stride: u64,
    next: u64,
    visited: u64,
    passes: u64,
}

impl Visits {
    /// The visits of `pattern`; there are no pages yet.
    pub fn new(pattern: &Pattern, seed: u64) -> Self {
        let (rng, quantiles) = (Rng::new(seed), Vec::new());
        let (pages, stride, next, visited, passes) = (0, 1, 0, 0, 0);
        Visits { order: pattern.order(), rng, quantiles, pages, stride, next, visited, passes }
    }

    /// Sets the number of pages. A pass continues where it was, unless that page is gone.
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
            Order::Zipf { exponent } => {
                self.stride = scattered_stride(pages);
                self.quantiles.clear();
                for part in 0..=QUANTILES {
                    let share = part as f64 / QUANTILES as f64;
                    let rank = zipf_rank(share, pages as f64, exponent);
                    self.quantiles.push((rank * f64::from(1 << RANK_BITS)) as u64);
                }
                self.visited = self.visited.min(pages);
            }
            Order::Random | Order::FilledThenRandom | Order::StackDistances => {
                self.visited = self.visited.min(pages);
            }
        }
    }

    /// The next page to visit, less than the number of pages; 0 if there are no pages.
    pub fn next_page(&mut self) -> u64 {
        if self.pages == 0 {
            return 0;
        }
        let page = match self.order {
            Order::Zipf { .. } => self.draw_by_popularity(),
            Order::Ascending | Order::Scattered => {
                let page = self.next;
                self.next += self.stride;
                if self.next >= self.pages {
                    self.next -= self.pages;
                }
                page
            }
            // A guest refuses curves, so the last order does not occur.
            Order::Random | Order::FilledThenRandom | Order::StackDistances => {
                self.rng.below(self.pages)
            }
        };
        self.visited += 1;
        // Growth moves the end of an ascending pass, so there the place counts, not the number of
        // visits.
        let pass_ends = match self.order {
            Order::Ascending => self.next == 0,
            _ => self.visited >= self.pages,
        };
        if pass_ends {
            self.visited = 0;
            self.passes += 1;
        }
        page
    }

    fn draw_by_popularity(&mut self) -> u64 {
        let part = self.rng.below(QUANTILES as u64) as usize;
        let (begin, end) = (self.quantiles[part], self.quantiles[part + 1]);
        let rank = (begin + self.rng.below(end - begin)) >> RANK_BITS;
        let scattered = u128::from(rank.min(self.pages - 1)) * u128::from(self.stride);
        (scattered % u128::from(self.pages)) as u64
    }

    /// Passes completed.
    pub const fn passes(&self) -> u64 {
        self.passes
    }
}

/// The rank, from 0 to `pages`, below which a share `u` of all visits falls, where ranks have the
/// density `(rank + 1)^-exponent`.
fn zipf_rank(u: f64, pages: f64, exponent: f64) -> f64 {
    let rest = 1.0 - exponent;
    if rest.abs() < 1e-9 {
        return (pages + 1.0).powf(u) - 1.0;
    }
    (1.0 - u + u * (pages + 1.0).powf(rest)).powf(1.0 / rest) - 1.0
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
    const ZIPF: Pattern = Pattern::Zipf { size: SIZE, exponent: 1.0, file: false };
    const FILE: Pattern = Pattern::FileRandom { size: SIZE };

    #[test]
    fn sequential_pass_continues_after_a_change_of_size() {
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
    fn random_visits_reach_most_pages_and_no_others() {
        let mut file = visits(&FILE, 9, 100);
        let seen: std::collections::BTreeSet<u64> = take(&mut file, 1000).into_iter().collect();
        assert!(seen.len() > 95 && seen.iter().all(|&page| page < 100), "{seen:?}");
        assert_eq!(file.passes(), 10);
    }

    /// With exponent 1, ranks below r of n get a share log(r + 1) / log(n + 1) of all visits.
    #[test]
    fn zipf_visits_match_the_distribution() {
        let mut zipf = visits(&ZIPF, 3, 1000);
        let mut counts = vec![0_u64; 1000];
        take(&mut zipf, 1_000_000).into_iter().for_each(|page| counts[page as usize] += 1);
        assert!(counts[1] < counts[0], "the most popular page is not page 0");
        counts.sort_unstable_by(|a, b| b.cmp(a));
        for ranks in [1, 10, 100, 1000] {
            let share = counts[..ranks].iter().sum::<u64>() as f64 / 1e6;
            let expected = ((ranks + 1) as f64).ln() / 1001_f64.ln();
            assert!((share - expected).abs() < 0.01, "{ranks}: {share} of {expected}");
        }
        // Exponent 0 is uniform.
        let even = Pattern::Zipf { size: SIZE, exponent: 0.0, file: false };
        let below = take(&mut visits(&even, 3, 100), 10_000).into_iter().filter(|&page| page < 50);
        assert!((4_700..5_300).contains(&below.count()));
    }

    #[test]
    fn no_pages_are_visited_without_panic() {
        for pattern in [CONSTANT, SEQUENTIAL, FILE, ZIPF] {
            let mut none = visits(&pattern, 0, 0);
            assert_eq!(take(&mut none, 3), [0, 0, 0]);
        }
    }

    proptest! {
        #[test]
        fn scattered_pass_visits_every_page_once(pages in 1u64..3000, seed: u64) {
            let mut constant = visits(&CONSTANT, seed, pages);
            let mut order = take(&mut constant, pages as usize);
            prop_assert_eq!(constant.passes(), 1);
            order.sort_unstable();
            prop_assert!(order.into_iter().eq(0..pages));
        }

        #[test]
        fn equal_seeds_give_equal_orders(seed: u64, sizes in prop::collection::vec(0u64..500, 1..5)) {
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
