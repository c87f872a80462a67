//! Computes a working set and a miss curve from the touches of each interval.
//!
//! Idea: with a share `s` of all granules watched, a touch at distance `d` among the watched ones
//! has distance `1 + (d − 1) / s` among all and stands for `1 / s` touches (SHARDS). The miss curve
//! comes from the distances of all intervals, aged by λ = 0.1.
//!
//! The working set is the smallest memory in which at most a share ε of the interval's warm touches
//! miss (MEB §3.1). Its distances count from the end of the interval of the previous touch, because
//! the granule stayed accessible, and may have been used, until then. The estimate therefore
//! follows growth and shrinking at once; counted from the touches seen, the first pass over a
//! smaller set would still have the distances of the larger one. A guest that takes many intervals
//! to return to a page needs all memory touched between, however little it touches in one interval.
//! The working set is at least the memory touched in the interval, which may all be cold. If
//! nothing was touched twice, the aged curve gives it.
//!
//! When the share rises, the newly watched granules have no history and are missing from the list.
//! With the new share, every distance would then seem too short, and a working set would seem to
//! halve as the share doubles. Until the new sample has caught up, distances are counted among the
//! granules of the previous sample, by its share. Both samples take in all touches.
//!
//! With few touches chance decides which miss. So the share that may miss is ε plus one standard
//! deviation plus one touch. Otherwise one touch, in a sample of sixty, to a page that the kernel
//! uses once a minute would put all memory touched in that minute into the working set.
//!
//! Not every access is seen: a touched granule stays accessible until it leaves the hot set or the
//! interval ends. Hidden accesses have distances below the hot set's size, so the misses of larger
//! memories are counted in full. ε is a share of the touches seen, so the working set is too large
//! rather than too small.
//!
//! Cost: 100 to 200 ns a touch; O(distinct distances) an interval.
//! Source: MEB §3.1, §3.4; Waldspurger 2015 for the sample; their combination is ours.
//! Limits: with fewer than some hundreds of watched granules touched, sampling error dominates.

use std::sync::Arc;
use std::time::Duration;

use ballast_model::{Bytes, MissCurve, TrackerReport, TrackingSource};
use ballast_mrc::{Aging, Curve, Form, Granularity, Histogram, Layout};

use crate::recency::{Recency, Touch};

/// Intervals after which a larger sample counts even if it has not caught up: by then, the working
/// set of a guest that takes as long to return to its pages is out of date.
const CATCH_UP_MAX: u32 = 32;

/// Settings of the analysis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AnalysisSettings {
    /// ε: share of warm touches that may miss in the working set, 0 to 1.
    pub miss_ratio: f64,
    /// λ: factor by which the weight of an interval falls with each later one, 0 to 1.
    pub aging: f64,
    /// Difference between two sizes of the miss curve, in whole pages.
    pub step: Bytes,
}

impl Default for AnalysisSettings {
    fn default() -> Self {
        AnalysisSettings { miss_ratio: 0.01, aging: 0.1, step: Bytes::mib(1) }
    }
}

/// Which part of a guest's memory is watched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Group of pages that the tracker treats as one.
    pub granule: Granularity,
    /// Share of granules watched, above 0 and at most 1.
    pub share: f64,
}

impl Sampling {
    /// Every page.
    pub const ALL: Sampling = Sampling { granule: Granularity::PAGE, share: 1.0 };

    /// The memory represented by `granules` watched ones.
    fn memory(self, granules: f64) -> Bytes {
        let pages = granules / self.share * self.granule.pages() as f64;
        // The cast saturates at both ends, and turns NaN to 0.
        Bytes::pages((pages.round() as u64).min(Bytes::MAX.to_pages()))
    }
}

/// What the tracker saw in one interval.
#[derive(Clone, Copy, Debug)]
pub struct IntervalTouches<'a> {
    /// Which granules were watched.
    pub watched: Sampling,
    /// Touched pages in order, one for each touch of a granule.
    pub touches: &'a [u64],
    /// Touches seen but lost because a buffer was full.
    pub lost: u64,
    /// Length of the interval.
    pub length: Duration,
}

/// The result for one interval.
#[derive(Clone, Debug, PartialEq)]
pub struct IntervalAnalysis {
    /// Memory touched in the interval.
    pub touched: Bytes,
    /// Watched granules touched in it; [`touched`](Self::touched) is computed from them.
    pub granules: u64,
    /// Memory in which at most half of the warm touches miss.
    pub half_miss: Bytes,
    /// The working set and the miss curve.
    pub report: TrackerReport,
    /// Touches not counted: lost by the tracker, or of more granules than are remembered.
    pub lost: u64,
}

