//! A run of a scenario, recorded as a daemon records it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use ballast_model::{GuestId, GuestLimits, Mode, ModeChoice, PolicyName, Timestamp};
use ballast_sim::{Scenario, Simulation, named};
use ballast_store::{Event, JournalConfig, Start, Tick, Writer};

use super::hosts::AdviceHost;

/// The start of recorded time: any fixed time.
const EPOCH: Duration = Duration::from_secs(1_700_000_000);

/// Observes a host under `policy` and writes its journal to `path`; `on_tick` is called after every
/// tick, whether or not it is recorded.
///
/// # Errors
/// The scenario is invalid, or the journal cannot be written.
pub(super) fn observe(
    host: &AdviceHost,
    policy: PolicyName,
    path: &Path,
    on_tick: &mut dyn FnMut(&Simulation),
) -> anyhow::Result<()> {
    let mut scenario = host.scenario.clone();
    scenario.control.mode = Mode::Observe;
    let limits: BTreeMap<GuestId, GuestLimits> =
        scenario.guests.iter().map(|guest| (guest.id.clone(), guest.limits.clone())).collect();
    let start = Start {
        wall: wall(Duration::ZERO),
        mono: Timestamp::ZERO,
        boot_id: "simulated".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: 1,
    };
    let mut writer = Writer::open(path, JournalConfig::default(), start)?;
    let toml = configuration(&scenario, policy);
    writer.record_event(wall(Duration::ZERO), Timestamp::ZERO, Event::ConfigLoaded { toml })?;
    let mut simulation = Simulation::new(&scenario, named(&scenario, policy))?;
    while simulation.step() {
        on_tick(&simulation);
        if simulation.now() <= host.unrecorded {
            continue;
        }
        let (snapshot, plan) = simulation.decided().context("a run without a controller")?;
        writer.record(&Tick {
            wall: wall(simulation.now()),
            snapshot,
            answer: None,
            plan,
            outcomes: &[],
            carried: &[],
            handovers: &[],
            limits: &limits,
            paused: false,
            mode: ModeChoice::new(Mode::Observe),
            decision_cost: Duration::ZERO,
        })?;
    }
    Ok(())
}

fn wall(now: Duration) -> SystemTime {
    UNIX_EPOCH + EPOCH + now
}

/// The daemon's configuration for a scenario, as far as the bench's hosts need it.
fn configuration(scenario: &Scenario, policy: PolicyName) -> String {
    let control = &scenario.control;
    format!(
        "mode = \"observe\"\n[daemon]\ntick = \"{}ms\"\n[host]\nbudget = \"{:#}\"\nreserve = \
         \"{:#}\"\n[policy]\nname = \"{policy}\"\nreserve_per_guest = \"{:#}\"\n",
        control.tick.as_millis(),
        scenario.budget(),
        control.guard.host_reserve,
        control.policy_settings.reserve
    )
}
