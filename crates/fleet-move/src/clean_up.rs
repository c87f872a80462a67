//! How a host cleans up after earlier moves.

use crate::view::{HostAction, HostView, NextStep, Process, Promise};

/// Ends what earlier moves have left on this host, but never a guest that runs or has run here.
pub(crate) fn clean_up(view: &HostView) -> NextStep {
    match (view.process, view.promise) {
        (Process::Waiting(_) | Process::Loaded, _) => NextStep::Act(HostAction::End),
        (Process::Absent | Process::Ended, Promise::Reserved { .. } | Promise::Refused) => {
            NextStep::Act(HostAction::Release)
        }
        (Process::Absent | Process::Ended | Process::Runs(_), _) if view.shrink.is_some() => {
            NextStep::Act(HostAction::EndShrink)
        }
        _ => NextStep::Wait,
    }
}
