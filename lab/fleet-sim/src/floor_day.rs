//! A day in which operators raise and lower floors.
//!
//! Idea: in each round some guests' floors are set anew, and working sets vary around the floors.
//! If the floors on a host exceed its memory, only moving guests helps.
//! Limits: floors never add up to more than a given share of all budgets, so that all of them could
//! be met.

use crate::play::Scene;
use crate::{SimGuest, World};

/// The parameters of such a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloorSpec {
    /// The number of hosts.
    pub hosts: usize,
    /// The number of guests on each host at the start.
    pub guests: usize,
    /// Memory of each host for guests, in MiB.
    pub budget: u64,
    /// The greatest sum of all floors, in per cent of all budgets.
    pub fill_percent: u64,
    /// How many guests in a thousand get a new floor in a round.
    pub resized_per_mille: u64,
    /// The greatest number of migrations in a round.
    pub migrations_max: usize,
    /// The seed of all random numbers.
    pub seed: u64,
}

impl FloorSpec {
    /// Twenty hosts of 64 GiB with fifteen guests each; floors up to 85 % of the budgets.
    pub fn usual(seed: u64) -> FloorSpec {
        FloorSpec {
            hosts: 20,
            guests: 15,
            budget: 64 << 10,
            fill_percent: 85,
            resized_per_mille: 10,
            migrations_max: 8,
            seed,
        }
    }
}

/// A day with given parameters.
#[derive(Debug)]
pub struct FloorDay {
    spec: FloorSpec,
    rng: fastrand::Rng,
}

impl FloorDay {
    /// A day with the parameters `spec`.
    pub fn new(spec: FloorSpec) -> FloorDay {
        FloorDay { spec, rng: fastrand::Rng::with_seed(spec.seed) }
    }
}

impl Scene for FloorDay {
    fn world(&mut self) -> World {
        let (spec, rng) = (self.spec, &mut self.rng);
        let mut guests = Vec::new();
        for host in 0..spec.hosts {
            let mut floors = 0;
            for _ in 0..spec.guests {
                let floor = random_floor(rng);
                let guest = SimGuest {
                    host,
                    boot: BOOT,
                    floor,
                    demand: floor * rng.u64(40..=110) / 100,
                    allocation: floor,
                    estimated: floor,
                    dirty_per_mille: rng.u64(0..=300),
                };
                if floors + floor <= spec.budget * spec.fill_percent / 100 {
                    floors += floor;
                    guests.push(guest);
                }
            }
        }
        World::new(&vec![spec.budget; spec.hosts], guests)
    }

    fn next(&mut self, world: &mut World, _: u64) -> Vec<u64> {
        let (spec, rng) = (self.spec, &mut self.rng);
        let all: u64 = world.hosts.iter().map(|host| host.budget).sum();
        let most = all * spec.fill_percent / 100;
        let mut floors: u64 = world.guests.iter().map(|guest| guest.floor).sum();
        let mut next = Vec::with_capacity(world.guests.len());
        for guest in &mut world.guests {
            let (dice, floor, step) = (rng.u64(0..1000), random_floor(rng), rng.u64(90..=110));
            if dice < spec.resized_per_mille && floors - guest.floor + floor <= most {
                floors = floors - guest.floor + floor;
                guest.floor = floor;
            }
            let (least, largest) = (guest.floor * 2 / 5, guest.floor * 11 / 10);
            next.push((guest.demand * step / 100).clamp(least, largest));
        }
        next
    }

    fn migrations_max(&self) -> usize {
        self.spec.migrations_max
    }
}

/// Boot memory of each guest, in MiB: more than it ever uses.
const BOOT: u64 = 12 << 10;

/// A floor of 0.75 to 8 GiB; small ones are more frequent.
fn random_floor(rng: &mut fastrand::Rng) -> u64 {
    let size = 1024 << rng.u64(0..=3);
    size - size * rng.u64(0..=25) / 100
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::{FirstFit, LoadKind, LowNodeUtilization};
    use crate::{Balancer, Division, Figures, FleetPlanner, play};
    use ballast_model::PolicyName;

    fn day(seed: u64, balancer: &mut dyn Balancer) -> Figures {
        let spec = FloorSpec { resized_per_mille: 50, ..FloorSpec::usual(seed) };
        let division = Division::ByPolicy { name: PolicyName::Global, is_tracked: false };
        play(&mut FloorDay::new(spec), division, Some(balancer))
    }

    #[test]
    fn day_of_a_seed_is_always_the_same() {
        let mut rival = FirstFit { load: LoadKind::Floors };
        assert_eq!(day(7, &mut rival), day(7, &mut rival));
    }

    /// The planner and first fit meet all floors in each round; rivals by threshold move far more.
    #[test]
    fn planner_meets_all_floors_with_fewer_bytes_than_rivals() {
        let (mut ours, mut first_fit, mut low_node) = (0, 0, 0);
        for seed in 1..=3 {
            let planned = day(seed, &mut FleetPlanner::default());
            let short = (planned.short_hosts, planned.below_floor);
            assert_eq!(short, (0, 0), "seed {seed}: {planned:?}");
            assert!(planned.short_before > 10, "seed {seed}: {planned:?}");
            ours += planned.copied;
            let load = LoadKind::Floors;
            first_fit += day(seed, &mut FirstFit { load }).copied;
            low_node +=
                day(seed, &mut LowNodeUtilization { low_percent: 90, high_percent: 100, load })
                    .copied;
        }
        assert!(ours * 10 <= first_fit * 7, "{ours} MiB, first fit {first_fit}");
        assert!(ours * 10 <= low_node * 7, "{ours} MiB, LowNodeUtilization {low_node}");
    }
}
