//! The leader: orders moves, abandons those that take too long, removes those that are over.
//!
//! Idea: it moves nothing itself. A guest is moved at most once at a time, as it has one record.
//! Limits: a leader that does not know yet that it was replaced may write; hosts begin nothing that
//! an older one ordered.

use ballast_model::Timestamp;

use crate::record::is_over;
use crate::{MoveOrder, MoveRecord, Next, Phase, Term, WhyAbandoned};

/// What the leader wants of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Nothing but that what was begun comes to an end.
    Settle,
    /// Move it, unless it is on its way already.
    Move(MoveOrder),
    /// It is not to be moved any more, if that is still possible.
    Cancel,
}

/// What the leader that was elected as `term` does next about a guest with this record.
pub fn step(record: Option<&MoveRecord>, wish: &Wish, term: Term, now: Timestamp) -> Next {
    let Some(record) = record else {
        return match wish {
            Wish::Move(order) => Next::write(MoveRecord::ordered(order.clone(), term)),
            Wish::Settle | Wish::Cancel => Next::Wait,
        };
    };
    if record.is_closed {
        return Next::Remove;
    }
    match record.phase {
        // The source's affair: the destination may have the only copy.
        Phase::Copying { ends_source: true, .. } => Next::Wait,
        Phase::Ordered | Phase::Ready { .. } | Phase::Copying { .. } => {
            if *wish == Wish::Cancel {
                Next::write(record.abandoned(WhyAbandoned::Cancelled))
            } else if is_over(record.due, now) {
                Next::write(record.abandoned(WhyAbandoned::TimedOut))
            } else {
                Next::Wait
            }
        }
        // The hosts' affair: one of them may have the only copy that is left.
        Phase::Copied { .. } | Phase::Starting { .. } => Next::Wait,
        Phase::Moved | Phase::Abandoned { .. } | Phase::Lost => Next::Wait,
    }
}
