//! The source: shrinks the guest, copies it, and afterwards ends or resumes its own copy.
//!
//! Idea: a hypervisor that has sent everything stops the guest by itself. Only the record decides
//! what to do with that copy: resume it if the move is abandoned, end it if the guest runs
//! elsewhere. If the program that copies ends the source itself, there is usually no such copy.
//! What the guest holds is compared with what the destination has reserved, as that is all that it
//! has from its arrival on: a guest may be slow, stuck, or without swap and growing.
//! Limits: a guest that somebody else has paused, or is copying, is not moved.

use std::net::SocketAddr;

use crate::view::CopyState::{Failed, Nothing, Partly};
use crate::view::Process::{Absent, Ended, Left, Loaded, Paused, Runs, Unknown, Waiting};
use crate::{AbandonReason, HostAction, HostView, MoveRecord, NextStep, Phase, START_PATIENCE};

/// What the source of `record` does next, if its hypervisor answers.
pub(crate) fn step(record: &MoveRecord, view: &HostView) -> NextStep {
    let abandon = |why| NextStep::write(record.abandoned(why));
    if record.is_closed {
        return NextStep::Wait;
    }
    match &record.phase {
        Phase::Ordered | Phase::Ready { .. } => prepare(record, view),
        Phase::Copying { address, ends_source: true } => copy(record, *address, view),
        Phase::Copying { address, ends_source: false } => match view.process {
            Runs(Nothing | Partly) | Left if record.is_exceeded(view.holds) => {
                abandon(AbandonReason::NoRoom)
            }
            Runs(Nothing) => NextStep::Act(HostAction::Copy(*address)),
            Runs(Partly) => NextStep::Wait,
            Runs(Failed) => abandon(AbandonReason::CopyFailed),
            Left => copied(record, view),
            Paused => abandon(AbandonReason::NotRunning),
            Absent | Ended | Waiting(_) | Loaded | Unknown => abandon(AbandonReason::GuestGone),
        },
        Phase::Copied { .. } => match view.process {
            Left if view.now >= record.due => abandon(AbandonReason::NotStarted),
            // Somebody has resumed it by hand, so the copy is outdated.
            Runs(_) => abandon(AbandonReason::NotRunning),
            // If it is gone, the destination's copy is the only one.
            _ => NextStep::Wait,
        },
        Phase::Starting { .. } => NextStep::Wait,
        Phase::Moved | Phase::Lost => match view.process {
            Left => NextStep::Act(HostAction::Quit),
            Absent | Ended if view.shrink.is_some() => NextStep::Act(HostAction::EndShrink),
            Absent | Ended => NextStep::write(MoveRecord { is_closed: true, ..record.clone() }),
            // Somebody has resumed it by hand. It is not ended, because an operator has to decide.
            _ => NextStep::Wait,
        },
        Phase::Abandoned { .. } => match view.process {
            Left => NextStep::Act(HostAction::Resume),
            Runs(Partly) => NextStep::Act(HostAction::CancelCopy),
            _ if view.shrink.is_some() => NextStep::Act(HostAction::EndShrink),
            _ => NextStep::write(MoveRecord { is_closed: true, ..record.clone() }),
        },
    }
}

/// Shrinks the guest. Begins the copy once the destination is ready and the guest is small enough,
/// or shrinking it has taken too long and it fits into what is reserved all the same.
fn prepare(record: &MoveRecord, view: &HostView) -> NextStep {
    match view.process {
        Runs(Nothing | Failed) => {}
        Runs(Partly) | Paused | Left | Unknown => {
            return NextStep::write(record.abandoned(AbandonReason::NotRunning));
        }
        Absent | Ended | Waiting(_) | Loaded => {
            return NextStep::write(record.abandoned(AbandonReason::GuestGone));
        }
    }
    let is_small = match (record.shrink_to, view.shrink) {
        (None, _) => true,
        (Some(to), Some(shrink)) if shrink.to == to => shrink.is_done,
        (Some(to), _) => return NextStep::Act(HostAction::Shrink(to)),
    };
    match record.phase {
        Phase::Ready { address } if is_small || view.now >= record.shrink_until => {
            let ends_source = view.ends_source;
            match view.holds {
                // Whether it fits is unknown. The move is abandoned once it is due.
                None => NextStep::Wait,
                holds if record.is_exceeded(holds) => {
                    NextStep::write(record.abandoned(AbandonReason::NoRoom))
                }
                Some(_) => NextStep::write(record.at(Phase::Copying { address, ends_source })),
            }
        }
        _ => NextStep::Wait,
    }
}

/// Copies by a program that ends the source's hypervisor itself. A copy under way is never
/// abandoned, because it might be whole before the others read that. It is cancelled if it is late
/// or the guest has outgrown what is reserved; the move is abandoned once it is certain that the
/// guest is here and not being copied, nor will be, or has died here.
fn copy(record: &MoveRecord, to: SocketAddr, view: &HostView) -> NextStep {
    let abandon = |why| NextStep::write(record.abandoned(why));
    let is_late = view.now >= record.due;
    let is_exceeded = record.is_exceeded(view.holds);
    match view.process {
        Runs(Nothing) if is_late => abandon(AbandonReason::TimedOut),
        // Not abandoned before it is late: were that write to arrive after the guest has shrunk and
        // is copied, the destination would clean up what it has of it.
        Runs(Nothing) if is_exceeded => NextStep::Wait,
        Runs(Nothing) => NextStep::Act(HostAction::Copy(to)),
        Runs(Partly) if is_late || is_exceeded => NextStep::Act(HostAction::CancelCopy),
        Runs(Partly) | Unknown => NextStep::Wait,
        Runs(Failed) => abandon(AbandonReason::CopyFailed),
        Left | Ended => copied(record, view),
        // What the destination has may be outdated: the guest may have run on here before it died.
        Absent => abandon(AbandonReason::GuestGone),
        Paused | Waiting(_) | Loaded => abandon(AbandonReason::NotRunning),
    }
}

/// Writes that the destination has the whole guest.
fn copied(record: &MoveRecord, view: &HostView) -> NextStep {
    let carried = Box::new(view.carried.clone());
    let due = view.now + START_PATIENCE;
    NextStep::write(MoveRecord { due, ..record.at(Phase::Copied { carried }) })
}
