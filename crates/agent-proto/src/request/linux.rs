//! Requests of a guest with a Linux kernel.
//!
//! Rules (flexmemd §3.1.2):
//! - More memory before kswapd (the kernel's reclaim daemon) would wake, which happens when free
//!   memory falls under the low watermark.
//! - Less memory when hardly any reclaimable memory is in use:
//!   `active < 0.8 × inactive_ratio × (free + inactive)`.
//! - An emergency when more than 60 % of the pages that reclaim scans cannot be reclaimed.
//!
//! Deviations from the paper:
//! - It prints the condition for less with "exceeds", which would give memory back under pressure.
//! - A guest offers half of the surplus, so that one quiet sample does not cost all of the page
//!   cache, and never as much as would wake kswapd.
//! - A guest offers nothing while it reclaims or refaults: memory it just received may be free only
//!   because its processes still wait for the disk, and new pages all start on the inactive list.
//! - A guest that reclaimed since the last sample and read some of it back asks for more. The
//!   paper's guests ask from within the kernel; a program that samples once a second does not see
//!   kswapd wake, because memory is free again by the next sample.

use ballast_model::Bytes;

use crate::request::trend::{SAMPLES_AHEAD, WantedChange, less, more};

/// Memory of a guest, as its kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryState {
    /// Memory the kernel manages (`MemTotal`).
    pub total: Bytes,
    /// Unused memory (`MemFree`).
    pub free: Bytes,
    /// Sum of the zones' low watermarks: kswapd wakes below it.
    pub watermark_low: Bytes,
    /// Sum of the zones' high watermarks: kswapd sleeps above it.
    pub watermark_high: Bytes,
    /// Recently used memory (`Active`).
    pub active: Bytes,
    /// Memory not used recently (`Inactive`).
    pub inactive: Bytes,
}

impl MemoryState {
    /// The size of an emergency request: the `wanted` increase, at least up to where kswapd sleeps.
    pub fn emergency_amount(&self, wanted: Option<WantedChange>) -> Bytes {
        let floor = self.watermark_high.page_ceil();
        match wanted {
            Some(WantedChange::More(bytes)) => bytes.max(floor),
            Some(WantedChange::Less(_)) | None => floor,
        }
    }
}

/// The parts of the previous sample that the rules need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreviousSample {
    /// `MemTotal`.
    pub total: Bytes,
    /// `MemFree`.
    pub free: Bytes,
}

impl PreviousSample {
    /// Free memory of the previous sample, less what a balloon has taken since: ballooned memory is
    /// not use. Memory that a balloon has returned is not added, so that a guest that is growing
    /// waits before it asks again.
    fn free_without_balloon(self, now: &MemoryState) -> Bytes {
        self.free.saturating_sub(self.total.saturating_sub(now.total))
    }
}

/// Reclaim and refaults between two samples, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReclaimDelta {
    /// Pages scanned (`pgscan_kswapd` and `pgscan_direct` of `/proc/vmstat`).
    pub scanned: u64,
    /// Pages reclaimed (`pgsteal_kswapd` and `pgsteal_direct`).
    pub reclaimed: u64,
    /// Pages read back (`pswpin` and `workingset_refault_file`).
    pub read_back: u64,
}

/// A guest that reads back reclaimed pages asks for at least 1 / `READ_BACK_PART_MIN` of its
/// memory: slow disks limit how much it can read back between two samples.
const READ_BACK_PART_MIN: u64 = 128;

/// Pages the kernel scans at a time (its `SWAP_CLUSTER_MAX`); the success of fewer means nothing.
const SCAN_MIN: u64 = 32;

/// Thresholds of the rules, in per cent, 1 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestThresholds {
    /// Share of scanned pages that were not reclaimed, above which there is an emergency.
    pub emergency: u8,
    /// Share of its allowed size under which the active list must be for memory to be offered.
    pub spare: u8,
}

impl Default for RequestThresholds {
    /// The thresholds of flexmemd §3.1.2.
    fn default() -> RequestThresholds {
        RequestThresholds { emergency: 60, spare: 80 }
    }
}

/// The kernel's limit for the size of the active list relative to the inactive one:
/// `⌊√(10 × GiB)⌋`, at least 1.
pub fn inactive_ratio(total: Bytes) -> u64 {
    (10 * (total.get() >> 30)).isqrt().max(1)
}

