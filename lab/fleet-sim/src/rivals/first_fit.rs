//! First fit: guests leave a host that has more load than memory in the order of the list, each to
//! the first host that has room for it, until the rest fits.

use super::LoadKind;
use crate::{Balancer, World};

/// The simplest rule that meets floors or, if load means use, working sets.
#[derive(Clone, Copy, Debug)]
pub struct FirstFit {
    /// What counts as load.
    pub load: LoadKind,
}

impl Balancer for FirstFit {
    fn name(&self) -> String {
        format!("first fit of {}", self.load.name())
    }

    fn migrations(&mut self, world: &World, _: u64, most: usize) -> Vec<(usize, usize)> {
        let mut loads = self.load.of_hosts(world);
        let mut migrations = Vec::new();
        for host in 0..world.hosts.len() {
            for (guest, _) in world.on(host) {
                if loads[host] <= world.hosts[host].budget || migrations.len() == most {
                    break;
                }
                let load = self.load.of(world, guest);
                let has_room =
                    |to: &usize| *to != host && loads[*to] + load <= world.hosts[*to].budget;
                let to = (0..world.hosts.len()).find(has_room);
                if let Some(to) = to {
                    loads[host] -= load;
                    loads[to] += load;
                    migrations.push((guest, to));
                }
            }
        }
        migrations
    }
}
