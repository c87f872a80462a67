//! The rules that a plan is checked against.

use std::time::Duration;

use ballast_model::{Bytes, LimitTable};

/// The rules that a plan must keep: the operator's settings.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// The operator's budget; `None`: the host's memory less the reserve.
    pub budget: Option<Bytes>,
    /// Memory of the host that no grant may touch.
    pub host_reserve: Bytes,
    /// Oldest figures on which a guest may be shrunk or granted memory.
    pub stale_after: Duration,
    /// Most a guest may grow per decision.
    pub step_up_max: Option<Bytes>,
    /// Most a guest may shrink per decision.
    pub step_down_max: Option<Bytes>,
    /// Each guest's limits.
    pub limits: &'a LimitTable,
}
