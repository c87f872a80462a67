//! `esx`: VMware ESX, shares with an idle-memory tax of 75 %.
//!
//! Properties: divides the whole budget, up to the maxima; idle memory costs a guest four times as
//! many shares as active memory. No guest is ballooned below 35 % of its maximum. Demand beyond the
//! allocation is not visible: sampling only sees allocated memory.
//!
//! Algorithm: memory is taken from the guest with the lowest `ρ = S / (P · (f + k (1 − f)))`, where
//! `S` are its shares, `P` its pages, `f` the part of them that is active and `k = 1/(1 − τ)`,
//! until all are equal. This file computes the final state, with `a` the active memory:
//!
//! ```text
//! price(P) = P where P ≤ a, else a + k (P − a);     price(P_i) = λ S_i for all within bounds
//! ```
//!
//! and λ as high as the budget allows, found by bisection in integers; the rounding remainder is
//! given out page by page in the order of names. Active memory is estimated every 60 s: it rises at
//! once and falls by a quarter of the difference.
//! Source: Waldspurger, *Memory Resource Management in VMware ESX Server*, OSDI 2002, §3 to §5; the
//! limit of the balloon is its default (`sched.mem.maxmemctl`).
//!
//! Not reproduced: the sampling of 100 pages per period, and its error; page sharing, compression
//! and swapping by the host; the free-memory states high, soft, hard and low that trigger them
//! (here memory is always divided). The exact averages are unpublished; the quarter is our choice.
//! Forced deviations: active memory is the working set if a tracker reports it, at most the
//! allocation; else the memory in use. A floor above 35 % is kept.

use std::collections::BTreeMap;
use std::time::Duration;

use ballast_model::{Bytes, DemandSource, GuestId, PolicyName, Timestamp};
use ballast_policy::{Contender, Division, Pacing, Policy, Problem};

use super::rule::{division, wanted};

pub(super) const NAME: PolicyName = PolicyName::Custom("esx");

/// Price of idle memory, `1/(1 − τ)` at the default tax of 75 %.
const IDLE_COST: u128 = 4;
/// Time between two estimates of active memory.
const SAMPLE_EVERY: Duration = Duration::from_secs(60);
/// Divisor of the difference by which a higher estimate falls.
const FALL: u64 = 4;
/// Share of a guest's maximum that the balloon leaves, in percent.
const KEPT_PERCENT: u64 = 35;
/// λ is in pages per share, divided by this.
const LAMBDA_ONE: u128 = 1 << 32;
/// At this λ every guest is at its ceiling: 2^40 idle pages with a single share.
const LAMBDA_MAX: u128 = LAMBDA_ONE << 43;

/// The policy; see the file's header.
#[derive(Clone, Debug, Default)]
pub struct Esx {
    sampled_at: Option<Timestamp>,
    /// Active memory by guest.
    active: BTreeMap<GuestId, Bytes>,
}

/// A guest in pages.
struct EsxGuest {
    active: u128,
    least: u64,
    most: u64,
    shares: u128,
}

impl Policy for Esx {
    fn name(&self) -> PolicyName {
        NAME
    }

    fn pacing(&self) -> Pacing {
        // `Mem.BalancePeriod`.
        Pacing::every(Duration::from_secs(15), Bytes::ZERO)
    }

    fn divide(&mut self, problem: &Problem) -> Division {
        let due = self.sampled_at.is_none_or(|at| problem.now() >= at + SAMPLE_EVERY);
        if due {
            self.sampled_at = Some(problem.now());
        }
        let before = std::mem::take(&mut self.active);
        for contender in problem.contenders() {
            let touched = touched(contender);
            let active = match before.get(&contender.id) {
                Some(&active) if !due => active,
                Some(&active) if touched < active => active - (active - touched).fraction(1, FALL),
                _ => touched,
            };
            self.active.insert(contender.id.clone(), active);
        }
        let active_of = |contender: &Contender| self.active.get(&contender.id).copied();
        let guests: Vec<EsxGuest> = problem
            .contenders()
            .iter()
            .map(|contender| {
                let kept = contender.ceiling.fraction(KEPT_PERCENT, 100).page_ceil();
                EsxGuest {
                    active: u128::from(active_of(contender).unwrap_or_default().to_pages()),
                    least: kept.max(contender.floor).min(contender.ceiling).to_pages(),
                    most: contender.ceiling.to_pages(),
                    shares: u128::from(contender.shares),
                }
            })
            .collect();
        let parts = divide(&guests, problem.budget().to_pages());
        let wanted = problem.contenders().iter().zip(parts).map(|(contender, pages)| {
            let active = active_of(contender).unwrap_or_default();
            wanted(contender, Bytes::pages(pages), active, "by shares, idle memory taxed at 75%")
        });
        division(problem, wanted.collect())
    }
}

/// Active memory as sampling would estimate it.
fn touched(contender: &Contender) -> Bytes {
    let tracked = contender.demand.filter(|demand| demand.source == DemandSource::WorkingSet);
    tracked.map_or(contender.used, |demand| demand.size).min(contender.allocation)
}

