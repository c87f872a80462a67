//! How much memory a host has for guests, and how much they need.
//!
//! Idea: two limits apply, the budget and the memory that the host's kernel has for guests; the
//! smaller one counts. What was promised beyond allocations (reservations, grants on their way,
//! debts) is subtracted: that leaves the capacity. It is compared with three sums over the guests:
//! their floors; what floors and objectives need; and what every guest should have. A guest that
//! gives no memory needs what it holds. What a copy fills has to be free now: no guest gives way
//! for it.
//! Cost: O(guests), once a plan.
//! Limits: a guest that is being moved away still counts where room for others is computed, but no
//! longer where a shortage is. If its migration fails, the next plan sees that.

use ballast_model::{Bytes, Timestamp};

use crate::{FleetSettings, GuestRecord, HostRecord};

/// Sizes of one guest, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GuestSizes {
    /// The balancer never shrinks the guest below this; what it holds, if it gives no memory.
    pub(crate) floor: u64,
    /// What its floor and its objective need.
    pub(crate) needed: u64,
    /// What it should have.
    pub(crate) full: u64,
}

/// Figures of one host, in bytes. The bounds of records keep every sum within 2^63.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostFigures {
    /// Memory for guests: the smaller of budget and physical memory, less promises.
    pub(crate) capacity: i64,
    /// What is free now beyond the reserve and what was promised: copies may fill it.
    pub(crate) vacant: i64,
    /// What copies under way may still fill.
    pub(crate) filling: i64,
    /// Sums over all guests.
    pub(crate) needed: i64,
    pub(crate) full: i64,
    /// Sums over guests that are not being moved away.
    pub(crate) floors_staying: i64,
    pub(crate) needed_staying: i64,
    /// Number of guests that are being moved away.
    pub(crate) moving: usize,
    /// Whether the record is recent enough to plan by.
    pub(crate) is_fresh: bool,
}

impl GuestSizes {
    pub(crate) fn of(guest: &GuestRecord) -> GuestSizes {
        let holds = guest.allocation.max(guest.resident).page_ceil();
        let kept = if guest.can_shrink { Bytes::ZERO } else { holds };
        let floor = guest.floor.page_ceil().max(kept);
        let objective = guest.curve.as_ref().zip(guest.misses_per_s_max);
        // If no size of the curve keeps the objective, more memory cannot keep it.
        let objective = objective.and_then(|(curve, rate)| curve.size_for(rate));
        let needed = floor.max(objective.unwrap_or_default().page_ceil());
        let full = needed.max(guest.demand.page_ceil());
        GuestSizes { floor: floor.get(), needed: needed.get(), full: full.get() }
    }
}

impl HostFigures {
    pub(crate) fn of(host: &HostRecord, settings: &FleetSettings, now: Timestamp) -> HostFigures {
        // A record from the future has an unknown age: it does not count as fresh.
        let is_fresh =
            host.seen_at <= now && now.saturating_since(host.seen_at) <= settings.stale_after;
        let mut figures = HostFigures { is_fresh, ..HostFigures::default() };
        let (mut allocated, mut resident, mut arrived) = (0, 0, 0);
        for guest in &host.guests {
            let sizes = GuestSizes::of(guest);
            allocated += signed(guest.allocation.get());
            resident += signed(guest.resident.get());
            figures.needed += signed(sizes.needed);
            figures.full += signed(sizes.full);
            if guest.moving_to.is_none() {
                figures.floors_staying += signed(sizes.floor);
                figures.needed_staying += signed(sizes.needed);
            } else {
                figures.moving += 1;
                figures.filling += signed(guest.filled_by_copy().get());
            }
        }
        for reservation in &host.reservations {
            arrived += signed(reservation.resident.get());
        }
        let vacant = signed(host.free.get()) - signed(host.reserve.get());
        let physical = vacant + resident + arrived;
        let promised = signed(host.committed.get()) - allocated;
        figures.vacant = vacant - (promised - arrived).max(0);
        figures.capacity = physical.min(signed(host.budget.get())) - promised;
        figures
    }

    /// By how much the floors exceed the capacity.
    pub(crate) fn short_of_floors(&self) -> u64 {
        positive(self.floors_staying - self.capacity)
    }

    /// By how much floors and objectives exceed the capacity.
    pub(crate) fn short_of_needed(&self) -> u64 {
        positive(self.needed_staying - self.capacity)
    }
}

impl HostRecord {
    /// By how much the floors of its guests exceed the memory that it has for them, as the planner
    /// counts both: the memory is less by what was promised beyond allocations, and the floor of a
    /// guest that cannot shrink is what it holds. Guests that are being moved away do not count.
    pub fn short_of_floors(&self) -> Bytes {
        Bytes::new(self.figures().short_of_floors())
    }

    /// The same by what its guests need for floors and objectives; no less than
    /// [`HostRecord::short_of_floors`].
    pub fn short_of_objectives(&self) -> Bytes {
        Bytes::new(self.figures().short_of_needed())
    }

    /// Settings and the time only decide whether a record is fresh.
    fn figures(&self) -> HostFigures {
        HostFigures::of(self, &FleetSettings::default(), self.seen_at)
    }
}

/// Sizes are within 2^50.
pub(crate) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

pub(crate) fn positive(bytes: i64) -> u64 {
    u64::try_from(bytes).unwrap_or(0)
}
