//! A day of a fleet, played under one way to balance it.
//!
//! Idea: rounds of ten minutes. In each, some guests' floors are set anew within what the fleet
//! can bear and working sets wander; hosts divide; then the balancer moves guests and hosts divide
//! again. What happens depends on the seed and the round alone, never on the balancer.
//! Limits: floors never add up to more than a share of all budgets, so that they could all be met.

use crate::{Balancer, SimGuest, SimHost, World};

/// Minutes in a round.
pub(crate) const ROUND_MINUTES: u64 = 10;

/// What a day is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DaySpec {
    /// How many hosts.
    pub hosts: usize,
    /// How many guests on each in the beginning.
    pub guests: usize,
    /// Floors of all guests in per cent of all budgets, at most.
    pub fill_percent: u64,
    /// Guests in a thousand whose floor is set anew in a round.
    pub resized_per_mille: u64,
    /// Most migrations in a round.
    pub migrations_max: usize,
    /// Rounds of ten minutes.
    pub rounds: u64,
    /// All chance follows from it.
    pub seed: u64,
}

/// What came of a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// MiB copied.
    pub copied: u64,
    /// MiB that would have been copied had every guest been shrunk to its need first.
    pub copied_if_shrunk: u64,
    /// Guests moved.
    pub migrations: u64,
    /// Hosts that were short of floors after balancing, summed over the rounds.
    pub short_hosts: u64,
    /// And by how many MiB together.
    pub short: u64,
    /// Hosts that were short before balancing, summed over the rounds.
    pub short_before: u64,
}

impl DaySpec {
    /// Twenty hosts of 64 GiB with fifteen guests each, floors up to 85 % of the budgets.
    pub fn usual(seed: u64) -> DaySpec {
        DaySpec {
            hosts: 20,
            guests: 15,
            fill_percent: 85,
            resized_per_mille: 10,
            migrations_max: 8,
            rounds: 24 * 60 / ROUND_MINUTES,
            seed,
        }
    }

    fn world(&self, rng: &mut fastrand::Rng) -> World {
        let hosts = vec![SimHost { budget: 64 << 10 }; self.hosts];
        let mut world = World { hosts, guests: Vec::new() };
        for host in 0..self.hosts {
            for _ in 0..self.guests {
                let floor = random_floor(rng);
                let demand = floor * rng.u64(40..=110) / 100;
                let dirty_per_mille = rng.u64(0..=300);
                let allocation = floor;
                let guest = SimGuest { host, floor, demand, allocation, dirty_per_mille };
                if world.floors(host) + floor <= 64 * 1024 * self.fill_percent / 100 {
                    world.guests.push(guest);
                }
            }
        }
        world
    }

    fn events(&self, world: &mut World, rng: &mut fastrand::Rng) {
        let all: u64 = world.hosts.iter().map(|host| host.budget).sum();
        let most = all * self.fill_percent / 100;
        let mut floors: u64 = world.guests.iter().map(|guest| guest.floor).sum();
        for guest in &mut world.guests {
            let (dice, floor, step) = (rng.u64(0..1000), random_floor(rng), rng.u64(90..=110));
            if dice < self.resized_per_mille && floors - guest.floor + floor <= most {
                floors = floors - guest.floor + floor;
                guest.floor = floor;
            }
            let (least, largest) = (guest.floor * 2 / 5, guest.floor * 11 / 10);
            guest.demand = (guest.demand * step / 100).clamp(least, largest);
        }
    }
}

/// 1 to 8 GiB, more of them small.
fn random_floor(rng: &mut fastrand::Rng) -> u64 {
    let size = 1024 << rng.u64(0..=3);
    size - size * rng.u64(0..=25) / 100
}

/// Plays the day under a balancer.
pub fn play(spec: &DaySpec, balancer: &mut dyn Balancer) -> Figures {
    let mut rng = fastrand::Rng::with_seed(spec.seed);
    let mut world = spec.world(&mut rng);
    let mut figures = Figures::default();
    for round in 0..spec.rounds {
        spec.events(&mut world, &mut rng);
        world.divide();
        figures.short_before += short(&world).0;
        for (guest, to) in balancer.migrations(&world, round, spec.migrations_max) {
            figures.copied += world.guests[guest].copied(balancer.shrinks_first());
            figures.copied_if_shrunk += world.guests[guest].copied(true);
            figures.migrations += 1;
            world.guests[guest].host = to;
        }
        world.divide();
        let (hosts, mib) = short(&world);
        figures.short_hosts += hosts;
        figures.short += mib;
    }
    figures
}

/// Hosts that are short of floors, and by how many MiB.
fn short(world: &World) -> (u64, u64) {
    let short = (0..world.hosts.len()).map(|host| world.short(host)).filter(|mib| *mib > 0);
    short.fold((0, 0), |(hosts, all), mib| (hosts + 1, all + mib))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Planned;
    use crate::rivals::{FirstFit, LoadKind, LowNodeUtilization};

    #[test]
    fn day_of_a_seed_is_always_the_same() {
        let day = || play(&DaySpec { resized_per_mille: 50, ..DaySpec::usual(7) }, &mut FirstFit);
        assert_eq!(day(), day());
    }

    /// Both mend all floors in each round; rivals by threshold move far more.
    #[test]
    fn planner_meets_all_floors_with_fewer_bytes_than_rivals() {
        let (mut ours, mut first_fit, mut low_node) = (0, 0, 0);
        for seed in 1..=3 {
            let spec = DaySpec { resized_per_mille: 50, ..DaySpec::usual(seed) };
            let planned = play(&spec, &mut Planned::default());
            assert_eq!(planned.short_hosts, 0, "seed {seed}: {planned:?}");
            assert!(planned.short_before > 10, "seed {seed}: {planned:?}");
            ours += planned.copied;
            first_fit += play(&spec, &mut FirstFit).copied;
            let load = LoadKind::Floors;
            let mut rival = LowNodeUtilization { low_percent: 90, high_percent: 100, load };
            low_node += play(&spec, &mut rival).copied;
        }
        assert!(ours * 10 <= first_fit * 7, "{ours} MiB, first fit {first_fit}");
        assert!(ours * 10 <= low_node * 7, "{ours} MiB, LowNodeUtilization {low_node}");
    }
}
