//! What a leader writes about moves.
//!
//! Idea: moves that have begun are brought to their end, or cancelled while the fleet is paused.
//! Moves of the plan that are due are ordered, with one record for each guest. Only hosts that
//! carry out orders get any.
//! Cost: one pass over the records of moves and one over the plan.
//! Limits: the caller says which moves are due. A leader younger than a lease has none due, as it
//! knows only the hosts that have registered since.

use std::time::Duration;

use ballast_fleet::Migration;
use ballast_fleet_move::leader::{MoveIntent, step};
use ballast_fleet_move::{MoveRecord, NextStep, Phase, Term};
use ballast_model::{GuestId, Timestamp};

use crate::coordinator::Revision;
use crate::past::PastMoves;
use crate::view::{FleetView, MoveEntry};

/// How long a source waits for a guest to give the memory that it does not need.
const SHRINK_PATIENCE: Duration = Duration::from_secs(120);
/// A copy has to be complete after this many times its expected duration, plus [`COPY_PATIENCE`].
const COPY_TIMES: u32 = 4;
/// Time that every copy gets in addition.
const COPY_PATIENCE: Duration = Duration::from_secs(300);

/// One write of a leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaderWrite {
    /// Writes a move's record, if the key is still as `found`.
    Put {
        /// The record.
        record: Box<MoveRecord>,
        /// The revision that wrote the record to replace; `None`: there must be none.
        found: Option<Revision>,
    },
    /// Removes the record of a finished move, and notes its end.
    Close {
        /// The guest.
        guest: GuestId,
        /// The revision that wrote the record.
        found: Revision,
        /// The guest's finished moves, including this one.
        past: PastMoves,
    },
    /// Removes the note of a guest's finished moves, which no longer count.
    Forget(GuestId),
}

/// What the leader of `term` writes at `now`: about moves that have begun, and orders for `due`.
pub fn leader_writes(
    view: &FleetView,
    due: &[&Migration],
    term: Term,
    now: Timestamp,
) -> Vec<LeaderWrite> {
    let mut writes = Vec::new();
    let intent = if view.paused_by().is_some() { MoveIntent::Cancel } else { MoveIntent::Settle };
    for (guest, entry) in view.moves() {
        // It is of another version; a program that reads that version has to settle it.
        let MoveEntry { record: Ok(record), written } = entry else { continue };
        match step(Some(record), &intent, now) {
            NextStep::Write(record) => {
                writes.push(LeaderWrite::Put { record, found: Some(*written) });
            }
            NextStep::Remove => writes.push(LeaderWrite::Close {
                guest: guest.clone(),
                found: *written,
                past: view.past(guest).cloned().unwrap_or_default().with(record, now),
            }),
            NextStep::Wait | NextStep::Act(_) => {}
        }
    }
    for guest in view.expired_past_moves(now) {
        writes.push(LeaderWrite::Forget(guest.clone()));
    }
    for it in due {
        let may_move = view.move_of(&it.guest).is_none()
            && view.executes_moves(&it.from)
            && view.executes_moves(&it.to);
        let intent = MoveIntent::Move(ordered(it, term, now));
        if may_move && let NextStep::Write(record) = step(None, &intent, now) {
            writes.push(LeaderWrite::Put { record, found: None });
        }
    }
    writes
}

fn ordered(migration: &Migration, term: Term, now: Timestamp) -> MoveRecord {
    let Migration { guest, from, to, shrink_to, reserve, copy_time, .. } = migration.clone();
    let shrink_until = now + SHRINK_PATIENCE;
    let due = shrink_until + copy_time.saturating_mul(COPY_TIMES) + COPY_PATIENCE;
    MoveRecord {
        guest,
        from,
        to,
        term,
        ordered_at: now,
        reserve,
        shrink_to,
        shrink_until,
        due,
        phase: Phase::Ordered,
        is_closed: false,
    }
}
