//! The curves that solvers are given: those of recorded programs, and random ones that are not
//! convex.
//!
//! Idea: a guest's curve is that of a recorded program, with the working set stretched to between
//! half and one and a half of what the guest holds. Or its misses are drawn step by step from laws
//! that are easy or hard for a solver that rules sizes out.
//! Limits: a recording has a few hundred to a few thousand pages, so its curve, stretched to a
//! gigabyte, has that many steps.

use ballast_mrc::{CountingEngine, Curve, Engine, EngineName, Exact, Granularity};

use super::super::mrc::recorded;
use super::super::random::Random;

/// The number of parts of each recording that are curves of their own, in addition to the whole.
const PARTS: usize = 3;

/// Kinds of curves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(super) enum CurvesName {
    /// Of recordings of sort, perl and python, and parts of them
    Recorded,
    /// Random falls of very different heights, between plateaus
    Random,
    /// Nothing for many steps, then a cliff
    Cliffs,
    /// Random falls of much the same height
    Even,
    /// Straight lines, all of the same slope: every size is as good as any other
    Straight,
    /// Straight lines with small teeth: the hardest known
    Saw,
}

impl CurvesName {
    /// Whether curves of programs may look like these. Goals apply to these.
    pub(super) fn is_natural(self) -> bool {
        !matches!(self, Self::Straight | Self::Saw)
    }
}

/// The sources of curves.
pub(super) struct Curves {
    recorded: Vec<Curve>,
}

impl Curves {
    /// Reads the recordings.
    ///
    /// # Errors
    /// One cannot be decompressed, or has too many pages.
    pub(super) fn new() -> anyhow::Result<Self> {
        let mut curves = Vec::new();
        for name in ["sort", "perl", "python"] {
            let pages = recorded(name)?;
            let part = pages.len().div_ceil(PARTS).max(1);
            for pages in pages.chunks(part).chain([&pages[..]]) {
                let mut engine = CountingEngine::new(EngineName::Exact, Exact::new());
                engine.record(pages)?;
                if let Some(histogram) = engine.histogram() {
                    curves.push(Curve::new(&histogram, Granularity::PAGE));
                }
            }
        }
        anyhow::ensure!(!curves.is_empty(), "no recordings");
        Ok(Self { recorded: curves })
    }

    /// Misses of a guest that holds `held` steps, for `first` to `last` steps.
    pub(super) fn misses(
        &self,
        name: CurvesName,
        (first, held, last): (u64, u64, u64),
        random: &mut Random,
    ) -> Vec<u64> {
        if name == CurvesName::Recorded {
            let curve = &self.recorded[random.below(self.recorded.len() as u64) as usize];
            // The working set relative to what it holds, and misses of one second or of up to half
            // a minute.
            let stretch = 0.5 + unit(random);
            let times = 1.0 + 30.0 * unit(random);
            let pages_per_step = curve.pages_max() as f64 / (held as f64 * stretch);
            let misses = |steps| curve.misses((steps as f64 * pages_per_step) as u64) * times;
            return (first..=last).map(|steps| misses(steps) as u64).collect();
        }
        let mut misses = 0;
        let mut curve: Vec<u64> = (first..=last)
            .map(|step| {
                misses += match name {
                    CurvesName::Recorded => 0,
                    CurvesName::Random if random.below(3) == 0 => 0,
                    CurvesName::Random => (10.0 / (unit(random) + 0.001)).powf(1.3) as u64,
                    CurvesName::Cliffs if random.below(20) > 0 => 0,
                    CurvesName::Cliffs => random.below(1_000_000),
                    CurvesName::Even => random.below(1000),
                    CurvesName::Straight => 1000,
                    CurvesName::Saw => 900 + 200 * (step % 2),
                };
                misses
            })
            .collect();
        curve.reverse();
        curve
    }
}

/// A random number from 0 to 1.
pub(super) fn unit(random: &mut Random) -> f64 {
    (random.next() >> 11) as f64 / (1_u64 << 53) as f64
}
