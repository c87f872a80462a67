//! Estimates memory in use from the balloon's statistics (Global §3.1).
//!
//! Idea: `A_i = N_i − F_i`, where `N_i` is the allocation according to the hypervisor and `F_i` the
//! memory that the guest says it could give back without swapping. Kernel memory that the guest
//! does not count is therefore in use. Ballooned pages never are, even if the balloon deflates on
//! out-of-memory and the guest counts them in its total.
//!
//! `F_i` is as old as the statistics, so `N_i` must be of the same time. With the present `N_i` a
//! shrinking guest would seem to use less than it does and be shrunk further, and a growing guest
//! would seem to use more and grow without end. There are two ways to find the `N_i` of that time:
//!
//! - If the balloon does not deflate on out-of-memory, the guest's total differs from its
//!   allocation by a constant: the memory its kernel reserved at boot. Once that was measured while
//!   the allocation did not change, `N_i` is the total in the statistics plus that constant: exact,
//!   whatever their age. A driver that leaves the total alone (Windows) shows by a total of more
//!   than the guest holds; that total is not used again.
//! - Otherwise the allocation is looked up among recent readings. The age of statistics is known to
//!   a second, so memory in use is known to what the balloon moved in that second. The largest
//!   allocation of that second is used: too high an estimate costs a neighbour idle memory for a
//!   tick, too low a one costs the guest its working set. But a guest that releases memory would
//!   then seem to use a step more for as long as it releases; policies that follow use would give
//!   that back, and never settle. So a releasing guest is taken to use the possible amount nearest
//!   to what it used before. A need that grows by less than a step shows when the balloon stops.
//!
//! Cost: O(1) per guest and snapshot. Source: Global §3.1, Table 1; matching the times is ours.
//! Limits: the constant is measured again whenever the allocation does not change; a guest that
//! lies about it moves only its own target.

use std::time::Duration;

use ballast_model::{
    Bytes, Estimate, GuestSample, GuestStats, Implausible, Measured, Provenance, Timestamp,
};

use crate::before;
use crate::history::AllocationHistory;
use crate::no_estimate::NoEstimate;
use crate::plausible;
use crate::probing::ProbingSettings;
use crate::refine::Refiner;
use crate::sampled_need::SampledNeed;

/// Uncertainty of the age of statistics: QEMU polls them once a second and dates them in whole
/// seconds.
const AGE_UNCERTAINTY: Duration = Duration::from_secs(1);

/// Estimates the demand of one guest from its samples.
#[derive(Clone, Debug, Default)]
pub struct Estimator {
    allocations: AllocationHistory,
    refiner: Refiner,
    sampled_need: SampledNeed,
    /// Allocation less the guest's total, if that difference is constant.
    uncounted: Option<Bytes>,
    /// The guest's total, if it did not follow the balloon. It is not used until it changes, as
    /// after a reboot.
    fixed_total: Option<Bytes>,
    /// Its use by the last sample.
    in_use: Option<Bytes>,
    /// Its allocation at the time of the statistics in the last sample; `None`: unknown.
    held_then: Option<Bytes>,
    last_estimate: Option<Estimate>,
}

impl Estimator {
    /// Observes a sample taken at `now`. Call it once for every snapshot, before
    /// [`Estimator::estimate`].
    pub fn observe(&mut self, guest: &GuestSample, now: Timestamp, probing: ProbingSettings) {
        self.observe_allocation(guest, now);
        let stats = guest.stats.as_ref();
        self.held_then = stats.and_then(|stats| self.held_at(guest, stats, now));
        self.in_use = self.nearest_use(guest).or(self.in_use);
        self.refiner.observe(guest, self.uncounted, now, probing);
        self.sampled_need.observe(guest, now);
    }

    /// Estimates the demand of the guest by the sample last observed, on a host with
    /// `host_memory`.
    ///
    /// # Errors
    /// A figure is missing or implausible. Too old a figure is no error here; the guard checks age.
    pub fn estimate(
        &mut self,
        guest: &GuestSample,
        host_memory: Bytes,
        now: Timestamp,
    ) -> Result<&Estimate, NoEstimate> {
        let allocation = guest.allocation.ok_or(NoEstimate::NoAllocation)?;
        let Some(stats) = guest.stats.as_ref() else {
            let estimate = self.sampled_need.estimate(guest, allocation.value, now)?;
            return Ok(self.last_estimate.insert(estimate));
        };
        plausible::check(&stats.value, guest.memory_max()).map_err(NoEstimate::Implausible)?;
        let available = stats.value.available_or_free().ok_or(NoEstimate::NoStatistics)?;
        let held_then = self.held_then.unwrap_or(allocation.value);
        if available > held_then {
            return Err(NoEstimate::Implausible(Implausible::AvailableOverAllocation {
                available,
                allocation: held_then,
            }));
        }
        let provenance = Provenance::BalloonStatistics { age: stats.age };
        let plain = Estimate::of_used(held_then - available, available, provenance);
        let estimate = self.last_estimate.insert(plain);
        self.refiner.refine(estimate, guest, host_memory, now);
        Ok(estimate)
    }

