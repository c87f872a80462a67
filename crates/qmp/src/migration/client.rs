//! The commands that move a guest; the caller opens a connection for them.
//!
//! Idea: each call may be made twice. What QEMU refuses because it is so already is no error.
//! Limits: the daemon has a guest's first QMP socket, and each socket serves one client, so this
//! takes another one.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use ballast_model::{Bytes, LinkDown};
use serde::Deserialize;

use super::dirty_rate::{DirtyRate, MEASURED_FOR, SAMPLED_PER_GIB};
use super::progress::{GuestMigration, MigrationProgress, MigrationStage, Origin, event_stage};
use crate::client::{CallError, QmpClient};
use crate::command::QmpCommand;

/// How a guest is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyLimits {
    /// Most bytes a second.
    pub bandwidth_per_s: Bytes,
    /// How long the guest may stand still at the end, as QEMU estimates it.
    pub downtime: Duration,
}

/// A connection to one guest's QEMU.
#[derive(Debug)]
pub struct MigrationClient {
    client: QmpClient,
}

#[derive(Deserialize)]
struct StatusReply {
    status: String,
}

impl MigrationClient {
    /// Connects. Each call may take `timeout`.
    ///
    /// # Errors
    /// The socket is unusable.
    pub async fn connect(socket: &Path, timeout: Duration) -> Result<MigrationClient, LinkDown> {
        Ok(MigrationClient { client: QmpClient::connect(socket, timeout).await? })
    }

    /// What QEMU says of the last migration.
    ///
    /// # Errors
    /// There is no answer, or none that can be read.
    pub async fn progress(&mut self) -> Result<MigrationProgress, CallError> {
        let json = self.client.call(&QmpCommand::QueryMigrate).await?;
        MigrationProgress::parse(&json).map_err(|error| unreadable("query-migrate", &error))
    }

    /// What the guest's hypervisor is, and what QEMU says of the last migration.
    ///
    /// # Errors
    /// There is no answer, or none that can be read.
    pub async fn look(
        &mut self,
        origin: Origin,
    ) -> Result<(GuestMigration, MigrationProgress), CallError> {
        // The run state last: a migration that is seen to be under way may be complete by then,
        // which shows; one that is seen complete stays so.
        let progress = self.progress().await?;
        let json = self.client.call(&QmpCommand::QueryStatus).await?;
        let reply: StatusReply =
            serde_json::from_str(&json).map_err(|error| unreadable("query-status", &error))?;
        Ok((GuestMigration::of(&reply.status, &progress, origin), progress))
    }

    /// Has a QEMU that was started with `-S -incoming defer` listen at this IP address, on a port
    /// that it picks.
    ///
    /// # Errors
    /// QEMU refuses, or does not answer.
    pub async fn listen(&mut self, at: std::net::IpAddr) -> Result<(), CallError> {
        if self.progress().await?.listens_at.is_some() {
            return Ok(());
        }
        self.client.call(&QmpCommand::MigrateSetCapabilities).await?;
        self.client.call(&QmpCommand::MigrateIncoming { at: SocketAddr::new(at, 0) }).await?;
        Ok(())
    }

    /// Begins to copy the guest to a QEMU that listens there.
    ///
    /// # Errors
    /// QEMU refuses, or does not answer.
    pub async fn copy(&mut self, to: SocketAddr, limits: CopyLimits) -> Result<(), CallError> {
        if self.progress().await?.stage == MigrationStage::UnderWay {
            return Ok(());
        }
        self.client.call(&QmpCommand::MigrateSetCapabilities).await?;
        self.limit(limits).await?;
        self.client.call(&QmpCommand::Migrate { to }).await?;
        Ok(())
    }

    /// Sets how fast it is copied, before or while that is done.
    ///
    /// # Errors
    /// QEMU refuses, or does not answer.
    pub async fn limit(&mut self, limits: CopyLimits) -> Result<(), CallError> {
        let CopyLimits { bandwidth_per_s, downtime } = limits;
        let downtime_ms = u64::try_from(downtime.as_millis()).unwrap_or(u64::MAX);
        let command = QmpCommand::MigrateSetParameters { bandwidth_per_s, downtime_ms };
        self.client.call(&command).await?;
        Ok(())
    }

    /// Begins to measure how fast the guest writes to its memory, unless that is under way.
    ///
    /// # Errors
    /// QEMU refuses, is older than 6.2, or does not answer.
    pub async fn measure_dirty_rate(&mut self) -> Result<(), CallError> {
        let (seconds, sampled_per_gib) = (MEASURED_FOR.as_secs(), SAMPLED_PER_GIB);
        let command = QmpCommand::CalcDirtyRate { seconds, sampled_per_gib };
        match self.client.call(&command).await {
            Ok(_) => Ok(()),
            // One that was just begun shows a moment later than it refuses another one.
            Err(refused @ CallError::Refused { .. }) => match self.dirty_rate().await? {
                DirtyRate::UnderWay => Ok(()),
                DirtyRate::Nothing | DirtyRate::Measured { .. } => Err(refused),
            },
            Err(error) => Err(error),
        }
    }

    /// What QEMU says of the last such measurement.
    ///
    /// # Errors
    /// There is no answer, or none that can be read.
    pub async fn dirty_rate(&mut self) -> Result<DirtyRate, CallError> {
        let json = self.client.call(&QmpCommand::QueryDirtyRate).await?;
        DirtyRate::parse(&json).map_err(|error| unreadable("query-dirty-rate", &error))
    }

    /// Stops copying: the guest runs on, unless all of it has been sent by then.
    ///
    /// # Errors
    /// QEMU does not answer.
    pub async fn cancel(&mut self) -> Result<(), CallError> {
        self.client.call(&QmpCommand::MigrateCancel).await?;
        Ok(())
    }

    /// Starts a guest that stands still: one that was loaded, or one that was left.
    ///
    /// # Errors
    /// QEMU refuses, or does not answer.
    pub async fn start(&mut self) -> Result<(), CallError> {
        self.client.call(&QmpCommand::Cont).await?;
        Ok(())
    }

    /// Ends QEMU. It may be gone before it has answered.
    ///
    /// # Errors
    /// QEMU refuses.
    pub async fn quit(&mut self) -> Result<(), CallError> {
        match self.client.call(&QmpCommand::Quit).await {
            Ok(_) | Err(CallError::Link(LinkDown::Closed(_))) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The stage that QEMU told last by an event, and has not been asked for here.
    pub fn pop_stage(&mut self) -> Option<MigrationStage> {
        while let Some(event) = self.client.pop_event() {
            if let Some(stage) = event_stage(&event) {
                return Some(stage);
            }
        }
        None
    }
}

fn unreadable(command: &str, error: &serde_json::Error) -> CallError {
    CallError::Link(LinkDown::Protocol(format!("cannot read the reply to {command}: {error}")))
}
