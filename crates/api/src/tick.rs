//! One tick, from which every reply about it is built.
//!
//! Idea: the daemon's latest view and the last tick of a journal both become a [`Tick`], so that
//! every reply, table and export shows them alike.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ballast_model::{GuestId, GuestLimits, Outcome, Plan, Snapshot};
use serde::{Deserialize, Serialize};

use crate::API_VERSION;

/// Where a reply's figures come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// A running daemon.
    Daemon,
    /// The last tick of a journal; nobody acts on it now.
    Journal,
}

/// Everything known about one tick, borrowed from whoever keeps it.
#[derive(Clone, Debug)]
pub struct Tick<'a> {
    /// Who tells it.
    pub source: Source,
    /// When the reply is made, wall clock.
    pub now: SystemTime,
    /// When the tick was, wall clock.
    pub seen_at: SystemTime,
    /// What was seen.
    pub snapshot: &'a Snapshot,
    /// What was decided.
    pub plan: &'a Plan,
    /// The operator's bounds, for the guests for which they are known.
    pub limits: &'a BTreeMap<GuestId, GuestLimits>,
    /// The last outcome of each guest, with the wall-clock time it came in.
    pub outcomes: &'a BTreeMap<GuestId, (SystemTime, Outcome)>,
    /// Whether acting is paused.
    pub paused: bool,
    /// Time the decision took.
    pub decision_cost: Duration,
    /// What the daemon says of itself, where one runs.
    pub daemon: Option<DaemonView>,
}

impl Tick<'_> {
    /// What every reply says about the tick it is made from.
    pub fn view(&self) -> TickView {
        let age = self.now.duration_since(self.seen_at).unwrap_or_default();
        TickView {
            source: self.source,
            seen_at_unix_ms: unix_millis(self.seen_at),
            age_ms: millis(age),
            generation: self.plan.generation.0,
            policy: self.plan.policy.to_string(),
            paused: self.paused,
            decision_us: u64::try_from(self.decision_cost.as_micros()).unwrap_or(u64::MAX),
        }
    }
}

/// The tick a reply is made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TickView {
    /// Where the figures come from.
    pub source: Source,
    /// When it was seen.
    pub seen_at_unix_ms: u64,
    /// How long ago that was when the reply was made.
    pub age_ms: u64,
    /// The number of its plan.
    pub generation: u64,
    /// The policy that made the plan.
    pub policy: String,
    /// Whether the operator paused acting.
    pub paused: bool,
    /// Time the decision took, in microseconds: it is far below a millisecond.
    pub decision_us: u64,
}

/// What a daemon says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonView {
    /// Its version.
    pub version: String,
    /// When it started.
    pub started_at_unix_ms: u64,
    /// The policy in force; the next plan is made by it.
    pub policy: String,
    /// Time between ticks.
    pub tick_ms: u64,
    /// Ticks since it started.
    pub ticks: u64,
    /// Plans the checker refused since it started.
    pub plans_refused: u64,
    /// How fairly memory is divided; `None` until the first decision about a guest.
    pub fairness: Option<FairnessView>,
    /// Why the last reload of the configuration was refused.
    pub reload_error: Option<String>,
    /// Why the journal does not record.
    pub journal_error: Option<String>,
}

/// Jain's index over the guests of what each has of its entitlement by shares, capped at its demand:
/// 1 where all are served alike, 1/n where one of n has everything. In hundredths of a percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FairnessView {
    /// At the last decision.
    pub latest_basis_points: u32,
    /// On average over the last decisions.
    pub mean_basis_points: u32,
    /// How many decisions those are.
    pub decisions: u64,
}

/// The version every reply carries.
pub(crate) const fn version() -> u32 {
    API_VERSION
}

/// Whole milliseconds; saturates.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds since 1970; zero for moments before it.
pub(crate) fn unix_millis(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map(millis).unwrap_or(0)
}

impl DaemonView {
    /// `at` in the form of [`DaemonView::started_at_unix_ms`].
    pub fn unix_millis(at: SystemTime) -> u64 {
        unix_millis(at)
    }
}
