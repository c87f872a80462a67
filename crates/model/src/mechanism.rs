//! The ways in which memory is moved, and why one was chosen.
//!
//! Idea: a target says how much a guest should hold; a [`Move`] says by which mechanism it gets
//! there. Balloon, plugging and paging govern different amounts, so each move has the amount that
//! its mechanism governs, before and after. Source: flexmemd §3.1.3 and §3.2.2 join the three.

use std::fmt;
use std::time::Duration;

#[cfg(feature = "serde")]
use crate::unit;
use crate::{Bytes, Generation, GuestId, Timestamp};

/// A way of moving memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "kebab-case")
)]
pub enum Mechanism {
    /// The balloon device; governs the memory that the balloon leaves to the guest.
    Balloon,
    /// A virtio-mem device; governs the memory that is plugged in.
    VirtioMem,
    /// Memory modules (`pc-dimm`); govern the memory that is plugged in.
    Dimm,
    /// The host writes pages of the guest's process to its swap; governs resident memory.
    PageOut,
    /// The host reads them back before they are touched; governs resident memory.
    PageIn,
}

impl Mechanism {
    /// Every mechanism.
    pub const ALL: [Mechanism; 5] = [
        Mechanism::Balloon,
        Mechanism::VirtioMem,
        Mechanism::Dimm,
        Mechanism::PageOut,
        Mechanism::PageIn,
    ];

    /// Stable word for machines.
    pub const fn code(self) -> &'static str {
        match self {
            Mechanism::Balloon => "balloon",
            Mechanism::VirtioMem => "virtio-mem",
            Mechanism::Dimm => "dimm",
            Mechanism::PageOut => "page-out",
            Mechanism::PageIn => "page-in",
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.code())
    }
}

/// How a guest's memory is moved by one mechanism.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Move {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// The amount that it governs, before.
    #[cfg_attr(feature = "serde", serde(rename = "from_bytes", with = "unit"))]
    pub from: Bytes,
    /// The amount that it governs, after.
    #[cfg_attr(feature = "serde", serde(rename = "to_bytes", with = "unit"))]
    pub to: Bytes,
    /// Why this mechanism was chosen.
    pub why: MechanismReason,
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Move { mechanism, from, to, why } = self;
        write!(f, "{mechanism} {from} to {to}: {why}")
    }
}

/// Why a mechanism was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "code", content = "figures", rename_all = "kebab-case")
)]
pub enum MechanismReason {
    /// The balloon holds enough to give.
    BalloonHasIt,
    /// A balloon is the fastest, and exact to the page.
    BalloonTakesIt,
    /// The balloon would be left with less than it keeps for sudden needs.
    BalloonRunsOut {
        /// What it would have left to give.
        #[cfg_attr(feature = "serde", serde(rename = "left_bytes", with = "unit"))]
        left: Bytes,
    },
    /// Only plugged memory frees host memory: a passthrough device or locked memory keeps ballooned
    /// pages on the host.
    BallooningInhibited,
    /// There is no balloon.
    NoBalloon,
    /// More is plugged in than the balloon needs in store, and has been for a while.
    PluggedIdle {
        /// For how long.
        #[cfg_attr(feature = "serde", serde(rename = "idle_ns", with = "unit"))]
        idle: Duration,
    },
    /// The guest's kernel does not use what was plugged in: its `MemTotal` has not grown.
    NotOnlined {
        /// Memory plugged in and not used.
        #[cfg_attr(feature = "serde", serde(rename = "unused_bytes", with = "unit"))]
        unused: Bytes,
    },
    /// A hotplug request is pending that this plan did not make: an operator's, or one from before
    /// a restart. It is withdrawn.
    AskedByOthers {
        /// Memory requested and not plugged in yet.
        #[cfg_attr(feature = "serde", serde(rename = "more_bytes", with = "unit"))]
        more: Bytes,
    },
    /// The guest does not give up what was to be unplugged, and keeps it.
    UnplugStalled {
        /// Time since it last gave any.
        #[cfg_attr(feature = "serde", serde(rename = "idle_ns", with = "unit"))]
        idle: Duration,
    },
    /// The guest has not released in time what was requested.
    NotGiven {
        /// Still to be released.
        #[cfg_attr(feature = "serde", serde(rename = "left_bytes", with = "unit"))]
        left: Bytes,
        /// Time since the request.
        #[cfg_attr(feature = "serde", serde(rename = "asked_ns", with = "unit"))]
        asked: Duration,
    },
    /// The guest holds more than it was granted, and does not answer for it.
    BeyondEntitlement {
        /// What it was granted.
        #[cfg_attr(feature = "serde", serde(rename = "entitlement_bytes", with = "unit"))]
        entitlement: Bytes,
    },
    /// The host runs out of memory.
    HostShort {
        /// How short it is.
        #[cfg_attr(feature = "serde", serde(rename = "rung"))]
        level: PressureLevel,
    },
    /// The guest grows, so the host reads back what it had paged out.
    Growing,
}

