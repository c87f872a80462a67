//! Who rents memory, and what comes of it.

use ballast_model::GuestId;

use super::demand::Statistics;
use super::price::Price;

/// A guest's wish for more memory, or less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Bytes more; negative: less.
    pub bytes: i64,
    /// The same number is the same request.
    pub number: u64,
}

/// A guest that rents memory, in whole pages below 2^40.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tenant<'a> {
    /// Its name.
    pub id: &'a GuestId,
    /// What it is guaranteed: the paper's `static_min`.
    pub floor: u64,
    /// Most it may have; at least `floor`.
    pub ceiling: u64,
    /// Its shares, 1 to 1,000,000.
    pub shares: u32,
    /// What it is to have now.
    pub allocation: u64,
    /// What it had when its statistics were made; while a balloon lags that is not `allocation`.
    pub held: u64,
    /// What it reports.
    pub statistics: Statistics,
    /// What it asked for last, answered or not.
    pub request: Option<Request>,
    /// Whether it says that it cannot go on.
    pub emergency: bool,
}

impl Tenant<'_> {
    /// Pages it may rent.
    pub(super) fn room(&self) -> u64 {
        self.ceiling.saturating_sub(self.floor)
    }

    /// What memory and credits are shared out by.
    pub(super) fn weight(&self) -> u64 {
        self.floor.max(1).saturating_mul(u64::from(self.shares.max(1)))
    }
}

/// Why a guest has no more than it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// It has what it wants.
    Want,
    /// The operator's ceiling.
    Ceiling,
    /// It cannot pay for more.
    Credits,
    /// There is no more for it.
    Supply,
}

/// What a guest rents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Pages above its floor.
    pub rented: u64,
    /// Pages above its floor that it wants, whatever its ceiling.
    pub wanted: u64,
    /// What it pays for a period.
    pub price: Price,
    /// Why it is no more.
    pub limit: Limit,
}

impl Lease {
    pub(super) const NOTHING: Lease =
        Lease { rented: 0, wanted: 0, price: Price::FREE, limit: Limit::Want };
}

impl Limit {
    /// Why a guest that wants `wanted`, `within` of it below its ceiling, has `rented` and could
    /// pay for `payable`.
    pub(super) fn of(rented: u64, wanted: u64, within: u64, payable: u64) -> Limit {
        if rented >= wanted {
            Limit::Want
        } else if rented >= within {
            Limit::Ceiling
        } else if rented >= payable {
            Limit::Credits
        } else {
            Limit::Supply
        }
    }
}
