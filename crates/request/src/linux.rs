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
//!
//! Who looks once a second does not see kswapd wake: it has the memory free again that the rule is
//! about before the next look. So a guest that reclaimed since the last look, and read back what it had
//! reclaimed, asks as well; the paper's guests ask from within the kernel.

use ballast_model::Bytes;

use crate::trend::{LOOKS_AHEAD, Wish, less, more};

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

impl Figures {
    /// How much an emergency is to bring a guest that wishes for `wish`: that, and at least what lets the
    /// kernel's reclaim rest.
    pub fn emergency(&self, wish: Option<Wish>) -> Bytes {
        let least = self.watermark_high.page_ceil();
        match wish {
            Some(Wish::More(bytes)) => bytes.max(least),
            Some(Wish::Less(_)) | None => least,
        }
    }
}

/// What it saw at the look before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    /// Memory the kernel managed (`MemTotal`).
    pub total: Bytes,
    /// Memory in no use at all (`MemFree`).
    pub free: Bytes,
}

impl Before {
    /// What would have been free then, had the kernel managed no more than `now`: what a balloon took since is
    /// not used by anybody. What it gave back counts as free: a guest that is being given memory waits for it
    /// before it asks again.
    fn free_of(self, now: &Figures) -> Bytes {
        self.free.saturating_sub(self.total.saturating_sub(now.total))
    }
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

/// A guest that reads back what it reclaimed asks for this part of its memory at least, one of so many:
/// what it lacks is known by what came back in one look alone, and disks are slow.
const LACKING_PART: u64 = 128;

/// Pages the kernel scans at a time (its `SWAP_CLUSTER_MAX`); fewer are no scan to judge by.
const SCAN_MIN: u64 = 32;

/// From where on the rules hold, in per cent, 1 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// More failures than this, of what a scan tried, are an emergency.
    pub emergency: u8,
    /// Less is wanted while the active list is smaller than this part of what the kernel lets it grow to.
    pub spare: u8,
}

impl Default for Thresholds {
    /// Those of flexmemd §3.1.2.
    fn default() -> Thresholds {
        Thresholds { emergency: 60, spare: 80 }
    }
}

/// How much larger the active list may be than the inactive one, by the kernel's rule:
/// `⌊√(10 × GiB)⌋`, at least 1.
pub fn inactive_ratio(total: Bytes) -> u64 {
    (10 * (total.get() >> 30)).isqrt().max(1)
}

impl Thresholds {
    /// What the guest wants, which saw `before` at the look before and has reclaimed this since.
    pub fn wish(self, now: &Figures, before: Option<Before>, since: Reclaim) -> Option<Wish> {
        let free_before = before.map(|before| before.free_of(now));
        if let Some(more) = more(now.free, free_before, now.watermark_low) {
            return Some(more);
        }
        if since.scanned > 0 && since.read_back > 0 {
            let lacking = Bytes::pages(since.read_back.saturating_mul(LOOKS_AHEAD));
            return Some(Wish::More(lacking.max(now.total.fraction(1, LACKING_PART)).page_ceil()));
        }
        if since.scanned > 0 || since.read_back > 0 {
            return None;
        }
        let parts = inactive_ratio(now.total) * u64::from(self.spare);
        let unused = now.free.saturating_add(now.inactive);
        // 100 active < 80 ratio unused.
        if u128::from(now.active.get()) * 100 >= u128::from(unused.get()) * u128::from(parts) {
            return None;
        }
        let needed = now.active.fraction(100, parts.max(1));
        let surplus = unused.saturating_sub(needed).fraction(1, 2);
        less(surplus.min(now.free.saturating_sub(now.watermark_high)))
    }

    /// Whether reclaim fails so often that the guest cannot go on.
    pub fn is_emergency(self, reclaim: Reclaim) -> bool {
        let failed = u128::from(reclaim.scanned.saturating_sub(reclaim.reclaimed));
        let most = u128::from(reclaim.scanned) * u128::from(self.emergency);
        reclaim.scanned >= SCAN_MIN && failed * 100 > most
    }
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

    /// The same guest, with so much free.
    fn before(now: &Figures, free: Bytes) -> Option<Before> {
        Some(Before { total: now.total, free })
    }

