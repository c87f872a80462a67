//! Computes the memory a guest wants, from its statistics or from its request.
//!
//! Idea: a guest should have a certain part of its memory free, the larger the smaller it is, and
//! two percent more so that it does not soon want more. It grows when it swaps or has little free
//! memory, shrinks when it does neither and has more free than that part, and otherwise stays.
//!
//! Algorithm (flexmemd §4, equations 3 to 5), with `old` the guest's memory:
//!
//! ```text
//! dpf   = min(1/4, 1/√(9 old_GiB + 1))
//! delta = (old (dpf + 0.02) − free) / (1 − (dpf + 0.02))
//! ```
//!
//! Growth is tested first. A delta of the wrong sign is ignored: with between `dpf` and `dpf +
//! 0.02` free, the guest should shrink, but the delta is positive. The result is never below the
//! floor.
//!
//! Statistics are of an earlier moment, when the guest may have held less or more than its target
//! in force, the paper's `old`. Its use then is taken as its use now, so `free` is what would be
//! free at the target. If `old` were what it held then, a guest whose target has just moved and
//! that wants no change would want the earlier target back, then the other one, and so on forever.
//!
//! Deviations: the paper prints the denominator as `1 − dpf + 0.02`, which misses its own aim of
//! `dpf + 2 %` free. The paper gives `old` no unit; here it is GiB, or, for guests that are models
//! of larger ones, what the operator says counts as a GiB. A change that needs a missing figure is
//! not made. Exact integers, rounded up to a page.
//! Cost: O(1).

use ballast_model::Bytes;

/// 2^32, the denominator of `dpf`.
const ONE: i128 = 1 << 32;

/// When statistics call for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DemandThresholds {
    /// A guest that swaps more pages a second than this, in plus out, wants more memory.
    pub swaps_per_second: u64,
    /// A guest with less free memory than this wants more.
    pub free_min: Bytes,
    /// What counts as a GiB of a guest's size in the part that it should have free: 1 MiB to 1 TiB.
    pub gib: Bytes,
}

impl Default for DemandThresholds {
    /// flexmemd §4: 90 swaps a second and 100 MiB.
    fn default() -> DemandThresholds {
        DemandThresholds {
            swaps_per_second: 90,
            free_min: Bytes::mib(100),
            gib: DemandThresholds::GIB_DEFAULT,
        }
    }
}

impl DemandThresholds {
    /// A real GiB.
    pub const GIB_DEFAULT: Bytes = Bytes::gib(1);
    /// The least that can count as a GiB.
    pub const GIB_MIN: Bytes = Bytes::mib(1);
    /// The most that can count as a GiB; keeps products of sizes within 128 bits.
    pub const GIB_MAX: Bytes = Bytes::gib(1024);
}

/// A guest's statistics. `None`: not reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantStatistics {
    /// Unused memory (its `MemFree`).
    pub free: Option<Bytes>,
    /// Pages swapped in and out per second.
    pub swaps_per_second: Option<u64>,
}

/// How a guest's memory should change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
    Stay,
}

/// The memory a guest with the target `old` wants, according to statistics from when it held
/// `held`; whole pages, at least `floor`.
pub(super) fn implicit(
    old: Bytes,
    held: Bytes,
    floor: Bytes,
    statistics: TenantStatistics,
    thresholds: DemandThresholds,
) -> Bytes {
    let wanted = match statistics.free {
        Some(free) => {
            let part = desired_part_free(old, thresholds.gib);
            let free = i128::from(free.get()) + i128::from(old.get()) - i128::from(held.get());
            let swaps = statistics.swaps_per_second;
            change(old, free, part, direction(old, free, part, swaps, thresholds))
        }
        None => old,
    };
    wanted.page_ceil().max(floor)
}

/// The memory wanted by a guest that has `current` and requests `request` bytes more (less if
/// negative).
pub(super) fn explicit(current: Bytes, floor: Bytes, request: i64) -> Bytes {
    let change = Bytes::new(request.unsigned_abs());
    let wanted =
        if request < 0 { current.saturating_sub(change) } else { current.saturating_add(change) };
    wanted.page_ceil().max(floor)
}

