//! `self-balloon`: every guest what its kernel has promised to processes (TWS §2).
//!
//! Properties: gives no more than is promised, so the host keeps what nobody needs; each target
//! depends on its own guest only, until the wants no longer fit the budget. Memory that is promised
//! and never touched again is given all the same, and page cache is in nobody's want: a guest that
//! lives by it is given too little (TWS §4.1). It is the baseline that probing is compared with.
//!
//! Algorithm: `target_i = Committed_AS_i + f` within bounds, with `f` the reserve per guest: what the
//! kernel itself takes and keeps free is not in `Committed_AS`, and Xen's driver adds the kernel's own
//! reserve (`totalreserve_pages`) likewise. Where wants exceed the budget, `wants`.
//!
//! Source: Xen's self-ballooning, as TWS §2 tells it.
//! Deviations: a guest of which `Committed_AS` is not known gets what it uses and a reserve; the
//! interval is that of `tws`, so that the two differ in the target alone; in Xen nobody arbitrates
//! when wants do not fit.

use ballast_model::{Input, PolicyName, Reason};

use crate::in_use::InUse;
use crate::tws::PACING;
use crate::wants::Want;
use crate::{Division, Pacing, Policy, PolicySettings, Problem};

/// See the file's header.
#[derive(Clone, Debug)]
pub struct SelfBalloon {
    settings: PolicySettings,
    in_use: InUse,
}

impl SelfBalloon {
    /// With the reserve of `settings` on top of `Committed_AS`.
    pub fn new(settings: PolicySettings) -> Self {
        SelfBalloon { settings, in_use: InUse::default() }
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
