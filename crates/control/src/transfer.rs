//! Which guests release memory that others wait for.
//!
//! Idea: memory that one guest releases is granted to others while it still releases the rest. How
//! soon depends on the sampling rate: while one guest waits for memory that another releases, these
//! guests are sampled ten times as often. Cost: O(n) a tick. Limits: ends when a guest has released
//! nothing for a second.

use std::time::Duration;

use ballast_model::{Change, Clamped, Compliance, GuestId, GuestPlan, Plan};

/// A guest that released some memory within this time is giving.
const GIVING_WITHIN: Duration = Duration::from_secs(1);

/// Guests that give memory and guests that wait for it; none if there is not one of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    guests: Vec<GuestId>,
}

impl Transfer {
    /// The transfer under way once a plan is carried out that has guests of both kinds.
    pub(crate) fn of(plan: &Plan) -> Transfer {
        let involved = plan.guests.iter().filter(|guest| gives(guest) || waits(guest));
        Transfer { guests: involved.map(|guest| guest.id.clone()).collect() }
    }

    /// Its guests, sorted by name.
    pub fn guests(&self) -> &[GuestId] {
        &self.guests
    }
}

/// Whether a guest gives memory.
pub(crate) fn gives(guest: &GuestPlan) -> bool {
    let is_giving =
        matches!(guest.compliance, Compliance::Releasing { idle, .. } if idle < GIVING_WITHIN);
    is_giving || matches!(guest.change, Change::Shrink { .. })
}

/// Whether it waits for memory that another guest holds.
pub(crate) fn waits(guest: &GuestPlan) -> bool {
    let waits = |clamp: &Clamped| {
        matches!(clamp, Clamped::AwaitingRelease { .. } | Clamped::HostReserve { .. })
    };
    guest.clamps.iter().any(waits)
}
