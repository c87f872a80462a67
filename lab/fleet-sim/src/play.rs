//! A day of a fleet, played under one way to divide hosts' memory and one way to balance hosts.
//!
//! Idea: rounds of ten minutes. In each round floors and working sets change, hosts divide their
//! memory on their own, the balancer says which guests should move, destinations reserve memory,
//! and guests whose memory is free by then arrive. The changes depend only on the scene, never on
//! the balancer.
//! Sampling: of ten minutes only the first [`SECONDS`] seconds are simulated, second by second.
//! Working sets reach their next size in the first few of them, faster than on a real day. For the
//! rest of the round each guest stays as it was in the last second.
//! Cost: `SECONDS` decisions of each host in a round.
//! Limits: a copy costs nothing and never fails once its memory is reserved.

use ballast_model::Timestamp;

use crate::miss_model::{is_slow, usable};
use crate::policy_host::{Division, FleetState};
use crate::{Balancer, SimGuest, World};

/// Minutes in a round.
pub(crate) const ROUND_MINUTES: u64 = 10;
/// Rounds of a day.
pub(crate) const ROUNDS_A_DAY: u64 = 24 * 60 / ROUND_MINUTES;

/// Seconds in which working sets change to their next size.
const CHANGE_SECONDS: u64 = 6;
/// The second at which the balancer is asked; hosts have divided their memory by then.
const DIVIDE_SECONDS: u64 = 12;
/// The second at which guests arrive at their destinations.
const RESERVE_SECONDS: u64 = 18;
/// Seconds of a round that are simulated.
const SECONDS: u64 = 24;

/// What happens to a fleet, whoever balances it.
pub trait Scene {
    /// The fleet at the start.
    fn world(&mut self) -> World;

    /// Sets the floors for this round, and returns each guest's next working set in MiB.
    fn next(&mut self, world: &mut World, round: u64) -> Vec<u64>;

    /// The greatest number of migrations in a round.
    fn migrations_max(&self) -> usize;

    /// The number of rounds.
    fn rounds(&self) -> u64 {
        ROUNDS_A_DAY
    }
}

/// The results of a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// MiB copied.
    pub copied: u64,
    /// MiB that would have been copied if every guest had been shrunk to its need first.
    pub copied_if_shrunk: u64,
    /// Guests moved.
    pub migrations: u64,
    /// Migrations given up because the destination did not have the memory.
    pub given_up: u64,
    /// Hosts that were short of floors after balancing, summed over the rounds.
    pub short_hosts: u64,
    /// The memory that they were short of, in MiB, summed in the same way.
    pub short: u64,
    /// Hosts that were short before balancing, summed over the rounds.
    pub short_before: u64,
    /// Guests that held less than their floor at the end of a round, summed over the rounds.
    pub below_floor: u64,
    /// Seconds of all guests together.
    pub guest_seconds: u64,
    /// Seconds of guests that missed their objective.
    pub slow_seconds: u64,
    /// The same for the guest with the most, in parts of a million of its time.
    pub worst_ppm: u64,
}

impl Figures {
    /// Adds the results of another day.
    pub fn add(&mut self, other: &Figures) {
        self.copied += other.copied;
        self.copied_if_shrunk += other.copied_if_shrunk;
        self.migrations += other.migrations;
        self.given_up += other.given_up;
        self.short_hosts += other.short_hosts;
        self.short += other.short;
        self.short_before += other.short_before;
        self.below_floor += other.below_floor;
        self.guest_seconds += other.guest_seconds;
        self.slow_seconds += other.slow_seconds;
        self.worst_ppm = self.worst_ppm.max(other.worst_ppm);
    }

    /// The part of guests' time in which they missed their objective, in parts of a million.
    pub fn slow_ppm(&self) -> u64 {
        self.slow_seconds * 1_000_000 / self.guest_seconds.max(1)
    }
}

