//! The event loop that the six algorithms share (flexmemd §3.2, its Algorithm 1).
//!
//! Idea: the driver is called at every tick and does what is due: it collects taxes each second and
//! settles rents when a period ends. It runs the algorithm when a period ends, when a request comes
//! and the combination answers requests at once, or when a guest has an emergency. Otherwise all
//! guests keep what they rent. An emergency cuts the period short; rent paid for the rest of it is
//! refunded first. Each request is answered once, and an emergency of a guest once per period, so
//! deciding twice at the same time changes nothing.
//!
//! The algorithm also runs at once when guests come or go, and when rented memory no longer fits.
//!
//! Deviations: line 7 of Algorithm 1 prints `period_end ≥ curr` for periodic work, which is due
//! when `curr ≥ period_end`. A new guest rents what it holds above its floor, as far as that fits.
//! After an emergency a guest waits for the length of a period, not for the next period; otherwise
//! every emergency would begin the period that allows the next one.
//!
//! After an auction sold memory at a price, the next one waits until the balloons have had the time
//! to move what was sold ([`Driver::wait_for_balloons`]). Otherwise guests would be outbid before
//! their purchase arrives, and memory would be on its way all the time. Meanwhile no guest is
//! outbid. Memory that a guest no longer wants goes to the others at once and free of charge, and
//! requests wait. The tax is due once in such a period, like the paper's in its period of a second.
//! Collected by the second, it would leave all guests with equal credits at each auction, and none
//! would ever have its turn.
//! The operator's ceiling, which the paper does not have, limits what a guest keeps; the rest is
//! offered to the others.
//!
//! Cost: O(n log n) a decision, O(n) while nothing is due.

mod fcfs_run;

use std::time::Duration;

use ballast_model::{Bytes, GuestId, Timestamp};

use super::auction::{auction, by_descending_bids};
use super::combination::{Algorithm, Combination, CombinationError, DemandInput, Frequency};
use super::credits::{AccountHolder, Accounts, TAX_INTERVAL};
use super::demand;
use super::demand_proportional::demand_proportional;
use super::direct_assign::direct_assign;
use super::fcfs::RemainingPeriod;
use super::lease::{Lease, LeaseLimit, Tenant};
use super::market::Bidder;
use super::max_min::divide;
use super::price::{Price, PriceRule};
use super::proportional::proportional;
use super::round_robin::round_robin;
use super::settings::FlexmemdSettings;

/// State of one guest between decisions.
#[derive(Clone, Debug)]
struct TenantRecord {
    id: GuestId,
    lease: Lease,
    /// Number of the last request answered.
    answered: Option<u64>,
    /// Time of the last emergency answered.
    emergency: Option<Timestamp>,
    /// Pages requested in this period but not granted.
    unmet: u64,
    /// Pages of the lease that it cannot pay for, and keeps until another guest can.
    unpaid: u64,
}

#[derive(Clone, Copy, Debug)]
struct RentPeriod {
    begin: Timestamp,
    end: Timestamp,
}

impl RentPeriod {
    fn length(self) -> Duration {
        self.end.saturating_since(self.begin)
    }
}

/// One policy of flexmemd with its state.
#[derive(Clone, Debug)]
pub struct Driver {
    combination: Combination,
    rule: PriceRule,
    settings: FlexmemdSettings,
    accounts: Accounts,
    records: Vec<TenantRecord>,
    period: Option<RentPeriod>,
}

impl Driver {
    /// A policy with a valid combination and prices by `rule`.
    pub(super) fn of(
        combination: Combination,
        rule: PriceRule,
        settings: FlexmemdSettings,
    ) -> Driver {
        Driver {
            combination,
            rule,
            settings,
            accounts: Accounts::new(settings.tax_basis_points),
            records: Vec::new(),
            period: None,
        }
    }

    /// A policy with `algorithm` and the combination that `settings` choose for it.
    ///
    /// # Errors
    /// The combination is not valid.
    pub fn new(
        algorithm: Algorithm,
        settings: FlexmemdSettings,
    ) -> Result<Driver, CombinationError> {
        let (combination, rule) = settings.choice.with(algorithm)?;
        Ok(Driver::of(combination, rule, settings))
    }

    /// Time between decisions: a period, but at most a second because of taxes and requests.
    pub fn interval(&self) -> Duration {
        self.period_length().min(TAX_INTERVAL)
    }

    /// The policy's combination.
    pub fn combination(&self) -> Combination {
        self.combination
    }

    /// The guests' credits; indices are those of the last decision.
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// Whether guests pay rent.
    pub fn has_accounts(&self) -> bool {
        !matches!(
            self.combination.algorithm,
            Algorithm::Proportional | Algorithm::DemandProportional
        )
    }