/// The sample that was watched before the share rose: those of its granules that had been touched
/// by then.
#[derive(Debug)]
struct PreviousSample {
    share: f64,
    recency: Recency,
    /// Intervals since then.
    intervals: u32,
}

/// The distances of one interval's touches in a sample.
struct SampleDistances {
    share: f64,
    histogram: Histogram,
    /// Counted from the end of the interval of the previous touch.
    histogram_min: Histogram,
    warm: u64,
}

impl SampleDistances {
    fn new(share: f64) -> SampleDistances {
        // In a sample, a bucket's width is less than the sampling error of a distance.
        let layout = if share >= 1.0 { Layout::Exact } else { Layout::LogLinear };
        let (histogram, histogram_min) = (Histogram::new(layout), Histogram::new(layout));
        SampleDistances { share, histogram, histogram_min, warm: 0 }
    }

    fn add(&mut self, touch: Touch) {
        let weight = 1.0 / self.share;
        let Some(distance) = touch.distance else {
            self.histogram.add_cold(weight);
            return;
        };
        let among_all = |distance: u32| 1 + (f64::from(distance - 1) / self.share).round() as u64;
        self.warm += 1;
        self.histogram.add(among_all(distance), weight);
        self.histogram_min.add(among_all(touch.distance_min.unwrap_or(distance)), weight);
    }

    /// Pages in which at most `miss_ratio` of the warm touches miss, plus what chance allows;
    /// `None`: nothing was touched twice.
    fn working_set(&self, granule: Granularity, miss_ratio: f64) -> Option<u64> {
        let miss_ratio = with_sampling_error(miss_ratio, self.warm as f64);
        let curve = Curve::new(&self.histogram_min, granule);
        (self.warm > 0).then(|| curve.working_set(miss_ratio))
    }
}

/// Accumulates the touches of one guest.
#[derive(Debug)]
pub struct Analysis {
    settings: AnalysisSettings,
    watched: Sampling,
    recency: Recency,
    /// The previous sample while the present one catches up with it.
    previous: Option<PreviousSample>,
    aging: Aging,
    /// Number of intervals in the aged sum, by their aged weights.
    intervals: f64,
    interval: u32,
}

impl Analysis {
    /// An analysis of a guest not seen before. Settings out of range are replaced by their
    /// defaults.
    pub fn new(settings: AnalysisSettings) -> Analysis {
        let within =
            |ratio: f64, default| if (0.0..=1.0).contains(&ratio) { ratio } else { default };
        let default = AnalysisSettings::default();
        let settings = AnalysisSettings {
            miss_ratio: within(settings.miss_ratio, default.miss_ratio),
            aging: within(settings.aging, default.aging),
            step: settings.step.page_ceil().max(Bytes::pages(1)),
        };
        Analysis {
            settings,
            watched: Sampling::ALL,
            recency: Recency::default(),
            previous: None,
            aging: Aging::new(settings.aging, Layout::Exact).unwrap_or_default(),
            intervals: 0.0,
            interval: 0,
        }
    }

    /// Analyses an interval; `has` tells whether a granule is watched. When the granule size
    /// changes, the LRU list is regrouped; when the share changes, granules no longer watched are
    /// dropped.
    pub fn end_interval(
        &mut self,
        interval_touches: IntervalTouches<'_>,
        has: impl Fn(u64) -> bool,
    ) -> IntervalAnalysis {
        self.watch_by(interval_touches.watched, has);
        let mut lost = interval_touches.lost;
        let mut granules = 0_u64;
        let mut distances = SampleDistances::new(self.watched.share);
        let mut before = self.previous.as_ref().map(|it| SampleDistances::new(it.share));
        for &page in interval_touches.touches {
            let granule = self.watched.granule.tag(page);
            let Ok(found) = self.recency.touch(granule, self.interval) else {
                lost = lost.saturating_add(1);
                continue;
            };
            granules += u64::from(found.is_first);
            distances.add(found);
            if let Some((previous, before)) = self.previous.as_mut().zip(before.as_mut())
                && previous.recency.has(granule)
                && let Ok(found) = previous.recency.touch(granule, self.interval)
            {
                before.add(found);
            }
        }
        self.interval = self.interval.wrapping_add(1);
        self.aging.end_interval(&before.as_ref().unwrap_or(&distances).histogram);
        self.intervals = self.intervals * self.settings.aging + 1.0;

        let curve = Curve::new(self.aging.histogram(), self.watched.granule);
        let touched = self.watched.memory(granules as f64);
        let pages_of = |distances: &SampleDistances| {
            distances.working_set(self.watched.granule, self.settings.miss_ratio)
        };
        let (now, then) = (pages_of(&distances), before.as_ref().and_then(pages_of));
        let pages = now.max(then).unwrap_or_else(|| curve.working_set(self.settings.miss_ratio));
        let working_set = Bytes::pages(pages).max(touched);
        let has_caught_up = now.is_some() && now >= then;
        self.previous = self.previous.take().and_then(|previous| {
            let intervals = previous.intervals + 1;
            let lasts = !has_caught_up && intervals < CATCH_UP_MAX;
            lasts.then_some(PreviousSample { intervals, ..previous })
        });
        let half_miss = curve.inverse(0.5, Form::Warm).unwrap_or(0);
        IntervalAnalysis {
            touched,
            granules,
            half_miss: Bytes::pages(half_miss),
            report: TrackerReport {
                working_set,
                curve: self.miss_curve(&curve, interval_touches.length),
                source: TrackingSource::Library,
            },
            lost,
        }
    }

