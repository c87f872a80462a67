//! `self-balloon`: gives every guest the memory its kernel has committed to processes (TWS §2), and
//! a reserve.
//!
//! Properties: gives no more than that, so the host keeps the rest. Each target depends on its own
//! guest only, until the wants no longer fit the budget. Committed memory counts even if it is
//! never touched, and page cache does not count, so a guest that depends on page cache gets too
//! little (TWS §4.1). It is the baseline for probing.
//!
//! Algorithm: `target_i = Committed_AS_i + f` within bounds, with `f` the reserve per guest,
//! because `Committed_AS` excludes the kernel's own memory and free reserve; Xen's driver likewise
//! adds `totalreserve_pages`. If wants exceed the budget they are divided by `wants`.
//!
//! Source: Xen's self-ballooning, as described in TWS §2.
//! Deviations: a guest without a known `Committed_AS` gets what it uses plus a reserve; the
//! interval is that of `tws`, so that the two differ only in the target; Xen does nothing when
//! wants do not fit.

use ballast_model::{Input, PolicyName, Reason};

use crate::in_use::InUseFallback;
use crate::tws::PACING;
use crate::wants::Want;
use crate::{Division, Pacing, Policy, PolicySettings, Problem};

/// The policy `self-balloon`.
#[derive(Clone, Debug)]
pub struct SelfBalloon {
    settings: PolicySettings,
    in_use: InUseFallback,
}

impl SelfBalloon {
    /// The policy with the reserve of `settings` on top of `Committed_AS`.
    pub fn new(settings: PolicySettings) -> Self {
        SelfBalloon { settings, in_use: InUseFallback::default() }
    }
}

impl Policy for SelfBalloon {
    fn name(&self) -> PolicyName {
        PolicyName::SelfBalloon
    }

    fn pacing(&self) -> Pacing {
        PACING
    }

    fn divide(&mut self, problem: &Problem) -> Division {
        let reserve = self.settings.reserve;
        self.in_use.grant(problem, Input::Committed, reserve, |contender| {
            let committed = contender.signals.committed?;
            let size = committed.saturating_add(reserve);
            Some(Want { size, reason: Reason::Committed { committed } })
        })
    }
}
