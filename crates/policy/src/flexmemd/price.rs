//! Prices of rented memory.
//!
//! Idea: a price is an exact fraction, credits per number of pages for one period, so that neither
//! a bid (credits over pages) nor a part of all rentable memory is ever rounded. Rents are rounded
//! up and affordable pages down, so no guest rents more than it can pay for. [`PriceRule`] sets the
//! price that a guest pays; a [`Tariff`] is the operator's table of prices.
//!
//! Source: flexmemd §3.2.3, §4. Limits: prices above [`PRICE_MAX`] are reduced to it.

use std::cmp::Ordering;
use std::num::NonZeroU64;

use ballast_model::Divisor;

use super::pricing::Pricing;

/// KiB in a page; prices are written per KiB, memory is rented in pages.
const KIB_PER_PAGE: u64 = ballast_model::PAGE_SIZE >> 10;

/// Highest price per KiB and period. A guest with the usual initial credits can pay 1,000 for each
/// KiB of its floor, so this is ample. It keeps products within 128 bits.
pub const PRICE_MAX: u64 = 1 << 20;

/// Most steps of a [`Tariff`].
pub const TARIFF_STEPS_MAX: usize = 16;

/// Basis points (hundredths of a percent) in a whole, the unit of tariff steps.
const BASIS_POINTS: u64 = 10_000;

/// Credits per number of pages for one period.
#[derive(Clone, Copy, Debug)]
pub struct Price {
    credits: u64,
    pages: u64,
}

impl Price {
    /// No charge.
    pub const FREE: Price = Price { credits: 0, pages: 1 };

    /// `credits` for every KiB; at most [`PRICE_MAX`].
    pub const fn per_kib(credits: u64) -> Price {
        let credits = if credits > PRICE_MAX { PRICE_MAX } else { credits };
        Price { credits: credits * KIB_PER_PAGE, pages: 1 }
    }

    /// `credits` for `pages` pages; free if `pages` is zero.
    pub const fn of_pages(credits: u64, pages: u64) -> Price {
        if pages == 0 { Price::FREE } else { Price { credits, pages } }
    }

    /// Whether memory costs nothing.
    pub const fn is_free(self) -> bool {
        self.credits == 0
    }

    /// Credits that `pages` pages cost for one period, rounded up; saturates.
    pub fn rent(self, pages: u64) -> u64 {
        let rent = u128::from(self.credits) * u128::from(pages);
        u64::try_from(rent.div_ceil(u128::from(self.pages))).unwrap_or(u64::MAX)
    }

    /// Pages that `credits` can rent for one period, rounded down; `u64::MAX` if they are free.
    pub fn affordable(self, credits: u64) -> u64 {
        if self.is_free() {
            return u64::MAX;
        }
        if self.pages == 1 {
            return credits / self.credits;
        }
        let pages = u128::from(credits) * u128::from(self.pages) / u128::from(self.credits);
        u64::try_from(pages).unwrap_or(u64::MAX)
    }

    /// The same price, prepared for many guests.
    pub(super) fn for_many(self) -> PriceForMany {
        let divisor = |n: u64| NonZeroU64::new(n).map(Divisor::new);
        PriceForMany {
            price: self,
            by_credits: divisor(self.credits),
            by_pages: divisor(self.pages),
        }
    }

    /// Pages that the pooled `credits` of many guests could rent. At most 2^63 credits, and a price
    /// of at most 2^40 pages.
    pub(super) fn affordable_in_sum(self, credits: u128) -> u128 {
        if self.is_free() {
            return u128::from(u64::MAX);
        }
        credits * u128::from(self.pages) / u128::from(self.credits)
    }

    /// Thousandths of a credit per KiB and period, rounded down; for display only.
    pub fn thousandths_per_kib(self) -> u64 {
        if let (Some(thousandths), Some(kib)) =
            (self.credits.checked_mul(1000), self.pages.checked_mul(KIB_PER_PAGE))
        {
            return thousandths / kib.max(1);
        }
        let thousandths =
            u128::from(self.credits) * 1000 / (u128::from(self.pages) * u128::from(KIB_PER_PAGE));
        u64::try_from(thousandths).unwrap_or(u64::MAX)
    }
}

/// A [`Price`] with prepared divisors, for many guests that pay the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct PriceForMany {
    price: Price,
    /// `None` if memory is free.
    by_credits: Option<Divisor>,
    by_pages: Option<Divisor>,
}

impl PriceForMany {
    /// As [`Price::affordable`].
    pub(super) fn affordable(&self, credits: u64) -> u64 {
        let pages = u128::from(credits) * u128::from(self.price.pages);
        self.by_credits
            .and_then(|divisor| divisor.div_rem(pages))
            .map_or(u64::MAX, |(pages, _)| pages)
    }

    /// As [`Price::rent`].
    pub(super) fn rent(&self, pages: u64) -> u64 {
        let credits = u128::from(pages) * u128::from(self.price.credits);
        self.by_pages
            .and_then(|divisor| divisor.div_rem(credits))
            .map_or(u64::MAX, |(rent, rest)| rent.saturating_add(u64::from(rest > 0)))
    }
}

