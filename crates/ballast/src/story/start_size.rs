//! Guests at the size a scenario starts them with.
//!
//! Idea: a balloon cannot grow a guest past its boot memory, so guests boot with all they may ever
//! have and are ballooned down before anything is measured. This goes over the lab's own QMP socket;
//! the other one is the daemon's.

use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use ballast_lab::{Guest, Run, Scenario};
use ballast_model::Bytes;
use ballast_qmp::client::Client;
use ballast_qmp::command::Command;
use serde::Deserialize;
use tokio::time::Instant;

/// How long a guest may take; an idle one gives hundreds of MiB a second.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long one answer may take.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
/// Time between two looks.
const POLL: Duration = Duration::from_millis(100);

#[derive(Deserialize)]
struct BalloonInfo {
    actual: u64,
}

/// Brings every guest to its start.
pub(super) async fn reach(scenario: &Scenario, run: &Run) -> anyhow::Result<()> {
    let each = scenario.guests.iter().map(|guest| async move {
        let start = guest.start().page_floor();
        let name = guest.name.as_str();
        let at_start = reach_one(run.guest(name)?, start).await;
        at_start.with_context(|| format!("guest {name} cannot be ballooned to its start, {start}"))
    });
    futures_util::future::try_join_all(each).await.map(drop)
}

async fn reach_one(guest: &Guest, start: Bytes) -> anyhow::Result<()> {
    let connected = Client::connect(guest.lab_qmp_socket(), ANSWER_PATIENCE).await;
    let mut qmp =
        connected.map_err(|down| anyhow!("{}: {down}", guest.lab_qmp_socket().display()))?;
    qmp.call(&Command::Balloon { target: start }).await?;
    let end = Instant::now() + PATIENCE;
    loop {
        let reply = qmp.call(&Command::QueryBalloon).await?;
        let info: BalloonInfo = serde_json::from_str(&reply).context("query-balloon")?;
        let actual = Bytes::new(info.actual);
        if actual == start {
            return Ok(());
        }
        if Instant::now() > end {
            bail!(
                "it is at {actual} after {} s; the end of its console:\n{}",
                PATIENCE.as_secs(),
                guest.console_tail()
            );
        }
        tokio::time::sleep(POLL).await;
    }
}
