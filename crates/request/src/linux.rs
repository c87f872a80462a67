//! What a guest with a Linux kernel asks for.
//!
//! Rules (flexmemd §3.1.2): more just before kswapd, the kernel's reclaim daemon, would wake, which
//! is when free memory falls under the low watermark; less when hardly anything of what could be
//! reclaimed is in use, `active < 0.8 × inactive_ratio × (free + inactive)`; an emergency when more
//! than 60 % of what a scan tries to reclaim cannot be.
//!
//! Deviations: the paper prints the condition for giving back with "exceeds", which would give
//! memory back under pressure. It gives back half of what would make both sides equal, so that one
//! quiet look does not cost all of the page cache, and never so much that kswapd would wake. While
//! it reclaims or reads back what it reclaimed it gives nothing back: what it was just given may lie
//! free until its processes have waited for the disk, and pages that are new are all inactive.

use ballast_model::Bytes;

use crate::trend::{Wish, less, more};

/// What a guest sees of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Memory the kernel manages (`MemTotal`).
    pub total: Bytes,
    /// Memory in no use at all (`MemFree`).
    pub free: Bytes,
    /// Sum of the zones' low watermarks: below it kswapd wakes.
    pub watermark_low: Bytes,
    /// Sum of the zones' high watermarks: above it kswapd rests.
    pub watermark_high: Bytes,
    /// Memory used not long ago (`Active`).
    pub active: Bytes,
    /// Memory not used for longer (`Inactive`).
    pub inactive: Bytes,
}

/// What reclaim tried and achieved between two looks, and what of it came back, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaim {
    /// Pages looked at (`pgscan_kswapd` and `pgscan_direct` of `/proc/vmstat`).
    pub scanned: u64,
    /// Pages won (`pgsteal_kswapd` and `pgsteal_direct`).
    pub reclaimed: u64,
    /// Pages that came back: `pswpin` and `workingset_refault_file` of `/proc/vmstat`.
    pub read_back: u64,
}

/// Pages the kernel scans at a time (its `SWAP_CLUSTER_MAX`); fewer are no scan to judge by.
const SCAN_MIN: u64 = 32;

/// More failures than this, in per cent of what was tried, are an emergency (flexmemd §3.1.2).
const FAILED_MAX_PERCENT: u128 = 60;

/// How much larger the active list may be than the inactive one, by the kernel's rule:
/// `⌊√(10 × GiB)⌋`, at least 1.
pub fn inactive_ratio(total: Bytes) -> u64 {
    (10 * (total.get() >> 30)).isqrt().max(1)
}

/// What the guest wants, which had `free_before` at the look before and has reclaimed this since.
pub fn wish(now: &Figures, free_before: Option<Bytes>, since: Reclaim) -> Option<Wish> {
    if let Some(more) = more(now.free, free_before, now.watermark_low) {
        return Some(more);
    }
    if since.scanned > 0 || since.read_back > 0 {
        return None;
    }
    let ratio = inactive_ratio(now.total);
    let unused = now.free.saturating_add(now.inactive);
    // 10 active < 8 ratio unused.
    let limit = u128::from(unused.get()) * u128::from(ratio) * 8;
    if u128::from(now.active.get()) * 10 >= limit {
        return None;
    }
    let surplus = unused.saturating_sub(now.active.fraction(10, 8 * ratio)).fraction(1, 2);
    less(surplus.min(now.free.saturating_sub(now.watermark_high)))
}

