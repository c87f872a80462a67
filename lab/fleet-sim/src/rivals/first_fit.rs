//! First fit: of a host that is short of floors, guests go in the order of the list, each to the
//! first host that has room for its floor, until the rest fit.

use crate::{Balancer, World};

/// The plainest rule that mends floors.
#[derive(Clone, Copy, Debug)]
pub struct FirstFit;

impl Balancer for FirstFit {
    fn name(&self) -> String {
        "first fit".to_owned()
    }

    fn migrations(&mut self, world: &World, _: u64, most: usize) -> Vec<(usize, usize)> {
        let mut world = world.clone();
        let mut migrations = Vec::new();
        for host in 0..world.hosts.len() {
            let guests: Vec<usize> = world.on(host).map(|(guest, _)| guest).collect();
            for guest in guests {
                if world.short(host) == 0 || migrations.len() == most {
                    break;
                }
                let floor = world.guests[guest].floor;
                let has_room = |to: &usize| {
                    *to != host && world.floors(*to) + floor <= world.hosts[*to].budget
                };
                let to = (0..world.hosts.len()).find(has_room);
                if let Some(to) = to {
                    world.guests[guest].host = to;
                    migrations.push((guest, to));
                }
            }
        }
        migrations
    }
}
