//! Parses text into a validated [`Config`]: every key, and every rule between keys.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use ballast_actuation::paging::SwapRules;
use ballast_containers::{CgroupPattern, CgroupPatternError};
use ballast_control::Settings;
use ballast_guard::GuardSettings;
use ballast_model::{
    Bytes, GuestChange, GuestId, GuestLimits, LimitTable, Mode, ParseModeError, PolicyName,
};
use ballast_rest::{SocketPattern, SocketPatternError};
use ballast_toml_strict::{Error, nearest};
use ballast_working_set::WatchBudget;

use crate::file::{EventsTable, File, GuestTable, RestTable};
use crate::policy_parameters::PolicyParameters;
use crate::range::{Mistake, in_range};
use crate::settings::{
    AgentSettings, Config, ContainerSettings, EventSettings, JournalSettings, LibvirtSettings,
    RestSettings, TrackingSettings, XenSettings,
};

/// Largest `believed_without_evidence`, as a multiple of the granted memory that a guest has
/// filled: in effect no limit.
const BELIEVED_MAX: f64 = 1000.0;

/// Shortest time between two emergencies of a guest, if `policy.interval` is not set.
const EMERGENCY_PERIOD: Duration = Duration::from_secs(1);

/// A smaller budget, reserve or bound is a number whose unit was forgotten.
const SIZE_MIN: Bytes = Bytes::mib(1);

/// Least `journal.keep_age`: the longest tick, so that a tick is recorded when the next one is due.
const KEEP_AGE_MIN: Duration = Duration::from_secs(60);
/// Most `journal.keep_age`: ten years, in effect no limit.
const KEEP_AGE_MAX: Duration = Duration::from_secs(3650 * 24 * 3600);

/// Reads and validates a configuration file.
///
/// # Errors
/// The file cannot be read, or has a mistake; the error names its place.
pub fn load(path: &Path) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(path).with_context(|| {
        let remedy = match path.exists() {
            true => "",
            false => ": write one, starting from /usr/share/doc/ballast/ballast.example.toml",
        };
        format!("cannot read configuration {}{remedy}", path.display())
    })?;
    Ok(parse(&text, path)?)
}

