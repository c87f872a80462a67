//! A run of the simulator: guests, a clock, and the controller.
//!
//! Idea: the daemon's loop, with simulated guests instead of QEMU. In each tick guests move their
//! balloons and run their workloads; then a snapshot is taken, the controller decides, and its
//! actions are executed at once.
//! Cost: a few microseconds per guest and tick; see `ballast bench sim`.
//! Limits: actions never fail and guests never vanish; the controller's own tests cover that.

use std::sync::Arc;
use std::time::Duration;

use ballast_control::{Controller, Event};
use ballast_model::{
    Bytes, GuestId, HostSample, Outcome, OutcomeKind, Plan, PolicyName, Snapshot, Timestamp,
};
use ballast_policy::Policy;

use crate::disk::ns;
use crate::guest::Guest;
use crate::metrics::Metrics;
use crate::report::PolicyReport;
use crate::scenario::{GuestSpec, HostSpec, Scenario};
use crate::scenario_error::ScenarioError;

/// Name of the run with unlimited memory.
pub const UNLIMITED: PolicyName = PolicyName::Custom("unlimited");

/// The true state of one guest, whatever it reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestTruth {
    /// The guest.
    pub id: GuestId,
    /// Memory it holds.
    pub holds: Bytes,
    /// Memory it uses and could not give back without reclaim.
    pub uses: Bytes,
    /// Memory it has read back from swap since the start.
    pub swap_in: Bytes,
}

/// A run of a scenario under one policy.
#[derive(Debug)]
pub struct Simulation {
    host: HostSpec,
    budget: Option<Bytes>,
    guests: Vec<Guest>,
    controller: Option<Controller>,
    policy: PolicyName,
    metrics: Metrics,
    tick: Duration,
    now: Duration,
    ticks_left: u64,
    /// What the controller saw and decided in the last tick.
    decided: Option<(Snapshot, Arc<Plan>)>,
}

impl Simulation {
    /// Starts a scenario under a policy.
    ///
    /// # Errors
    /// When the scenario is invalid.
    pub fn new(scenario: &Scenario, policy: Box<dyn Policy>) -> Result<Simulation, ScenarioError> {
        scenario.validate()?;
        let mut settings = scenario.control.clone();
        settings.limits.named =
            scenario.guests.iter().map(|guest| (guest.id.clone(), guest.limits.clone())).collect();
        let name = policy.name();
        let controller = Controller::with_policy(settings, policy, Timestamp::ZERO);
        let mut simulation = Simulation::of(scenario, GuestSpec::start);
        simulation.controller = Some(controller);
        simulation.policy = name;
        simulation.budget = Some(scenario.budget());
        Ok(simulation)
    }

    /// Starts a scenario in which every guest has all the memory it can use.
    ///
    /// # Errors
    /// The scenario is invalid.
    pub fn unlimited(scenario: &Scenario) -> Result<Simulation, ScenarioError> {
        scenario.validate()?;
        let block = scenario.block;
        Ok(Simulation::of(scenario, |guest| {
            let kernel = guest.kernel.uncounted.saturating_add(guest.kernel.unreclaimable);
            let sizes = guest.sizes().map(|size| size.saturating_add(block)).sum::<Bytes>();
            let free = guest.kernel.watermark_high.fraction(4, 1).saturating_add(block);
            kernel.saturating_add(sizes).saturating_add(free).max(guest.memory)
        }))
    }

    fn of(scenario: &Scenario, start: impl Fn(&GuestSpec) -> Bytes) -> Simulation {
        let mut specs: Vec<&GuestSpec> = scenario.guests.iter().collect();
        specs.sort_by(|a, b| a.id.cmp(&b.id));
        let mut seeds = fastrand::Rng::with_seed(scenario.seed);
        let new = |spec: &&GuestSpec| {
            Guest::new(spec, scenario.block, start(spec), &scenario.host, seeds.u64(..))
        };
        let guests: Vec<Guest> = specs.iter().map(new).collect();
        Simulation {
            host: scenario.host.clone(),
            budget: None,
            metrics: Metrics::new(&guests, scenario.ticks()),
            guests,
            controller: None,
            policy: UNLIMITED,
            tick: scenario.control.tick,
            now: Duration::ZERO,
            ticks_left: scenario.ticks(),
            decided: None,
        }
    }

