//! What a tracker of every page would have seen: the exact trace, passed through its hot set and
//! revocations.
//!
//! Idea: at the start of an interval no page is accessible. A touch of an inaccessible page is seen
//! and makes the page accessible, until the interval ends or until the hot set has no room because
//! enough other pages were seen (MEB §3.4). The seen touches go through the same analysis with the
//! exact engine, without sampling.
//!
//! Cost: O(1) for each touch, 100 to 200 ns for one that is seen.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ballast_model::{Bytes, MissCurve};
use ballast_working_set::{Analysis, AnalysisSettings, IntervalTouches, Sampling};

use super::super::native::program::Truth;

/// A tracker of every page.
pub(super) struct Model {
    analysis: Analysis,
}

/// The result of an interval.
pub(super) struct Exact {
    pub(super) seen: u64,
    pub(super) curve: Option<Arc<MissCurve>>,
}

impl Model {
    pub(super) fn new() -> Model {
        Model { analysis: Analysis::new(AnalysisSettings::default()) }
    }

    /// An interval with the `touches` and with `hot_pages` pages in the hot set; `None`: all
    /// touched pages stay in it until the interval ends.
    pub(super) fn interval(
        &mut self,
        truth: &Truth,
        touches: Range<u64>,
        hot_pages: Option<u64>,
    ) -> Exact {
        let seen = match hot_pages {
            None => truth.first_touches(touches),
            Some(hot_pages) => through(hot_pages, |take| truth.visits(touches.clone(), take)),
        };
        let interval = IntervalTouches {
            watched: Sampling::ALL,
            touches: &seen,
            lost: 0,
            length: Duration::from_secs(1),
        };
        let curve = self.analysis.end_interval(interval, |_| true).report.curve;
        Exact { seen: seen.len() as u64, curve }
    }
}

/// The pages from `visits` that are seen through a first-in, first-out hot set of `hot_pages`
/// pages.
fn through(hot_pages: u64, visits: impl FnOnce(&mut dyn FnMut(u64))) -> Vec<u64> {
    let hot_max = usize::try_from(hot_pages.max(1)).unwrap_or(usize::MAX);
    let (mut queue, mut is_hot, mut seen) = (VecDeque::new(), Vec::new(), Vec::new());
    visits(&mut |page| {
        // A program has few enough pages that their numbers can be indices.
        let place = page as usize;
        if place >= is_hot.len() {
            is_hot.resize(place + 1, false);
        }
        if std::mem::replace(&mut is_hot[place], true) {
            return;
        }
        seen.push(page);
        queue.push_back(place);
        if queue.len() > hot_max
            && let Some(first) = queue.pop_front()
        {
            is_hot[first] = false;
        }
    });
    seen
}

/// The mean distance of the curves over all sizes from `from` on, each curve relative to its own
/// misses at that size; `None` if one of them has none.
pub(super) fn distance(sampled: &MissCurve, exact: &MissCurve, from: Bytes) -> Option<f64> {
    let step = exact.step().get().max(1);
    let sizes = |curve: &MissCurve| curve.points().len() as u64;
    let (first, last) = (from.get().div_ceil(step), sizes(sampled).max(sizes(exact)));
    let at = |curve: &MissCurve, k: u64| curve.misses(Bytes::new(k * step)) as f64;
    let (whole, exact_whole) = (at(sampled, first), at(exact, first));
    if whole <= 0.0 || exact_whole <= 0.0 || first >= last {
        return None;
    }
    let apart: f64 =
        (first..last).map(|k| (at(sampled, k) / whole - at(exact, k) / exact_whole).abs()).sum();
    Some(apart / (last - first) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hot_set_hides_what_is_in_it() {
        let seen = |hot_pages, pages: &[u64]| {
            through(hot_pages, |take| pages.iter().for_each(|&page| take(page)))
        };
        let pages = [1, 2, 1, 3, 1, 2];
        assert_eq!(seen(2, &pages), [1, 2, 3, 1, 2]);
        assert_eq!(seen(1, &pages), [1, 2, 1, 3, 1, 2]);
        assert_eq!(seen(3, &pages), [1, 2, 3]);
        assert_eq!(seen(0, &[7, 7]), [7], "one at least");
    }

    #[test]
    fn curves_are_apart_by_the_mean_of_their_shares() {
        let curve = |points: &[u64]| {
            MissCurve::new(Bytes::mib(1), Duration::from_secs(1), points.to_vec()).unwrap()
        };
        let (a, b) = (curve(&[100, 50, 0]), curve(&[10, 10, 4, 0]));
        // From 0: |1 - 1|, |0.5 - 1|, |0 - 0.4|, 0, for four sizes.
        assert!((distance(&a, &b, Bytes::ZERO).unwrap() - 0.9 / 4.0).abs() < 1e-9);
        // From 1 MiB: 1 and 1, 0 and 0.4, 0.
        assert!((distance(&a, &b, Bytes::mib(1)).unwrap() - 0.4 / 3.0).abs() < 1e-9);
        assert_eq!(distance(&a, &a, Bytes::ZERO), Some(0.0));
        assert_eq!(distance(&a, &b, Bytes::mib(2)), None, "the first has no misses there");
    }
}
