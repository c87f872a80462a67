//! The ways in which memory is moved, and why one was chosen.
//!
//! Idea: a target says how much a guest is to hold; a [`Move`] says by which mechanism it gets there. Moving by
//! balloon, by plugging and by paging govern different amounts, so each move carries the amount that its mechanism
//! governs, before and after.
//! Source: flexmemd §3.1.3 and §3.2.2 join the three.

use std::fmt;
use std::time::Duration;

use crate::{Bytes, Generation, GuestId, Timestamp};

/// A way of moving memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mechanism {
    /// The balloon device; governs memory the balloon leaves to the guest.
    Balloon,
    /// A virtio-mem device; governs memory plugged in.
    VirtioMem,
    /// Memory modules (`pc-dimm`); govern memory plugged in.
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

    /// The mechanism of a word of [`Mechanism::code`].
    pub fn of_code(code: &str) -> Option<Mechanism> {
        Mechanism::ALL.into_iter().find(|mechanism| mechanism.code() == code)
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.code())
    }
}

/// How a guest's memory is moved by one mechanism.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// By which.
    pub mechanism: Mechanism,
    /// What that mechanism governs, before.
    pub from: Bytes,
    /// The same, after.
    pub to: Bytes,
    /// Why by this one.
    pub why: Why,
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Move { mechanism, from, to, why } = self;
        write!(f, "{mechanism} {from} to {to}: {why}")
    }
}

/// Why a mechanism was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The balloon holds enough to give.
    BalloonHasIt,
    /// A balloon gives memory back to the page and fastest.
    BalloonTakesIt,
    /// The balloon will have less than it keeps for sudden needs.
    BalloonRunsOut {
        /// What it would have left to give.
        left: Bytes,
    },
    /// Nothing but plugged memory gives the host anything back: a passthrough device or locked memory holds what is
    /// ballooned.
    BallooningInhibited,
    /// There is no balloon.
    NoBalloon,
    /// More is plugged than the balloon needs to have in store, and has been for a while.
    PluggedIdle {
        /// For how long.
        idle: Duration,
    },
    /// The guest's kernel does not use what was plugged in: its `MemTotal` has not grown.
    NotOnlined {
        /// Plugged and not used.
        unused: Bytes,
    },
    /// Somebody else, or an earlier life of guest or daemon, asked for more to be plugged in; that is taken back.
    AskedByOthers {
        /// Asked for and not plugged in yet.
        more: Bytes,
    },
    /// The guest does not give up what was to be unplugged; it keeps that.
    UnplugStalled {
        /// Time since it last gave any.
        idle: Duration,
    },
    /// The guest has not given what was asked for, and its time is over.
    NotGiven {
        /// What it still has to give.
        left: Bytes,
        /// Time since it was asked.
        asked: Duration,
    },
    /// The host runs out of memory.
    HostShort {
        /// How far the host has come.
        rung: Rung,
    },
    /// It is to grow and is given back what the host took.
    Growing,
}

