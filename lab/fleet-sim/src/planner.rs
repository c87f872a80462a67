//! The planner of `ballast-fleet` as a balancer of the simulation.
//!
//! A planner with foresight takes as a guest's need the larger of what it needs now and what it
//! needed yesterday in the coming hour, so that hosts are relieved before their peak.
//! Limits: every plan is checked, as outside of a simulation; a refused plan stops the run. No
//! shipped program has foresight yet.

use std::time::Duration;

use ballast_fleet::{
    CompactCurve, Compatibility, FleetSettings, FleetSnapshot, GuestRecord, HostRecord,
    HypervisorVersion, Label, LastMove, check, plan,
};
use ballast_model::{Bytes, MissCurve, Timestamp};

use crate::miss_model::{MISSES_MAX, held_for, tracked_curve};
use crate::play::{ROUND_MINUTES, ROUNDS_A_DAY};
use crate::policy_host::name;
use crate::{Balancer, World};

/// Bandwidth of every migration, bytes a second.
const BANDWIDTH: Bytes = Bytes::mib(1000);

/// How many rounds ahead the foresight looks: an hour.
const FORESEEN_ROUNDS: u64 = 6;

/// Plans with `ballast-fleet`, and remembers when each guest was moved.
#[derive(Debug, Default)]
pub struct FleetPlanner {
    /// Whether hosts know their guests' miss curves, and so whether guests have objectives.
    knows_curves: bool,
    /// Working sets of all guests by round of the day before, in MiB; empty: no foresight.
    yesterday: Vec<Vec<u64>>,
    /// When each guest was moved, by the guest's index.
    moved: Vec<Vec<Timestamp>>,
}

impl Balancer for FleetPlanner {
    fn name(&self) -> String {
        "ballast-fleet".to_owned()
    }

    fn shrinks_first(&self) -> bool {
        true
    }

    fn migrations(&mut self, world: &World, round: u64, most: usize) -> Vec<(usize, usize)> {
        let now = Timestamp::from_millis((round + 144) * ROUND_MINUTES * 60_000);
        self.moved.resize(world.guests.len(), Vec::new());
        let settings = FleetSettings { migrations_max: most, ..FleetSettings::default() };
        let hosts = 0..world.hosts.len();
        let records = hosts.map(|host| self.record(world, host, round, now)).collect();
        let (snapshot, refused) = FleetSnapshot::admit(records);
        assert!(refused.is_empty(), "{refused:?}");
        let plan = plan(&snapshot, &settings, now);
        let found = check(&snapshot, &settings, &plan, now);
        assert!(found.is_ok(), "{found:?}");
        let mut migrations = Vec::new();
        for it in &plan.migrations {
            let index = |name: &str| name.get(1..).and_then(|it| it.parse::<usize>().ok());
            let (Some(guest), Some(to)) = (index(it.guest.as_str()), index(it.to.as_str())) else {
                continue;
            };
            self.moved[guest].push(now);
            migrations.push((guest, to));
        }
        migrations
    }
}

/// The curve that a daemon reports of a guest with this allocation, in MiB.
fn compact_curve(curve: &MissCurve, allocation: u64) -> Option<CompactCurve> {
    let objective = curve.size_for(MISSES_MAX).map(|size| (size, MISSES_MAX));
    CompactCurve::with_objective(curve.around(Bytes::mib(allocation)).to_vec(), objective).ok()
}

impl FleetPlanner {
    /// A planner that knows guests' miss curves, as an exact tracker would report them, and their
    /// objectives.
    pub fn with_curves() -> FleetPlanner {
        FleetPlanner { knows_curves: true, ..FleetPlanner::default() }
    }

    /// A planner that also knows the working sets of all guests yesterday, round by round, in MiB,
    /// and expects them again.
    pub fn foreseeing(yesterday: Vec<Vec<u64>>) -> FleetPlanner {
        FleetPlanner { yesterday, ..FleetPlanner::with_curves() }
    }

    /// The most that a guest needed yesterday in the hour after this time of day, in MiB; 0:
    /// unknown.
    fn forecast(&self, guest: usize, round: u64) -> u64 {
        let rounds = (round + 1..=round + FORESEEN_ROUNDS).map(|it| (it % ROUNDS_A_DAY) as usize);
        let known = rounds.filter_map(|it| self.yesterday.get(it)?.get(guest));
        known.copied().max().unwrap_or(0)
    }

