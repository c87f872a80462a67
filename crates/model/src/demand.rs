//! What a guest needs, which source says so, and how far that is believed.
//!
//! Idea: several sources may give a guest's demand. One is chosen; the others are kept beside it
//! with the reason why they were not, for the operator to see.

use std::fmt;
use std::time::Duration;

use crate::Bytes;
#[cfg(feature = "serde")]
use crate::unit;

/// What a guest needs to run as well as it can, and how that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Demand {
    /// The memory needed.
    #[cfg_attr(feature = "serde", serde(rename = "size_bytes", with = "unit"))]
    pub size: Bytes,
    /// Where the figure comes from.
    pub source: DemandSource,
    /// Time since that source last confirmed it.
    #[cfg_attr(feature = "serde", serde(rename = "age_ns", with = "unit"))]
    pub age: Duration,
    /// How far it can be relied on.
    #[cfg_attr(feature = "serde", serde(rename = "confidence_percent", with = "unit"))]
    pub confidence: Confidence,
}

/// Sources of a demand, the least trusted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "kebab-case")
)]
pub enum DemandSource {
    /// Memory that the guest's kernel has promised to processes (`Committed_AS`).
    Committed,
    /// Memory that the guest was seen to touch, in units of a huge page: an upper bound.
    Coarse,
    /// Allocation less available memory, from the balloon's statistics.
    Used,
    /// Memory that the guest was found to live with (TWS §2).
    Probing,
    /// As [`DemandSource::WorkingSet`], from a small sample without the order of touches.
    Sampled,
    /// Memory that the guest was seen to touch, plus its swap in use (MEB §3.6). Confirmed by its
    /// events while tracking rests.
    WorkingSet,
}

impl DemandSource {
    /// Every source, the most trusted first.
    pub const ALL: [DemandSource; 6] = [
        DemandSource::WorkingSet,
        DemandSource::Sampled,
        DemandSource::Probing,
        DemandSource::Used,
        DemandSource::Coarse,
        DemandSource::Committed,
    ];

    /// Stable word for machines.
    pub const fn code(self) -> &'static str {
        match self {
            DemandSource::Committed => "committed",
            DemandSource::Coarse => "coarse",
            DemandSource::Used => "used",
            DemandSource::Probing => "probing",
            DemandSource::Sampled => "sampled",
            DemandSource::WorkingSet => "working-set",
        }
    }
}

impl fmt::Display for DemandSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            DemandSource::Committed => "Committed_AS",
            DemandSource::Coarse => "working set at most, in huge pages",
            DemandSource::Used => "used memory",
            DemandSource::Probing => "probing",
            DemandSource::Sampled => "sampled working set",
            DemandSource::WorkingSet => "tracked working set",
        })
    }
}

/// How far a demand can be relied on, in per cent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Confidence(u8);

impl Confidence {
    /// For fresh figures of memory in use, where nothing else is known.
    pub const USED: Confidence = Confidence(60);

    /// `percent`, at most 100.
    pub const fn from_percent(percent: u8) -> Confidence {
        if percent > 100 { Confidence(100) } else { Confidence(percent) }
    }

    /// 0 (not at all) to 100.
    pub const fn percent(self) -> u8 {
        self.0
    }
}

#[cfg(feature = "serde")]
impl unit::InUnit for Confidence {
    type Number = u8;
    fn number(&self) -> u8 {
        self.percent()
    }
    fn of_number(number: u8) -> Confidence {
        Confidence::from_percent(number)
    }
}

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

/// A source that was not chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PassedOver {
    /// Its demand.
    #[cfg_attr(feature = "serde", serde(rename = "size_bytes", with = "unit"))]
    pub size: Bytes,
    /// The source.
    pub source: DemandSource,
    /// Time since it was last confirmed.
    #[cfg_attr(feature = "serde", serde(rename = "age_ns", with = "unit"))]
    pub age: Duration,
    /// Why it was not chosen.
    pub why: PassedOverReason,
}

/// Why a source was not chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "code", content = "figures", rename_all = "kebab-case")
)]
pub enum PassedOverReason {
    /// A source that is trusted more was chosen.
    LessTrusted,
    /// The same, and the two contradict each other.
    Contradicts,
    /// It is too old.
    Stale {
        /// The age from which it is too old.
        #[cfg_attr(feature = "serde", serde(rename = "age_max_ns", with = "unit"))]
        age_max: Duration,
    },
}

impl PassedOverReason {
    /// Stable word for machines.
    pub const fn code(self) -> &'static str {
        match self {
            PassedOverReason::LessTrusted => "less-trusted",
            PassedOverReason::Contradicts => "contradicts",
            PassedOverReason::Stale { .. } => "stale",
        }
    }
}

impl fmt::Display for PassedOverReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PassedOverReason::LessTrusted => f.write_str("trusted less"),
            PassedOverReason::Contradicts => f.write_str("trusted less, and contradicts it"),
            PassedOverReason::Stale { age_max } => {
                write!(f, "stale, believed for {:.1}s", age_max.as_secs_f64())
            }
        }
    }
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, size, age) = (self.source, self.size, self.age.as_secs_f64());
        write!(f, "{source} {size} {age:.1}s old (confidence {})", self.confidence)
    }
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, size, age) = (self.source, self.size, self.age.as_secs_f64());
        write!(f, "{source} {size} {age:.1}s old: {}", self.why)
    }
}