    /// The last result of [`Estimator::estimate`]; `None`: it never succeeded.
    pub fn last_estimate(&self) -> Option<&Estimate> {
        self.last_estimate.as_ref()
    }

    /// Keeps the allocation, and measures how much of it the guest's total leaves out.
    fn observe_allocation(&mut self, guest: &GuestSample, now: Timestamp) {
        let Some(allocation) = guest.allocation else { return };
        self.allocations.push(before(now, allocation.age), allocation.value);
        if guest.capabilities.deflate_on_oom != Some(false) {
            self.uncounted = None;
            return;
        }
        let Some(stats) = guest.stats else { return };
        let Some(total) = stats.value.total else { return };
        let stats_at = before(now, stats.age);
        let from = before(stats_at, AGE_UNCERTAINTY);
        if self.allocations.throughout(from, stats_at).is_some_and(|held| total > held) {
            self.fixed_total = Some(total);
            self.uncounted = None;
        }
        if self.fixed_total == Some(total) {
            return;
        }
        match self.allocations.between(from, now) {
            Some((least, most)) if least == most && total <= most => {
                self.uncounted = Some(most - total);
            }
            _ => {}
        }
    }

    /// The guest's allocation at the time of its statistics.
    fn held_at(
        &self,
        guest: &GuestSample,
        stats: &Measured<GuestStats>,
        now: Timestamp,
    ) -> Option<Bytes> {
        if let (Some(total), Some(uncounted)) = (stats.value.total, self.uncounted) {
            let held = total.saturating_add(uncounted);
            return Some(guest.memory_max().map_or(held, |most| held.min(most)));
        }
        let (least, most) = self.held_within(stats, now)?;
        let available = stats.value.available_or_free()?;
        let is_releasing = guest.allocation.is_some_and(|now| now.value < most);
        Some(match self.in_use {
            Some(in_use) if is_releasing => in_use.saturating_add(available).clamp(least, most),
            _ => most,
        })
    }

    /// The least and the most that it held in the second before its statistics.
    fn held_within(&self, stats: &Measured<GuestStats>, now: Timestamp) -> Option<(Bytes, Bytes)> {
        let stats_at = before(now, stats.age);
        self.allocations.between(before(stats_at, AGE_UNCERTAINTY), stats_at)
    }

    /// Its use by its statistics: the most that is possible or, for a guest that releases memory,
    /// the possible amount nearest to its use before.
    fn nearest_use(&self, guest: &GuestSample) -> Option<Bytes> {
        let stats = guest.stats.as_ref()?;
        let available = stats.value.available_or_free()?;
        let held = self.held_then?;
        (held >= available).then(|| held - available)
    }
}

#[cfg(test)]
mod tests {
    use ballast_model::LinkState;
    use proptest::prelude::*;

    use super::*;

    fn guest(allocation_mib: u64, available_mib: u64, age: Duration) -> GuestSample {
        GuestSample {
            boot_memory: Some(Bytes::gib(1)),
            allocation: Some(Measured::fresh(Bytes::mib(allocation_mib))),
            stats: Some(Measured {
                value: GuestStats {
                    available: Some(Bytes::mib(available_mib)),
                    ..GuestStats::default()
                },
                age,
            }),
            ..GuestSample::unknown("a".parse().unwrap(), LinkState::Up)
        }
    }

    /// A sample that was observed.
    struct Observed(GuestSample, Timestamp);

    fn observe(estimator: &mut Estimator, second: u64, guest: GuestSample) -> Observed {
        observe_at(estimator, Timestamp::from_millis(second * 1000), guest)
    }

    fn observe_at(estimator: &mut Estimator, now: Timestamp, guest: GuestSample) -> Observed {
        estimator.observe(&guest, now, ProbingSettings::default());
        Observed(guest, now)
    }

    fn used(estimator: &mut Estimator, observed: &Observed) -> Result<Bytes, NoEstimate> {
        let Observed(guest, now) = observed;
        estimator.estimate(guest, Bytes::ZERO, *now).map(|estimate| estimate.used)
    }

