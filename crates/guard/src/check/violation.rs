//! The faults that the checker finds in a plan.

use std::fmt;

use ballast_model::{Bytes, GuestId};

/// A fault of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// An action while the operator has paused acting.
    WhilePaused,
    /// An action in observe mode.
    WhileObserving,
    /// A list of reservations that is not the one in force.
    OtherReservations,
    /// An action for a guest that is not in the snapshot.
    UnknownGuest(GuestId),
    /// Two actions for one guest.
    Twice(GuestId),
    /// A target that is not a whole number of pages.
    NotWholePages(GuestId, Bytes),
    /// An action whose generation is not the plan's, or whose deadline has passed.
    Malformed(GuestId),
    /// An action for a guest that must not be touched, with the reason.
    Untouchable(GuestId, &'static str),
    /// A reduction below the floor.
    BelowFloor {
        /// The guest.
        guest: GuestId,
        /// Target planned.
        target: Bytes,
        /// Its floor.
        floor: Bytes,
    },
    /// A reduction below what a guest without swap uses.
    BelowUse {
        /// The guest.
        guest: GuestId,
        /// Target planned.
        target: Bytes,
        /// What it uses, less the swap it has left.
        used: Bytes,
    },
    /// Growth beyond the ceiling.
    AboveCeiling {
        /// The guest.
        guest: GuestId,
        /// Target planned.
        target: Bytes,
        /// Its ceiling.
        ceiling: Bytes,
    },
    /// A change based on figures that are missing or too old.
    OnStaleFigures(GuestId),
    /// A change beyond the operator's step limit.
    StepTooLarge(GuestId),
    /// Plugging that is impossible: no device, a device with less memory, or an amount that is not
    /// whole blocks.
    PlugImpossible {
        /// The guest.
        guest: GuestId,
        /// Memory to be plugged in.
        plug: Bytes,
        /// The most that can be plugged in; zero without a device.
        max: Bytes,
        /// The block size; `plug` has to be a multiple.
        block: Bytes,
    },
    /// The balloon would take memory while memory is plugged in, or give memory while some is
    /// unplugged. A guest does each at its own pace, so in between it could hold less or more than
    /// before and after.
    PlugAgainstBalloon(GuestId),
    /// A release after a grant.
    ReleaseAfterGrant(GuestId),
    /// A process is capped at less than it occupies, but nothing is paged out for that.
    CapNotEnforced {
        /// The guest.
        guest: GuestId,
        /// The cap on its process.
        cap: Bytes,
        /// What it occupies.
        resident: Bytes,
    },
    /// More granted than is free.
    Overcommitted {
        /// Memory newly granted.
        granted: Bytes,
        /// Memory free to be granted.
        free: Bytes,
    },
    /// More granted to guests below a limit of the kernel than that leaves.
    BeyondRoom {
        /// One of the guests.
        guest: GuestId,
        /// What limits.
        by: String,
        /// The limit.
        limit: Bytes,
        /// Memory newly granted below it.
        granted: Bytes,
        /// Memory free below it.
        free: Bytes,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::WhilePaused => f.write_str("action while paused"),
            Violation::WhileObserving => f.write_str("action while observing"),
            Violation::OtherReservations => f.write_str("reservations other than those in force"),
            Violation::UnknownGuest(id) => write!(f, "{id}: not in the snapshot"),
            Violation::Twice(id) => write!(f, "{id}: two actions"),
            Violation::NotWholePages(id, target) => {
                write!(f, "{id}: target {target:#} is not whole pages")
            }
            Violation::Malformed(id) => write!(f, "{id}: wrong generation or deadline passed"),
            Violation::Untouchable(id, why) => write!(f, "{id}: must not be touched: {why}"),
            Violation::BelowFloor { guest, target, floor } => {
                write!(f, "{guest}: target {target} below floor {floor}")
            }
            Violation::BelowUse { guest, target, used } => {
                write!(f, "{guest}: target {target} below the {used} it uses, without swap")
            }
            Violation::AboveCeiling { guest, target, ceiling } => {
                write!(f, "{guest}: target {target} above ceiling {ceiling}")
            }
            Violation::OnStaleFigures(id) => write!(f, "{id}: changed on missing or stale figures"),
            Violation::StepTooLarge(id) => write!(f, "{id}: change beyond the step limit"),
            Violation::PlugImpossible { guest, plug, max, block } => {
                write!(
                    f,
                    "{guest}: {plug} cannot be plugged in: at most {max} in blocks of {block}"
                )
            }
            Violation::PlugAgainstBalloon(id) => {
                write!(f, "{id}: balloon and plugged memory move against each other")
            }
            Violation::ReleaseAfterGrant(id) => write!(f, "{id}: release ordered after a grant"),
            Violation::CapNotEnforced { guest, cap, resident } => {
                write!(f, "{guest}: occupies {resident}, capped at {cap} and not paged out")
            }
            Violation::Overcommitted { granted, free } => {
                write!(f, "{granted} granted where {free} is free")
            }
            Violation::BeyondRoom { guest, by, limit, granted, free } => write!(
                f,
                "{guest}: {granted} granted where {by} limits to {limit} and leaves {free}"
            ),
        }
    }
}
