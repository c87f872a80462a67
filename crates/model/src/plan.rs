//! What is to be done, why, and what happened.
//!
//! Idea: a [`Plan`] is immutable data: for each guest the whole chain from allocation to action,
//! and the actions in the order in which they are carried out (releases before grants). Mechanisms
//! obey an [`Action`] and decide nothing; they answer with an [`Outcome`].

use std::fmt;
use std::time::Duration;

use crate::guest_id::index_near;
#[cfg(feature = "serde")]
use crate::unit::{self, is_default, is_none};
use crate::{
    Bounds, Bytes, Clamped, Estimate, Generation, GuestId, HoldReason, Move, Note, Paging,
    PolicyName, PressureLevel, Reason, Regret, Reservation, Timestamp,
};

/// The decision of one tick.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Plan {
    /// Its number.
    pub generation: Generation,
    /// The moment of the snapshot it was made from.
    #[cfg_attr(feature = "serde", serde(rename = "decided_at_ms"))]
    pub decided_at: Timestamp,
    /// The policy that was asked.
    pub policy: PolicyName,
    /// The memory it divides.
    pub budget: Budget,
    /// Every guest of the snapshot, sorted by name.
    pub guests: Vec<GuestPlan>,
    /// The actions, releases first.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub actions: Vec<Action>,
    /// Guests whose processes the host pages out or in.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub paging: Vec<Paging>,
    /// How short of memory the host is.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "rung", default, skip_serializing_if = "is_default")
    )]
    pub host_pressure: PressureLevel,
    /// Memory that is kept free for guests about to start, sorted by name.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub reservations: Vec<Reservation>,
    /// Notes that concern the host as a whole.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub notes: Vec<Note>,
}

impl Plan {
    /// The place of one guest. Fastest if that is `near` or a little after it.
    pub fn index_near(&self, id: &GuestId, near: usize) -> Option<usize> {
        index_near(&self.guests, |guest| &guest.id, id, near)
    }

    /// The part of the plan for one guest. O(log n).
    pub fn guest(&self, id: &GuestId) -> Option<&GuestPlan> {
        let at = self.guests.binary_search_by(|guest| guest.id.cmp(id)).ok()?;
        self.guests.get(at)
    }
}

/// The memory a plan divides, in whole pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Budget {
    /// What all guests together may be allocated: `N` of Global §3.1. The operator's budget, or
    /// less if the host does not have that; without what is reserved.
    #[cfg_attr(feature = "serde", serde(rename = "distributable_bytes", with = "unit"))]
    pub distributable: Bytes,
    /// What guests hold or were promised: for each guest the larger of its allocation and its last
    /// target.
    #[cfg_attr(feature = "serde", serde(rename = "committed_bytes", with = "unit"))]
    pub committed: Bytes,
    /// What could be granted at once without any guest releasing memory: the smaller of the
    /// uncommitted budget, and the host's available memory beyond its reserve and beyond promises
    /// not yet touched.
    #[cfg_attr(feature = "serde", serde(rename = "grantable_bytes", with = "unit"))]
    pub grantable: Bytes,
}

/// One guest's part of a plan: the chain from observation to action.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct GuestPlan {
    /// The guest.
    pub id: GuestId,
    /// What it was last seen to hold.
    #[cfg_attr(
        feature = "serde",
        serde(
            rename = "allocation_bytes",
            default,
            with = "unit",
            skip_serializing_if = "is_none"
        )
    )]
    pub allocation: Option<Bytes>,
    /// Its bounds in this plan, resolved against its boot memory; `None` while that is unknown.
    #[cfg_attr(
        feature = "serde",
        serde(default, with = "unit::bounds", skip_serializing_if = "is_none")
    )]
    pub bounds: Option<Bounds>,
    /// Its demand, if it could be estimated.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub estimate: Option<Estimate>,
    /// What the policy wants for it, if the policy was asked.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub desired: Option<Desired>,
    /// How the guard changed that, in order.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub clamps: Vec<Clamped>,
    /// Credits it pays rent with, including what it paid for the running period. `None`: the policy
    /// has no accounts, or the guest has none yet. A restarted daemon takes them over from the
    /// journal.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub credits: Option<u64>,
    /// Whether it complies with its target.
    pub compliance: Compliance,
    /// The target in force once this plan is carried out; `None` if it never had one.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "target_bytes", default, with = "unit", skip_serializing_if = "is_none")
    )]
    pub target: Option<Bytes>,
    /// What this plan does about it.
    pub change: Change,
    /// How its memory is moved, and why.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub moves: Vec<Move>,
    /// The rate at which its balloon was last seen to take memory, in bytes a second; `None`: it
    /// was never seen to.
    #[cfg_attr(
        feature = "serde",
        serde(
            rename = "balloon_bytes_per_s",
            default,
            with = "unit",
            skip_serializing_if = "is_none"
        )
    )]
    pub balloon_rate: Option<Bytes>,
    /// What its last reductions cost it; `None`: not known yet.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub regret: Option<Regret>,
}

/// What a policy wants for one guest.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Desired {
    /// The allocation wanted, in whole pages.
    #[cfg_attr(feature = "serde", serde(rename = "target_bytes", with = "unit"))]
    pub target: Bytes,
    /// Why the policy wants it.
    pub reason: Reason,
}

