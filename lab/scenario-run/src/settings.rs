//! The configuration of a run's daemon.
//!
//! Idea: the daemon is an ordinary one with an ordinary configuration file; all its files are in
//! the run's folder and are removed with it.

use std::path::{Path, PathBuf};

use anyhow::Context;
use ballast_lab_host::{DOM0_MEMORY, Manager, RunFolder, Scenario, ScenarioGuest, Variant};
use ballast_model::{Bytes, PolicyName};
use serde_json::{Map, Value, json};

use super::{paper, rival};

/// A larger journal loses its oldest records; this is enough for some hours of a run.
const JOURNAL_BYTES_MAX: &str = "64MiB";

/// Name of the daemon's folder in the run's folder.
const DAEMON_FOLDER: &str = "daemon";
/// Xen's name for dom0, in which the daemon runs.
const DOM0: &str = "Domain-0";
/// How long `xl` may take in dom0; on an emulated machine it takes half a second.
const XL_TIMEOUT: &str = "20s";

/// Where a run's daemon has its files and sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DaemonPaths {
    /// The daemon's own folder.
    folder: PathBuf,
    /// The guests' QMP sockets.
    qmp: PathBuf,
    /// The sockets of their agents.
    agents: PathBuf,
    /// Where the run's libvirt listens, if it has one.
    libvirt: PathBuf,
}

impl DaemonPaths {
    /// Places in a run's folder.
    pub(super) fn of(run: &RunFolder) -> Self {
        let own = run.path().join(DAEMON_FOLDER);
        DaemonPaths::new(own, run.qmp_folder(), run.agent_folder(), run.libvirt_socket())
    }

