//! Actuate: which mechanisms bring each guest to its target.
//!
//! Idea: the guard says how much, an actuator per guest says how; an order may come of it where the
//! guard has none, as memory is plugged in ahead of need and pulled out when idle. Whatever that
//! takes beyond targets comes out of what the guard's own grants left. Cost: O(1) a guest. Limits:
//! guests that take no part get no order.

use ballast_actuation::hotplug::{Actuation, ActuationInput, HotplugSettings, balloon_only};
use ballast_model::{Bytes, Timestamp};

use crate::tick::{Actuated, GuestTick, NextActuator};

/// The order for one guest, which may take `spare` beyond what was granted. `settings`: `None`:
/// nothing is plugged in or out.
pub(crate) fn actuate(
    guest: &GuestTick<'_>,
    now: Timestamp,
    spare: Bytes,
    settings: Option<&HotplugSettings>,
) -> Actuated {
    let (sample, state, send) = (guest.sample, &*guest.state, guest.send());
    let (Some(_), Some(settings)) = (sample.hotplug, settings) else {
        let had_one = sample.hotplug.is_none() && state.actuator.is_some();
        let next = had_one.then_some(NextActuator(None));
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
    });
    Actuated { order, next: Some(NextActuator(Some(actuator))) }
}