    #[test]
    fn used_is_allocation_minus_available() {
        let mut estimator = Estimator::default();
        let observed = observe(&mut estimator, 1, guest(512, 400, Duration::ZERO));
        assert_eq!(used(&mut estimator, &observed), Ok(Bytes::mib(112)));
    }

    #[test]
    fn a_shrinking_guest_does_not_seem_to_use_less() {
        let mut estimator = Estimator::default();
        observe(&mut estimator, 1, guest(1000, 900, Duration::ZERO));
        // 700 MiB were given back since; the statistics still describe the first second.
        let observed = observe(&mut estimator, 3, guest(300, 900, Duration::from_secs(2)));
        assert_eq!(used(&mut estimator, &observed), Ok(Bytes::mib(100)));
    }

    /// A balloon takes 60 MiB a second, and statistics are not older than a second.
    #[test]
    fn a_releasing_guest_seems_to_use_what_it_did() {
        let mut estimator = Estimator::default();
        for second in 1..30u64 {
            let held = 900 - 60 * (second.clamp(5, 14) - 5);
            let observed = observe(&mut estimator, second, guest(held, held - 300, Duration::ZERO));
            assert_eq!(used(&mut estimator, &observed), Ok(Bytes::mib(300)), "second {second}");
        }
    }

    /// A balloon takes 20 MiB a second for 20 s. There are ten ticks a second, and statistics are
    /// six seconds old.
    #[test]
    fn old_statistics_do_not_make_a_shrinking_guest_seem_idle() {
        let mut estimator = Estimator::default();
        let held = |tick: u64| 900 - 2 * (tick.clamp(100, 300) - 100);
        for tick in 0_u64..500 {
            let then = held(tick.saturating_sub(60));
            let lagging = guest(held(tick), then - 300, Duration::from_secs(6));
            let now = Timestamp::from_millis(tick * 100);
            let observed = observe_at(&mut estimator, now, lagging);
            assert_eq!(used(&mut estimator, &observed), Ok(Bytes::mib(300)), "tick {tick}");
        }
    }

    #[test]
    fn growing_use_shows_at_once_while_memory_is_given() {
        let mut estimator = Estimator::default();
        for (second, mib) in [(1, 500), (2, 600), (3, 700), (4, 800)] {
            let observed = observe(&mut estimator, second, guest(mib, 10, Duration::ZERO));
            assert_eq!(used(&mut estimator, &observed), Ok(Bytes::mib(mib - 10)));
        }
    }

    #[test]
    fn growing_use_shows_while_a_balloon_takes_memory() {
        let mut estimator = Estimator::default();
        observe(&mut estimator, 1, guest(1000, 700, Duration::ZERO));
        observe(&mut estimator, 2, guest(940, 640, Duration::ZERO));
        // Available memory fell by 260 MiB. The balloon took 60 of them.
        let observed = observe(&mut estimator, 3, guest(880, 380, Duration::ZERO));
        assert_eq!(used(&mut estimator, &observed), Ok(Bytes::mib(500)));
    }

    #[test]
    fn old_statistics_do_not_make_a_growing_guest_grow_further() {
        let mut estimator = Estimator::default();
        for (second, mib) in [(1, 500), (2, 600), (3, 700), (4, 800)] {
            let age = Duration::from_secs(second - 1);
            let observed = observe(&mut estimator, second, guest(mib, 10, age));
            assert_eq!(used(&mut estimator, &observed), Ok(Bytes::mib(490)));
        }
    }

    /// The statistics are two seconds old and the allocation goes up and down.
    #[test]
    fn with_the_guests_total_old_statistics_give_exact_estimates() {
        let mut estimator = Estimator::default();
        let held = |second: u64| if second < 8 { 800 } else { 400 + 100 * (second % 4) };
        for second in 4..40 {
            let observed =
                observe(&mut estimator, second, with_total_two_seconds_old(second, held));
            assert_eq!(used(&mut estimator, &observed), Ok(Bytes::mib(340)), "second {second}");
        }
    }

    /// At this second, a guest that uses 300 MiB and 40 MiB that its total leaves out, with
    /// statistics that are two seconds old.
    fn with_total_two_seconds_old(second: u64, held: impl Fn(u64) -> u64) -> GuestSample {
        let then = held(second - 2);
        let mut guest = guest(held(second), then - 40 - 300, Duration::from_secs(2));
        guest.stats.as_mut().unwrap().value.total = Some(Bytes::mib(then - 40));
        guest.capabilities.deflate_on_oom = Some(false);
        guest
    }

    /// A guest that uses 300 MiB, whose driver leaves the total alone.
    fn with_fixed_total(held: u64) -> GuestSample {
        let mut guest = guest(held, held - 300, Duration::ZERO);
        guest.stats.as_mut().unwrap().value.total = Some(Bytes::mib(1023));
        guest.capabilities.deflate_on_oom = Some(false);
        guest
    }

