//! A day in which load follows the time of day.
//!
//! Idea: guests are of four kinds: office hours, evenings, nights, and the whole day. A guest's
//! working set is its peak times its kind's value of the hour, shifted by up to an hour. It also
//! varies by up to a tenth, and now and then a burst of half an hour adds a fifth of the peak. A
//! guest of a seed is the same in fleets of any size: a larger fleet contains all guests of a
//! smaller one.
//! Limits: the shapes are invented, not recorded. A guest's boot memory is a tenth to two thirds
//! more than its kind's peak, because sizes are sold in steps.

use crate::miss_model::{held_for, is_slow, least_usable, usable};
use crate::play::{ROUNDS_A_DAY, Scene};
use crate::{SimGuest, World};

/// Working sets by hour, in per mille of the peak: office hours, evenings, nights, always.
const HOURS: [[u64; 24]; 4] = [
    [
        550, 550, 550, 550, 550, 560, 620, 720, 860, 960, 1000, 1000, 970, 980, 1000, 1000, 980,
        900, 780, 680, 620, 590, 560, 550,
    ],
    [
        720, 600, 540, 500, 500, 500, 510, 540, 580, 620, 650, 680, 700, 700, 700, 710, 740, 800,
        900, 970, 1000, 1000, 960, 850,
    ],
    [
        900, 1000, 1000, 1000, 1000, 960, 800, 620, 500, 450, 450, 450, 450, 450, 450, 450, 450,
        450, 450, 460, 480, 520, 600, 740,
    ],
    [900; 24],
];
/// How many guests in twenty are of each kind.
const KIND_SHARES: [u64; 4] = [8, 4, 3, 5];
/// Sizes as sold, in MiB; each entry is equally likely.
const SIZES_SOLD: [u64; 8] = [1024, 1024, 2048, 2048, 2048, 4096, 4096, 8192];
/// A guest's floor in per cent of its boot memory.
const FLOOR_PERCENT: u64 = 35;
/// The length of a burst in rounds.
const BURST_ROUNDS: u64 = 3;

/// The hosts of guests and their allocations at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Each guest is on the host with the least memory sold; a host's memory is divided in
    /// proportion to what was sold.
    Spread,
    /// Each guest holds all its boot memory; the largest guest comes first, to the first host with
    /// room.
    AsSold,
    /// Each guest holds the least that meets the objective on this very day, which in reality is
    /// not known beforehand; packed in the same way.
    AtPeak,
}

/// The parameters of such a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadSpec {
    /// The number of hosts.
    pub hosts: usize,
    /// Memory of each host for guests, in MiB.
    pub budget: u64,
    /// The number of all guests.
    pub guests: usize,
    /// How far working sets fall from their peaks: 100 is as in the table, 0 not at all.
    pub swing_percent: u64,
    /// How many rounds in a thousand a guest may be slow when its size is fixed at its peak.
    pub slow_per_mille: u64,
    /// The placement of guests at the start.
    pub placement: Placement,
    /// The greatest number of migrations in a round.
    pub migrations_max: usize,
    /// The number of rounds to play, from midnight on.
    pub rounds: u64,
    /// The seed of all random numbers.
    pub seed: u64,
}

impl LoadSpec {
    /// Twenty hosts of 64 GiB.
    pub fn usual(guests: usize, seed: u64) -> LoadSpec {
        LoadSpec {
            hosts: 20,
            budget: 64 << 10,
            guests,
            swing_percent: 100,
            slow_per_mille: 10,
            placement: Placement::Spread,
            migrations_max: 8,
            rounds: ROUNDS_A_DAY,
            seed,
        }
    }
}

/// A day with given parameters.
#[derive(Debug)]
pub struct LoadDay {
    spec: LoadSpec,
    loads: Vec<GuestLoad>,
}

/// One guest's load.
#[derive(Clone, Debug)]
struct GuestLoad {
    rng: fastrand::Rng,
    kind: usize,
    boot: u64,
    peak: u64,
    /// By how many minutes plus an hour its day is later than its kind's.
    later: u64,
    /// Its variation: per mille of the working set without it.
    wander: u64,
    burst_until: u64,
    swing_percent: u64,
    dirty_per_mille: u64,
}

