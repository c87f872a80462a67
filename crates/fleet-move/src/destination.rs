//! The destination: makes room, listens, and starts what has come.
//!
//! Idea: nothing is promised twice because it promises by its own reservations, before a hypervisor
//! listens. It starts the guest only after it has written that it will.
//! Limits: a guest that its hypervisor refuses to start stays in `Starting`: somebody has to look.

use crate::put_away::put_away;
use crate::record::is_over;
use crate::view::Process::{Absent, Loaded, Paused, Runs, Unknown, Waiting};
use crate::{HostAction, HostView, MoveRecord, Next, Phase, Promise, WhyAbandoned};

/// What the destination of `record` does next.
pub(crate) fn step(record: &MoveRecord, view: &HostView<'_>) -> Next {
    let abandon = |why| Next::write(record.abandoned(why));
    if view.process == Unknown {
        return Next::Wait;
    }
    if let Some(why) = record.why_lapsed(view.term, view.now) {
        return abandon(why);
    }
    match &record.phase {
        Phase::Ordered => prepare(record, view),
        // The guest may be here whole, and nowhere else.
        Phase::Copying { ends_source: true, .. } => match view.promise {
            Promise::Nothing => Next::Act(HostAction::Reserve(record.reserve)),
            _ => Next::Wait,
        },
        Phase::Ready { .. } | Phase::Copying { .. } => match (view.process, view.promise) {
            (_, Promise::Nothing | Promise::Refused) => abandon(WhyAbandoned::NoRoom),
            (Waiting(_) | Loaded, _) => Next::Wait,
            _ => abandon(WhyAbandoned::ListenerGone),
        },
        Phase::Copied { carried } => match view.process {
            // However late it is: whoever writes first decides.
            Loaded | Runs(_) => {
                Next::write(record.at(Phase::Starting { carried: carried.clone() }))
            }
            // It is not here though it has had time to come: it died while it was copied.
            Waiting(_) if view.ends_source && is_over(record.due, view.now) => {
                abandon(WhyAbandoned::ListenerGone)
            }
            // The source says that all has come, so that is about to show.
            Waiting(_) => Next::Wait,
            _ => abandon(WhyAbandoned::ListenerGone),
        },
        Phase::Starting { carried } => match view.process {
            Loaded if !view.is_taken_over => Next::Act(HostAction::TakeOver(carried.clone())),
            Loaded | Paused => Next::Act(HostAction::Start),
            Runs(_) => Next::write(record.at(Phase::Moved)),
            Absent => Next::write(record.at(Phase::Lost)),
            // It died before it was started.
            Waiting(_) if view.ends_source => Next::write(record.at(Phase::Lost)),
            _ => Next::Wait,
        },
        Phase::Moved => Next::Wait,
        Phase::Abandoned { .. } | Phase::Lost => put_away(view),
    }
}

/// Reserves, then listens, then says so.
fn prepare(record: &MoveRecord, view: &HostView<'_>) -> Next {
    let is_reserved = match view.promise {
        Promise::Refused => return Next::write(record.abandoned(WhyAbandoned::NoRoom)),
        Promise::Entitled => true,
        Promise::Reserved { size, is_ready } if size == record.reserve => is_ready,
        Promise::Reserved { .. } | Promise::Nothing => {
            // A listener that an earlier move left may hold memory that is promised to nobody.
            return Next::Act(match view.process {
                Waiting(_) | Loaded if !view.ends_source => HostAction::End,
                _ => HostAction::Reserve(record.reserve),
            });
        }
    };
    match view.process {
        Absent if is_reserved => Next::Act(HostAction::Listen),
        Waiting(address) if is_reserved => Next::write(record.at(Phase::Ready { address })),
        Absent | Waiting(_) => Next::Wait,
        // Of an earlier move; or its own word that it is ready has come late, and this guest has
        // come since: then the record has changed, and nothing is written.
        Loaded if view.ends_source => Next::write(record.abandoned(WhyAbandoned::GuestThere)),
        Loaded => Next::Act(HostAction::End),
        _ => Next::write(record.abandoned(WhyAbandoned::GuestThere)),
    }
}
