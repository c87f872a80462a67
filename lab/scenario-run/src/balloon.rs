//! The lab's own access to a guest's balloon.
//!
//! Idea: it uses the lab's QMP socket; the guest's other QMP socket belongs to the daemon. The
//! memory of a Xen domain is set with `xl`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use ballast_lab_host::{Guest, domain_memory, xl};
use ballast_model::{Bytes, GuestId};
use ballast_qmp::client::QmpClient;
use ballast_qmp::command::QmpCommand;
use serde::Deserialize;
use tokio::time::Instant;

/// How long one answer may take.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// How long guests may take to shrink to a size that the lab sets itself.
const GIVE_PATIENCE: Duration = Duration::from_secs(60);
/// Time between two polls of a guest's size.
const POLL: Duration = Duration::from_millis(100);

/// How far from its target a Xen domain may be and still count as there: the hypervisor counts a
/// few pages that the guest's driver does not.
const DOMAIN_SLACK: Bytes = Bytes::mib(2);

/// A way to the guest's balloon.
pub(super) enum Balloon {
    /// Over a connection to the guest's QEMU.
    Qmp(Box<QmpClient>),
    /// By `xl`: the guest is the Xen domain of this name.
    Domain(GuestId),
}

#[derive(Deserialize)]
struct BalloonInfo {
    actual: u64,
}

impl Balloon {
    pub(super) async fn of(guest: &Guest) -> anyhow::Result<Balloon> {
        match guest.is_domain() {
            true => Ok(Balloon::Domain(guest.id().clone())),
            false => Balloon::at(guest.lab_qmp_socket()).await,
        }
    }

    /// Connects to the balloon of the guest whose QEMU listens on `socket`.
    pub(super) async fn at(socket: &Path) -> anyhow::Result<Balloon> {
        let connected = QmpClient::connect(socket, ANSWER_PATIENCE).await;
        let qmp = connected.map_err(|down| anyhow!("{}: {down}", socket.display()))?;
        Ok(Balloon::Qmp(Box::new(qmp)))
    }

    /// Asks the guest to change its size to `target`.
    pub(super) async fn set(&mut self, target: Bytes) -> anyhow::Result<()> {
        match self {
            Balloon::Qmp(qmp) => qmp.call(&QmpCommand::Balloon { target }).await.map(drop)?,
            Balloon::Domain(id) => {
                let size = format!("{}k", target.get() >> 10);
                xl(&["mem-set", id.as_str(), &size])?;
            }
        }
        Ok(())
    }

    /// The guest's current size.
    pub(super) async fn actual(&mut self) -> anyhow::Result<Bytes> {
        let qmp = match self {
            Balloon::Qmp(qmp) => qmp,
            Balloon::Domain(id) => return Ok(domain_memory(id)?),
        };
        let reply = qmp.call(&QmpCommand::QueryBalloon).await?;
        let info: BalloonInfo = serde_json::from_str(&reply).context("query-balloon")?;
        Ok(Bytes::new(info.actual))
    }

    /// Whether a size of `actual` counts as having reached `target`.
    pub(super) fn is_at(&self, target: Bytes, actual: Bytes) -> bool {
        match self {
            Balloon::Qmp(_) => actual == target,
            Balloon::Domain(_) => actual.abs_diff(target) <= DOMAIN_SLACK,
        }
    }
}

/// Sets guests, each named by the socket of its QEMU, to their sizes. Guests that shrink go first;
/// the others are set once those have reached their sizes.
pub(super) async fn set_all(sizes: Vec<(PathBuf, Bytes)>) -> anyhow::Result<()> {
    let mut giving = Vec::new();
    let mut getting = Vec::new();
    for (socket, size) in sizes {
        let mut balloon = Balloon::at(&socket).await?;
        match balloon.actual().await? > size {
            true => giving.push((balloon, size)),
            false => getting.push((balloon, size)),
        }
    }
    for (balloon, size) in &mut giving {
        balloon.set(*size).await?;
    }
    let end = Instant::now() + GIVE_PATIENCE;
    for (balloon, size) in &mut giving {
        while balloon.actual().await? > *size {
            if Instant::now() > end {
                bail!("a guest set to {size} by hand has not given within {GIVE_PATIENCE:?}");
            }
            tokio::time::sleep(POLL).await;
        }
    }
    for (balloon, size) in &mut getting {
        balloon.set(*size).await?;
    }
    Ok(())
}
