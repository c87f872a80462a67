//! An ideal tracker: working sets and miss curves of a guest.
//!
//! Idea: the simulator knows which pages are visited and how often. Under LRU, memory holds the
//! pages visited within some time `x`: for each workload its footprint `u(x)`, and other visits
//! miss, at a rate `du/dx`. Workloads share memory, so footprints and misses add up, and all values
//! of `x` give the curve of the whole guest (footprint theory: Denning 1968, Xiang et al., ASPLOS
//! 2013; Che et al. 2002 for unequal popularity).
//!
//! - cyclic order: `u = min(E, N x)`, misses `N` while `N x < E`
//! - random order: `u = E (1 − e^(−N x / E))`, misses `N e^(−N x / E)`
//! - Zipf order: random within bins of about equal popularity
//! - order of a curve `c`: `x = ∫ du / (N c(u))`
//!
//! with `E` pages and `N` touches in the interval. Cost: [`SAMPLES`] evaluations per workload and
//! interval. Limits: first touches are not counted as misses (the warm form of MEB §3.1); pages
//! that the kernel uses always hit and are added; pages it reserved at boot are not visible.

use std::sync::Arc;
use std::time::Duration;

use ballast_model::{Bytes, Measured, MissCurve, PAGE_SIZE, TrackerReport, TrackingSource};
use libm::{exp, log, pow};

use crate::memory::Memory;
use crate::process::Process;
use crate::scenario::TrackerSpec;
use crate::visits::Visits;

/// Number of times `x` at which footprints are evaluated, in geometric steps.
const SAMPLES: u32 = 128;
/// Most points of a curve.
const POINTS_MAX: u64 = 1024;
/// Number of bins of a Zipf distribution, in geometric steps.
const BINS: u32 = 16;

/// The tracker of one guest.
#[derive(Clone, Debug)]
pub(crate) struct Tracker {
    spec: TrackerSpec,
    rng: fastrand::Rng,
    next_at: Duration,
    /// Touches of each workload at the start of the interval.
    touched: Vec<u64>,
    report: Option<(TrackerReport, Duration)>,
}

impl Tracker {
    pub(crate) fn new(spec: TrackerSpec, seed: u64) -> Tracker {
        let rng = fastrand::Rng::with_seed(seed);
        Tracker { spec, rng, next_at: spec.interval, touched: Vec::new(), report: None }
    }

    /// The last report and its age.
    pub(crate) fn report(&self, now: Duration) -> Option<Measured<TrackerReport>> {
        let (report, at) = self.report.as_ref()?;
        Some(Measured { value: report.clone(), age: now.saturating_sub(*at) })
    }

    /// Updates the tracker at the end of a tick.
    pub(crate) fn observe(&mut self, memory: &Memory, processes: &[Process], now: Duration) {
        if now < self.next_at {
            return;
        }
        self.next_at = now + self.spec.interval;
        self.touched.resize(processes.len(), 0);
        let mut footprints = Vec::with_capacity(processes.len());
        for (process, before) in processes.iter().zip(&mut self.touched) {
            let touches = process.touched().saturating_sub(*before);
            *before = process.touched();
            let pages = u64::from(memory.len(process.region())) * memory.block_pages();
            if touches > 0 && pages > 0 {
                footprints.push(Footprint::new(process.visits(), pages, touches));
            }
        }
        let error = f64::from(self.spec.noise_permille) / 1000.0;
        let scale = 1.0 + error * (2.0 * self.rng.f64() - 1.0);
        let report = self.reported(memory, &footprints, scale);
        self.report = Some((report, now));
    }

