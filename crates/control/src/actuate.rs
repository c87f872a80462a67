//! Actuate: which mechanisms bring each guest to its target.
//!
//! Idea: the guard decides how much, an actuator per guest decides how. An actuator can issue an
//! order when the guard has none, because it plugs memory in ahead of need and unplugs it when it
//! is idle. What that takes beyond the targets comes from the memory that the guard's grants left
//! over. Cost: O(1) per guest. Limits: no order for guests that may not be moved.

use ballast_actuation::hotplug::{Actuation, ActuationInput, Band, HotplugSettings, balloon_only};
use ballast_guard::GuardSettings;
use ballast_model::{Bytes, Timestamp};

use crate::tick::{Actuated, GuestTick, NextActuator};

/// The order that brings one guest to `send`, and may take up to `spare` beyond what was granted.
/// `settings` is `None` if nothing may be plugged in or out: during a pause, in observe mode, or
/// because the operator switched hotplug off.
pub(crate) fn actuate(
    guest: &GuestTick<'_>,
    send: Option<Bytes>,
    now: Timestamp,
    spare: Bytes,
    settings: Option<&HotplugSettings>,
    guard: &GuardSettings,
    is_held: bool,
) -> Actuated {
    let (sample, state) = (guest.sample, &*guest.state);
    let (Some(_), Some(settings)) = (sample.hotplug, settings) else {
        // Memory granted for plugging may still be taken until everything that was asked for is
        // done.
        let is_done = sample.hotplug.is_none_or(|hotplug| {
            hotplug.requested == hotplug.plugged && sample.claimed() <= state.log.target()
        });
        let is_over = is_done && (sample.hotplug.is_none() || !is_held);
        let next = (is_over && state.actuator.is_some()).then_some(NextActuator(None));
        let order = match send {
            Some(_) => balloon_only(sample, send),
            None => Actuation::default(),
        };
        return Actuated { order, next };
    };
    let mut actuator = state.actuator.clone().unwrap_or_default();
    let order = actuator.actuate(&ActuationInput {
        now,
        sample,
        in_force: state.log.target(),
        send,
        bounds: guest.assessment.bounds.filter(|_| guest.assessment.verdict.is_ok()),
        spare,
        settings,
        band: band(guest, guard),
        owned: guest.assessment.owned,
    });
    Actuated { order, next: Some(NextActuator(Some(actuator))) }
}

/// Limits of every order for a guest, from the guard and from hotplug alike.
fn band(guest: &GuestTick<'_>, guard: &GuardSettings) -> Band {
    let bounds = guest.limits.bounds_for(guest.sample).unwrap_or_default();
    Band {
        least: bounds.floor.max(guest.assessment.min_without_swap.unwrap_or_default()),
        most: bounds.ceiling,
        step_up_max: guard.step_up_max,
        step_down_max: guard.step_down_max,
    }
}
