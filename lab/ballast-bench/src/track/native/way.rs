//! Ways to track.

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

/// A way to track; the names are the columns of MEB Table I as far as it has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Way {
    /// A hot set of 1,024 pages, the rest into a linked list: the paper's beginning
    List,
    /// A hot set of 1,024 pages, the rest into an AVL tree
    Avl,
    /// A hot set of changing size, the rest into a linked list
    HotList,
    /// A hot set of changing size, the rest into an AVL tree
    HotAvl,
    /// The same, tracked in part of the time by fixed thresholds
    Fixed,
    /// The same, by adaptive thresholds: the paper's best
    Adaptive,
    /// A sample of pages, as large as the budget allows
    Sampled,
    /// The same, in part of the time by adaptive thresholds, by the program's own count of touches
    SampledAdaptive,
    /// What the daemon does by default, by its own code: at rest a tiny sample stays watched
    Daemon,
}

impl Way {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Way::List => "list",
            Way::Avl => "avl",
            Way::HotList => "dynamic hot set, list",
            Way::HotAvl => "dynamic hot set, avl",
            Way::Fixed => "and fixed thresholds",
            Way::Adaptive => "and adaptive thresholds",
            Way::Sampled => "sample",
            Way::SampledAdaptive => "sample, adaptive thresholds",
            Way::Daemon => "the daemon",
        }
    }

    /// The mean slowdown of the paper's programs with this way (MEB Table I).
    pub(crate) const fn paper(self) -> Option<f64> {
        match self {
            Way::List => Some(7.58),
            Way::HotList => Some(1.39),
            Way::Avl => Some(0.80),
            Way::HotAvl => Some(0.32),
            Way::Fixed => Some(0.09),
            Way::Adaptive => Some(0.02),
            Way::Sampled | Way::SampledAdaptive | Way::Daemon => None,
        }
    }

    /// Whether it rests at times.
    pub(crate) const fn rests(self) -> bool {
        matches!(self, Way::Fixed | Way::Adaptive | Way::SampledAdaptive | Way::Daemon)
    }

    /// Whether it watches a sample of pages.
    pub(crate) const fn is_sampled(self) -> bool {
        matches!(self, Way::Sampled | Way::SampledAdaptive | Way::Daemon)
    }

    /// Length of an interval. With a hot set, where pages trap again and again, it hardly matters;
    /// in a sample each page traps once in an interval.
    pub(crate) const fn interval(self) -> Duration {
        Duration::from_millis(if self.is_sampled() { 1000 } else { 250 })
    }

    /// Intervals before the first pair of windows, in which hot set, sample and phases are found.
    pub(crate) const fn warm_up(self) -> u32 {
        if self.rests() { 12 } else { 10 }
    }

    /// Intervals after a window without tracking, before one with it is measured: the first
    /// revocation costs more. For a way that rests, the window begins at once.
    pub(crate) const fn settle(self) -> u32 {
        if self.rests() { 0 } else { 1 }
    }

    /// Intervals of a window with tracking.
    pub(crate) const fn intervals(self) -> u32 {
        if self.rests() || self.is_sampled() { 3 } else { 4 }
    }

    /// Pairs of windows for each one that the user requests. A way that rests tracks only few of
    /// its intervals, and the cost of a sample is less than the variation of a shared machine's
    /// speed from second to second.
    pub(crate) const fn pairs(self) -> usize {
        match (self.is_sampled(), self.rests()) {
            (true, true) => 5,
            (true, false) | (false, true) => 2,
            (false, false) => 1,
        }
    }

    /// Length of a window without tracking.
    pub(crate) const fn rest(self) -> Duration {
        Duration::from_millis(if self.is_sampled() { 1000 } else { 500 })
    }
}
