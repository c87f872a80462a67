//! The daemon's configuration: one TOML file.
//!
//! Idea: [`parse`] turns text into a validated [`Config`] without touching anything else, so that a
//! reload can be tried before the running configuration is given up, and a fuzzer can feed it
//! rubbish. Reading the file is [`load`]'s.
//!
//! Every key is in `docs/ballast.example.toml`, which a test parses.

mod file;
mod flexmemd;
mod intermittent;
mod knobs;
mod meb;
mod mechanisms;
mod tws;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use ballast_control::Settings;
use ballast_estimate::phase::IntermittentSettings;
use ballast_guard::GuardSettings;
use ballast_mechanism::paging::SwapRules;
use ballast_model::{Bytes, GuestId, GuestLimits, PolicyName};
use ballast_toml_strict::Error;
use ballast_working_set::Budget;

use self::file::{File, GuestTable};
use crate::agents::EMERGENCY_PERIOD;
use crate::daemon::pager::PagerSettings;
use crate::server::nearest;

pub(crate) use self::file::Tau;
pub(crate) use self::flexmemd::FlexmemdTable;
pub(crate) use self::intermittent::Intermittent;
pub(crate) use self::knobs::Knobs;
pub(crate) use self::meb::MebTable;
pub(crate) use self::tws::TwsTable;

/// What becomes of the guests' targets when the daemon ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnExit {
    /// They stay as they are.
    #[default]
    Keep,
    /// Every guest that was moved gets back what it held when the daemon first saw it, as far as
    /// the budget allows.
    Restore,
}

/// A validated configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file it came from.
    pub path: PathBuf,
    /// Its text, for the journal.
    pub text: String,
    /// What the controller is told.
    pub settings: Settings,
    /// Folders in which guests' QMP sockets (`NAME.sock`) are found.
    pub qmp_folders: Vec<PathBuf>,
    /// Longest wait for a guest's hypervisor to answer.
    pub qmp_timeout: Duration,
    /// How guests' working sets are tracked; `None`: they are not.
    pub tracking: Option<TrackingSettings>,
    /// How guests' agents are listened to; `None`: they are not.
    pub agents: Option<AgentSettings>,
    /// How the host pages guests; `None`: it does not.
    pub(crate) paging: Option<PagerSettings>,
    /// The API's socket; `None`: the default of the user.
    pub socket: Option<PathBuf>,
    /// The group that may read from the API.
    pub group: Option<String>,
    /// What becomes of targets at the end.
    pub on_exit: OnExit,
    /// The journal; `None`: nothing is recorded.
    pub journal: Option<JournalSettings>,
    /// Whether the daemon raises its own scheduling priority (Global §4.1).
    pub raise_priority: bool,
}

/// How working sets are tracked.
#[derive(Clone, Debug, PartialEq)]
pub struct TrackingSettings {
    /// How long an interval is.
    pub interval: Duration,
    /// What tracking a guest may cost, as a share of one core.
    pub budget: Budget,
    /// When tracking rests; `None`: never.
    pub intermittent: Option<IntermittentSettings>,
    /// All memory is watched, whatever that costs, instead of a sample as large as the budget allows.
    pub every: bool,
    /// Guests without a tracker are followed by the kernel's referenced bits.
    pub referenced: bool,
}

/// How agents inside guests are listened to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentSettings {
    /// Folders in which each guest's port has a socket `NAME.sock`.
    pub folders: Vec<PathBuf>,
    /// Time between two statistics of a guest.
    pub period: Duration,
    /// Least time between two emergencies of a guest.
    pub emergency_period: Duration,
    /// Whether programs in a guest are told to give memory back before its balloon takes it.
    pub shrink: bool,
}

/// Where and how long is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalSettings {
    /// The SQLite file.
    pub path: PathBuf,
    /// Records older than this are deleted.
    pub keep_age: Duration,
    /// The oldest records are deleted when the file is larger than this.
    pub keep_bytes: Bytes,
}

/// Reads and validates a configuration file.
///
/// # Errors
/// The file cannot be read, or what is wrong in it with its place.
pub fn load(path: &Path) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(path).with_context(|| {
        format!(
            "cannot read configuration {}: write one, beginning with the example in docs/ballast.example.toml",
            path.display()
        )
    })?;
    Ok(parse(&text, path)?)
}

