//! Which guests release memory that others wait for.
//!
//! Idea: memory is granted to others while the guest that releases it still releases the rest. How
//! soon depends on the sampling rate, so these guests are sampled ten times as often while one
//! waits for what another releases. Cost: O(n) a tick. Limits: ends when a guest has released
//! nothing for a second.

use std::time::Duration;

use ballast_model::{Change, Clamped, Compliance, GuestId, GuestPlan, Plan};

/// A guest that released some memory within this time is giving.
const GIVING_WITHIN: Duration = Duration::from_secs(1);

/// Guests that give memory and guests that wait for it. Empty unless there is at least one of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    guests: Vec<GuestId>,
}

/// Guests of both kinds while a plan is made.
#[derive(Debug, Default)]
pub(crate) struct TransferGuests {
    guests: Vec<GuestId>,
    gives: bool,
    waits: bool,
}

impl TransferGuests {
    /// Adds the next guest of the plan if it is of either kind.
    pub(crate) fn add(
        &mut self,
        id: &GuestId,
        compliance: Compliance,
        change: &Change,
        clamps: &[Clamped],
    ) {
        let (gives, waits) = (gives(compliance, change), waits(clamps));
        if gives || waits {
            self.guests.push(id.clone());
        }
        self.gives |= gives;
        self.waits |= waits;
    }

    /// The transfer under way once `plan`, which has these guests, is carried out. A reservation
    /// waits for memory just as a guest does.
    pub(crate) fn transfer(self, plan: &Plan) -> Transfer {
        let waits = self.waits || plan.reservations.iter().any(|it| !it.is_ready());
        let guests = if self.gives && waits { self.guests } else { Vec::new() };
        Transfer { guests }
    }
}

impl Transfer {
    /// The transfer under way once a plan is carried out.
    pub(crate) fn of(plan: &Plan) -> Transfer {
        let mut involved = TransferGuests::default();
        for GuestPlan { id, compliance, change, clamps, .. } in &plan.guests {
            involved.add(id, *compliance, change, clamps);
        }
        involved.transfer(plan)
    }

    /// Its guests, sorted by name.
    pub fn guests(&self) -> &[GuestId] {
        &self.guests
    }
}

/// Whether a guest gives memory.
fn gives(compliance: Compliance, change: &Change) -> bool {
    let is_giving =
        matches!(compliance, Compliance::Releasing { idle, .. } if idle < GIVING_WITHIN);
    is_giving || matches!(change, Change::Shrink { .. })
}

/// Whether it waits for memory that another guest holds.
fn waits(clamps: &[Clamped]) -> bool {
    let waits = |clamp: &Clamped| {
        matches!(clamp, Clamped::AwaitingRelease { .. } | Clamped::HostReserve { .. })
    };
    clamps.iter().any(waits)
}
