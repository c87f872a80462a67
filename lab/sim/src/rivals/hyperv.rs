//! `hyperv`: Hyper-V's Dynamic Memory.
//!
//! Properties: every guest gets its demand and a buffer of 20 % if that fits; otherwise guests of
//! higher priority come first, and every guest gets at least its minimum. Targets sum to at most
//! the budget; the rest stays with the host.
//!
//! Algorithm: `want = demand · 1.2`, within minimum and maximum. While `Σwant` exceeds the budget,
//! priorities are served from the highest: a class whose wants beyond the minima fit gets them, the
//! first class that does not fit divides the rest in proportion to shares, up to its wants, and the
//! others keep their minima.
//! Source: Microsoft's documentation of Dynamic Memory: demand is committed memory, the buffer 20 %
//! by default, priority (memory weight) decides when memory is short. Its balancer is unpublished:
//! the division within a class is our choice.
//!
//! Not reproduced: hot add, startup memory and smart paging; taking memory from a guest only when
//! another guest wants it. Forced deviations: committed memory is `Committed_AS` and, as Linux
//! reports it to Hyper-V (`drivers/hv/hv_balloon.c`, `compute_balloon_floor`), the guest's
//! indispensable memory: less than half of a small guest, 1/32 and 488 MiB of a large one.
//! Committed memory excludes the page cache and includes memory that is never touched. Without an
//! agent's report, the memory in use replaces it.

use std::collections::BTreeSet;
use std::time::Duration;

use ballast_model::{Bytes, PolicyName};
use ballast_policy::{Contender, Division, Pacing, Policy, Problem};

use super::rule::{division, wanted};

pub(super) const NAME: PolicyName = PolicyName::Custom("hyperv");

/// Free memory on top of demand, in percent of it.
const BUFFER_PERCENT: u64 = 20;

/// The policy; see the file's header.
#[derive(Clone, Copy, Debug)]
pub struct HyperV;

impl Policy for HyperV {
    fn name(&self) -> PolicyName {
        NAME
    }

    fn pacing(&self) -> Pacing {
        Pacing::every(Duration::from_secs(1), Bytes::ZERO)
    }

    fn divide(&mut self, problem: &Problem) -> Division {
        let guests = problem.contenders();
        let extra: Vec<u64> =
            guests.iter().map(|guest| (want(guest) - guest.floor).to_pages()).collect();
        let floors: Bytes = guests.iter().map(|guest| guest.floor).sum();
        let mut left = problem.budget().saturating_sub(floors).to_pages();
        let short = extra.iter().sum::<u64>() > left;
        let mut given = vec![0; guests.len()];
        let priorities: BTreeSet<u8> = guests.iter().map(|guest| guest.priority).collect();
        for priority in priorities.into_iter().rev() {
            let class: Vec<usize> =
                (0..guests.len()).filter(|&i| guests[i].priority == priority).collect();
            for (i, part) in by_shares(guests, &extra, class, left) {
                given[i] = part;
                left -= part;
            }
        }
        let rule = match short {
            false => "its demand and a buffer of 20%",
            true => "its demand and a buffer of 20%, as far as its priority goes",
        };
        let wanted = guests.iter().zip(given).map(|(guest, given)| {
            wanted(guest, guest.floor + Bytes::pages(given), demand(guest), rule)
        });
        division(problem, wanted.collect())
    }
}

fn demand(guest: &Contender) -> Bytes {
    let committed = guest.signals.committed;
    committed.map_or(guest.used, |it| it.saturating_add(indispensable(guest.allocation)))
}

/// Smallest memory to which Linux lets a guest of this size be ballooned: 72 MiB of 128, 168 of
/// 512, 360 of 2,048, 744 of 8,192, linear in between and beyond.
fn indispensable(held: Bytes) -> Bytes {
    let (base, divisor) = match held {
        _ if held < Bytes::mib(128) => (8, 2),
        _ if held < Bytes::mib(512) => (40, 4),
        _ if held < Bytes::mib(2048) => (104, 8),
        _ if held < Bytes::mib(8192) => (232, 16),
        _ => (488, 32),
    };
    Bytes::mib(base).saturating_add(held.fraction(1, divisor))
}

fn want(guest: &Contender) -> Bytes {
    let demand = demand(guest);
    let want = demand.saturating_add(demand.fraction(BUFFER_PERCENT, 100));
    want.min(guest.ceiling).page_ceil().clamp(guest.floor, guest.ceiling)
}

