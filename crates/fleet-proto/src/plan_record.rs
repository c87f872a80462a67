//! The leader's plan, as JSON.
//!
//! Idea: every migration and need as data for programs and as a sentence for people, with the
//! revision of the leadership that made the plan: a plan of an older leadership than the latest one
//! seen is void.
//! Limits: at most [`LISTED_MAX`] of each kind are listed, with the number of those left out.

use ballast_fleet::Migration;
use ballast_model::Bytes;
use serde::{Deserialize, Serialize};

/// Most migrations, waiting migrations, unmet needs, left-out hosts and violations that a plan
/// lists. At 1,500 bytes each at most, five lists stay below the largest value.
pub const LISTED_MAX: usize = 128;

/// The mode in which plans are advice and no guest is moved.
pub const MODE_ADVISE: &str = "advise";
/// The mode in which moves are ordered.
pub const MODE_MOVE: &str = "move";

/// A plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRecord {
    /// The host of the leader that made it.
    pub leader: String,
    /// The revision of that leadership.
    pub leader_revision: u64,
    /// The revision of the keys that it was made from.
    pub planned_at_revision: u64,
    /// What follows from it: in mode `advise` nothing, in mode `move` orders.
    pub mode: String,
    /// Who paused the fleet, if anybody; then nothing is planned.
    pub paused_by: Option<String>,
    /// Number of hosts that were planned for.
    pub hosts: usize,
    /// Number of their guests.
    pub guests: usize,
    /// To be started now, the most urgent first.
    pub migrations: Vec<MigrationRecord>,
    /// As justified, but beyond the number that may run at once.
    pub waiting: Vec<MigrationRecord>,
    /// Needs that no migration meets.
    pub unmet: Vec<UnmetNeedRecord>,
    /// Hosts that are left out, with the reasons.
    pub left_out: Vec<LeftOutRecord>,
    /// What the checker found wrong; if anything, there are no migrations.
    pub violations: Vec<String>,
    /// Number of entries that were too many for these lists.
    pub unlisted: usize,
}

/// The migration of one guest. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationRecord {
    /// The guest.
    pub guest: String,
    /// The host that it is on.
    pub from: String,
    /// The host that it is to go to.
    pub to: String,
    /// The target to shrink it to before the copy; `None`: it gives no memory.
    pub shrink_to_bytes: Option<u64>,
    /// What the destination reserves.
    pub reserve_bytes: u64,
    /// How much more memory of its host it occupies while it is copied.
    #[serde(default)]
    pub fills_bytes: u64,
    /// What is copied if it writes nothing meanwhile.
    pub copy_bytes: u64,
    /// What is copied in all, including what it writes meanwhile.
    pub traffic_bytes: u64,
    /// How long the copy takes.
    pub takes_ms: u64,
    /// Why it is moved: `floors`, `drain`, `objectives` or `benefit`.
    pub reason: String,
    /// Whether an operator has to do it: the leader or one of both hosts is in mode `advise`.
    #[serde(default)]
    pub by_hand: bool,
    /// The migration as a sentence.
    pub text: String,
}

/// A need of a host that no migration meets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnmetNeedRecord {
    /// The host.
    pub host: String,
    /// What it is and why, as a sentence.
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

impl PlanRecord {
    /// Whether the other plan is the same, apart from the revision of the keys.
    pub fn equals_apart_from_revision(&self, other: &PlanRecord) -> bool {
        let planned_at_revision = other.planned_at_revision;
        PlanRecord { planned_at_revision, ..self.clone() } == *other
    }
}

impl MigrationRecord {
    pub(crate) fn of(migration: &Migration, by_hand: bool) -> MigrationRecord {
        MigrationRecord {
            guest: migration.guest.to_string(),
            from: migration.from.to_string(),
            to: migration.to.to_string(),
            shrink_to_bytes: migration.shrink_to.map(Bytes::get),
            reserve_bytes: migration.reserve.get(),
            fills_bytes: migration.fills.get(),
            copy_bytes: migration.bytes.get(),
            traffic_bytes: migration.traffic.get(),
            takes_ms: u64::try_from(migration.copy_time.as_millis()).unwrap_or(u64::MAX),
            reason: migration.reason.code().to_owned(),
            by_hand,
            text: migration.to_string(),
        }
    }
}

/// The first [`LISTED_MAX`] of `items`; the others are counted in `unlisted`.
pub(crate) fn listed<T, R>(items: &[T], unlisted: &mut usize, record: impl Fn(&T) -> R) -> Vec<R> {
    *unlisted += items.len().saturating_sub(LISTED_MAX);
    items.iter().take(LISTED_MAX).map(record).collect()
}
