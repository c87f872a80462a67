//! What was promised, and what was so.

use std::time::Duration;

use anyhow::Context;
use ballast_advise::{Request, advise};
use ballast_model::{Bytes, GuestLimits, PolicyName};
use ballast_sim::{GuestTruth, Scenario, Simulation, named};
use serde::Serialize;

use super::record;

/// One host under one policy. Sizes of memory are means over the run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct AdviceFigures {
    pub(super) host: String,
    pub(super) policy: &'static str,
    pub(super) virtual_s: u64,
    /// What guests held while observed.
    pub(super) held_bytes: u64,
    /// What they would hold by the advice, and what they held when balanced.
    pub(super) imagined_bytes: u64,
    pub(super) balanced_bytes: u64,
    /// Memory that could be given back by the advice, and that was given back, or held beyond need,
    /// reserve and floor, when balanced.
    pub(super) promised_bytes: u64,
    pub(super) found_bytes: u64,
    /// How far the one is from the other, as a part of the other.
    pub(super) off: f64,
    /// Free memory of the host while observed, and when balanced.
    pub(super) host_free_bytes: u64,
    pub(super) balanced_host_free_bytes: u64,
    /// What guests read back while observed, and what of that they read back less by the advice,
    /// and when balanced.
    pub(super) swap_in_bytes: u64,
    pub(super) promised_avoided_bytes: u64,
    /// Negative: they read back more.
    pub(super) found_avoided_bytes: i64,
    /// How far these two are from each other, as a part of what was read back; `null`: nothing was.
    pub(super) swap_off: Option<f64>,
    /// What the advice says of itself.
    pub(super) confidence_percent: u8,
}

/// Sums over a run.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    held: u128,
    surplus: u128,
    host_free: u128,
    swap_in: Bytes,
    ticks: u128,
}

impl Run {
    fn add(&mut self, scenario: &Scenario, simulation: &Simulation) {
        let reserve = scenario.control.policy_settings.reserve;
        self.ticks += 1;
        self.swap_in = Bytes::ZERO;
        self.host_free += u128::from(simulation.host_free().get());
        for GuestTruth { id, holds, uses, swap_in } in simulation.truths() {
            let spec = scenario.guests.iter().find(|guest| guest.id == id);
            let limits =
                |spec: &ballast_sim::GuestSpec| GuestLimits::floor_for(&spec.limits, spec.memory);
            let floor = spec.map(limits).unwrap_or_default();
            let keeps = uses.saturating_add(reserve).max(floor);
            self.held += u128::from(holds.get());
            self.surplus += u128::from(holds.saturating_sub(keeps).get());
            self.swap_in = self.swap_in.saturating_add(swap_in);
        }
    }

    fn mean(&self, sum: u128) -> u64 {
        u64::try_from(sum / self.ticks.max(1)).unwrap_or(u64::MAX)
    }
}

/// Simulates a scenario twice under `policy`, and compares.
///
/// # Errors
/// The scenario is invalid, the journal cannot be written, or the policy cannot be replayed.
pub(super) fn measure(scenario: &Scenario, policy: PolicyName) -> anyhow::Result<AdviceFigures> {
    let folder = tempfile::tempdir().context("cannot create a folder for the journal")?;
    let journal = folder.path().join("journal.db");
    let mut observed = Run::default();
    record::observe(scenario, policy, &journal, &mut |it| observed.add(scenario, it))?;
    let advice = advise(&journal, Request::default(), &mut |_, _| {})?;

    let mut balanced = Run::default();
    let mut simulation = Simulation::new(scenario, named(scenario, policy))?;
    while simulation.step() {
        balanced.add(scenario, &simulation);
    }

    let held = observed.mean(observed.held);
    let (balanced_held, surplus) = (balanced.mean(balanced.held), balanced.mean(balanced.surplus));
    let promised = advice.returnable.mean.get();
    let found = held.saturating_add(surplus).saturating_sub(balanced_held);
    let avoided = advice.swap_in_avoided().get();
    let signed = |bytes: Bytes| i64::try_from(bytes.get()).unwrap_or(i64::MAX);
    let found_avoided = signed(observed.swap_in) - signed(balanced.swap_in);
    let part = |a: f64, b: f64, of: f64| (a - b) / of.max(1.0);
    let swapped = observed.swap_in.get();
    Ok(AdviceFigures {
        host: scenario.name.clone(),
        policy: policy.as_str(),
        virtual_s: Duration::as_secs(&scenario.duration),
        held_bytes: held,
        imagined_bytes: advice.imagined.get(),
        balanced_bytes: balanced_held,
        promised_bytes: promised,
        found_bytes: found,
        off: part(promised as f64, found as f64, found as f64),
        host_free_bytes: observed.mean(observed.host_free),
        balanced_host_free_bytes: balanced.mean(balanced.host_free),
        swap_in_bytes: swapped,
        promised_avoided_bytes: avoided,
        found_avoided_bytes: found_avoided,
        swap_off: (swapped > 0).then(|| part(avoided as f64, found_avoided as f64, swapped as f64)),
        confidence_percent: advice.confidence.percent(),
    })
}
