//! What was promised, and what was so.

use std::time::Duration;

use anyhow::Context;
use ballast_advise::{Request, advise};
use ballast_model::{Bytes, PolicyName};
use ballast_sim::{GuestTruth, Scenario, Simulation, named};
use serde::Serialize;

use super::record;

/// Less read back by all guests in a run is not worth telling.
const SWAP_MIN: Bytes = Bytes::mib(64);

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
    /// Memory that could be given back by the advice, and that was given back, or held beyond
    /// need, reserve and floor, when balanced.
    pub(super) promised_bytes: u64,
    pub(super) found_bytes: u64,
    /// How far the one is from the other, as a part of the other or, if that is more, of a
    /// twentieth of what guests held.
    pub(super) off: f64,
    /// Free memory of the host while observed, and when balanced.
    pub(super) host_free_bytes: u64,
    pub(super) balanced_host_free_bytes: u64,
    /// What guests read back while observed, and when balanced.
    pub(super) swap_in_bytes: u64,
    pub(super) balanced_swap_in_bytes: u64,
    /// What they would read back when balanced by the advice.
    pub(super) imagined_swap_in_bytes: u64,
    /// How far what is avoided by the advice is from what was avoided, as a part of the more that
    /// was read back, observed or balanced; `null`: that was too little to tell.
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
            let floor = spec.map(|spec| spec.limits.floor_for(spec.memory)).unwrap_or_default();
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
    let swapped = [observed.swap_in, balanced.swap_in, advice.imagined_swap_in].map(Bytes::get);
    let most = observed.swap_in.max(balanced.swap_in);
    Ok(AdviceFigures {
        host: scenario.name.clone(),
        policy: policy.as_str(),
        virtual_s: Duration::as_secs(&scenario.duration),
        held_bytes: held,
        imagined_bytes: advice.imagined.get(),
        balanced_bytes: balanced_held,
        promised_bytes: promised,
        found_bytes: found,
        off: off(promised, found, found.max(held / 20)),
        host_free_bytes: observed.mean(observed.host_free),
        balanced_host_free_bytes: balanced.mean(balanced.host_free),
        swap_in_bytes: swapped[0],
        balanced_swap_in_bytes: swapped[1],
        imagined_swap_in_bytes: swapped[2],
        // What was read back while observed is the same in both, and cancels out.
        swap_off: (most >= SWAP_MIN).then(|| off(swapped[1], swapped[2], most.get())),
        confidence_percent: advice.confidence.percent(),
    })
}

/// How much `promised` is above `found`, as a part of `whole`.
fn off(promised: u64, found: u64, whole: u64) -> f64 {
    (promised as f64 - found as f64) / f64::max(whole as f64, 1.0)
}
