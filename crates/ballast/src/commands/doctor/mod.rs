//! `ballast doctor`: what works on this host, what does not, and what to do about it.
//!
//! Idea: three steps. `probe.rs` and `ballast_host::HostFacts` collect facts. `host.rs`,
//! `limits.rs`, `hypervisors.rs`, `rest.rs`, `proxmox.rs`, `guests.rs` and `permissions.rs` judge
//! them, without I/O. `render.rs` prints the findings. Facts about guests come from the daemon, so
//! without a daemon guests are not judged. Begin with `finding.rs`.
//!
//! Limits: a snapshot. It changes nothing, but it connects to QMP sockets that no daemon uses and
//! to APIs of hypervisors, and it uses DAMON for an instant
//! (`ballast_daemon::track::TrackingDiagnosis`).

mod finding;
mod guests;
mod host;
mod hypervisors;
mod limits;
mod manager;
mod permissions;
mod probe;
mod proxmox;
mod render;
mod rest;
#[cfg(test)]
mod tests;
mod tracking;

use std::path::{Path, PathBuf};

use ballast_api::{Client, StatusReply};
use ballast_config::Config;
use ballast_daemon::track::TrackingDiagnosis;
use ballast_host::{HostFacts, PROC, balloon_owners};
use ballast_model::BalloonOwner;
use ballast_report::Output;
use clap::Subcommand;
use serde::Serialize;

use super::Connection;
use finding::{Finding, Severity};
use probe::{ProxmoxSeen, RestSeen};

/// The configuration that the daemon's unit uses.
const USUAL_CONFIG: &str = "/etc/ballast/ballast.toml";

/// Check what works on this host, what does not, and how to fix it.
#[derive(Clone, Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  ballast doctor
  ballast doctor host --config /etc/ballast/ballast.toml
  ballast doctor guests web-1
  ballast doctor --json | jq -r '.findings[] | select(.severity == \"problem\") | .remedy'

It changes nothing. Run it as the daemon's user or as root: it cannot check what it may not read.

  note     good to know, and a matter of choice
  warning  works, but could work better
  problem  something that is configured or requested does not work

Exit status: 0 nothing worse than notes; 1 warnings or problems, or the checks could not run;
2 wrong usage."
)]
pub struct Args {
    #[command(subcommand)]
    subject: Option<DoctorSubject>,
    #[command(flatten)]
    all: DiagnosisArgs,
}

#[derive(Clone, Debug, Subcommand)]
enum DoctorSubject {
    /// Check the host's kernel, hypervisors, other owners of balloons, and permissions.
    Host(DiagnosisArgs),
    /// Check what each guest has and lacks to be balanced well, as the daemon sees it.
    Guests(GuestsArgs),
    /// Check which sources can track the working set of each guest, and why others cannot.
    Tracking(tracking::TrackingArgs),
}

/// Where to look, and how to print.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast doctor host
  ballast doctor host --json | jq '.findings[] | select(.topic == \"swap\")'

The exit status is that of `ballast doctor`.")]
struct DiagnosisArgs {
    /// The daemon's configuration (TOML); its socket is used unless --socket is given [default:
    /// /etc/ballast/ballast.toml if it exists, else the built-in defaults]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

/// The same of some guests.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast doctor guests
  ballast doctor guests web-1 web-2

The exit status is that of `ballast doctor`; also 1 if no daemon answers.")]
struct GuestsArgs {
    /// The guests to check; without any, all
    #[arg(value_name = "GUEST")]
    guests: Vec<String>,
    #[command(flatten)]
    common: DiagnosisArgs,
}

/// Makes the diagnosis and prints the findings.
///
/// # Errors
/// There are warnings or problems; the configuration is invalid; a guest is not known; or the
/// output cannot be written.
pub async fn run(args: Args) -> anyhow::Result<()> {
    match args.subject {
        None => {
            let mut diagnosis = Diagnosis::begin(&args.all).await?;
            diagnosis.look_at_host().await;
            diagnosis.look_at_guests(&[], Severity::Note)?;
            diagnosis.end(args.all.output)
        }
        Some(DoctorSubject::Host(args)) => {
            let mut diagnosis = Diagnosis::begin(&args).await?;
            diagnosis.look_at_host().await;
            diagnosis.end(args.output)
        }
        Some(DoctorSubject::Guests(args)) => {
            let mut diagnosis = Diagnosis::begin(&args.common).await?;
            diagnosis.look_at_guests(&args.guests, Severity::Problem)?;
            diagnosis.end(args.common.output)
        }
        Some(DoctorSubject::Tracking(args)) => {
            let (config, _) = configuration(args.config.as_deref())?;
            tracking::run(args, config.tracking.is_some_and(|tracking| tracking.referenced))
        }
    }
}

/// The facts that several steps need, and the findings so far.
struct Diagnosis {
    config: Config,
    /// Whether the configuration was read from its file.
    is_read: bool,
    /// The daemon's socket; `None`: none is named and this user has no default.
    socket: Option<PathBuf>,
    /// The daemon's status, or why there is none.
    status: Result<StatusReply, String>,
    tracking: TrackingDiagnosis,
    /// Cloud Hypervisor's and Firecracker's guests.
    rest: Vec<RestSeen>,
    /// Proxmox VE's machines; `None`: it is not here.
    proxmox: Option<ProxmoxSeen>,
    findings: Vec<Finding>,
}

#[derive(Debug, Serialize)]
struct DiagnosisReply<'a> {
    /// The configuration; `None`: the built-in defaults.
    config: Option<&'a Path>,
    /// The worst severity of all findings.
    worst: Severity,
    findings: &'a [Finding],
}

