//! The commands for operators, and the one that makes a host a member.
//!
//! Idea: a command reads all keys once and renders them; rendering is a pure function. It asks no
//! daemon and no leader, so it works on every host that reaches etcd.

pub mod explain;
pub mod orders;
pub mod plan;
pub mod run;
pub mod status;

use std::path::PathBuf;

use anyhow::Context;
use ballast_fleet_proto::{Coordinator, FleetView};
use ballast_model::GuestId;
use ballast_report::Output;

use crate::config::{self, CONFIG_FILE, FleetConfig};

/// A fleet, and how to print.
#[derive(Clone, Debug, clap::Args)]
pub struct FleetArgs {
    #[command(flatten)]
    config: ConfigArg,
    #[command(flatten)]
    output: Output,
}

/// A guest, its fleet, and how to print.
#[derive(Clone, Debug, clap::Args)]
pub struct GuestArgs {
    /// The guest's name
    guest: GuestId,
    #[command(flatten)]
    fleet: FleetArgs,
}

/// The configuration, which names the fleet.
#[derive(Clone, Debug, clap::Args)]
pub struct ConfigArg {
    /// This host's fleet configuration (TOML)
    #[arg(long, value_name = "FILE", default_value = CONFIG_FILE)]
    config: PathBuf,
}

impl ConfigArg {
    fn load(&self) -> anyhow::Result<FleetConfig> {
        config::load(&self.config)
    }
}

/// Reads all keys of the fleet.
///
/// # Errors
/// The coordinator does not answer.
pub async fn read(
    coordinator: &impl Coordinator,
    config: &FleetConfig,
) -> anyhow::Result<FleetView> {
    let view = FleetView::read(coordinator, &config.keys).await;
    view.with_context(|| format!("cannot read the fleet {}", config.cluster))
}
