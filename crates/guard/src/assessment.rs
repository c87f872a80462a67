//! What is known of each guest before anything is decided.
//!
//! Idea: one verdict per guest and tick: its demand, or the typed reason why it is left alone. Only
//! guests with a demand reach a policy. The reasons are tried in the order in which an operator
//! would want to hear of them.

use std::time::Duration;

use ballast_model::{
    Bounds, Bytes, GuestLimits, GuestSample, HoldReason, LinkState, Measured, RunState, Timestamp,
};

use crate::{ComplianceLog, Holding};

/// One guest before the decision.
#[derive(Clone, Debug)]
pub struct Assessment {
    /// What it was last seen to hold.
    pub allocation: Option<Bytes>,
    /// The part of that which it claims to hold.
    pub claimed: Option<Bytes>,
    /// Floor and ceiling, resolved against its boot memory; `None` while that is unknown.
    pub bounds: Option<Bounds>,
    /// The least that can be left to a guest without swap: what it uses, at most what it holds.
    /// `None`: its floor alone decides.
    pub min_without_swap: Option<Bytes>,
    /// The most that is given to a silent guest: what it needs as the host sees it. Such a guest
    /// keeps what it holds (`min_without_swap`). `None`: it reports its need itself.
    pub sampled_most: Option<Bytes>,
    /// Whether what it holds or was promised is known. If not, `committed` is the least that it can
    /// be.
    pub is_counted: bool,
    /// What it holds or was promised, whichever is more. Where the host caps it, at most what its
    /// process occupies or may occupy.
    pub committed: Bytes,
    /// Whether `committed` is all that it can ever hold, as its hypervisor says now.
    pub is_whole: bool,
    /// `committed` as it would be without the cap.
    pub uncapped: Bytes,
    /// The granted part of `committed`; all of it before anything was granted. A target up to this
    /// gives the guest nothing new. What it holds or claims beyond is its own debt.
    pub owned: Bytes,
    /// The size that changes are measured from: what it was asked to hold if it is stuck and
    /// capped, else the target in force, else what it holds. At most what it can have now.
    pub reference: Option<Bytes>,
    /// What it may hold whatever it claims: its last granted target, else its share; what it holds
    /// if neither is known.
    pub entitlement: Bytes,
    /// Whether a granted target or a share is known.
    pub is_entitled: bool,
    /// Whether it was ever granted a target.
    pub was_granted: bool,
    /// Whether the host has recently seen what its process occupies.
    pub is_seen: bool,
    /// Whether its balloon alone moves what it holds: it has no memory devices.
    pub by_balloon_alone: bool,
    /// What the host certainly sees it hold beyond its entitlement.
    pub beyond: Bytes,
    /// The most that it may use: its entitlement. While it releases memory, also its former
    /// entitlement, as far as the host sees that in use. Before anything was granted, what it
    /// holds. Using more than this proves no need of it.
    pub may_use: Bytes,
    /// What it may have filled of the memory that it was granted, or that it held before any grant.
    /// Its entitlement where the host cannot see.
    pub filled: Bytes,
    /// The greatest demand that is believed: what it has filled and a part on top. Memory that it
    /// took without a grant proves nothing.
    pub believed: Bytes,
    /// Host memory that it is known to occupy, never more than `committed`. However old the size
    /// of its process, it is at least that.
    pub occupied: Bytes,
    /// Host memory that it may occupy: what a fresh size of its process shows, or all of
    /// `committed` where there is none.
    pub occupied_at_most: Bytes,
    /// How long it has been known.
    pub known_for: Duration,
    /// Whether it may be moved; `Err` says why it is left alone.
    pub verdict: Result<(), HoldReason>,
    /// The cap that the host holds it to while it does not give by itself.
    pub capped: Option<Capped>,
    /// Whether its demand takes part in the division. This is so for a guest that may be moved, and
    /// for one that is stuck and capped: the host can page that one out and in.
    pub has_part: bool,
}

/// The cap on a guest that owes memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capped {
    /// What it was asked to hold.
    pub asked: Bytes,
    /// What its process may occupy: `asked` and room for the hypervisor.
    pub cap: Bytes,
}

