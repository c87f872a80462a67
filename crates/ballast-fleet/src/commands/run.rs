//! `ballast-fleet run`: a host's membership, in the foreground.

use anyhow::Context;
use ballast_api::Client;
use tokio::signal::unix::{SignalKind, signal};

use super::Place;
use crate::carry::{Carrier, Qemu};
use crate::config;
use crate::member::Member;

/// Be a member of the fleet until stopped: SIGTERM or Ctrl-C ends it, and the host leaves.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast-fleet run --check
  ballast-fleet run --config /etc/ballast/fleet.toml

What changes is said on standard error. An annotated example is docs/fleet.example.toml.")]
pub struct Args {
    #[command(flatten)]
    place: Place,
    /// Only read the configuration
    #[arg(long)]
    check: bool,
}

/// Runs until a signal comes.
///
/// # Errors
/// The configuration is wrong, or this machine has no identity.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let config = args.place.load()?;
    let socket = config.socket.clone().map_or_else(ballast_api::default_socket, Ok)?;
    let etcd = config.etcd()?;
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
    let member = Member::new(etcd, Client::new(socket), config, config::machine_id()?);
    let mut terminated = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupted = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let stop = member.run_until(async {
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
        }
    });
    match &member.config.qemu {
        None => stop.await,
        Some(qemu) => {
            let folder = &member.config.state;
            let carrier = Carrier::new(&member, Qemu::new(qemu.clone()), folder);
            let carrier = carrier.context("cannot read the notes of moves")?;
            tokio::select! {
                () = stop => {}
                () = carrier.run() => {}
            }
        }
    }
    Ok(())
}
