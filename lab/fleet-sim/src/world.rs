//! The state of a simulated fleet.
//!
//! Idea: a host has a budget, a guest has a floor and a demand. A host gives each guest its floor,
//! then divides the rest by what each lacks of its demand, then by floors: guests fill what they
//! are given with their page cache. Where floors are more than the budget, each gets its part.
//! Limits: sizes are MiB; all hosts can run all guests.

/// A simulated host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimHost {
    /// What its guests may be allocated together, in MiB.
    pub budget: u64,
}

/// A simulated guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimGuest {
    /// The host it is on, by place.
    pub host: usize,
    /// What its operator guarantees, in MiB.
    pub floor: u64,
    /// Its working set, in MiB.
    pub demand: u64,
    /// What it holds and occupies, in MiB.
    pub allocation: u64,
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
}

impl World {
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

    /// A host's guests and their places.
    pub fn on(&self, host: usize) -> impl Iterator<Item = (usize, &SimGuest)> {
        self.guests.iter().enumerate().filter(move |(_, guest)| guest.host == host)
    }

    /// Every host divides its memory.
    pub fn divide(&mut self) {
        for host in 0..self.hosts.len() {
            let budget = self.hosts[host].budget;
            let floors = self.floors(host);
            let lacks =
                self.on(host).map(|(_, it)| it.demand.saturating_sub(it.floor)).sum::<u64>();
            let rest = budget.saturating_sub(floors);
            let (granted, spare) = (rest.min(lacks), rest.saturating_sub(lacks));
            for guest in self.guests.iter_mut().filter(|it| it.host == host) {
                let lack = guest.demand.saturating_sub(guest.floor);
                guest.allocation = if floors > budget {
                    guest.floor * budget / floors
                } else {
                    let more = granted * lack / lacks.max(1) + spare * guest.floor / floors.max(1);
                    guest.floor + more
                };
            }
        }
    }
}

impl SimGuest {
    /// What a migration copies, in MiB: what it holds or, shrunk first, what it needs of that; and
    /// what it writes meanwhile.
    pub fn copied(&self, is_shrunk: bool) -> u64 {
        let needs = self.floor.max(self.demand);
        let once = if is_shrunk { self.allocation.min(needs) } else { self.allocation };
        once + once * self.dirty_per_mille / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_divides_all_it_has_and_no_more() {
        let guest =
            |floor, demand| SimGuest { host: 0, floor, demand, allocation: 0, dirty_per_mille: 0 };
        for (budget, allocations) in [(100, [50, 50]), (400, [150, 250]), (800, [250, 550])] {
            let mut world = World {
                hosts: vec![SimHost { budget }],
                guests: vec![guest(100, 150), guest(100, 250)],
            };
            world.divide();
            let found: Vec<u64> = world.guests.iter().map(|it| it.allocation).collect();
            let all: u64 = found.iter().sum();
            assert!(all <= budget && all + 2 >= budget, "{budget}: {found:?}");
            if budget < 800 {
                assert_eq!(found, allocations);
            }
        }
    }
}
