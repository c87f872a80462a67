//! Rivals: how other products decide which guests to move, by what they publish.
//!
//! | rival | source |
//! |---|---|
//! | [`FirstFit`] | no product's: the plainest rule that mends floors |
//! | [`LowNodeUtilization`] | Kubernetes' descheduler, used by KubeVirt: its documentation |
//! | [`WorkloadBalance`] | OpenStack Watcher's strategy of this name: its source |
//! | [`ProxmoxRebalancer`] | Proxmox VE 9's automatic rebalancing: its documentation |
//!
//! A load is a share of a host's budget. With load by *floors* (what is requested or assigned) a
//! rival sees what this simulation judges; with load by *use* it sees working sets, which is the
//! products' default.

mod first_fit;
mod low_node;
mod proxmox;
mod watcher;

pub use first_fit::FirstFit;
pub use low_node::LowNodeUtilization;
pub use proxmox::ProxmoxRebalancer;
pub use watcher::WorkloadBalance;

use crate::World;

/// What a rival regards as a guest's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadKind {
    /// Its floor.
    Floors,
    /// Its working set.
    Use,
}

impl LoadKind {
    /// A guest's load, in MiB.
    fn of(self, world: &World, guest: usize) -> u64 {
        match self {
            LoadKind::Floors => world.guests[guest].floor,
            LoadKind::Use => world.guests[guest].demand,
        }
    }

    /// The loads of all hosts, in MiB.
    fn of_hosts(self, world: &World) -> Vec<u64> {
        let load = |host| world.on(host).map(|(guest, _)| self.of(world, guest)).sum::<u64>();
        (0..world.hosts.len()).map(load).collect()
    }

    fn name(self) -> &'static str {
        match self {
            LoadKind::Floors => "floors",
            LoadKind::Use => "use",
        }
    }
}

/// A load in per mille of a host's budget.
fn per_mille(world: &World, host: usize, load: u64) -> u64 {
    load * 1000 / world.hosts[host].budget.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Balancer, SimGuest};

    /// Guests as `(host, floor)`, on hosts of 1,000 MiB.
    fn world(hosts: usize, guests: &[(usize, u64)]) -> World {
        let guest = |&(host, floor): &(usize, u64)| SimGuest {
            host,
            floor,
            demand: floor,
            allocation: floor,
            ..SimGuest::default()
        };
        World::new(&vec![1000; hosts], guests.iter().map(guest).collect())
    }

    #[test]
    fn first_fit_takes_the_first_guest_and_the_first_host() {
        let world = world(3, &[(0, 300), (0, 200), (0, 600), (1, 900), (2, 100)]);
        let mut rival = FirstFit { load: LoadKind::Floors };
        assert_eq!(rival.migrations(&world, 0, 9), [(0, 2)]);
    }

    #[test]
    fn low_node_utilization_moves_only_between_its_thresholds() {
        let mut rival =
            LowNodeUtilization { low_percent: 20, high_percent: 50, load: LoadKind::Floors };
        let full = world(3, &[(0, 300), (0, 300), (1, 400), (2, 100)]);
        assert_eq!(rival.migrations(&full, 0, 9), [(0, 2)]);
        // No host is below the low threshold.
        let even = world(3, &[(0, 300), (0, 300), (1, 400), (2, 300)]);
        assert_eq!(rival.migrations(&even, 0, 9), []);
    }

    #[test]
    fn watcher_moves_what_is_nearest_to_the_excess() {
        let mut rival = WorkloadBalance { threshold_percent: 80, load: LoadKind::Floors };
        // The excess over the mean of 500 is 400; 350 is the nearest below it.
        let world = world(2, &[(0, 500), (0, 350), (0, 50), (1, 100)]);
        assert_eq!(rival.migrations(&world, 0, 1), [(1, 1)]);
    }

    #[test]
    fn proxmox_moves_what_evens_out_most() {
        let mut rival =
            ProxmoxRebalancer { threshold_percent: 30, margin_percent: 10, load: LoadKind::Floors };
        let uneven = world(2, &[(0, 500), (0, 300), (0, 100), (1, 100)]);
        assert_eq!(rival.migrations(&uneven, 0, 9), [(0, 1)]);
        let even = world(2, &[(0, 500), (1, 400)]);
        assert_eq!(rival.migrations(&even, 0, 9), []);
    }
}