/// Divides at most `left` pages among the guests of `class` in proportion to shares, at most
/// `extra` each. Each round satisfies a guest or is the last.
fn by_shares(
    guests: &[Contender],
    extra: &[u64],
    mut class: Vec<usize>,
    mut left: u64,
) -> Vec<(usize, u64)> {
    let mut parts = Vec::with_capacity(class.len());
    while !class.is_empty() {
        let shares: u128 = class.iter().map(|&i| u128::from(guests[i].shares)).sum();
        let available = u128::from(left);
        let is_satisfied =
            |i: usize| u128::from(extra[i]) * shares <= available * u128::from(guests[i].shares);
        let (satisfied, open): (Vec<usize>, Vec<usize>) =
            class.iter().partition(|&&i| is_satisfied(i));
        if satisfied.is_empty() {
            let due = open.iter().map(|&i| i128::from(guests[i].shares) * i128::from(left));
            let pages = ballast_model::largest_remainder(due, shares as i128, left);
            parts.extend(open.into_iter().zip(pages));
            break;
        }
        for &i in &satisfied {
            parts.push((i, extra[i]));
            left -= extra[i];
        }
        class = open;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::tests::{guest, mib, targets};

    fn divide(budget: u64, guests: Vec<Contender>) -> Vec<Bytes> {
        targets(&HyperV.divide(&Problem::new(mib(budget), guests)))
    }

    #[test]
    fn guests_get_demand_and_a_fifth_if_it_fits() {
        let guests = || {
            vec![guest("a", 500, 1_000, 0, (100, 4_000)), guest("b", 50, 1_000, 0, (100, 4_000))]
        };
        // 600, and the minimum of 100 is more than 60.
        assert_eq!(divide(2_000, guests()), [mib(600), mib(100)]);
        let mut committed = guests();
        // 600 committed and 104 + 1,000/8 = 229 of a guest of 1,000: 829 and a fifth.
        committed[1].signals.committed = Some(mib(600));
        let want = mib(829) + mib(829).fraction(1, 5);
        assert_eq!(divide(2_000, committed), [mib(600), want.page_ceil()]);
        let mut small = guests();
        small[0].ceiling = mib(550);
        assert_eq!(divide(2_000, small), [mib(550), mib(100)]);
    }

    #[test]
    fn indispensable_memory_grows_in_five_slopes() {
        for (held, least) in
            [(0, 8), (64, 40), (128, 72), (512, 168), (2_048, 360), (8_192, 744), (32_768, 1_512)]
        {
            assert_eq!(indispensable(mib(held)), mib(least), "{held}");
        }
    }

    #[test]
    fn higher_priorities_come_first_and_shares_divide_within() {
        // Wants 1,200 each, minima 100: beyond them 1,100 each.
        let guests = |priorities: [u8; 3]| {
            let mut guests = vec![
                guest("a", 1_000, 1_000, 0, (100, 4_000)),
                guest("b", 1_000, 1_000, 0, (100, 4_000)),
                guest("c", 1_000, 1_000, 0, (100, 4_000)),
            ];
            for (guest, priority) in guests.iter_mut().zip(priorities) {
                guest.priority = priority;
            }
            guests
        };
        // 1,500 beyond the minima: b 1,100, c the other 400.
        assert_eq!(divide(1_800, guests([0, 9, 5])), [mib(100), mib(1_200), mib(500)]);
        assert_eq!(divide(1_800, guests([1, 1, 1])), [mib(600); 3]);
        // By 1 : 1 : 4 the third's part is 1,000 of 1,500.
        let mut weighted = guests([1, 1, 1]);
        weighted[2].shares = 4_000;
        assert_eq!(divide(1_800, weighted), [mib(350), mib(350), mib(1_100)]);
    }

    #[test]
    fn small_wants_leave_the_rest_to_their_class() {
        // c wants 20 beyond its minimum; the other two share 1,480.
        let guests = vec![
            guest("a", 1_000, 1_000, 0, (100, 4_000)),
            guest("b", 1_000, 1_000, 0, (100, 4_000)),
            guest("c", 100, 1_000, 0, (100, 4_000)),
        ];
        assert_eq!(divide(1_800, guests), [mib(840), mib(840), mib(120)]);
    }
}
