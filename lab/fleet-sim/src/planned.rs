//! The planner of `ballast-fleet` as a balancer of the simulation.
//!
//! Limits: every plan is checked, as it has to be outside of a simulation; one that is refused
//! stops the run.

use std::time::Duration;

use ballast_fleet::{
    Compatibility, FleetSettings, FleetSnapshot, GuestRecord, HostRecord, HypervisorVersion, Label,
    LastMove, check, plan,
};
use ballast_model::{Bytes, GuestId, Timestamp};

use crate::day::ROUND_MINUTES;
use crate::{Balancer, World};

/// Bytes a second of every migration.
const BANDWIDTH: Bytes = Bytes::mib(1000);

/// Plans with `ballast-fleet`, and remembers who was moved when.
#[derive(Debug, Default)]
pub struct Planned {
    /// When each guest was moved, by place.
    moved: Vec<Vec<Timestamp>>,
}

impl Balancer for Planned {
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
        let records = (0..world.hosts.len()).map(|host| self.record(world, host, now)).collect();
        let (snapshot, refused) = FleetSnapshot::admit(records);
        assert!(refused.is_empty(), "{refused:?}");
        let plan = plan(&snapshot, &settings, now);
        let found = check(&snapshot, &settings, &plan, now);
        assert!(found.is_ok(), "{found:?}");
        let mut migrations = Vec::new();
        for it in &plan.migrations {
            let place = |name: &str| name.get(1..).and_then(|it| it.parse::<usize>().ok());
            let (Some(guest), Some(to)) = (place(it.guest.as_str()), place(it.to.as_str())) else {
                continue;
            };
            self.moved[guest].push(now);
            migrations.push((guest, to));
        }
        migrations
    }
}

impl Planned {
    fn record(&self, world: &World, host: usize, now: Timestamp) -> HostRecord {
        let label = |text: &str| -> Label { text.parse().expect("a label") };
        let budget = Bytes::mib(world.hosts[host].budget);
        let guests: Vec<GuestRecord> = world
            .on(host)
            .map(|(place, guest)| {
                let day = Duration::from_secs(24 * 3600);
                let lately = |at: &&Timestamp| now.saturating_since(**at) < day;
                let moves = self.moved[place].iter().filter(lately).count();
                let at = self.moved[place].last().copied();
                GuestRecord {
                    id: name('g', place),
                    floor: Bytes::mib(guest.floor),
                    allocation: Bytes::mib(guest.allocation),
                    demand: Bytes::mib(guest.demand),
                    curve: None,
                    misses_per_s_max: None,
                    resident: Bytes::mib(guest.allocation),
                    dirty_per_s: BANDWIDTH.fraction(guest.dirty_per_mille, 1000),
                    gives: true,
                    stays: None,
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
            budget,
            reserve: Bytes::ZERO,
            committed: allocated,
            free: budget.saturating_sub(allocated),
            bandwidth_per_s: BANDWIDTH,
            compatibility: Compatibility {
                hypervisor: label("simulated"),
                version: HypervisorVersion([1, 0, 0]),
                cpu_model: label("simulated"),
                storage: Vec::new(),
                networks: Vec::new(),
            },
            carries_moves: true,
            is_draining: false,
            reservations: Vec::new(),
            guests,
        }
    }
}

fn name(kind: char, place: usize) -> GuestId {
    format!("{kind}{place}").parse().expect("a name")
}