    #[test]
    fn a_total_that_ignores_the_balloon_is_not_used() {
        let mut estimator = Estimator::default();
        // Down, up to all of its memory, which is more than the total, and down again.
        let down = |second: u64| 100 * (second.clamp(5, 10) - 5);
        let up = |second: u64| 100 * (second.clamp(20, 25) - 20);
        let again = |second: u64| 100 * (second.clamp(40, 45) - 40);
        for second in 1..60 {
            let held = 1024 + up(second) - down(second) - again(second);
            let observed = observe(&mut estimator, second, with_fixed_total(held));
            let used = used(&mut estimator, &observed);
            // That the total does not follow shows once the balloon stands still.
            if !(6..=10).contains(&second) {
                assert_eq!(used, Ok(Bytes::mib(300)), "second {second}");
            }
        }
    }

    #[test]
    fn a_total_that_follows_after_a_reboot_counts_again() {
        let mut estimator = Estimator::default();
        for second in 1..10 {
            let held = if second < 5 { 1024 } else { 800 };
            observe(&mut estimator, second, with_fixed_total(held));
        }
        assert_eq!(estimator.fixed_total, Some(Bytes::mib(1023)));
        let held = |second: u64| if second < 18 { 800 } else { 400 + 100 * (second % 4) };
        for second in 10..40 {
            let observed =
                observe(&mut estimator, second, with_total_two_seconds_old(second, held));
            assert_eq!(used(&mut estimator, &observed), Ok(Bytes::mib(340)), "second {second}");
        }
        assert_eq!(estimator.uncounted, Some(Bytes::mib(40)));
    }

    #[test]
    fn deflate_on_oom_does_not_change_the_estimate() {
        // Its total then includes the balloon: about 1 GiB, half of it ballooned.
        let mut estimator = Estimator::default();
        let mut with = guest(512, 400, Duration::ZERO);
        let stats = &mut with.stats.as_mut().unwrap().value;
        stats.total = Some(Bytes::mib(980));
        let observed = observe(&mut estimator, 1, with);
        assert_eq!(used(&mut estimator, &observed), Ok(Bytes::mib(112)));
    }

    #[test]
    fn implausible_statistics_are_refused() {
        type Lie = fn(&mut GuestStats);
        let lies: [(Lie, &str); 4] = [
            (
                |s| s.total = Some(Bytes::gib(2)),
                "total 2GiB is more than the 1GiB it was booted with",
            ),
            (|s| s.free = Some(Bytes::gib(3)), "free 3GiB is more than total 1GiB"),
            (|s| s.available = Some(Bytes::gib(3)), "available 3GiB is more than total 1GiB"),
            (
                |s| s.available = Some(Bytes::mib(600)),
                "available 600MiB is more than its allocation of 512MiB",
            ),
        ];
        for (lie, message) in lies {
            let mut liar = guest(512, 400, Duration::ZERO);
            lie(&mut liar.stats.as_mut().unwrap().value);
            let mut estimator = Estimator::default();
            let observed = observe(&mut estimator, 1, liar);
            match used(&mut estimator, &observed) {
                Err(NoEstimate::Implausible(what)) => assert_eq!(what.to_string(), message),
                other => panic!("{message}: {other:?}"),
            }
        }
    }

    #[test]
    fn missing_figures_are_named_not_taken_as_zero() {
        let mut estimator = Estimator::default();
        let mut silent = guest(512, 400, Duration::ZERO);
        silent.stats = None;
        let observed = observe(&mut estimator, 1, silent);
        assert_eq!(used(&mut estimator, &observed), Err(NoEstimate::NoStatistics));
        let mut unknown = guest(512, 400, Duration::ZERO);
        unknown.allocation = None;
        let observed = observe(&mut estimator, 2, unknown);
        assert_eq!(used(&mut estimator, &observed), Err(NoEstimate::NoAllocation));
    }

    proptest! {
        #[test]
        fn used_never_exceeds_the_largest_allocation(
            readings in prop::collection::vec((0..2048u64, 0..2048u64, 0..20u64), 1..40)
        ) {
            let mut estimator = Estimator::default();
            let mut largest = 0;
            for (second, &(allocation, available, age)) in readings.iter().enumerate() {
                largest = largest.max(allocation);
                let sample = guest(allocation, available, Duration::from_secs(age));
                let observed = observe(&mut estimator, second as u64, sample);
                if let Ok(used) = used(&mut estimator, &observed) {
                    prop_assert!(used <= Bytes::mib(largest));
                }
            }
        }
    }
}