    /// Number of watched granules remembered.
    pub fn granules(&self) -> usize {
        self.recency.len()
    }

    /// Numbers of the watched granules remembered, latest touch first.
    pub fn order(&self) -> Vec<u64> {
        self.recency.order()
    }

    /// Switches to another granule size or share.
    fn watch_by(&mut self, watched: Sampling, has: impl Fn(u64) -> bool) {
        if watched == self.watched {
            return;
        }
        let (from, to) = (self.watched.granule, watched.granule);
        let mut order = self.recency.order();
        if from != to {
            self.aging.regroup(from, to);
            // Samples of different granule sizes share no granules: the order is unknown.
            let was_all = self.watched.share >= 1.0;
            order = if was_all { from.regroup(to, &order) } else { Vec::new() };
        }
        order.retain(|&granule| has(granule));
        let share = self.watched.share;
        let rises = from == to && share < watched.share && self.recency.len() > 0;
        let restored = Recency::of(&order);
        let recency = std::mem::replace(&mut self.recency, restored);
        if rises && self.previous.is_none() {
            self.previous = Some(PreviousSample { share, recency, intervals: 0 });
        }
        // A sample that is part of the previous one has all of its history.
        self.previous.take_if(|previous| from != to || watched.share <= previous.share);
        self.watched = watched;
    }

    /// The aged curve, scaled to the misses of one interval; `None`: nothing was touched twice.
    fn miss_curve(&self, curve: &Curve, length: Duration) -> Option<Arc<MissCurve>> {
        if curve.warm() <= 0.0 {
            return None;
        }
        let step_pages = self.settings.step.to_pages();
        let last = curve.pages_max().div_ceil(step_pages).min(MissCurve::POINTS_MAX as u64 - 1);
        let misses = (0..=last)
            // The only rounding: decisions use these whole numbers.
            .map(|k| (curve.misses(k * step_pages) / self.intervals).round() as u64)
            .collect();
        MissCurve::new(self.settings.step, length, misses).ok().map(Arc::new)
    }
}

