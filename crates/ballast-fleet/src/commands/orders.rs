//! `ballast fleet drain`, `pause` and `resume`: orders of operators.
//!
//! Idea: an order is a key without a lease, so it holds until it is taken back, whichever host
//! leads.

use anyhow::anyhow;
use ballast_fleet::HostId;
use ballast_fleet_proto::{Author, Coordinator, FleetKey, KeyWrite, encode};
use ballast_report::Output;
use serde::Serialize;

use super::{Place, read};
use crate::config::FleetConfig;

/// Plan to move all guests away from a host.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast fleet drain node-3 && ballast fleet plan
  ballast fleet drain node-3 --undo

No guest moves to a draining host. The order survives restarts of the host and of the leader.")]
pub struct DrainArgs {
    /// The host's name
    host: HostId,
    /// Cancel the drain
    #[arg(long)]
    undo: bool,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    output: Output,
}

/// Stop planning until `ballast fleet resume`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  ballast fleet pause")]
pub struct PauseArgs {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    output: Output,
}

/// Plan again after `ballast fleet pause`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  ballast fleet resume")]
pub struct ResumeArgs {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    output: Output,
}

/// The message about what was done.
#[derive(Debug, Serialize)]
struct Done {
    message: String,
}

/// Orders a drain, or takes it back.
///
/// # Errors
/// The fleet has no such host, or the coordinator refuses.
pub async fn drain(args: DrainArgs) -> anyhow::Result<()> {
    let config = args.place.load()?;
    let message = order_drain(&config.etcd()?, &config, &args.host, args.undo).await?;
    args.output.print(&Done { message }, render)
}

/// Orders a drain, or takes it back; returns what was done, in words.
///
/// # Errors
/// The fleet has no such host, or the coordinator refuses.
pub async fn order_drain(
    coordinator: &impl Coordinator,
    config: &FleetConfig,
    host: &HostId,
    undo: bool,
) -> anyhow::Result<String> {
    let view = read(coordinator, config).await?;
    let is_draining = view.draining().any(|it| it == host);
    match (undo, is_draining) {
        (false, true) => return Ok(format!("{host} is already being drained")),
        (true, false) => return Ok(format!("{host} is not being drained")),
        (false, false) if view.hosts().all(|it| it != host) => {
            let names: Vec<&str> = view.hosts().map(HostId::as_str).take(20).collect();
            let names = names.join(", ");
            return Err(anyhow!("no host {host} is registered; registered hosts: {names}"));
        }
        _ => {}
    }
    write(coordinator, config, FleetKey::Drain(host.clone()), !undo).await?;
    Ok(match undo {
        true => format!("{host} is no longer being drained"),
        false => format!("{host} is to be drained: `ballast fleet plan` shows how"),
    })
}

/// Pauses the fleet.
///
/// # Errors
/// The coordinator refuses.
pub async fn pause(args: PauseArgs) -> anyhow::Result<()> {
    let config = args.place.load()?;
    write(&config.etcd()?, &config, FleetKey::Pause, true).await?;
    let message = "paused: nothing is planned, and moves that can be cancelled are; each host goes \
                   on balancing its own guests";
    let message = message.to_owned();
    args.output.print(&Done { message }, render)
}

/// Ends the pause.
///
/// # Errors
/// The coordinator refuses.
pub async fn resume(args: ResumeArgs) -> anyhow::Result<()> {
    let config = args.place.load()?;
    write(&config.etcd()?, &config, FleetKey::Pause, false).await?;
    args.output.print(&Done { message: "resumed: the leader plans again".to_owned() }, render)
}

/// Writes the key of an order, or removes it.
///
/// # Errors
/// The coordinator refuses.
pub async fn write(
    coordinator: &impl Coordinator,
    config: &FleetConfig,
    key: FleetKey,
    is_on: bool,
) -> anyhow::Result<()> {
    let key = config.keys.key(&key);
    let write = match is_on {
        true => {
            let value = encode(&Author { host: config.host.to_string() })?;
            KeyWrite::Put { key, value, lease: None }
        }
        false => KeyWrite::Delete(key),
    };
    coordinator.compare_and_put(&[], vec![write]).await?;
    Ok(())
}

fn render(done: &Done, _width: Option<u16>) -> String {
    format!("{}\n", done.message)
}
