//! One tick, the source of every reply.
//!
//! Idea: the daemon's latest view and the last tick of a journal both become a [`Tick`], so that
//! every reply, table and export shows the same figures.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ballast_model::{GuestId, GuestLimits, LimitSources, Mode, Outcome, Plan, Snapshot};
use serde::{Deserialize, Serialize};

/// Where a reply's figures come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// A running daemon.
    Daemon,
    /// The last tick of a journal, without a running daemon.
    Journal,
}

/// Everything known about one tick, borrowed.
#[derive(Clone, Debug)]
pub struct Tick<'a> {
    /// Where the tick comes from.
    pub source: Source,
    /// Wall clock of the reply.
    pub now: SystemTime,
    /// Wall clock of the tick.
    pub seen_at: SystemTime,
    /// What was observed.
    pub snapshot: &'a Snapshot,
    /// What was decided.
    pub plan: &'a Plan,
    /// The operator's bounds, by guest.
    pub limits: &'a BTreeMap<GuestId, GuestLimits>,
    /// The source of each bound, by guest; empty where that is not known.
    pub limit_sources: &'a BTreeMap<GuestId, LimitSources>,
    /// The last outcome of each guest, with the wall clock of its arrival.
    pub outcomes: &'a BTreeMap<GuestId, (SystemTime, Outcome)>,
    /// Whether the operator paused Ballast.
    pub paused: bool,
    /// Whether Ballast carries plans out, or only observes.
    pub mode: Mode,
    /// Time the decision took.
    pub decision_cost: Duration,
    /// The daemon's own state, if one runs.
    pub daemon: Option<DaemonView>,
}

impl Tick<'_> {
    /// The part about the tick that every reply has.
    pub fn view(&self) -> TickView {
        let age = self.now.duration_since(self.seen_at).unwrap_or_default();
        TickView {
            source: self.source,
            seen_at_unix_ms: unix_millis(self.seen_at),
            age_ms: millis(age),
            generation: self.plan.generation.0,
            policy: self.plan.policy.to_string(),
            paused: self.paused,
            observing: self.mode == Mode::Observe,
            decision_us: u64::try_from(self.decision_cost.as_micros()).unwrap_or(u64::MAX),
        }
    }
}

/// The tick that a reply describes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TickView {
    /// Where the figures come from.
    pub source: Source,
    /// When it happened, in milliseconds since 1970.
    pub seen_at_unix_ms: u64,
    /// Its age when the reply was made.
    pub age_ms: u64,
    /// The number of its plan.
    pub generation: u64,
    /// The policy that made the plan.
    pub policy: String,
    /// Whether an operator has paused Ballast.
    pub paused: bool,
    /// Whether Ballast is in mode `observe`: it plans, but moves nothing.
    #[serde(default)]
    pub observing: bool,
    /// Time that the decision took, in microseconds.
    pub decision_us: u64,
}

/// The daemon's own state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DaemonView {
    /// Its version.
    pub version: String,
    /// When it started, in milliseconds since 1970.
    pub started_at_unix_ms: u64,
    /// The policy that will make the next plan.
    pub policy: String,
    /// Time between ticks.
    pub tick_ms: u64,
    /// Memory of the host that stays available to the host; absent or `null`: the daemon is too old
    /// to say.
    #[serde(default)]
    pub host_reserve_bytes: Option<u64>,
    /// Number of ticks since it started.
    pub ticks: u64,
    /// Number of plans that the checker refused since it started. They were not carried out.
    pub plans_refused: u64,
    /// How fairly memory is divided; `null`: nothing has been decided about a guest yet.
    pub fairness: Option<FairnessView>,
    /// Why the last reload of the configuration was refused; `null`: it was not.
    pub reload_error: Option<String>,
    /// Why nothing is recorded in the journal at present; `null`: it is, or there is no journal.
    pub journal_error: Option<String>,
    /// Paths to which files were moved since the start because they could not be used as the
    /// journal.
    #[serde(default)]
    pub journal_aside: Vec<String>,
    /// Number of guests that are left out because the daemon's limit of open files has no room for
    /// them.
    #[serde(default)]
    pub guests_refused: u64,
    /// How often the thread that serves the API has failed and was replaced since the start.
    #[serde(default)]
    pub api_restarts: u64,
    /// Why that thread failed last; `null`: it has not.
    #[serde(default)]
    pub api_trouble: Option<String>,
    /// Why the page is not served on its port; `null`: it is, or no port is configured.
    #[serde(default)]
    pub page_error: Option<String>,
    /// Why metrics are not served on their port at present; `null`: they are, or no port is
    /// configured.
    #[serde(default)]
    pub metrics_trouble: Option<String>,
}

/// How equally guests are served, in hundredths of a percent: Jain's index over the guests'
/// allocations, each counted up to its demand and divided by what the guest is entitled to by
/// shares. It is 10,000 if all are served equally, and 10,000/n if one of n guests has everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FairnessView {
    /// The index just before the last decision.
    pub latest_basis_points: u32,
    /// Mean of the index over the last decisions.
    pub mean_basis_points: u32,
    /// Number of decisions in the mean, at most 300.
    pub decisions: u64,
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
    /// Converts `at` for [`DaemonView::started_at_unix_ms`].
    pub fn unix_millis(at: SystemTime) -> u64 {
        unix_millis(at)
    }
}