    fn record(&self, world: &World, host: usize, round: u64, now: Timestamp) -> HostRecord {
        let label = |text: &str| -> Label { text.parse().expect("a label") };
        let reported = &world.hosts[host];
        let guests: Vec<GuestRecord> = world
            .on(host)
            .map(|(index, guest)| {
                let day = Duration::from_secs(24 * 3600);
                let lately = |at: &&Timestamp| now.saturating_since(**at) < day;
                let moves = self.moved[index].iter().filter(lately).count();
                let at = self.moved[index].last().copied();
                let forecast = self.forecast(index, round);
                let estimated = guest.estimated.max(held_for(forecast));
                GuestRecord {
                    id: name(index),
                    floor: Bytes::mib(guest.floor),
                    allocation: Bytes::mib(guest.allocation),
                    demand: Bytes::mib(estimated.min(guest.boot)),
                    curve: match forecast > guest.demand {
                        true => compact_curve(&tracked_curve(forecast), guest.allocation),
                        false => {
                            let curve = world.curves[index].as_ref();
                            curve.and_then(|it| compact_curve(it, guest.allocation))
                        }
                    },
                    misses_per_s_max: self.knows_curves.then_some(MISSES_MAX),
                    resident: Bytes::mib(guest.allocation),
                    copied_resident: Bytes::ZERO,
                    dirty_per_s: BANDWIDTH.fraction(guest.dirty_per_mille, 1000),
                    can_shrink: true,
                    pinned_by: None,
                    moving_to: None,
                    group: None,
                    storage: Vec::new(),
                    networks: Vec::new(),
                    moves_in_24h: u32::try_from(moves).unwrap_or(u32::MAX),
                    last_move: at.map(|at| LastMove { at, took: Duration::from_secs(60) }),
                }
            })
            .collect();
        let allocated: Bytes = guests.iter().map(|guest| guest.allocation).sum();
        HostRecord {
            id: format!("h{host}").parse().expect("a name"),
            seen_at: now,
            budget: Bytes::mib(reported.distributable),
            reserve: Bytes::ZERO,
            committed: Bytes::mib(reported.committed).max(allocated),
            free: Bytes::mib(reported.free),
            bandwidth_per_s: BANDWIDTH,
            compatibility: Compatibility {
                hypervisor: label("simulated"),
                version: HypervisorVersion([1, 0, 0]),
                cpu_model: label("simulated"),
                storage: Vec::new(),
                networks: Vec::new(),
            },
            executes_moves: true,
            is_draining: false,
            reservations: Vec::new(),
            guests,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SimGuest;

    /// Two hosts of 10 GiB; three guests of the first need 3 GiB each.
    fn world() -> World {
        let guest = |host| SimGuest {
            host,
            boot: 8192,
            floor: 512,
            demand: 3000,
            allocation: 3200,
            estimated: 3100,
            ..SimGuest::default()
        };
        let mut world = World::new(&[10 << 10, 10 << 10], vec![guest(0), guest(0), guest(0)]);
        for curve in &mut world.curves {
            *curve = Some(tracked_curve(3000));
        }
        for host in &mut world.hosts {
            host.free = 4096;
        }
        world
    }

    #[test]
    fn a_host_that_keeps_objectives_is_left_alone() {
        assert!(FleetPlanner::with_curves().migrations(&world(), 0, 8).is_empty());
    }

    #[test]
    fn an_objective_out_of_reach_moves_a_guest() {
        let mut world = world();
        world.curves[1] = Some(tracked_curve(6000));
        assert_eq!(FleetPlanner::with_curves().migrations(&world, 0, 8).len(), 1);
        // Without curves there are no objectives.
        assert!(FleetPlanner::default().migrations(&world, 0, 8).is_empty());
    }

    #[test]
    fn a_foreseen_peak_moves_a_guest_before_it() {
        let mut yesterday = vec![vec![3000; 3]; ROUNDS_A_DAY as usize];
        yesterday[60][1] = 6000;
        let mut planned = FleetPlanner::foreseeing(yesterday);
        assert!(planned.migrations(&world(), 60 - FORESEEN_ROUNDS - 1, 8).is_empty());
        assert_eq!(planned.migrations(&world(), 60 - FORESEEN_ROUNDS, 8).len(), 1);
    }
}
