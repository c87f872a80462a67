//! Touches of an interval to a working set and a miss curve.
//!
//! Idea: a touch at distance `d` among watched granules, of which a share `s` is watched, is one at
//! `1 + (d − 1) / s` among all, and stands for `1 / s` touches (SHARDS). Distances are counted in an
//! interval, and intervals aged by λ = 0.1 into the miss curve.
//!
//! The working set is the least memory in which at most ε of the touches seen in the interval miss, warm ones
//! (MEB §3.1), with distances counted from the end of the interval of the touch before: until then the granule
//! was accessible, and may have been used. So what a guest goes through in an interval is its working set
//! at once, when that grows and when it falls; with the distances of the touches seen, the first pass over what is left
//! would have those of the passes before. A guest that takes many intervals to come back to its memory needs what
//! lies between, however little it touches in one. Nor is it ever less than what was touched, whose touches may
//! all be cold. Where nothing is touched twice the aged curve tells.
//!
//! Of few touches chance decides which miss: so many may as one standard deviation allows above ε, and one more.
//! Else a single touch in a sample of sixty, of a page that the kernel uses every minute, would make all memory
//! since then the working set.
//!
//! What is seen is not every access: a granule that was touched stays accessible until it leaves the hot
//! set or the interval ends. Accesses hidden so have distances below the hot set's size; misses in
//! memory above it are seen all, and their counts are right. Ratios are of touches seen, so ε is of
//! these and the working set rather too large than too small.
//!
//! Cost: 100 to 200 ns a touch; O(distinct distances) an interval.
//! Source: MEB §3.1, §3.4; Waldspurger 2015 for the sample; joining them is ours.
//! Limits: below some hundreds of watched granules touched, chance decides.

use std::sync::Arc;
use std::time::Duration;

use ballast_model::{Bytes, MissCurve, TrackerReport};
use ballast_mrc::{Aging, Curve, Form, Granularity, Histogram, Layout};

use crate::recency::Recency;

/// What touches are weighed by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AnalysisSettings {
    /// Share of warm touches that may miss in the working set, 0 to 1.
    pub miss_ratio: f64,
    /// λ: what an interval weighs in the next, 0 to 1.
    pub aging: f64,
    /// Distance between two sizes of the miss curve, whole pages.
    pub step: Bytes,
}

impl Default for AnalysisSettings {
    fn default() -> Self {
        AnalysisSettings { miss_ratio: 0.01, aging: 0.1, step: Bytes::mib(1) }
    }
}

/// What was watched, and in what pieces.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watched {
    /// Pages that are one to the tracker.
    pub granule: Granularity,
    /// Share of granules that were watched, above 0, at most 1.
    pub share: f64,
}

impl Watched {
    /// Every page.
    pub const ALL: Watched = Watched { granule: Granularity::PAGE, share: 1.0 };

    /// The memory that `granules` watched ones stand for.
    fn memory(self, granules: f64) -> Bytes {
        let pages = granules / self.share * self.granule.pages() as f64;
        // Saturating at both ends; no number is 0.
        Bytes::pages((pages.round() as u64).min(Bytes::MAX.to_pages()))
    }
}

/// What the tracker saw in one interval.
#[derive(Clone, Copy, Debug)]
pub struct Interval<'a> {
    /// How it watched.
    pub watched: Watched,
    /// Guest pages in the order of their touches, one page of each granule touched.
    pub touches: &'a [u64],
    /// Touches that were seen and lost, for want of room.
    pub lost: u64,
    /// How long it was.
    pub length: Duration,
}

/// What follows.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// Memory touched in the interval.
    pub touched: Bytes,
    /// Watched granules touched in it, from which [`touched`](Self::touched) was told.
    pub granules: u64,
    /// Memory in which at most half of the warm touches miss.
    pub half_miss: Bytes,
    /// The working set and the miss curve.
    pub report: TrackerReport,
    /// Touches that are not in it: lost on the way, or of more granules than are kept.
    pub lost: u64,
}

/// The touches of one guest.
#[derive(Debug)]
pub struct Analysis {
    settings: AnalysisSettings,
    watched: Watched,
    recency: Recency,
    aging: Aging,
    /// Intervals in the aged sum, each weighing what aging left of it.
    intervals: f64,
    interval: u32,
}