impl RequestThresholds {
    /// The change that the guest wants; `since` is reclaim since the sample `before`.
    pub fn wanted_change(
        self,
        now: &MemoryState,
        before: Option<PreviousSample>,
        since: ReclaimDelta,
    ) -> Option<WantedChange> {
        let free_before = before.map(|before| before.free_without_balloon(now));
        if let Some(more) = more(now.free, free_before, now.watermark_low) {
            return Some(more);
        }
        if since.scanned > 0 && since.read_back > 0 {
            let lacking = Bytes::pages(since.read_back.saturating_mul(SAMPLES_AHEAD));
            let floor = now.total.fraction(1, READ_BACK_PART_MIN);
            return Some(WantedChange::More(lacking.max(floor).page_ceil()));
        }
        if since.scanned > 0 || since.read_back > 0 {
            return None;
        }
        let percent = inactive_ratio(now.total) * u64::from(self.spare);
        let unused = now.free.saturating_add(now.inactive);
        // 100 × active < spare × ratio × unused.
        if u128::from(now.active.get()) * 100 >= u128::from(unused.get()) * u128::from(percent) {
            return None;
        }
        let needed = now.active.fraction(100, percent.max(1));
        let surplus = unused.saturating_sub(needed).fraction(1, 2);
        less(surplus.min(now.free.saturating_sub(now.watermark_high)))
    }

