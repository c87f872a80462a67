//! `fcfs`: first come, first served, for those who can pay (flexmemd §4.2).
//!
//! Properties: keeps things as they are; gives nothing that was not asked for, and takes nothing
//! from anybody that can pay for it, so that whoever comes last waits; the price rises with what one
//! rents already, so that nobody holds more than its part against demand for good.
//!
//! Algorithm: in order of arrival, a negative request gives memory back; a positive one is
//! granted as far as memory is free and the guest can pay for it until the period ends, at the price
//! for what it rents before the grant. At the beginning of each period everybody pays for what it
//! rents or keeps what it can pay for. Nothing costs anything unless demand exceeds supply.
//!
//! Deviations: requests that arrive between two decisions count as arriving together, and who rents
//! less for its weight comes first, since no clock is common to all guests. Demand is what is rented and what is asked for, together with what was asked for
//! since the last period began and could not be granted; the paper does not say how long an unmet
//! request counts. Cost: O(n), O(k) for k requests.

use super::lease::{Lease, Limit};
use super::price::{Price, PriceRule};

/// What one guest rents and may rent, in pages above its floor, and its credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Petitioner {
    /// Rented now.
    pub rented: u64,
    /// Most it may rent: its ceiling less its floor.
    pub room: u64,
    /// Credits it can spend.
    pub credits: u64,
}

/// What a guest was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    /// What it rents from now on, and its price for a whole period.
    pub lease: Lease,
    /// Pages of that which are to be paid for.
    pub more: u64,
    /// Pages wanted below its ceiling and not given.
    pub unmet: u64,
}

/// What is left of the running period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remaining {
    /// Time until it ends, in any unit.
    pub left: u64,
    /// Its length in that unit, at least 1.
    pub length: u64,
}

impl Remaining {
    /// All of it.
    pub(super) const WHOLE: Remaining = Remaining { left: 1, length: 1 };

    /// The part of `rent` for a whole period that is due for the rest of it, rounded up.
    pub(super) fn part(self, rent: u64) -> u64 {
        let due = u128::from(rent) * u128::from(self.left.min(self.length));
        u64::try_from(due.div_ceil(u128::from(self.length.max(1)))).unwrap_or(u64::MAX)
    }

    /// The largest rent for a whole period of which `credits` pays this part.
    fn payable(self, credits: u64) -> u64 {
        let whole = u128::from(credits) * u128::from(self.length.max(1));
        u64::try_from(whole / u128::from(self.left.max(1))).unwrap_or(u64::MAX)
    }
}

/// Grants a wish for `wanted` pages above the floor in all, out of `free` ones.
pub(super) fn grant(
    from: Petitioner,
    wanted: u64,
    free: u64,
    rentable: u64,
    rule: Option<&PriceRule>,
    remaining: Remaining,
) -> Grant {
    let price = rule.map_or(Price::FREE, |rule| rule.price(from.rented, rentable));
    let within = wanted.min(from.room);
    let asked = within.saturating_sub(from.rented);
    let payable = price.affordable(remaining.payable(from.credits));
    let more = asked.min(free).min(payable);
    let rented = within.min(from.rented) + more;
    let limit = Limit::of(rented, wanted, within, from.rented.saturating_add(payable));
    Grant { lease: Lease { rented, wanted, price, limit }, more, unmet: asked - more }
}

/// What a guest keeps into a new period.
pub(super) fn renew(from: Petitioner, rentable: u64, rule: Option<&PriceRule>) -> Grant {
    let price = rule.map_or(Price::FREE, |rule| rule.price(from.rented, rentable));
    let within = from.rented.min(from.room);
    let payable = price.affordable(from.credits);
    let rented = within.min(payable);
    let limit = Limit::of(rented, from.rented, within, payable);
    let lease = Lease { rented, wanted: from.rented, price, limit };
    Grant { lease, more: rented, unmet: within - rented }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: PriceRule = PriceRule::Proportional(100);

    fn from(rented: u64, credits: u64) -> Petitioner {
        Petitioner { rented, room: 1000, credits }
    }

    #[test]
    fn by_hand() {
        // Rents 250 of 1,000 pages at c = 100: 25 a KiB, 100 a page and period.
        let grant = |wanted, free, credits, remaining| {
            super::grant(from(250, credits), wanted, free, 1000, Some(&RULE), remaining)
        };
        let all = grant(290, 60, 5000, Remaining::WHOLE);
        assert_eq!((all.lease.rented, all.more, all.unmet), (290, 40, 0));
        assert_eq!((all.lease.price, all.lease.limit), (Price::per_kib(25), Limit::Want));
        // No more than is free, than it can pay for, than its ceiling.
        let short = grant(290, 30, 5000, Remaining::WHOLE);
        assert_eq!((short.more, short.unmet, short.lease.limit), (30, 10, Limit::Supply));
        let poor = grant(290, 60, 1234, Remaining::WHOLE);
        assert_eq!((poor.more, poor.unmet, poor.lease.limit), (12, 28, Limit::Credits));
        let tall = grant(2000, 5000, 1 << 40, Remaining::WHOLE);
        assert_eq!((tall.lease.rented, tall.unmet, tall.lease.limit), (1000, 0, Limit::Ceiling));
        // With a quarter of the period left, four times as much.
        let quarter = Remaining { left: 250, length: 1000 };
        assert_eq!(grant(340, 60, 1234, quarter).more, 49);
        assert_eq!(quarter.part(4900), 1225);
    }

    #[test]
    fn giving_back_never_goes_below_the_floor() {
        let back = grant(from(250, 0), 160, 0, 1000, Some(&RULE), Remaining::WHOLE);
        assert_eq!((back.lease.rented, back.more, back.unmet), (160, 0, 0));
        let all = grant(from(250, 0), 0, 0, 1000, Some(&RULE), Remaining::WHOLE);
        assert_eq!(all.lease.rented, 0);
    }

    #[test]
    fn who_cannot_pay_keeps_what_it_can() {
        // 400 of 1,000: 40 a KiB, 160 a page; 16,000 credits are 100 pages.
        let kept = renew(from(400, 16_000), 1000, Some(&RULE));
        assert_eq!((kept.lease.rented, kept.unmet, kept.lease.limit), (100, 300, Limit::Credits));
        // While supply suffices, everything.
        assert_eq!(renew(from(400, 0), 1000, None).lease.rented, 400);
    }
}
