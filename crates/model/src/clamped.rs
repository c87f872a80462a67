//! How the guard changed what a policy wanted.
//!
//! Idea: as in `reason.rs`, a value with its figures, rendered only here.

use std::fmt;

use crate::Bytes;
#[cfg(feature = "serde")]
use crate::unit;

/// How the guard changed what the policy wanted. Listed in the order in which changes are made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "code", content = "figures", rename_all = "kebab-case")
)]
pub enum Clamped {
    /// It claims to need more than there is evidence for; the policy was given the part that is
    /// believed.
    Unproven {
        /// What it claims to need.
        #[cfg_attr(feature = "serde", serde(rename = "claimed_bytes", with = "unit"))]
        claimed: Bytes,
        /// The part of it that is believed.
        #[cfg_attr(feature = "serde", serde(rename = "believed_bytes", with = "unit"))]
        believed: Bytes,
        /// What it has filled of its entitlement, as the host sees it.
        #[cfg_attr(feature = "serde", serde(rename = "filled_bytes", with = "unit"))]
        filled: Bytes,
    },
    /// Raised to the guaranteed minimum.
    Floor {
        /// The minimum.
        #[cfg_attr(feature = "serde", serde(rename = "floor_bytes", with = "unit"))]
        floor: Bytes,
    },
    /// Lowered to the largest allocation that is allowed.
    Ceiling {
        /// The maximum.
        #[cfg_attr(feature = "serde", serde(rename = "ceiling_bytes", with = "unit"))]
        ceiling: Bytes,
    },
    /// Raised to what it held before it thrashed, until its pause ends.
    Thrashed {
        /// What it held before.
        #[cfg_attr(feature = "serde", serde(rename = "held_bytes", with = "unit"))]
        held: Bytes,
    },
    /// Raised to what it uses, for which it has no swap.
    NoSwap {
        /// What it uses and some to spare, less its free swap; at most what it holds.
        #[cfg_attr(feature = "serde", serde(rename = "least_bytes", with = "unit"))]
        least: Bytes,
    },
    /// Lowered to the need that the host sees: a silent guest would not give back more.
    SampledAlone {
        /// Its working set and what its kernel keeps free.
        #[cfg_attr(feature = "serde", serde(rename = "most_bytes", with = "unit"))]
        most: Bytes,
    },
    /// Growth limited per decision.
    StepUp {
        /// Largest growth.
        #[cfg_attr(feature = "serde", serde(rename = "limit_bytes", with = "unit"))]
        limit: Bytes,
    },
    /// Shrinking limited per decision.
    StepDown {
        /// Largest reduction.
        #[cfg_attr(feature = "serde", serde(rename = "limit_bytes", with = "unit"))]
        limit: Bytes,
    },
    /// Granted only in part: the rest is still held by guests that have yet to release it.
    AwaitingRelease {
        /// Memory wanted and not granted yet.
        #[cfg_attr(feature = "serde", serde(rename = "short_bytes", with = "unit"))]
        short: Bytes,
    },
    /// Granted only in part: the host itself has too little memory left.
    HostReserve {
        /// Memory wanted and not granted.
        #[cfg_attr(feature = "serde", serde(rename = "short_bytes", with = "unit"))]
        short: Bytes,
    },
    /// Granted only in part: a limit of the host's kernel on its process, or the NUMA nodes that it
    /// is bound to, leave no more.
    NoRoom {
        /// Memory wanted and not granted.
        #[cfg_attr(feature = "serde", serde(rename = "short_bytes", with = "unit"))]
        short: Bytes,
        /// What limits: a cgroup's file, or NUMA nodes.
        by: String,
        /// The limit.
        #[cfg_attr(feature = "serde", serde(rename = "limit_bytes", with = "unit"))]
        limit: Bytes,
    },
}

impl Clamped {
    /// Stable word for machines.
    pub const fn code(&self) -> &'static str {
        match self {
            Clamped::Floor { .. } => "floor",
            Clamped::Ceiling { .. } => "ceiling",
            Clamped::Unproven { .. } => "unproven",
            Clamped::Thrashed { .. } => "thrashed",
            Clamped::NoSwap { .. } => "no-swap",
            Clamped::SampledAlone { .. } => "sampled-alone",
            Clamped::StepUp { .. } => "step-up",
            Clamped::StepDown { .. } => "step-down",
            Clamped::AwaitingRelease { .. } => "awaiting-release",
            Clamped::HostReserve { .. } => "host-reserve",
            Clamped::NoRoom { .. } => "no-room",
        }
    }
}

impl fmt::Display for Clamped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Clamped::Floor { floor } => write!(f, "held at its floor of {floor}"),
            Clamped::Ceiling { ceiling } => write!(f, "held at its ceiling of {ceiling}"),
            Clamped::Unproven { claimed, believed, filled } => write!(
                f,
                "claims to need {claimed}, believed up to {believed}: it has filled {filled} of what it was granted"
            ),
            Clamped::Thrashed { held } => {
                write!(f, "restored to {held}: thrashed below it")
            }
            Clamped::NoSwap { least } => {
                write!(f, "kept at {least}: in use, and no swap is known to back it")
            }
            Clamped::SampledAlone { most } => {
                write!(
                    f,
                    "no more than {most}: the need seen by the host, as the guest reports none"
                )
            }
            Clamped::StepUp { limit } => write!(f, "growth limited to {limit} a decision"),
            Clamped::StepDown { limit } => write!(f, "shrinking limited to {limit} a decision"),
            Clamped::AwaitingRelease { short } => {
                write!(f, "waiting for other guests to release {short}")
            }
            Clamped::HostReserve { short } => {
                write!(f, "{short} not granted: the host has only its reserve left")
            }
            Clamped::NoRoom { short, by, limit } => {
                write!(f, "{short} not granted: its process is limited to {limit} by {by}")
            }
        }
    }
}
