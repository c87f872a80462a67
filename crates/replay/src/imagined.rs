//! Simulates one guest: what it would have held, and the sample it would have given.
//!
//! Idea: a guest's need is recorded: memory in use, and memory in its swap that it reads back
//! (`recorded_need.rs`). Its allocation moves towards the last target at the speed of a balloon.
//! What it needs and does not hold is in its swap. How much of that it reads back depends on its
//! allocation:
//!
//! - as in the record: as much as in the record,
//! - larger: the recorded amount, in proportion to what it still lacks,
//! - smaller: also in proportion, but at most the recorded amount plus, once a second, all that it
//!   lacks beyond what it lacked in the record; that maximum if it lacked nothing then.
//!
//! When it grows, it also reads the memory that it regains from swap once. Source: ours.
//! Limits: a guest's locality below its need is not known, so the case of a smaller allocation is
//! the worst case. With less memory its kernel may swap out pages that it would otherwise keep;
//! that is not simulated.

use std::time::Duration;

use ballast_model::{
    AgentReport, Bytes, GuestPlan, GuestSample, GuestStats, Measured, ProcessId, Timestamp,
};

use crate::recorded_need::RecordedNeed;
use crate::row::ReplayRow;
use crate::totals::{Sums, bytes};

/// Inflation per second: the slowest measured in the lab under load.
const INFLATE_PER_S: Bytes = Bytes::mib(80);
/// Deflation per second, as measured in the lab.
const DEFLATE_PER_S: Bytes = Bytes::gib(1);
/// About the high watermark of a Linux guest: with less free memory it reclaims.
const KEPT_FREE: Bytes = Bytes::mib(64);

/// A guest of a replay.
#[derive(Clone, Debug, Default)]
pub(crate) struct ImaginedGuest {
    /// What it holds; `None`: as recorded.
    holds: Option<Bytes>,
    pub(crate) target: Option<Bytes>,
    recorded_before: Option<Bytes>,
    swap_in_before: Option<Bytes>,
    need: RecordedNeed,
    /// What it needs and does not hold, and so has in its swap.
    in_swap: Bytes,
    /// Its boot memory and its process, as last known.
    boot: Option<Bytes>,
    process: Option<ProcessId>,
    /// Its simulated counters of swap traffic.
    swapped_in: Bytes,
    swapped_out: Bytes,
    pub(crate) recorded: Sums,
    pub(crate) imagined: Sums,
}

/// The result of a step for one guest.
pub(crate) struct ImaginedStep {
    /// The sample for the controller.
    pub(crate) sample: GuestSample,
    /// `None`: its need is not known, so it holds what was recorded.
    pub(crate) row: Option<ReplayRow>,
    /// How much less of the host's memory it occupies than in the record (`freed`), or how much
    /// more (`taken`); one of them is zero.
    pub(crate) freed: Bytes,
    pub(crate) taken: Bytes,
}

impl ImaginedGuest {
    /// The guest with its sums but without its simulated state: it continues from the record.
    pub(crate) fn restarted(&self) -> ImaginedGuest {
        let (recorded, imagined) = (self.recorded, self.imagined);
        ImaginedGuest { recorded, imagined, ..ImaginedGuest::default() }
    }