/// Validates `text` as the contents of `path`, which is only named in errors.
///
/// # Errors
/// The first mistake, with its place.
pub fn parse(text: &str, path: &Path) -> Result<Config, Error> {
    let file: File = ballast_toml_strict::parse(text, path)?;
    let at = |key: &[&str], message: String| Error::at(text, path, key, message);

    in_range(file.daemon.tick, Duration::from_millis(100), Duration::from_secs(60))
        .map_err(|message| at(&["daemon", "tick"], message))?;
    in_range(file.qmp.timeout, Duration::from_millis(10), Duration::from_secs(30))
        .map_err(|message| at(&["qmp", "timeout"], message))?;
    if let Some(interval) = file.policy.interval {
        in_range(interval, file.daemon.tick, Duration::from_secs(3600))
            .map_err(|message| at(&["policy", "interval"], message))?;
    }
    in_range(file.guard.stale_after, file.daemon.tick * 2, Duration::from_secs(3600))
        .map_err(|message| at(&["guard", "stale_after"], message))?;
    in_range(file.guard.release_grace, Duration::ZERO, Duration::from_secs(3600))
        .map_err(|message| at(&["guard", "release_grace"], message))?;
    in_range(file.guard.stuck_after, file.daemon.tick * 2, Duration::from_secs(3600))
        .map_err(|message| at(&["guard", "stuck_after"], message))?;
    in_range(file.tracking.interval, Duration::from_millis(100), Duration::from_secs(3600))
        .map_err(|message| at(&["tracking", "interval"], message))?;
    in_range(file.agents.interval, Duration::from_millis(100), Duration::from_secs(60))
        .map_err(|message| at(&["agents", "interval"], message))?;
    if file.agents.enabled && file.agents.folders.is_empty() {
        let message = "names no folder: no agent could be found".to_owned();
        return Err(at(&["agents", "folders"], message));
    }
    let tracking_budget = Budget::new(file.tracking.budget)
        .map_err(|error| at(&["tracking", "budget"], error.to_string()))?;
    if file.qmp.folders.is_empty() {
        return Err(at(&["qmp", "folders"], "names no folder: no guest could be found".to_owned()));
    }
    let policy: PolicyName =
        file.policy.name.parse().map_err(|e: ballast_model::ParsePolicyNameError| {
            let near = nearest(&file.policy.name, PolicyName::ALL.map(PolicyName::as_str));
            let near = near.map(|near| format!("; the nearest is `{near}`"));
            at(&["policy", "name"], format!("{e}{}", near.unwrap_or_default()))
        })?;
    let knobs = Knobs {
        reserve_per_guest: file.policy.reserve_per_guest,
        tau: file.policy.tau,
        meb: &file.policy.meb,
        tws: &file.policy.tws,
        flexmemd: &file.policy.flexmemd,
    };
    let (policy_settings, probing) =
        knobs.settings().map_err(|([table, key], message)| at(&["policy", table, key], message))?;
    ballast_policy::check(policy, &policy_settings)
        .map_err(|error| at(&["policy", "flexmemd"], error.to_string()))?;
    let limits_default = file.defaults.limits();
    limits_default.validate().map_err(|e| at(&["defaults"], e.to_string()))?;
    let mut limits = BTreeMap::new();
    for (id, table) in &file.guests {
        let own = table.over(&limits_default);
        own.validate().map_err(|e| at(&["guests", id.as_str()], e.to_string()))?;
        limits.insert(id.clone(), own);
    }
    if let (Some(floor), Some(budget)) = (limits_default.floor, file.host.budget)
        && floor > budget
    {
        let message = format!("{floor} for every guest, more than the budget of {budget}");
        return Err(at(&["defaults", "floor"], message));
    }
    let hotplug = file
        .mechanisms
        .hotplug
        .settings(file.guard.stale_after)
        .map_err(|(key, message)| at(&["mechanisms", "hotplug", key], message))?;
    let paging = file
        .mechanisms
        .paging
        .settings(file.host.reserve)
        .map_err(|(key, message)| at(&["mechanisms", "paging", key], message))?;
    floors_fit(file.host.budget, &limits).map_err(|message| at(&["host", "budget"], message))?;

    let settings = Settings {
        tick: file.daemon.tick,
        policy,
        policy_settings,
        probing,
        interval: file.policy.interval,
        guard: GuardSettings {
            budget: file.host.budget,
            host_reserve: file.host.reserve,
            stale_after: file.guard.stale_after,
            release_grace: file.guard.release_grace,
            stuck_after: file.guard.stuck_after,
            stuck_retry: file.guard.stuck_retry,
            step_up_max: file.guard.step_up_max,
            step_down_max: file.guard.step_down_max,
            dead_band: file.guard.dead_band,
            action_deadline: file.daemon.tick * 2,
        },
        hotplug,
        paging: paging.map(|settings| SwapRules {
            use_max_percent: settings.swap.use_max_percent,
            reserve: settings.swap.reserve,
        }),
        undo: file.mechanisms.undo,
        limits_default,
        limits,
        ..Settings::new(policy)
    };
    Ok(Config {
        path: path.to_owned(),
        text: text.to_owned(),
        settings,
        qmp_folders: file.qmp.folders,
        qmp_timeout: file.qmp.timeout,
        tracking: file.tracking.enabled.then_some(TrackingSettings {
            interval: file.tracking.interval,
            budget: tracking_budget,
            intermittent: file.tracking.intermittent.0,
            every: file.tracking.every,
            referenced: file.tracking.referenced,
        }),
        agents: file.agents.enabled.then_some(AgentSettings {
            folders: file.agents.folders,
            period: file.agents.interval,
            emergency_period: file.policy.interval.unwrap_or(EMERGENCY_PERIOD),
            shrink: file.agents.shrink,
        }),
        paging,
        socket: file.daemon.socket,
        group: file.daemon.group,
        on_exit: file.daemon.on_exit,
        journal: file.journal.enabled.then_some(JournalSettings {
            path: file.journal.path,
            keep_age: file.journal.keep_age,
            keep_bytes: file.journal.keep_bytes,
        }),
        raise_priority: file.daemon.raise_priority,
    })
}