    fn wish(now: &Figures, free_before: Option<Bytes>) -> Option<Wish> {
        let before = free_before.and_then(|free| before(now, free));
        Thresholds::default().wish(now, before, Reclaim::default())
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
    fn an_emergency_brings_what_is_wished_for_or_lets_reclaim_rest() {
        let now = figures(5, 900, 100);
        let brings = |wish| now.emergency(wish);
        assert_eq!(brings(Some(Wish::More(Bytes::mib(64)))), Bytes::mib(64));
        for wish in [Some(Wish::More(Bytes::mib(2))), Some(Wish::Less(Bytes::mib(64))), None] {
            assert_eq!(brings(wish), Bytes::mib(30));
        }
    }

    /// A balloon took 300 MiB of what was free, and processes took 10; without a balloon all would be theirs.
    #[test]
    fn what_a_balloon_takes_is_no_trend() {
        let now = figures(90, 900, 100);
        let before = |total| Some(Before { total: Bytes::mib(total), free: Bytes::mib(400) });
        let wish = |total| Thresholds::default().wish(&now, before(total), Reclaim::default());
        assert_eq!(wish(1024 + 300), None);
        assert_eq!(wish(1024), Some(Wish::More(Bytes::mib(20 + 4 * 310 - 90))));
        assert_eq!(wish(1014), wish(1024), "what it gave back is no use");
    }

    /// Of 1 GiB 8 MiB at least; 4 × 10,000 pages are 156.25 MiB.
    #[test]
    fn what_it_reads_back_while_it_reclaims_it_asks_for() {
        let resting = figures(200, 240, 100);
        let wish = |read_back| {
            let since = Reclaim { scanned: 1, reclaimed: 1, read_back };
            Thresholds::default().wish(&resting, before(&resting, Bytes::mib(200)), since)
        };
        assert_eq!(wish(1), Some(Wish::More(Bytes::mib(8))));
        assert_eq!(wish(10_000), Some(Wish::More(Bytes::pages(40_000))));
        assert!(wish(u64::MAX).is_some());
    }

    #[test]
    fn nothing_is_given_back_while_it_reclaims() {
        let since = Reclaim { scanned: 1, reclaimed: 1, read_back: 0 };
        assert_eq!(Thresholds::default().wish(&figures(200, 240, 100), None, since), None);
        let reading = Reclaim { read_back: 1, ..Reclaim::default() };
        assert_eq!(Thresholds::default().wish(&figures(200, 240, 100), None, reading), None);
        let now = figures(25, 240, 300);
        let falling = Thresholds::default().wish(&now, before(&now, Bytes::mib(35)), since);
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
                Thresholds::default().is_emergency(Reclaim { scanned, reclaimed, read_back: 0 }),
                emergency,
                "{scanned} {reclaimed}"
            );
        }
    }

    /// Of 100 pages 30 failed; 240 active of 300 × 3 that may be: 26.7 per cent.
    #[test]
    fn an_operator_may_set_both() {
        let failing = Reclaim { scanned: 100, reclaimed: 70, read_back: 0 };
        let of = |emergency, spare| Thresholds { emergency, spare };
        assert!(of(29, 80).is_emergency(failing) && !of(30, 80).is_emergency(failing));
        let now = figures(200, 240, 100);
        let wish = |spare| of(60, spare).wish(&now, None, Reclaim::default());
        assert!(wish(26).is_none() && wish(60).is_some());
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
        fn no_figure_breaks_it(n: [u64; 6], before: Option<[u64; 2]>, scanned: u64, reclaimed: u64, read_back: u64) {
            let [total, free, low, high, active, inactive] = n.map(Bytes::new);
            let now = Figures {
                total, free, watermark_low: low, watermark_high: high, active, inactive
            };
            let since = Reclaim { scanned, reclaimed, read_back };
            let before = before.map(|[total, free]: [u64; 2]| Before {
                total: Bytes::new(total),
                free: Bytes::new(free),
            });
            Thresholds::default().wish(&now, before, since);
            Thresholds::default().is_emergency(since);
        }
    }
}
