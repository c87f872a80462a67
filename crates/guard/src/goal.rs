//! A policy's wish, clamped to the guest's own limits.
//!
//! Idea: floor, ceiling, step limits and dead band depend on one guest only, so they are applied
//! once per decision. What depends on other guests (who releases what, and when) is done by
//! `allocate_grants`. Every change is recorded with its figures.

use ballast_model::{Bounds, Bytes, Clamped, Desired, HoldReason};

use crate::{Assessment, GuardSettings};

/// Where a guest should be, if the others permit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goal {
    /// What the policy wanted.
    pub desired: Desired,
    /// The changes made to that, in order.
    pub clamps: Vec<Clamped>,
    /// The allocation to reach, in whole pages.
    pub target: Bytes,
    /// Why `target` is the allocation in force, if the change was too small.
    pub held: Option<HoldReason>,
}

/// The goal of a guest that may be moved; `None` for any other. The guest gets at least
/// `given_back`, within its ceiling. `unproven` is the part of its claims that was withheld from
/// the policy.
pub fn goal_for(
    assessment: &Assessment,
    desired: Desired,
    given_back: Option<Bytes>,
    unproven: Option<Clamped>,
    dead_band: Bytes,
    settings: &GuardSettings,
) -> Option<Goal> {
    let Bounds { floor, ceiling } = assessment.bounds?;
    let reference = assessment.reference?;
    let mut clamps = Vec::from_iter(unproven);
    let mut target = desired.target.page_floor();
    if target < floor {
        target = floor;
        clamps.push(Clamped::Floor { floor });
    }
    if let Some(held) = given_back
        && target <= held
    {
        target = held.page_ceil();
        clamps.push(Clamped::Thrashed { held });
    }
    if target > ceiling {
        target = ceiling;
        clamps.push(Clamped::Ceiling { ceiling });
    }
    if let Some(least) = assessment.min_without_swap
        && target < least
    {
        target = least;
        clamps.push(Clamped::NoSwap { least });
    }
    if let Some(most) = assessment.sampled_most
        && target > most
    {
        target = most;
        clamps.push(Clamped::SampledAlone { most });
    }
    if let Some(limit) = settings.step_up_max
        && target.saturating_sub(reference) > limit
    {
        target = reference.saturating_add(limit).page_floor();
        clamps.push(Clamped::StepUp { limit });
    }
    if let Some(limit) = settings.step_down_max
        && reference.saturating_sub(target) > limit
    {
        target = reference.saturating_sub(limit).page_ceil();
        clamps.push(Clamped::StepDown { limit });
    }
    let change = target.abs_diff(reference);
    let within_bounds = floor <= reference && reference <= ceiling;
    let held = (change > Bytes::ZERO && change <= dead_band && within_bounds)
        .then_some(HoldReason::DeadBand { change, band: dead_band });
    if held.is_some() {
        target = reference;
    }
    Some(Goal { desired, clamps, target, held })
}
