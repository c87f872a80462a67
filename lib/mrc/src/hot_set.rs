//! Miss ratios over all accesses when a hot set hides most of them.
//!
//! Trapping every access is too expensive, so MEB §3.4 lets the pages that trapped last keep their
//! permission: a FIFO of `HSS` pages, whose accesses are not seen. A curve of what still traps is
//! one of misses of the hot set: all its distances are above `HSS`, and its ratios refer to the
//! wrong total.
//!
//! Idea: hidden accesses are hits. While a page is in the FIFO fewer than `HSS` others enter, and
//! only they and the `HSS` that were there can be accessed, so the distance of a hidden access is
//! below `2 × HSS`. When hidden accesses are added with these distances ([`with_hidden`]), the
//! ratio is that of real accesses. How they are spread matters only for memory smaller than that;
//! each doubling of the distance gets the same number.
//!
//! Their number comes from a known total of accesses, or from *watched* entries: one in every
//! `watch_every` enters the FIFO like any other, but without permission, so that each access to it
//! is seen while it is there. Because entries are watched, and not chosen pages, the estimate does
//! not depend on whether the hottest page was chosen: the hottest pages enter again and again.
//!
//! Measured (`cargo run --release -p ballast-mrc --example hot_set`): error of WSS(1 %), and mean
//! absolute error of the total miss ratio over 500 sizes, against the curve of all accesses.
//! *Watched* has one entry in 64 watched, and in parentheses the error of the estimated number of
//! hidden accesses.
//!
//! | workload (1.5 M accesses) | HSS   | traps | trapped alone | true count   | watched             |
//! |---------------------------|-------|-------|---------------|--------------|---------------------|
//! | two levels, 2,000 and     | 256   | 90 %  | +2 %, 0.010   | +0 %, 0.000  | +0 %, 0.000 (+0 %)  |
//! | 30,000 pages              | 1,024 | 61 %  | +7 %, 0.051   | +0 %, 0.004  | +0 %, 0.005 (+2 %)  |
//! |                           | 4,096 | 17 %  | +17 %, 0.316  | +0 %, 0.027  | +0 %, 0.027 (+0 %)  |
//! | Zipf(0.9), 65,536 pages   | 256   | 79 %  | +2 %, 0.052   | +0 %, 0.000  | +0 %, 0.001 (−1 %)  |
//! |                           | 1,024 | 66 %  | +3 %, 0.098   | +0 %, 0.001  | +0 %, 0.001 (+0 %)  |
//! |                           | 4,096 | 51 %  | +4 %, 0.182   | +0 %, 0.005  | +1 %, 0.021 (−17 %) |
//! | Zipf(1.1), 65,536 pages   | 256   | 49 %  | +14 %, 0.095  | +0 %, 0.001  | +0 %, 0.001 (+0 %)  |
//! |                           | 1,024 | 36 %  | +18 %, 0.164  | +0 %, 0.002  | +1 %, 0.008 (−9 %)  |
//! |                           | 4,096 | 23 %  | +24 %, 0.287  | +0 %, 0.009  | +2 %, 0.019 (−13 %) |
//! | scan of 20,000 pages,     | 256   | 13 %  | +0 %, 0.872   | +0 %, 0.003  | +0 %, 0.003 (+0 %)  |
//! | each 8 times              | 1,024 | 13 %  | +0 %, 0.872   | +0 %, 0.011  | +0 %, 0.011 (+0 %)  |
//! |                           | 4,096 | 13 %  | +0 %, 0.872   | +0 %, 0.039  | +0 %, 0.039 (+0 %)  |
//!
//! A hot set of 1/16 of the pages costs very little accuracy once the hidden hits are added, and
//! the working set is right. The watched entries themselves trap in 0.2–1.4 % of accesses. Their
//! estimate is less accurate if there are few entries, as with a large hot set and few very hot
//! pages.
//!
//! Cost: O(1) for each access. Source: MEB §3.4; the correction is ours.
//! Limits: a page's place in the LRU order is that of its last trap, so distances of trapped
//! accesses remain approximate; a very hot page that is watched traps on each access until it
//! leaves.

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::Histogram;

