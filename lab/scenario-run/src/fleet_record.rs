//! What became of a fleet in a run, as it is kept.
//!
//! Idea: beside the guests' own series (`record`), what the store said (orders with their phases,
//! who led) and what each host's daemon said of its budget. Moments are seconds since the schedule
//! began; what was not seen is `null`.

use serde::{Deserialize, Serialize};

/// The hosts of a scenario, and what is expected of their fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FleetInfo {
    /// The hosts.
    pub hosts: Vec<FleetHostInfo>,
    /// The host that one guest is expected to leave.
    pub overloaded: String,
    /// Whether the leader is killed while a move is under way.
    pub kills_leader: bool,
    /// Length of the last part of a run, in which work is compared, in seconds.
    pub window_s: f64,
    /// How many times the work without moves is expected with them.
    pub work_times: f64,
    /// What no guest may have less than.
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

/// What became of a fleet in one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FleetRun {
    /// Its hosts.
    pub hosts: Vec<HostRun>,
    /// Where guests were, from when on; those that moved are in it more than once.
    pub places: Vec<PlaceRecord>,
    /// Moves that were ordered, the first first.
    pub migrations: Vec<MigrationRecord>,
    /// Who led from when on.
    pub leaders: Vec<LeaderRecord>,
    /// The leader that was killed.
    pub kill: Option<KillRecord>,
    /// Runs before this one that counted for nothing, as a guest's kernel died in them.
    #[serde(default)]
    pub discarded: Vec<DiscardedRun>,
}

/// One host in one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostRun {
    /// Its name.
    pub host: String,
    /// Plans that its daemon's checker refused.
    pub plans_refused: u64,
    /// About one a second.
    pub samples: Vec<HostSample>,
}

/// What a host's daemon said at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostSample {
    /// When.
    pub at_s: f64,
    /// Memory for all its guests together.
    pub budget_bytes: u64,
    /// Memory that they hold or were promised.
    pub committed_bytes: u64,
    /// Memory that they hold.
    pub held_bytes: u64,
    /// Memory that is kept for guests that are to come.
    pub reserved_bytes: u64,
}

/// A guest on a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlaceRecord {
    /// The guest.
    pub guest: String,
    /// The host.
    pub host: String,
    /// From when on.
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
    /// How it ended, in words of the record; `None`: it had not.
    pub ended: Option<String>,
    /// When its record was removed.
    pub removed_s: Option<f64>,
}

/// When a phase of a move was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseRecord {
    /// The phase's word.
    pub phase: String,
    /// When.
    pub at_s: f64,
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaderRecord {
    /// The host; `None`: nobody.
    pub host: Option<String>,
    /// From when on.
    pub from_s: f64,
}

/// A leader that was killed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KillRecord {
    /// The host whose member it was.
    pub host: String,
    /// When.
    pub at_s: f64,
    /// The guest that was on its way.
    pub guest: String,
    /// The phase of that move.
    pub phase: String,
}

/// A run that counted for nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiscardedRun {
    /// The guest whose kernel died.
    pub guest: String,
    /// What it said on its console.
    pub console: String,
}

impl MigrationRecord {
    /// When a phase was first seen.
    pub fn at(&self, phase: &str) -> Option<f64> {
        self.phases.iter().find(|it| it.phase == phase).map(|it| it.at_s)
    }

    /// Whether the guest runs where it was to go.
    pub fn is_moved(&self) -> bool {
        self.at("moved").is_some()
    }

    /// Time from the order until the guest ran there, in seconds.
    pub fn took_s(&self) -> Option<f64> {
        Some(self.at("moved")? - self.phases.first()?.at_s)
    }

    /// Time in which the guest stood still, in seconds, as far as the store shows.
    pub fn still_s(&self) -> Option<f64> {
        Some(self.at("moved")? - self.at("copied")?)
    }
}

impl FleetRun {
    /// Who led first after the leader was killed, and when.
    pub fn successor(&self) -> Option<(&str, f64)> {
        let kill = self.kill.as_ref()?;
        let later = self.leaders.iter().filter(|it| it.from_s > kill.at_s);
        let mut named = later.filter_map(|it| Some((it.host.as_deref()?, it.from_s)));
        named.next()
    }
}
