//! A guest's balloon, moved by the lab itself.
//!
//! Idea: this goes over the lab's own QMP socket; the other one is the daemon's.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use ballast_lab_host::Guest;
use ballast_model::Bytes;
use ballast_qmp::client::QmpClient;
use ballast_qmp::command::QmpCommand;
use serde::Deserialize;
use tokio::time::Instant;

/// How long one answer may take.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// How long guests may take to give what is set by hand.
const GIVE_PATIENCE: Duration = Duration::from_secs(60);
/// Time between two looks at that.
const POLL: Duration = Duration::from_millis(100);

/// A connection to the guest's QEMU.
pub(super) struct Balloon {
    qmp: QmpClient,
}

#[derive(Deserialize)]
struct BalloonInfo {
    actual: u64,
}

impl Balloon {
    pub(super) async fn of(guest: &Guest) -> anyhow::Result<Balloon> {
        Balloon::at(guest.lab_qmp_socket()).await
    }

    /// That of the guest whose QEMU listens there.
    pub(super) async fn at(socket: &Path) -> anyhow::Result<Balloon> {
        let connected = QmpClient::connect(socket, ANSWER_PATIENCE).await;
        let qmp = connected.map_err(|down| anyhow!("{}: {down}", socket.display()))?;
        Ok(Balloon { qmp })
    }

    /// Asks the guest to be of that size.
    pub(super) async fn set(&mut self, target: Bytes) -> anyhow::Result<()> {
        self.qmp.call(&QmpCommand::Balloon { target }).await?;
        Ok(())
    }

    /// Its size now.
    pub(super) async fn actual(&mut self) -> anyhow::Result<Bytes> {
        let reply = self.qmp.call(&QmpCommand::QueryBalloon).await?;
        let info: BalloonInfo = serde_json::from_str(&reply).context("query-balloon")?;
        Ok(Bytes::new(info.actual))
    }
}

/// Sets guests, each by the socket of its QEMU, to their sizes: first those that give, then, once
/// they have given, those that get.
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