/// Whether the floors that the operator set can all be kept at once.
///
/// # Errors
/// Says by how much they cannot.
pub fn floors_fit(
    budget: Option<Bytes>,
    limits: &BTreeMap<GuestId, GuestLimits>,
) -> Result<(), String> {
    let floors: Bytes = limits.values().filter(|own| own.managed).filter_map(|own| own.floor).sum();
    match budget {
        Some(budget) if floors > budget => Err(format!(
            "the guests' floors add up to {floors}, more than the budget of {budget}: lower floors or raise the budget"
        )),
        _ => Ok(()),
    }
}

impl Config {
    /// What differs in `new` that a running daemon cannot change.
    pub fn needs_restart(&self, new: &Config) -> Vec<&'static str> {
        let path = |config: &Config| config.journal.as_ref().map(|journal| journal.path.clone());
        let differences = [
            ("[qmp]", self.qmp_folders != new.qmp_folders || self.qmp_timeout != new.qmp_timeout),
            ("[tracking]", self.tracking != new.tracking),
            ("[agents]", self.agents != new.agents),
            ("daemon.socket", self.socket != new.socket),
            ("daemon.group", self.group != new.group),
            ("daemon.raise_priority", self.raise_priority != new.raise_priority),
            ("journal.path or journal.enabled", path(self) != path(new)),
        ];
        differences.into_iter().filter(|(_, differs)| *differs).map(|(what, _)| what).collect()
    }
}

/// What a bound on misses a second means, where one is given: 0 is none, as no guest could keep it.
pub(crate) fn objective(given: Option<u64>) -> Option<Option<u64>> {
    given.map(|rate| (rate > 0).then_some(rate))
}

fn in_range(value: Duration, low: Duration, high: Duration) -> Result<(), String> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(format!("{value:?} is out of range: expected {low:?} to {high:?}"))
}

impl GuestTable {
    fn limits(&self) -> GuestLimits {
        self.over(&GuestLimits::default())
    }

    /// What this table says, and `default` where it says nothing.
    fn over(&self, default: &GuestLimits) -> GuestLimits {
        GuestLimits {
            floor: self.floor.or(default.floor),
            ceiling: self.ceiling.or(default.ceiling),
            shares: self.shares.unwrap_or(default.shares),
            priority: self.priority.unwrap_or(default.priority),
            miss_rate_max: objective(self.miss_rate_max).unwrap_or(default.miss_rate_max),
            swap: self.swap.or(default.swap),
            managed: self.managed.unwrap_or(default.managed),
        }
    }
}

#[cfg(test)]
mod tests;
