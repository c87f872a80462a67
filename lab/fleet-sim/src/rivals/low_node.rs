//! LowNodeUtilization of Kubernetes' descheduler, which moves the guests of KubeVirt.
//!
//! Rule: nodes above the high threshold are overutilized, nodes below the low one underutilized. If
//! there are both, pods of overutilized nodes are evicted in the order of the list until their node
//! is no longer above the high threshold, or until the room of underutilized nodes below the high
//! threshold is used up. The scheduler then places each pod on the node with the least load that
//! has room.
//! Source: the descheduler's documentation. Limits: one resource; all pods have the same priority.

use super::{LoadKind, per_mille};
use crate::{Balancer, World};

/// Thresholds in per cent of a host's budget.
#[derive(Clone, Copy, Debug)]
pub struct LowNodeUtilization {
    /// Below this a host is underutilized.
    pub low_percent: u64,
    /// Above this it is overutilized.
    pub high_percent: u64,
    /// What counts as load; the descheduler's default is what is requested.
    pub load: LoadKind,
}

impl Balancer for LowNodeUtilization {
    fn name(&self) -> String {
        let LowNodeUtilization { low_percent, high_percent, load } = self;
        format!("LowNodeUtilization {low_percent}/{high_percent} % of {}", load.name())
    }

    fn migrations(&mut self, world: &World, _: u64, most: usize) -> Vec<(usize, usize)> {
        let mut loads = self.load.of_hosts(world);
        let share = |host: usize, loads: &[u64]| per_mille(world, host, loads[host]);
        let (low, high) = (self.low_percent * 10, self.high_percent * 10);
        let hosts = 0..world.hosts.len();
        let mut over: Vec<usize> = hosts.clone().filter(|&it| share(it, &loads) > high).collect();
        over.sort_by_key(|&it| std::cmp::Reverse(share(it, &loads)));
        let under = hosts.clone().filter(|&it| share(it, &loads) < low);
        let mut room: u64 =
            under.map(|it| (world.hosts[it].budget * high / 1000).saturating_sub(loads[it])).sum();
        let mut migrations = Vec::new();
        for from in over {
            for (guest, _) in world.on(from) {
                let load = self.load.of(world, guest);
                if share(from, &loads) <= high || load > room || migrations.len() == most {
                    break;
                }
                let has_room =
                    |to: &usize| *to != from && loads[*to] + load <= world.hosts[*to].budget;
                let to = hosts.clone().filter(has_room).min_by_key(|&it| share(it, &loads));
                let Some(to) = to else { continue };
                loads[from] -= load;
                loads[to] += load;
                room -= load;
                migrations.push((guest, to));
            }
        }
        migrations
    }
}
