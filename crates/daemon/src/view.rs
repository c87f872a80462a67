//! The daemon's published state and the commands it takes.
//!
//! Idea: the main loop publishes an immutable [`View`] after every tick. It takes owners'
//! [`Command`]s and readers' requests from two bounded queues, so that readers cannot keep owners
//! out. The API server sees nothing else of the daemon, so a slow client cannot delay a decision.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ballast_api::{CarriedView, FairnessView, ThrashedView};
use ballast_model::{
    Bytes, GuestChange, GuestId, GuestLimits, LimitSources, Mode, ModeChoice, Outcome, Plan,
    PolicyName, Snapshot, Thrashed,
};
use ballast_policy::fairness::Fairness;
use tokio::sync::{mpsc, oneshot, watch};

/// Commands that may wait for the main loop at once; more are refused.
pub const COMMANDS_MAX: usize = 16;
/// Dry runs that may be waited for at once; more are refused.
pub const DRY_RUNS_MAX: usize = 64;

/// The daemon after its last tick.
#[derive(Clone, Debug)]
pub struct View {
    /// When the daemon started, wall clock.
    pub started_at: SystemTime,
    /// When this view was made, wall clock.
    pub seen_at: SystemTime,
    /// The samples the plan was made from.
    pub snapshot: Snapshot,
    /// The plan.
    pub plan: Plan,
    /// The outcome of each guest's last action, with its wall-clock time.
    pub outcomes: BTreeMap<GuestId, (SystemTime, Outcome)>,
    /// The policy in force.
    pub policy: PolicyName,
    /// The bounds in force for each guest of the snapshot.
    pub limits: BTreeMap<GuestId, GuestLimits>,
    /// The layers that set them.
    pub limit_sources: BTreeMap<GuestId, LimitSources>,
    /// Limits set for guests in any layer; a guest without any is not in it.
    pub limit_changes: BTreeMap<GuestId, GuestChange>,
    /// Guests that are not here any more and have limits from `ballast set`, which would be in
    /// force again if they came back.
    pub gone_with_limits: BTreeSet<GuestId>,
    /// Where guests thrashed last.
    pub thrashed: BTreeMap<GuestId, Thrashed>,
    /// State that guests brought from other hosts.
    pub carried_in: BTreeMap<GuestId, CarriedView>,
    /// Whether the operator paused acting.
    pub paused: bool,
    /// The mode, and where it comes from.
    pub mode: ModeChoice,
    /// Time between ticks.
    pub tick: Duration,
    /// Memory of the host that stays available to the host.
    pub host_reserve: Bytes,
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
    /// Why the journal fails to record at present, if it does.
    pub journal_error: Option<String>,
    /// Present names of files that were in the journal's way and were moved aside since the daemon
    /// started.
    pub journal_aside: Vec<PathBuf>,
    /// Guests that are left out because the daemon's limit of open files has no room for them.
    pub guests_refused: usize,
    /// Log lines that were dropped since the daemon started, because no process read them.
    pub log_lines_dropped: u64,
    /// State of the API's thread.
    pub api: ApiState,
}

impl View {
    /// What a guest would take along to another host.
    pub fn carried(&self, id: &GuestId) -> CarriedView {
        let now = self.snapshot.taken_at;
        let thrashed = self.thrashed.get(id);
        CarriedView {
            limits: self.limit_changes.get(id).cloned().unwrap_or_default(),
            credits: self.plan.guest(id).and_then(|guest| guest.credits),
            thrashed: thrashed.and_then(|thrashed| ThrashedView::at(*thrashed, now)),
        }
    }
}

/// State of the API's thread since the daemon started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiState {
    /// How often it ended by a fault. Each time another one was started.
    pub restarts: u64,
    /// The last reason.
    pub trouble: Option<String>,
    /// Why the page's port is not open although it is configured.
    pub page_error: Option<String>,
    /// Why metrics are not served on their port at present, if that is configured.
    pub metrics_trouble: Option<String>,
}

/// A command to the running daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Stop acting; continue to observe and decide.
    Pause,
    /// Resume acting.
    Resume,
    /// Change one guest's bounds. Lasts until the daemon restarts or reloads its configuration.
    SetGuest(GuestId, GuestChange),
    /// The same, also where the guest itself is defined.
    PersistGuest(GuestId, GuestChange),
    /// Continue with a guest where another host's daemon ended.
    TakeCarried(GuestId, Box<CarriedView>),
    /// Move memory, or only observe. Lasts until the mode in the configuration file changes.
    SetMode(Mode),
    /// Change the policy.
    SetPolicy(PolicyName),
    /// Keep memory free for a guest that is about to start: how much, and for how long.
    Reserve(GuestId, Bytes, Duration),
    /// A reservation is not needed any more.
    Unreserve(GuestId),
}

