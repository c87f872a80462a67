//! The leader's plan, as JSON.
//!
//! Idea: data for programs and a sentence for people of every migration and need, with the revision
//! of the leadership that made it: a plan of an earlier leadership than the last one seen is void.
//! Limits: at most [`LISTED_MAX`] of each kind are listed; how many more there are is said.

use std::fmt::Display;

use ballast_fleet::{HostId, Migration, MigrationPlan, RefusedRecord};
use ballast_model::Bytes;
use serde::{Deserialize, Serialize};

use crate::coordinator::Revision;

/// Most migrations, waiting migrations, unmet needs and left-out hosts that a plan lists: with at
/// most some 1,500 bytes each, five lists stay below the largest value.
pub const LISTED_MAX: usize = 128;

/// The mode in which plans are advice.
pub const MODE_ADVISE: &str = "advise";
/// The mode in which guests are moved.
pub const MODE_MOVE: &str = "move";

/// A plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRecord {
    /// The host whose program made it.
    pub leader: String,
    /// The revision of its leadership.
    pub leader_revision: u64,
    /// The state of all keys that it is for.
    pub planned_at_revision: u64,
    /// What is done about it: `advise` names moves and does nothing, `move` orders them.
    pub mode: String,
    /// Who paused the fleet: nothing is planned then.
    pub paused_by: Option<String>,
    /// Hosts that were planned for.
    pub hosts: usize,
    /// Their guests.
    pub guests: usize,
    /// To be started now, the most urgent first.
    pub migrations: Vec<MigrationRecord>,
    /// As good, and beyond what may run at once.
    pub waiting: Vec<MigrationRecord>,
    /// Needs that no migration meets.
    pub unmet: Vec<UnmetRecord>,
    /// Hosts that are left out, and why.
    pub left_out: Vec<LeftOutRecord>,
    /// What the checker found wrong: then there are no migrations.
    pub violations: Vec<String>,
    /// Entries of these lists that found no room.
    pub unlisted: usize,
}

/// The move of one guest. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationRecord {
    /// The guest.
    pub guest: String,
    /// Where it is.
    pub from: String,
    /// Where it is to go.
    pub to: String,
    /// Its target before it is copied; `None`: it gives nothing.
    pub shrink_to_bytes: Option<u64>,
    /// What the destination reserves.
    pub reserve_bytes: u64,
    /// How much more its host's memory it occupies while it is copied.
    #[serde(default)]
    pub fills_bytes: u64,
    /// What is copied once.
    pub copy_bytes: u64,
    /// What is copied in all.
    pub traffic_bytes: u64,
    /// How long that takes.
    pub takes_ms: u64,
    /// What it is good for: `floors`, `drain`, `objectives` or `benefit`.
    pub reason: String,
    /// Whether nobody carries it out: the leader or one of both hosts is in mode `advise`.
    #[serde(default)]
    pub by_hand: bool,
    /// All of that in words.
    pub text: String,
}

/// What a host needs and no migration gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnmetRecord {
    /// The host.
    pub host: String,
    /// What and why, in words.
    pub text: String,
}

/// A host that is left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOutRecord {
    /// The host.
    pub host: String,
    /// Why, in words.
    pub text: String,
}

/// Who made a plan, and of what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanHeader {
    /// The leader's host.
    pub leader: String,
    /// The revision of its leadership.
    pub leadership: Revision,
    /// The state that was planned for.
    pub planned_at: Revision,
    /// The leader's mode.
    pub mode: String,
    /// Who paused the fleet.
    pub paused_by: Option<String>,
    /// Hosts that were planned for.
    pub hosts: usize,
    /// Their guests.
    pub guests: usize,
}

impl PlanRecord {
    /// The record of a plan for hosts; `carries` says who carries out orders.
    pub fn new(
        header: PlanHeader,
        plan: &MigrationPlan,
        refused: &[RefusedRecord],
        violations: &[impl Display],
        carries: impl Fn(&HostId) -> bool,
    ) -> PlanRecord {
        let mut unlisted = 0;
        let is_by_hand =
            |it: &Migration| header.mode != MODE_MOVE || !carries(&it.from) || !carries(&it.to);
        let record = |it: &Migration| MigrationRecord::of(it, is_by_hand(it));
        let migrations = listed(&plan.migrations, &mut unlisted, record);
        let waiting = listed(&plan.waiting, &mut unlisted, record);
        let unmet = listed(&plan.unmet, &mut unlisted, |need| UnmetRecord {
            host: need.host.to_string(),
            text: need.to_string(),
        });
        let left_out = listed(refused, &mut unlisted, |it| LeftOutRecord {
            host: it.host.to_string(),
            text: it.fault.clone(),
        });
        let violations = listed(violations, &mut unlisted, ToString::to_string);
        PlanRecord {
            leader: header.leader,
            leader_revision: header.leadership.0,
            planned_at_revision: header.planned_at.0,
            mode: header.mode,
            paused_by: header.paused_by,
            hosts: header.hosts,
            guests: header.guests,
            migrations,
            waiting,
            unmet,
            left_out,
            violations,
            unlisted,
        }
    }

    /// Whether the other one says the same, apart from the state that it was made for.
    pub fn says_the_same(&self, other: &PlanRecord) -> bool {
        let planned_at_revision = other.planned_at_revision;
        PlanRecord { planned_at_revision, ..self.clone() } == *other
    }
}

impl MigrationRecord {
    fn of(migration: &Migration, by_hand: bool) -> MigrationRecord {
        MigrationRecord {
            guest: migration.guest.to_string(),
            from: migration.from.to_string(),
            to: migration.to.to_string(),
            shrink_to_bytes: migration.shrink_to.map(Bytes::get),
            reserve_bytes: migration.reserve.get(),
            fills_bytes: migration.fills.get(),
            copy_bytes: migration.bytes.get(),
            traffic_bytes: migration.traffic.get(),
            takes_ms: u64::try_from(migration.takes.as_millis()).unwrap_or(u64::MAX),
            reason: migration.reason.code().to_owned(),
            by_hand,
            text: migration.to_string(),
        }
    }
}

/// The first of `items`; the others are counted in `unlisted`.
fn listed<T, R>(items: &[T], unlisted: &mut usize, record: impl Fn(&T) -> R) -> Vec<R> {
    *unlisted += items.len().saturating_sub(LISTED_MAX);
    items.iter().take(LISTED_MAX).map(record).collect()
}
