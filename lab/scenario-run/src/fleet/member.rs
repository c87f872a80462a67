//! A host's member of the fleet: `ballast-fleet run`, started as an operator would start it.
//!
//! Idea: the configuration is an ordinary one; the program in it that starts an empty QEMU is
//! `ballast-lab lab listen`. All files of the member are in the folder of the host's run, which the
//! lab removes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use ballast_lab_host::{RunFolder, ScenarioFleet, VariantKind};
use serde_json::{Value, json};
use tokio::process::Child;

use super::store::CLUSTER;
use crate::follow::{command, end, log_tail};

/// The program.
const PROGRAM: &str = "ballast-fleet";
/// The labels of all hosts are the same, because they are one machine.
const SAME: &str = "lab";
/// How long a guest may be stopped at the end of a copy.
const DOWNTIME: &str = "300ms";
/// Lines from the end of the member's log that an error quotes.
const LOG_LINES_QUOTED: usize = 12;

/// A host's member of the fleet; killed when dropped.
pub(super) struct FleetMember {
    host: String,
    folder: PathBuf,
    child: Option<Child>,
}

/// What a member needs to know.
pub(super) struct MemberPlace<'a> {
    pub(super) fleet: &'a ScenarioFleet,
    pub(super) kind: VariantKind,
    /// The host's name.
    pub(super) host: &'a str,
    /// The folder of the host's run.
    pub(super) run: &'a RunFolder,
    /// The socket of its daemon.
    pub(super) daemon: &'a Path,
    /// etcd's endpoint.
    pub(super) etcd: &'a str,
}

impl FleetMember {
    /// The member of a host, not started yet. Its folder is created.
    ///
    /// # Errors
    /// A file cannot be written, or the path of this program is unknown.
    pub(super) fn new(place: &MemberPlace<'_>) -> anyhow::Result<FleetMember> {
        let folder = place.run.path().join("fleet");
        fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let member = FleetMember { host: place.host.to_owned(), folder, child: None };
        let text = toml::to_string(&place.config(&member.folder.join("state"))?)
            .context("cannot write the member's configuration")?;
        let file = member.config();
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        Ok(member)
    }

    /// The name of its host.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Whether it was started and not stopped or killed since.
    pub(super) fn is_started(&self) -> bool {
        self.child.is_some()
    }

    fn config(&self) -> PathBuf {
        self.folder.join("fleet.toml")
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// Starts it.
    ///
    /// # Errors
    /// The program is missing.
    pub(super) fn start(&mut self) -> anyhow::Result<()> {
        let program = program()?;
        let log = File::options().append(true).create(true).open(self.log());
        let log = log.with_context(|| format!("cannot write {}", self.log().display()))?;
        let mut command = command(program.as_os_str());
        command.arg("run").arg("--config").arg(self.config());
        command.stdout(log.try_clone().context("cannot write its log")?).stderr(log);
        self.child = Some(command.spawn().with_context(|| format!("cannot start {PROGRAM}"))?);
        Ok(())
    }

    /// Kills it, as a fault would.
    ///
    /// # Errors
    /// It does not end.
    pub(super) async fn kill(&mut self) -> anyhow::Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        child.kill().await.with_context(|| format!("cannot kill the member of {}", self.host))
    }

    /// Fails if the member has ended by itself.
    ///
    /// # Errors
    /// It has ended; the error has the end of its log.
    pub(super) fn ensure_alive(&mut self) -> anyhow::Result<()> {
        let Some(child) = &mut self.child else { return Ok(()) };
        match child.try_wait().context("cannot look after the fleet's members")? {
            None => Ok(()),
            Some(status) => {
                bail!("the member of host {} has ended ({status}){}", self.host, self.log_tail())
            }
        }
    }

    /// Ends the member and waits until it has ended.
    ///
    /// # Errors
    /// It does not end in time, or ends with an error.
    pub(super) async fn stop(&mut self) -> anyhow::Result<()> {
        self.ensure_alive()?;
        let Some(mut child) = self.child.take() else { return Ok(()) };
        match end(&mut child, "a member of the fleet").await? {
            Some(status) if status.success() => Ok(()),
            Some(status) => {
                bail!("the member of {} ended with {status}{}", self.host, self.log_tail())
            }
            None => bail!("the member of {} does not end{}", self.host, self.log_tail()),
        }
    }

    /// The end of the member's log, for an error message.
    pub(super) fn log_tail(&self) -> String {
        let tail = log_tail(&self.log(), LOG_LINES_QUOTED);
        format!("; the end of the log of {}'s member:\n{tail}", self.host)
    }
}

impl MemberPlace<'_> {
    /// The configuration; `state` is the folder of the durable state.
    fn config(&self, state: &Path) -> anyhow::Result<Value> {
        let ms = |span: Duration| format!("{}ms", span.as_millis());
        let mut config = json!({
            "cluster": CLUSTER,
            "host": self.host,
            "endpoints": [self.etcd],
            "tick": ms(self.fleet.tick),
            "lease": format!("{}s", self.fleet.lease.as_secs()),
            "socket": text(self.daemon)?,
            "bandwidth": self.fleet.bandwidth,
            "mode": "advise",
            "compatibility": {
                "hypervisor": "qemu", "version": "1.0", "cpu_model": SAME,
                "storage": [SAME], "networks": [SAME],
            },
            // One move at a time, so that the moves can be told apart.
            "planner": { "migrations_max": 1, "patience": ms(self.fleet.patience) },
        });
        if self.kind == VariantKind::Move {
            let runs = self.run.path().parent().context("the run's folder is in none")?;
            // Not by a name, which may refer to another file once this one is replaced.
            let lab = std::env::current_exe().context("where this program is")?;
            config["mode"] = json!("move");
            config["state"] = json!(text(state)?);
            config["qemu"] = json!({
                // The lab no longer uses this socket once the guests are at their start sizes.
                "qmp": text(&self.run.path().join("lab/{guest}.qmp"))?,
                "start": [
                    text(&lab)?, "lab", "listen", "{guest}", "--run", self.run.name(), "--runs",
                    text(runs)?,
                ],
                "listen": "127.0.0.1",
                "downtime": DOWNTIME,
            });
        }
        Ok(config)
    }
}

fn text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

/// The path of `ballast-fleet`: beside this program, else the first on PATH.
fn program() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().ok();
    let own_folder = own.as_deref().and_then(Path::parent).map(Path::to_owned);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = own_folder.into_iter().chain(std::env::split_paths(&path));
    let found = found.find_map(|folder| Some(folder.join(PROGRAM)).filter(|file| file.is_file()));
    found.with_context(|| {
        format!("{PROGRAM} is neither beside this program nor on PATH: run `make build`")
    })
}