/// The share of `touches` that may miss: `ratio`, plus a standard deviation (the square root of the
/// number expected), plus one touch.
fn with_sampling_error(ratio: f64, touches: f64) -> f64 {
    (ratio + ((ratio * touches).sqrt() + 1.0) / touches).min(1.0)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// A simulated tracker: a FIFO of `hot` granules stays accessible, and every interval starts
    /// with none.
    fn touches(
        accesses: &[u64],
        watched: Sampling,
        hot: usize,
        has: &dyn Fn(u64) -> bool,
    ) -> Vec<u64> {
        let (mut fifo, mut seen) = (VecDeque::new(), Vec::new());
        for &page in accesses {
            let granule = watched.granule.tag(page);
            if !has(granule) || fifo.contains(&granule) {
                continue;
            }
            seen.push(page);
            fifo.push_back(granule);
            if fifo.len() > hot {
                fifo.pop_front();
            }
        }
        seen
    }

    struct Guest {
        analysis: Analysis,
        watched: Sampling,
        hot: usize,
    }

    impl Guest {
        fn new(watched: Sampling, hot: usize) -> Guest {
            Guest { analysis: Analysis::new(AnalysisSettings::default()), watched, hot }
        }

        fn interval(&mut self, accesses: &[u64]) -> IntervalAnalysis {
            let has = sample(self.watched.share);
            let touches = touches(accesses, self.watched, self.hot, &has);
            let length = Duration::from_secs(1);
            let seen =
                IntervalTouches { watched: self.watched, touches: &touches, lost: 0, length };
            self.analysis.end_interval(seen, has)
        }
    }

    /// A sample by golden-ratio hashing, which spreads evenly.
    fn sample(share: f64) -> impl Fn(u64) -> bool {
        let limit = (share * 2_f64.powi(64)) as u64;
        move |granule| granule.wrapping_mul(0x9E37_79B9_7F4A_7C15) <= limit
    }

    fn passes(pages: u64, count: usize) -> Vec<u64> {
        (0..count).flat_map(|_| 0..pages).collect()
    }

    fn random(pages: u64, count: usize, seed: u64) -> Vec<u64> {
        let mut rng = fastrand::Rng::with_seed(seed);
        (0..count).map(|_| rng.u64(0..pages)).collect()
    }

    fn within(seen: Bytes, pages: u64, percent: u64) -> bool {
        seen.to_pages().abs_diff(pages) * 100 <= pages * percent
    }

    /// Each interval: two passes over four pages with a hot set of two, so every page traps twice.
    #[test]
    fn two_passes_over_four_pages_give_four_pages() {
        let mut guest = Guest::new(Sampling::ALL, 2);
        let first = guest.interval(&passes(4, 2));
        // Four cold touches and four of distance 4.
        assert_eq!((first.touched, first.granules), (Bytes::pages(4), 4));
        assert_eq!(first.report.working_set, Bytes::pages(4));
        let second = guest.interval(&passes(4, 2));
        let curve = second.report.curve.unwrap();
        // Aged: 0.1 × 4 + 8 touches of distance 4, in 1.1 intervals: 7.64 misses below 4 pages.
        assert_eq!(curve.points(), [8, 0]);
        assert_eq!(second.half_miss, Bytes::pages(4));
    }

    #[test]
    fn growth_and_shrinking_are_followed_at_once() {
        for (share, error) in [(1.0, 1), (1.0 / 16.0, 4)] {
            let watched = Sampling { share, ..Sampling::ALL };
            // Each granule is seen once an interval.
            let mut guest = Guest::new(watched, usize::MAX);
            let mut wss = |pages| guest.interval(&passes(pages, 3)).report.working_set;
            for pages in [4000, 4000, 9000, 4000, 4000, 9000] {
                let result = wss(pages);
                assert!(within(result, pages, error), "{share}: {result} of {pages} pages");
            }
        }
    }

    /// Granules that trap repeatedly in an interval count with the distances seen.
    #[test]
    fn with_a_hot_set_shrinking_shows_within_three_intervals() {
        for (share, error) in [(1.0, 1), (1.0 / 16.0, 4)] {
            let watched = Sampling { share, ..Sampling::ALL };
            let mut guest = Guest::new(watched, 64);
            let mut wss = |pages| guest.interval(&passes(pages, 3)).report.working_set;
            for _ in 0..4 {
                wss(4000);
            }
            assert!(within(wss(9000), 9000, error), "{share}");
            let fall: Vec<Bytes> = (0..3).map(|_| wss(4000)).collect();
            assert!(within(fall[2], 4000, error), "{share}: {fall:?}");
        }
    }

    /// Of 100 touches one may miss plus two by chance, 3 %; of 10,000, 100 plus 11.
    #[test]
    fn a_single_far_touch_does_not_enlarge_the_working_set() {
        for (touches, expected) in [(1.0, 1.0), (100.0, 0.03), (10_000.0, 0.0111)] {
            assert!((with_sampling_error(0.01, touches) - expected).abs() < 1e-9, "{touches}");
        }
        let mut guest = Guest::new(Sampling::ALL, usize::MAX);
        guest.interval(&passes(4000, 1));
        guest.interval(&passes(60, 1));
        let again: Vec<u64> = (0..60).chain([3999]).collect();
        assert_eq!(guest.interval(&again).report.working_set, Bytes::pages(61));
    }

    /// 400 of 4,000 pages an interval: each returns after ten intervals.
    #[test]
    fn a_slow_cycle_counts_as_a_whole() {
        for (share, error) in [(1.0, 1), (1.0 / 16.0, 10)] {
            let mut guest = Guest::new(Sampling { share, ..Sampling::ALL }, usize::MAX);
            let mut result = guest.interval(&[]);
            for interval in 0..25_u64 {
                let first = interval * 400 % 4000;
                result = guest.interval(&(first..first + 400).collect::<Vec<_>>());
            }
            assert!(
                within(result.report.working_set, 4000, error),
                "{}",
                result.report.working_set
            );
            assert!(within(result.touched, 400, 20), "{}", result.touched);
            // An idle interval does not change it.
            assert!(within(guest.interval(&[]).report.working_set, 4000, error));
        }
    }

    #[test]
    fn the_curve_of_a_sample_matches_the_full_curve() {
        let accesses: Vec<Vec<u64>> = (0..8).map(|seed| random(6000, 30_000, seed)).collect();
        let curve = |share: f64| {
            let hot = (256.0 * share) as usize;
            let mut guest = Guest::new(Sampling { share, ..Sampling::ALL }, hot);
            let seen: Vec<IntervalAnalysis> =
                accesses.iter().map(|it| guest.interval(it)).collect();
            seen.into_iter().next_back().and_then(|seen| seen.report.curve).unwrap()
        };
        let (all, sampled) = (curve(1.0), curve(1.0 / 8.0));
        let most = all.points()[0] as f64;
        for k in 2..=24 {
            let of = |curve: &MissCurve| curve.misses(Bytes::mib(k)) as f64 / most;
            assert!(
                (of(&all) - of(&sampled)).abs() < 0.04,
                "{k} MiB: {} {}",
                of(&all),
                of(&sampled)
            );
        }
    }

    #[test]
    fn changed_granules_and_shares_keep_the_history() {
        let fine = Sampling { granule: Granularity::new(32).unwrap(), share: 1.0 };
        let mut guest = Guest::new(fine, 4);
        for _ in 0..4 {
            guest.interval(&passes(3200, 2));
        }
        guest.watched.granule = Granularity::new(64).unwrap();
        let seen = guest.interval(&passes(3200, 2));
        assert_eq!((seen.report.working_set, guest.analysis.granules()), (Bytes::pages(3200), 50));

        let mut guest = Guest::new(Sampling::ALL, 16);
        for _ in 0..4 {
            guest.interval(&passes(4096, 2));
        }
        guest.watched.share = 0.125;
        let seen = guest.interval(&passes(4096, 2));
        assert!(within(seen.report.working_set, 4096, 3), "{}", seen.report.working_set);
        assert!(guest.analysis.granules() < 600, "granules no longer watched are forgotten");
    }

    /// A guest that visits 4,000 pages at random needs some ten intervals to visit all newly
    /// watched ones.
    #[test]
    fn a_rising_share_leaves_working_set_and_curve() {
        let mut guest = Guest::new(Sampling { share: 0.25, ..Sampling::ALL }, usize::MAX);
        let mut seen = |share: f64, seed| {
            guest.watched.share = share;
            let seen = guest.interval(&random(4000, 1500, seed)).report;
            (seen.working_set, seen.curve.map_or(0, |curve| curve.misses(Bytes::mib(8))))
        };
        let mut settled = (Bytes::ZERO, 0);
        for seed in 0..30 {
            settled = seen(0.25, seed);
        }
        assert!(within(settled.0, 3800, 10), "{settled:?}");
        for (share, seeds) in [(0.5, 30..32), (1.0, 32..60)] {
            for seed in seeds {
                let (working_set, misses) = seen(share, seed);
                assert!(within(working_set, 3800, 12), "{seed}: {working_set}");
                // Half of the pages: half of the visits miss.
                assert!(misses.abs_diff(750) < 150, "{seed}: {misses}");
            }
        }
    }

    /// The guest grows in the very interval in which more is watched.
    #[test]
    fn growth_is_seen_while_a_larger_sample_catches_up() {
        let mut guest = Guest::new(Sampling { share: 0.25, ..Sampling::ALL }, usize::MAX);
        for _ in 0..4 {
            guest.interval(&passes(4000, 1));
        }
        guest.watched.share = 1.0;
        for (pages, error) in [(6000, 3), (6000, 3), (4000, 3), (4000, 3)] {
            let found = guest.interval(&passes(pages, 1)).report.working_set;
            assert!(within(found, pages, error), "{found} of {pages}");
        }
    }

    #[test]
    fn invalid_settings_and_idle_intervals_give_zero() {
        let settings = AnalysisSettings { miss_ratio: f64::NAN, aging: -1.0, step: Bytes::ZERO };
        let mut analysis = Analysis::new(settings);
        let length = Duration::from_secs(1);
        let nothing = IntervalTouches { watched: Sampling::ALL, touches: &[], lost: 5, length };
        let seen = analysis.end_interval(nothing, |_| true);
        assert_eq!((seen.touched, seen.report.working_set), (Bytes::ZERO, Bytes::ZERO));
        assert_eq!((seen.report.curve, seen.lost), (None, 5));
    }
}
