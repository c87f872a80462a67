//! Compares what the advice promised with what happened.
//!
//! Idea: memory is compared in the way the advice states it: if guests swap and hide what they
//! need, the advice is an upper bound, and only a bound that is too low is wrong. The advice says
//! how many swap-ins are avoided. It says how many balancing causes only if the record shows that.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use ballast_advise::{Request, advise};
use ballast_model::{Bytes, GuestId, PolicyName};
use ballast_sim::{GuestTruth, Scenario, Simulation, named};
use serde::Serialize;

use super::hosts::AdviceHost;
use super::record;

/// If all guests of a run read back less than this, swap-ins are not compared.
const SWAP_MIN: Bytes = Bytes::mib(64);

/// One host under one policy. Sizes of memory are means over the run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct AdviceFigures {
    pub(super) host: String,
    pub(super) policy: &'static str,
    pub(super) virtual_s: u64,
    /// Memory that guests held while observed.
    pub(super) held_bytes: u64,
    /// Memory that they would hold by the advice, and that they held when balanced.
    pub(super) imagined_bytes: u64,
    pub(super) balanced_bytes: u64,
    /// Memory that could be given back by the advice; and memory that was given back, or held
    /// beyond need, reserve and floor, when balanced.
    pub(super) promised_bytes: u64,
    pub(super) found_bytes: u64,
    /// Guests that hide what they need, by the advice; the promise is then an upper bound.
    pub(super) guests_hiding_need: u64,
    /// Whether only that bound is known, because the guests swapped before the record began.
    pub(super) is_bound: bool,
    /// The difference of the two, as a part of the second or of a twentieth of what guests held,
    /// whichever is greater.
    pub(super) off: f64,
    /// Free memory of the host while observed, and when balanced.
    pub(super) host_free_bytes: u64,
    pub(super) balanced_host_free_bytes: u64,
    /// Memory that guests read back while observed, and when balanced.
    pub(super) swap_in_bytes: u64,
    pub(super) balanced_swap_in_bytes: u64,
    /// How much less guests would read back by the advice, and how much less they did.
    pub(super) promised_avoided_bytes: u64,
    pub(super) found_avoided_bytes: u64,
    /// The difference of the two, as a part of what was read back while observed; `null`: that was
    /// too little.
    pub(super) avoided_off: Option<f64>,
    /// How much more guests would read back by the advice, and how much more they did; `null`: the
    /// advice says that this is not known.
    pub(super) promised_caused_bytes: Option<u64>,
    pub(super) found_caused_bytes: u64,
    /// The difference of the two, as a part of what was read back while observed or when balanced,
    /// whichever is greater; `null`: not known.
    pub(super) caused_off: Option<f64>,
    /// The confidence that the advice states.
    pub(super) confidence_percent: u8,
}

/// Sums over a run.
#[derive(Clone, Debug, Default)]
struct MeasuredRun {
    held: u128,
    surplus: u128,
    host_free: u128,
    /// How much each guest read back before the record begins, and since then.
    swap_in: BTreeMap<GuestId, (Bytes, Bytes)>,
    ticks: u128,
}

impl MeasuredRun {
    fn add(&mut self, host: &AdviceHost, simulation: &Simulation) {
        let AdviceHost { scenario, unrecorded } = host;
        let is_recorded = simulation.now() > *unrecorded;
        for GuestTruth { id, holds, uses, swap_in } in simulation.truths() {
            let (before, since) = self.swap_in.entry(id.clone()).or_default();
            if !is_recorded {
                *before = swap_in;
                continue;
            }
            *since = swap_in.saturating_sub(*before);
            self.held += u128::from(holds.get());
            self.surplus += u128::from(holds.saturating_sub(keeps(scenario, &id, uses)).get());
        }
        if is_recorded {
            self.ticks += 1;
            self.host_free += u128::from(simulation.host_free().get());
        }
    }

    fn mean(&self, sum: u128) -> u64 {
        u64::try_from(sum / self.ticks.max(1)).unwrap_or(u64::MAX)
    }