impl Analysis {
    /// Of a guest of which nothing was seen yet. Settings out of range are brought within it.
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
            watched: Watched::ALL,
            recency: Recency::default(),
            aging: Aging::new(settings.aging, Layout::Exact).unwrap_or_default(),
            intervals: 0.0,
            interval: 0,
        }
    }

    /// Takes in an interval. Of another granule the list is regrouped; of another share, those of the
    /// list that `has` says are watched are kept (the daemon's sample knows them by their granule).
    pub fn end_interval(&mut self, seen: Interval<'_>, has: impl Fn(u64) -> bool) -> Seen {
        self.watch_by(seen.watched, has);
        let mut lost = seen.lost;
        let (mut granules, mut warm) = (0_u64, 0_u64);
        // Distances of a sample are uncertain by more than a bucket's width.
        let is_all = self.watched.share >= 1.0;
        let layout = if is_all { Layout::Exact } else { Layout::LogLinear };
        let (mut histogram, mut least) = (Histogram::new(layout), Histogram::new(layout));
        let weight = 1.0 / self.watched.share;
        for &page in seen.touches {
            let granule = self.watched.granule.tag(page);
            let Ok(found) = self.recency.touch(granule, self.interval) else {
                lost = lost.saturating_add(1);
                continue;
            };
            granules += u64::from(found.is_first);
            let Some(distance) = found.distance else {
                histogram.add_cold(weight);
                continue;
            };
            let among_all =
                |distance: u32| 1 + (f64::from(distance - 1) / self.watched.share).round() as u64;
            warm += 1;
            histogram.add(among_all(distance), weight);
            least.add(among_all(found.distance_least.unwrap_or(distance)), weight);
        }
        self.interval = self.interval.wrapping_add(1);
        self.aging.end_interval(&histogram);
        self.intervals = self.intervals * self.settings.aging + 1.0;

        let curve = Curve::new(self.aging.histogram(), self.watched.granule);
        let touched = self.watched.memory(granules as f64);
        let now = Curve::new(&least, self.watched.granule);
        let told = match warm {
            0 => curve.working_set(self.settings.miss_ratio),
            warm => now.working_set(beyond_chance(self.settings.miss_ratio, warm as f64)),
        };
        let working_set = Bytes::pages(told).max(touched);
        let half_miss = curve.inverse(0.5, Form::Warm).unwrap_or(0);
        Seen {
            touched,
            granules,
            half_miss: Bytes::pages(half_miss),
            report: TrackerReport { working_set, curve: self.miss_curve(&curve, seen.length) },
            lost,
        }
    }

    /// Watched granules ever touched that are remembered.
    pub fn granules(&self) -> usize {
        self.recency.len()
    }

    /// These granules by their number, latest touch first.
    pub fn order(&self) -> Vec<u64> {
        self.recency.order()
    }

    /// Goes on with granules of another size, or another share of them.
    fn watch_by(&mut self, watched: Watched, has: impl Fn(u64) -> bool) {
        if watched == self.watched {
            return;
        }
        let (from, to) = (self.watched.granule, watched.granule);
        let mut order = self.recency.order();
        if from != to {
            self.aging.regroup(from, to);
            // A sample of other granules is another sample: nothing is known of their order.
            let was_all = self.watched.share >= 1.0;
            order = if was_all { from.regroup(to, &order) } else { Vec::new() };
        }
        order.retain(|&granule| has(granule));
        self.recency.restore(&order);
        self.watched = watched;
    }

    /// The aged curve as misses of one interval; `None` where nothing was touched twice.
    fn miss_curve(&self, curve: &Curve, length: Duration) -> Option<Arc<MissCurve>> {
        if curve.warm() <= 0.0 {
            return None;
        }
        let step_pages = self.settings.step.to_pages();
        let last = curve.pages_max().div_ceil(step_pages).min(MissCurve::POINTS_MAX as u64 - 1);
        let misses = (0..=last)
            // Rounded once, here at the edge; what is decided with it is exact.
            .map(|k| (curve.misses(k * step_pages) / self.intervals).round() as u64)
            .collect();
        MissCurve::new(self.settings.step, length, misses).ok().map(Arc::new)
    }
}

