//! The rules that a plan is checked against.

use std::time::Duration;

use ballast_model::{Bytes, LimitTable};

use super::Violation;

/// The rules that a plan must keep.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// The operator's budget; `None`: the host's memory less the reserve.
    pub budget: Option<Bytes>,
    /// Memory of the host that no grant may touch.
    pub host_reserve: Bytes,
    /// Memory that no grant may touch either, because guests are about to start in it.
    pub reserved: Bytes,
    /// Oldest figures on which a guest may be shrunk or granted memory.
    pub stale_after: Duration,
    /// Most a guest may grow per decision.
    pub step_up_max: Option<Bytes>,
    /// Most a guest may shrink per decision.
    pub step_down_max: Option<Bytes>,
    /// Each guest's limits.
    pub limits: &'a LimitTable,
    /// Whether the operator has paused acting.
    pub paused: bool,
    /// Whether the mode is to observe.
    pub observing: bool,
}

impl Rules<'_> {
    /// The violation of every action, if nothing at all may be moved.
    pub(super) fn forbids_all(&self) -> Option<Violation> {
        match (self.observing, self.paused) {
            (true, _) => Some(Violation::WhileObserving),
            (false, true) => Some(Violation::WhilePaused),
            (false, false) => None,
        }
    }
}