impl Command {
    /// Whether it triggers a decision at once, because the operator waits for the effect.
    pub(crate) fn decides_anew(&self) -> bool {
        match self {
            Command::Resume
            | Command::SetMode(Mode::Balance)
            | Command::SetGuest(..)
            | Command::PersistGuest(..)
            | Command::TakeCarried(..)
            | Command::SetPolicy(_)
            | Command::Reserve(..)
            | Command::Unreserve(_) => true,
            Command::Pause | Command::SetMode(Mode::Observe) => false,
        }
    }

    /// The command as text, for the journal.
    pub fn words(&self) -> String {
        match self {
            Command::Pause => "pause".to_owned(),
            Command::Resume => "resume".to_owned(),
            Command::SetMode(mode) => format!("mode {mode}"),
            Command::SetPolicy(name) => format!("set --policy {name}"),
            Command::SetGuest(id, change) => format!("set {id}{}", arguments(change)),
            Command::PersistGuest(id, change) => format!("set {id}{} --persist", arguments(change)),
            Command::TakeCarried(id, carried) => format!("carried {id}{}", words_of(carried)),
            Command::Reserve(id, size, lasts) => {
                format!("reserve {size:#} --for {id} --lasts {}s", lasts.as_secs())
            }
            Command::Unreserve(id) => format!("reserve --release --for {id}"),
        }
    }
}

/// A change as arguments of `ballast set`.
fn arguments(change: &GuestChange) -> String {
    let floor = change.floor.map(|floor| format!(" --floor {floor:#}"));
    let ceiling = change.ceiling.map(|ceiling| format!(" --ceiling {ceiling:#}"));
    let unset = change.ceiling_unset.then(|| " --unset-ceiling".to_owned());
    let shares = change.shares.map(|shares| format!(" --shares {shares}"));
    let priority = change.priority.map(|priority| format!(" --priority {priority}"));
    let misses = change.miss_rate_max.map(|rate| format!(" --miss-rate-max {rate}"));
    let managed = change.managed.map(|managed| format!(" --managed={managed}"));
    let take_over = change.take_over.map(|take_over| format!(" --take-over={take_over}"));
    let parts = [floor, ceiling, unset, shares, priority, misses, managed, take_over];
    parts.into_iter().flatten().collect()
}

/// State that a guest brought along, as arguments.
fn words_of(carried: &CarriedView) -> String {
    let CarriedView { limits, credits, thrashed } = carried;
    let credits = credits.map(|credits| format!(" --credits {credits}"));
    let thrashed = thrashed.map(|ThrashedView { least_bytes, left_ms, pause_ms }| {
        let least = Bytes::new(least_bytes);
        format!(" --thrashed-at {least:#} --for {left_ms}ms --pause {pause_ms}ms")
    });
    let parts = [Some(arguments(limits)), credits, thrashed];
    parts.into_iter().flatten().collect()
}

/// A command on its way to the main loop.
#[derive(Debug)]
pub struct Request {
    /// The command.
    pub command: Command,
    /// Who gives it, as named in the journal, such as `uid 0`.
    pub who: String,
    /// The channel for its answer: the new state, or what was wrong, as text for people.
    pub answer: oneshot::Sender<Result<String, String>>,
}

/// The channel for a dry run by the latest snapshot, or why that cannot be computed.
pub type DryRunRequest = oneshot::Sender<Result<Arc<Plan>, String>>;

/// The daemon as the API server sees it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Handle {
    /// The latest view; `None` before the first tick ends.
    pub view: watch::Receiver<Option<Arc<View>>>,
    /// Queue of owners' commands to the main loop.
    pub commands: mpsc::Sender<Request>,
    /// Queue of readers' requests for a dry run.
    pub dry_runs: mpsc::Sender<DryRunRequest>,
}

/// Fairness as the API shows it.
pub(crate) fn fairness(fairness: &Fairness) -> Option<FairnessView> {
    let basis_points = |index: f64| (index * 10_000.0).round() as u32;
    Some(FairnessView {
        latest_basis_points: basis_points(fairness.latest()?),
        mean_basis_points: basis_points(fairness.mean()?),
        decisions: fairness.decisions() as u64,
    })
}

/// A guest's new limits, as text for people.
pub(crate) fn limits_set(id: &GuestId, limits: &GuestLimits) -> String {
    let size = |set: Option<Bytes>| set.map_or("default".to_owned(), |it| it.to_string());
    format!(
        "{id}: floor {}, ceiling {}, shares {}, priority {}, {}{}{}",
        size(limits.floor),
        size(limits.ceiling),
        limits.shares,
        limits.priority,
        limits.miss_rate_max.map_or(String::new(), |rate| format!("at most {rate} misses/s, ")),
        if limits.managed { "managed" } else { "not managed" },
        if limits.take_over { ", taken over" } else { "" },
    )
}