    fn reported(&self, memory: &Memory, footprints: &[Footprint], scale: f64) -> TrackerReport {
        let kernel = memory.kernel_touched();
        let touches: f64 = footprints.iter().map(|footprint| footprint.touches).sum();
        let pages: f64 = footprints.iter().map(|footprint| footprint.pages).sum();
        let most = kernel.get() as f64 + pages * PAGE_SIZE as f64 * scale.max(1.0);
        let step = (most as u64 / POINTS_MAX).max(memory.block_pages() * PAGE_SIZE);
        let step = Bytes::new(step).page_ceil();
        let points = most as u64 / step.get() + 2;
        let mut misses = vec![u64::MAX; points as usize];
        for (held, misses_at) in samples(footprints) {
            let size = kernel.get() as f64 + held * PAGE_SIZE as f64 * scale;
            let at = (size / step.get() as f64).ceil() as usize;
            if let Some(point) = misses.get_mut(at) {
                *point = (*point).min(misses_at.round() as u64);
            }
        }
        let mut least = touches.round() as u64;
        for point in &mut misses {
            least = least.min(*point);
            *point = least;
        }
        let bound = (touches * f64::from(self.spec.miss_permille) / 1000.0) as u64;
        let working_set = misses.partition_point(|&misses| misses > bound) as u64;
        let seen_most = memory.total();
        if self.spec.blind_beyond_allocation {
            misses.truncate((seen_most.get() / step.get()) as usize + 1);
        }
        TrackerReport {
            working_set: Bytes::new(working_set * step.get()).max(kernel).min(seen_most),
            curve: MissCurve::new(step, self.spec.interval, misses).ok().map(Arc::new),
            source: TrackingSource::Library,
        }
    }
}

/// One workload's footprint.
#[derive(Clone, Debug)]
struct Footprint {
    pages: f64,
    touches: f64,
    kind: VisitKind,
}

#[derive(Clone, Debug)]
enum VisitKind {
    Cyclic,
    /// Pages and share of the touches of each bin.
    Random(Vec<(f64, f64)>),
    /// Pages held, the time `x` at which they are held, and the share of touches that miss.
    Curve(Vec<(f64, f64, f64)>),
}

impl Footprint {
    fn new(visits: &Visits, pages: u64, touches: u64) -> Footprint {
        let (pages, touches) = (pages as f64, touches as f64);
        let kind = if visits.is_cyclic() {
            VisitKind::Cyclic
        } else if let Some(curve) = visits.curve() {
            VisitKind::Curve(times_of(curve, touches))
        } else {
            VisitKind::Random(bins(pages, visits.zipf_exponent()))
        };
        Footprint { pages, touches, kind }
    }

    /// Pages held at `x`, and touches that miss.
    fn at(&self, x: f64) -> (f64, f64) {
        let Footprint { pages, touches, kind } = self;
        match kind {
            VisitKind::Cyclic if x * touches < *pages => (x * touches, *touches),
            VisitKind::Cyclic => (*pages, 0.0),
            VisitKind::Random(bins) => {
                let misses_at = |(in_bin, share): &(f64, f64)| exp(-touches * share * x / in_bin);
                let held = bins.iter().map(|bin| bin.0 * (1.0 - misses_at(bin))).sum();
                (held, bins.iter().map(|bin| touches * bin.1 * misses_at(bin)).sum())
            }
            VisitKind::Curve(times) => {
                let past = times.partition_point(|&(_, at, _)| at <= x);
                let (held, _, misses_at) = times[past.saturating_sub(1)];
                (held, touches * misses_at)
            }
        }
    }

    /// Time after which it holds nearly all of its pages.
    fn settles_at(&self) -> f64 {
        match &self.kind {
            VisitKind::Cyclic => self.pages / self.touches,
            VisitKind::Random(bins) => {
                let rarest = bins.iter().map(|(pages, share)| pages / (self.touches * share));
                12.0 * rarest.fold(0.0, f64::max)
            }
            VisitKind::Curve(times) => times.last().map_or(1.0, |&(_, at, _)| at),
        }
    }
}

/// Pages held by all workloads, and touches that miss, for growing times.
fn samples(footprints: &[Footprint]) -> Vec<(f64, f64)> {
    let settled = footprints.iter().map(Footprint::settles_at).fold(0.0, f64::max);
    let touches: f64 = footprints.iter().map(|footprint| footprint.touches).sum();
    if settled <= 0.0 {
        return Vec::new();
    }
    let first = (1.0 / touches).min(settled);
    let ratio = settled / first;
    let mut times: Vec<f64> = (0..=SAMPLES)
        .map(|k| first * pow(ratio, f64::from(k) / f64::from(SAMPLES)))
        .chain(footprints.iter().map(Footprint::settles_at))
        .collect();
    times.sort_by(f64::total_cmp);
    let all = |x: &f64| {
        let each = footprints.iter().map(|footprint| footprint.at(*x));
        each.fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1))
    };
    times.iter().map(all).collect()
}

