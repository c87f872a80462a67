//! The replay of a recorded host under another policy.
//!
//! Idea: the demand of every guest is as recorded; its allocation is simulated (`imagined.rs`). The
//! allocation starts as recorded. Then the daemon's own controller decides, with the policy in
//! question, on samples that are as recorded except for the allocation and what follows from it.
//! The replay balances, whether the recorded daemon balanced or only observed. Memory shortage and
//! its duration are measured in the same way for the record and for the simulation.
//!
//! Assumptions, which must be shown with every figure ([`ASSUMPTIONS`]): the loop is open, that is,
//! demand does not depend on the allocation; balloons move at fixed rates.
//!
//! Cost: a decision and O(guests) per tick.
//! Limits: guests without recorded demand, and unmanaged guests, keep their recorded allocation;
//! nothing is plugged in or out. After a gap longer than [`GAP_MAX`], or when the clock goes back,
//! the simulation restarts from the record.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ballast_control::{Controller, Event, Settings};
use ballast_model::{
    Bytes, CarriedGuest, GuestId, GuestLimits, Mode, Outcome, OutcomeKind, Plan, PolicyName,
    Snapshot, Timestamp,
};
use ballast_policy::Policy;

use crate::imagined::ImaginedGuest;
use crate::row::ReplayRow;
use crate::totals::{ReplayTotals, Sums, bytes};

/// The assumptions behind the figures of a replay.
pub const ASSUMPTIONS: [&str; 4] = [
    "a guest would have used what it used, whatever it was given",
    "what a guest swapped in, or needs of its swap, is memory it lacked",
    "balloons inflate by 80 MiB and deflate by 1 GiB a second",
    "the settings are the recorded ones, but for the policy",
];

/// Longest gap between two ticks that belong together.
pub const GAP_MAX: Duration = Duration::from_secs(60);

/// A recorded host under another policy.
#[derive(Debug)]
pub struct Replay {
    settings: Settings,
    policy: Box<dyn Policy>,
    controller: Controller,
    last: Option<Timestamp>,
    guests: BTreeMap<GuestId, ImaginedGuest>,
    ticks: u64,
    span: Duration,
    passed: Duration,
    /// What guests brought along from other hosts since the last tick.
    carried: Vec<CarriedGuest>,
    decided: Option<Arc<Plan>>,
    rows: Vec<ReplayRow>,
}

/// The result of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayReport {
    /// The policy.
    pub policy: PolicyName,
    /// Number of recorded ticks.
    pub ticks: u64,
    /// Time spanned by them, without gaps.
    pub span: Duration,
    /// All guests as recorded.
    pub recorded: ReplayTotals,
    /// All guests as simulated.
    pub imagined: ReplayTotals,
    /// Plans that the checker refused.
    pub plans_refused: u64,
    /// Every guest, sorted by name: recorded and simulated.
    pub guests: Vec<(GuestId, ReplayTotals, ReplayTotals)>,
}

impl Replay {
    /// Creates a replay; `settings` are the recorded ones.
    pub fn new(settings: Settings, policy: Box<dyn Policy>) -> Replay {
        let settings = Settings { mode: Mode::Balance, ..settings };
        let controller = Controller::with_policy(settings.clone(), policy.clone(), Timestamp::ZERO);
        Replay {
            settings,
            policy,
            controller,
            last: None,
            guests: BTreeMap::new(),
            ticks: 0,
            span: Duration::ZERO,
            passed: Duration::ZERO,
            carried: Vec::new(),
            decided: None,
            rows: Vec::new(),
        }
    }

    /// The replayed policy.
    pub fn policy(&self) -> PolicyName {
        self.policy.name()
    }

    /// Continues with other settings and another `policy`; allocations restart from the record.
    pub fn reconfigure(&mut self, settings: Settings, policy: Box<dyn Policy>) {
        self.settings = Settings { mode: Mode::Balance, ..settings };
        self.policy = policy;
        self.last = None;
    }

    /// The time that the last tick stands for: the time since the tick before; zero after a gap.
    pub fn passed(&self) -> Duration {
        self.passed
    }

    /// The rows of the last tick, sorted by name.
    pub fn rows(&self) -> &[ReplayRow] {
        &self.rows
    }

    /// The plan for the last tick; `None` before the first.
    pub fn decided(&self) -> Option<&Plan> {
        self.decided.as_deref()
    }

    /// Takes in what guests brought along from other hosts before the next recorded tick.
    pub fn carry(&mut self, carried: &[CarriedGuest]) {
        self.carried.extend_from_slice(carried);
    }