impl MechanismReason {
    /// Stable word for machines.
    pub const fn code(&self) -> &'static str {
        match self {
            MechanismReason::BalloonHasIt => "balloon-has-it",
            MechanismReason::BalloonTakesIt => "balloon-takes-it",
            MechanismReason::BalloonRunsOut { .. } => "balloon-runs-out",
            MechanismReason::BallooningInhibited => "ballooning-inhibited",
            MechanismReason::NoBalloon => "no-balloon",
            MechanismReason::PluggedIdle { .. } => "plugged-idle",
            MechanismReason::NotOnlined { .. } => "not-onlined",
            MechanismReason::AskedByOthers { .. } => "asked-by-others",
            MechanismReason::UnplugStalled { .. } => "unplug-stalled",
            MechanismReason::NotGiven { .. } => "not-given",
            MechanismReason::BeyondEntitlement { .. } => "beyond-entitlement",
            MechanismReason::HostShort { .. } => "host-short",
            MechanismReason::Growing => "growing",
        }
    }
}

impl fmt::Display for MechanismReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MechanismReason::BalloonHasIt => f.write_str("deflating the balloon covers it"),
            MechanismReason::BalloonTakesIt => f.write_str("ballooning is fastest and exact to the page"),
            MechanismReason::BalloonRunsOut { left } => write!(f, "the balloon could deflate by only {left} more"),
            MechanismReason::BallooningInhibited => f.write_str(
                "ballooning would free no host memory: a passthrough device or locked memory holds the pages",
            ),
            MechanismReason::NoBalloon => f.write_str("no balloon device"),
            MechanismReason::PluggedIdle { idle } => {
                write!(f, "plugged memory idle for {}s", idle.as_secs())
            }
            MechanismReason::NotOnlined { unused } => {
                write!(f, "the guest's kernel has not onlined {unused}: enable automatic onlining there")
            }
            MechanismReason::AskedByOthers { more } => {
                write!(f, "withdrawing a pending hotplug request of {more} that this plan did not make")
            }
            MechanismReason::UnplugStalled { idle } => {
                write!(f, "the guest has unplugged nothing for {}s", idle.as_secs())
            }
            MechanismReason::NotGiven { left, asked } => {
                write!(f, "{left} still not released {}s after the request", asked.as_secs())
            }
            MechanismReason::BeyondEntitlement { entitlement } => {
                write!(f, "the guest was granted {entitlement} and does not answer for more")
            }
            MechanismReason::HostShort { level } => write!(f, "the host is short of memory: {level}"),
            MechanismReason::Growing => f.write_str("the guest is growing"),
        }
    }
}

/// How short of memory the host is, and how far it goes to get some back. Each level includes those
/// below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "kebab-case")
)]
pub enum PressureLevel {
    /// There is enough memory.
    #[default]
    Normal,
    /// Memory is moved by balloons alone; nothing is plugged in ahead of need.
    BalloonOnly,
    /// The host pages out, without waiting, guests whose balloons cannot release in time what was
    /// requested.
    ReclaimOwed,
    /// The host pages out the guests that hold most beyond their wanted targets.
    ReclaimRichest,
    /// No memory is granted.
    Freeze,
}

impl PressureLevel {
    /// Every level, from the lowest up.
    pub const ALL: [PressureLevel; 5] = [
        PressureLevel::Normal,
        PressureLevel::BalloonOnly,
        PressureLevel::ReclaimOwed,
        PressureLevel::ReclaimRichest,
        PressureLevel::Freeze,
    ];

    /// Stable word for machines.
    pub const fn code(self) -> &'static str {
        match self {
            PressureLevel::Normal => "normal",
            PressureLevel::BalloonOnly => "balloon-only",
            PressureLevel::ReclaimOwed => "reclaim-owed",
            PressureLevel::ReclaimRichest => "reclaim-richest",
            PressureLevel::Freeze => "freeze",
        }
    }
}

impl fmt::Display for PressureLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PressureLevel::Normal => "enough memory",
            PressureLevel::BalloonOnly => "balloons alone move memory",
            PressureLevel::ReclaimOwed => "overdue guests are paged out",
            PressureLevel::ReclaimRichest => "the richest guests are paged out",
            PressureLevel::Freeze => "nothing is granted",
        })
    }
}

/// An order to page a guest's process out or in. Idempotent, because the amount is absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Paging {
    /// The guest.
    pub guest: GuestId,
    /// [`Mechanism::PageOut`] or [`Mechanism::PageIn`].
    pub mechanism: Mechanism,
    /// The most resident memory that its process may keep.
    #[cfg_attr(feature = "serde", serde(rename = "resident_bytes", with = "unit"))]
    pub resident: Bytes,
    /// The plan it belongs to.
    pub generation: Generation,
    /// Must not be begun or continued after this moment.
    #[cfg_attr(feature = "serde", serde(rename = "deadline_ms"))]
    pub deadline: Timestamp,
}

/// What taking memory from a guest cost it, over its last reductions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Regret {
    /// Memory taken.
    #[cfg_attr(feature = "serde", serde(rename = "taken_bytes", with = "unit"))]
    pub taken: Bytes,
    /// Memory that it then read back from swap and files because it lacked the taken memory.
    #[cfg_attr(feature = "serde", serde(rename = "read_back_bytes", with = "unit"))]
    pub read_back: Bytes,
    /// Reductions that were undone for that reason.
    pub undone: u64,
}

impl Regret {
    /// The part of the taken memory that was read back, in hundredths of a percent. Above 10,000
    /// the guest thrashed.
    pub fn basis_points(&self) -> u64 {
        if self.taken == Bytes::ZERO {
            return 0;
        }
        let part = u128::from(self.read_back.get()) * 10_000 / u128::from(self.taken.get());
        u64::try_from(part).unwrap_or(u64::MAX)
    }
}