/// How an access was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It trapped: the page was not in the hot set, and is now.
    Trapped,
    /// It trapped although the page is in the hot set, because the entry is watched.
    Watched,
    /// It was not seen.
    Hidden,
}

/// The number of accesses seen since an interval started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessCounts {
    /// [`Access::Trapped`] ones.
    pub trapped: u64,
    /// [`Access::Watched`] ones.
    pub watched: u64,
}

impl AccessCounts {
    /// Accesses to the hot set, if the total of all accesses is known.
    #[must_use]
    pub fn hidden_of_total(self, total: u64) -> u64 {
        total.saturating_sub(self.trapped)
    }

    /// Accesses to the hot set, estimated from the watched ones; one entry in `watch_every` was
    /// watched.
    #[must_use]
    pub fn hidden_of_watched(self, watch_every: u32) -> u64 {
        self.watched.saturating_mul(u64::from(watch_every))
    }
}

/// The pages with permission: a first-in, first-out queue.
#[derive(Clone, Debug)]
pub struct HotSet {
    pages_max: usize,
    /// One entry in this many is watched; 0 watches none.
    watch_every: u32,
    queue: VecDeque<u64>,
    /// The pages in the queue, and whether they are watched.
    members: HashMap<u64, bool>,
    entered: u64,
    access_counts: AccessCounts,
}

impl HotSet {
    /// A hot set of up to `pages_max` pages (0 hides nothing) that watches one entry in
    /// `watch_every` (0 watches none).
    #[must_use]
    pub fn new(pages_max: usize, watch_every: u32) -> Self {
        Self {
            pages_max,
            watch_every,
            queue: VecDeque::new(),
            members: HashMap::new(),
            entered: 0,
            access_counts: AccessCounts::default(),
        }
    }

    /// The greatest number of pages that it holds.
    #[must_use]
    pub fn pages_max(&self) -> usize {
        self.pages_max
    }

    /// What was seen since the interval started.
    #[must_use]
    pub fn access_counts(&self) -> AccessCounts {
        self.access_counts
    }

    /// Starts an interval: counts start from zero again, the hot set stays.
    pub fn start_interval(&mut self) {
        self.access_counts = AccessCounts::default();
    }

    /// Accesses `page`. Only accesses that are [`Access::Trapped`] belong in the LRU stack.
    pub fn access(&mut self, page: u64) -> Access {
        match self.members.get(&page) {
            Some(false) => Access::Hidden,
            Some(true) => {
                self.access_counts.watched += 1;
                Access::Watched
            }
            None => {
                self.access_counts.trapped += 1;
                self.enter(page);
                Access::Trapped
            }
        }
    }

    /// Changes the size; if it shrinks, the pages that entered first lose their permission.
    pub fn resize(&mut self, pages_max: usize) {
        self.pages_max = pages_max;
        self.shrink_to(pages_max);
    }

    fn enter(&mut self, page: u64) {
        if self.pages_max == 0 {
            return;
        }
        self.shrink_to(self.pages_max - 1);
        self.queue.push_back(page);
        self.members.insert(page, self.is_watched());
        self.entered += 1;
    }

