//! The QMP commands of a migration, on a connection of their own.
//!
//! Idea: calls are idempotent. A call whose effect is there already succeeds.
//! Limits: a QMP socket serves one client, and the daemon uses the guest's first socket, so a
//! migration needs a second one.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use ballast_model::{Bytes, LinkDown};
use serde::Deserialize;

use super::dirty_rate::{DirtyRate, MEASURED_FOR, SAMPLED_PER_GIB};
use super::progress::{GuestMigration, MigrationProgress, MigrationStage, Origin, event_stage};
use crate::client::{CallError, QmpClient};
use crate::command::QmpCommand;

/// Limits of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyLimits {
    /// Bandwidth limit, in bytes per second.
    pub bandwidth_per_s: Bytes,
    /// How long the guest may be paused at the end, by QEMU's estimate.
    pub downtime: Duration,
}

/// A connection to one guest's QEMU.
#[derive(Debug)]
pub struct MigrationClient {
    client: QmpClient,
}

#[derive(Deserialize)]
struct MigrationStatusReply {
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

    /// The progress of the last migration, as QEMU reports it.
    ///
    /// # Errors
    /// QEMU does not answer, refuses, or its reply cannot be parsed.
    pub async fn progress(&mut self) -> Result<MigrationProgress, CallError> {
        let json = self.client.call(&QmpCommand::QueryMigrate).await?;
        MigrationProgress::parse(&json).map_err(|error| unreadable("query-migrate", &error))
    }

    /// The state of the guest's hypervisor, and the progress of the last migration.
    ///
    /// # Errors
    /// QEMU does not answer, refuses, or its reply cannot be parsed.
    pub async fn look(
        &mut self,
        origin: Origin,
    ) -> Result<(GuestMigration, MigrationProgress), CallError> {
        // The run state is read last. A migration that was read as under way may have completed
        // since, and the run state shows that; a completed one stays completed.
        let progress = self.progress().await?;
        let json = self.client.call(&QmpCommand::QueryStatus).await?;
        let reply: MigrationStatusReply =
            serde_json::from_str(&json).map_err(|error| unreadable("query-status", &error))?;
        Ok((GuestMigration::of(&reply.status, &progress, origin), progress))
    }

    /// Makes a QEMU that was started with `-S -incoming defer` listen at this IP address, on a port
    /// that QEMU picks.
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

    /// Starts to copy the guest to the QEMU that listens at `to`, unless a copy is under way.
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

    /// Sets the limits of a copy, before it starts or while it runs.
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

    /// Starts a measurement of the guest's dirty rate, unless one is under way.
    ///
    /// # Errors
    /// QEMU refuses, is older than 6.2, or does not answer.
    pub async fn measure_dirty_rate(&mut self) -> Result<(), CallError> {
        let (seconds, sampled_per_gib) = (MEASURED_FOR.as_secs(), SAMPLED_PER_GIB);
        let command = QmpCommand::CalcDirtyRate { seconds, sampled_per_gib };
        match self.client.call(&command).await {
            Ok(_) => Ok(()),
            // Queried only after a refusal: a measurement that has just begun refuses a second one
            // before it shows as under way.
            Err(refused @ CallError::Refused { .. }) => match self.dirty_rate().await? {
                DirtyRate::UnderWay => Ok(()),
                DirtyRate::Nothing | DirtyRate::Measured { .. } => Err(refused),
            },
            Err(error) => Err(error),
        }
    }

    /// The state and result of the last dirty-rate measurement.
    ///
    /// # Errors
    /// QEMU does not answer, refuses, or its reply cannot be parsed.
    pub async fn dirty_rate(&mut self) -> Result<DirtyRate, CallError> {
        let json = self.client.call(&QmpCommand::QueryDirtyRate).await?;
        DirtyRate::parse(&json).map_err(|error| unreadable("query-dirty-rate", &error))
    }

    /// Cancels the copy. The guest continues to run, unless all of it has been sent by then.
    ///
    /// # Errors
    /// QEMU does not answer.
    pub async fn cancel(&mut self) -> Result<(), CallError> {
        self.client.call(&QmpCommand::MigrateCancel).await?;
        Ok(())
    }

    /// Resumes a paused guest: at the destination once it is loaded, or at the source after a copy.
    ///
    /// # Errors
    /// QEMU refuses, or does not answer.
    pub async fn start(&mut self) -> Result<(), CallError> {
        self.client.call(&QmpCommand::Cont).await?;
        Ok(())
    }

    /// Ends QEMU. A connection that closes before the reply counts as success.
    ///
    /// # Errors
    /// QEMU refuses.
    pub async fn quit(&mut self) -> Result<(), CallError> {
        match self.client.call(&QmpCommand::Quit).await {
            Ok(_) | Err(CallError::Link(LinkDown::Closed(_))) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Takes the oldest stage that an event reported and that was not taken yet.
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
