//! A histogram over intervals that forgets.
//!
//! Idea: what was counted before weighs λ less with each interval that ends.

use crate::{Granularity, Histogram, Layout};

/// Interval histograms summed up, older ones weighing less.
#[derive(Clone, Debug, PartialEq)]
pub struct Aging {
    factor: f64,
    sum: Histogram,
}

impl Aging {
    /// The default factor λ.
    pub const FACTOR: f64 = 0.5;

    /// Nothing counted yet; `factor` is λ, from 0 (only the last interval counts) to 1 (all count
    /// the same). `None` for one outside of that.
    #[must_use]
    pub fn new(factor: f64, layout: Layout) -> Option<Self> {
        (0.0..=1.0).contains(&factor).then(|| Self { factor, sum: Histogram::new(layout) })
    }

    /// An interval has ended: ages what was there, and adds what was counted in it.
    pub fn end_interval(&mut self, interval: &Histogram) {
        self.sum.scale(self.factor);
        self.sum.merge(interval);
    }

    /// The aged sum.
    #[must_use]
    pub fn histogram(&self) -> &Histogram {
        &self.sum
    }

    /// Goes on with tags of another size ([`Histogram::regroup`]).
    pub fn regroup(&mut self, from: Granularity, to: Granularity) {
        self.sum = self.sum.regroup(from, to);
    }
}
