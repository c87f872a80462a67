//! The policies of flexmemd as every policy is asked.
//!
//! Idea: a contender is a tenant, the budget less all floors is what can be rented, a lease above
//! the floor is a target. An emergency counts as a request too: a policy that goes by statistics is
//! run at once for it, one that goes by requests also grants it.
//!
//! Limits: statistics are of what a guest held, and are judged as those of the target in force, the
//! paper's `old_target`: while a balloon lags behind a target that rose, free memory looks smaller
//! than it will be, and a guest may be thought to want more than it does, for as long as that lasts.

use ballast_model::{
    Bytes, Clamped, Desired, GuestId, PolicyName, Reason, RentLimit, RequestKind, Timestamp,
};

use super::combination::{Algorithm, Combination, Frequency};
use super::credits::Ledger;
use super::demand::Statistics;
use super::driver::Driver;
use super::lease::{Lease, Limit, Request, Tenant};
use super::price::Price;
use super::settings::{Choice, Settings};
use crate::{Contender, Division, Pacing, Policy, Problem, Wanted};

/// One of the six.
#[derive(Clone, Debug)]
pub struct Flexmemd {
    driver: Driver,
}

impl Flexmemd {
    /// `algorithm` as `settings` choose; where the choice makes no sense with it, which whoever
    /// reads it from an operator refuses with [`Choice::with`], as the paper evaluates it.
    pub fn new(algorithm: Algorithm, settings: Settings) -> Flexmemd {
        Flexmemd { driver: Driver::chosen(algorithm, settings) }
    }

    /// What it is made of.
    pub fn combination(&self) -> Combination {
        self.driver.combination()
    }

    fn desired(
        &self,
        contender: &Contender,
        place: usize,
        lease: &Lease,
        price_thousandths_per_kib: u64,
        rentable: u64,
    ) -> Desired {
        let above = |pages: u64| contender.floor.saturating_add(Bytes::pages(pages));
        let target = above(lease.rented);
        let limit = match lease.limit {
            Limit::Ceiling => {
                let ceiling = contender.ceiling;
                return Desired { target, reason: Reason::Bound(Clamped::Ceiling { ceiling }) };
            }
            Limit::Want => RentLimit::Want,
            Limit::Credits => RentLimit::Credits,
            Limit::Supply => RentLimit::Supply,
        };
        let floor = contender.floor;
        let reason = if self.combination().algorithm == Algorithm::Proportional {
            Reason::RentableShare { floor, rentable: Bytes::pages(rentable) }
        } else {
            Reason::Rent {
                floor,
                wanted: above(lease.wanted),
                price_thousandths_per_kib,
                credits: self.driver.ledger().balance(place),
                limit,
            }
        };
        Desired { target, reason }
    }
}

impl Policy for Flexmemd {
    fn name(&self) -> PolicyName {
        match self.combination().algorithm {
            Algorithm::Proportional => PolicyName::Proportional,
            Algorithm::Fcfs => PolicyName::Fcfs,
            Algorithm::DemandProportional => PolicyName::DemandProportional,
            Algorithm::DirectAssign => PolicyName::DirectAssign,
            Algorithm::Auction => PolicyName::Auction,
            Algorithm::RoundRobin => PolicyName::RoundRobin,
        }
    }

    fn pacing(&self) -> Pacing {
        Pacing {
            interval: self.driver.interval(),
            dead_band: Bytes::ZERO,
            on_request: self.combination().frequency == Frequency::Immediate,
        }
    }

    fn divide(&mut self, problem: &Problem) -> Division {
        let contenders = problem.contenders();
        let tenants: Vec<Tenant<'_>> = contenders.iter().map(Tenant::from).collect();
        let floors: Bytes = tenants.iter().map(|tenant| Bytes::pages(tenant.floor)).sum();
        let shortfall = floors.saturating_sub(problem.budget());
        let rentable = problem.budget().saturating_sub(floors).to_pages();
        let leases = self.driver.decide(problem.now(), rentable, &tenants);
        // Most pay the same.
        let (mut price, mut thousandths) = (Price::FREE, 0);
        let wanted = contenders
            .iter()
            .zip(&leases)
            .enumerate()
            .map(|(place, (contender, lease))| {
                let desired = if shortfall > Bytes::ZERO {
                    let floor = contender.floor;
                    Desired { target: floor, reason: Reason::Bound(Clamped::Floor { floor }) }
                } else {
                    if lease.price != price {
                        (price, thousandths) = (lease.price, lease.price.thousandths_per_kib());
                    }
                    self.desired(contender, place, lease, thousandths, rentable)
                };
                Wanted { id: contender.id.clone(), desired }
            })
            .collect();
        Division { wanted, shortfall, notes: Vec::new() }
    }

    fn ledger(&self) -> Option<&Ledger> {
        self.driver.has_accounts().then(|| self.driver.ledger())
    }

    fn keep_credits(&mut self, accounts: &[(GuestId, u64)], now: Timestamp) {
        self.driver.keep_credits(accounts, now);
    }
}

impl<'a> From<&'a Contender> for Tenant<'a> {
    fn from(contender: &'a Contender) -> Tenant<'a> {
        let signals = &contender.signals;
        let kind = signals.request.map(|request| request.kind);
        let request = signals.request.map(|request| {
            let bytes = i64::try_from(request.amount.get()).unwrap_or(i64::MAX);
            let less = request.kind == RequestKind::Less;
            Request { bytes: if less { -bytes } else { bytes }, number: request.number }
        });
        Tenant {
            id: &contender.id,
            floor: contender.floor.to_pages(),
            ceiling: contender.ceiling.to_pages(),
            shares: contender.shares,
            allocation: contender.allocation.to_pages(),
            held: contender.held.unwrap_or(contender.allocation).to_pages(),
            statistics: Statistics {
                free: signals.free,
                swaps_per_second: signals.swapped_pages_per_s,
            },
            request,
            emergency: kind == Some(RequestKind::Emergency),
        }
    }
}

impl Driver {
    /// See [`Flexmemd::new`].
    fn chosen(algorithm: Algorithm, settings: Settings) -> Driver {
        let chosen = settings.choice.with(algorithm);
        let (combination, price) = chosen.unwrap_or_else(|_| Choice::evaluated(algorithm));
        Driver::of(combination, price, settings)
    }
}
