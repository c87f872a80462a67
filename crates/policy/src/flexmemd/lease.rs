//! Guests that rent memory, and their leases.

use std::time::Duration;

use ballast_model::{Bytes, GuestId};

use super::demand::TenantStatistics;
use super::price::Price;

/// Bytes a second that a balloon is assumed to give back until its rate was seen: the slowest
/// inflation seen under swap load, as in the choice of mechanisms.
pub(super) const BALLOON_RATE_DEFAULT: Bytes = Bytes::mib(80);

/// Longest time that a balloon is waited for. In five minutes 23 GiB move at the default rate. A
/// balloon that stands still, or was only seen at amounts too small to tell its rate, must not keep
/// the market closed to a guest that lacks little: with 15 minutes a guest did 2 % of its work for
/// want of 0.4 GiB (`docs/benchmarks/2026-11-27-auction.md`).
pub(super) const BALLOON_WAIT_MAX: Duration = Duration::from_secs(300);

/// A guest's request for more or less memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RentRequest {
    /// Bytes more or, if negative, less.
    pub bytes: i64,
    /// Identifies the request.
    pub number: u64,
}

/// A guest that rents memory, in whole pages below 2^40.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tenant<'a> {
    /// Name.
    pub id: &'a GuestId,
    /// Guaranteed memory: the paper's `static_min`.
    pub floor: u64,
    /// Most memory it may have; at least `floor`.
    pub ceiling: u64,
    /// Shares, 1 to 1,000,000.
    pub shares: u32,
    /// Present target.
    pub allocation: u64,
    /// Memory it held at the time of its statistics; differs from `allocation` while the balloon
    /// lags.
    pub held: u64,
    /// Bytes a second that its balloon was seen to give back; `None`: it was never seen to.
    pub balloon_rate: Option<Bytes>,
    /// Statistics it reports.
    pub statistics: TenantStatistics,
    /// Its last request, answered or not.
    pub request: Option<RentRequest>,
    /// Whether it reports an emergency.
    pub emergency: bool,
}

impl Tenant<'_> {
    /// How long its balloon needs to give back `pages`, at most [`BALLOON_WAIT_MAX`].
    pub(super) fn time_for(&self, pages: u64) -> Duration {
        let rate = self.balloon_rate.unwrap_or(BALLOON_RATE_DEFAULT).get();
        let millis = u128::from(Bytes::pages(pages).get()) * 1000;
        let needed = millis.checked_div(u128::from(rate)).unwrap_or(u128::MAX);
        Duration::from_millis(u64::try_from(needed).unwrap_or(u64::MAX)).min(BALLOON_WAIT_MAX)
    }

    /// Most pages it may rent.
    pub(super) fn room(&self) -> u64 {
        self.ceiling.saturating_sub(self.floor)
    }

    /// Weight for dividing memory and credits.
    pub(super) fn weight(&self) -> u64 {
        self.floor.max(1).saturating_mul(u64::from(self.shares.max(1)))
    }
}

/// Why a guest rents no more than it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseLimit {
    /// It has what it wants.
    Want,
    /// It is at the operator's ceiling.
    Ceiling,
    /// It cannot pay for more.
    Credits,
    /// No more is available to it.
    Supply,
}

/// The memory a guest rents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Pages above its floor.
    pub rented: u64,
    /// Pages above its floor that it wants, even above its ceiling.
    pub wanted: u64,
    /// Price for a period.
    pub price: Price,
    /// Why it rents no more.
    pub limit: LeaseLimit,
}

impl Lease {
    pub(super) const NOTHING: Lease =
        Lease { rented: 0, wanted: 0, price: Price::FREE, limit: LeaseLimit::Want };
}

impl LeaseLimit {
    /// The limit of a guest that rents `rented` and wants `wanted`, `within` of it below its
    /// ceiling, and can pay for `payable`.
    pub(super) fn of(rented: u64, wanted: u64, within: u64, payable: u64) -> LeaseLimit {
        if rented >= wanted {
            LeaseLimit::Want
        } else if rented >= within {
            LeaseLimit::Ceiling
        } else if rented >= payable {
            LeaseLimit::Credits
        } else {
            LeaseLimit::Supply
        }
    }
}
