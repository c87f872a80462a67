//! Where each guest stands before anything is decided.
//!
//! Idea: one verdict per guest and tick: its demand, or the typed reason why it is left alone. Only
//! guests with demand reach a policy. The reasons are tried in the order in which an operator would
//! want to hear of them.

use std::time::Duration;

use ballast_model::{
    Bytes, Estimate, GuestId, GuestLimits, GuestSample, Held, LinkState, RunState,
};

/// One guest before the decision.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The guest.
    pub id: GuestId,
    /// What it was last seen to hold.
    pub allocation: Option<Bytes>,
    /// Floor and ceiling, resolved against its boot memory; `None` while that is unknown.
    pub bounds: Option<(Bytes, Bytes)>,
    /// What it has to be left because it has no swap for what it uses, at most what it holds; `None`: its floor says that.
    pub least: Option<Bytes>,
    /// Its weight.
    pub shares: u32,
    /// When memory is short, those of lower priority go without first.
    pub priority: u8,
    /// Misses a second it should stay under.
    pub miss_rate_max: Option<u64>,
    /// What it holds or was promised, whichever is more; no more than its process occupies or may, where the host holds
    /// that to something.
    pub committed: Bytes,
    /// What it was asked to hold where it is stuck and paged, the target in force, else what it holds: what changes are
    /// measured from.
    pub reference: Option<Bytes>,
    /// Host memory known to be occupied by it, never more than `committed`.
    pub occupied: Bytes,
    /// How long it has been known.
    pub known_for: Duration,
    /// Its demand, or why it is left alone.
    pub verdict: Result<Estimate, Held>,
    /// What the host pages it out to, as long as it does not give that itself.
    pub paged: Option<Paged>,
    /// The demand of one that is stuck and paged: it gives nothing, and yet what it was asked for can be taken, and given
    /// back.
    pub demand_stuck: Option<Box<Estimate>>,
}

/// What a guest is held to that owes memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paged {
    /// What it was asked to hold.
    pub asked: Bytes,
    /// What its process may occupy: that and room for the hypervisor.
    pub bound: Bytes,
}

impl Paged {
    /// Room for the hypervisor.
    fn room(self) -> Bytes {
        self.bound.saturating_sub(self.asked)
    }
}

impl Standing {
    /// Its demand, if it has a part in the division of memory.
    pub fn estimate(&self) -> Option<&Estimate> {
        self.verdict.as_ref().ok().or(self.demand_stuck.as_deref())
    }

    /// What it holds beyond its part in the division of memory.
    pub fn immovable(&self) -> Bytes {
        match (&self.verdict, self.paged, &self.demand_stuck) {
            (Ok(_), ..) => Bytes::ZERO,
            (Err(_), Some(paged), Some(_)) => self.lasting().saturating_sub(paged.asked),
            (Err(_), ..) => self.committed,
        }
    }

    /// What it is committed for longer than it takes the host to page it out to its bound.
    pub fn lasting(&self) -> Bytes {
        self.committed.min(self.paged.map_or(Bytes::MAX, |paged| paged.bound))
    }

    /// What it holds and uses, and has no swap for: no balloon may take of that, even where the host counted on it.
    pub fn unsparable(&self) -> Bytes {
        self.least.min(self.allocation).unwrap_or_default().page_floor()
    }

    /// What it would be committed if that were its target.
    pub fn committed_at(&self, target: Bytes) -> Bytes {
        let holds = self.allocation.unwrap_or_default().max(target);
        self.paged.map_or(target, |paged| holds.min(target.saturating_add(paged.room())))
    }

    /// The greatest target at which it is committed for no more than that.
    pub fn target_for(&self, committed: Bytes) -> Bytes {
        let is_held = self.allocation.is_some_and(|holds| holds > committed);
        let paged = self.paged.filter(|_| is_held);
        committed.saturating_sub(paged.map_or(Bytes::ZERO, Paged::room))
    }

    /// Up to this an action gives the guest nothing that it has not already.
    pub fn covered(&self) -> Bytes {
        self.allocation.unwrap_or_default().page_ceil().max(self.committed)
    }
}

/// Whether a guest may be moved, leaving its demand to be estimated; `Err` says why not.
///
/// # Errors
/// The reason to leave the guest alone.
pub fn verdict(
    sample: &GuestSample,
    limits: &GuestLimits,
    stale_after: Duration,
) -> Result<(), Held> {
    if !limits.managed {
        return Err(Held::OptedOut);
    }
    if let LinkState::Down(why) = &sample.link {
        return Err(Held::Unreachable { why: why.to_string() });
    }
    match &sample.run_state {
        None | Some(RunState::Running) => {}
        Some(state) => return Err(Held::NotRunning { state: state.clone() }),
    }
    // Where the balloon cannot be used, plugged memory still can.
    let plugs = sample.hotplug.is_some_and(|hotplug| hotplug.max > Bytes::ZERO);
    if sample.capabilities.balloon == Some(false) && !plugs {
        return Err(Held::NoBalloon);
    }
    if sample.capabilities.discard_inhibited == Some(true) && !plugs {
        return Err(Held::DiscardInhibited);
    }
    let (Some(allocation), Some(_)) = (sample.allocation, sample.boot_memory) else {
        return Err(Held::NoAllocation);
    };
    let Some(stats) = sample.stats else {
        return Err(Held::NoStatistics);
    };
    let age = stats.age.max(allocation.age);
    if age > stale_after {
        return Err(Held::Stale { age, limit: stale_after });
    }
    Ok(())
}

/// Reasons under which a reduction still under way is called off: the guest can be reached, and
/// what is known of it no longer justifies taking more.
pub(crate) fn calls_off_shrinking(held: &Held) -> bool {
    matches!(
        held,
        Held::NoStatistics | Held::Stale { .. } | Held::Implausible(_) | Held::Stuck { .. }
    )
}
