//! The source: shrinks the guest, copies it, and ends or resumes what it has left of it.
//!
//! Idea: a hypervisor that has sent everything stops the guest by itself. What becomes of that
//! copy the record says alone: resumed once the move is abandoned, ended once the guest runs
//! elsewhere. Where whoever copies ends the source by itself, there is no such copy, as a rule.
//! Limits: a guest that somebody else has paused, or is copying, is not moved.

use std::net::SocketAddr;

use crate::record::is_over;
use crate::view::CopyState::{Failed, Nothing, Partly};
use crate::view::Process::{Absent, Ended, Left, Loaded, Paused, Runs, Unknown, Waiting};
use crate::{HostAction, HostView, MoveRecord, Next, Phase, START_PATIENCE, WhyAbandoned};

/// What the source of `record` does next.
pub(crate) fn step(record: &MoveRecord, view: &HostView<'_>) -> Next {
    let abandon = |why| Next::write(record.abandoned(why));
    if view.process == Unknown || record.is_closed {
        return Next::Wait;
    }
    if let Some(why) = record.why_lapsed(view.term, view.now) {
        return abandon(why);
    }
    match &record.phase {
        Phase::Ordered | Phase::Ready { .. } => prepare(record, view),
        Phase::Copying { address, ends_source: true } => copy(record, *address, view),
        Phase::Copying { address, ends_source: false } => match view.process {
            Runs(Nothing) => Next::Act(HostAction::Copy(*address)),
            Runs(Partly) => Next::Wait,
            Runs(Failed) => abandon(WhyAbandoned::CopyFailed),
            Left => copied(record, view),
            Paused => abandon(WhyAbandoned::NotRunning),
            Absent | Ended | Waiting(_) | Loaded | Unknown => abandon(WhyAbandoned::GuestGone),
        },
        Phase::Copied { .. } => match view.process {
            Left if is_over(record.due, view.now) => abandon(WhyAbandoned::NotStarted),
            // Somebody has resumed it by hand: it is not as it was copied.
            Runs(_) => abandon(WhyAbandoned::NotRunning),
            // If it is gone, the destination's copy is the only one.
            _ => Next::Wait,
        },
        Phase::Starting { .. } => Next::Wait,
        Phase::Moved | Phase::Lost => match view.process {
            Left => Next::Act(HostAction::Quit),
            Absent | Ended if view.shrink.is_some() => Next::Act(HostAction::EndShrink),
            Absent | Ended => Next::write(MoveRecord { is_closed: true, ..record.clone() }),
            // Somebody has resumed it by hand. It is not ended: an operator has to look.
            _ => Next::Wait,
        },
        Phase::Abandoned { .. } => match view.process {
            Left => Next::Act(HostAction::Resume),
            Runs(Partly) => Next::Act(HostAction::CancelCopy),
            _ if view.shrink.is_some() => Next::Act(HostAction::EndShrink),
            _ => Next::write(MoveRecord { is_closed: true, ..record.clone() }),
        },
    }
}

/// Shrinks the guest; begins once that is done, or has taken too long, and the destination is
/// ready.
fn prepare(record: &MoveRecord, view: &HostView<'_>) -> Next {
    match view.process {
        Runs(Nothing | Failed) => {}
        Runs(Partly) | Paused | Left | Unknown => {
            return Next::write(record.abandoned(WhyAbandoned::NotRunning));
        }
        Absent | Ended | Waiting(_) | Loaded => {
            return Next::write(record.abandoned(WhyAbandoned::GuestGone));
        }
    }
    let is_small = match (record.shrink_to, view.shrink) {
        (None, _) => true,
        (Some(to), Some(shrink)) if shrink.to == to => shrink.is_done,
        (Some(to), _) => return Next::Act(HostAction::Shrink(to)),
    };
    match record.phase {
        Phase::Ready { address } if is_small || is_over(record.shrink_until, view.now) => {
            let ends_source = view.ends_source;
            Next::write(record.at(Phase::Copying { address, ends_source }))
        }
        _ => Next::Wait,
    }
}

/// Copies by what ends the source's hypervisor by itself. A copy under way is never abandoned: it
/// might be whole before anybody has read that. It is cancelled, and the move abandoned once it is
/// certain that the guest is here and is not copied, or has died here.
fn copy(record: &MoveRecord, to: SocketAddr, view: &HostView<'_>) -> Next {
    let abandon = |why| Next::write(record.abandoned(why));
    let is_late = is_over(record.due, view.now);
    match view.process {
        Runs(Nothing) if is_late => abandon(WhyAbandoned::TimedOut),
        Runs(Nothing) => Next::Act(HostAction::Copy(to)),
        Runs(Partly) if is_late => Next::Act(HostAction::CancelCopy),
        Runs(Partly) | Unknown => Next::Wait,
        Runs(Failed) => abandon(WhyAbandoned::CopyFailed),
        Left | Ended => copied(record, view),
        // What the destination has may be from before it ran on here.
        Absent => abandon(WhyAbandoned::GuestGone),
        Paused | Waiting(_) | Loaded => abandon(WhyAbandoned::NotRunning),
    }
}

/// All of the guest is at the destination.
fn copied(record: &MoveRecord, view: &HostView<'_>) -> Next {
    let carried = Box::new(view.carried.clone());
    let due = view.now + START_PATIENCE;
    Next::write(MoveRecord { due, ..record.at(Phase::Copied { carried }) })
}
