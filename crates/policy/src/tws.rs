//! `tws`: gives every guest the working set found by probing (TWS §2).
//!
//! Properties: gives each guest what it has been seen to need, page cache included, and leaves the
//! rest to the host. A target falls by steps while its guest neither swaps in nor refaults, and
//! rises with every page that it does. Each target depends on its own guest only, until the wants
//! no longer fit the budget.
//!
//! Algorithm: `target_i = WSS_i` within bounds; `crates/estimate/src/probing.rs` finds the working
//! set. If wants exceed the budget they are divided by `wants`. One decision a second, without dead
//! band: the smallest step of probing is 1 % of `Committed_AS`, and probing waits until it is done.
//!
//! Source: TWS §2. Deviations: a guest that is not probed gets what it uses plus a reserve; the
//! paper does not say what happens when wants do not fit.

use std::time::Duration;

use ballast_model::{Bytes, Input, PolicyName, Reason};

use crate::in_use::InUseFallback;
use crate::wants::Want;
use crate::{Division, Pacing, Policy, PolicySettings, Problem};

/// An epoch of the paper is a second (TWS §2).
pub(crate) const PACING: Pacing = Pacing::every(Duration::from_secs(1), Bytes::ZERO);

/// The policy `tws`.
#[derive(Clone, Debug)]
pub struct Tws {
    settings: PolicySettings,
    in_use: InUseFallback,
}

impl Tws {
    /// The policy with the reserve of `settings` for guests that are not probed.
    pub fn new(settings: PolicySettings) -> Self {
        Tws { settings, in_use: InUseFallback::default() }
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