/// The share of `touches` that may miss where `ratio` of all may: with a standard deviation of as many as the
/// square root of those expected, and one touch.
fn beyond_chance(ratio: f64, touches: f64) -> f64 {
    (ratio + ((ratio * touches).sqrt() + 1.0) / touches).min(1.0)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// A tracker of accesses: a FIFO of `hot` granules stays accessible, and everything is revoked at
    /// each interval's start.
    fn touches(
        accesses: &[u64],
        watched: Watched,
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
        watched: Watched,
        hot: usize,
    }

    impl Guest {
        fn new(watched: Watched, hot: usize) -> Guest {
            Guest { analysis: Analysis::new(AnalysisSettings::default()), watched, hot }
        }

        fn interval(&mut self, accesses: &[u64]) -> Seen {
            let has = sample(self.watched.share);
            let touches = touches(accesses, self.watched, self.hot, &has);
            let length = Duration::from_secs(1);
            let seen = Interval { watched: self.watched, touches: &touches, lost: 0, length };
            self.analysis.end_interval(seen, has)
        }
    }

    /// Golden-ratio hashing: as even as a sample can be.
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

    /// Two passes over four pages, the hot set two pages, intervals alike. In each every page traps twice.
    #[test]
    fn an_example_by_hand() {
        let mut guest = Guest::new(Watched::ALL, 2);
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
    fn growth_and_falls_are_followed_at_once() {
        for (share, error) in [(1.0, 1), (1.0 / 16.0, 4)] {
            let watched = Watched { share, ..Watched::ALL };
            // Each granule is seen once an interval.
            let mut guest = Guest::new(watched, usize::MAX);
            let mut wss = |pages| guest.interval(&passes(pages, 3)).report.working_set;
            for pages in [4000, 4000, 9000, 4000, 4000, 9000] {
                let told = wss(pages);
                assert!(within(told, pages, error), "{share}: {told} of {pages} pages");
            }
        }
    }

    /// What traps again and again while the interval lasts has the distances that were seen.
    #[test]
    fn with_a_hot_set_a_fall_is_followed_within_three_intervals() {
        for (share, error) in [(1.0, 1), (1.0 / 16.0, 4)] {
            let watched = Watched { share, ..Watched::ALL };
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

    /// Of 100 touches one may miss, and two for chance: 3 %; of 10,000 a hundred and eleven.
    #[test]
    fn one_touch_of_a_few_decides_nothing() {
        for (touches, expected) in [(1.0, 1.0), (100.0, 0.03), (10_000.0, 0.0111)] {
            assert!((beyond_chance(0.01, touches) - expected).abs() < 1e-9, "{touches}");
        }
        let mut guest = Guest::new(Watched::ALL, usize::MAX);
        guest.interval(&passes(4000, 1));
        guest.interval(&passes(60, 1));
        let again: Vec<u64> = (0..60).chain([3999]).collect();
        assert_eq!(guest.interval(&again).report.working_set, Bytes::pages(61));
    }

    /// 400 pages an interval of 4,000: each comes back after ten.
    #[test]
    fn a_slow_guest_needs_what_it_comes_back_to() {
        for (share, error) in [(1.0, 1), (1.0 / 16.0, 10)] {
            let mut guest = Guest::new(Watched { share, ..Watched::ALL }, usize::MAX);
            let mut told = Seen::clone(&guest.interval(&[]));
            for interval in 0..25_u64 {
                let first = interval * 400 % 4000;
                told = guest.interval(&(first..first + 400).collect::<Vec<_>>());
            }
            assert!(within(told.report.working_set, 4000, error), "{}", told.report.working_set);
            assert!(within(told.touched, 400, 20), "{}", told.touched);
            // And keeps it while it does nothing.
            assert!(within(guest.interval(&[]).report.working_set, 4000, error));
        }
    }

    #[test]
    fn a_sample_tells_the_curve_of_all() {
        let accesses: Vec<Vec<u64>> = (0..8).map(|seed| random(6000, 30_000, seed)).collect();
        let curve = |share: f64| {
            let hot = (256.0 * share) as usize;
            let mut guest = Guest::new(Watched { share, ..Watched::ALL }, hot);
            let seen: Vec<Seen> = accesses.iter().map(|it| guest.interval(it)).collect();
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
    fn other_granules_and_other_shares_go_on_with_what_is_known() {
        let fine = Watched { granule: Granularity::new(32).unwrap(), share: 1.0 };
        let mut guest = Guest::new(fine, 4);
        for _ in 0..4 {
            guest.interval(&passes(3200, 2));
        }
        guest.watched.granule = Granularity::new(64).unwrap();
        let seen = guest.interval(&passes(3200, 2));
        assert_eq!((seen.report.working_set, guest.analysis.granules()), (Bytes::pages(3200), 50));

        let mut guest = Guest::new(Watched::ALL, 16);
        for _ in 0..4 {
            guest.interval(&passes(4096, 2));
        }
        guest.watched.share = 0.125;
        let seen = guest.interval(&passes(4096, 2));
        assert!(within(seen.report.working_set, 4096, 3), "{}", seen.report.working_set);
        assert!(guest.analysis.granules() < 600, "those no longer watched are forgotten");
    }

    #[test]
    fn nothing_touched_and_settings_that_cannot_be() {
        let settings = AnalysisSettings { miss_ratio: f64::NAN, aging: -1.0, step: Bytes::ZERO };
        let mut analysis = Analysis::new(settings);
        let length = Duration::from_secs(1);
        let nothing = Interval { watched: Watched::ALL, touches: &[], lost: 5, length };
        let seen = analysis.end_interval(nothing, |_| true);
        assert_eq!((seen.touched, seen.report.working_set), (Bytes::ZERO, Bytes::ZERO));
        assert_eq!((seen.report.curve, seen.lost), (None, 5));
    }
}
