//! `ballast daemon`: the balancer itself, in the foreground.

use std::path::PathBuf;

use anyhow::Context;
use serde::Serialize;

use ballast_config::Config;
use ballast_report::Output;
use ballast_report::format::{size, span};

use super::explain;

/// Balance the guests' memory until stopped: SIGTERM or Ctrl-C ends it, SIGHUP reloads the
/// configuration.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast daemon --config /etc/ballast/ballast.toml --check
  ballast daemon --config /etc/ballast/ballast.toml

SIGHUP reloads the configuration; SIGTERM or Ctrl-C stops the daemon. It logs to standard error, at
the level in BALLAST_LOG (error, warn, info, debug). docs/ballast.example.toml is an annotated
example of the configuration.")]
pub struct Args {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Check the configuration, print a summary and exit
    #[arg(long)]
    pub check: bool,
    /// How to print what `--check` found
    #[command(flatten)]
    pub output: Output,
}

/// Runs the daemon, or checks its configuration.
///
/// # Errors
/// The configuration is wrong, or the daemon cannot start.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let config = ballast_config::load(&args.config)?;
    if args.check {
        return args.output.print(&Checked::from(&config), |checked, _| checked.lines());
    }
    let log = ballast_daemon::start_log().context("cannot log to standard error")?;
    let done = ballast_daemon::run(config, None, explain::chain).await;
    if !log.end() {
        // Printing the error would block: nobody reads standard error.
        std::process::exit(i32::from(done.is_err()));
    }
    done
}

/// Summary of a valid configuration.
#[derive(Debug, Serialize)]
struct Checked {
    file: PathBuf,
    mode: &'static str,
    policy: &'static str,
    budget_bytes: Option<u64>,
    host_reserve_bytes: u64,
    tick_ms: u64,
    qmp_folders: Vec<PathBuf>,
    libvirt: Option<PathBuf>,
    cgroups: Vec<String>,
    #[serde(skip)]
    guest_places: Vec<String>,
    agent_folders: Vec<PathBuf>,
    guests_named: usize,
    journal: Option<PathBuf>,
    page: Option<String>,
}

impl From<&Config> for Checked {
    fn from(config: &Config) -> Self {
        let guard = &config.settings.guard;
        let cgroups = config.containers.iter().flat_map(|it| &it.cgroups);
        Checked {
            file: config.path.clone(),
            mode: config.settings.mode.as_str(),
            policy: config.settings.policy.as_str(),
            budget_bytes: guard.budget.map(ballast_model::Bytes::get),
            host_reserve_bytes: guard.host_reserve.get(),
            tick_ms: u64::try_from(config.settings.tick.as_millis()).unwrap_or(u64::MAX),
            qmp_folders: config.qmp_folders.clone(),
            libvirt: config.libvirt.as_ref().map(|it| it.socket.clone()),
            cgroups: cgroups.map(ToString::to_string).collect(),
            guest_places: config.guest_places(),
            agent_folders: config.agents.as_ref().map_or(Vec::new(), |it| it.folders.clone()),
            guests_named: config.settings.limits.named.len(),
            journal: config.journal.as_ref().map(|journal| journal.path.clone()),
            page: config.page.port.as_ref().map(|port| format!("http://{}/", port.listen)),
        }
    }
}

impl Checked {
    fn lines(&self) -> String {
        let agents = match &self.agent_folders[..] {
            [] => "not listened to".to_owned(),
            folders => {
                let names: Vec<String> =
                    folders.iter().map(|it| it.display().to_string()).collect();
                format!("in {}", names.join(", "))
            }
        };
        let budget = self.budget_bytes.map_or("what the host has, less the reserve".into(), size);
        let journal =
            self.journal.as_ref().map_or("none".into(), |path| path.display().to_string());
        let page = self.page.as_deref().unwrap_or("on the API's socket");
        format!(
            "{} is good\n\
             mode     {}\n\
             policy   {}\n\
             budget   {budget}, with {} kept for the host\n\
             tick     {}\n\
             guests   in {}; {} have a table of their own\n\
             agents   {agents}\n\
             journal  {journal}\n\
             page     {page}\n",
            self.file.display(),
            self.mode,
            self.policy,
            size(self.host_reserve_bytes),
            span(self.tick_ms),
            self.guest_places.join(", "),
            self.guests_named,
        )
    }
}
