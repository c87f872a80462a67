//! Which guests memory is on its way between.
//!
//! Idea: what one guest releases is granted on while the rest is still being released. How soon depends on how often
//! is looked: while somebody waits for memory that somebody else gives, these alone are looked at ten times as often.
//! Cost: O(n) a tick. Limits: a guest that gives nothing for a second is not waited for so.

use std::time::Duration;

use ballast_model::{Change, Clamped, Compliance, GuestId, GuestPlan, Plan};

/// A guest that gave something so lately is giving.
const GIVING_WITHIN: Duration = Duration::from_secs(1);

/// Those who give and those who wait for it; nobody if there is not one of each.
pub(crate) fn in_transfer(plan: &Plan) -> Vec<GuestId> {
    if !plan.guests.iter().any(gives) || !plan.guests.iter().any(waits) {
        return Vec::new();
    }
    let guests = plan.guests.iter().filter(|guest| gives(guest) || waits(guest));
    guests.map(|guest| guest.id.clone()).collect()
}

fn gives(guest: &GuestPlan) -> bool {
    let is_giving =
        matches!(guest.compliance, Compliance::Releasing { idle, .. } if idle < GIVING_WITHIN);
    is_giving || matches!(guest.change, Change::Shrink { .. })
}

fn waits(guest: &GuestPlan) -> bool {
    let waits = |clamp: &Clamped| {
        matches!(clamp, Clamped::AwaitingRelease { .. } | Clamped::HostReserve { .. })
    };
    guest.clamps.iter().any(waits)
}