impl PartialEq for Price {
    fn eq(&self, other: &Price) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Price {}

impl PartialOrd for Price {
    fn partial_cmp(&self, other: &Price) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Exact comparison: the higher price is greater.
impl Ord for Price {
    fn cmp(&self, other: &Price) -> Ordering {
        let product = |credits: u64, pages: u64| u128::from(credits) * u128::from(pages);
        product(self.credits, other.pages).cmp(&product(other.credits, self.pages))
    }
}

/// How the price is set while demand exceeds supply; otherwise memory is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriceRule {
    /// No guest pays; there are no credits.
    None,
    /// The same for every guest: credits per KiB and period, at most [`PRICE_MAX`].
    Fixed(u64),
    /// Proportional to the part of rentable memory that a guest rents, with this many credits per
    /// KiB and period for all of it; at most [`PRICE_MAX`].
    Proportional(u64),
    /// From the operator's table.
    Custom(Tariff),
    /// Found by the algorithm from wants and credits.
    Market,
}

impl PriceRule {
    /// The default constant `c` of the proportional price. At 100, with two guests and floors as
    /// large as rentable memory, a guest that always rents two thirds runs out of credits: it can
    /// keep at most a third more than its fair part while the other demands it.
    pub const PROPORTIONAL_DEFAULT: u64 = 100;

    /// The default fixed price: the default proportional price of a guest that rents half of all.
    pub const FIXED_DEFAULT: u64 = 50;

    /// The rule of kind `pricing` with default figures; the default table has one step at the fixed
    /// price.
    pub fn default_of(pricing: Pricing) -> PriceRule {
        match pricing {
            Pricing::None => PriceRule::None,
            Pricing::Fixed => PriceRule::Fixed(PriceRule::FIXED_DEFAULT),
            Pricing::Proportional => PriceRule::Proportional(PriceRule::PROPORTIONAL_DEFAULT),
            Pricing::Custom => PriceRule::Custom(Tariff::flat(PriceRule::FIXED_DEFAULT as u32)),
            Pricing::Market => PriceRule::Market,
        }
    }

    /// The price for a guest that rents `rented` of `rentable` pages. The market's price is not
    /// known here and counts as free.
    pub fn price(&self, rented: u64, rentable: u64) -> Price {
        match self {
            PriceRule::None | PriceRule::Market => Price::FREE,
            PriceRule::Fixed(per_kib) => Price::per_kib(*per_kib),
            PriceRule::Proportional(whole) => {
                let whole = (*whole).min(PRICE_MAX) * KIB_PER_PAGE;
                Price::of_pages(whole.saturating_mul(rented.min(rentable)), rentable)
            }
            PriceRule::Custom(tariff) => Price::per_kib(tariff.per_kib(rented, rentable)),
        }
    }
}

impl From<&PriceRule> for Pricing {
    fn from(rule: &PriceRule) -> Pricing {
        match rule {
            PriceRule::None => Pricing::None,
            PriceRule::Fixed(_) => Pricing::Fixed,
            PriceRule::Proportional(_) => Pricing::Proportional,
            PriceRule::Custom(_) => Pricing::Custom,
            PriceRule::Market => Pricing::Market,
        }
    }
}

/// One step of a [`Tariff`]: the price from a part of rentable memory on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TariffStep {
    /// Part of all rentable memory that the guest rents, in hundredths of a percent, 0 to 10,000.
    pub from_basis_points: u32,
    /// Credits per KiB and period for all the memory the guest rents, at most [`PRICE_MAX`].
    pub per_kib: u32,
}

/// A table of prices by the part of rentable memory that a guest rents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tariff {
    steps: [TariffStep; TARIFF_STEPS_MAX],
    len: usize,
}

/// An invalid tariff.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TariffError {
    /// No steps, or too many.
    #[error("tariff has {0} steps: expected 1 to {TARIFF_STEPS_MAX}")]
    Steps(usize),
    /// The first step is above 0, so small rents have no price.
    #[error("tariff starts at {0} basis points: its first step must be at 0")]
    FirstStep(u32),
    /// Steps out of order, or above the whole.
    #[error(
        "tariff step {step} is at {at} basis points: it must be above the previous step and at \
         most 10000"
    )]
    Order {
        /// Number of the step, from 1.
        step: usize,
        /// Its position.
        at: u32,
    },
    /// A price that falls, so that renting more could cost less.
    #[error(
        "tariff step {step} costs {per_kib}: it must cost no less than the previous step and at \
         most {PRICE_MAX}"
    )]
    Price {
        /// Number of the step, from 1.
        step: usize,
        /// Its price.
        per_kib: u32,
    },
}

