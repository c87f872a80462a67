//! `qmemman`: the memory manager of Qubes OS.
//!
//! Properties: distributes all memory but 50 MiB and rounding of 0.1 %; a guest's preference is 1.3
//! times its use, regardless of its need. Does nothing if too little would move. Targets sum to at
//! most the budget.
//!
//! Algorithm, with `free` = budget − Σ actual − 50 MiB:
//!
//! ```text
//! pref  = greatest(200 MiB, least(1.3 · used, max))
//! avail = free − Σ(pref − actual)
//! avail > 0:  target = 0.999 · (pref + avail · pref / Σpref), at most max;
//!             the remainder is divided evenly among those below max, times 0.999 again
//! else:       donors (actual above pref, or at max) shrink to pref, unless that yields under 10 MiB;
//!             acceptors get 0.999 · (actual + squeezed · pref / Σpref of acceptors), at most max,
//!             where squeezed = free + the donors' yield; nothing if that is negative
//! ```
//!
//! Acts only if the changes add up to more than 150 MiB, or a guest below its pref gains more than
//! 15 MiB, or less than 35 MiB of the 50 are left.
//! Source: QubesOS/qubes-core-admin, `qubes/qmemman/algo.py`, `systemstate.py`.
//!
//! Not reproduced: dom0's extra 350 MiB (there is no dom0 here); the request for memory at a
//! guest's start; waiting for donors and marking those that do not release memory, which the guard
//! does. Forced deviations: `actual` is the current target; a ceiling below the minimum of 200 MiB
//! takes precedence, and our floor is kept; the hypervisor's free memory is the rest of the budget.
//! `used` is `MemTotal` minus available memory; policies do not know the swap in use, which Qubes
//! counts, so a swapping guest grows by 30 % of its allocation at a time.

use std::time::Duration;

use ballast_model::{Bytes, Desired, PolicyName};
use ballast_policy::{Contender, Division, Pacing, Policy, Problem};

use super::rule::{division, signed, unsigned, wanted};

pub(super) const NAME: PolicyName = PolicyName::Custom("qmemman");

/// `XEN_FREE_MEM_LEFT`.
const LEFT_FREE: i128 = 50 << 20;
/// `MIN_PREFMEM`.
const PREF_MIN: i128 = 200 << 20;
/// `MIN_TOTAL_MEMORY_TRANSFER`.
const TRANSFER_MIN: i128 = 150 << 20;
/// `MIN_MEM_CHANGE_WHEN_UNDER_PREF`.
const GAIN_MIN: i128 = 15 << 20;
/// Smallest amount taken from a donor.
const DONATION_MIN: i128 = 10 << 20;

/// The policy; see the file's header.
#[derive(Clone, Copy, Debug)]
pub struct Qmemman;

impl Policy for Qmemman {
    fn name(&self) -> PolicyName {
        NAME
    }

    fn pacing(&self) -> Pacing {
        // At every report of a guest, about once a second.
        Pacing::every(Duration::from_secs(1), Bytes::ZERO)
    }

    fn divide(&mut self, problem: &Problem) -> Division {
        let guests: Vec<QmemmanGuest> =
            problem.contenders().iter().map(QmemmanGuest::from).collect();
        let held: i128 = guests.iter().map(|guest| guest.actual).sum();
        let free = signed(problem.budget()) - held;
        let (mut targets, rule) = balance(&guests, free - LEFT_FREE);
        let moves = is_significant(&guests, &targets, free);
        if !moves {
            targets = guests.iter().map(|guest| guest.actual).collect();
        }
        let rule = if moves { rule } else { "too little would move" };
        let wanted = problem.contenders().iter().zip(targets);
        let wanted = wanted.map(|(it, target)| wanted_of(it, target, rule)).collect();
        division(problem, wanted)
    }
}

fn wanted_of(contender: &Contender, target: i128, rule: &'static str) -> Desired {
    wanted(contender, unsigned(target), contender.used, rule)
}

/// A guest in bytes.
struct QmemmanGuest {
    actual: i128,
    pref: i128,
    max: i128,
}

impl From<&Contender> for QmemmanGuest {
    fn from(contender: &Contender) -> QmemmanGuest {
        let max = signed(contender.ceiling);
        let pref = (13 * signed(contender.used) / 10).min(max).max(PREF_MIN).min(max);
        QmemmanGuest { actual: signed(contender.allocation), pref, max }
    }
}