    /// Replays one recorded tick. Returns a row per guest with demand, sorted by name.
    pub fn tick(
        &mut self,
        recorded: &Snapshot,
        plan: &Plan,
        limits: &BTreeMap<GuestId, GuestLimits>,
    ) -> &[ReplayRow] {
        let now = recorded.taken_at;
        let passed = self.last.map(|last| now.saturating_since(last));
        let passed = passed.filter(|passed| *passed <= GAP_MAX && *passed > Duration::ZERO);
        if passed.is_none() {
            self.restart();
        }
        self.last = Some(now);
        self.ticks += 1;
        self.passed = passed.unwrap_or(Duration::ZERO);
        self.span += self.passed;
        self.guests.retain(|id, known| recorded.guest(id).is_some() || known.recorded.ms > 0);
        self.rows.clear();
        let mut samples = Vec::with_capacity(recorded.guests().len());
        let (mut freed, mut taken) = (Bytes::ZERO, Bytes::ZERO);
        let mut shifts: BTreeMap<String, (Bytes, Bytes)> = BTreeMap::new();
        for guest in recorded.guests() {
            let known = self.guests.entry(guest.id.clone()).or_default();
            let step = known.step(guest, plan.guest(&guest.id), now, self.passed);
            for room in &guest.rooms {
                let (freed, taken) = shifts.entry(room.by.clone()).or_default();
                *freed = freed.saturating_add(step.freed);
                *taken = taken.saturating_add(step.taken);
            }
            samples.push(step.sample);
            self.rows.extend(step.row);
            freed = freed.saturating_add(step.freed);
            taken = taken.saturating_add(step.taken);
        }
        let mut host = recorded.host.clone();
        host.memory_available = host
            .memory_available
            .map(|available| available.saturating_add(freed).saturating_sub(taken));
        for room in samples.iter_mut().flat_map(|sample| &mut sample.rooms) {
            let (freed, taken) = shifts.get(&room.by).copied().unwrap_or_default();
            room.left = room.left.saturating_add(freed).saturating_sub(taken);
        }
        self.follow_limits(limits);
        for carried in self.carried.drain(..) {
            self.controller.handle_event(Event::Carried(carried));
        }
        let decided = self.controller.handle_sample(&Snapshot::new(now, host, samples));
        self.carry_out();
        for row in &mut self.rows {
            row.imagined_target = decided.guest(&row.id).and_then(|guest| guest.target);
        }
        self.decided = Some(decided);
        &self.rows
    }

    /// Makes every guest follow the actions of the last plan.
    fn carry_out(&mut self) {
        while let Some(action) = self.controller.poll_action() {
            let kind = OutcomeKind::Accepted;
            let outcome = Outcome {
                guest: action.guest,
                generation: action.generation,
                target: action.target,
                kind,
            };
            if let Some(known) = self.guests.get_mut(&outcome.guest) {
                known.target = Some(outcome.target);
            }
            self.controller.handle_event(Event::Outcome(outcome));
        }
    }

    fn restart(&mut self) {
        self.controller =
            Controller::with_policy(self.settings.clone(), self.policy.clone(), Timestamp::ZERO);
        self.guests.values_mut().for_each(|known| *known = known.restarted());
    }

    fn follow_limits(&mut self, limits: &BTreeMap<GuestId, GuestLimits>) {
        let known = &self.controller.settings().limits.named;
        let changed: Vec<(GuestId, GuestLimits)> = limits
            .iter()
            .filter(|(id, own)| known.get(*id) != Some(*own))
            .map(|(id, own)| (id.clone(), own.clone()))
            .collect();
        for (id, own) in changed {
            self.controller.handle_event(Event::SetLimits(id, own));
        }
    }

