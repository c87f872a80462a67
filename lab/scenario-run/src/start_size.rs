//! Brings guests to the sizes with which a scenario starts them.
//!
//! Idea: a balloon cannot grow a guest past its boot memory, so guests boot with the most that they
//! may ever have and are ballooned down before the measurement.

use std::time::Duration;

use anyhow::{Context, bail};
use ballast_lab_host::{Guest, Run, Scenario};
use ballast_model::Bytes;
use tokio::time::Instant;

use super::balloon::Balloon;

/// How long a guest may take. An idle one gives hundreds of MiB a second; one that has filled its
/// memory first writes most of it to its swap.
const PATIENCE: Duration = Duration::from_secs(600);
/// Time between two polls.
const POLL: Duration = Duration::from_millis(100);

/// Brings every guest to its start size.
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
    let mut balloon = Balloon::of(guest).await?;
    balloon.set(start).await?;
    let end = Instant::now() + PATIENCE;
    loop {
        let actual = balloon.actual().await?;
        if balloon.is_at(start, actual) {
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
