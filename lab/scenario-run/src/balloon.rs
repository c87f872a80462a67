//! A guest's balloon, moved by the lab itself.
//!
//! Idea: this goes over the lab's own QMP socket; the other one is the daemon's.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow};
use ballast_lab_host::Guest;
use ballast_model::Bytes;
use ballast_qmp::client::QmpClient;
use ballast_qmp::command::QmpCommand;
use serde::Deserialize;

/// How long one answer may take.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

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
