//! `ballast-fleet run`: a host's membership, in the foreground.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use ballast_api::Client;
use ballast_model::GuestId;
use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use super::ConfigArg;
use crate::carry::{MoveExecutor, noted_moves};
use crate::config::{self, FleetMode};
use crate::member::Member;
use crate::metrics::FleetMetrics;
use crate::other_managers::other_manager;
use crate::serve::{FleetService, serve};
use crate::status_log::StatusLog;
use crate::timed::TimedCoordinator;

/// Interval of the watchdog's notice, well below the unit's limit for a program that hangs.
const WATCHDOG_EVERY: Duration = Duration::from_secs(20);

/// Run this host as a member of the fleet until SIGTERM or Ctrl-C; then the host leaves.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast-fleet run --check
  ballast-fleet run --config /etc/ballast/fleet.toml

SIGTERM or Ctrl-C stops it, and the host leaves the fleet. Changes are reported on standard error.
docs/fleet.example.toml is an annotated example of the configuration.")]
pub struct Args {
    #[command(flatten)]
    config: ConfigArg,
    /// Check the configuration, print a summary and exit
    #[arg(long)]
    check: bool,
}

/// Runs until a signal comes.
///
/// # Errors
/// The configuration is wrong, or this machine has no identity.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let config = args.config.load()?;
    let socket = config.socket.clone().map_or_else(ballast_api::default_socket, Ok)?;
    let etcd = config.etcd()?;
    if config.mode == FleetMode::Move
        && let Some(why) = other_manager(Path::new("/"), &config.beside)
    {
        bail!(why);
    }
    if args.check {
        let text = format!(
            "{} in fleet {}, mode {}: etcd at {}, daemon on {}\n",
            config.host,
            config.cluster,
            config.mode.code(),
            config.endpoints.join(", "),
            socket.display()
        );
        return ballast_report::print(&text);
    }
    let metrics = Arc::new(FleetMetrics::default());
    let service = FleetService {
        // Its own connection, so that answers do not delay the lease.
        coordinator: TimedCoordinator::new(config.etcd()?, metrics.clone()),
        config: config.clone(),
        metrics: metrics.clone(),
    };
    let etcd = TimedCoordinator::new(etcd, metrics.clone());
    let member = Member::new(etcd, Client::new(&socket), config, config::machine_id()?)
        .with_metrics(metrics);
    let mut terminated = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupted = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let stopped = async {
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
        }
        notify(NotifyState::Stopping);
    };
    let executor = match member.config.hypervisor() {
        None => {
            let left =
                noted_moves(&member.config.state).context("cannot read the notes of moves")?;
            if !left.is_empty() {
                let guests: Vec<&str> = left.iter().map(GuestId::as_str).collect();
                bail!(
                    "{} has begun to move {}: to finish, it needs the table [qemu] or [libvirt] \
                     that it had before, even in mode `advise`",
                    member.config.host,
                    guests.join(", ")
                );
            }
            None
        }
        Some(hypervisor) => {
            let executor = MoveExecutor::new(&member, hypervisor, &member.config.state);
            Some(executor.context("cannot read the notes of moves")?)
        }
    };
    let executed = async {
        match &executor {
            Some(executor) => executor.run().await,
            None => std::future::pending().await,
        }
    };
    let status_log = StatusLog::default();
    notify(NotifyState::Ready);
    tokio::select! {
        () = member.run_until(stopped) => {}
        () = executed => {}
        () = serve(service, &socket, &status_log) => {}
        () = keep_watchdog() => {}
    }
    Ok(())
}

/// Tells the service manager, again and again, that the program does not hang.
async fn keep_watchdog() {
    loop {
        notify(NotifyState::Watchdog);
        sleep(WATCHDOG_EVERY).await;
    }
}

/// Notifies the service manager, if there is one. If that fails, it acts by its own settings.
fn notify(state: NotifyState<'_>) {
    let _ = sd_notify::notify(&[state]);
}
