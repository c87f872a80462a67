//! The record of a move, which its three roles share.
//!
//! Idea: one record for each guest that is being moved. Its phases only go forward; the header of
//! the crate says which role may write which phase.
//! Limits: times are milliseconds since 1970 by the clocks of the hosts. Clocks that differ make a
//! move end early or late, but never wrong.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use ballast_fleet::HostId;
use ballast_model::{Bytes, GuestId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::CarriedState;

/// How far above a size a guest may be and count as shrunk to it, or as within what is reserved for
/// it: a balloon is no more exact.
pub const SHRINK_TOLERANCE: Bytes = Bytes::mib(16);

/// How long a destination has to start a guest that was copied whole, before the source may take it
/// back. Meanwhile the guest stands still. It is enough for some rounds of reading and writing the
/// store.
pub const START_PATIENCE: Duration = Duration::from_secs(10);

/// The election that a leader gives orders under: a number that grows with each election, such as
/// the store's revision at which the leader was elected. No host begins a move of an older term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Term(pub u64);

/// A move, as it is kept in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveRecord {
    /// The guest; each has at most one record.
    pub guest: GuestId,
    /// The source.
    pub from: HostId,
    /// The destination.
    pub to: HostId,
    /// The election that this was ordered under.
    pub term: Term,
    /// When this was ordered.
    pub ordered_at: Timestamp,
    /// What the destination reserves: the most that the guest may hold after it has arrived.
    pub reserve: Bytes,
    /// The target to shrink it to before the copy. `None`: it gives no memory.
    pub shrink_to: Option<Bytes>,
    /// How long the source waits for that; then the guest is copied as it is, if it holds no more
    /// than `reserve`.
    pub shrink_until: Timestamp,
    /// Until when the copy has to be complete, and in `Copied` until when the guest has to be
    /// started; if it is not, the move is abandoned.
    pub due: Timestamp,
    /// The present phase.
    pub phase: Phase,
    /// Whether nothing of the move is left at the source, so that the record can be removed.
    pub is_closed: bool,
}

/// How far a move has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Phase {
    /// The destination is to reserve memory.
    Ordered,
    /// The destination has reserved, and an empty hypervisor listens.
    Ready {
        /// Where it listens.
        address: SocketAddr,
    },
    /// The source copies the guest, or is about to.
    Copying {
        /// Where to copy it.
        address: SocketAddr,
        /// Whether the program that copies ends the source itself ([`HostView::ends_source`]): then
        /// only the source may abandon the move.
        ///
        /// [`HostView::ends_source`]: crate::HostView::ends_source
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        ends_source: bool,
    },
    /// The guest stands still at the source; the destination has all of it.
    Copied {
        /// What goes along with it.
        carried: Box<CarriedState>,
    },
    /// From this phase on the guest lives at the destination.
    Starting {
        /// What goes along with it.
        carried: Box<CarriedState>,
    },
    /// The guest runs at the destination.
    Moved,
    /// The guest stays at the source.
    Abandoned {
        /// Why.
        why: AbandonReason,
    },
    /// The destination's hypervisor died after `Starting`, so the guest may have run there.
    Lost,
}

/// Why a guest was not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AbandonReason {
    /// It took too long.
    TimedOut,
    /// An operator or the leader cancelled it.
    Cancelled,
    /// It was ordered by a leader that has been replaced.
    OlderTerm,
    /// The destination cannot promise the memory, or the guest holds more than it has promised.
    /// Both are one word in the store, because hosts of an earlier version read no other.
    NoRoom,
    /// The destination has a guest of that name.
    GuestThere,
    /// The destination's hypervisor has ended.
    ListenerGone,
    /// The source has no such guest.
    GuestGone,
    /// The guest does not run, or somebody else has stopped it or is moving it.
    NotRunning,
    /// The source's hypervisor could not copy it.
    CopyFailed,
    /// The destination did not start it in time.
    NotStarted,
}

impl MoveRecord {
    /// Why either host abandons a move before it is copied: its term is older, or its time is over.
    pub(crate) fn reason_to_abandon(&self, term: Term, now: Timestamp) -> Option<AbandonReason> {
        match &self.phase {
            Phase::Ordered if self.term < term => Some(AbandonReason::OlderTerm),
            Phase::Copying { ends_source: true, .. } => None,
            Phase::Ordered | Phase::Ready { .. } | Phase::Copying { .. } if now >= self.due => {
                Some(AbandonReason::TimedOut)
            }
            _ => None,
        }
    }

    /// Whether `host` may take up its part in this move now. Once the move has gone further, a
    /// machine has that part only if it noted so before: another one of the same name may have done
    /// what the record says.
    pub fn can_be_joined(&self, host: &HostId) -> bool {
        match &self.phase {
            Phase::Ordered => true,
            Phase::Ready { .. } => self.from == *host,
            _ => false,
        }
    }

    /// Whether the guest is certain to hold more than the destination keeps for it.
    pub(crate) fn is_exceeded(&self, holds: Option<Bytes>) -> bool {
        holds.is_some_and(|it| it > self.reserve.saturating_add(SHRINK_TOLERANCE))
    }

    /// The present phase in words, for people.
    pub fn in_words(&self) -> String {
        let MoveRecord { from, to, .. } = self;
        match &self.phase {
            Phase::Ordered => format!("is to move from {from} to {to}"),
            Phase::Ready { .. } => format!("{to} waits for it"),
            Phase::Copying { .. } => format!("is copied from {from} to {to}"),
            Phase::Copied { .. } => format!("all of it is at {to}"),
            Phase::Starting { .. } => format!("starts at {to}"),
            Phase::Moved => format!("has moved from {from} to {to}"),
            Phase::Abandoned { why } => format!("stays at {from}: {why}"),
            Phase::Lost => format!("is lost: its hypervisor at {to} died as it was started"),
        }
    }

    /// The same in another phase.
    pub(crate) fn at(&self, phase: Phase) -> MoveRecord {
        MoveRecord { phase, ..self.clone() }
    }

    pub(crate) fn abandoned(&self, why: AbandonReason) -> MoveRecord {
        self.at(Phase::Abandoned { why })
    }
}

impl Phase {
    /// Whether the move has ended, and what is left is to clean up.
    pub(crate) const fn is_over(&self) -> bool {
        matches!(self, Phase::Moved | Phase::Abandoned { .. } | Phase::Lost)
    }

    /// Stable word for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Phase::Ordered => "ordered",
            Phase::Ready { .. } => "ready",
            Phase::Copying { .. } => "copying",
            Phase::Copied { .. } => "copied",
            Phase::Starting { .. } => "starting",
            Phase::Moved => "moved",
            Phase::Abandoned { .. } => "abandoned",
            Phase::Lost => "lost",
        }
    }
}

impl fmt::Display for AbandonReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AbandonReason::TimedOut => "it took too long",
            AbandonReason::Cancelled => "it was cancelled",
            AbandonReason::OlderTerm => "the leader that ordered it has been replaced",
            AbandonReason::NoRoom => "the destination promises less memory than the guest holds",
            AbandonReason::GuestThere => "the destination has a guest of that name",
            AbandonReason::ListenerGone => "the destination's hypervisor has ended",
            AbandonReason::GuestGone => "the source has no such guest",
            AbandonReason::NotRunning => "the guest does not run, or somebody else is moving it",
            AbandonReason::CopyFailed => "the source's hypervisor could not copy it",
            AbandonReason::NotStarted => "the destination did not start it in time",
        })
    }
}