/// Validates `text` as the contents of `path`, which only appears in errors.
///
/// # Errors
/// The first mistake, with its place.
pub fn parse(text: &str, path: &Path) -> Result<Config, Error> {
    let file: File = ballast_toml_strict::parse(text, path)?;
    let at = |key: &[&str], message: String| Error::at(text, path, key, message);

    let mode: Mode = match &file.mode {
        Some(name) => name.parse().map_err(|e: ParseModeError| at(&["mode"], e.to_string()))?,
        None => Mode::default(),
    };
    check_durations(&file).map_err(|(key, message)| at(&key, message))?;
    let believed = file.policy.believed_without_evidence;
    if !(0.0..=BELIEVED_MAX).contains(&believed) {
        let message = format!("{believed} is out of range: expected 0 to {BELIEVED_MAX}");
        return Err(at(&["policy", "believed_without_evidence"], message));
    }
    if file.agents.enabled && file.agents.folders.is_empty() && !file.agents.vsock {
        let message = "lists no folder, and vsock is off, so no agent can be found".to_owned();
        return Err(at(&["agents", "folders"], message));
    }
    let tracking_budget = WatchBudget::new(file.tracking.budget)
        .map_err(|error| at(&["tracking", "budget"], error.to_string()))?;
    let budget_total = file.tracking.budget_total;
    if !(budget_total > 0.0 && budget_total <= 1.0) {
        let message = format!(
            "{budget_total} of the host's processors is out of range: expected above 0 and at most 1"
        );
        return Err(at(&["tracking", "budget_total"], message));
    }
    let cgroups: Vec<CgroupPattern> = file
        .containers
        .cgroups
        .iter()
        .map(|text| text.parse())
        .collect::<Result<_, _>>()
        .map_err(|e: CgroupPatternError| at(&["containers", "cgroups"], e.to_string()))?;
    let cloud_hypervisor = file
        .cloud_hypervisor
        .settings()
        .map_err(|(key, message)| at(&["cloud_hypervisor", key], message))?;
    let firecracker =
        file.firecracker.settings().map_err(|(key, message)| at(&["firecracker", key], message))?;
    let has_sockets = cloud_hypervisor.is_some() || firecracker.is_some();
    let has_host = file.libvirt.enabled || file.xen.enabled || has_sockets;
    if file.qmp.folders.is_empty() && !has_host && cgroups.is_empty() {
        return Err(at(
            &["qmp", "folders"],
            "lists no folder, [libvirt] and [xen] are off, [cloud_hypervisor] and [firecracker] list no \
             socket, and [containers] lists no cgroup, so no guest can be found"
                .to_owned(),
        ));
    }
    let policy: PolicyName =
        file.policy.name.parse().map_err(|e: ballast_model::ParsePolicyNameError| {
            let near = nearest(&file.policy.name, PolicyName::ALL.map(PolicyName::as_str));
            let near = near.map(|near| format!("; the nearest is `{near}`"));
            at(&["policy", "name"], format!("{e}{}", near.unwrap_or_default()))
        })?;
    let parameters = PolicyParameters {
        reserve_per_guest: file.policy.reserve_per_guest,
        tau: file.policy.tau,
        meb: &file.policy.meb,
        tws: &file.policy.tws,
        flexmemd: &file.policy.flexmemd,
    };
    let (policy_settings, probing) = parameters
        .settings()
        .map_err(|([table, key], message)| at(&["policy", table, key], message))?;
    ballast_policy::check(policy, &policy_settings)
        .map_err(|error| at(&["policy", "flexmemd"], error.to_string()))?;
    let external = file
        .policy
        .external
        .settings(file.daemon.tick)
        .map_err(|(key, message)| at(&["policy", "external", key], message))?;
    if policy == PolicyName::External && external.is_none() {
        let message = "`external` needs a program: name it under [policy.external]".to_owned();
        return Err(at(&["policy", "name"], message));
    }
    for (key, size) in [("budget", file.host.budget), ("reserve", Some(file.host.reserve))] {
        has_unit(size).map_err(|message| at(&["host", key], message))?;
    }
    for (key, size) in file.defaults.sizes() {
        has_unit(size).map_err(|message| at(&["defaults", key], message))?;
    }
    let limits_default = file.defaults.limits();
    limits_default.validate().map_err(|e| at(&["defaults"], e.to_string()))?;
    let (mut limits, mut given) = (BTreeMap::new(), BTreeMap::new());
    for (id, table) in &file.guests {
        for (key, size) in table.sizes() {
            has_unit(size).map_err(|message| at(&["guests", id.as_str(), key], message))?;
        }
        let own = table.limits_or(&limits_default);
        own.validate().map_err(|e| at(&["guests", id.as_str()], e.to_string()))?;
        limits.insert(id.clone(), own);
        given.insert(id.clone(), table.change());
    }
    if let (Some(floor), Some(budget)) = (limits_default.floor, file.host.budget)
        && floor > budget
    {
        let message = format!("{floor} for every guest is more than the budget of {budget}");
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
    let events = file.events.settings().map_err(|(key, message)| at(&["events", key], message))?;
    let metrics = file.metrics.listen.as_deref().map(address).transpose();
    let metrics = metrics.map_err(|message| at(&["metrics", "listen"], message))?;
    floors_fit(file.host.budget, &limits).map_err(|message| at(&["host", "budget"], message))?;

    let page = file.page.settings().map_err(|(key, message)| at(&["page", key], message))?;

    let settings = Settings {
        tick: file.daemon.tick,
        mode,
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
            believed_percent: (believed * 100.0).round() as u64,
            action_deadline: file.daemon.tick * 2,
        },
        hotplug,
        paging: paging.map(|settings| SwapRules {
            use_max_percent: settings.swap.use_max_percent,
            reserve: settings.swap.reserve,
        }),
        undo: file.mechanisms.undo,
        limits: LimitTable { default: limits_default, named: limits, given },
        ..Settings::new(policy)
    };
    Ok(Config {
        path: path.to_owned(),
        text: text.to_owned(),
        settings,
        external,
        qmp_folders: file.qmp.folders,
        qmp_timeout: file.qmp.timeout,
        libvirt: file.libvirt.enabled.then_some(LibvirtSettings {
            socket: file.libvirt.socket,
            timeout: file.libvirt.timeout,
        }),
        xen: file.xen.enabled.then_some(XenSettings {
            socket: file.xen.socket,
            xl: file.xen.xl,
            dom0_floor: file.xen.dom0_floor,
            timeout: file.xen.timeout,
        }),
        cloud_hypervisor,
        firecracker,
        containers: (!cgroups.is_empty()).then_some(ContainerSettings {
            cgroups,
            memory: file.containers.memory,
            probe: file.containers.probe,
        }),
        proxmox_folder: file.proxmox.folder,
        tracking: file.tracking.enabled.then_some(TrackingSettings {
            source: file.tracking.source,
            interval: file.tracking.interval,
            budget: tracking_budget,
            budget_total,
            intermittent: file.tracking.intermittent.0,
            every: file.tracking.every,
            hot_set: file.tracking.hot_set.unwrap_or(file.tracking.every),
            referenced: file.tracking.referenced,
        }),
        agents: file.agents.enabled.then_some(AgentSettings {
            folders: file.agents.folders,
            period: file.agents.interval,
            emergency_period: file.policy.interval.unwrap_or(EMERGENCY_PERIOD),
            shrink: file.agents.shrink,
            vsock: file.agents.vsock,
        }),
        paging,
        tunes_merging: file.mechanisms.ksm.enabled,
        socket: file.daemon.socket,
        group: file.daemon.group,
        page,
        on_exit: file.daemon.on_exit,
        journal: file.journal.enabled.then_some(JournalSettings {
            path: file.journal.path,
            keep_age: file.journal.keep_age,
            keep_bytes: file.journal.keep_bytes,
        }),
        metrics,
        events,
        raise_priority: file.daemon.raise_priority,
    })
}

