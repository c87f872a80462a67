//! The replay of a recorded host under another policy.
//!
//! Idea: the demand of every guest is recorded, its allocation is simulated: it starts as recorded,
//! and then the daemon's own controller, with the policy in question, decides on samples in which
//! everything but the allocation is as recorded. Memory shortage and its duration are measured in
//! the same way for the record and for the simulation.
//!
//! Assumptions, which must be shown with every figure ([`ASSUMPTIONS`]): demand does not depend on
//! the allocation; the memory swapped in during a tick is the shortage of that tick; balloons move
//! at fixed rates.
//!
//! Cost: a decision and O(guests) per tick.
//! Limits: guests without recorded demand, and unmanaged guests, keep their recorded allocation.
//! After a gap longer than [`GAP_MAX`], or when the clock goes back, the simulation restarts from
//! the record.

use std::collections::BTreeMap;
use std::time::Duration;

use ballast_control::{Controller, Event, Settings};
use ballast_model::{
    Bytes, GuestId, GuestLimits, GuestPlan, GuestSample, GuestStats, Measured, Outcome,
    OutcomeKind, Plan, PolicyName, Snapshot, Timestamp,
};
use ballast_policy::Policy;

/// The assumptions behind the figures of a replay.
pub const ASSUMPTIONS: [&str; 4] = [
    "a guest would have used what it used, whatever it was given",
    "what a guest swapped in between two ticks is memory it lacked",
    "balloons inflate by 80 MiB and deflate by 1 GiB a second",
    "the settings are the recorded ones, but for the policy",
];

/// Longest gap between two ticks that belong together.
pub const GAP_MAX: Duration = Duration::from_secs(60);
/// Inflation per second: the slowest measured in the lab under load.
const INFLATE_PER_S: Bytes = Bytes::mib(80);
/// Deflation per second, as measured in the lab.
const DEFLATE_PER_S: Bytes = Bytes::gib(1);

/// A recorded host under another policy.
#[derive(Debug)]
pub struct Replay {
    settings: Settings,
    policy: Box<dyn Policy>,
    controller: Controller,
    last: Option<Timestamp>,
    guests: BTreeMap<GuestId, SimulatedGuest>,
    ticks: u64,
    span: Duration,
    rows: Vec<ReplayRow>,
}

/// One guest at one tick, recorded and simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayRow {
    /// The guest.
    pub id: GuestId,
    /// Its demand: memory used, and memory swapped in since the previous tick.
    pub demand: Bytes,
    /// Its recorded allocation.
    pub recorded: Bytes,
    /// Its simulated allocation.
    pub imagined: Bytes,
    /// Its recorded target.
    pub recorded_target: Option<Bytes>,
    /// Its simulated target.
    pub imagined_target: Option<Bytes>,
}

/// Totals of a guest, or of all guests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayTotals {
    /// Memory shortage over time, in MiB-seconds.
    pub lacked_mib_s: u64,
    /// Time with any shortage; for all guests, the sum.
    pub lacking: Duration,
    /// Memory moved, in both directions.
    pub moved: Bytes,
    /// Mean allocation.
    pub allocation_mean: Bytes,
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

#[derive(Clone, Debug, Default)]
struct SimulatedGuest {
    /// Its simulated allocation; `None`: as recorded.
    holds: Option<Bytes>,
    target: Option<Bytes>,
    recorded_before: Option<Bytes>,
    swap_in_before: Option<Bytes>,
    /// Simulated swap-in since the start: a shortage is read back from swap.
    swapped: Bytes,
    recorded: Sums,
    imagined: Sums,
}

/// Sums over time.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    lacked_byte_ms: u128,
    lacking: Duration,
    moved: Bytes,
    held_byte_ms: u128,
    ms: u128,
}

impl Replay {
    /// Creates a replay; `settings` are the recorded ones.
    pub fn new(settings: Settings, policy: Box<dyn Policy>) -> Replay {
        let controller = Controller::with_policy(settings.clone(), policy.clone(), Timestamp::ZERO);
        Replay {
            settings,
            policy,
            controller,
            last: None,
            guests: BTreeMap::new(),
            ticks: 0,
            span: Duration::ZERO,
            rows: Vec::new(),
        }
    }

    /// The replayed policy.
    pub fn policy(&self) -> PolicyName {
        self.policy.name()
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
        let passed = passed.unwrap_or(Duration::ZERO);
        self.span += passed;
        self.guests.retain(|id, known| recorded.guest(id).is_some() || known.recorded.ms > 0);
        self.rows.clear();
        let mut samples = Vec::with_capacity(recorded.guests().len());
        for guest in recorded.guests() {
            let known = self.guests.entry(guest.id.clone()).or_default();
            let (sample, row) = known.step(guest, plan.guest(&guest.id), passed);
            samples.push(sample);
            self.rows.extend(row);
        }
        let held = |side: fn(&ReplayRow) -> Bytes| self.rows.iter().map(side).sum::<Bytes>();
        let mut host = recorded.host.clone();
        host.memory_available = host.memory_available.map(|available| {
            available
                .saturating_add(held(|row| row.recorded))
                .saturating_sub(held(|row| row.imagined))
        });
        self.follow_limits(limits);
        let decided = self.controller.handle_sample(&Snapshot::new(now, host, samples));
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
        for row in &mut self.rows {
            row.imagined_target = decided.guest(&row.id).and_then(|guest| guest.target);
        }
        &self.rows
    }

