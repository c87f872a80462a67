//! The strategy `workload_balance` of OpenStack Watcher.
//!
//! Rule: from the most loaded host at or above the threshold, the guest is chosen whose load is
//! nearest below the host's excess over the mean. It goes to the least loaded host that has room
//! and stays below the threshold. Watcher moves one guest per audit; here audits are repeated until
//! the round's migrations are used up.
//! Source: `watcher/decision_engine/strategy/strategies/workload_balance.py`. Limits: one resource.

use super::{LoadKind, per_mille};
use crate::{Balancer, World};

/// The threshold in per cent of a host's budget.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadBalance {
    /// At or above this a host is overloaded.
    pub threshold_percent: u64,
    /// What counts as load; Watcher's meter is use.
    pub load: LoadKind,
}

impl Balancer for WorkloadBalance {
    fn name(&self) -> String {
        format!("Watcher {} % of {}", self.threshold_percent, self.load.name())
    }

    fn migrations(&mut self, world: &World, _: u64, most: usize) -> Vec<(usize, usize)> {
        let mut world = world.clone();
        let mut migrations = Vec::new();
        let mut moved = Vec::new();
        while migrations.len() < most {
            let Some((guest, to)) = self.audit(&world, &moved) else { break };
            world.move_guest(guest, to);
            moved.push(guest);
            migrations.push((guest, to));
        }
        migrations
    }
}

impl WorkloadBalance {
    fn audit(&self, world: &World, moved: &[usize]) -> Option<(usize, usize)> {
        let loads = self.load.of_hosts(world);
        let mean = loads.iter().sum::<u64>() / loads.len().max(1) as u64;
        let threshold = self.threshold_percent * 10;
        let share = |host: usize| per_mille(world, host, loads[host]);
        let hosts = 0..world.hosts.len();
        let mut over: Vec<usize> = hosts.clone().filter(|&it| share(it) >= threshold).collect();
        over.sort_by_key(|&it| std::cmp::Reverse(share(it)));
        let chosen = over.iter().find_map(|&from| {
            let excess = loads[from].saturating_sub(mean);
            let mine = world.on(from).map(|(guest, _)| guest);
            let fits = mine.filter(|&it| self.load.of(world, it) <= excess && !moved.contains(&it));
            fits.max_by_key(|&it| self.load.of(world, it))
        })?;
        let load = self.load.of(world, chosen);
        let below = |to: &usize| {
            share(*to) < threshold
                && per_mille(world, *to, loads[*to] + load) < threshold
                && world.floors(*to) + world.guests[chosen].floor <= world.hosts[*to].budget
        };
        let to = hosts.filter(below).min_by_key(|&it| share(it))?;
        Some((chosen, to))
    }
}