impl GuestLoad {
    fn new(spec: &LoadSpec, index: usize) -> GuestLoad {
        let mut rng = fastrand::Rng::with_seed(spec.seed.wrapping_mul(1 << 32) + index as u64);
        let mut dice = rng.u64(0..20);
        let mut kind = 0;
        while dice >= KIND_SHARES[kind] {
            dice -= KIND_SHARES[kind];
            kind += 1;
        }
        let boot = SIZES_SOLD[rng.usize(0..SIZES_SOLD.len())];
        GuestLoad {
            kind,
            boot,
            peak: boot * rng.u64(60..=90) / 100,
            later: rng.u64(0..=120),
            dirty_per_mille: rng.u64(0..=300),
            wander: 1000,
            burst_until: 0,
            swing_percent: spec.swing_percent,
            rng,
        }
    }

    /// Its working set in the next round, in MiB; must be called for one round after the other.
    fn next(&mut self, round: u64) -> u64 {
        self.wander = (self.wander + self.rng.u64(0..=30)).saturating_sub(15).clamp(900, 1100);
        // Once in three days.
        if self.rng.u64(0..3 * ROUNDS_A_DAY) == 0 {
            self.burst_until = round + BURST_ROUNDS;
        }
        let minute = round * 24 * 60 / ROUNDS_A_DAY + 25 * 60 - self.later;
        let (hour, past) = ((minute / 60 % 24) as usize, minute % 60);
        let hours = &HOURS[self.kind];
        let shape = (hours[hour] * (60 - past) + hours[(hour + 1) % 24] * past) / 60;
        let shape = 1000 - (1000 - shape) * self.swing_percent / 100;
        let burst = if round < self.burst_until { self.peak / 5 } else { 0 };
        (self.peak * shape / 1000 * self.wander / 1000 + burst).min(usable(self.boot))
    }

    /// The least allocation for the whole day with which at most `slow_per_mille` rounds are slow.
    fn held_at_peak(&self, spec: &LoadSpec) -> u64 {
        let mut day = self.clone();
        let mut demands: Vec<u64> = (0..spec.rounds).map(|round| day.next(round)).collect();
        demands.sort_unstable_by(|a, b| b.cmp(a));
        let may_be_slow = (spec.rounds * spec.slow_per_mille / 1000) as usize;
        let held = held_for(least_usable(demands[may_be_slow]));
        debug_assert!(!is_slow(demands[may_be_slow], usable(held)));
        held
    }
}

impl LoadDay {
    /// A day with the parameters `spec`; `None` if its guests cannot be placed.
    pub fn new(spec: LoadSpec) -> Option<LoadDay> {
        let loads = (0..spec.guests).map(|index| GuestLoad::new(&spec, index)).collect();
        let day = LoadDay { spec, loads };
        day.placed().is_some().then_some(day)
    }

    /// Working sets of all guests by round on another day, in MiB. Hours and peaks are the same as
    /// on this day; variation and bursts are not.
    pub fn yesterday(&self) -> Vec<Vec<u64>> {
        let mut loads = self.loads.clone();
        for (index, load) in loads.iter_mut().enumerate() {
            load.rng = fastrand::Rng::with_seed(!self.spec.seed.wrapping_add((index as u64) << 32));
        }
        let rounds = 0..ROUNDS_A_DAY;
        rounds.map(|round| loads.iter_mut().map(|load| load.next(round)).collect()).collect()
    }