/// Pages and share of visits of bins of about equal popularity.
fn bins(pages: f64, exponent: f64) -> Vec<(f64, f64)> {
    if exponent == 0.0 || pages < 2.0 {
        return vec![(pages, 1.0)];
    }
    let rest = 1.0 - exponent;
    let below = |x: f64| match rest.abs() < 1e-9 {
        true => log(1.0 + x) / log(1.0 + pages),
        false => (pow(1.0 + x, rest) - 1.0) / (pow(1.0 + pages, rest) - 1.0),
    };
    let edge = |k: u32| pow(1.0 + pages, f64::from(k) / f64::from(BINS)) - 1.0;
    let bin = |k| (edge(k + 1) - edge(k), below(edge(k + 1)) - below(edge(k)));
    (0..BINS).map(bin).filter(|&(pages, share)| pages > 0.0 && share > 0.0).collect()
}

/// For each point of a curve the pages held, the time at which they are held, and the share of
/// misses.
fn times_of(curve: &MissCurve, touches: f64) -> Vec<(f64, f64, f64)> {
    let pages = curve.step().to_pages() as f64;
    let all = curve.misses(Bytes::ZERO).max(1) as f64;
    let mut at = 0.0;
    let mut times = Vec::with_capacity(curve.points().len());
    for (k, &misses) in curve.points().iter().enumerate() {
        let misses_at = misses as f64 / all;
        times.push((k as f64 * pages, at, misses_at));
        if misses == 0 {
            break;
        }
        at += pages / (touches * misses_at);
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pattern;

    fn footprint(pattern: &Pattern, pages: u64, touches: u64) -> Footprint {
        Footprint::new(&Visits::new(pattern, PAGE_SIZE, 0), pages, touches)
    }

    /// Touches that miss with `pages`.
    fn misses_at(footprints: &[Footprint], pages: f64) -> f64 {
        let samples = samples(footprints);
        let past = samples.partition_point(|&(held, _)| held <= pages * 1.000_001);
        samples[past.saturating_sub(1)].1
    }

    const SIZE: Bytes = Bytes::mib(1);

    #[test]
    fn loop_misses_everything_or_nothing() {
        let all = [footprint(&Pattern::Constant { size: SIZE }, 100, 5000)];
        assert_eq!(misses_at(&all, 99.0), 5000.0);
        assert_eq!(misses_at(&all, 100.0), 0.0);
    }

    #[test]
    fn random_misses_are_the_share_not_held() {
        let all = [footprint(&Pattern::FileRandom { size: SIZE }, 1000, 5000)];
        for held in [100.0, 500.0, 900.0] {
            let expected = 5000.0 * (1.0 - held / 1000.0);
            let found = misses_at(&all, held);
            assert!((found - expected).abs() < 200.0, "{held}: {found} for {expected}");
        }
    }

    /// By hand: a loop over 100 pages and random visits to 100, 1,000 touches each. When the loop
    /// is held, at x = 0.1, so are 100 (1 − 1/e) = 63.2 of the others, which then miss 368 times.
    #[test]
    fn workloads_share_memory_under_lru() {
        let all = [
            footprint(&Pattern::Constant { size: SIZE }, 100, 1000),
            footprint(&Pattern::FileRandom { size: SIZE }, 100, 1000),
        ];
        assert!((misses_at(&all, 163.3) - 367.9).abs() < 1.0, "{}", misses_at(&all, 163.3));
        assert!(misses_at(&all, 160.0) > 1300.0);
    }

    #[test]
    fn popularity_sums_to_one_and_bends_the_curve() {
        let bins = bins(10_000.0, 1.0);
        let sum = |part: fn(&(f64, f64)) -> f64| bins.iter().map(part).sum::<f64>();
        assert!((sum(|bin| bin.0) - 10_000.0).abs() < 1e-6);
        assert!((sum(|bin| bin.1) - 1.0).abs() < 1e-9);
        let zipf = Pattern::Zipf { size: SIZE, exponent: 1.0, file: false };
        let all = [footprint(&zipf, 10_000, 100_000)];
        assert!(
            misses_at(&all, 5000.0) < 20_000.0,
            "half of the pages, far less than half the misses"
        );
    }

    #[test]
    fn curve_workload_reproduces_its_curve() {
        let counts = vec![1000, 600, 200, 0];
        let curve = MissCurve::new(Bytes::pages(10), Duration::from_secs(1), counts).unwrap();
        let all = [footprint(&Pattern::Curve { curve: Arc::new(curve) }, 30, 1000)];
        for (held, expected) in [(10.0, 600.0), (20.0, 200.0), (30.0, 0.0)] {
            assert_eq!(misses_at(&all, held), expected, "{held}");
        }
    }
}