/// Whether reclaim fails so often that the guest cannot go on.
pub fn is_emergency(reclaim: Reclaim) -> bool {
    let failed = reclaim.scanned.saturating_sub(reclaim.reclaimed);
    reclaim.scanned >= SCAN_MIN
        && u128::from(failed) * 100 > u128::from(reclaim.scanned) * FAILED_MAX_PERCENT
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn figures(free: u64, active: u64, inactive: u64) -> Figures {
        Figures {
            total: Bytes::gib(1),
            free: Bytes::mib(free),
            watermark_low: Bytes::mib(20),
            watermark_high: Bytes::mib(30),
            active: Bytes::mib(active),
            inactive: Bytes::mib(inactive),
        }
    }

    fn wish(now: &Figures, free_before: Option<Bytes>) -> Option<Wish> {
        super::wish(now, free_before, Reclaim::default())
    }

    #[test]
    fn the_ratio_grows_with_memory() {
        for (gib, ratio) in [(0, 1), (1, 3), (2, 4), (10, 10), (100, 31), (1000, 100)] {
            assert_eq!(inactive_ratio(Bytes::gib(gib)), ratio, "{gib}");
        }
        assert_eq!(inactive_ratio(Bytes::mib(1023)), 1);
    }

    #[test]
    fn by_hand() {
        // 1 GiB: ratio 3, so less is wanted while active < 2.4 (free + inactive).
        // 240 < 2.4 × 300: half of 300 − 240 / 2.4 = 200 is 100.
        assert_eq!(wish(&figures(200, 240, 100), None), Some(Wish::Less(Bytes::mib(100))));
        // Of 120 free no more than what keeps kswapd asleep.
        assert_eq!(wish(&figures(120, 240, 180), None), Some(Wish::Less(Bytes::mib(90))));
        // 720 = 2.4 × 300: no change.
        assert_eq!(wish(&figures(200, 720, 100), None), None);
        assert!(wish(&figures(200, 719, 100), None).is_none(), "half of 0.4 MiB is not worth it");
        // About to fall under the watermark: more, however much is inactive.
        let falling = wish(&figures(25, 240, 300), Some(Bytes::mib(35)));
        assert_eq!(falling, Some(Wish::More(Bytes::mib(20 + 4 * 10 - 25))));
    }

    #[test]
    fn nothing_is_given_back_while_it_reclaims() {
        let since = Reclaim { scanned: 1, reclaimed: 1, read_back: 0 };
        assert_eq!(super::wish(&figures(200, 240, 100), None, since), None);
        let reading = Reclaim { read_back: 1, ..Reclaim::default() };
        assert_eq!(super::wish(&figures(200, 240, 100), None, reading), None);
        let falling = super::wish(&figures(25, 240, 300), Some(Bytes::mib(35)), since);
        assert_eq!(falling, Some(Wish::More(Bytes::mib(35))));
    }

    /// The misprint frozen: with "exceeds" a guest with everything active would give memory back.
    #[test]
    fn a_guest_under_pressure_gives_nothing_back() {
        let pressed = figures(21, 950, 10);
        let printed = pressed.active.get() * 10 > 8 * 3 * Bytes::mib(31).get();
        assert!(printed);
        assert_eq!(wish(&pressed, None), None);
    }

    #[test]
    fn more_than_sixty_percent_of_a_scan_failing_is_an_emergency() {
        for (scanned, reclaimed, emergency) in [
            (100, 40, false),
            (100, 39, true),
            (31, 0, false),
            (32, 0, true),
            (0, 0, false),
            (50, 90, false),
            (u64::MAX, 0, true),
        ] {
            assert_eq!(
                is_emergency(Reclaim { scanned, reclaimed, read_back: 0 }),
                emergency,
                "{scanned} {reclaimed}"
            );
        }
    }

    proptest! {
        /// Giving back neither wakes kswapd nor leads to asking for it again at the next look.
        #[test]
        fn what_is_given_back_is_not_asked_for_again(
            free in 0..4000u64, active in 0..4000u64, inactive in 0..4000u64
        ) {
            let before = figures(free, active, inactive);
            if let Some(Wish::Less(less)) = wish(&before, None) {
                let after = Figures { free: before.free - less, ..before };
                prop_assert!(after.free >= after.watermark_high);
                let asks = matches!(wish(&after, Some(after.free)), Some(Wish::More(_)));
                prop_assert!(!asks);
            }
        }

        #[test]
        fn no_figure_breaks_it(n: [u64; 6], before: Option<u64>, scanned: u64, reclaimed: u64, read_back: u64) {
            let [total, free, low, high, active, inactive] = n.map(Bytes::new);
            let now = Figures {
                total, free, watermark_low: low, watermark_high: high, active, inactive
            };
            let since = Reclaim { scanned, reclaimed, read_back };
            super::wish(&now, before.map(Bytes::new), since);
            is_emergency(since);
        }
    }
}