    /// The result so far.
    pub fn report(&self) -> ReplayReport {
        let all = |side: fn(&ImaginedGuest) -> Sums| {
            self.guests.values().map(side).fold(Sums::default(), Sums::plus)
        };
        let mean_of_sum = |sums: Sums| {
            // The guests' times overlap, so the mean of their sum is taken over the whole span.
            let span_ms = self.span.as_millis().max(1);
            ReplayTotals { allocation_mean: bytes(sums.held_byte_ms / span_ms), ..sums.totals() }
        };
        ReplayReport {
            policy: self.policy.name(),
            ticks: self.ticks,
            span: self.span,
            recorded: mean_of_sum(all(|known| known.recorded)),
            imagined: mean_of_sum(all(|known| known.imagined)),
            plans_refused: self.controller.plans_refused(),
            guests: self
                .guests
                .iter()
                .map(|(id, known)| (id.clone(), known.recorded.totals(), known.imagined.totals()))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use ballast_control::Settings;
    use ballast_model::{
        Capabilities, GuestSample, GuestStats, HostSample, LinkState, Measured, RunState,
    };
    use ballast_policy::build;

    use super::*;

    /// Two guests of 1 GiB boot memory that hold 512 MiB each, and their use.
    fn snapshot(second: u64, used_mib: [u64; 2], swap_in_mib: u64) -> Snapshot {
        let guest = |name: &str, used: u64, swap_in: u64| GuestSample {
            run_state: Some(RunState::Running),
            allocation: Some(Measured::fresh(Bytes::mib(512))),
            boot_memory: Some(Bytes::gib(1)),
            stats: Some(Measured::fresh(GuestStats {
                total: Some(Bytes::mib(500)),
                free: Some(Bytes::mib(512 - used)),
                available: Some(Bytes::mib(512 - used)),
                swap_in: Some(Bytes::mib(swap_in)),
                swap_out: Some(Bytes::ZERO),
                ..GuestStats::default()
            })),
            capabilities: Capabilities {
                balloon: Some(true),
                deflate_on_oom: Some(false),
                ..Capabilities::default()
            },
            ..GuestSample::unknown(name.parse().unwrap(), LinkState::Up)
        };
        let host = HostSample {
            memory_total: Some(Bytes::gib(8)),
            memory_available: Some(Bytes::gib(6)),
            ..HostSample::default()
        };
        let guests = vec![guest("a", used_mib[0], swap_in_mib), guest("b", used_mib[1], 0)];
        Snapshot::new(Timestamp::from_millis(second * 1000), host, guests)
    }

    fn settings() -> Settings {
        let mut settings = Settings::new(PolicyName::Static);
        settings.guard.budget = Some(Bytes::gib(1));
        settings
    }

    /// A record under `static`: guest `a` is short of memory and swaps in 20 MiB per second.
    fn run(policy: PolicyName, seconds: u64) -> ReplayReport {
        let mut recorder = Controller::new(settings(), Timestamp::ZERO);
        let policy = build(policy, settings().policy_settings);
        let mut replay = Replay::new(settings(), policy);
        for second in 1..=seconds {
            let snapshot = snapshot(second, [500, 100], second * 20);
            let plan = recorder.handle_sample(&snapshot);
            replay.tick(&snapshot, &plan, &BTreeMap::new());
        }
        replay.report()
    }

    #[test]
    fn replay_of_the_recorded_policy_moves_nothing() {
        let report = run(PolicyName::Static, 60);
        assert_eq!((report.ticks, report.span.as_secs(), report.plans_refused), (60, 59, 0));
        // A shortage of 20 MiB in each of 59 seconds.
        assert_eq!(report.recorded.lacked_mib_s, 59 * 20);
        assert_eq!(report.imagined.lacked_mib_s, 59 * 20);
        assert_eq!((report.recorded.moved, report.imagined.moved), (Bytes::ZERO, Bytes::ZERO));
        assert_eq!(report.imagined.allocation_mean, Bytes::gib(1));
    }

    #[test]
    fn replay_measures_how_much_a_policy_helps() {
        let report = run(PolicyName::Global, 60);
        assert!(report.imagined.lacked_mib_s * 4 < report.recorded.lacked_mib_s, "{report:?}");
        assert!(report.imagined.moved > Bytes::mib(8), "{report:?}");
        let [(_, _, a), (_, _, b)] = &report.guests[..] else { panic!("{report:?}") };
        assert!(a.allocation_mean > b.allocation_mean);
        assert!(a.allocation_mean + b.allocation_mean <= Bytes::gib(1));
        assert_eq!(report.plans_refused, 0);
    }

    #[test]
    fn a_record_of_observing_is_replayed_as_balanced() {
        let observing = Settings { mode: Mode::Observe, ..settings() };
        let mut recorder = Controller::new(observing.clone(), Timestamp::ZERO);
        let policy = build(PolicyName::Global, observing.policy_settings.clone());
        let mut replay = Replay::new(observing, policy);
        for second in 1..=60 {
            let snapshot = snapshot(second, [500, 100], second * 20);
            let plan = recorder.handle_sample(&snapshot);
            replay.tick(&snapshot, &plan, &BTreeMap::new());
        }
        assert!(replay.report().imagined.moved > Bytes::mib(8), "{:?}", replay.report());
    }

    #[test]
    fn equal_records_give_equal_reports() {
        assert_eq!(run(PolicyName::Global, 30), run(PolicyName::Global, 30));
    }

    #[test]
    fn gap_or_backward_clock_restarts_the_simulation() {
        let mut recorder = Controller::new(settings(), Timestamp::ZERO);
        let policy = build(PolicyName::Global, settings().policy_settings);
        let mut replay = Replay::new(settings(), policy);
        for second in [1, 2, 3, 500, 501, 7, 8] {
            let snapshot = snapshot(second, [500, 100], 0);
            let plan = recorder.handle_sample(&snapshot);
            let rows = replay.tick(&snapshot, &plan, &BTreeMap::new());
            if [1, 500].contains(&second) {
                assert!(rows.iter().all(|row| row.imagined == row.recorded), "{second}: {rows:?}");
            }
        }
        assert_eq!((replay.report().ticks, replay.report().span.as_secs()), (7, 4));
    }
}
