//! The leader: orders moves, abandons those that take too long, removes those that are closed.
//!
//! Idea: it moves nothing itself. As a guest has one record, it is in at most one move at a time.
//! Limits: a leader that does not know yet that it was replaced may still write. Hosts begin no
//! move that an older leader ordered.

use ballast_model::Timestamp;

use crate::{AbandonReason, MoveRecord, NextStep, Phase};

/// What the leader wants of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoveIntent {
    /// Nothing, except that a move under way comes to an end.
    Settle,
    /// Move it, unless it is being moved already: the record to begin with, in phase `Ordered`.
    Move(MoveRecord),
    /// Cancel its move, if that is still possible.
    Cancel,
}

/// What the leader does next about a guest with this record.
pub fn step(record: Option<&MoveRecord>, intent: &MoveIntent, now: Timestamp) -> NextStep {
    let Some(record) = record else {
        return match intent {
            MoveIntent::Move(ordered) => NextStep::write(ordered.clone()),
            MoveIntent::Settle | MoveIntent::Cancel => NextStep::Wait,
        };
    };
    if record.is_closed {
        return NextStep::Remove;
    }
    match record.phase {
        // Only the source may decide, as the destination may have the only copy.
        Phase::Copying { ends_source: true, .. } => NextStep::Wait,
        Phase::Ordered | Phase::Ready { .. } | Phase::Copying { .. } => {
            if *intent == MoveIntent::Cancel {
                NextStep::write(record.abandoned(AbandonReason::Cancelled))
            } else if now >= record.due {
                NextStep::write(record.abandoned(AbandonReason::TimedOut))
            } else {
                NextStep::Wait
            }
        }
        // Only the hosts may decide, as one of them may have the only copy that is left.
        Phase::Copied { .. } | Phase::Starting { .. } => NextStep::Wait,
        Phase::Moved | Phase::Abandoned { .. } | Phase::Lost => NextStep::Wait,
    }
}
