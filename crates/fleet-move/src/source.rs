//! The source: shrinks the guest, copies it, and ends or resumes what it has left of it.
//!
//! Idea: a hypervisor that has sent everything stops the guest by itself. What becomes of that
//! copy the record says alone: resumed once the move is abandoned, ended once the guest runs
//! elsewhere.
//! Limits: a guest that somebody else has paused, or is copying, is not moved.

use crate::record::is_over;
use crate::view::CopyState::{Failed, Nothing, Partly};
use crate::view::Process::{Absent, Left, Loaded, Paused, Runs, Unknown, Waiting};
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
        Phase::Copying { address } => match view.process {
            Runs(Nothing) => Next::Act(HostAction::Copy(*address)),
            Runs(Partly) => Next::Wait,
            Runs(Failed) => abandon(WhyAbandoned::CopyFailed),
            Left => {
                let carried = Box::new(view.carried.clone());
                let due = view.now + START_PATIENCE;
                Next::write(MoveRecord { due, ..record.at(Phase::Copied { carried }) })
            }
            Paused => abandon(WhyAbandoned::NotRunning),
            Absent | Waiting(_) | Loaded | Unknown => abandon(WhyAbandoned::GuestGone),
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
            Absent if view.shrink.is_some() => Next::Act(HostAction::EndShrink),
            Absent => Next::write(MoveRecord { is_closed: true, ..record.clone() }),
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
        Absent | Waiting(_) | Loaded => {
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
            Next::write(record.at(Phase::Copying { address }))
        }
        _ => Next::Wait,
    }
}
