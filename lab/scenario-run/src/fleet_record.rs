//! The record of a fleet in one run.
//!
//! Idea: in addition to the guests' own series (`record`), what the store said (orders with their
//! phases, and who led) and what each host's daemon said about its budget. Times are seconds since
//! the schedule began; what was not seen is `null`.

use serde::{Deserialize, Serialize};

/// The hosts of a scenario, and what is expected of their fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FleetInfo {
    /// The hosts.
    pub hosts: Vec<FleetHostInfo>,
    /// The host that a guest is expected to leave.
    pub overloaded: String,
    /// Whether the leader is killed while a move is under way.
    pub kills_leader: bool,
    /// Length of the last part of a run, in which work is compared, in seconds.
    pub window_s: f64,
    /// How many times the work without moves is expected with moves.
    pub work_times: f64,
    /// The guests' floors; no guest may ever have less.
    pub floors: Vec<FloorInfo>,
}

/// A host of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetHostInfo {
    /// Its name.
    pub host: String,
    /// Memory for all guests on it.
    pub budget_bytes: u64,
    /// The guests that start on it.
    pub guests: Vec<String>,
}

/// The floor of a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FloorInfo {
    /// The guest.
    pub guest: String,
    /// Its floor.
    pub floor_bytes: u64,
}

/// What happened in the fleet in one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FleetRun {
    /// Its hosts.
    pub hosts: Vec<HostRun>,
    /// Which guest was on which host, from when on; a guest that moved has several entries.
    pub places: Vec<PlaceRecord>,
    /// Moves that were ordered, the earliest first.
    pub migrations: Vec<MigrationRecord>,
    /// Who led, from when on.
    pub leaders: Vec<LeaderRecord>,
    /// The leader that was killed, if one was.
    pub kill: Option<KillRecord>,
    /// Runs before this one that were discarded because a guest's kernel died in them.
    #[serde(default)]
    pub discarded: Vec<DiscardedRun>,
}

/// One host in one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostRun {
    /// Its name.
    pub host: String,
    /// Plans that the checker of its daemon refused.
    pub plans_refused: u64,
    /// One sample about every second.
    pub samples: Vec<HostSample>,
}

/// What a host's daemon said at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostSample {
    /// When, in seconds.
    pub at_s: f64,
    /// Memory for all its guests together.
    pub budget_bytes: u64,
    /// Memory that they hold or were promised.
    pub committed_bytes: u64,
    /// Memory that they hold.
    pub held_bytes: u64,
    /// Memory that is reserved for guests that are to come.
    pub reserved_bytes: u64,
}

/// A guest on a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlaceRecord {
    /// The guest.
    pub guest: String,
    /// The host.
    pub host: String,
    /// From when on, in seconds.
    pub from_s: f64,
}

/// A move that was ordered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MigrationRecord {
    /// The guest.
    pub guest: String,
    /// Where it was.
    pub from: String,
    /// Where it was to go.
    pub to: String,
    /// Its phases, in the order in which they were seen.
    pub phases: Vec<PhaseRecord>,
    /// How it ended, in words of the record; `None`: it had not ended.
    pub ended: Option<String>,
    /// When its record was removed, in seconds.
    pub removed_s: Option<f64>,
}

/// When a phase of a move was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseRecord {
    /// Name of the phase.
    pub phase: String,
    /// When, in seconds.
    pub at_s: f64,
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaderRecord {
    /// The host; `None`: nobody.
    pub host: Option<String>,
    /// From when on, in seconds.
    pub from_s: f64,
}

/// A leader that was killed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KillRecord {
    /// The host whose member it was.
    pub host: String,
    /// When, in seconds.
    pub at_s: f64,
    /// The guest that was being moved.
    pub guest: String,
    /// The phase of that move.
    pub phase: String,
}

/// A run that was discarded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiscardedRun {
    /// The guest whose kernel died.
    pub guest: String,
    /// What the guest printed on its console.
    pub console: String,
}

impl MigrationRecord {
    /// When a phase was first seen, in seconds.
    pub fn at(&self, phase: &str) -> Option<f64> {
        self.phases.iter().find(|it| it.phase == phase).map(|it| it.at_s)
    }

    /// Whether the guest runs at its destination.
    pub fn is_moved(&self) -> bool {
        self.at("moved").is_some()
    }

    /// Time from the order until the guest ran at its destination, in seconds.
    pub fn took_s(&self) -> Option<f64> {
        Some(self.at("moved")? - self.phases.first()?.at_s)
    }

    /// Time in which the guest was stopped, in seconds, as far as the store shows.
    pub fn still_s(&self) -> Option<f64> {
        Some(self.at("moved")? - self.at("copied")?)
    }
}

impl FleetRun {
    /// The first host that led after the leader was killed, and since when.
    pub fn successor(&self) -> Option<(&str, f64)> {
        let kill = self.kill.as_ref()?;
        let later = self.leaders.iter().filter(|it| it.from_s > kill.at_s);
        let mut named = later.filter_map(|it| Some((it.host.as_deref()?, it.from_s)));
        named.next()
    }
}