/// What a plan does about one guest.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "code", content = "figures", rename_all = "kebab-case")
)]
pub enum Change {
    /// It grows from its present target or allocation.
    Grow {
        /// By this much.
        #[cfg_attr(feature = "serde", serde(rename = "by_bytes", with = "unit"))]
        by: Bytes,
    },
    /// It shrinks.
    Shrink {
        /// By this much.
        #[cfg_attr(feature = "serde", serde(rename = "by_bytes", with = "unit"))]
        by: Bytes,
    },
    /// A reduction under way is called off; the guest keeps what it holds.
    CancelShrink {
        /// Why.
        why: HoldReason,
    },
    /// Nothing is done.
    Hold(HoldReason),
}

impl Change {
    /// Whether the guest must not be touched at all ([`HoldReason::leaves_alone`]).
    pub const fn leaves_alone(&self) -> bool {
        matches!(self, Change::Hold(why) if why.leaves_alone())
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Grow { by } => write!(f, "grow by {by}"),
            Change::Shrink { by } => write!(f, "shrink by {by}"),
            Change::CancelShrink { why } => write!(f, "keep what it holds, stop shrinking: {why}"),
            Change::Hold(why) => write!(f, "hold: {why}"),
        }
    }
}

/// Whether a guest releases what was requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "code", content = "figures", rename_all = "kebab-case")
)]
pub enum Compliance {
    /// Nothing is requested, or all of it was released.
    #[default]
    Compliant,
    /// It is releasing memory.
    Releasing {
        /// Still to be released.
        #[cfg_attr(feature = "serde", serde(rename = "left_bytes", with = "unit"))]
        left: Bytes,
        /// Time since it last released any.
        #[cfg_attr(feature = "serde", serde(rename = "idle_ns", with = "unit"))]
        idle: Duration,
    },
    /// It is releasing memory and should have finished by now.
    Slow {
        /// Still to be released.
        #[cfg_attr(feature = "serde", serde(rename = "left_bytes", with = "unit"))]
        left: Bytes,
        /// Time since the request.
        #[cfg_attr(feature = "serde", serde(rename = "asked_ns", with = "unit"))]
        asked: Duration,
    },
    /// It has released nothing for too long.
    Stuck {
        /// Time since it last released any.
        #[cfg_attr(feature = "serde", serde(rename = "idle_ns", with = "unit"))]
        idle: Duration,
    },
    /// Its balloon is not used because that would free no host memory: a passthrough device or
    /// locked memory keeps the pages there.
    Inhibited,
}

impl fmt::Display for Compliance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Compliance::Compliant => f.write_str("compliant"),
            Compliance::Releasing { left, .. } => write!(f, "releasing, {left} left"),
            Compliance::Slow { left, asked } => {
                write!(f, "slow, {left} left {}s after the request", asked.as_secs())
            }
            Compliance::Stuck { idle } => {
                write!(f, "stuck, released nothing for {}s", idle.as_secs())
            }
            Compliance::Inhibited => f.write_str("ballooning would free no host memory"),
        }
    }
}

/// One thing for a mechanism to do. Idempotent, because the target is absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Action {
    /// The guest.
    pub guest: GuestId,
    /// The allocation it should have, in whole pages: what the balloon leaves it, and what is
    /// plugged in.
    #[cfg_attr(feature = "serde", serde(rename = "target_bytes", with = "unit"))]
    pub target: Bytes,
    /// Memory to be plugged in, in whole blocks; `None`: unchanged.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "plug_bytes", default, with = "unit", skip_serializing_if = "is_none")
    )]
    pub plug: Option<Bytes>,
    /// The plan it belongs to.
    pub generation: Generation,
    /// Must not be begun after this moment.
    #[cfg_attr(feature = "serde", serde(rename = "deadline_ms"))]
    pub deadline: Timestamp,
}

/// The result of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Outcome {
    /// The guest.
    pub guest: GuestId,
    /// The plan the action belonged to.
    pub generation: Generation,
    /// The requested target.
    #[cfg_attr(feature = "serde", serde(rename = "target_bytes", with = "unit"))]
    pub target: Bytes,
    /// What happened.
    #[cfg_attr(feature = "serde", serde(rename = "result"))]
    pub kind: OutcomeKind,
}

/// What happened to an action.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "code", content = "text", rename_all = "kebab-case")
)]
pub enum OutcomeKind {
    /// The hypervisor accepted it; the guest follows at its own speed.
    Accepted,
    /// The hypervisor refused it or did not answer; the text says how.
    Failed(String),
    /// Not begun: its deadline had passed.
    Expired,
    /// Not begun: an action of a later plan was already carried out.
    Superseded,
    /// Not begun: programs in the guest release memory first. The request is repeated.
    Waiting,
}

impl fmt::Display for OutcomeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OutcomeKind::Accepted => f.write_str("accepted"),
            OutcomeKind::Failed(how) => write!(f, "failed: {how}"),
            OutcomeKind::Expired => f.write_str("expired before it could be sent"),
            OutcomeKind::Superseded => f.write_str("superseded by a later plan"),
            OutcomeKind::Waiting => {
                f.write_str("waiting for programs in the guest to release memory first")
            }
        }
    }
}