    fn swap_in(&self) -> Bytes {
        self.swap_in.values().map(|(_, since)| *since).sum()
    }

    /// How much less guests read back in this run than in `other`.
    fn less_than(&self, other: &MeasuredRun) -> Bytes {
        let less = |(id, (_, since)): (&GuestId, &(Bytes, Bytes))| {
            other.swap_in.get(id).map_or(Bytes::ZERO, |(_, other)| other.saturating_sub(*since))
        };
        self.swap_in.iter().map(less).sum()
    }
}

/// What a guest that uses `uses` keeps: that and the reserve, and at least its floor.
fn keeps(scenario: &Scenario, id: &GuestId, uses: Bytes) -> Bytes {
    let spec = scenario.guests.iter().find(|guest| guest.id == *id);
    let floor = spec.map(|spec| spec.limits.floor_for(spec.memory)).unwrap_or_default();
    uses.saturating_add(scenario.control.policy_settings.reserve).max(floor)
}

/// Simulates a host twice under `policy`, and compares the runs.
///
/// # Errors
/// The scenario is invalid, the journal cannot be written, or the policy cannot be replayed.
pub(super) fn measure(host: &AdviceHost, policy: PolicyName) -> anyhow::Result<AdviceFigures> {
    let scenario = &host.scenario;
    let folder = tempfile::tempdir().context("cannot create a folder for the journal")?;
    let journal = folder.path().join("journal.db");
    let mut observed = MeasuredRun::default();
    record::observe(host, policy, &journal, &mut |it| observed.add(host, it))?;
    let advice = advise(&journal, Request::default(), &mut |_, _| {})?;

    let mut balanced = MeasuredRun::default();
    let mut simulation = Simulation::new(scenario, named(scenario, policy))?;
    while simulation.step() {
        balanced.add(host, &simulation);
    }

    let held = observed.mean(observed.held);
    let (balanced_held, surplus) = (balanced.mean(balanced.held), balanced.mean(balanced.surplus));
    let promised = advice.returnable.mean.get();
    let found = held.saturating_add(surplus).saturating_sub(balanced_held);
    let swap_in = observed.swap_in();
    let avoided = balanced.less_than(&observed).get();
    let promised_avoided = advice.swap_in_avoided.get();
    let promised_caused = advice.imagined_swap_in.map(|imagined| {
        imagined.saturating_add(advice.swap_in_avoided).saturating_sub(advice.swap_in)
    });
    let caused = observed.less_than(&balanced);
    let most = swap_in.max(balanced.swap_in()).max(SWAP_MIN).get();
    Ok(AdviceFigures {
        host: scenario.name.clone(),
        policy: policy.as_str(),
        virtual_s: Duration::as_secs(&scenario.duration),
        held_bytes: held,
        imagined_bytes: advice.imagined.get(),
        balanced_bytes: balanced_held,
        promised_bytes: promised,
        found_bytes: found,
        guests_hiding_need: advice.guests_hiding_need,
        is_bound: advice.guests_hiding_need > 0 && host.unrecorded > Duration::ZERO,
        off: off(promised, found, found.max(held / 20)),
        host_free_bytes: observed.mean(observed.host_free),
        balanced_host_free_bytes: balanced.mean(balanced.host_free),
        swap_in_bytes: swap_in.get(),
        balanced_swap_in_bytes: balanced.swap_in().get(),
        promised_avoided_bytes: promised_avoided,
        found_avoided_bytes: avoided,
        avoided_off: (swap_in >= SWAP_MIN).then(|| off(promised_avoided, avoided, swap_in.get())),
        promised_caused_bytes: promised_caused.map(Bytes::get),
        found_caused_bytes: caused.get(),
        caused_off: promised_caused.map(|it| off(it.get(), caused.get(), most)),
        confidence_percent: advice.confidence.percent(),
    })
}

/// By how much `promised` is above `found`, as a part of `whole`.
fn off(promised: u64, found: u64, whole: u64) -> f64 {
    (promised as f64 - found as f64) / f64::max(whole as f64, 1.0)
}