    /// Watches a different one of each `watch_every` entries, so that it is not the same page in
    /// every round.
    fn is_watched(&self) -> bool {
        let Some(round) = self.entered.checked_div(u64::from(self.watch_every)) else {
            return false;
        };
        let hash = (round + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let chosen = ((hash >> 32) * u64::from(self.watch_every)) >> 32;
        self.entered % u64::from(self.watch_every) == chosen
    }

    fn shrink_to(&mut self, pages: usize) {
        while self.queue.len() > pages {
            let first = self.queue.pop_front();
            first.map(|page| self.members.remove(&page));
        }
    }
}

/// The histogram of trapped accesses with `hidden` accesses added, which found their page in a hot
/// set of `hot_set` tags. They are spread over the distances below `2 × hot_set`, with the same
/// number for each doubling.
///
/// # Panics
/// If `hidden` is negative or not finite; if `trapped` is exact and `2 × hot_set` is above
/// [`TAGS_MAX`](crate::TAGS_MAX).
#[must_use]
pub fn with_hidden(trapped: &Histogram, hidden: f64, hot_set: u64) -> Histogram {
    let mut all = trapped.clone();
    let end = hot_set.saturating_mul(2).max(2);
    let whole = (end as f64).ln();
    // Steps of 1/64, which a log-linear histogram cannot resolve, limit the number of steps.
    let mut distance = 1;
    while distance < end {
        let next = (distance + (distance / 64).max(1)).min(end);
        all.add(distance, hidden * (next as f64 / distance as f64).ln() / whole);
        distance = next;
    }
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        CountingEngine, Curve, Engine, EngineName, Form, Granularity, Layout, List,
        mean_absolute_error,
    };

    use Access::{Hidden, Trapped, Watched};

    #[test]
    fn accesses_by_name() {
        let cases: [(usize, u32, &[u64], &[Access]); 5] = [
            (0, 0, &[1, 1], &[Trapped, Trapped]),
            (1, 0, &[1, 1, 2, 1], &[Trapped, Hidden, Trapped, Trapped]),
            // First in, first out: accessing page 1 does not keep it in.
            (2, 0, &[1, 2, 1, 3, 1], &[Trapped, Trapped, Hidden, Trapped, Trapped]),
            (2, 1, &[1, 1, 2, 1], &[Trapped, Watched, Trapped, Watched]),
            (0, 1, &[1, 1], &[Trapped, Trapped]),
        ];
        for (size, watch_every, pages, expected) in cases {
            let mut hot_set = HotSet::new(size, watch_every);
            let accesses: Vec<Access> = pages.iter().map(|&page| hot_set.access(page)).collect();
            assert_eq!(accesses, expected, "{size} {watch_every} {pages:?}");
        }
    }

    #[test]
    fn the_first_in_lose_their_permission_when_it_shrinks() {
        let mut hot_set = HotSet::new(3, 0);
        for page in 1..=3 {
            hot_set.access(page);
        }
        hot_set.resize(1);
        assert_eq!([3, 2].map(|page| hot_set.access(page)), [Hidden, Trapped]);
        assert_eq!(hot_set.pages_max(), 1);
    }

    #[test]
    fn one_entry_in_so_many_is_watched() {
        let mut hot_set = HotSet::new(1, 8);
        let mut at = Vec::new();
        for entry in 0..8000_u64 {
            hot_set.access(entry);
            if hot_set.access(entry) == Watched {
                at.push(entry);
            }
        }
        let rounds: Vec<u64> = at.iter().map(|entry| entry / 8).collect();
        assert_eq!(rounds, (0..1000).collect::<Vec<u64>>());
        for index in 0..8 {
            let count = at.iter().filter(|&entry| entry % 8 == index).count();
            assert!((90..160).contains(&count), "{index}: {count}");
        }
        let access_counts = hot_set.access_counts();
        assert_eq!(access_counts, AccessCounts { trapped: 8000, watched: 1000 });
        assert_eq!(
            (access_counts.hidden_of_watched(8), access_counts.hidden_of_total(16_000)),
            (8000, 8000)
        );
        assert_eq!(access_counts.hidden_of_total(7), 0);
        hot_set.start_interval();
        assert_eq!(hot_set.access_counts(), AccessCounts::default());
    }

    #[test]
    fn nothing_hidden_changes_nothing() {
        let histogram = Histogram::from_counts(&[1, 0, 5]);
        assert_eq!(with_hidden(&histogram, 0.0, 100), histogram);
        assert_eq!(with_hidden(&histogram, 2.0, 0).weight_at(1), 2.0);
    }

    fn curve(pages: &[u64]) -> (Histogram, Curve) {
        let mut engine = CountingEngine::new(EngineName::List, List::new());
        engine.record(pages).unwrap();
        let histogram = engine.histogram().unwrap();
        let curve = Curve::new(&histogram, Granularity::PAGE);
        (histogram, curve)
    }