impl Why {
    /// Stable word for machines.
    pub const fn code(&self) -> &'static str {
        match self {
            Why::BalloonHasIt => "balloon-has-it",
            Why::BalloonTakesIt => "balloon-takes-it",
            Why::BalloonRunsOut { .. } => "balloon-runs-out",
            Why::BallooningInhibited => "ballooning-inhibited",
            Why::NoBalloon => "no-balloon",
            Why::PluggedIdle { .. } => "plugged-idle",
            Why::NotOnlined { .. } => "not-onlined",
            Why::AskedByOthers { .. } => "asked-by-others",
            Why::UnplugStalled { .. } => "unplug-stalled",
            Why::NotGiven { .. } => "not-given",
            Why::HostShort { .. } => "host-short",
            Why::Growing => "growing",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::BalloonHasIt => f.write_str("the balloon has it to give"),
            Why::BalloonTakesIt => f.write_str("a balloon takes memory to the page, and fastest"),
            Why::BalloonRunsOut { left } => write!(f, "the balloon would have {left} left to give"),
            Why::BallooningInhibited => f.write_str(
                "ballooning would give the host nothing: a passthrough device or locked memory holds the pages",
            ),
            Why::NoBalloon => f.write_str("there is no balloon"),
            Why::PluggedIdle { idle } => {
                write!(f, "plugged in and not needed for {}s", idle.as_secs())
            }
            Why::NotOnlined { unused } => {
                write!(f, "the guest's kernel does not use {unused} of it: is memory onlined there?")
            }
            Why::AskedByOthers { more } => {
                write!(f, "{more} more were asked for before, or by somebody else, and are taken back")
            }
            Why::UnplugStalled { idle } => {
                write!(f, "the guest has given up none of it for {}s", idle.as_secs())
            }
            Why::NotGiven { left, asked } => {
                write!(f, "{left} not given {}s after they were asked for", asked.as_secs())
            }
            Why::HostShort { rung } => write!(f, "the host is short of memory: {rung}"),
            Why::Growing => f.write_str("it is to grow"),
        }
    }
}

/// How far the host goes to get memory back; each includes those before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rung {
    /// There is enough.
    #[default]
    Normal,
    /// Memory is moved by balloons alone: nothing is plugged in ahead of need.
    BalloonOnly,
    /// The host pages out guests whose balloons cannot give in time what they were asked for, without waiting.
    ReclaimOwed,
    /// The host pages out those that hold most beyond what the policy wants for them.
    ReclaimRichest,
    /// Nothing at all is granted to anybody.
    Freeze,
}

impl Rung {
    /// Every rung, from the lowest up.
    pub const ALL: [Rung; 5] =
        [Rung::Normal, Rung::BalloonOnly, Rung::ReclaimOwed, Rung::ReclaimRichest, Rung::Freeze];

    /// Stable word for machines.
    pub const fn code(self) -> &'static str {
        match self {
            Rung::Normal => "normal",
            Rung::BalloonOnly => "balloon-only",
            Rung::ReclaimOwed => "reclaim-owed",
            Rung::ReclaimRichest => "reclaim-richest",
            Rung::Freeze => "freeze",
        }
    }

    /// The rung of a word of [`Rung::code`].
    pub fn of_code(code: &str) -> Option<Rung> {
        Rung::ALL.into_iter().find(|rung| rung.code() == code)
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rung::Normal => "enough memory",
            Rung::BalloonOnly => "balloons alone move memory",
            Rung::ReclaimOwed => "what guests owe is paged out",
            Rung::ReclaimRichest => "the richest guests are paged out",
            Rung::Freeze => "nothing is granted",
        })
    }
}

/// An order to page a guest's process out or in. Idempotent: the amount is absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paging {
    /// The guest.
    pub guest: GuestId,
    /// [`Mechanism::PageOut`] or [`Mechanism::PageIn`].
    pub mechanism: Mechanism,
    /// Resident memory its process is to have.
    pub resident: Bytes,
    /// The plan it belongs to.
    pub generation: Generation,
    /// Not to be begun after this moment, and not to be gone on with.
    pub deadline: Timestamp,
}

/// What taking memory from a guest cost it, over its last reductions that were looked back upon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Regret {
    /// Memory taken.
    pub taken: Bytes,
    /// Memory it read back from swap and files for lack of that, in the time looked back upon.
    pub read_back: Bytes,
    /// Reductions undone for that reason.
    pub undone: u64,
}

impl Regret {
    /// Part of what was taken that was read back, in hundredths of a percent; more than 10,000 is a guest that
    /// thrashed.
    pub fn basis_points(&self) -> u64 {
        if self.taken == Bytes::ZERO {
            return 0;
        }
        let part = u128::from(self.read_back.get()) * 10_000 / u128::from(self.taken.get());
        u64::try_from(part).unwrap_or(u64::MAX)
    }
}