impl Tariff {
    /// A tariff of `steps`: the first at zero, each higher and no cheaper than the one before.
    ///
    /// # Errors
    /// Names the invalid step.
    pub fn new(steps: &[TariffStep]) -> Result<Tariff, TariffError> {
        let first = steps.first().ok_or(TariffError::Steps(0))?;
        if steps.len() > TARIFF_STEPS_MAX {
            return Err(TariffError::Steps(steps.len()));
        }
        if first.from_basis_points != 0 {
            return Err(TariffError::FirstStep(first.from_basis_points));
        }
        let mut before: Option<TariffStep> = None;
        for (i, step) in steps.iter().enumerate() {
            let at = step.from_basis_points;
            if u64::from(at) > BASIS_POINTS || before.is_some_and(|b| at <= b.from_basis_points) {
                return Err(TariffError::Order { step: i + 1, at });
            }
            if u64::from(step.per_kib) > PRICE_MAX
                || before.is_some_and(|b| step.per_kib < b.per_kib)
            {
                return Err(TariffError::Price { step: i + 1, per_kib: step.per_kib });
            }
            before = Some(*step);
        }
        let mut table = [TariffStep::default(); TARIFF_STEPS_MAX];
        table[..steps.len()].copy_from_slice(steps);
        Ok(Tariff { steps: table, len: steps.len() })
    }

    /// One price for any rent.
    const fn flat(per_kib: u32) -> Tariff {
        let mut steps = [TariffStep { from_basis_points: 0, per_kib: 0 }; TARIFF_STEPS_MAX];
        steps[0].per_kib = per_kib;
        Tariff { steps, len: 1 }
    }

    /// The steps, in order.
    pub fn steps(&self) -> &[TariffStep] {
        &self.steps[..self.len]
    }

    /// Credits per KiB and period for a guest that rents `rented` of `rentable` pages.
    fn per_kib(&self, rented: u64, rentable: u64) -> u64 {
        let reached = |step: &TariffStep| {
            u128::from(rented) * u128::from(BASIS_POINTS)
                >= u128::from(rentable) * u128::from(step.from_basis_points)
        };
        self.steps()
            .iter()
            .rev()
            .find(|step| reached(step))
            .map_or(0, |step| u64::from(step.per_kib))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rent_rounds_up_and_affordable_pages_round_down() {
        // 3 credits a KiB are 12 a page.
        let price = Price::per_kib(3);
        assert_eq!((price.rent(10), price.affordable(120), price.affordable(131)), (120, 10, 10));
        // At 7 credits for 3 pages, 4 pages cost 9⅓, and 10 credits rent 4.28 pages.
        let price = Price::of_pages(7, 3);
        assert_eq!((price.rent(4), price.affordable(10)), (10, 4));
        assert_eq!((Price::FREE.rent(u64::MAX), Price::FREE.affordable(0)), (0, u64::MAX));
        assert!(Price::of_pages(7, 3) > Price::of_pages(2, 1));
        assert_eq!(Price::of_pages(6, 3), Price::of_pages(2, 1));
        assert_eq!(Price::of_pages(7, 3).thousandths_per_kib(), 583);
    }

    #[test]
    fn the_proportional_price_follows_the_part_rented() {
        // A quarter of everything at c = 100: 25 a KiB, 100 a page.
        let rule = PriceRule::Proportional(100);
        assert_eq!(rule.price(250, 1000), Price::per_kib(25));
        assert_eq!(rule.price(1000, 1000), Price::per_kib(100));
        assert!(rule.price(0, 1000).is_free() && rule.price(0, 0).is_free());
        // A third is not rounded: 33⅓ a KiB, so 3 pages cost 400.
        assert_eq!(rule.price(1, 3).rent(3), 400);
    }

    #[test]
    fn a_tariff_charges_by_the_step_reached() {
        let step = |from_basis_points, per_kib| TariffStep { from_basis_points, per_kib };
        let tariff = Tariff::new(&[step(0, 0), step(2500, 10), step(5000, 80)]).unwrap();
        for (rented, per_kib) in [(0, 0u64), (249, 0), (250, 10), (499, 10), (500, 80), (1000, 80)]
        {
            let price = PriceRule::Custom(tariff).price(rented, 1000);
            assert_eq!(price, Price::per_kib(per_kib), "{rented}");
        }
    }

    #[test]
    fn invalid_tariffs_are_refused() {
        let step = |from_basis_points, per_kib| TariffStep { from_basis_points, per_kib };
        for (steps, error) in [
            (vec![], TariffError::Steps(0)),
            (vec![step(0, 1); 17], TariffError::Steps(17)),
            (vec![step(1, 1)], TariffError::FirstStep(1)),
            (vec![step(0, 1), step(0, 2)], TariffError::Order { step: 2, at: 0 }),
            (vec![step(0, 1), step(10_001, 2)], TariffError::Order { step: 2, at: 10_001 }),
            (vec![step(0, 5), step(1, 4)], TariffError::Price { step: 2, per_kib: 4 }),
            (vec![step(0, 1_048_577)], TariffError::Price { step: 1, per_kib: 1_048_577 }),
        ] {
            assert_eq!(Tariff::new(&steps), Err(error));
        }
    }
}