    /// Advances to the sample `guest`, recorded at `now`, with its recorded `plan`.
    pub(crate) fn step(
        &mut self,
        guest: &GuestSample,
        plan: Option<&GuestPlan>,
        now: Timestamp,
        passed: Duration,
    ) -> ImaginedStep {
        if differ(self.boot, guest.boot_memory) || differ(self.process, guest.process) {
            // The guest was restarted, so its simulation continues from the record.
            *self = self.restarted();
        }
        self.boot = guest.boot_memory.or(self.boot);
        self.process = guest.process.or(self.process);
        let estimate = plan.and_then(|plan| plan.estimate.as_ref());
        let (Some(estimate), Some(allocation), Some(stats)) =
            (estimate, guest.allocation, guest.stats)
        else {
            self.holds = None;
            let (sample, zero) = (guest.clone(), Bytes::ZERO);
            return ImaginedStep { sample, row: None, freed: zero, taken: zero };
        };
        let recorded = allocation.value;
        let swap_in = self.recorded_swap_in(&stats.value);
        self.need.observe(guest, &stats, now);
        let demand = estimate.used.saturating_add(self.need.beyond(estimate).max(swap_in));
        let before = self.holds.unwrap_or(recorded);
        let most = guest.present_memory().unwrap_or(Bytes::MAX).max(recorded);
        let holds = moved(before, self.target.unwrap_or(before), passed).min(most);
        self.holds = Some(holds);
        let read = self.read_back(Need { demand, recorded, before, holds, swap_in, passed });
        let moved_recorded = self.recorded_before.map_or(Bytes::ZERO, |it| it.abs_diff(recorded));
        self.recorded_before = Some(recorded);
        self.recorded.add(swap_in, recorded, moved_recorded, passed);
        self.imagined.add(read, holds, before.abs_diff(holds), passed);
        let row = ReplayRow {
            id: guest.id.clone(),
            demand,
            recorded,
            imagined: holds,
            recorded_swap_in: swap_in,
            imagined_swap_in: read,
            is_predictable: is_predictable(&stats.value, demand, recorded, holds),
            recorded_target: plan.and_then(|plan| plan.target),
            imagined_target: None,
        };
        let filled = demand.min(holds);
        let resident = guest
            .resident
            .map(|it| Measured { value: occupied(it.value, recorded, holds, filled), ..it });
        // If it is not known what the process occupies, it is taken to occupy what it holds.
        let (was, is) = match (guest.resident, resident) {
            (Some(was), Some(is)) => (was.value, is.value),
            _ => (recorded, holds),
        };
        let mut sample = GuestSample {
            allocation: Some(Measured { value: holds, age: allocation.age }),
            resident,
            stats: Some(Measured {
                value: self.stats(&stats.value, filled, recorded, holds),
                age: stats.age,
            }),
            ..guest.clone()
        };
        if let Some(agent) = &mut sample.agent {
            let lacked = demand.saturating_sub(recorded);
            agent.value = swap_of(&agent.value, lacked, demand.saturating_sub(holds));
        }
        let (freed, taken) = (was.saturating_sub(is), is.saturating_sub(was));
        ImaginedStep { sample, row: Some(row), freed, taken }
    }

    /// What the guest read back since the last step of the record.
    fn recorded_swap_in(&mut self, stats: &GuestStats) -> Bytes {
        let swap_in = match (stats.swap_in, self.swap_in_before) {
            (Some(now), Some(then)) => now.saturating_sub(then),
            _ => Bytes::ZERO,
        };
        self.swap_in_before = stats.swap_in;
        swap_in
    }

    /// What it reads back from its swap in this step. Adds that, and what it swaps out, to its
    /// counters.
    fn read_back(&mut self, need: Need) -> Bytes {
        let Need { demand, recorded, before, holds, swap_in, passed } = need;
        let (lacks, lacked) = (demand.saturating_sub(holds), demand.saturating_sub(recorded));
        let in_proportion = swap_in.fraction(lacks.get(), lacked.get());
        let more = swap_in.saturating_add(per_second(lacks.saturating_sub(lacked), passed));
        let again = match (holds > recorded, lacked > Bytes::ZERO) {
            (true, _) => in_proportion,
            (false, true) => in_proportion.min(more),
            (false, false) => more,
        };
        // Memory that it regained, as far as that was in its swap.
        let grown = holds.saturating_sub(before);
        let back = self.in_swap.saturating_sub(lacks).min(grown);
        let read = again.saturating_add(back);
        let swapped_out = again.saturating_add(lacks.saturating_sub(self.in_swap));
        self.in_swap = lacks;
        self.swapped_in = self.swapped_in.saturating_add(read);
        self.swapped_out = self.swapped_out.saturating_add(swapped_out);
        read
    }

    /// The guest's statistics if it used `filled` of what it `holds`.
    fn stats(
        &self,
        reported: &GuestStats,
        filled: Bytes,
        recorded: Bytes,
        holds: Bytes,
    ) -> GuestStats {
        let shifted = |size: Bytes| size.saturating_add(holds).saturating_sub(recorded).min(holds);
        let most = reported.total.map_or(Bytes::MAX, shifted);
        GuestStats {
            total: reported.total.map(shifted),
            free: reported.free.map(shifted),
            available: Some(holds.saturating_sub(filled).min(most)),
            swap_in: Some(self.swapped_in),
            swap_out: reported.swap_out.map(|_| self.swapped_out),
            ..*reported
        }
    }
}

/// What a guest needs and holds in one step.
struct Need {
    demand: Bytes,
    recorded: Bytes,
    before: Bytes,
    holds: Bytes,
    swap_in: Bytes,
    passed: Duration,
}

/// Whether both are known and differ.
fn differ<T: PartialEq>(before: Option<T>, now: Option<T>) -> bool {
    before.is_some() && now.is_some() && before != now
}

/// Whether the record suffices to know what a guest reads back that holds `holds` instead of
/// `recorded`: it must lack no more than in the record, and only free memory may be taken from it.
/// If more is taken, its kernel reclaims, and the record does not say whether it would drop caches
/// or swap out.
fn is_predictable(reported: &GuestStats, demand: Bytes, recorded: Bytes, holds: Bytes) -> bool {
    let (lacks, lacked) = (demand.saturating_sub(holds), demand.saturating_sub(recorded));
    let spare = reported.free.unwrap_or_default().saturating_sub(KEPT_FREE);
    lacks <= lacked && recorded.saturating_sub(holds) <= spare
}