    /// Places in `folder`, which only the daemon uses. `qmp` has the sockets of the guests,
    /// `agents` those of their agents; `libvirt` is the socket of the run's libvirt.
    fn new(folder: PathBuf, qmp: PathBuf, agents: PathBuf, libvirt: PathBuf) -> Self {
        DaemonPaths { folder, qmp, agents, libvirt }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn config(&self) -> PathBuf {
        self.folder.join("ballast.toml")
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.folder.join("api.sock")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    pub(super) fn journal(&self) -> PathBuf {
        self.folder.join("journal.db")
    }
}

/// Checks, before minutes are spent, that the daemon accepts the scenario's settings, that its
/// rivals exist, and that a paper's figures can be compared.
///
/// # Errors
/// The daemon refuses a setting (the error names the policy or variant), or a rival does not exist.
pub(super) fn check(scenario: &Scenario) -> anyhow::Result<()> {
    paper::figures(scenario)?;
    let paths =
        DaemonPaths::new("/daemon".into(), "/qmp".into(), "/agent".into(), "/libvirt".into());
    for variant in scenario.contestants() {
        if let Some(name) = variant.rival() {
            rival::rule(name)?;
        }
        let text = daemon_toml(scenario, &variant, &paths, false)?;
        let context = || format!("the daemon's configuration under {}", variant.name);
        ballast_config::parse(&text, Path::new("ballast.toml")).with_context(context)?;
    }
    Ok(())
}

/// The configuration file for `scenario` under `variant`. A rival's rule is not in the file: the
/// file names `static`, and the rule is passed to the daemon separately. A raised priority is set
/// only as root.
///
/// # Errors
/// A path is not valid UTF-8.
pub(super) fn daemon_toml(
    scenario: &Scenario,
    variant: &Variant,
    paths: &DaemonPaths,
    is_root: bool,
) -> anyhow::Result<String> {
    let has_libvirt = scenario.settings.manager == Manager::Libvirt;
    let has_xen = scenario.settings.manager == Manager::Xen;
    // The daemon leaves dom0 alone, but dom0's memory counts towards the budget.
    let dom0 = if has_xen { DOM0_MEMORY } else { Bytes::ZERO };
    let mut host = json!({ "budget": scenario.host.budget.saturating_add(dom0) });
    if let Some(reserve) = scenario.host.reserve {
        host["reserve"] = json!(reserve);
    }
    let mut policy = variant.policy.clone();
    if variant.rival().is_some() {
        policy.insert("name".to_owned(), PolicyName::Static.as_str().into());
    }
    let mut tracking = variant.tracking.clone();
    let intermittent = || json!(scenario.settings.intermittent);
    tracking.entry("intermittent").or_insert_with(intermittent);
    let guests = scenario.guests.iter();
    let mut guests: Map<String, Value> =
        guests.map(|guest| (guest.name.to_string(), bounds(guest))).collect();
    if has_xen {
        guests.insert(DOM0.to_owned(), json!({ "managed": false }));
    }
    let qmp = if has_libvirt || has_xen { Vec::new() } else { vec![text(&paths.qmp)?] };
    let settings = json!({
        "daemon": {
            "tick": format!("{}ms", scenario.settings.tick.as_millis()),
            "socket": text(&paths.socket())?,
            "raise_priority": is_root,
        },
        "host": host,
        "qmp": { "folders": qmp },
        "libvirt": { "enabled": has_libvirt, "socket": text(&paths.libvirt)? },
        "xen": { "enabled": has_xen, "dom0_floor": DOM0_MEMORY, "timeout": XL_TIMEOUT },
        "agents": { "folders": [text(&paths.agents)?] },
        "policy": policy,
        "tracking": tracking,
        "journal": { "path": text(&paths.journal())?, "keep_bytes": JOURNAL_BYTES_MAX },
        "guests": guests,
    });
    toml::to_string(&settings).context("cannot write the daemon's configuration")
}

fn bounds(guest: &ScenarioGuest) -> Value {
    let limits = guest.limits();
    let mut table = json!({ "shares": limits.shares, "priority": limits.priority });
    let optional = [
        ("swap", json!(limits.swap)),
        ("miss_rate_max", json!(limits.miss_rate_max)),
        ("floor", json!(limits.floor)),
        ("ceiling", json!(limits.ceiling)),
    ];
    for (key, value) in optional.into_iter().filter(|(_, value)| !value.is_null()) {
        table[key] = value;
    }
    table
}

fn text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().with_context(|| {
        format!("{} is not UTF-8: set XDG_RUNTIME_DIR to a folder whose path is", path.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::scenario;
    use crate::simulate::scenario_file::ScenarioFile;
    use ballast_model::GuestId;
    use serde_json::Value;

    /// In the lab and in the simulator, which share their form.
    #[test]
    fn every_scenario_of_the_lab_is_one() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/lab");
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let scenario = Scenario::parse(&text, &path).unwrap();
            check(&scenario).unwrap();
            ScenarioFile::parse(&text, &path).unwrap();
            assert_eq!(path.file_stem().unwrap().to_str().unwrap(), scenario.name.to_string());
            count += 1;
        }
        assert!(count >= 8, "{count}");
    }

    #[test]
    fn the_daemon_reads_what_is_generated() {
        let paths = DaemonPaths::new(
            "/r/with \"quotes\"/daemon".into(),
            "/r/qmp".into(),
            "/r/agent".into(),
            "/r/v".into(),
        );
        let mut scenario = scenario();
        scenario.policies = PolicyName::BUILT_IN.iter().map(PolicyName::to_string).collect();
        for (variant, &policy) in scenario.contestants().iter().zip(PolicyName::BUILT_IN) {
            let text = daemon_toml(&scenario, variant, &paths, false).unwrap();
            let config = ballast_config::parse(&text, &paths.config()).unwrap();
            assert_eq!(config.settings.policy, policy);
            assert_eq!(config.settings.guard.budget, Some(Bytes::gib(1)));
            assert_eq!(config.settings.guard.host_reserve, Bytes::mib(256));
            assert_eq!(config.qmp_folders, [PathBuf::from("/r/qmp")]);
            assert_eq!(config.agents.unwrap().folders, [PathBuf::from("/r/agent")]);
            assert_eq!(config.socket, Some(paths.socket()));
            assert_eq!(config.journal.unwrap().path, paths.journal());
            assert!(!config.raise_priority);
            let a: GuestId = "a".parse().unwrap();
            let limits = &config.settings.limits.named[&a];
            assert_eq!(limits, &scenario.guests[0].limits());
        }
    }

    #[test]
    fn a_rivals_rule_is_not_in_the_file() {
        let mut scenario = scenario();
        scenario.policies = vec!["rival:mom".to_owned()];
        check(&scenario).unwrap();
        let paths = DaemonPaths::new("/d".into(), "/q".into(), "/a".into(), "/v".into());
        let variant = &scenario.contestants()[0];
        assert_eq!((variant.name.as_str(), variant.rival()), ("rival:mom", Some("mom")));
        let text = daemon_toml(&scenario, variant, &paths, false).unwrap();
        let config = ballast_config::parse(&text, &paths.config()).unwrap();
        assert_eq!(config.settings.policy, PolicyName::Static);
        scenario.policies = vec!["rival:mum".to_owned()];
        assert!(check(&scenario).is_err());
    }

    #[test]
    fn the_first_domain_of_xen_counts_and_is_left_alone() {
        let mut scenario = scenario();
        scenario.settings.manager = Manager::Xen;
        let paths = DaemonPaths::new("/d".into(), "/q".into(), "/a".into(), "/v".into());
        let variant = &scenario.contestants()[0];
        let text = daemon_toml(&scenario, variant, &paths, false).unwrap();
        let config = ballast_config::parse(&text, &paths.config()).unwrap();
        assert!(config.xen.is_some() && config.qmp_folders.is_empty());
        let budget = scenario.host.budget.saturating_add(DOM0_MEMORY);
        assert_eq!(config.settings.guard.budget, Some(budget));
        let dom0: GuestId = DOM0.parse().unwrap();
        assert!(!config.settings.limits.named[&dom0].managed);
    }

    #[test]
    fn settings_the_daemon_rejects_are_reported_before_the_run() {
        let mut scenario = scenario();
        scenario.policy.insert("interval".to_owned(), Value::from("5s"));
        scenario.tracking.insert("budget".to_owned(), Value::from(0.01));
        assert!(check(&scenario).is_ok());
        scenario.policy.insert("intervall".to_owned(), Value::from("5s"));
        let error = format!("{:#}", check(&scenario).unwrap_err());
        assert!(error.contains("under static") && error.contains("intervall"), "{error}");
    }
}
