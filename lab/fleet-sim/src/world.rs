//! The state of a simulated fleet: hosts with budgets, guests with floors and working sets.
//!
//! Idea: plain numbers, which whoever balances sees and may copy. What a host's own policy thinks
//! and does is in `policy_host`; what it says of itself and its guests stands here.
//! Cost: a host knows its guests, so that sums over one are O(its guests).
//! Limits: sizes are MiB; all hosts can run all guests.

use std::sync::Arc;

use ballast_model::MissCurve;

/// A simulated host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimHost {
    /// What its guests may be allocated together, in MiB.
    pub budget: u64,
    /// What its policy says that it divides, in MiB.
    pub distributable: u64,
    /// What its policy says that guests hold or were promised, in MiB.
    pub committed: u64,
    /// What its kernel has free beside its reserve, in MiB.
    pub free: u64,
    /// Its guests by place, in order.
    guests: Vec<usize>,
}

/// A simulated guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimGuest {
    /// The host it is on, by place.
    pub host: usize,
    /// What it was booted with, and can hold at most, in MiB.
    pub boot: u64,
    /// What its operator guarantees, in MiB.
    pub floor: u64,
    /// Its working set, in MiB.
    pub demand: u64,
    /// What it holds and occupies, in MiB.
    pub allocation: u64,
    /// What its host's policy says that it needs, in MiB.
    pub estimated: u64,
    /// Pages it writes, in per mille of the bandwidth of a migration.
    pub dirty_per_mille: u64,
}

/// A simulated fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct World {
    /// The hosts.
    pub hosts: Vec<SimHost>,
    /// The guests.
    pub guests: Vec<SimGuest>,
    /// What each guest's host's policy says of its misses, if it knows them.
    pub curves: Vec<Option<Arc<MissCurve>>>,
}

impl World {
    /// Hosts with these budgets, in MiB, and guests that are on them.
    pub fn new(budgets: &[u64], guests: Vec<SimGuest>) -> World {
        let host = |&budget: &u64| SimHost { budget, distributable: budget, ..SimHost::default() };
        let curves = vec![None; guests.len()];
        let mut world = World { hosts: budgets.iter().map(host).collect(), guests, curves };
        for (place, guest) in world.guests.iter().enumerate() {
            world.hosts[guest.host].guests.push(place);
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

    /// Floors of a host's guests together, in MiB.
    pub fn floors(&self, host: usize) -> u64 {
        self.on(host).map(|(_, guest)| guest.floor).sum()
    }

    /// Working sets of a host's guests together, in MiB.
    pub fn demands(&self, host: usize) -> u64 {
        self.on(host).map(|(_, guest)| guest.demand).sum()
    }

    /// By how much floors are more than the budget, in MiB.
    pub fn short(&self, host: usize) -> u64 {
        self.floors(host).saturating_sub(self.hosts[host].budget)
    }

    /// A host's guests and their places, in order.
    pub fn on(&self, host: usize) -> impl Iterator<Item = (usize, &SimGuest)> {
        self.hosts[host].guests.iter().map(|&place| (place, &self.guests[place]))
    }
}

impl SimGuest {
    /// What it should have by its host's policy, in MiB: never less than its floor.
    pub fn full(&self) -> u64 {
        self.floor.max(self.estimated)
    }

    /// What a migration copies, in MiB: what it holds or, shrunk first, what it needs of that; and
    /// what it writes meanwhile.
    pub fn copied(&self, is_shrunk: bool) -> u64 {
        let once = if is_shrunk { self.allocation.min(self.full()) } else { self.allocation };
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
        let on = |host| world.on(host).map(|(place, _)| place).collect::<Vec<_>>();
        assert_eq!((on(0), on(1)), (vec![2], vec![0, 1]));
        assert_eq!((world.floors(0), world.floors(1)), (10, 20));
    }
}
