//! Automatic rebalancing of Proxmox VE 9.
//!
//! Rule: while the imbalance of the nodes is above the threshold, the migration that lowers it most
//! is carried out, if it lowers it by more than a margin. The manager does this every ten seconds;
//! here it is repeated until the round's migrations are used up.
//! Source: Proxmox VE's documentation of automatic rebalancing. It does not define imbalance; here
//! it is the standard deviation of the loads as a share of their mean.

use super::LoadKind;
use crate::{Balancer, World};

/// Thresholds in per cent.
#[derive(Clone, Copy, Debug)]
pub struct ProxmoxRebalancer {
    /// Above this imbalance guests are moved.
    pub threshold_percent: u64,
    /// A migration has to lower the imbalance by this share of it.
    pub margin_percent: u64,
    /// What counts as load.
    pub load: LoadKind,
}

impl Balancer for ProxmoxRebalancer {
    fn name(&self) -> String {
        format!("Proxmox imbalance {} % of {}", self.threshold_percent, self.load.name())
    }

    fn migrations(&mut self, world: &World, _: u64, most: usize) -> Vec<(usize, usize)> {
        let mut world = world.clone();
        let mut migrations = Vec::new();
        while migrations.len() < most {
            let shares: Vec<f64> = self.shares(&world);
            let now = imbalance(&shares);
            if now * 100.0 <= self.threshold_percent as f64 {
                break;
            }
            let Some((then, guest, to)) = self.best(&world, &shares) else { break };
            if now - then <= now * self.margin_percent as f64 / 100.0 {
                break;
            }
            world.move_guest(guest, to);
            migrations.push((guest, to));
        }
        migrations
    }
}

impl ProxmoxRebalancer {
    fn shares(&self, world: &World) -> Vec<f64> {
        let loads = self.load.of_hosts(world);
        loads.iter().zip(&world.hosts).map(|(load, it)| *load as f64 / it.budget as f64).collect()
    }

    /// The migration after which the imbalance is least, and that imbalance.
    fn best(&self, world: &World, shares: &[f64]) -> Option<(f64, usize, usize)> {
        let mut best: Option<(f64, usize, usize)> = None;
        let floors: Vec<u64> = (0..world.hosts.len()).map(|it| world.floors(it)).collect();
        for (guest, record) in world.guests.iter().enumerate() {
            let load = self.load.of(world, guest) as f64;
            for to in 0..world.hosts.len() {
                let budget = world.hosts[to].budget;
                if to == record.host || floors[to] + record.floor > budget {
                    continue;
                }
                let mut after = shares.to_vec();
                after[record.host] -= load / world.hosts[record.host].budget as f64;
                after[to] += load / budget as f64;
                let then = imbalance(&after);
                if best.is_none_or(|(least, _, _)| then < least) {
                    best = Some((then, guest, to));
                }
            }
        }
        best
    }
}

/// The standard deviation as a share of the mean.
fn imbalance(shares: &[f64]) -> f64 {
    let count = shares.len().max(1) as f64;
    let mean = shares.iter().sum::<f64>() / count;
    let variance = shares.iter().map(|it| (it - mean) * (it - mean)).sum::<f64>() / count;
    if mean > 0.0 { variance.sqrt() / mean } else { 0.0 }
}