/// What the agent would have reported instead of `reported`, if the guest had `lacks` in its swap
/// instead of `lacked`.
fn swap_of(reported: &AgentReport, lacked: Bytes, lacks: Bytes) -> AgentReport {
    let (Some(used), Some(free)) = (reported.swap_used, reported.swap_free) else {
        return *reported;
    };
    let all = used.saturating_add(free);
    let used = used.saturating_sub(lacked).saturating_add(lacks).min(all);
    AgentReport { swap_used: Some(used), swap_free: Some(all.saturating_sub(used)), ..*reported }
}

/// What the guest's process occupies if the guest holds `holds` instead of `recorded`, and uses
/// `filled` of that.
fn occupied(resident: Bytes, recorded: Bytes, holds: Bytes, filled: Bytes) -> Bytes {
    let beside = resident.saturating_sub(recorded);
    let memory = resident.min(recorded);
    match holds < recorded {
        true => memory.min(holds).saturating_add(beside),
        false => memory.max(filled).saturating_add(beside),
    }
}

/// `size` a second, for `passed`.
fn per_second(size: Bytes, passed: Duration) -> Bytes {
    bytes(u128::from(size.get()) * passed.as_millis() / 1000)
}

/// The allocation after moving towards `target` for `passed`.
fn moved(from: Bytes, target: Bytes, passed: Duration) -> Bytes {
    if target < from {
        from.saturating_sub(per_second(INFLATE_PER_S, passed)).max(target)
    } else {
        from.saturating_add(per_second(DEFLATE_PER_S, passed)).min(target)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn balloons_move_at_fixed_rates() {
        assert_eq!(moved(Bytes::mib(500), Bytes::mib(100), SECOND), Bytes::mib(420));
        assert_eq!(moved(Bytes::mib(500), Bytes::mib(490), SECOND), Bytes::mib(490));
        assert_eq!(moved(Bytes::mib(500), Bytes::gib(4), SECOND), Bytes::mib(1524));
        assert_eq!(moved(Bytes::mib(500), Bytes::gib(4), Duration::ZERO), Bytes::mib(500));
    }

    #[test]
    fn what_is_read_back_follows_what_is_lacking() {
        let read = |recorded, holds, demand, swap_in| {
            let need = Need {
                demand: Bytes::mib(demand),
                recorded: Bytes::mib(recorded),
                before: Bytes::mib(holds),
                holds: Bytes::mib(holds),
                swap_in: Bytes::mib(swap_in),
                passed: SECOND,
            };
            ImaginedGuest::default().read_back(need).get() >> 20
        };
        for (recorded, holds, demand, swap_in, expected) in [
            (512, 512, 600, 20, 20),  // as recorded
            (512, 556, 600, 20, 10),  // half of it lacks
            (512, 600, 600, 20, 0),   // nothing lacks
            (512, 468, 600, 20, 30),  // half as much again lacks
            (512, 412, 520, 20, 120), // 100 MiB more lack: no more than all of them a second
            (512, 256, 200, 0, 0),    // it needs less
            (512, 256, 300, 0, 44),
        ] {
            assert_eq!(read(recorded, holds, demand, swap_in), expected, "{recorded} {holds}");
        }
    }

    #[test]
    fn what_a_process_occupies_follows_what_its_guest_holds() {
        let mib = Bytes::mib;
        for (resident, recorded, holds, filled, expected) in [
            (300, 1000, 1000, 250, 300), // as recorded
            (300, 1000, 200, 200, 200),  // given back, some of it never touched
            (300, 1000, 600, 250, 300),  // given back and never touched
            (520, 500, 800, 700, 720),   // grown and filled, and 20 MiB beside
        ] {
            let found = occupied(mib(resident), mib(recorded), mib(holds), mib(filled));
            assert_eq!(found, mib(expected), "{resident} {recorded} {holds}");
        }
    }

    proptest! {
        #[test]
        fn more_memory_never_reads_back_more(
            demand in 0u64..4096, recorded in 0u64..4096, less in 0u64..4096, more in 0u64..4096,
            swap_in in 0u64..256,
        ) {
            let read = |holds: u64| {
                let holds = Bytes::mib(holds);
                let need = Need {
                    demand: Bytes::mib(demand),
                    recorded: Bytes::mib(recorded),
                    before: holds,
                    holds,
                    swap_in: Bytes::mib(swap_in),
                    passed: SECOND,
                };
                ImaginedGuest::default().read_back(need)
            };
            prop_assert!(read(less.max(more)) <= read(less.min(more)));
        }
    }
}