impl Capped {
    /// Room for the hypervisor.
    fn room(self) -> Bytes {
        self.cap.saturating_sub(self.asked)
    }
}

/// Input of an [`Assessment`].
#[derive(Clone, Copy, Debug)]
pub struct AssessmentInput<'a> {
    /// The moment of the sample.
    pub now: Timestamp,
    /// What was seen of the guest.
    pub sample: &'a GuestSample,
    /// The operator's limits for it.
    pub limits: &'a GuestLimits,
    /// What it was asked for so far, and how it complied.
    pub log: &'a ComplianceLog,
    /// The cap on its process while it owes memory; `None`: no cap.
    pub cap: Option<Bytes>,
    /// Its claims, and what the host sees of them.
    pub holding: &'a Holding,
    /// The memory for all guests and the sum of their shares; `None`: not known yet.
    pub shared: Option<(Bytes, u64)>,
    /// Memory of all processes that the host has paged out. No more of this guest's memory can be
    /// in use without being resident.
    pub paged_out: Bytes,
    /// How much of its claimed need is believed without evidence, in percent of what it has filled.
    pub believed_percent: u64,
    /// Older figures are not acted on.
    pub stale_after: Duration,
}

impl AssessmentInput<'_> {
    /// The part of the budget that the guest's shares alone give it, within `bounds`.
    fn share(&self, bounds: Option<Bounds>) -> Option<Bytes> {
        let (budget, shares) = self.shared?;
        let share = budget.fraction(self.limits.shares.into(), shares).page_floor();
        Some(bounds.map_or(share, |Bounds { floor, ceiling }| share.clamp(floor, ceiling)))
    }
}

