//! How a host cleans up after earlier moves.

use crate::view::{HostAction, HostView, Next, Process, Promise};

/// Ends what earlier moves have left on this host, but never a guest that runs or has run here.
pub(crate) fn clean_up(view: &HostView<'_>) -> Next {
    match (view.process, view.promise) {
        (Process::Waiting(_) | Process::Loaded, _) => Next::Act(HostAction::End),
        (Process::Absent | Process::Ended, Promise::Reserved { .. } | Promise::Refused) => {
            Next::Act(HostAction::Release)
        }
        (Process::Absent | Process::Ended | Process::Runs(_), _) if view.shrink.is_some() => {
            Next::Act(HostAction::EndShrink)
        }
        _ => Next::Wait,
    }
}