    /// The host of each guest, and its allocation.
    fn placed(&self) -> Option<Vec<(usize, u64)>> {
        let spec = &self.spec;
        let sizes: Vec<u64> = self
            .loads
            .iter()
            .map(|load| match spec.placement {
                Placement::Spread | Placement::AsSold => load.boot,
                Placement::AtPeak => load.held_at_peak(spec),
            })
            .collect();
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        order.sort_by_key(|&index| std::cmp::Reverse(sizes[index]));
        let (mut taken, mut floors) = (vec![0; spec.hosts], vec![0; spec.hosts]);
        let mut placed = vec![(0, 0); sizes.len()];
        for index in order {
            let floor = self.loads[index].boot * FLOOR_PERCENT / 100;
            let has_room = |host: &usize| match spec.placement {
                Placement::Spread => floors[*host] + floor <= spec.budget,
                _ => taken[*host] + sizes[index] <= spec.budget,
            };
            let mut hosts = (0..spec.hosts).filter(has_room);
            let host = match spec.placement {
                Placement::Spread => hosts.min_by_key(|&host| taken[host]),
                _ => hosts.next(),
            }?;
            taken[host] += sizes[index];
            floors[host] += floor;
            placed[index] = (host, sizes[index]);
        }
        if spec.placement == Placement::Spread {
            for (host, held) in &mut placed {
                *held = (*held).min(*held * spec.budget / taken[*host]);
            }
        }
        Some(placed)
    }
}

impl Scene for LoadDay {
    fn world(&mut self) -> World {
        let placed = self.placed().unwrap_or_default();
        let guest = |(load, (host, allocation)): (&GuestLoad, (usize, u64))| SimGuest {
            host,
            boot: load.boot,
            floor: (load.boot * FLOOR_PERCENT / 100).min(allocation),
            demand: load.clone().next(0),
            allocation,
            estimated: allocation,
            dirty_per_mille: load.dirty_per_mille,
        };
        let guests = self.loads.iter().zip(placed).map(guest).collect();
        World::new(&vec![self.spec.budget; self.spec.hosts], guests)
    }

    fn next(&mut self, _: &mut World, round: u64) -> Vec<u64> {
        self.loads.iter_mut().map(|load| load.next(round)).collect()
    }

    fn migrations_max(&self) -> usize {
        self.spec.migrations_max
    }

    fn rounds(&self) -> u64 {
        self.spec.rounds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(guests: usize, placement: Placement) -> LoadDay {
        LoadDay::new(LoadSpec { placement, ..LoadSpec::usual(guests, 3) }).unwrap()
    }

    fn demands(day: &mut LoadDay) -> Vec<Vec<u64>> {
        let mut world = day.world();
        (0..ROUNDS_A_DAY).map(|round| day.next(&mut world, round)).collect()
    }

    #[test]
    fn a_larger_fleet_has_the_guests_of_a_smaller_one() {
        let small = demands(&mut day(40, Placement::Spread));
        let large = demands(&mut day(60, Placement::Spread));
        for (small, large) in small.iter().zip(&large) {
            assert_eq!(small[..], large[..40]);
        }
    }

    #[test]
    fn sizes_of_the_peak_keep_the_objective() {
        let mut day = day(100, Placement::AtPeak);
        let world = day.world();
        let mut slow = vec![0; world.guests.len()];
        for demands in demands(&mut day) {
            for (index, guest) in world.guests.iter().enumerate() {
                slow[index] += u64::from(is_slow(demands[index], usable(guest.allocation)));
            }
        }
        let most = ROUNDS_A_DAY * day.spec.slow_per_mille / 1000;
        assert!(slow.iter().all(|rounds| *rounds <= most), "{slow:?}");
        assert!(slow.iter().any(|rounds| *rounds > 0), "{slow:?}");
    }

    /// The hours are the same, the random numbers are not.
    #[test]
    fn yesterday_is_like_today() {
        let mut day = day(100, Placement::Spread);
        let yesterday = day.yesterday();
        let today = demands(&mut day);
        let all = |day: &[Vec<u64>]| day.iter().flatten().sum::<u64>();
        let apart: u64 = today
            .iter()
            .flatten()
            .zip(yesterday.iter().flatten())
            .map(|(now, then)| now.abs_diff(*then))
            .sum();
        assert_ne!(today, yesterday);
        assert!(apart < all(&today) / 10, "{apart} of {}", all(&today));
    }
}
