//! An actuator that goes on where the last daemon's left off.
//!
//! Idea: the last daemon's orders still hold, and may give the guest all that was promised it. So
//! the most they can come to counts as ordered, until the first order of this daemon takes their
//! place.
//!
//! Limits: phases and pauses are not taken over. What is being plugged in or out goes on as if
//! somebody else had asked for it.

use ballast_model::{Bytes, GuestSample};

use super::{Actuator, Ordered};

impl Actuator {
    /// For a guest with `target` in force that was promised `transient_grant` beyond that.
    pub fn restored(target: Bytes, transient_grant: Bytes, sample: &GuestSample) -> Actuator {
        let total = target.saturating_add(transient_grant);
        let plugged = sample.hotplug.map_or(Bytes::ZERO, |hotplug| hotplug.requested);
        Actuator {
            last: Some(Ordered { total, plugged }),
            reach: total,
            transient_grant,
            ..Actuator::default()
        }
    }
}