/// The direction for a guest that should have `part` of `old` free, and would have `free`; negative
/// if it uses more than `old`.
fn direction(
    old: Bytes,
    free: i128,
    part: i128,
    swaps: Option<u64>,
    thresholds: DemandThresholds,
) -> Direction {
    let swapping = swaps.is_some_and(|swaps| swaps > thresholds.swaps_per_second);
    if swapping || free < i128::from(thresholds.free_min.get()) {
        return Direction::Up;
    }
    let quiet = swaps.is_some_and(|swaps| swaps < thresholds.swaps_per_second);
    let ample = free * ONE > i128::from(old.get()) * part;
    if quiet && ample { Direction::Down } else { Direction::Stay }
}

/// `dpf` over 2^32: `√(gib / (9 old + gib))`, at most a quarter.
fn desired_part_free(old: Bytes, gib: Bytes) -> i128 {
    let gib = gib.clamp(DemandThresholds::GIB_MIN, DemandThresholds::GIB_MAX).get();
    let divisor = 9 * u128::from(old.get()) + u128::from(gib);
    if divisor <= 16 * u128::from(gib) {
        return ONE / 4;
    }
    // The integer square root. The guess in floating point is below 2^30 and at most a few off, and
    // is corrected exactly, which is much faster than an integer root.
    let square = u128::from(gib) << 64;
    let is_at_most = |root: u64| u128::from(root * root) * divisor <= square;
    let guess = square as f64 / (9.0 * old.get() as f64 + gib as f64);
    let mut root = guess.sqrt() as u64;
    while !is_at_most(root) {
        root -= 1;
    }
    while is_at_most(root + 1) {
        root += 1;
    }
    i128::from(root)
}