/// Checks the durations of the tables without a check of their own.
///
/// # Errors
/// The table and the key of the first one that is out of range, and what was expected.
fn check_durations(file: &File) -> Result<(), ([&'static str; 2], String)> {
    let (ms, seconds) = (Duration::from_millis, Duration::from_secs);
    let tick = file.daemon.tick;
    // The tick is not checked yet.
    let two_ticks = tick.saturating_mul(2);
    let guard = &file.guard;
    let ranges = [
        (["daemon", "tick"], tick, ms(100), seconds(60)),
        (["qmp", "timeout"], file.qmp.timeout, ms(10), seconds(30)),
        (["libvirt", "timeout"], file.libvirt.timeout, ms(10), seconds(30)),
        (["xen", "timeout"], file.xen.timeout, ms(10), seconds(30)),
        (["guard", "stale_after"], guard.stale_after, two_ticks, seconds(3600)),
        (["guard", "release_grace"], guard.release_grace, Duration::ZERO, seconds(3600)),
        (["guard", "stuck_after"], guard.stuck_after, two_ticks, seconds(3600)),
        (["guard", "stuck_retry"], guard.stuck_retry, tick, GuardSettings::STUCK_RETRY_MAX),
        (["journal", "keep_age"], file.journal.keep_age, KEEP_AGE_MIN, KEEP_AGE_MAX),
        (["tracking", "interval"], file.tracking.interval, ms(100), seconds(3600)),
        (["agents", "interval"], file.agents.interval, ms(100), seconds(60)),
    ];
    for (key, value, least, most) in ranges {
        in_range(value, least, most).map_err(|message| (key, message))?;
    }
    if let Some(interval) = file.policy.interval {
        in_range(interval, tick, seconds(3600))
            .map_err(|message| (["policy", "interval"], message))?;
    }
    Ok(())
}

impl RestTable {
    /// The validated settings; `None`: no socket is listed.
    ///
    /// # Errors
    /// The key whose value is invalid, and what was expected.
    fn settings(self) -> Result<Option<RestSettings>, Mistake> {
        let RestTable { sockets, timeout } = self;
        in_range(timeout, Duration::from_millis(10), Duration::from_secs(30))
            .map_err(|message| ("timeout", message))?;
        let sockets: Vec<SocketPattern> = sockets
            .iter()
            .map(|text| text.parse())
            .collect::<Result<_, _>>()
            .map_err(|error: SocketPatternError| ("sockets", error.to_string()))?;
        Ok((!sockets.is_empty()).then_some(RestSettings { sockets, timeout }))
    }
}

impl EventsTable {
    /// The validated settings; `None`: no program is named.
    ///
    /// # Errors
    /// The key whose value is invalid, and what was expected.
    fn settings(self) -> Result<Option<EventSettings>, Mistake> {
        let EventsTable { run, timeout, apart } = self;
        in_range(timeout, Duration::from_millis(100), Duration::from_secs(300))
            .map_err(|message| ("timeout", message))?;
        in_range(apart, Duration::ZERO, Duration::from_secs(3600))
            .map_err(|message| ("apart", message))?;
        let Some(run) = run else { return Ok(None) };
        if !run.is_absolute() {
            let message = format!(
                "`{}` is not an absolute path: expected one such as /usr/local/bin/ballast-event, without arguments",
                run.display()
            );
            return Err(("run", message));
        }
        Ok(Some(EventSettings { run, timeout, apart }))
    }
}

/// Parses an address of this host, with a port, to listen on.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("`{text}` is not an address and a port: expected one such as 127.0.0.1:9184")
    })
}

/// Checks that a size is none, 0, or large enough to be meant.
fn has_unit(size: Option<Bytes>) -> Result<(), String> {
    match size.filter(|size| *size > Bytes::ZERO && *size < SIZE_MIN) {
        Some(size) => Err(format!(
            "{size} is less than {SIZE_MIN}: a number without a unit is bytes: expected a size such as 512MiB"
        )),
        None => Ok(()),
    }
}

/// Checks that the floors of all managed guests together fit the budget.
///
/// # Errors
/// They do not; names their sum and the budget.
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

impl GuestTable {
    /// Its sizes, by their keys.
    fn sizes(&self) -> [(&'static str, Option<Bytes>); 2] {
        [("floor", self.floor), ("ceiling", self.ceiling)]
    }

    fn limits(&self) -> GuestLimits {
        self.limits_or(&GuestLimits::default())
    }

    /// The limits of this table, with `default` for missing keys.
    fn limits_or(&self, default: &GuestLimits) -> GuestLimits {
        GuestLimits {
            swap: self.swap.or(default.swap),
            fence: self.fence.unwrap_or(default.fence),
            ..self.change().apply(default)
        }
    }

    /// The limits that can also be changed by command, without the file.
    fn change(&self) -> GuestChange {
        GuestChange {
            floor: self.floor,
            ceiling: self.ceiling,
            shares: self.shares,
            priority: self.priority,
            miss_rate_max: self.miss_rate_max,
            managed: self.managed,
            take_over: self.take_over,
            ..GuestChange::default()
        }
    }
}
