//! The destination: reserves memory, listens, and starts the guest that arrived.
//!
//! Idea: it promises memory by its own reservations, before a hypervisor listens, so no memory is
//! promised twice. It starts the guest only after it has written that it will.
//! Limits: if the hypervisor refuses to start the guest, the move stays in `Starting` until an
//! operator decides.

use crate::clean_up::clean_up;
use crate::view::Process::{Absent, Loaded, Paused, Runs, Waiting};
use crate::{AbandonReason, HostAction, HostView, MoveRecord, NextStep, Phase, Promise};

/// What the destination of `record` does next, if its hypervisor answers.
pub(crate) fn step(record: &MoveRecord, view: &HostView) -> NextStep {
    let abandon = |why| NextStep::write(record.abandoned(why));
    match &record.phase {
        Phase::Ordered => prepare(record, view),
        // This host may have the whole guest, and no other copy may be left: it must not abandon.
        Phase::Copying { ends_source: true, .. } => match view.promise {
            Promise::Nothing => NextStep::Act(HostAction::Reserve(record.reserve)),
            _ => NextStep::Wait,
        },
        Phase::Ready { .. } | Phase::Copying { .. } => match (view.process, view.promise) {
            (_, Promise::Nothing | Promise::Refused) => abandon(AbandonReason::NoRoom),
            (Waiting(_) | Loaded, _) => NextStep::Wait,
            _ => abandon(AbandonReason::ListenerGone),
        },
        Phase::Copied { carried } => match view.process {
            // Even if the source is about to abandon: the first of both writes decides.
            Loaded | Runs(_) => {
                NextStep::write(record.at(Phase::Starting { carried: carried.clone() }))
            }
            // Had it arrived whole it would show by now: it died while it was copied.
            Waiting(_) if view.ends_source && view.now >= record.due => {
                abandon(AbandonReason::ListenerGone)
            }
            // The source says that all was sent, so the hypervisor will soon show it as loaded.
            Waiting(_) => NextStep::Wait,
            _ => abandon(AbandonReason::ListenerGone),
        },
        Phase::Starting { carried } => match view.process {
            Loaded if !view.is_taken_over => NextStep::Act(HostAction::TakeOver(carried.clone())),
            Loaded | Paused => NextStep::Act(HostAction::Start),
            Runs(_) => NextStep::write(record.at(Phase::Moved)),
            Absent => NextStep::write(record.at(Phase::Lost)),
            // The guest died before it was started.
            Waiting(_) if view.ends_source => NextStep::write(record.at(Phase::Lost)),
            _ => NextStep::Wait,
        },
        Phase::Moved => NextStep::Wait,
        Phase::Abandoned { .. } | Phase::Lost => clean_up(view),
    }
}

/// Reserves memory, then listens, then writes that it is ready.
fn prepare(record: &MoveRecord, view: &HostView) -> NextStep {
    let is_reserved = match view.promise {
        Promise::Refused => return NextStep::write(record.abandoned(AbandonReason::NoRoom)),
        Promise::Entitled => true,
        Promise::Reserved { size, is_ready } if size == record.reserve => is_ready,
        Promise::Reserved { .. } | Promise::Nothing => {
            // A listener that an earlier move left may occupy memory that was not promised.
            return NextStep::Act(match view.process {
                Waiting(_) | Loaded if !view.ends_source => HostAction::End,
                _ => HostAction::Reserve(record.reserve),
            });
        }
    };
    match view.process {
        Absent if is_reserved => NextStep::Act(HostAction::Listen),
        Waiting(address) if is_reserved => NextStep::write(record.at(Phase::Ready { address })),
        Absent | Waiting(_) => NextStep::Wait,
        // Either an earlier move left it; or this host saw an old record, and the guest of this
        // very move has arrived since. In that case the record has changed, and the write fails.
        Loaded if view.ends_source => NextStep::write(record.abandoned(AbandonReason::GuestThere)),
        Loaded => NextStep::Act(HostAction::End),
        _ => NextStep::write(record.abandoned(AbandonReason::GuestThere)),
    }
}
