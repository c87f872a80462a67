//! `ballast fleet drain`, `pause`, `resume` and `forget`: orders of operators.
//!
//! Idea: an order is a key without a lease, so it holds until it is taken back, whichever host
//! leads. `forget` only removes the record of a finished move, as the leader does once the source
//! has closed it.

use anyhow::{anyhow, bail};
use ballast_fleet::HostId;
use ballast_fleet_proto::{
    Author, Condition, Coordinator, FleetKey, KeyWrite, MoveEntry, PutResult, encode,
};
use ballast_model::GuestId;
use serde::Serialize;

use super::{FleetArgs, GuestArgs, read};
use crate::config::FleetConfig;
use crate::session::wall_clock;

/// The host whose draining begins or ends.
#[derive(Clone, Debug, clap::Args)]
pub struct DrainArgs {
    /// The host's name
    host: HostId,
    /// Cancel the drain
    #[arg(long)]
    undo: bool,
    #[command(flatten)]
    fleet: FleetArgs,
}

/// The message about what was done.
#[derive(Debug, Serialize)]
struct OrderMessage {
    message: String,
}

/// Orders a drain, or takes it back.
///
/// # Errors
/// The fleet has no such host, or the coordinator refuses.
pub async fn drain(args: DrainArgs) -> anyhow::Result<()> {
    let config = args.fleet.config.load()?;
    let message = order_drain(&config.etcd()?, &config, &args.host, args.undo).await?;
    args.fleet.output.print(&OrderMessage { message }, render)
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
            bail!("no host {host} is registered; registered hosts: {names}");
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
pub async fn pause(args: FleetArgs) -> anyhow::Result<()> {
    let message = "paused: nothing is planned, and moves that can be cancelled are; each host goes \
                   on balancing its own guests";
    set_pause(args, true, message).await
}

/// Ends the pause.
///
/// # Errors
/// The coordinator refuses.
pub async fn resume(args: FleetArgs) -> anyhow::Result<()> {
    set_pause(args, false, "resumed: the leader plans again").await
}

async fn set_pause(args: FleetArgs, is_on: bool, message: &str) -> anyhow::Result<()> {
    let config = args.config.load()?;
    write(&config.etcd()?, &config, FleetKey::Pause, is_on).await?;
    args.output.print(&OrderMessage { message: message.to_owned() }, render)
}

/// Removes the record of a finished move.
///
/// # Errors
/// There is no such record, it must stay, its source is registered, or the coordinator refuses.
pub async fn forget(args: GuestArgs) -> anyhow::Result<()> {
    let config = args.fleet.config.load()?;
    let message = forget_move(&config.etcd()?, &config, &args.guest).await?;
    args.fleet.output.print(&OrderMessage { message }, render)
}

/// Removes the record of a finished move of `guest`, and notes the end of the move, so that the
/// guest rests; returns what was done, in words.
///
/// # Errors
/// There is no such record, it must stay, its source is registered, or the coordinator refuses.
pub async fn forget_move(
    coordinator: &impl Coordinator,
    config: &FleetConfig,
    guest: &GuestId,
) -> anyhow::Result<String> {
    let view = read(coordinator, config).await?;
    let Some(MoveEntry { record, written }) = view.move_of(guest) else {
        bail!("no move of {guest} is under way; `ballast fleet status` lists those that are");
    };
    let record = record.as_ref().map_err(|why| {
        anyhow!("the record of {guest} stays, as it cannot be read: {why}; update this program")
    })?;
    if let Some(why) = record.why_kept() {
        bail!(why);
    }
    let from = &record.from;
    if view.hosts().any(|host| host == from) {
        bail!(
            "{from} is registered, and closes the record itself once nothing of {guest} is left \
             there; if another machine has that name now, stop `ballast-fleet` on it first"
        );
    }
    let key = config.keys.key(&FleetKey::Move(guest.clone()));
    let identity = config.keys.key(&FleetKey::Identity(from.clone()));
    let conditions = [
        Condition { key: key.clone(), written: Some(*written) },
        Condition { key: identity, written: None },
    ];
    let past = view.past(guest).cloned().unwrap_or_default().with(record, wall_clock());
    let past = KeyWrite::Put {
        key: config.keys.key(&FleetKey::Past(guest.clone())),
        value: encode(&past)?,
        lease: None,
    };
    match coordinator.compare_and_put(&conditions, vec![KeyWrite::Delete(key), past]).await? {
        PutResult::Written(_) => {
            Ok(format!("removed the record of {guest}, which said that it {}", record.in_words()))
        }
        PutResult::Conflict => Err(anyhow!(
            "the record of {guest} has changed meanwhile, or {from} is registered again: see \
             `ballast fleet status`"
        )),
    }
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

fn render(done: &OrderMessage, _width: Option<u16>) -> String {
    format!("{}\n", done.message)
}
