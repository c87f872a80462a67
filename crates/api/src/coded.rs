//! Reasons on the wire: a stable code for machines and a sentence for people.

use std::fmt::Display;

use ballast_model::{
    Bytes, Change, Clamped, Compliance, DemandSource, GuestPlan, GuestSample, HoldReason, LinkDown,
    LinkState, Note, OutcomeKind, Pinned, Reason, RunState,
};
use serde::{Deserialize, Serialize};

use crate::tick::millis;

/// A stable code with a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Coded {
    /// A stable word for programs to compare: lower case, parts joined by dashes.
    pub code: String,
    /// A sentence for people, with figures; its wording may change.
    pub text: String,
}

impl Coded {
    /// The pair of `code` and `text`.
    pub fn new(code: &str, text: impl Display) -> Self {
        Coded { code: code.to_owned(), text: text.to_string() }
    }

    /// The guest's run state, or why it cannot be reached.
    pub(crate) fn state_of(sample: &GuestSample) -> Self {
        match (&sample.link, &sample.run_state) {
            (LinkState::Down(why), _) => Coded::from(why),
            (LinkState::Up, Some(state)) => Coded::from(state),
            (LinkState::Up, None) => Coded::new("unknown", "its state is not known yet"),
        }
    }
}

/// Values that have a code and a sentence of their own.
macro_rules! coded {
    ($($value:ident)*) => {$(
        impl From<&$value> for Coded {
            fn from(value: &$value) -> Self {
                Coded::new(value.code(), value)
            }
        }
    )*};
}

coded! { Clamped DemandSource HoldReason Note Pinned Reason }

impl From<&OutcomeKind> for Coded {
    fn from(kind: &OutcomeKind) -> Self {
        let code = match kind {
            OutcomeKind::Accepted => "accepted",
            OutcomeKind::Failed(_) => "failed",
            OutcomeKind::Expired => "expired",
            OutcomeKind::Superseded => "superseded",
            OutcomeKind::Waiting => "waiting",
        };
        Coded::new(code, kind)
    }
}

impl From<&LinkDown> for Coded {
    fn from(down: &LinkDown) -> Self {
        let code = match down {
            LinkDown::Connecting => "connecting",
            LinkDown::Taken => "taken",
            LinkDown::PermissionDenied => "permission-denied",
            LinkDown::Refused => "refused",
            LinkDown::TimedOut => "timed-out",
            LinkDown::Protocol(_) => "protocol-error",
            LinkDown::Closed(_) => "closed",
        };
        Coded::new(code, down)
    }
}

impl From<&RunState> for Coded {
    fn from(state: &RunState) -> Self {
        let code = match state {
            RunState::Running => "running",
            RunState::Paused => "paused",
            RunState::Shutdown => "shutdown",
            RunState::Panicked => "panicked",
            RunState::Incoming => "incoming",
            RunState::Other(_) => "other",
        };
        Coded::new(code, state)
    }
}

/// What a plan does to a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChangeView {
    /// `grow`, `shrink`, `cancel-shrink` (a reduction under way is called off) or `hold` (nothing
    /// is done).
    pub code: String,
    /// A sentence for people; its wording may change.
    pub text: String,
    /// How much it grows or shrinks; `null` with every other code.
    pub by_bytes: Option<u64>,
    /// Why nothing is done, or why the reduction is called off; `null` with `grow` and `shrink`.
    pub why: Option<Coded>,
}

impl From<&Change> for ChangeView {
    fn from(change: &Change) -> Self {
        let (code, by, why) = match change {
            Change::Grow { by } => ("grow", Some(by), None),
            Change::Shrink { by } => ("shrink", Some(by), None),
            Change::CancelShrink { why } => ("cancel-shrink", None, Some(why)),
            Change::Hold(why) => ("hold", None, Some(why)),
        };
        ChangeView {
            code: code.to_owned(),
            text: change.to_string(),
            by_bytes: by.map(|by| by.get()),
            why: why.map(Coded::from),
        }
    }
}

/// Whether a guest releases the memory that was requested from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ComplianceView {
    /// `compliant` (nothing is left to release), `releasing`, `slow` (it should have finished by
    /// now), `stuck` (it has released nothing for too long) or `inhibited` (its balloon is not
    /// used, because that would free no host memory).
    pub code: String,
    /// A sentence for people; its wording may change.
    pub text: String,
    /// Memory that it has yet to release; `null` unless it is `releasing` or `slow`.
    pub left_bytes: Option<u64>,
    /// Time since it last released memory; `null` unless it is `releasing` or `stuck`.
    pub idle_ms: Option<u64>,
    /// Time since the request; `null` unless it is `slow`.
    pub asked_ms: Option<u64>,
    /// Rate at which its balloon was last seen to take memory, in bytes a second; `null`: it was
    /// never seen to.
    pub balloon_bytes_per_s: Option<u64>,
}

impl ComplianceView {
    /// The view of a guest's compliance in `plan`.
    pub fn new(plan: &GuestPlan) -> Self {
        let compliance = &plan.compliance;
        let (code, left, idle, asked) = match compliance {
            Compliance::Compliant => ("compliant", None, None, None),
            Compliance::Releasing { left, idle } => {
                ("releasing", Some(left.get()), Some(*idle), None)
            }
            Compliance::Slow { left, asked } => ("slow", Some(left.get()), None, Some(*asked)),
            Compliance::Stuck { idle } => ("stuck", None, Some(*idle), None),
            Compliance::Inhibited => ("inhibited", None, None, None),
        };
        ComplianceView {
            code: code.to_owned(),
            text: compliance.to_string(),
            left_bytes: left,
            idle_ms: idle.map(millis),
            asked_ms: asked.map(millis),
            balloon_bytes_per_s: plan.balloon_rate.map(Bytes::get),
        }
    }
}
