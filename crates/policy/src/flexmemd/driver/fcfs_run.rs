//! A run of `fcfs` over all guests.
//!
//! Idea: [`fcfs`](super::super::fcfs) computes what one guest gets. Here leases are renewed,
//! requests are served one after the other, and what no other guest can pay for stays where it is.
//! Cost: O(n log n).

use super::{Driver, pending};
use crate::flexmemd::fcfs::{RemainingPeriod, Requester, grant, renew};
use crate::flexmemd::lease::{LeaseLimit, Tenant};

impl Driver {
    /// Renews all leases if the run `begins_period`, then processes requests. Memory that guests
    /// cannot pay for is granted like free memory; guests keep what is left of theirs.
    pub(super) fn run_fcfs(
        &mut self,
        rentable: u64,
        tenants: &[Tenant<'_>],
        weights: &[u64],
        remaining: RemainingPeriod,
        begins_period: bool,
    ) {
        let rule = self.is_contested(rentable, tenants).then_some(self.rule);
        let wants = self.wants(tenants);
        for (index, tenant) in tenants.iter().enumerate() {
            if begins_period {
                let kept = renew(self.requester(index, tenant), rentable, rule.as_ref());
                let rent = kept.lease.price.rent(kept.lease.rented);
                self.accounts.pay(index, rent, rent);
                let record = &mut self.records[index];
                record.lease = kept.lease;
                (record.unmet, record.unpaid) = (kept.unmet, kept.unmet);
            } else {
                let record = &mut self.records[index];
                record.lease.rented -= record.unpaid;
                record.unmet += record.unpaid;
            }
        }
        let paid: u64 = self.records.iter().map(|record| record.lease.rented).sum();
        let mut free = rentable.saturating_sub(paid);
        for index in self.by_rising_rent(weights) {
            let tenant = &tenants[index];
            if !pending(tenant, self.records[index].answered) {
                continue;
            }
            let from = self.requester(index, tenant);
            let given = grant(from, wants[index], free, rentable, rule.as_ref(), remaining);
            let rate = given.lease.price.rent(given.more);
            self.accounts.pay(index, remaining.part(rate), rate);
            free = free + from.rented - given.lease.rented;
            let record = &mut self.records[index];
            record.lease = given.lease;
            record.unmet = given.unmet;
            record.unpaid = record.unpaid.min(given.unmet);
        }
        for index in self.by_rising_rent(weights) {
            let record = &mut self.records[index];
            record.unpaid = record.unpaid.min(free);
            free -= record.unpaid;
            record.unmet -= record.unpaid;
            let lease = &mut record.lease;
            lease.rented += record.unpaid;
            if lease.rented >= lease.wanted {
                lease.limit = LeaseLimit::Want;
            }
        }
    }

    /// Places of the guests, those that rent least for their weight first; by cross products.
    fn by_rising_rent(&self, weights: &[u64]) -> Vec<usize> {
        let level =
            |a: usize, b: usize| u128::from(self.records[a].lease.rented) * u128::from(weights[b]);
        let mut order: Vec<usize> = (0..weights.len()).collect();
        order.sort_unstable_by(|&a, &b| level(a, b).cmp(&level(b, a)).then(a.cmp(&b)));
        order
    }

    fn requester(&self, index: usize, tenant: &Tenant<'_>) -> Requester {
        Requester {
            rented: self.records[index].lease.rented,
            room: tenant.room(),
            credits: self.accounts.balance(index),
        }
    }
}