    /// Virtual time since the start.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Simulates one tick; false if the run is over.
    pub fn step(&mut self) -> bool {
        if self.ticks_left == 0 {
            return false;
        }
        self.ticks_left -= 1;
        for guest in &mut self.guests {
            guest.step(self.now, self.tick, &self.host);
        }
        self.queue_at_disks();
        self.now += self.tick;
        self.decide();
        self.check();
        self.metrics.observe(&self.guests, self.now);
        true
    }

    /// What the controller saw and decided in the last tick, as a journal records it. `None`: there
    /// is no controller, or no tick was simulated yet.
    pub fn decided(&self) -> Option<(&Snapshot, &Plan)> {
        self.decided.as_ref().map(|(snapshot, plan)| (snapshot, plan.as_ref()))
    }

    /// The true state of each guest, sorted by name.
    pub fn truths(&self) -> impl Iterator<Item = GuestTruth> {
        self.guests.iter().map(|guest| GuestTruth {
            id: guest.id().clone(),
            holds: guest.memory.allocation(),
            uses: guest.memory.allocation().saturating_sub(guest.memory.available()),
            swap_in: Bytes::pages(guest.counters.swap_in_pages),
        })
    }

    /// Free memory of the host; zero if more is occupied than exists.
    pub fn host_free(&self) -> Bytes {
        self.available().unwrap_or_default()
    }

    /// The report so far, without ratios to other runs.
    pub fn report(self) -> PolicyReport {
        let refused = self.controller.as_ref().map_or(0, Controller::plans_refused);
        self.metrics.report(self.policy, &self.guests, self.now, refused)
    }

    /// Guests that waited for the same disk in this tick have slower requests in the next.
    fn queue_at_disks(&mut self) {
        let tick_ns = u128::from(ns(self.tick).max(1));
        let permille = |waiting_ns: u128| {
            u64::try_from(waiting_ns * 1000 / tick_ns).unwrap_or(u64::MAX).max(1000)
        };
        let all = self.guests.iter().map(|guest| u128::from(guest.waiting_ns)).sum();
        let shared = self.host.swap_shared.then(|| permille(all));
        for guest in &mut self.guests {
            let own = permille(u128::from(guest.waiting_ns));
            guest.memory.contention_permille = shared.unwrap_or(own);
        }
    }

    /// Free memory of the host; `None` if more is occupied than exists.
    fn available(&self) -> Option<Bytes> {
        let occupied: Bytes = self.guests.iter().map(Guest::resident).sum();
        let taken = occupied.saturating_add(self.host.hypervisor_reserve);
        (taken <= self.host.memory).then(|| self.host.memory - taken)
    }

    fn decide(&mut self) {
        let available = self.available();
        let Some(controller) = &mut self.controller else { return };
        let host = HostSample {
            memory_total: Some(self.host.memory),
            memory_available: Some(available.unwrap_or_default()),
            ..HostSample::default()
        };
        let samples = self.guests.iter().map(|guest| guest.sample(self.now)).collect();
        let ms = u64::try_from(self.now.as_millis()).unwrap_or(u64::MAX);
        let snapshot = Snapshot::new(Timestamp::from_millis(ms), host, samples);
        let plan = controller.handle_sample(&snapshot);
        while let Some(action) = controller.poll_action() {
            let place = self.guests.binary_search_by(|guest| guest.id().cmp(&action.guest));
            let guest = place.ok().and_then(|at| self.guests.get_mut(at));
            let kind = match guest {
                Some(guest) => {
                    guest.target = Some(action.target);
                    OutcomeKind::Accepted
                }
                None => OutcomeKind::Failed("no such guest".to_owned()),
            };
            let (guest, generation, target) = (action.guest, action.generation, action.target);
            let outcome = Outcome { guest, generation, target, kind };
            controller.handle_event(Event::Outcome(outcome));
        }
        self.decided = Some((snapshot, plan));
    }

    /// Counts ticks in which guests hold more than the budget or the host.
    fn check(&mut self) {
        let Some(budget) = self.budget else { return };
        let held: Bytes = self.guests.iter().map(|guest| guest.memory.allocation()).sum();
        if held > budget || self.available().is_none() {
            self.metrics.violations += 1;
        }
    }
}