    /// See [`Accounts::restore`].
    pub fn restore_credits(&mut self, credits: &[(GuestId, u64)], now: Timestamp) {
        self.accounts.restore(credits, now);
    }

    /// See [`Accounts::set`].
    pub fn set_credits(&mut self, guest: &GuestId, credits: u64, now: Timestamp) {
        self.accounts.set(guest, credits, now);
    }

    /// Decides what each guest rents from `now` on, at most `rentable` pages in sum; `tenants` must
    /// be sorted by name and unique.
    pub fn decide(&mut self, now: Timestamp, rentable: u64, tenants: &[Tenant<'_>]) -> Vec<Lease> {
        let weights: Vec<u64> = tenants.iter().map(Tenant::weight).collect();
        if self.combination.algorithm == Algorithm::Proportional {
            return by_weight(rentable, tenants, &weights);
        }
        let changed = self.align(tenants);
        self.admit(now, tenants, &weights);
        let is_over = self.period.is_none_or(|period| now >= period.end);
        let emergency = self.answer_emergencies(now, tenants);
        let begins_period =
            is_over || emergency || changed || self.exceeds_rentable(rentable, tenants);
        let waits = self.waits_for_balloons();
        match (waits, begins_period) {
            (false, _) => self.accounts.tax(now),
            (true, true) => self.accounts.tax_once(now),
            (true, false) => {}
        }
        let answers_requests = !waits
            && self.combination.frequency == Frequency::Immediate
            && tenants.iter().zip(&self.records).any(|(t, r)| pending(t, r.answered));
        if begins_period || (answers_requests && self.sells()) {
            self.begin_period(now);
            self.make_fit(rentable, tenants, &weights);
            self.run(rentable, tenants, &weights, RemainingPeriod::WHOLE, true);
        } else if answers_requests {
            let remaining = self.remaining(now);
            self.run(rentable, tenants, &weights, remaining, false);
        } else if waits && self.combination.demand == DemandInput::Implicit {
            self.pass_on(rentable, tenants, &weights);
        }
        self.records.iter().map(|record| record.lease).collect()
    }

    /// Whether every run sells all memory again, at one price.
    fn sells(&self) -> bool {
        use Algorithm::{Auction, DirectAssign, RoundRobin};
        matches!(self.combination.algorithm, DirectAssign | Auction | RoundRobin)
    }

    /// Aligns the records with `tenants`; returns whether guests came or went. A new guest rents
    /// what it holds.
    fn align(&mut self, tenants: &[Tenant<'_>]) -> bool {
        let same = self.records.len() == tenants.len()
            && self.records.iter().zip(tenants).all(|(record, tenant)| record.id == *tenant.id);
        if same {
            return false;
        }
        let mut old = std::mem::take(&mut self.records).into_iter().peekable();
        for tenant in tenants {
            while old.next_if(|record| record.id < *tenant.id).is_some() {}
            let rented = tenant.allocation.saturating_sub(tenant.floor);
            self.records.push(old.next_if(|record| record.id == *tenant.id).unwrap_or(
                TenantRecord {
                    id: tenant.id.clone(),
                    lease: Lease { rented, wanted: rented, ..Lease::NOTHING },
                    answered: None,
                    emergency: None,
                    unmet: 0,
                    unpaid: 0,
                },
            ));
        }
        true
    }

    fn admit(&mut self, now: Timestamp, tenants: &[Tenant<'_>], weights: &[u64]) {
        let holders: Vec<AccountHolder<'_>> = tenants
            .iter()
            .zip(weights)
            .map(|(tenant, &weight)| {
                // 1,000 a KiB of the floor at the default shares.
                let kib = Bytes::pages(tenant.floor).get() >> 10;
                let start = kib.saturating_mul(u64::from(tenant.shares));
                AccountHolder { id: tenant.id, weight, start }
            })
            .collect();
        self.accounts.admit(&holders, now);
    }

    /// Whether an emergency that was last answered at `last` is answered at `now`: once a period,
    /// and not at the moment when a period begins, because all guests were just decided for.
    fn may_answer(&self, last: Option<Timestamp>, now: Timestamp) -> bool {
        let length = self.period.map_or(self.period_length(), |period| period.length());
        let has_just_begun = self.period.is_some_and(|period| period.begin == now);
        !has_just_begun && last.is_none_or(|last| now.saturating_since(last) >= length)
    }

    /// Whether the running period was prolonged because an auction sold memory at a price.
    fn waits_for_balloons(&self) -> bool {
        self.period.is_some_and(|period| period.length() > self.period_length())
    }

    /// Prolongs the period until the slowest balloon has had the time to give back everything that
    /// its guest rents now, or `rented` before, whichever is more; balloons work in parallel. For a
    /// guest that rents everything, that is the time in which its balloon moves all rentable
    /// memory.
    fn wait_for_balloons(&mut self, tenants: &[Tenant<'_>], rented: &[u64]) {
        let leases = self.records.iter().map(|record| record.lease.rented);
        let most = leases.zip(rented).map(|(now, before)| now.max(*before));
        let times = most.zip(tenants).map(|(pages, tenant)| tenant.time_for(pages));
        let longest = times.max().unwrap_or_default();
        if let Some(period) = &mut self.period {
            period.end = period.begin + longest.max(period.length());
        }
    }

    fn period_length(&self) -> Duration {
        self.settings.period.max(FlexmemdSettings::PERIOD_MIN)
    }

    /// Notes emergencies to be answered now; returns whether there are any.
    fn answer_emergencies(&mut self, now: Timestamp, tenants: &[Tenant<'_>]) -> bool {
        let mut any = false;
        for (index, tenant) in tenants.iter().enumerate() {
            if tenant.emergency && self.may_answer(self.records[index].emergency, now) {
                self.records[index].emergency = Some(now);
                any = true;
            }
        }
        any
    }

    fn exceeds_rentable(&self, rentable: u64, tenants: &[Tenant<'_>]) -> bool {
        let leases = || self.records.iter().map(|record| record.lease);
        let rented: u128 = leases().map(|lease| u128::from(lease.rented)).sum();
        rented > u128::from(rentable)
            || leases().zip(tenants).any(|(lease, tenant)| lease.rented > tenant.room())
    }

    /// Ends the period, with a refund for the rest of it, and begins the next.
    fn begin_period(&mut self, now: Timestamp) {
        if let Some(RentPeriod { begin, end }) = self.period {
            let ms = |from: Timestamp| end.saturating_since(from).as_millis() as u64;
            self.accounts.settle(ms(now), ms(begin));
        }
        self.period = Some(RentPeriod { begin: now, end: now + self.period_length() });
    }

    fn remaining(&self, now: Timestamp) -> RemainingPeriod {
        self.period.map_or(RemainingPeriod::WHOLE, |RentPeriod { begin, end }| {
            let ms = |from: Timestamp| end.saturating_since(from).as_millis() as u64;
            RemainingPeriod { left: ms(now), length: ms(begin).max(1) }
        })
    }

    /// Reduces rents to ceilings and supply, taking from the guests that rent most for their
    /// weight.
    fn make_fit(&mut self, rentable: u64, tenants: &[Tenant<'_>], weights: &[u64]) {
        let kept: Vec<u64> = self
            .records
            .iter()
            .zip(tenants)
            .map(|(record, tenant)| record.lease.rented.min(tenant.room()))
            .collect();
        for (record, rented) in self.records.iter_mut().zip(divide(&kept, weights, rentable)) {
            record.lease.rented = rented;
        }
    }

    fn run(
        &mut self,
        rentable: u64,
        tenants: &[Tenant<'_>],
        weights: &[u64],
        remaining: RemainingPeriod,
        begins_period: bool,
    ) {
        match self.combination.algorithm {
            Algorithm::Fcfs => self.run_fcfs(rentable, tenants, weights, remaining, begins_period),
            Algorithm::DemandProportional => self.run_max_min(rentable, tenants, weights),
            _ => self.run_market(rentable, tenants, weights),
        }
        for (record, tenant) in self.records.iter_mut().zip(tenants) {
            record.answered = tenant.request.map(|request| request.number).or(record.answered);
        }
    }

    /// Pages that the guest at `index` wants above its floor.
    fn want(&self, index: usize, tenant: &Tenant<'_>) -> u64 {
        let floor = Bytes::pages(tenant.floor);
        let record = &self.records[index];
        let wanted = match self.combination.demand {
            DemandInput::Implicit => {
                let (old, held) = (Bytes::pages(tenant.allocation), Bytes::pages(tenant.held));
                let thresholds = self.settings.thresholds;
                demand::implicit(old, held, floor, tenant.statistics, thresholds)
            }
            _ => {
                let current = floor.saturating_add(Bytes::pages(record.lease.rented));
                let pending = tenant.request.filter(|_| pending(tenant, record.answered));
                pending.map_or(current, |it| demand::explicit(current, floor, it.bytes))
            }
        };
        wanted.to_pages().saturating_sub(tenant.floor)
    }

    fn wants(&self, tenants: &[Tenant<'_>]) -> Vec<u64> {
        tenants.iter().enumerate().map(|(index, tenant)| self.want(index, tenant)).collect()
    }

    fn run_max_min(&mut self, rentable: u64, tenants: &[Tenant<'_>], weights: &[u64]) {
        let wants = self.wants(tenants);
        let within: Vec<u64> =
            wants.iter().zip(tenants).map(|(want, tenant)| *want.min(&tenant.room())).collect();
        let parts = demand_proportional(&within, weights, rentable);
        for (index, rented) in parts.into_iter().enumerate() {
            let (wanted, within) = (wants[index], within[index]);
            let limit = LeaseLimit::of(rented, wanted, within, u64::MAX);
            self.records[index].lease = Lease { rented, wanted, price: Price::FREE, limit };
        }
    }

    fn run_market(&mut self, rentable: u64, tenants: &[Tenant<'_>], weights: &[u64]) {
        let (wants, bidders): (Vec<u64>, Vec<Bidder>) = tenants
            .iter()
            .enumerate()
            .map(|(index, tenant)| {
                let (want, credits) = (self.want(index, tenant), self.accounts.balance(index));
                (want, Bidder { want: want.min(tenant.room()), credits, weight: weights[index] })
            })
            .unzip();
        let before: Vec<u64> = self.records.iter().map(|record| record.lease.rented).collect();
        let sale = match self.combination.algorithm {
            Algorithm::DirectAssign => direct_assign(&bidders, &before, rentable),
            Algorithm::Auction => auction(&bidders, &before, rentable),
            _ => round_robin(&bidders, rentable, self.settings.round),
        };
        let (price, for_many) = (sale.price, sale.price.for_many());
        for (index, (rented, rent)) in sale.bought.into_iter().zip(sale.rents).enumerate() {
            self.accounts.pay(index, rent, rent);
            let bidder = &bidders[index];
            let limit = LeaseLimit::of(
                rented,
                wants[index],
                bidder.want,
                for_many.affordable(bidder.credits),
            );
            self.records[index].lease = Lease { rented, wanted: wants[index], price, limit };
        }
        if self.combination.algorithm == Algorithm::Auction && !price.is_free() {
            self.wait_for_balloons(tenants, &before);
        }
    }

    /// Gives what guests rent and no longer want to those that lack memory, the highest bids first.
    /// No guest loses what it wants.
    fn pass_on(&mut self, rentable: u64, tenants: &[Tenant<'_>], weights: &[u64]) {
        let wants = self.wants(tenants);
        let within = |index: usize| wants[index].min(tenants[index].room());
        let mut left = rentable;
        let mut lacks: Vec<Bidder> = Vec::with_capacity(tenants.len());
        for (index, record) in self.records.iter_mut().enumerate() {
            let within = within(index);
            record.lease.rented = record.lease.rented.min(within);
            left = left.saturating_sub(record.lease.rented);
            let want = within - record.lease.rented;
            let credits = self.accounts.balance(index);
            lacks.push(Bidder { want, credits, weight: weights[index] });
        }
        for index in by_descending_bids(&lacks) {
            let more = lacks[index].want.min(left);
            left -= more;
            let lease = &mut self.records[index].lease;
            let (rented, wanted) = (lease.rented + more, wants[index]);
            // Otherwise the limit at the sale still applies.
            if more > 0 || wanted != lease.wanted {
                let limit = LeaseLimit::of(rented, wanted, within(index), u64::MAX);
                *lease = Lease { rented, wanted, price: lease.price, limit };
            }
        }
    }

    /// Whether rents, requests and unmet requests together exceed the supply.
    fn is_contested(&self, rentable: u64, tenants: &[Tenant<'_>]) -> bool {
        let demand = |(index, tenant): (usize, &Tenant<'_>)| {
            let record = &self.records[index];
            let want = self.want(index, tenant).min(tenant.room());
            let unmet = if pending(tenant, record.answered) { 0 } else { record.unmet };
            u128::from(want) + u128::from(unmet)
        };
        tenants.iter().enumerate().map(demand).sum::<u128>() > u128::from(rentable)
    }
}

/// Leases of `proportional`, which needs no record of the guests.
fn by_weight(rentable: u64, tenants: &[Tenant<'_>], weights: &[u64]) -> Vec<Lease> {
    let room: Vec<u64> = tenants.iter().map(Tenant::room).collect();
    let parts = proportional(&room, weights, rentable).into_iter().zip(room);
    parts
        .map(|(rented, room)| Lease {
            rented,
            wanted: rented,
            limit: if rented < room { LeaseLimit::Supply } else { LeaseLimit::Ceiling },
            ..Lease::NOTHING
        })
        .collect()
}

/// Whether the guest's last request is still to be answered.
fn pending(tenant: &Tenant<'_>, answered: Option<u64>) -> bool {
    tenant.request.is_some_and(|request| answered != Some(request.number))
}