impl Assessment {
    /// Judges a guest by its `demand`. `stuck` is why the guest is left alone even if its demand is
    /// known.
    // The assessment has some forty figures, which would otherwise be returned through memory.
    #[inline(always)]
    pub fn new(
        input: &AssessmentInput<'_>,
        demand: Result<Bytes, HoldReason>,
        stuck: Option<HoldReason>,
    ) -> Assessment {
        let AssessmentInput { now, sample, limits, log, holding, stale_after, .. } = *input;
        let allocation = sample.allocation.and(holding.held());
        let last_seen = log.last_seen();
        let held = allocation.or_else(|| last_seen.max(holding.held()));
        let promised = log.promised();
        // An incoming guest takes what was reserved for it, or all of its memory if nothing was.
        let takes_all = promised.is_none() && sample.run_state == Some(RunState::Incoming);
        let known = if takes_all { None } else { held.max(promised) };
        let uncapped = known.or_else(|| held.max(sample.present_memory())).unwrap_or_default();
        let resident = sample.resident.filter(|resident| resident.age <= stale_after);
        let granted = log.entitlement();
        let capped = match (input.cap, resident, log.asked().or(granted)) {
            (Some(cap), Some(_), Some(asked)) => Some(Capped { asked, cap }),
            _ => None,
        };
        // Memory that it holds beyond its claim is not offered to it.
        let claimed = sample.allocation.map(|claim| claim.value).min(allocation);
        let offered = || claimed.or(held).max(promised).unwrap_or(uncapped);
        // The host takes what exceeds a cap. The cap's room for the hypervisor is promised to no
        // guest.
        let committed = match (capped, resident) {
            (Some(capped), Some(resident)) => uncapped.min(resident.value.max(capped.cap)),
            _ => uncapped,
        };
        let within_committed = |size: Measured<Bytes>| size.value.min(committed);
        // Memory that it touches lets a silent guest grow, but not if it holds more than it was
        // granted.
        let is_beyond_grant = granted.is_some_and(|granted| claimed > Some(granted));
        let demand = match sample.working_set_alone() {
            Some(seen) if demand.is_ok() && is_beyond_grant => {
                Err(HoldReason::SampledAlone { working_set: seen.value })
            }
            _ => demand,
        };
        let is_stuck = stuck.is_some();
        let has_part = demand.is_ok() && (!is_stuck || capped.is_some());
        let asked = capped.filter(|_| is_stuck && has_part).map(|capped| capped.asked);
        let most = sample.memory_max().unwrap_or(Bytes::MAX);
        let bounds = limits.bounds_for(sample);
        let granted_or_share = granted.or_else(|| input.share(bounds));
        let entitlement = granted_or_share.unwrap_or(committed);
        let (in_use, lately) = (holding.in_use(), log.entitled_lately());
        // The most that the guest uses: all memory that the host has paged out may be its own.
        let seen = |resident: Option<Bytes>| resident.map(|it| it.saturating_add(input.paged_out));
        // It may still use what it is about to release, as far as the host sees that.
        let used_at_most = |resident: Option<Bytes>| match (lately, seen(resident)) {
            (Some(lately), Some(seen)) => lately.min(seen.max(entitlement)),
            (Some(lately), None) => lately,
            (None, _) => entitlement.max(in_use.or(allocation).unwrap_or_default()),
        };
        // It does not use what the host itself takes.
        let may_use = if capped.is_some() { entitlement } else { used_at_most(in_use) };
        let filled = seen(in_use).map_or(entitlement, |seen| seen.min(may_use));
        let is_silent = !is_stuck && sample.stats.is_none();
        let sampled_demand = demand.as_ref().ok().filter(|_| is_silent);
        let sampled_most = sampled_demand.map(|demand| demand.page_ceil());
        let min_without_swap = match sampled_demand {
            // Nothing says how much of it the guest could spare.
            Some(_) => sample.claimed().map(Bytes::page_floor),
            None => {
                let may_keep = used_at_most(holding.resident_at_most());
                log.min_without_swap(sample, limits, stale_after, may_keep)
            }
        };
        Assessment {
            allocation,
            claimed,
            bounds,
            is_counted: allocation.or(last_seen).or(promised).or(sample.boot_memory).is_some(),
            min_without_swap,
            sampled_most,
            committed,
            is_whole: sample.link == LinkState::Up
                && allocation.is_some()
                && sample.memory_max().is_some_and(|most| committed >= most),
            uncapped,
            owned: lately.map_or(committed, |lately| committed.min(lately).min(offered())),
            entitlement,
            is_entitled: granted_or_share.is_some(),
            was_granted: granted.is_some(),
            is_seen: in_use.is_some(),
            by_balloon_alone: sample.hotplug.is_none(),
            beyond: holding.resident_at_least().unwrap_or_default().saturating_sub(entitlement),
            may_use,
            filled,
            believed: filled.saturating_add(filled.fraction(input.believed_percent, 100)),
            reference: asked.or(log.target()).or(allocation).map(|it| it.min(most)),
            occupied: sample.resident.map_or(Bytes::ZERO, within_committed),
            // A size that is too old may be just the part that the host could count.
            occupied_at_most: resident.map_or(committed, within_committed),
            known_for: log.known_for(now),
            verdict: match stuck {
                Some(stuck) => Err(stuck),
                None => demand.map(|_| ()),
            },
            capped,
            has_part,
        }
    }

    /// Whether it is stuck and takes part in the division all the same, as the host pages it out.
    pub(crate) fn is_paged_for(&self) -> bool {
        self.has_part && self.verdict.is_err()
    }

    /// The part of `committed` that no division can give to others, without its debt.
    pub fn immovable(&self) -> Bytes {
        match (&self.verdict, self.capped) {
            (Ok(()), _) => Bytes::ZERO,
            (Err(_), Some(capped)) if self.has_part => self.lasting().saturating_sub(capped.asked),
            (Err(_), _) => self.committed - self.debt(),
        }
    }

    /// What a guest that is left alone holds beyond its entitlement. No other guest pays for it. A
    /// guest that the operator has set up so that nothing can be taken from it owes nothing.
    pub fn debt(&self) -> Bytes {
        let owes = match &self.verdict {
            Ok(())
            | Err(
                HoldReason::OptedOut | HoldReason::DiscardInhibited | HoldReason::Pinned { .. },
            ) => false,
            Err(_) if self.has_part => false,
            Err(HoldReason::NoBalloon) => self.was_granted,
            Err(_) => true,
        };
        if owes { self.committed.saturating_sub(self.entitlement) } else { Bytes::ZERO }
    }

