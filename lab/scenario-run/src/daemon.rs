//! The daemon of a run: a separate process, started as an operator would start it.
//!
//! Idea: the process is this same program with a hidden command. It first asks the kernel for a
//! signal when its parent dies, so that the daemon ends however the scenario run ends. All its
//! files are in the run's folder, which the lab removes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use ballast_api::{Client, ClientError, GuestChange, GuestView, StatusReply};
use ballast_lab_host::{RunFolder, Scenario, Variant};
use ballast_model::{Bytes, GuestId};
use rustix::process::geteuid;
use tokio::process::Child;
use tokio::time::Instant;

use super::follow::{END_PATIENCE, end, follow, hidden, log_tail};
use super::rival;
use super::settings::{DaemonPaths, daemon_toml};

/// The hidden command that starts a run's daemon.
pub const COMMAND: &str = "lab-daemon";
/// How long the daemon may take to see every guest with its statistics; on an idle machine it takes
/// three seconds.
const FIRST_TICK_PATIENCE: Duration = Duration::from_secs(60);
/// Time between two polls for that.
const POLL: Duration = Duration::from_millis(100);
/// How long the daemon may take to answer during the measurement: less than the time between two
/// samples.
const ANSWER_PATIENCE: Duration = Duration::from_millis(700);
/// Lines from the end of the daemon's log that an error quotes.
const LOG_LINES_QUOTED: usize = 12;

/// Arguments of the hidden command.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Started by `ballast lab run` and `ballast demo`.")]
pub struct Args {
    /// The configuration
    #[arg(long)]
    config: PathBuf,
    /// The rival whose rule decides, instead of the policy in the configuration
    #[arg(long)]
    rival: Option<String>,
    /// The process to end with
    #[arg(long)]
    parent: i32,
}

/// Runs the daemon until it receives a signal or its parent dies.
///
/// # Errors
/// Those of the daemon.
pub async fn run(args: Args) -> anyhow::Result<()> {
    follow(args.parent)?;
    let config = ballast_config::load(&args.config)?;
    let rival = args.rival.as_deref().map(rival::rule).transpose()?;
    let log = ballast_daemon::start_log().context("cannot log to standard error")?;
    // Nobody opens the web page of a run's daemon, so it needs no explanations.
    let explain = |reply: &ballast_api::ExplainReply| reply.guest.clone();
    let result = ballast_daemon::run(config, rival, explain).await;
    log.end();
    result
}

/// A running daemon; killed when dropped.
#[derive(Debug)]
pub(super) struct Daemon {
    child: Child,
    client: Client,
    paths: DaemonPaths,
}

impl Daemon {
    /// Starts the daemon of a run of `scenario` under `variant`, and waits until it sees every
    /// guest with its allocation and statistics. If the variant names a rival, the rival's rule
    /// decides.
    pub(super) async fn start(
        scenario: &Scenario,
        variant: &Variant,
        run: &RunFolder,
    ) -> anyhow::Result<Daemon> {
        let paths = DaemonPaths::of(run);
        let toml = daemon_toml(scenario, variant, &paths, geteuid().is_root())?;
        let folder = paths.folder();
        fs::create_dir(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let write = |path: PathBuf| format!("cannot write {}", path.display());
        fs::write(paths.config(), toml).with_context(|| write(paths.config()))?;
        let log = File::create(paths.log()).with_context(|| write(paths.log()))?;
        let mut command = hidden(COMMAND);
        command.arg("--config").arg(paths.config());
        command.args(variant.rival().iter().flat_map(|name| ["--rival", name]));
        let child = command.stdout(Stdio::null()).stderr(log).spawn();
        let child = child.context("cannot start the daemon")?;
        let client = Client::new(paths.socket()).with_timeout(ANSWER_PATIENCE);
        let mut daemon = Daemon { child, client, paths };
        let guests: Vec<&str> = scenario.guests.iter().map(|guest| guest.name.as_str()).collect();
        daemon.wait_until_seen(&guests).await?;
        Ok(daemon)
    }

    async fn wait_until_seen(&mut self, guests: &[&str]) -> anyhow::Result<()> {
        let end = Instant::now() + FIRST_TICK_PATIENCE;
        loop {
            self.ensure_alive()?;
            let missing = match self.client.guests().await {
                Ok(reply) => missing(guests, &reply.guests),
                Err(ClientError::NoDaemon { .. }) => "it does not listen yet".to_owned(),
                Err(error) => error.to_string(),
            };
            if missing.is_empty() {
                return Ok(());
            }
            if Instant::now() > end {
                let waited = FIRST_TICK_PATIENCE.as_secs();
                bail!(
                    "the daemon did not see all guests within {waited} s: {missing}{}",
                    self.log()
                );
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// The guests as the daemon sees them; `None` when it does not answer in time.
    pub(super) async fn guests(&mut self) -> anyhow::Result<Option<Vec<GuestView>>> {
        match self.client.guests().await {
            Ok(reply) => Ok(Some(reply.guests)),
            Err(_) => self.ensure_alive().map(|()| None),
        }
    }

    /// The daemon's whole status; `None` when it does not answer in time.
    pub(super) async fn status(&mut self) -> anyhow::Result<Option<StatusReply>> {
        match self.client.status().await {
            Ok(reply) => Ok(Some(reply)),
            Err(_) => self.ensure_alive().map(|()| None),
        }
    }

    /// Sets a guest's floor.
    pub(super) async fn guarantee(&self, guest: &GuestId, floor: Bytes) -> anyhow::Result<()> {
        let change = GuestChange { floor: Some(floor), ..GuestChange::default() };
        let context = || format!("the daemon does not guarantee {floor} to guest {guest}");
        self.client.set_guest(guest, &change).await.map(drop).with_context(context)
    }

    /// Makes the daemon only observe from now on.
    pub(super) async fn pause(&self) -> anyhow::Result<()> {
        self.client.pause().await.map(drop).context("the daemon does not pause")
    }

    /// Ends the daemon, waits until it has ended, and returns where its files are.
    pub(super) async fn stop(mut self) -> anyhow::Result<DaemonPaths> {
        self.ensure_alive()?;
        match end(&mut self.child, "the daemon").await? {
            Some(status) if status.success() => Ok(self.paths),
            Some(status) => bail!("the daemon ended with an error ({status}){}", self.log()),
            None => {
                let waited = END_PATIENCE.as_secs();
                bail!("the daemon did not end within {waited} s{}", self.log())
            }
        }
    }

    fn ensure_alive(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait().context("cannot look after the daemon")? {
            None => Ok(()),
            Some(status) => bail!("the daemon has ended unexpectedly ({status}){}", self.log()),
        }
    }

    /// The end of the daemon's log, for an error message.
    fn log(&self) -> String {
        format!("; the end of its log:\n{}", log_tail(&self.paths.log(), LOG_LINES_QUOTED))
    }
}

/// Which of `guests` are not fully seen yet, in words; empty: none.
fn missing(guests: &[&str], seen: &[GuestView]) -> String {
    // Targets are not required: there is none before the daemon has ordered something.
    let known =
        seen.iter().filter(|view| view.allocation_bytes.is_some() && view.used_bytes.is_some());
    let known: BTreeSet<&str> = known.map(|view| view.guest.as_str()).collect();
    let missing = guests.iter().filter(|guest| !known.contains(**guest));
    let words = missing.map(|guest| {
        let view = seen.iter().find(|view| view.guest == **guest);
        let state = view.map_or("not found", |view| view.state.text.as_str());
        format!("guest {guest}: {state}, no full view yet")
    });
    words.collect::<Vec<_>>().join("; ")
}
