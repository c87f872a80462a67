//! How hard the host searches for equal pages of its guests (KSM).
//!
//! Idea: searching costs processor time, so it is done only where memory is short or promised away.
//! While available memory is below a threshold, more pages are scanned in every period; while it is
//! above, fewer. Where the guests' memory plus the threshold fits the host, the search stops.
//! Merged pages stay merged.
//!
//! Source: the rules and figures of oVirt's MOM (`ksm.rules`), which are those of `ksmtuned` (its
//! `ksmtuned.conf` documents them); MOM evaluates them every 10 s (`policy-engine-interval`).
//! Deviations: the last reading counts, not a mean of the last ten; guests' memory is what their
//! processes occupy, else what they hold. A size of a process that is older than a step may be just
//! the part that the host could count, so it counts for no less than what the guest holds.
//! Cost: O(n) for each period.

use std::time::Duration;

use ballast_model::{Bytes, GuestSample, HostSample, Measured, MergingKnobs, Snapshot, Timestamp};

/// Time between two steps: MOM's `policy-engine-interval`.
const PERIOD: Duration = Duration::from_secs(10);
/// The threshold as a part of the host's memory: `KSM_THRES_COEF`, `ksm_free_percent`.
const THRESHOLD_PERCENT: u64 = 20;
/// The least threshold: `KSM_THRES_CONST`.
const THRESHOLD_MIN: Bytes = Bytes::mib(2);
/// Pages added in a step while memory is short: `KSM_NPAGES_BOOST`.
const BOOST: u64 = 300;
/// Pages removed in a step while it is not: `KSM_NPAGES_DECAY`.
const DECAY: u64 = 50;
/// Fewest pages: `KSM_NPAGES_MIN`.
const PAGES_MIN: u64 = 64;
/// Most pages: `KSM_NPAGES_MAX`.
const PAGES_MAX: u64 = 1250;
/// Sleep, in milliseconds, on a host of [`SLEEP_MEMORY`]: `KSM_SLEEP_MSEC`. A larger host sleeps
/// less, a smaller one more.
const SLEEP_MS: u64 = 10;
/// Memory of the host that sleeps for [`SLEEP_MS`].
const SLEEP_MEMORY: Bytes = Bytes::gib(16);
/// Shortest and longest sleep, in milliseconds. `ksmtuned` has the first. The second is that of a
/// host of 160 MiB, so that no host sleeps forever.
const SLEEP_MS_RANGE: (u64, u64) = (10, 1_000);

/// Adjusts the search, one step in each `PERIOD`.
#[derive(Clone, Debug, Default)]
pub struct MergingTuner {
    stepped_at: Option<Timestamp>,
}

impl MergingTuner {
    /// The settings to apply now; `None`: it is not time for a step, or the host's figures are
    /// unknown.
    pub fn step(&mut self, snapshot: &Snapshot) -> Option<MergingKnobs> {
        let now = snapshot.taken_at;
        if self.stepped_at.is_some_and(|at| now.saturating_since(at) < PERIOD) {
            return None;
        }
        let guests = snapshot.guests().iter().filter_map(occupied);
        let knobs = next(&snapshot.host, guests.sum())?;
        self.stepped_at = Some(now);
        Some(knobs)
    }
}

/// The memory that counts for a guest; `None`: nothing is known of it.
fn occupied(guest: &GuestSample) -> Option<Bytes> {
    let value = |size: Option<Measured<Bytes>>| size.map(|size| size.value);
    let fresh = guest.resident.filter(|size| size.age <= PERIOD);
    value(fresh).or_else(|| value(guest.resident).max(value(guest.allocation)))
}

/// The step from the host's present settings; `guests` is the memory that guests occupy.
fn next(host: &HostSample, guests: Bytes) -> Option<MergingKnobs> {
    let (total, available) = (host.memory_total?, host.memory_available?);
    let before = host.merging?.knobs;
    let threshold = total.fraction(THRESHOLD_PERCENT, 100).max(THRESHOLD_MIN);
    let is_short = available < threshold;
    let is_promised = guests.saturating_add(threshold) > total;
    let pages = match (before.is_running, is_short) {
        (true, true) => before.pages_to_scan.saturating_add(BOOST),
        (true, false) => before.pages_to_scan.saturating_sub(DECAY),
        (false, _) => PAGES_MIN,
    };
    let (shortest, longest) = SLEEP_MS_RANGE;
    let mib = |bytes: Bytes| bytes.get() >> 20;
    let sleep_ms = (SLEEP_MS * mib(SLEEP_MEMORY) / mib(total).max(1)).clamp(shortest, longest);
    Some(MergingKnobs {
        is_running: is_short || is_promised,
        pages_to_scan: pages.clamp(PAGES_MIN, PAGES_MAX),
        sleep: Duration::from_millis(sleep_ms),
    })
}

#[cfg(test)]
mod tests {
    use ballast_model::{LinkState, PageMerging};
    use proptest::prelude::*;

    use super::*;