    fn restart(&mut self) {
        self.controller =
            Controller::with_policy(self.settings.clone(), self.policy.clone(), Timestamp::ZERO);
        for known in self.guests.values_mut() {
            *known = SimulatedGuest {
                recorded: known.recorded,
                imagined: known.imagined,
                ..SimulatedGuest::default()
            };
        }
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
        let all = |side: fn(&SimulatedGuest) -> Sums| {
            self.guests.values().map(side).fold(Sums::default(), Sums::and)
        };
        let mean_of_sum = |sums: Sums| {
            // Guests' times overlap, so the mean of the total is over the whole span.
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

impl SimulatedGuest {
    /// The sample for the controller, and the guest's row.
    fn step(
        &mut self,
        guest: &GuestSample,
        plan: Option<&GuestPlan>,
        passed: Duration,
    ) -> (GuestSample, Option<ReplayRow>) {
        let used = plan.and_then(|plan| plan.estimate.as_ref()).map(|estimate| estimate.used);
        let (Some(used), Some(allocation), Some(stats)) = (used, guest.allocation, guest.stats)
        else {
            self.holds = None;
            return (guest.clone(), None);
        };
        let recorded = allocation.value;
        let swapped_in = match (stats.value.swap_in, self.swap_in_before) {
            (Some(now), Some(then)) => now.saturating_sub(then),
            _ => Bytes::ZERO,
        };
        self.swap_in_before = stats.value.swap_in;
        let demand = used.saturating_add(swapped_in);
        let before = self.holds.unwrap_or(recorded);
        let boot = guest.boot_memory.unwrap_or(Bytes::MAX);
        let holds = moved(before, self.target.unwrap_or(before), passed).min(boot);
        self.holds = Some(holds);
        let lacked = demand.saturating_sub(holds);
        self.swapped = self.swapped.saturating_add(lacked);
        let moved_recorded = self.recorded_before.map_or(Bytes::ZERO, |it| it.abs_diff(recorded));
        self.recorded_before = Some(recorded);
        self.recorded.add(swapped_in, recorded, moved_recorded, passed);
        self.imagined.add(lacked, holds, before.abs_diff(holds), passed);
        let sample = GuestSample {
            allocation: Some(Measured { value: holds, age: allocation.age }),
            stats: Some(Measured {
                value: self.stats(&stats.value, used, recorded, holds),
                age: stats.age,
            }),
            ..guest.clone()
        };
        let row = ReplayRow {
            id: guest.id.clone(),
            demand,
            recorded,
            imagined: holds,
            recorded_target: plan.and_then(|plan| plan.target),
            imagined_target: None,
        };
        (sample, Some(row))
    }

    /// The guest's statistics if it used `used` of `holds`.
    fn stats(&self, said: &GuestStats, used: Bytes, recorded: Bytes, holds: Bytes) -> GuestStats {
        let shifted = |size: Bytes| size.saturating_add(holds).saturating_sub(recorded).min(holds);
        GuestStats {
            total: said.total.map(shifted),
            free: said.free.map(shifted),
            available: Some(holds.saturating_sub(used).min(said.total.map_or(Bytes::MAX, shifted))),
            swap_in: Some(self.swapped),
            ..*said
        }
    }
}

impl Sums {
    fn add(&mut self, lacked: Bytes, held: Bytes, moved: Bytes, passed: Duration) {
        let ms = passed.as_millis();
        self.lacked_byte_ms += u128::from(lacked.get()) * ms;
        if lacked > Bytes::ZERO {
            self.lacking += passed;
        }
        self.moved = self.moved.saturating_add(moved);
        self.held_byte_ms += u128::from(held.get()) * ms;
        self.ms += ms;
    }

    fn and(self, other: Sums) -> Sums {
        Sums {
            lacked_byte_ms: self.lacked_byte_ms + other.lacked_byte_ms,
            lacking: self.lacking + other.lacking,
            moved: self.moved.saturating_add(other.moved),
            held_byte_ms: self.held_byte_ms + other.held_byte_ms,
            ms: self.ms + other.ms,
        }
    }

    fn totals(self) -> ReplayTotals {
        let mib_s = self.lacked_byte_ms / 1000 / u128::from(Bytes::mib(1).get());
        ReplayTotals {
            lacked_mib_s: u64::try_from(mib_s).unwrap_or(u64::MAX),
            lacking: self.lacking,
            moved: self.moved,
            allocation_mean: bytes(self.held_byte_ms / self.ms.max(1)),
        }
    }
}

fn bytes(n: u128) -> Bytes {
    Bytes::new(u64::try_from(n).unwrap_or(u64::MAX)).page_floor()
}

/// The allocation after moving towards `target` for `passed`.
fn moved(from: Bytes, target: Bytes, passed: Duration) -> Bytes {
    let in_time = |per_s: Bytes| bytes(u128::from(per_s.get()) * passed.as_millis() / 1000);
    if target < from {
        from.saturating_sub(in_time(INFLATE_PER_S)).max(target)
    } else {
        from.saturating_add(in_time(DEFLATE_PER_S)).min(target)
    }
}

#[cfg(test)]
mod tests {
    use ballast_control::Settings;
    use ballast_model::{Capabilities, HostSample, LinkState, RunState};
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
        // A shortage of 20 MiB in each of 59 seconds; simulated, demand is 520 of 512 MiB held.
        assert_eq!(report.recorded.lacked_mib_s, 59 * 20);
        assert_eq!(report.imagined.lacked_mib_s, 59 * 8);
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

    #[test]
    fn balloons_move_at_fixed_rates() {
        let second = Duration::from_secs(1);
        assert_eq!(moved(Bytes::mib(500), Bytes::mib(100), second), Bytes::mib(420));
        assert_eq!(moved(Bytes::mib(500), Bytes::mib(490), second), Bytes::mib(490));
        assert_eq!(moved(Bytes::mib(500), Bytes::gib(4), second), Bytes::mib(1524));
        assert_eq!(moved(Bytes::mib(500), Bytes::gib(4), Duration::ZERO), Bytes::mib(500));
    }
}
