//! Replays a recorded host under another policy, and gives advice from the result.
//!
//! Idea: [`Replay`] runs recorded samples through the daemon's own controller. [`Advisor`] adds up
//! the results tick by tick, in bounded memory, and makes an [`Advice`] from the sums. Neither
//! reads a journal: the caller passes its ticks. Begin with `replay.rs`, then `advisor.rs`.
//!
//! Limits: a replay is an open loop: recorded guests do not react to what it decides.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

mod advice;
mod advisor;
mod amounts;
mod confidence;
mod course;
mod guest_finding;
mod guest_sums;
mod imagined;
mod recorded_need;
mod replay;
mod replayable;
mod row;
mod totals;

pub use advice::{
    ADVICE_ASSUMPTIONS, Advice, AdviceWindow, CoursePoint, GuestAdvice, MoreGuests, NeedAdvice,
};
pub use advisor::{Advisor, GUESTS_MAX};
pub use amounts::Amounts;
pub use confidence::AdviceConfidence;
pub use guest_finding::GuestFinding;
pub use replay::{ASSUMPTIONS, GAP_MAX, Replay, ReplayReport};
pub use replayable::{NotReplayable, RecordedInputs, ensure_replayable};
pub use row::ReplayRow;
pub use totals::ReplayTotals;
