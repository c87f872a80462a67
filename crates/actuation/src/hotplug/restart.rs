//! An actuator that continues where the last daemon's ended.
//!
//! Idea: orders of the last daemon still hold, and may give the guest everything that was promised
//! to it. So the most that they can lead to counts as ordered until this daemon's first order
//! replaces them.
//!
//! Limits: phases and pauses are not taken over. Plugging that is under way continues as if another
//! client had requested it.

use ballast_model::{Bytes, GuestSample};

use super::{Actuator, Ordered};

impl Actuator {
    /// The actuator of a guest with `target` in force that was promised `transient_grant` beyond
    /// it.
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
