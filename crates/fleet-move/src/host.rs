//! What a host does next about a guest, whatever its role.

use crate::put_away::put_away;
use crate::view::{CopyState, HostAction, HostView, Next, Process};
use crate::{MoveRecord, Phase, WhyAbandoned, destination, source};

/// What a host does next about a guest: as the source, as the destination, or as neither of them,
/// which only puts away what is left of earlier moves. `record` is that of the guest, as it is in
/// the store now; `None`: there is none.
pub fn host_step(record: Option<&MoveRecord>, view: &HostView<'_>) -> Next {
    match record {
        Some(record) if is_given_up(record, view) => {
            Next::write(record.abandoned(WhyAbandoned::Cancelled))
        }
        Some(record) if record.from == *view.host => source::step(record, view),
        Some(record) if record.to == *view.host => destination::step(record, view),
        _ => put_away(view),
    }
}

/// Whether a host that begins no moves takes a part in this one, and nothing of it is copied yet.
fn is_given_up(record: &MoveRecord, view: &HostView<'_>) -> bool {
    let is_about_here = record.from == *view.host || record.to == *view.host;
    let is_begun = !matches!(record.phase, Phase::Ordered | Phase::Ready { .. });
    is_about_here && !view.begins && !is_begun
}

/// What a host does while it cannot reach the store. `last` is the record that it read last.
///
/// A copy that ends now would leave the guest standing still until the store is back, so it is
/// cancelled.
pub fn host_step_without_store(last: &MoveRecord, view: &HostView<'_>) -> Next {
    let is_source = last.from == *view.host;
    match (&last.phase, view.process) {
        (Phase::Copying { .. }, Process::Runs(CopyState::Partly)) if is_source => {
            Next::Act(HostAction::CancelCopy)
        }
        _ => Next::Wait,
    }
}