    #[test]
    fn restored_hidden_hits_bring_the_curve_near_the_full_one() {
        // 3 of 4 accesses go to 100 pages, the others to 1,900; some pages are accessed twice.
        let mut state = 1_u64;
        let mut random = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % bound
        };
        let pages: Vec<u64> = (0..60_000)
            .map(|_| if random(4) == 0 { 100 + random(1900) } else { random(100) })
            .collect();
        let truth = curve(&pages).1;
        for size in [16, 64, 166] {
            let mut hot_set = HotSet::new(size, 16);
            let trapped: Vec<u64> =
                pages.iter().copied().filter(|&page| hot_set.access(page) == Trapped).collect();
            let (alone, uncorrected) = curve(&trapped);
            let (access_counts, total) = (hot_set.access_counts(), pages.len() as u64);
            let hidden = access_counts.hidden_of_total(total) as f64;
            let estimate = access_counts.hidden_of_watched(16) as f64;
            assert!((estimate / hidden - 1.0).abs() < 0.2, "{size}: {estimate} {hidden}");
            let error = |curve: &Curve| mean_absolute_error(&truth, curve, 0..2000, Form::Total);
            for hidden in [hidden, estimate] {
                let corrected =
                    Curve::new(&with_hidden(&alone, hidden, size as u64), Granularity::PAGE);
                assert!(error(&corrected) < 0.02, "{size}: {}", error(&corrected));
                assert!(error(&corrected) * 2.0 < error(&uncorrected), "{size}");
                let (set, expected) = (corrected.working_set(0.01), truth.working_set(0.01));
                assert!(set.abs_diff(expected) < 20, "{size}: {set} {expected}");
            }
        }
    }

    proptest! {
        #[test]
        fn it_is_a_queue(
            pages in prop::collection::vec(0..30_u64, 0..300), size in 0..20_usize,
            watch_every in 0..4_u32,
        ) {
            let mut hot_set = HotSet::new(size, watch_every);
            let mut queue: Vec<u64> = Vec::new();
            let mut stack: Vec<u64> = Vec::new();
            let mut trapped_stack: Vec<u64> = Vec::new();
            let distance = |stack: &mut Vec<u64>, page: u64| {
                let index = stack.iter().position(|&one| one == page);
                index.map(|index| stack.remove(index));
                stack.insert(0, page);
                index.map(|index| index + 1)
            };
            for page in pages {
                let true_distance = distance(&mut stack, page);
                let access = hot_set.access(page);
                if queue.contains(&page) {
                    prop_assert!(access != Trapped);
                    // The header's bound on the distance of hidden accesses.
                    prop_assert!(true_distance.unwrap() < 2 * size);
                } else {
                    prop_assert_eq!(access, Trapped);
                    let measured = distance(&mut trapped_stack, page);
                    prop_assert!(measured.is_none_or(|measured| measured > size));
                    queue.push(page);
                    if queue.len() > size {
                        queue.remove(0);
                    }
                }
            }
        }

        #[test]
        fn hidden_accesses_are_hits_below_twice_the_hot_set(
            hidden in 0.0..1e6, hot_set in 0..100_000_u64, distance in 1..500_000_u64,
            log_linear in any::<bool>(),
        ) {
            let layout = if log_linear { Layout::LogLinear } else { Layout::Exact };
            let mut trapped = Histogram::new(layout);
            trapped.add_cold(3.0);
            trapped.add(distance, 7.0);
            let all = with_hidden(&trapped, hidden, hot_set);
            prop_assert!((all.warm() - 7.0 - hidden).abs() < 1e-6);
            prop_assert_eq!(all.cold(), 3.0);
            let above = all.buckets().filter(|bucket| bucket.first >= (2 * hot_set).max(2));
            let beyond: f64 = above.map(|bucket| bucket.weight).sum();
            prop_assert_eq!(beyond, if trapped.buckets().next().unwrap().first >= (2 * hot_set).max(2) { 7.0 } else { 0.0 });
        }
    }
}