    /// Whether reclaim fails so often that this is an emergency.
    pub fn is_emergency(self, reclaim: ReclaimDelta) -> bool {
        let failed = u128::from(reclaim.scanned.saturating_sub(reclaim.reclaimed));
        let failed_max = u128::from(reclaim.scanned) * u128::from(self.emergency);
        reclaim.scanned >= SCAN_MIN && failed * 100 > failed_max
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn state(free: u64, active: u64, inactive: u64) -> MemoryState {
        MemoryState {
            total: Bytes::gib(1),
            free: Bytes::mib(free),
            watermark_low: Bytes::mib(20),
            watermark_high: Bytes::mib(30),
            active: Bytes::mib(active),
            inactive: Bytes::mib(inactive),
        }
    }

    /// A previous sample with the same total.
    fn before(now: &MemoryState, free: Bytes) -> Option<PreviousSample> {
        Some(PreviousSample { total: now.total, free })
    }

    fn wanted_since(
        now: &MemoryState,
        before: Option<PreviousSample>,
        since: ReclaimDelta,
    ) -> Option<WantedChange> {
        RequestThresholds::default().wanted_change(now, before, since)
    }

    fn wanted(now: &MemoryState, free_before: Option<Bytes>) -> Option<WantedChange> {
        let before = free_before.and_then(|free| before(now, free));
        wanted_since(now, before, ReclaimDelta::default())
    }

    #[test]
    fn inactive_ratio_grows_with_memory() {
        for (gib, ratio) in [(0, 1), (1, 3), (2, 4), (10, 10), (100, 31), (1000, 100)] {
            assert_eq!(inactive_ratio(Bytes::gib(gib)), ratio, "{gib}");
        }
        assert_eq!(inactive_ratio(Bytes::mib(1023)), 1);
    }

    #[test]
    fn requests_computed_by_hand() {
        // 1 GiB: ratio 3, so memory is offered while active < 2.4 (free + inactive).
        // 240 < 2.4 × 300: half of 300 − 240 / 2.4 = 200 is 100.
        assert_eq!(wanted(&state(200, 240, 100), None), Some(WantedChange::Less(Bytes::mib(100))));
        // Of 120 MiB free at most 90: 30 keep kswapd asleep.
        assert_eq!(wanted(&state(120, 240, 180), None), Some(WantedChange::Less(Bytes::mib(90))));
        // 720 = 2.4 × 300: nothing.
        assert_eq!(wanted(&state(200, 720, 100), None), None);
        assert!(
            wanted(&state(200, 719, 100), None).is_none(),
            "half of 0.4 MiB is under the minimum"
        );
        // About to fall under the watermark: more, although much is inactive.
        let falling = wanted(&state(25, 240, 300), Some(Bytes::mib(35)));
        assert_eq!(falling, Some(WantedChange::More(Bytes::mib(20 + 4 * 10 - 25))));
    }

    #[test]
    fn emergency_amount_reaches_at_least_the_high_watermark() {
        let now = state(5, 900, 100);
        let amount = |wanted| now.emergency_amount(wanted);
        assert_eq!(amount(Some(WantedChange::More(Bytes::mib(64)))), Bytes::mib(64));
        let smaller = [
            Some(WantedChange::More(Bytes::mib(2))),
            Some(WantedChange::Less(Bytes::mib(64))),
            None,
        ];
        for wanted in smaller {
            assert_eq!(amount(wanted), Bytes::mib(30));
        }
    }

    /// A balloon took 300 MiB of free memory and processes took 10; without a balloon, processes
    /// took 310.
    #[test]
    fn ballooned_memory_does_not_count_as_use() {
        let now = state(90, 900, 100);
        let before =
            |total| Some(PreviousSample { total: Bytes::mib(total), free: Bytes::mib(400) });
        let wanted = |total| wanted_since(&now, before(total), ReclaimDelta::default());
        assert_eq!(wanted(1024 + 300), None);
        assert_eq!(wanted(1024), Some(WantedChange::More(Bytes::mib(20 + 4 * 310 - 90))));
        assert_eq!(wanted(1014), wanted(1024), "returned memory is not added");
    }

    /// At least 8 MiB of 1 GiB; 4 × 10,000 pages are 156.25 MiB.
    #[test]
    fn a_guest_that_refaults_while_reclaiming_asks_for_more() {
        let resting = state(200, 240, 100);
        let wanted = |read_back| {
            let since = ReclaimDelta { scanned: 1, reclaimed: 1, read_back };
            wanted_since(&resting, before(&resting, Bytes::mib(200)), since)
        };
        assert_eq!(wanted(1), Some(WantedChange::More(Bytes::mib(8))));
        assert_eq!(wanted(10_000), Some(WantedChange::More(Bytes::pages(40_000))));
        assert!(wanted(u64::MAX).is_some());
    }

    #[test]
    fn nothing_is_offered_during_reclaim_or_refaults() {
        let since = ReclaimDelta { scanned: 1, reclaimed: 1, read_back: 0 };
        assert_eq!(wanted_since(&state(200, 240, 100), None, since), None);
        let reading = ReclaimDelta { read_back: 1, ..ReclaimDelta::default() };
        assert_eq!(wanted_since(&state(200, 240, 100), None, reading), None);
        let now = state(25, 240, 300);
        let falling = wanted_since(&now, before(&now, Bytes::mib(35)), since);
        assert_eq!(falling, Some(WantedChange::More(Bytes::mib(35))));
    }

    /// By the paper's misprint ("exceeds") a guest with everything active would give memory back.
    #[test]
    fn a_guest_under_pressure_offers_nothing() {
        let pressed = state(21, 950, 10);
        let printed = pressed.active.get() * 10 > 8 * 3 * Bytes::mib(31).get();
        assert!(printed);
        assert_eq!(wanted(&pressed, None), None);
    }

    #[test]
    fn reclaim_failing_for_over_sixty_percent_is_an_emergency() {
        for (scanned, reclaimed, emergency) in [
            (100, 40, false),
            (100, 39, true),
            (31, 0, false),
            (32, 0, true),
            (0, 0, false),
            (50, 90, false),
            (u64::MAX, 0, true),
        ] {
            let since = ReclaimDelta { scanned, reclaimed, read_back: 0 };
            let found = RequestThresholds::default().is_emergency(since);
            assert_eq!(found, emergency, "{scanned} {reclaimed}");
        }
    }

    /// 30 of 100 pages failed; 240 MiB active of at most 300 × 3: 26.7 per cent.
    #[test]
    fn both_thresholds_can_be_set() {
        let failing = ReclaimDelta { scanned: 100, reclaimed: 70, read_back: 0 };
        let of = |emergency, spare| RequestThresholds { emergency, spare };
        assert!(of(29, 80).is_emergency(failing) && !of(30, 80).is_emergency(failing));
        let now = state(200, 240, 100);
        let wanted = |spare| of(60, spare).wanted_change(&now, None, ReclaimDelta::default());
        assert!(wanted(26).is_none() && wanted(60).is_some());
    }

    proptest! {
        /// After an offer, kswapd sleeps and the next sample does not ask for more.
        #[test]
        fn offered_memory_is_not_requested_again(
            free in 0..4000u64, active in 0..4000u64, inactive in 0..4000u64
        ) {
            let before = state(free, active, inactive);
            if let Some(WantedChange::Less(less)) = wanted(&before, None) {
                let after = MemoryState { free: before.free - less, ..before };
                prop_assert!(after.free >= after.watermark_high);
                let asks_again = matches!(wanted(&after, Some(after.free)), Some(WantedChange::More(_)));
                prop_assert!(!asks_again);
            }
        }

        #[test]
        fn arbitrary_values_do_not_panic(
            n: [u64; 6], before: Option<[u64; 2]>, scanned: u64, reclaimed: u64, read_back: u64,
        ) {
            let [total, free, low, high, active, inactive] = n.map(Bytes::new);
            let now = MemoryState {
                total, free, watermark_low: low, watermark_high: high, active, inactive
            };
            let since = ReclaimDelta { scanned, reclaimed, read_back };
            let before = before.map(|[total, free]: [u64; 2]| PreviousSample {
                total: Bytes::new(total),
                free: Bytes::new(free),
            });
            wanted_since(&now, before, since);
            RequestThresholds::default().is_emergency(since);
        }
    }
}
