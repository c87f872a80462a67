//! What the daemon shows of itself, and what it can be told.
//!
//! Idea: the main loop publishes an immutable [`View`] after every tick and takes [`Command`]s from
//! a bounded queue; the API server sees nothing else of the daemon, so that a slow reader can never
//! delay a decision.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ballast_api::FairnessView;
use ballast_model::{Bytes, GuestId, GuestLimits, Outcome, Plan, PolicyName, Snapshot};
use ballast_policy::fairness::Fairness;
use tokio::sync::{mpsc, oneshot, watch};

/// Commands that may wait for the main loop at once; more are refused.
pub const COMMANDS_MAX: usize = 16;

/// The daemon after its last tick.
#[derive(Clone, Debug)]
pub struct View {
    /// When the daemon started, wall clock.
    pub started_at: SystemTime,
    /// When this view was made, wall clock.
    pub seen_at: SystemTime,
    /// What was seen.
    pub snapshot: Snapshot,
    /// What was decided.
    pub plan: Plan,
    /// The outcome of the last action of each guest, with the wall-clock time it came in.
    pub outcomes: BTreeMap<GuestId, (SystemTime, Outcome)>,
    /// The policy in force.
    pub policy: PolicyName,
    /// The bounds in force for each guest of the snapshot.
    pub limits: BTreeMap<GuestId, GuestLimits>,
    /// Whether the operator paused acting.
    pub paused: bool,
    /// Time between ticks.
    pub tick: Duration,
    /// Time the last decision took (estimate, policy, guard, check).
    pub decision_cost: Duration,
    /// Ticks since the daemon started.
    pub ticks: u64,
    /// Plans the checker refused since the daemon started.
    pub plans_refused: u64,
    /// How fairly memory is divided; `None` until the first decision about a guest.
    pub fairness: Option<FairnessView>,
    /// Why the last reload of the configuration was refused, if it was.
    pub reload_error: Option<String>,
    /// Why the journal does not record at present, if it does not.
    pub journal_error: Option<String>,
}

/// Changes to one guest's bounds; `None` leaves a bound as it is. They last until the daemon
/// restarts or reloads its configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestChange {
    /// New floor.
    pub floor: Option<Bytes>,
    /// New ceiling.
    pub ceiling: Option<Bytes>,
    /// New shares.
    pub shares: Option<u32>,
    /// New priority.
    pub priority: Option<u8>,
    /// New objective in misses a second; 0: none.
    pub miss_rate_max: Option<u64>,
    /// Whether the guest is managed.
    pub managed: Option<bool>,
}

/// What the daemon can be told at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Stop acting; go on observing and deciding.
    Pause,
    /// Act again.
    Resume,
    /// Change one guest's bounds.
    SetGuest(GuestId, GuestChange),
    /// Change the policy.
    SetPolicy(PolicyName),
    /// Say what the next tick would do, from the latest snapshot, without doing it. The answer's
    /// plan is `Some` for this command only.
    DryRun,
}

impl Command {
    /// Whether what it changes is worth a decision at once: whoever gave it waits for that.
    pub(super) fn decides_anew(&self) -> bool {
        match self {
            Command::Resume | Command::SetGuest(..) | Command::SetPolicy(_) => true,
            Command::Pause | Command::DryRun => false,
        }
    }

    /// In words, for the journal.
    pub(super) fn words(&self) -> String {
        match self {
            Command::Pause => "pause".to_owned(),
            Command::Resume => "resume".to_owned(),
            Command::DryRun => "plan --dry-run".to_owned(),
            Command::SetPolicy(name) => format!("set --policy {name}"),
            Command::SetGuest(id, change) => {
                let floor = change.floor.map(|floor| format!(" --floor {floor:#}"));
                let ceiling = change.ceiling.map(|ceiling| format!(" --ceiling {ceiling:#}"));
                let shares = change.shares.map(|shares| format!(" --shares {shares}"));
                let priority = change.priority.map(|priority| format!(" --priority {priority}"));
                let misses = change.miss_rate_max.map(|rate| format!(" --miss-rate-max {rate}"));
                let managed = change.managed.map(|managed| format!(" --managed={managed}"));
                let parts = [floor, ceiling, shares, priority, misses, managed];
                format!("set {id}{}", parts.into_iter().flatten().collect::<String>())
            }
        }
    }
}

/// The answer to a command.
#[derive(Clone, Debug)]
pub struct Done {
    /// What is now the case, for people.
    pub message: String,
    /// The plan asked for by [`Command::DryRun`].
    pub plan: Option<Plan>,
}

/// A command with the way back. The error text names what was wrong with it.
pub type Request = (Command, oneshot::Sender<Result<Done, String>>);

/// The daemon as the API server sees it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Handle {
    /// The latest view; `None` until the first tick is done.
    pub view: watch::Receiver<Option<Arc<View>>>,
    /// The way to the main loop.
    pub commands: mpsc::Sender<Request>,
}

/// Fairness as it is told.
pub(super) fn fairness(fairness: &Fairness) -> Option<FairnessView> {
    let basis_points = |index: f64| (index * 10_000.0).round() as u32;
    Some(FairnessView {
        latest_basis_points: basis_points(fairness.latest()?),
        mean_basis_points: basis_points(fairness.mean()?),
        decisions: fairness.decisions() as u64,
    })
}

/// The limits that a guest has been set to, in words.
pub(super) fn limits_set(id: &GuestId, limits: &GuestLimits) -> String {
    let size =
        |set: Option<Bytes>, default: &str| set.map_or(default.to_owned(), |it| it.to_string());
    format!(
        "{id}: floor {}, ceiling {}, shares {}, priority {}, {}{}, until the daemon restarts or \
         reloads",
        size(limits.floor, "default"),
        size(limits.ceiling, "its boot memory"),
        limits.shares,
        limits.priority,
        limits.miss_rate_max.map_or(String::new(), |rate| format!("at most {rate} misses/s, ")),
        if limits.managed { "managed" } else { "not managed" },
    )
}
