//! Actuate: which mechanisms bring each guest to its target.
//!
//! Idea: the guard says how much, an actuator per guest says how; an order may come of it where the
//! guard has none, as memory is plugged in ahead of need and pulled out when idle. Whatever that
//! takes beyond targets comes out of what the guard's own grants left. Cost: O(1) a guest. Limits:
//! guests that take no part get no order.

use ballast_actuation::hotplug::{Actuation, ActuationInput, Band, HotplugSettings, balloon_only};
use ballast_guard::GuardSettings;
use ballast_model::{Bytes, Timestamp};

use crate::tick::{Actuated, GuestTick, NextActuator};

/// The order for one guest that brings it to `send`, and may take `spare` beyond what was granted.
/// `settings`: `None`: nothing is plugged in or out, for the time of a pause or of
/// observing or, if the operator switched that off, from now on.
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
        // What was granted for plugging may still be taken until all that was asked for is done.
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

/// The limits of every order for a guest, whether it comes from the guard or from hotplug.
fn band(guest: &GuestTick<'_>, guard: &GuardSettings) -> Band {
    let bounds = guest.limits.bounds_for(guest.sample).unwrap_or_default();
    Band {
        least: bounds.floor.max(guest.assessment.min_without_swap.unwrap_or_default()),
        most: bounds.ceiling,
        step_up_max: guard.step_up_max,
        step_down_max: guard.step_down_max,
    }
}
