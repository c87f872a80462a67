//! What a host does next about a guest, whatever its role.

use crate::clean_up::clean_up;
use crate::view::{CopyState, HostAction, HostView, NextStep, Process};
use crate::{AbandonReason, MoveRecord, Phase, destination, source};

/// What a host does next about a guest: as the source, as the destination, or as neither, which
/// only cleans up after earlier moves. `record` is the guest's record as it is in the store now;
/// `None` if there is none.
pub fn host_step(record: Option<&MoveRecord>, view: &HostView) -> NextStep {
    let Some(record) = record.filter(|it| it.from == view.host || it.to == view.host) else {
        return clean_up(view);
    };
    let is_uncopied = matches!(record.phase, Phase::Ordered | Phase::Ready { .. });
    if is_uncopied && !view.begins_moves {
        return NextStep::write(record.abandoned(AbandonReason::Cancelled));
    }
    if may_be_elsewhere(record, view) || view.process == Process::Unknown {
        return NextStep::Wait;
    }
    if let Some(why) = record.reason_to_abandon(view.term, view.now) {
        return NextStep::write(record.abandoned(why));
    }
    match record.from == view.host {
        true => source::step(record, view),
        false => destination::step(record, view),
    }
}

/// Whether the guest's hypervisor may be on another machine of this host's name: this one sees
/// none, and has no part in the move. A destination may still give back what it reserved.
fn may_be_elsewhere(record: &MoveRecord, view: &HostView) -> bool {
    let gives_back = record.to == view.host && record.phase.is_over();
    let is_seen = view.process != Process::Absent;
    !gives_back && !is_seen && !view.has_part && !record.can_be_joined(&view.host)
}

/// What a host does while it cannot reach the store. `last` is the record that it last read.
///
/// It cancels a copy: one that ended now would leave the guest standing still until the store is
/// back.
pub fn host_step_without_store(last: &MoveRecord, view: &HostView) -> NextStep {
    let is_source = last.from == view.host;
    match (&last.phase, view.process) {
        (Phase::Copying { .. }, Process::Runs(CopyState::Partly)) if is_source => {
            NextStep::Act(HostAction::CancelCopy)
        }
        _ => NextStep::Wait,
    }
}