impl Diagnosis {
    async fn begin(args: &DiagnosisArgs) -> anyhow::Result<Diagnosis> {
        let (config, is_read) = configuration(args.config.as_deref())?;
        let named = args.connection.socket.clone().or(config.socket.clone());
        let socket = named.map_or_else(ballast_api::client_socket, Ok);
        let status = match &socket {
            Ok(socket) => Client::new(socket).status().await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let (socket, tracking) = (socket.ok(), TrackingDiagnosis::of_host());
        let rest = probe::rest(&config).await;
        let proxmox = probe::proxmox(&config);
        let findings = Vec::new();
        Ok(Diagnosis { config, is_read, socket, status, tracking, rest, proxmox, findings })
    }

    async fn look_at_host(&mut self) {
        let (config, status) = (&self.config, self.status.as_ref().ok());
        let root = Path::new("/");
        let cgroups = probe::memory_cgroups(root);
        let facts = HostFacts::read(root);
        let mut found = host::judge(&facts, &cgroups, &self.tracking, config);
        found.extend(limits::judge(&probe::limits(&self.tracking), status));

        let folders = probe::qmp_folders(config, status).await;
        let libvirts = probe::libvirts(config).await;
        let xen = probe::xen(config).await;
        let patterns = probe::patterns(config, cgroups.as_ref().ok().and_then(Option::as_ref));
        let file = config.path.display().to_string();
        found.extend(hypervisors::judge(&folders, &libvirts, xen.as_ref(), &patterns, &file));
        found.extend(self.proxmox.iter().flat_map(|it| proxmox::judge(it, &folders, config)));

        let hears_vsock = config.agents.as_ref().is_some_and(|agents| agents.vsock);
        found.extend(rest::judge(&self.rest, hears_vsock, &file));

        let owners = balloon_owners(Path::new(PROC));
        let machines = self.proxmox.as_ref().and_then(|seen| seen.machines.as_ref().ok());
        let moved = machines.map(|machines| proxmox::moved(machines, config));
        found.extend(permissions::judge_owners(&owners, moved.as_deref()));
        let is_ours = |it: &&(u32, BalloonOwner)| it.1 == BalloonOwner::Ballast;
        let daemons: Vec<u32> = owners.iter().filter(is_ours).map(|(pid, _)| *pid).collect();
        let daemon = probe::daemon(self.socket.as_deref(), &daemons).await;
        let rights = probe::permissions(config, daemon, status, &self.tracking);
        found.extend(permissions::judge_permissions(&rights, config));
        self.findings.extend(found);
    }

    /// Adds findings about the guests called `names`, or about all. `unless_daemon`: the severity
    /// if no daemon answers.
    fn look_at_guests(&mut self, names: &[String], unless_daemon: Severity) -> anyhow::Result<()> {
        let found = match &self.status {
            Err(why) => {
                let hypervisors = self.tracking.guests.len();
                vec![guests::not_looked_at(why, hypervisors, unless_daemon)]
            }
            Ok(status) => {
                let stale_after = self.config.settings.guard.stale_after;
                let folders = &self.config.qmp_folders;
                let managers = manager::managers(&self.rest, self.proxmox.as_ref(), folders);
                guests::judge(status, names, &self.tracking, &managers, stale_after)?
            }
        };
        self.findings.extend(found);
        Ok(())
    }

    fn end(self, output: Output) -> anyhow::Result<()> {
        let worst = self.findings.iter().map(|it| it.severity).max().unwrap_or(Severity::Ok);
        let config = self.is_read.then_some(self.config.path.as_path());
        let reply = DiagnosisReply { config, worst, findings: &self.findings };
        output.print(&reply, |reply, width| render::render(reply.findings, width))?;
        // An exit status of 1, so that a script that starts guests afterwards stops here.
        anyhow::ensure!(worst <= Severity::Note, "not all is well: see the findings");
        Ok(())
    }
}

/// The configuration in `file`, else the usual one, else the built-in defaults; and whether it was
/// read from a file.
fn configuration(file: Option<&Path>) -> anyhow::Result<(Config, bool)> {
    let usual = Path::new(USUAL_CONFIG);
    match file {
        Some(file) => Ok((ballast_config::load(file)?, true)),
        None if usual.exists() => Ok((ballast_config::load(usual)?, true)),
        None => Ok((ballast_config::parse("", usual)?, false)),
    }
}