/// 0.999 times the amount.
fn rounded(bytes: i128) -> i128 {
    bytes * 999 / 1000
}

/// The target of each guest; `free` excludes the 50 MiB.
fn balance(guests: &[QmemmanGuest], free: i128) -> (Vec<i128>, &'static str) {
    let needed: i128 = guests.iter().map(|guest| guest.pref - guest.actual).sum();
    let available = free - needed;
    if available > 0 {
        (
            balance_when_enough(guests, available),
            "1.3 times its use, and a proportional part of the rest",
        )
    } else {
        (
            balance_when_low(guests, free),
            "memory is short: memory of others beyond 1.3 times their use is divided",
        )
    }
}

fn balance_when_enough(guests: &[QmemmanGuest], available: i128) -> Vec<i128> {
    let prefs: i128 = guests.iter().map(|guest| guest.pref).sum::<i128>().max(1);
    let mut left = 0;
    let mut acceptors = 0;
    let mut targets: Vec<i128> = Vec::with_capacity(guests.len());
    for guest in guests {
        let target = rounded(guest.pref + available * guest.pref / prefs);
        left += (target - guest.max).max(0);
        acceptors += i128::from(target <= guest.max);
        targets.push(target.min(guest.max));
    }
    // Each round fills a guest to its maximum or leaves nothing.
    while left > 0 && acceptors > 0 {
        let bonus = rounded(left / acceptors);
        let mut still_left = 0;
        let mut still_accept = acceptors;
        for (target, guest) in targets.iter_mut().zip(guests) {
            if *target < guest.max {
                let with_bonus = *target + bonus;
                still_left += (with_bonus - guest.max).max(0);
                still_accept -= i128::from(with_bonus >= guest.max);
                *target = with_bonus.min(guest.max);
            }
        }
        (left, acceptors) = (still_left, still_accept);
    }
    targets
}

fn balance_when_low(guests: &[QmemmanGuest], free: i128) -> Vec<i128> {
    let is_donor = |guest: &QmemmanGuest| guest.pref < guest.actual || guest.actual >= guest.max;
    let mut squeezed = free;
    let mut prefs = 0;
    let mut targets: Vec<i128> = guests.iter().map(|guest| guest.actual).collect();
    for (target, guest) in targets.iter_mut().zip(guests) {
        let yields = guest.actual - guest.pref;
        if !is_donor(guest) {
            prefs += guest.pref;
        } else if yields >= DONATION_MIN {
            squeezed += yields;
            *target = guest.pref;
        }
    }
    if squeezed >= 0 && prefs > 0 {
        for (target, guest) in targets.iter_mut().zip(guests).filter(|(_, guest)| !is_donor(guest))
        {
            *target = rounded(guest.actual + squeezed * guest.pref / prefs).min(guest.max);
        }
    }
    targets
}

