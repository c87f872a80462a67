//! The state of a simulated fleet: hosts with budgets, guests with floors and working sets.
//!
//! Idea: plain numbers that every balancer can read and copy. A host's own policy is in
//! `policy_host`; what the host reports of itself and its guests is here.
//! Cost: each host has a list of its guests, so sums over a host are O(its guests).
//! Limits: sizes are MiB; every host can run every guest.

use std::sync::Arc;

use ballast_model::MissCurve;

/// A simulated host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimHost {
    /// Memory that all its guests together may be allocated, in MiB.
    pub budget: u64,
    /// Memory that its policy reports as divisible among guests, in MiB.
    pub distributable: u64,
    /// Memory that its policy reports as held by or promised to guests, in MiB.
    pub committed: u64,
    /// Memory that its kernel has free in addition to its reserve, in MiB.
    pub free: u64,
    /// Its guests by index, in order.
    guests: Vec<usize>,
}

/// A simulated guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimGuest {
    /// Index of the host it is on.
    pub host: usize,
    /// Its boot memory, which is also the most it can hold, in MiB.
    pub boot: u64,
    /// Its floor, in MiB.
    pub floor: u64,
    /// Its working set, in MiB.
    pub demand: u64,
    /// Memory that it holds and occupies, in MiB.
    pub allocation: u64,
    /// Its need as estimated by its host's policy, in MiB.
    pub estimated: u64,
    /// How fast it writes pages, in per mille of a migration's bandwidth.
    pub dirty_per_mille: u64,
}

/// A simulated fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct World {
    /// The hosts.
    pub hosts: Vec<SimHost>,
    /// The guests.
    pub guests: Vec<SimGuest>,
    /// Each guest's miss curve as its host's policy reports it, if known.
    pub curves: Vec<Option<Arc<MissCurve>>>,
}

impl World {
    /// A fleet of hosts with these budgets in MiB, and guests that are on them.
    pub fn new(budgets: &[u64], guests: Vec<SimGuest>) -> World {
        let host = |&budget: &u64| SimHost { budget, distributable: budget, ..SimHost::default() };
        let curves = vec![None; guests.len()];
        let mut world = World { hosts: budgets.iter().map(host).collect(), guests, curves };
        for (index, guest) in world.guests.iter().enumerate() {
            world.hosts[guest.host].guests.push(index);
        }
        world
    }

    /// Moves a guest to another host.
    pub fn move_guest(&mut self, guest: usize, to: usize) {
        let from = std::mem::replace(&mut self.guests[guest].host, to);
        self.hosts[from].guests.retain(|&it| it != guest);
        let list = &mut self.hosts[to].guests;
        let at = list.partition_point(|&it| it < guest);
        list.insert(at, guest);
    }

    /// The sum of the floors of a host's guests, in MiB.
    pub fn floors(&self, host: usize) -> u64 {
        self.on(host).map(|(_, guest)| guest.floor).sum()
    }

    /// By how much the floors exceed the budget, in MiB.
    pub fn short(&self, host: usize) -> u64 {
        self.floors(host).saturating_sub(self.hosts[host].budget)
    }

    /// A host's guests and their indices, in order.
    pub fn on(&self, host: usize) -> impl Iterator<Item = (usize, &SimGuest)> {
        self.hosts[host].guests.iter().map(|&index| (index, &self.guests[index]))
    }
}

impl SimGuest {
    /// The allocation that it should have by its host's policy, in MiB: never less than its floor.
    pub fn policy_allocation(&self) -> u64 {
        self.floor.max(self.estimated)
    }

    /// What a migration copies, in MiB: its allocation or, if it is shrunk first, its need; and the
    /// pages that it writes meanwhile.
    pub fn copied(&self, is_shrunk: bool) -> u64 {
        let once =
            if is_shrunk { self.allocation.min(self.policy_allocation()) } else { self.allocation };
        once + once * self.dirty_per_mille / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_guest_is_on_one_host() {
        let guest = |host| SimGuest { host, floor: 10, ..SimGuest::default() };
        let mut world = World::new(&[100, 100], vec![guest(0), guest(1), guest(0)]);
        world.move_guest(0, 1);
        let on = |host| world.on(host).map(|(index, _)| index).collect::<Vec<_>>();
        assert_eq!((on(0), on(1)), (vec![2], vec![0, 1]));
        assert_eq!((world.floors(0), world.floors(1)), (10, 20));
    }
}
