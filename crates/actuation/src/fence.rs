//! The height of the standing fence around a guest.
//!
//! Idea: a fence is a limit on the memory of the guest's cgroup. Its height is what the guest
//! should hold plus what its hypervisor needs besides that, so a guest that keeps to its target
//! never touches it. A guest that holds more cannot grow, whatever its driver says. Where the guest
//! owes memory, the fence may take it.
//!
//! A guest that is giving memory keeps a fence around what it still holds: a lower one would write
//! to swap what the balloon is about to free. There is no fence around a guest that was granted
//! nothing, nor around one from which the host takes no memory: because the operator excludes it,
//! its hypervisor is moving or saving it, or its balloon frees nothing.
//!
//! Cost: O(1) per guest. Limits: the hypervisor's need is measured where the guest's memory is
//! shared, and assumed elsewhere, as generously as in judging what a guest holds. A guest can hide
//! that much behind its fence.

use ballast_model::{
    Bytes, Compliance, GuestId, GuestPlan, GuestSample, Handover, LimitTable, Mechanism, Note,
    Plan, ProcessId, RunState, Snapshot, overhead_at_most,
};

use crate::paging::OVERHEAD;

/// What the kernel charges for itself, as a part of the guest's memory: page tables, those of the
/// process and those of KVM, are a 256th with pages of 4 KiB; queues and sockets are little.
const KERNEL_PART: (u64, u64) = (1, 128);

/// Heights are whole multiples of this, so that a fence does not move with every sample.
const STEP: Bytes = Bytes::mib(4);

/// The fence that one guest should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceOrder {
    /// The guest.
    pub guest: GuestId,
    /// Its hypervisor's process.
    pub process: ProcessId,
    /// The most that its cgroup may hold.
    pub height: Bytes,
    /// Whether the guest owes what it holds beyond that, so that the fence may take it. If not, the
    /// fence only keeps the guest from growing.
    pub takes: bool,
}

/// Orders for all fences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fences {
    /// They stay as they are.
    Keep,
    /// Exactly these guests have a fence.
    Set(Vec<FenceOrder>),
}

/// The fences of all guests under `plan`. `handovers` are the controller's state of guests after
/// the plan, sorted by name. `paused`: the operator moves memory by hand, and must not run into a
/// fence.
pub fn fences(
    snapshot: &Snapshot,
    plan: &Plan,
    handovers: &[Handover],
    limits: &LimitTable,
    paused: bool,
) -> Fences {
    if paused {
        return Fences::Set(Vec::new());
    }
    // A plan that the checker refused is not carried out at all.
    if plan.notes.iter().any(|note| matches!(note, Note::Refused { .. })) {
        return Fences::Keep;
    }
    let mut orders = Vec::new();
    let mut limits = limits.in_order();
    for sample in snapshot.guests() {
        let limits = limits.of(&sample.id);
        if !limits.fence || !limits.managed {
            continue;
        }
        let Some(planned) = plan.guest(&sample.id) else { continue };
        let place = handovers.binary_search_by(|it| it.guest.cmp(&sample.id)).ok();
        let height = height(sample, planned, place.map(|place| &handovers[place]));
        let Some((process, height)) = sample.process.zip(height) else { continue };
        let is_paged_out = plan
            .paging
            .iter()
            .any(|paging| paging.guest == sample.id && paging.mechanism == Mechanism::PageOut);
        let owes = matches!(planned.compliance, Compliance::Slow { .. } | Compliance::Stuck { .. });
        let takes = is_paged_out || owes;
        orders.push(FenceOrder { guest: sample.id.clone(), process, height, takes });
    }
    Fences::Set(orders)
}

/// The most that a guest's cgroup may hold; `None`: no limit.
fn height(
    sample: &GuestSample,
    planned: &GuestPlan,
    remembered: Option<&Handover>,
) -> Option<Bytes> {
    let is_left_whole = matches!(sample.run_state, Some(RunState::Incoming | RunState::Other(_)))
        || planned.compliance == Compliance::Inhibited
        || sample.capabilities.discard_inhibited == Some(true)
        || sample.capabilities.balloon == Some(false);
    if is_left_whole {
        return None;
    }
    // A stuck guest's target is what it holds, but it is entitled to what it was granted.
    let granted = remembered.and_then(|it| it.granted).or(planned.target)?;
    let transient = remembered.map_or(Bytes::ZERO, |it| it.transient_grant);
    let mut may_hold = granted.saturating_add(transient).max(planned.bounds?.floor);
    if matches!(planned.compliance, Compliance::Releasing { .. }) {
        may_hold = may_hold.max(planned.allocation.unwrap_or_default());
    }
    let memory = sample.memory_max()?;
    let kernel = memory.fraction(KERNEL_PART.0, KERNEL_PART.1);
    // Paging leaves a hypervisor at least this much too.
    let own = overhead_at_most(sample.overhead, memory).max(OVERHEAD);
    let most = may_hold.saturating_add(own).saturating_add(kernel);
    let steps = most.get().div_ceil(STEP.get());
    Some(Bytes::new(steps.saturating_mul(STEP.get())))
}