    fn host(total: Bytes, available: Bytes, knobs: MergingKnobs) -> HostSample {
        let (shared, saved) = (Bytes::ZERO, Bytes::ZERO);
        HostSample {
            memory_total: Some(total),
            memory_available: Some(available),
            merging: Some(PageMerging { knobs, shared, saved, full_scans: 0 }),
            ..HostSample::default()
        }
    }

    fn knobs(is_running: bool, pages_to_scan: u64) -> MergingKnobs {
        MergingKnobs { is_running, pages_to_scan, sleep: Duration::from_millis(20) }
    }

    #[test]
    fn a_short_host_searches_harder_and_a_calm_one_stops() {
        let total = Bytes::gib(16);
        let after = |before, available, guests| {
            let next = next(&host(total, Bytes::gib(available), before), Bytes::gib(guests));
            let next = next.unwrap();
            (next.is_running, next.pages_to_scan)
        };
        // A fifth of 16 GiB is 3.2 GiB.
        assert_eq!(after(knobs(false, 100), 3, 4), (true, 64));
        assert_eq!(after(knobs(true, 64), 3, 4), (true, 364));
        assert_eq!(after(knobs(true, 1200), 3, 4), (true, 1250));
        // Enough is available, but it is promised away: the search goes on with fewer pages.
        assert_eq!(after(knobs(true, 364), 4, 13), (true, 314));
        assert_eq!(after(knobs(true, 70), 4, 13), (true, 64));
        assert_eq!(after(knobs(true, 364), 4, 12), (false, 314));
    }

    #[test]
    fn larger_hosts_sleep_less() {
        for (gib, ms) in [(1, 160), (8, 20), (16, 10), (512, 10)] {
            let host = host(Bytes::gib(gib), Bytes::ZERO, knobs(true, 64));
            let sleep = next(&host, Bytes::ZERO).unwrap().sleep;
            assert_eq!(sleep, Duration::from_millis(ms), "{gib}");
        }
    }

    #[test]
    fn a_step_is_taken_once_in_a_period() {
        let mut tuner = MergingTuner::default();
        let host = host(Bytes::gib(16), Bytes::gib(1), knobs(true, 64));
        let steps = (0..30u64).filter(|second| {
            let now = Timestamp::from_millis(second * 1000);
            tuner.step(&Snapshot::new(now, host.clone(), Vec::new())).is_some()
        });
        assert_eq!(steps.collect::<Vec<_>>(), [0, 10, 20]);
        let unknown = Snapshot::new(Timestamp::ZERO, HostSample::default(), Vec::new());
        assert_eq!(MergingTuner::default().step(&unknown), None);
    }

    #[test]
    fn a_search_that_an_old_size_would_stop_goes_on() {
        let old = Duration::from_secs(11);
        // Sizes in GiB: the guest holds 14 of 16, and the host could once count 2 of them.
        for (resident, allocation, is_running) in [
            (Some((2, PERIOD)), Some(14), false),
            (Some((2, old)), Some(14), true),
            (Some((14, old)), None, true),
            (Some((14, old)), Some(2), true),
            (None, Some(14), true),
            (None, None, false),
        ] {
            let size = |(gib, age)| Measured { value: Bytes::gib(gib), age };
            let guest = GuestSample {
                resident: resident.map(size),
                allocation: allocation.map(|gib| Measured::fresh(Bytes::gib(gib))),
                ..GuestSample::unknown("a".parse().unwrap(), LinkState::Up)
            };
            let host = host(Bytes::gib(16), Bytes::gib(8), knobs(true, 100));
            let snapshot = Snapshot::new(Timestamp::ZERO, host, vec![guest]);
            let next = MergingTuner::default().step(&snapshot).unwrap();
            assert_eq!(next.is_running, is_running, "{resident:?} {allocation:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_read_steps_stay_in_their_ranges(
            (total, available, guests) in any::<(u64, u64, u64)>(),
            (is_running, pages) in any::<(bool, u64)>(),
        ) {
            let host = host(Bytes::new(total), Bytes::new(available), knobs(is_running, pages));
            let next = next(&host, Bytes::new(guests)).unwrap();
            prop_assert!((PAGES_MIN..=PAGES_MAX).contains(&next.pages_to_scan));
            prop_assert!((10..=1000).contains(&next.sleep.as_millis()));
            let threshold = total / 5;
            prop_assert!(next.is_running || available >= threshold.max(1) || total < 10);
        }

        #[test]
        fn less_available_memory_never_searches_less(
            total in 1..1u64 << 40, (a, b) in any::<(u64, u64)>(), pages in 0..2000u64,
        ) {
            let (less, more) = (a.min(b) % total, a.max(b) % total);
            let (less, more) = (less.min(more), less.max(more));
            let of = |available| {
                let host = host(Bytes::new(total), Bytes::new(available), knobs(true, pages));
                let next = next(&host, Bytes::ZERO).unwrap();
                (next.is_running, next.pages_to_scan)
            };
            let (short, calm) = (of(less), of(more));
            prop_assert!(short.0 >= calm.0 && short.1 >= calm.1, "{short:?} {calm:?}");
        }
    }
}