fn change(old: Bytes, free: i128, part: i128, direction: Direction) -> Bytes {
    // `dpf + 0.02` times 100 × 2^32.
    let denominator = 100 * ONE;
    let part = 100 * part + 2 * ONE;
    let lacking = i128::from(old.get()) * part - free * denominator;
    let fits = match direction {
        Direction::Up => lacking > 0,
        Direction::Down => lacking < 0,
        Direction::Stay => return old,
    };
    if !fits {
        return old;
    }
    // Rounded up, towards more memory.
    let up = if lacking > 0 { denominator - part - 1 } else { 0 };
    let delta = (lacking + up) / (denominator - part);
    let wanted = (i128::from(old.get()) + delta).max(0);
    Bytes::new(u64::try_from(wanted).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn statistics(free: Bytes, swaps: u64) -> TenantStatistics {
        TenantStatistics { free: Some(free), swaps_per_second: Some(swaps) }
    }

    fn part_free(old: Bytes) -> i128 {
        desired_part_free(old, DemandThresholds::GIB_DEFAULT)
    }

    fn wants(old: Bytes, free: Bytes, swaps: u64) -> Bytes {
        implicit(old, old, Bytes::ZERO, statistics(free, swaps), DemandThresholds::default())
    }

    #[test]
    fn the_desired_free_part_falls_with_size() {
        // 1/√(9 × 5/3 + 1) = 1/4: up to 5/3 GiB a quarter; 7 GiB: 1/√64; 11 GiB: 1/√100.
        for (old, part) in [
            (Bytes::mib(64), ONE / 4),
            (Bytes::gib(1), ONE / 4),
            (Bytes::gib(7), ONE / 8),
            (Bytes::gib(11), ONE / 10),
            (Bytes::gib(224), ONE * 2 / 90),
        ] {
            assert!((part_free(old) - part).abs() <= ONE / 10_000, "{old}");
        }
        assert_eq!(part_free(Bytes::gib(7)), ONE / 8);
    }

    proptest! {
        #[test]
        fn the_desired_free_part_is_the_integer_root(
            old: u64, down in 0..64u32, gib in 1u64 << 20..=1 << 40
        ) {
            let old = old >> down;
            let square = (u128::from(gib) << 64) / (9 * u128::from(old) + u128::from(gib));
            let expected = (square.isqrt() as i128).min(ONE / 4);
            prop_assert_eq!(desired_part_free(Bytes::new(old), Bytes::new(gib)), expected);
        }

        #[test]
        fn a_guest_at_scale_wants_the_same_at_scale(
            old in 1u64..1 << 14, free in 0u64..1 << 14, swaps in 0..200u64, scale in 1u64..32
        ) {
            // Sizes that are whole pages at both scales, but for rounding up to one.
            let full = |pages: u64| Bytes::pages(pages * scale);
            let thresholds = |by: u64| DemandThresholds {
                free_min: Bytes::pages(25 * by),
                gib: Bytes::pages(256 * by),
                ..DemandThresholds::default()
            };
            let free = free.min(old);
            let small = statistics(Bytes::pages(free), swaps);
            let large = statistics(full(free), swaps);
            let small = implicit(Bytes::pages(old), Bytes::pages(old), Bytes::ZERO, small, thresholds(1));
            let large = implicit(full(old), full(old), Bytes::ZERO, large, thresholds(scale));
            let apart = full(small.to_pages()).get().abs_diff(large.get());
            prop_assert!(apart <= full(1).get(), "{small} and {large}");
        }
    }

    #[test]
    fn wants_match_a_hand_calculation() {
        // 7 GiB are 1,835,008 pages; 14.5 % of them, 266,076.16, should be free.
        // None is: 266,076.16 / 0.855 = 311,200.19 more, rounded up.
        let more = wants(Bytes::gib(7), Bytes::ZERO, 0);
        assert_eq!(more, Bytes::gib(7) + Bytes::pages(311_201));
        // Half of it is: (266,076.16 − 917,504) / 0.855 = −761,903.91, rounded up.
        let less = wants(Bytes::gib(7), Bytes::mib(3584), 0);
        assert_eq!(less, Bytes::gib(7) - Bytes::pages(761_903));
        // Swapping, with a tenth free: (266,076.16 − 183,500.8) / 0.855 = 96,579.37, rounded up.
        let more = wants(Bytes::gib(7), Bytes::gib(7).fraction(1, 10), 91);
        assert_eq!(more, Bytes::gib(7) + Bytes::pages(96_580));
    }

    #[test]
    fn growth_is_tested_first_and_thresholds_are_strict() {
        let old = Bytes::gib(7);
        let (half, tenth) = (Bytes::mib(3584), old.fraction(1, 10));
        // Little free and swapping: grows. Half free and swapping: it should grow, but the delta is
        // negative, so nothing changes.
        assert!(wants(old, Bytes::mib(99), 91) > old);
        assert_eq!(wants(old, half, 91), old);
        // At exactly 90 swaps it stays; so it does below 90 with a tenth free (less than 12.5 %).
        assert_eq!(wants(old, half, 90), old);
        assert_eq!(wants(old, tenth, 0), old);
        assert_eq!(wants(Bytes::gib(64), Bytes::mib(100), 0), Bytes::gib(64));
        assert!(wants(Bytes::gib(64), Bytes::mib(99), 0) > Bytes::gib(64));
        // Between 12.5 % and 14.5 % free it should shrink, but the delta is positive.
        assert_eq!(wants(old, old.fraction(135, 1000), 0), old);
        // 99 of 128 MiB free is more than a small guest should have, but growth is tested first.
        assert_eq!(wants(Bytes::mib(128), Bytes::mib(99), 0), Bytes::mib(128));
    }

    /// Shows the misprint: with the printed denominator less than `dpf + 2 %` is free.
    #[test]
    fn the_printed_denominator_misses_its_aim() {
        // 11 GiB, 50 MiB free: dpf = 0.1, so 12 % should be free afterwards.
        let (old, free) = (Bytes::gib(11), Bytes::mib(50));
        let (o, f) = (old.get() as f64, free.get() as f64);
        let printed = (o * 0.12 - f) / (1.0 - 0.1 + 0.02);
        let part_free = (f + printed) / (o + printed);
        assert!((0.115..0.116).contains(&part_free), "{part_free}");
        let ours = (wants(old, free, 0) - old).get() as f64;
        let part_free = (f + ours) / (o + ours);
        assert!((part_free - 0.12).abs() < 1e-6, "{part_free}");
    }

    #[test]
    fn a_content_guest_keeps_the_target_in_force() {
        // 10 % free is less than dpf and no cause to grow. Its target has moved by 200 MiB since.
        let (held, moved) = (Bytes::gib(7), Bytes::mib(200));
        let free = held.fraction(1, 10);
        let decide = |old| {
            let thresholds = DemandThresholds::default();
            implicit(old, held, Bytes::ZERO, statistics(free, 0), thresholds)
        };
        for old in [held, held + moved, held - moved] {
            assert_eq!(decide(old), old);
        }
        // If the target is too small for what it uses, or much too large, it wants what it would
        // want if it had held the target: 6.3 GiB used, and dpf + 2 % free.
        let used = held - free;
        for old in [Bytes::gib(5), Bytes::gib(9)] {
            let part = part_free(old) as f64 / ONE as f64 + 0.02;
            let expected = used.get() as f64 / (1.0 - part);
            assert!((decide(old).get() as f64 - expected).abs() <= 4096.0, "{old}");
        }
    }

    #[test]
    fn a_change_that_needs_a_missing_figure_is_not_made() {
        let old = Bytes::gib(7);
        let decide = |free, swaps_per_second| {
            let statistics = TenantStatistics { free, swaps_per_second };
            implicit(old, old, Bytes::ZERO, statistics, DemandThresholds::default())
        };
        assert_eq!(decide(None, Some(1000)), old);
        assert_eq!(decide(Some(Bytes::gib(6)), None), old);
        assert!(decide(Some(Bytes::mib(50)), None) > old);
    }

    #[test]
    fn requests_are_added_but_stop_at_the_floor() {
        let (current, floor) = (Bytes::mib(512), Bytes::mib(256));
        assert_eq!(explicit(current, floor, 5 << 20), Bytes::mib(517));
        assert_eq!(explicit(current, floor, -(5 << 20)), Bytes::mib(507));
        assert_eq!(explicit(current, floor, 1), Bytes::mib(512) + Bytes::pages(1));
        assert_eq!(explicit(current, floor, i64::MIN), floor);
    }

    proptest! {
        #[test]
        fn after_the_change_the_desired_part_is_free(
            old in 1..1u64 << 30, free in 0..1u64 << 30, swaps in 0..200u64
        ) {
            let (old, free) = (Bytes::pages(old), Bytes::pages(free.min(old)));
            let wanted = wants(old, free, swaps);
            prop_assert_eq!(wanted.page_ceil(), wanted);
            if wanted != old && wanted > Bytes::ZERO {
                let grown = i128::from(wanted.get()) - i128::from(old.get());
                let free_then = i128::from(free.get()) + grown;
                let part = 100 * part_free(old) + 2 * ONE;
                let off = free_then * 100 * ONE - i128::from(wanted.get()) * part;
                prop_assert!((0..=100 * ONE * 4096).contains(&off), "{}", off);
            }
        }

        #[test]
        fn any_figures_respect_the_floor(
            old: u64,
            held: u64,
            floor: u64,
            free: Option<u64>,
            swaps: Option<u64>,
            request: i64,
        ) {
            let free = free.map(Bytes::new);
            let statistics = TenantStatistics { free, swaps_per_second: swaps };
            let (old, held, floor) = (Bytes::new(old), Bytes::new(held), Bytes::new(floor));
            let thresholds = DemandThresholds::default();
            prop_assert!(implicit(old, held, floor, statistics, thresholds) >= floor);
            prop_assert!(explicit(old, floor, request) >= floor);
        }
    }
}