impl EsxGuest {
    /// Pages whose price is `lambda · shares`, within bounds.
    fn at(&self, lambda: u128) -> u64 {
        let price = lambda * self.shares / LAMBDA_ONE;
        let pages = match price.checked_sub(self.active) {
            None => price,
            Some(for_idle) => self.active + for_idle / IDLE_COST,
        };
        u64::try_from(pages).unwrap_or(u64::MAX).clamp(self.least, self.most)
    }
}

/// Pages of each guest; the minimum of each if even these do not fit.
fn divide(guests: &[EsxGuest], budget: u64) -> Vec<u64> {
    let sum = |lambda| guests.iter().map(|guest| u128::from(guest.at(lambda))).sum::<u128>();
    let budget = u128::from(budget);
    // Invariant: sum(low) fits, unless nothing does; sum(high) does not fit, unless everything
    // does.
    let (mut low, mut high) = (0, LAMBDA_MAX);
    if sum(high) <= budget {
        low = high;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if sum(middle) <= budget {
            low = middle;
        } else {
            high = middle;
        }
    }
    let mut left = budget.saturating_sub(sum(low));
    let part = |guest: &EsxGuest| {
        let (pages, next) = (guest.at(low), guest.at(low + 1));
        let more = u64::from(next > pages && left > 0);
        left -= u128::from(more);
        pages + more
    };
    guests.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::tests::{guest, mib, targets};
    use ballast_model::{Confidence, Demand};

    fn assert_close(got: &[Bytes], expected: &[u64]) {
        for (got, expected) in got.iter().zip(expected) {
            assert!(got.abs_diff(mib(*expected)) <= Bytes::pages(1), "{got}, not {expected}MiB");
        }
        assert_eq!(got.len(), expected.len());
    }

    fn fresh(budget: u64, guests: Vec<Contender>) -> Vec<Bytes> {
        targets(&Esx::default().divide(&Problem::new(mib(budget), guests)))
    }

    #[test]
    fn idle_memory_costs_four_times_as_much() {
        // a is fully active, b not at all: P_a = λ, P_b = λ/4; 1,500 is 1,200 and 300.
        let guests =
            vec![guest("a", 2_000, 2_000, 0, (10, 3_000)), guest("b", 0, 2_000, 2_000, (10, 800))];
        assert_close(&fresh(1_500, guests), &[1_200, 300]);
        // b active with 100: 100 + (λ − 100)/4 = 300, λ = 900: 900 of 1,200.
        let guests = vec![
            guest("a", 2_000, 2_000, 0, (10, 2_000)),
            guest("b", 100, 2_000, 1_900, (10, 800)),
        ];
        assert_close(&fresh(1_200, guests), &[900, 300]);
    }

    #[test]
    fn shares_divide_equally_idle_memory() {
        let mut guests = vec![
            guest("a", 2_000, 2_000, 0, (10, 2_500)),
            guest("b", 2_000, 2_000, 0, (10, 5_000)),
        ];
        guests[1].shares = 2_000;
        assert_close(&fresh(3_000, guests), &[1_000, 2_000]);
    }

    #[test]
    fn balloons_take_at_most_65_percent() {
        let guests =
            || vec![guest("a", 900, 1_000, 0, (10, 1_000)), guest("b", 0, 1_000, 0, (10, 1_000))];
        // a active with 900, b at 35 % of 1,000.
        assert_close(&fresh(1_000, guests()), &[650, 350]);
        assert_close(&fresh(2_000, guests()), &[1_000, 1_000]);
        assert_close(&fresh(100, guests()), &[350, 350]);
        let mut floored = guests();
        floored[1].floor = mib(500);
        assert_close(&fresh(1_000, floored), &[500, 500]);
    }

    #[test]
    fn tracked_working_set_counts_up_to_the_allocation() {
        let mut guests = vec![
            guest("a", 1_000, 1_000, 0, (10, 3_000)),
            guest("b", 1_000, 1_000, 0, (10, 2_000)),
        ];
        let demand = |size| Demand {
            size: mib(size),
            source: DemandSource::WorkingSet,
            age: Duration::ZERO,
            confidence: Confidence::USED,
        };
        guests[1].demand = Some(demand(0));
        guests[0].demand = Some(demand(5_000));
        // a: active 1,000 of what it holds; b: 0. a = 1,000 + (λ − 1,000)/4, b = λ/4 at its 700 at
        // least: λ = 3,000 gives 1,500 and 750.
        assert_close(&fresh(2_250, guests), &[1_500, 750]);
    }

    #[test]
    fn active_memory_rises_at_once_and_falls_slowly() {
        let mut esx = Esx::default();
        let mut at = |seconds: u64, active: u64| {
            let contender = guest("a", active, 2_000, 0, (10, 2_000));
            let now = Timestamp::from_millis(seconds * 1_000);
            esx.divide(&Problem::new(mib(1_000), vec![contender]).at(now));
            esx.active.values().copied().next().unwrap()
        };
        assert_eq!(at(0, 1_000), mib(1_000));
        assert_eq!(at(15, 1_400), mib(1_000));
        assert_eq!(at(60, 1_400), mib(1_400));
        assert_eq!(at(120, 200), mib(1_100));
        assert_eq!(at(135, 200), mib(1_100));
        assert_eq!(at(180, 200), mib(875));
    }
}
