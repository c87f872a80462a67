//! `tws`: every guest the working set that probing found (TWS §2).
//!
//! Properties: gives each guest what it was seen to need, page cache included, and leaves the rest
//! to the host; falls by steps while a guest neither swaps in nor refaults, and rises with every page
//! that it does. Each target depends on its own guest only, until the wants no longer fit the budget.
//!
//! Algorithm: the prober is `crates/estimate/src/probing.rs`; here `target_i = WSS_i` within bounds.
//! Where wants exceed the budget, `wants`. One decision a second, no limit of rate and no dead band: the
//! smallest step of a prober is 1 % of `Committed_AS`, and it waits until it was made.
//!
//! Source: TWS §2. Deviations: a guest that is not probed gets what it uses and a reserve; the paper
//! says nothing of wants that do not fit.

use std::time::Duration;

use ballast_model::{Bytes, Input, PolicyName, Reason};

use crate::in_use::InUse;
use crate::wants::Want;
use crate::{Division, Pacing, Policy, PolicySettings, Problem};

/// An epoch of the paper is a second (TWS §2).
pub(crate) const PACING: Pacing =
    Pacing { interval: Duration::from_secs(1), dead_band: Bytes::ZERO, on_request: false };

/// See the file's header.
#[derive(Clone, Debug)]
pub struct Tws {
    settings: PolicySettings,
    in_use: InUse,
}

impl Tws {
    /// With the reserve of `settings` for guests that are not probed.
    pub fn new(settings: PolicySettings) -> Self {
        Tws { settings, in_use: InUse::default() }
    }
}

impl Policy for Tws {
    fn name(&self) -> PolicyName {
        PolicyName::Tws
    }

    fn pacing(&self) -> Pacing {
        PACING
    }

    fn divide(&mut self, problem: &Problem) -> Division {
        let reserve = self.settings.reserve;
        self.in_use.grant(problem, Input::Probed, reserve, |contender| {
            let working_set = contender.signals.probed?;
            Some(Want { size: working_set, reason: Reason::Probed { working_set } })
        })
    }
}
