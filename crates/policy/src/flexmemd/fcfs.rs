//! `fcfs`: first come, first served, for guests that can pay (flexmemd §4.2).
//!
//! Properties: stable; gives no memory that was not requested, and takes none from a guest that can
//! pay for it, so the last to come waits. The price rises with what a guest already rents, so no
//! guest keeps more than its part forever while others demand it.
//!
//! Algorithm: requests are processed in order of arrival. A negative one gives memory back; a
//! positive one is granted as far as memory is free and the guest can pay for it until the period
//! ends, at the price for what it rented before the grant. At the beginning of each period every
//! guest pays for what it rents as far as it can. Memory that it cannot pay for goes to guests that
//! request memory and can pay; the guest keeps what they leave. Memory is free unless demand
//! exceeds supply.
//!
//! Deviations: in the paper a guest loses what it cannot pay for, even if no other guest can pay.
//! It then rented less, so at a lower price, and could pay for as much more in the next period:
//! memory that two guests wanted equally went back and forth forever, each second. Guests have no
//! common clock, so requests that arrive between two decisions count as simultaneous. The guest
//! that rents least for its weight comes first, also in keeping what is left. Demand is the memory
//! rented and requested, plus requests since the last period began that could not be granted; the
//! paper does not say how long an unmet request counts.
//! Cost: O(n log n).

use super::lease::{Lease, LeaseLimit};
use super::price::{Price, PriceRule};

/// A guest that requests memory, in pages above its floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Requester {
    /// Pages rented now.
    pub rented: u64,
    /// Most pages it may rent: its ceiling minus its floor.
    pub room: u64,
    /// Credits it can spend.
    pub credits: u64,
}

/// The result of a request or renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RentGrant {
    /// The new lease, priced for a whole period.
    pub lease: Lease,
    /// Pages of it to be paid for now.
    pub more: u64,
    /// Pages wanted below its ceiling but not granted.
    pub unmet: u64,
}

/// The rest of the running period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RemainingPeriod {
    /// Time until it ends, in any unit.
    pub left: u64,
    /// Length of the period in that unit, at least 1.
    pub length: u64,
}

impl RemainingPeriod {
    /// The whole period.
    pub(super) const WHOLE: RemainingPeriod = RemainingPeriod { left: 1, length: 1 };

    /// The part of `rent`, for a whole period, that is due for the rest of it, rounded up.
    pub(super) fn part(self, rent: u64) -> u64 {
        let due = u128::from(rent) * u128::from(self.left.min(self.length));
        u64::try_from(due.div_ceil(u128::from(self.length.max(1)))).unwrap_or(u64::MAX)
    }

    /// The largest rent for a whole period such that `credits` can pay this part of it.
    fn payable(self, credits: u64) -> u64 {
        let whole = u128::from(credits) * u128::from(self.length.max(1));
        u64::try_from(whole / u128::from(self.left.max(1))).unwrap_or(u64::MAX)
    }
}

/// Grants as much as possible of a request for `wanted` pages above the floor in all; `free` more
/// pages are available.
pub(super) fn grant(
    from: Requester,
    wanted: u64,
    free: u64,
    rentable: u64,
    rule: Option<&PriceRule>,
    remaining: RemainingPeriod,
) -> RentGrant {
    let price = rule.map_or(Price::FREE, |rule| rule.price(from.rented, rentable));
    let within = wanted.min(from.room);
    let requested = within.saturating_sub(from.rented);
    let payable = price.affordable(remaining.payable(from.credits));
    let more = requested.min(free).min(payable);
    let rented = within.min(from.rented) + more;
    let limit = LeaseLimit::of(rented, wanted, within, from.rented.saturating_add(payable));
    RentGrant { lease: Lease { rented, wanted, price, limit }, more, unmet: requested - more }
}

/// The lease that a guest can pay for in a new period.
pub(super) fn renew(from: Requester, rentable: u64, rule: Option<&PriceRule>) -> RentGrant {
    let price = rule.map_or(Price::FREE, |rule| rule.price(from.rented, rentable));
    let within = from.rented.min(from.room);
    let payable = price.affordable(from.credits);
    let rented = within.min(payable);
    let limit = LeaseLimit::of(rented, from.rented, within, payable);
    let lease = Lease { rented, wanted: from.rented, price, limit };
    RentGrant { lease, more: rented, unmet: within - rented }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: PriceRule = PriceRule::Proportional(100);

    fn from(rented: u64, credits: u64) -> Requester {
        Requester { rented, room: 1000, credits }
    }

    #[test]
    fn grants_are_limited_by_supply_credits_and_ceiling() {
        // Renting 250 of 1,000 pages at c = 100 costs 25 a KiB, 100 a page and period.
        let grant = |wanted, free, credits, remaining| {
            super::grant(from(250, credits), wanted, free, 1000, Some(&RULE), remaining)
        };
        let all = grant(290, 60, 5000, RemainingPeriod::WHOLE);
        assert_eq!((all.lease.rented, all.more, all.unmet), (290, 40, 0));
        assert_eq!((all.lease.price, all.lease.limit), (Price::per_kib(25), LeaseLimit::Want));
        // Limited by free memory, by credits and by the ceiling.
        let short = grant(290, 30, 5000, RemainingPeriod::WHOLE);
        assert_eq!((short.more, short.unmet, short.lease.limit), (30, 10, LeaseLimit::Supply));
        let poor = grant(290, 60, 1234, RemainingPeriod::WHOLE);
        assert_eq!((poor.more, poor.unmet, poor.lease.limit), (12, 28, LeaseLimit::Credits));
        let tall = grant(2000, 5000, 1 << 40, RemainingPeriod::WHOLE);
        assert_eq!(
            (tall.lease.rented, tall.unmet, tall.lease.limit),
            (1000, 0, LeaseLimit::Ceiling)
        );
        // With a quarter of the period left, four times as many pages are affordable.
        let quarter = RemainingPeriod { left: 250, length: 1000 };
        assert_eq!(grant(340, 60, 1234, quarter).more, 49);
        assert_eq!(quarter.part(4900), 1225);
    }

    #[test]
    fn giving_back_never_goes_below_the_floor() {
        let back = grant(from(250, 0), 160, 0, 1000, Some(&RULE), RemainingPeriod::WHOLE);
        assert_eq!((back.lease.rented, back.more, back.unmet), (160, 0, 0));
        let all = grant(from(250, 0), 0, 0, 1000, Some(&RULE), RemainingPeriod::WHOLE);
        assert_eq!(all.lease.rented, 0);
    }

    #[test]
    fn renewal_keeps_only_what_can_be_paid_for() {
        // Renting 400 of 1,000 pages costs 40 a KiB, 160 a page; 16,000 credits pay for 100 pages.
        let kept = renew(from(400, 16_000), 1000, Some(&RULE));
        assert_eq!(
            (kept.lease.rented, kept.unmet, kept.lease.limit),
            (100, 300, LeaseLimit::Credits)
        );
        // Without a price all is kept.
        assert_eq!(renew(from(400, 0), 1000, None).lease.rented, 400);
    }
}
