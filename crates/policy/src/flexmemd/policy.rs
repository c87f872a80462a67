//! Adapts the policies of flexmemd to the common [`Policy`] interface.
//!
//! Idea: a contender becomes a tenant, the budget minus all floors becomes the rentable memory, and
//! floor plus lease becomes the target. Memory that a guest may keep beyond its guaranteed floor,
//! because it says that it has no swap, is not part of a tenant's floor: it would add weight, and
//! memory would be rented on top of it. Such a guest gets what it rents or what it may keep,
//! whichever is more, and the leases of others are cut for that. An emergency counts as a request
//! too: it makes a policy that uses statistics run at once, and a policy that uses requests grants
//! it.
//!
//! Limits: statistics describe the memory a guest held, but are applied to the target in force, the
//! paper's `old_target` (`demand.rs`).

use ballast_model::{
    Bytes, Clamped, Desired, GuestId, PolicyName, Reason, RentLimit, RequestKind, Timestamp,
    in_proportion,
};

use super::combination::{Algorithm, Combination, Frequency};
use super::credits::Accounts;
use super::demand::TenantStatistics;
use super::driver::Driver;
use super::lease::{Lease, LeaseLimit, RentRequest, Tenant};
use super::price::Price;
use super::settings::{CombinationChoice, FlexmemdSettings};
use crate::{Contender, Division, Pacing, Policy, Problem};

/// One of the six policies.
#[derive(Clone, Debug)]
pub struct Flexmemd {
    driver: Driver,
}

impl Flexmemd {
    /// The policy with `algorithm` and the combination that `settings` choose for it. An invalid
    /// choice, which [`CombinationChoice::with`] refuses, is replaced by the combination that the
    /// paper evaluates.
    pub fn new(algorithm: Algorithm, settings: FlexmemdSettings) -> Flexmemd {
        let chosen = settings.choice.with(algorithm);
        let (combination, rule) =
            chosen.unwrap_or_else(|_| CombinationChoice::evaluated(algorithm));
        Flexmemd { driver: Driver::of(combination, rule, settings) }
    }

    /// The policy's combination.
    pub fn combination(&self) -> Combination {
        self.driver.combination()
    }

    fn desired(
        &self,
        contender: &Contender,
        index: usize,
        lease: &Lease,
        price_thousandths_per_kib: u64,
        rentable: u64,
    ) -> Desired {
        let above = |pages: u64| contender.guaranteed().saturating_add(Bytes::pages(pages));
        let target = above(lease.rented);
        if target < contender.floor {
            let floor = contender.floor;
            return Desired { target: floor, reason: Reason::Bound(Clamped::Floor { floor }) };
        }
        let limit = match lease.limit {
            LeaseLimit::Ceiling => {
                let ceiling = contender.ceiling;
                return Desired { target, reason: Reason::Bound(Clamped::Ceiling { ceiling }) };
            }
            LeaseLimit::Want => RentLimit::Want,
            LeaseLimit::Credits => RentLimit::Credits,
            LeaseLimit::Supply => RentLimit::Supply,
        };
        let floor = contender.guaranteed();
        let reason = if self.combination().algorithm == Algorithm::Proportional {
            Reason::RentableShare { floor, rentable: Bytes::pages(rentable) }
        } else {
            Reason::Rent {
                floor,
                wanted: above(lease.wanted),
                price_thousandths_per_kib,
                credits: self.driver.accounts().balance(index),
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
            on_request: self.combination().frequency == Frequency::Immediate,
            ..Pacing::every(self.driver.interval(), Bytes::ZERO)
        }
    }

    fn divide(&mut self, problem: &Problem) -> Division {
        let contenders = problem.contenders();
        let tenants: Vec<Tenant<'_>> = contenders.iter().map(Tenant::from).collect();
        let guaranteed: Bytes = tenants.iter().map(|tenant| Bytes::pages(tenant.floor)).sum();
        let floors: Bytes = contenders.iter().map(|contender| contender.floor).sum();
        let shortfall = floors.saturating_sub(problem.budget());
        let rentable = problem.budget().saturating_sub(guaranteed).to_pages();
        let mut leases = self.driver.decide(problem.now(), rentable, &tenants);
        cut(&mut leases, contenders, problem.budget().saturating_sub(floors).to_pages());
        // Most guests have the same price, so its conversion is cached.
        let (mut price, mut thousandths) = (Price::FREE, 0);
        let mut wanted = Vec::with_capacity(contenders.len());
        for (index, (contender, lease)) in contenders.iter().zip(&leases).enumerate() {
            if shortfall > Bytes::ZERO {
                let floor = contender.floor;
                let reason = Reason::Bound(Clamped::Floor { floor });
                wanted.push(Desired { target: floor, reason });
                continue;
            }
            if lease.price != price {
                (price, thousandths) = (lease.price, lease.price.thousandths_per_kib());
            }
            wanted.push(self.desired(contender, index, lease, thousandths, rentable));
        }
        Division { wanted, shortfall, notes: Vec::new() }
    }

    fn accounts(&self) -> Option<&Accounts> {
        self.driver.has_accounts().then(|| self.driver.accounts())
    }

    fn restore_credits(&mut self, credits: &[(GuestId, u64)], now: Timestamp) {
        self.driver.restore_credits(credits, now);
    }

    fn set_credits(&mut self, guest: &GuestId, credits: u64, now: Timestamp) {
        self.driver.set_credits(guest, credits, now);
    }
}

/// Cuts leases to the memory beyond everything that guests may keep, in proportion to what each
/// rents beyond that.
fn cut(leases: &mut [Lease], contenders: &[Contender], supply: u64) {
    let kept = |contender: &Contender| contender.unguaranteed.to_pages();
    let beyond =
        |(lease, contender): (&Lease, &Contender)| lease.rented.saturating_sub(kept(contender));
    let rented: Vec<u64> = leases.iter().zip(contenders).map(beyond).collect();
    let total: u64 = rented.iter().sum();
    if total <= supply {
        return;
    }
    let parts = in_proportion(rented.iter().copied(), supply);
    for ((lease, contender), (before, part)) in
        leases.iter_mut().zip(contenders).zip(rented.iter().zip(parts))
    {
        if part < *before {
            lease.rented = kept(contender) + part;
            lease.limit = LeaseLimit::Supply;
        }
    }
}

impl<'a> From<&'a Contender> for Tenant<'a> {
    fn from(contender: &'a Contender) -> Tenant<'a> {
        let signals = &contender.signals;
        let kind = signals.request.map(|request| request.kind);
        let request = signals.request.map(|request| {
            let bytes = i64::try_from(request.amount.get()).unwrap_or(i64::MAX);
            let less = request.kind == RequestKind::Less;
            RentRequest { bytes: if less { -bytes } else { bytes }, number: request.number }
        });
        Tenant {
            id: &contender.id,
            floor: contender.guaranteed().to_pages(),
            ceiling: contender.ceiling.to_pages(),
            shares: contender.shares,
            allocation: contender.allocation.to_pages(),
            held: contender.held.unwrap_or(contender.allocation).to_pages(),
            balloon_rate: contender.balloon_rate,
            statistics: TenantStatistics {
                free: signals.free,
                swaps_per_second: signals.swapped_pages_per_s,
            },
            request,
            emergency: kind == Some(RequestKind::Emergency),
        }
    }
}