    /// The part of its debt that it may occupy already. The rest is not filled yet.
    pub fn debt_occupied(&self) -> Bytes {
        self.debt().min(self.occupied_at_most.saturating_sub(self.entitlement))
    }

    /// Its commitment once the host has paged it out to its cap.
    pub fn lasting(&self) -> Bytes {
        self.committed.min(self.capped.map_or(Bytes::MAX, |capped| capped.cap))
    }

    /// What it holds, uses, and has no swap for. No balloon may take any of it, even where the host
    /// counted on that.
    pub fn needed_without_swap(&self) -> Bytes {
        self.min_without_swap.min(self.allocation).unwrap_or_default().page_floor()
    }

    /// What it would be committed with `target`.
    pub fn committed_at(&self, target: Bytes) -> Bytes {
        let holds = self.allocation.unwrap_or_default().max(target);
        self.capped.map_or(target, |capped| holds.min(target.saturating_add(capped.room())))
    }

    /// The greatest target with which it is committed for at most `committed`.
    pub fn target_for(&self, committed: Bytes) -> Bytes {
        let is_held = self.allocation.is_some_and(|holds| holds > committed);
        let capped = self.capped.filter(|_| is_held);
        committed.saturating_sub(capped.map_or(Bytes::ZERO, Capped::room))
    }

    /// What it owns once the host has paged it out to its cap.
    pub fn owned_lasting(&self) -> Bytes {
        self.owned.min(self.lasting())
    }

    /// The new memory that it needs to be at `target`.
    pub fn lacking(&self, target: Bytes) -> Bytes {
        self.committed_at(target).saturating_sub(self.owned_lasting())
    }
}

/// Whether a guest may be moved; its demand is not considered yet. `may_plug`: memory may be
/// plugged in and out.
///
/// # Errors
/// The reason to leave the guest alone.
pub fn verdict(
    sample: &GuestSample,
    limits: &GuestLimits,
    stale_after: Duration,
    may_plug: bool,
) -> Result<(), HoldReason> {
    if !limits.managed {
        return Err(HoldReason::OptedOut);
    }
    if let LinkState::Down(why) = &sample.link {
        return Err(HoldReason::Unreachable { why: why.to_string() });
    }
    match &sample.run_state {
        None | Some(RunState::Running) => {}
        Some(state) => return Err(HoldReason::NotRunning { state: state.clone() }),
    }
    // Where the balloon cannot be used, plugging still can.
    let plugs = || may_plug && sample.hotplug.is_some_and(|hotplug| hotplug.max > Bytes::ZERO);
    if sample.capabilities.balloon == Some(false) && !plugs() {
        return Err(HoldReason::NoBalloon);
    }
    if sample.capabilities.discard_inhibited == Some(true) && !plugs() {
        return Err(sample
            .pinned
            .map_or(HoldReason::DiscardInhibited, |by| HoldReason::Pinned { by }));
    }
    let (Some(allocation), Some(_)) = (sample.allocation, sample.boot_memory) else {
        return Err(HoldReason::NoAllocation);
    };
    let age = match &sample.stats {
        Some(stats) => stats.age.max(allocation.age),
        // The estimate says whether the guest lacks memory by that.
        None if sample.working_set_alone().is_some() => allocation.age,
        None => return Err(HoldReason::NoStatistics),
    };
    if age > stale_after {
        return Err(HoldReason::Stale { age, limit: stale_after });
    }
    Ok(())
}

/// Reasons for which a reduction under way is called off: the guest can be reached, but what is
/// known of it no longer justifies taking more.
pub(crate) fn calls_off_shrinking(held: &HoldReason) -> bool {
    matches!(
        held,
        HoldReason::NoStatistics
            | HoldReason::SampledAlone { .. }
            | HoldReason::Stale { .. }
            | HoldReason::Implausible(_)
            | HoldReason::Stuck { .. }
    )
}