/// Whether enough memory moves; `free` is all unallocated memory.
fn is_significant(guests: &[QmemmanGuest], targets: &[i128], free: i128) -> bool {
    let changes =
        || targets.iter().zip(guests).map(|(target, guest)| (target - guest.actual, guest));
    LEFT_FREE - free > GAIN_MIN
        || changes().map(|(change, _)| change.abs()).sum::<i128>() > TRANSFER_MIN
        || changes().any(|(change, guest)| guest.actual < guest.pref && change > GAIN_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::tests::{guest, mib, targets};

    fn divide(budget: u64, guests: Vec<Contender>) -> Vec<Bytes> {
        targets(&Qmemman.divide(&Problem::new(mib(budget), guests)))
    }

    /// 0.999 of MiB, in whole pages.
    fn rounded_mib(size: u64) -> Bytes {
        Bytes::new((size << 20) * 999 / 1000).page_floor()
    }

    #[test]
    fn enough_memory_is_divided_by_preference() {
        // Prefs 1,300 and 650; avail = (4,000 − 2,000 − 50) − (1,950 − 2,000) = 2,000: 3,950 in
        // all; 2/3 and 1/3 of that are 2,633.3 and 1,316.7.
        let guests = vec![
            guest("a", 1_000, 1_000, 0, (100, 9_000)),
            guest("b", 500, 1_000, 500, (100, 9_000)),
        ];
        let exact = |numerator: u64| {
            Bytes::new((((3_950u128 << 20) * u128::from(numerator) / 3) * 999 / 1000) as u64)
        };
        let got = divide(4_000, guests);
        for (got, numerator) in got.iter().zip([2, 1]) {
            assert!(got.abs_diff(exact(numerator)) < Bytes::pages(2), "{got}");
        }
    }

    #[test]
    fn rest_beyond_a_maximum_goes_to_others() {
        // avail = 3,950 − 2,600 = 1,350: each 0.999 · 1,975 = 1,973.025; a's maximum leaves
        // 473.025; b gets 0.999 · 473.025 = 472.55 of it: 2,445.58 in all.
        let guests = vec![
            guest("a", 1_000, 1_000, 0, (100, 1_500)),
            guest("b", 1_000, 1_000, 0, (100, 9_000)),
        ];
        let got = divide(4_000, guests);
        assert_eq!(got[0], mib(1_500));
        assert!((got[1].as_mib_f64() - 2_445.577).abs() < 0.01, "{}", got[1]);
    }

    #[test]
    fn donors_shrink_to_their_preference_under_shortage() {
        // free = 2,050 − 2,000 − 50 = 0; prefs 1,300 and 520, lacking 300 and spare 480: avail 180,
        // so not short. With a using 1,200 its pref is 1,560: lacking 560, avail −80: short.
        let guests = vec![
            guest("a", 1_200, 1_000, 0, (100, 9_000)),
            guest("b", 400, 1_000, 600, (100, 9_000)),
        ];
        // b gives 480, a gets 0.999 · 1,480.
        assert_eq!(divide(2_050, guests), [rounded_mib(1_480), mib(520)]);
    }

    #[test]
    fn acceptors_divide_by_preference_without_small_donations() {
        // Prefs 1,300, 650 and 995.8; c would yield 4.2 MiB. free = 150: a gets 100, b 50.
        let guests = vec![
            guest("a", 1_000, 1_000, 0, (100, 9_000)),
            guest("b", 500, 500, 0, (100, 9_000)),
            guest("c", 766, 1_000, 234, (100, 9_000)),
        ];
        let expected = [rounded_mib(1_100), rounded_mib(550), mib(1_000)];
        assert_eq!(divide(2_700, guests), expected);
    }

    #[test]
    fn nothing_is_granted_while_overcommitted() {
        // free = 1,500 − 2,000 − 50 = −550; b yields 480: −70 is left, a gets nothing.
        let guests = vec![
            guest("a", 1_200, 1_000, 0, (100, 9_000)),
            guest("b", 400, 1_000, 600, (100, 9_000)),
        ];
        assert_eq!(divide(1_500, guests), [mib(1_000), mib(520)]);
    }

    #[test]
    fn small_moves_are_skipped() {
        // Both prefer 1,300 and hold it; 100 MiB beyond the 50 are free: 50 each, less 0.1 %.
        let still = |budget| {
            let guests = vec![
                guest("a", 1_000, 1_300, 300, (100, 9_000)),
                guest("b", 1_000, 1_300, 300, (100, 9_000)),
            ];
            divide(budget, guests)
        };
        assert_eq!(still(2_750), [mib(1_300), mib(1_300)]);
        // With 200 beyond, 2 · (0.999 · 1,400 − 1,300) = 197.2 MiB would move.
        assert_eq!(still(2_850), [rounded_mib(1_400), rounded_mib(1_400)]);
    }

    #[test]
    fn guest_below_preference_moves_under_150_mib() {
        // Pref 1,040; free 80 − 50 = 30 → 0.999 · (1,030) = 1,028.97, a gain of 29 MiB.
        let small = |budget| divide(budget, vec![guest("a", 800, 1_000, 0, (100, 9_000))]);
        assert_eq!(small(1_080), [rounded_mib(1_030)]);
        // A gain of 9.99 is not worth it.
        assert_eq!(small(1_061), [mib(1_000)]);
    }

    #[test]
    fn preference_is_at_least_200_mib() {
        // Uses 10, holds 700, donor to 200; the other takes 0.999 · (1,000 + 500) at most.
        let guests =
            vec![guest("a", 2_000, 1_000, 0, (100, 9_000)), guest("b", 10, 700, 690, (100, 9_000))];
        assert_eq!(divide(1_750, guests), [rounded_mib(1_500), mib(200)]);
    }
}
