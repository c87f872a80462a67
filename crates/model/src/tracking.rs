//! How a guest's page touches are watched: the cost, and what prevents it.
//!
//! Idea: besides what a tracker found ([`TrackerReport`](crate::TrackerReport)), an operator wants
//! to know whether it works at all. Shares are integers, in parts of a million, so that they can be
//! compared and stored. Limits: figures are of the last interval that was watched; nothing is
//! decided by them.

use std::fmt;

use crate::DemandSource;
#[cfg(feature = "serde")]
use crate::unit::is_none;

/// A share in parts of a million. A share of processor time may exceed one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Share(u32);

impl Share {
    /// The whole.
    pub const WHOLE: Share = Share(1_000_000);

    /// This many millionths.
    pub const fn from_millionths(millionths: u32) -> Share {
        Share(millionths)
    }

    /// The nearest share to `ratio`; zero if that is negative or not a number. Saturates.
    pub fn from_ratio(ratio: f64) -> Share {
        // The cast saturates at both ends, and turns NaN into zero.
        Share((ratio * 1e6).round() as u32)
    }

    /// In millionths.
    pub const fn millionths(self) -> u32 {
        self.0
    }

    /// As a ratio.
    pub fn ratio(self) -> f64 {
        f64::from(self.0) / 1e6
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = f64::from(self.0) / 1e4;
        let digits = if percent >= 10.0 || self.0 == 0 { 0 } else { 2 };
        write!(f, "{percent:.digits$}%")
    }
}

/// How a guest's page touches are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Tracking {
    /// Whether it is watched, and by what.
    pub state: TrackingState,
    /// The share of its memory that was watched.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "watched_millionths", skip_serializing_if = "is_none")
    )]
    pub watched: Option<Share>,
    /// Processor time spent on it by tracker and guest, as a share of one core.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "cost_millionths", skip_serializing_if = "is_none")
    )]
    pub cost: Option<Share>,
    /// Why nothing is seen, and what to do about it.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub trouble: Option<String>,
}

impl Tracking {
    /// In `state`, with nothing else known.
    pub const fn new(state: TrackingState) -> Tracking {
        Tracking { state, watched: None, cost: None, trouble: None }
    }
}

/// The source of a guest's page touches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "kebab-case")
)]
pub enum TrackingSource {
    /// The tracker in its hypervisor.
    #[default]
    Library,
    /// DAMON, page by page.
    Damon,
    /// DAMON, in units of a huge page: an upper bound.
    DamonHuge,
    /// The generations of its cgroup's pages (MGLRU), page by page.
    Mglru,
    /// MGLRU, in units of a huge page: an upper bound.
    MglruHuge,
    /// The kernel's referenced bits.
    Referenced,
}

impl TrackingSource {
    /// Stable word for machines.
    pub const fn code(self) -> &'static str {
        match self {
            TrackingSource::Library => "library",
            TrackingSource::Damon => "damon",
            TrackingSource::DamonHuge => "damon-huge",
            TrackingSource::Mglru => "mglru",
            TrackingSource::MglruHuge => "mglru-huge",
            TrackingSource::Referenced => "referenced",
        }
    }

    /// The kind of demand that this source provides.
    pub const fn of_demand(self) -> DemandSource {
        match self {
            TrackingSource::Library | TrackingSource::Referenced => DemandSource::WorkingSet,
            TrackingSource::Damon | TrackingSource::Mglru => DemandSource::Sampled,
            TrackingSource::DamonHuge | TrackingSource::MglruHuge => DemandSource::Coarse,
        }
    }

    /// Whether it is the tracker. Journals leave that out, because at first there was no other
    /// source.
    #[cfg(feature = "serde")]
    pub(crate) fn is_library(&self) -> bool {
        *self == TrackingSource::Library
    }
}

impl fmt::Display for TrackingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrackingSource::Library => "the tracker in its hypervisor",
            TrackingSource::Damon => "DAMON, by pages of 4KiB",
            TrackingSource::DamonHuge => "DAMON, by pieces of 2MiB: an upper bound",
            TrackingSource::Mglru => "page generations, by pages of 4KiB",
            TrackingSource::MglruHuge => "page generations, by pieces of 2MiB: an upper bound",
            TrackingSource::Referenced => "referenced bits",
        })
    }
}

/// Whether a guest's page touches are watched, and by what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "kebab-case")
)]
pub enum TrackingState {
    /// No interval has been watched yet, or the guest does not run.
    Waiting,
    /// The tracker in its hypervisor watches.
    Watching,
    /// Tracking rests until a new phase begins.
    Resting,
    /// The kernel's DAMON samples it; there is no tracker.
    Sampling,
    /// The kernel ages the pages of its cgroup (MGLRU); there is no tracker.
    Aging,
    /// The kernel's referenced bits are read; there is no tracker.
    Referenced,
    /// None of these: there is no tracker, and the others are not wanted or not available.
    Absent,
    /// It does not work; see [`Tracking::trouble`].
    Failing,
}

impl TrackingState {
    /// Stable word for machines.
    pub const fn code(self) -> &'static str {
        match self {
            TrackingState::Waiting => "waiting",
            TrackingState::Watching => "watching",
            TrackingState::Resting => "resting",
            TrackingState::Sampling => "sampling",
            TrackingState::Aging => "aging",
            TrackingState::Referenced => "referenced",
            TrackingState::Absent => "absent",
            TrackingState::Failing => "failing",
        }
    }
}

impl fmt::Display for TrackingState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrackingState::Waiting => "nothing watched yet",
            TrackingState::Watching => "watching page touches",
            TrackingState::Resting => "resting until a new phase begins",
            TrackingState::Sampling => "sampling page touches by DAMON",
            TrackingState::Aging => "counting page touches by the generations of its pages (MGLRU)",
            TrackingState::Referenced => "reading referenced bits",
            TrackingState::Absent => "its page touches are not watched",
            TrackingState::Failing => "does not work",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_rounded_and_shown_in_per_cent() {
        for (ratio, millionths, text) in [
            (0.0, 0, "0%"),
            (0.005, 5_000, "0.50%"),
            (1.0 / 256.0, 3_906, "0.39%"),
            (0.12, 120_000, "12%"),
            (1.0, 1_000_000, "100%"),
            (1.5, 1_500_000, "150%"),
            (-1.0, 0, "0%"),
            (f64::NAN, 0, "0%"),
        ] {
            let share = Share::from_ratio(ratio);
            assert_eq!((share.millionths(), share.to_string().as_str()), (millionths, text));
        }
        assert_eq!(Share::from_ratio(f64::INFINITY).millionths(), u32::MAX);
        assert_eq!(Share::WHOLE.ratio(), 1.0);
    }
}