/// A migration under way.
struct Move {
    guest: usize,
    to: usize,
    reserved: u64,
}

/// Plays the scene; without a balancer guests never move.
pub fn play(
    scene: &mut dyn Scene,
    division: Division,
    mut balancer: Option<&mut dyn Balancer>,
) -> Figures {
    let mut world = scene.world();
    let mut hosts = FleetState::new(&world, division);
    let mut figures = Figures::default();
    let mut slow = vec![0; world.guests.len()];
    for round in 0..scene.rounds() {
        let before: Vec<u64> = world.guests.iter().map(|guest| guest.demand).collect();
        let next = scene.next(&mut world, round);
        (0..world.hosts.len()).for_each(|host| hosts.set_limits(&world, host));
        figures.short_before += short(&world).0;
        let mut moves: Vec<Move> = Vec::new();
        for second in 1..=SECONDS {
            let now = Timestamp::from_millis((round * ROUND_MINUTES * 60 + second) * 1000);
            for (guest, (from, to)) in world.guests.iter_mut().zip(before.iter().zip(&next)) {
                let done = second.min(CHANGE_SECONDS);
                guest.demand = (from * (CHANGE_SECONDS - done) + to * done) / CHANGE_SECONDS;
            }
            hosts.second(&mut world, now);
            let lasts = if second == SECONDS { ROUND_MINUTES * 60 - SECONDS + 1 } else { 1 };
            for (guest, slow) in world.guests.iter().zip(&mut slow) {
                *slow += lasts * u64::from(is_slow(guest.demand, usable(guest.allocation)));
            }
            if let (DIVIDE_SECONDS, Some(balancer)) = (second, balancer.as_deref_mut()) {
                moves = ordered(balancer, &world, round, scene.migrations_max());
                for it in &moves {
                    hosts.reserve(it.guest, it.to, it.reserved, now);
                }
            }
            if let (RESERVE_SECONDS, Some(balancer)) = (second, balancer.as_deref()) {
                for it in moves.drain(..) {
                    let guest = world.guests[it.guest];
                    match hosts.arrive(&mut world, it.guest, it.to, it.reserved) {
                        true => {
                            figures.copied += guest.copied(balancer.shrinks_first());
                            figures.copied_if_shrunk += guest.copied(true);
                            figures.migrations += 1;
                        }
                        false => figures.given_up += 1,
                    }
                }
            }
        }
        let (hosts, mib) = short(&world);
        figures.short_hosts += hosts;
        figures.short += mib;
        let below = world.guests.iter().filter(|guest| guest.allocation < guest.floor);
        figures.below_floor += below.count() as u64;
    }
    let seconds = scene.rounds() * ROUND_MINUTES * 60;
    figures.guest_seconds = seconds * world.guests.len() as u64;
    figures.slow_seconds = slow.iter().sum();
    figures.worst_ppm = slow.iter().max().map_or(0, |worst| worst * 1_000_000 / seconds.max(1));
    figures
}

/// The balancer's migrations, and how much to reserve for each: a guest arrives with its need if it
/// was shrunk to that, else with at least its floor.
fn ordered(balancer: &mut dyn Balancer, world: &World, round: u64, most: usize) -> Vec<Move> {
    let is_shrunk = balancer.shrinks_first();
    let reserved =
        |guest: &SimGuest| if is_shrunk { guest.policy_allocation() } else { guest.floor };
    let migrations = balancer.migrations(world, round, most).into_iter();
    migrations
        .map(|(guest, to)| Move { guest, to, reserved: reserved(&world.guests[guest]) })
        .collect()
}

/// The number of hosts that are short of floors, and by how many MiB in all.
fn short(world: &World) -> (u64, u64) {
    let short = (0..world.hosts.len()).map(|host| world.short(host)).filter(|mib| *mib > 0);
    short.fold((0, 0), |(hosts, all), mib| (hosts + 1, all + mib))
}
