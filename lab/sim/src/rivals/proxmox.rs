//! `proxmox`: the automatic ballooning of Proxmox VE.
//!
//! Properties: aims at 80 % of the host's memory in use, within 10 MiB, regardless of the guests'
//! needs; moves at most 100 MiB per guest and decision. Shares determine the amounts; free memory
//! only determines the order. Has no budget.
//!
//! Algorithm, every 10 s: `goal` = 80 % of the host's memory − what is in use.
//!
//! ```text
//! comfortable: free > 0.25 · min and balloon ≥ min
//! goal >  10 MiB: give to those not comfortable; if nothing moved, to all
//! goal < −10 MiB: take from the comfortable; if nothing moved, from all
//! in rounds, until nothing is left or nothing moves:
//!     desired = clamp(min + shares / Σshares · (Σ(balloon − min) + rest), min, max)
//!     a step towards desired of at most 100 MiB from where the balloon stands
//! ```
//!
//! A guest whose desired size is below its allocation is shrunk even while memory is given out.
//! Source: proxmox/pve-manager, `PVE/AutoBalloon.pm` (`compute_alg1`), `PVE/Service/pvestatd.pm`.
//!
//! Not reproduced: guests excluded by zero shares (ours are at least 1) or by migration. Forced
//! deviations: the number of rounds is limited; `balloon` is the current target; guests are ordered
//! by name instead of by a hash. If the host's memory is unknown, the budget replaces it, so that
//! 80 % of the budget is the goal.

use std::time::Duration;

use ballast_model::{Bytes, PolicyName};
use ballast_policy::{Division, Pacing, Policy, Problem};

use super::rule::{division, free, host_free_and_total, signed, unsigned, wanted};

pub(super) const NAME: PolicyName = PolicyName::Custom("proxmox");

/// The share of the host's memory that should be in use, in percent (`ballooning-target`).
const HOST_USED_PERCENT: i128 = 80;
/// A goal up to this size is ignored.
const GOAL_MIN: i128 = 10 << 20;
/// Largest change of a guest in one decision.
const STEP_MAX: i128 = 100 << 20;
/// Most rounds of one distribution. Each round that changes anything takes a guest to its step or
/// its limit, or divides the rest among fewer guests; a few rounds in practice.
const ROUNDS_MAX: usize = 64;

/// The policy; see the file's header.
#[derive(Clone, Copy, Debug)]
pub struct Proxmox;

/// A guest in bytes.
struct ProxmoxGuest {
    balloon: i128,
    min: i128,
    max: i128,
    shares: i128,
    comfortable: bool,
    /// Its target so far.
    decided: Option<i128>,
    /// Whether it is excluded from further rounds of this distribution.
    done: bool,
}

impl Policy for Proxmox {
    fn name(&self) -> PolicyName {
        NAME
    }

    fn pacing(&self) -> Pacing {
        Pacing::every(Duration::from_secs(10), Bytes::ZERO)
    }

    fn divide(&mut self, problem: &Problem) -> Division {
        let (host_free, host_total) = host_free_and_total(problem);
        let host_used = signed(host_total) - signed(host_free);
        let goal = signed(host_total) * HOST_USED_PERCENT / 100 - host_used;
        let mut guests: Vec<ProxmoxGuest> = problem
            .contenders()
            .iter()
            .map(|contender| {
                let (balloon, min) = (signed(contender.allocation), signed(contender.floor));
                ProxmoxGuest {
                    balloon,
                    min,
                    max: signed(contender.ceiling),
                    shares: i128::from(contender.shares),
                    comfortable: 4 * signed(free(contender)) > min && balloon >= min,
                    decided: None,
                    done: false,
                }
            })
            .collect();
        let rule = if goal > GOAL_MIN {
            first_then_all(&mut guests, false, goal);
            "the host is under 80% in use: give by shares, at most 100MiB"
        } else if goal < -GOAL_MIN {
            first_then_all(&mut guests, true, goal);
            "the host is over 80% in use: take by shares, at most 100MiB"
        } else {
            "the host is 80% in use, give or take 10MiB"
        };
        let wanted = problem.contenders().iter().zip(&guests).map(|(contender, guest)| {
            let target = guest.decided.map_or(contender.allocation, unsigned);
            wanted(contender, target, contender.used, rule)
        });
        division(problem, wanted.collect())
    }
}

/// Serves the guests that are `comfortable`, or those that are not; if nothing moved, all guests.
fn first_then_all(guests: &mut [ProxmoxGuest], comfortable: bool, goal: i128) {
    let rest = change(guests, |guest| guest.comfortable == comfortable, goal);
    let stuck = if goal > 0 { rest >= goal } else { rest <= goal };
    if stuck {
        change(guests, |_| true, rest);
    }
}

/// Distributes `bytes`, or takes them if negative; returns the remainder.
fn change(guests: &mut [ProxmoxGuest], of: impl Fn(&ProxmoxGuest) -> bool, bytes: i128) -> i128 {
    let mut rest = bytes;
    guests.iter_mut().for_each(|guest| guest.done = false);
    for _ in 0..ROUNDS_MAX {
        let open = || guests.iter().filter(|guest| of(guest) && !guest.done);
        let shares: i128 = open().map(|guest| guest.shares).sum();
        let beyond_min: i128 =
            open().map(|guest| guest.decided.unwrap_or(guest.balloon) - guest.min).sum();
        let to_divide = beyond_min + rest;
        if shares == 0 || rest == 0 {
            break;
        }
        let mut changes = 0;
        let mut progress = false;
        for guest in guests.iter_mut().filter(|guest| of(guest) && !guest.done) {
            let desired = guest.min + to_divide * guest.shares / shares;
            let desired = desired.clamp(guest.min, guest.max);
            let target = if bytes > 0 && desired > guest.balloon {
                desired.min(guest.balloon + STEP_MAX)
            } else if desired < guest.balloon {
                desired.max(guest.balloon - STEP_MAX)
            } else {
                guest.done = true;
                continue;
            };
            let change = target - guest.decided.unwrap_or(guest.balloon);
            guest.decided = Some(target);
            changes += change;
            progress |= change != 0;
        }
        rest -= changes;
        if !progress {
            break;
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::tests::{guest, host_mib, mib, targets};
    use ballast_policy::Contender;

    /// A host of 10,000 MiB: at 80 % with 2,000 free.
    fn divide(host_free: u64, guests: Vec<Contender>) -> Vec<Bytes> {
        let problem = Problem::new(mib(10_000), guests).on(host_mib(host_free, 10_000));
        targets(&Proxmox.divide(&problem))
    }

    fn needy(name: &str) -> Contender {
        guest(name, 1_000, 1_000, 0, (400, 4_000))
    }

    fn comfortable(name: &str) -> Contender {
        guest(name, 400, 1_000, 600, (400, 4_000))
    }

    #[test]
    fn deviations_up_to_ten_mib_are_ignored() {
        for host_free in [1_990, 2_000, 2_010] {
            assert_eq!(divide(host_free, vec![needy("a"), comfortable("b")]), [mib(1_000); 2]);
        }
    }

    #[test]
    fn needy_guests_gain_first_and_comfortable_lose_first() {
        // 60 to give: a's part is 400 + (600 + 60) = 1,060; b is not served.
        assert_eq!(divide(2_060, vec![needy("a"), comfortable("b")]), [mib(1_060), mib(1_000)]);
        // 60 to take: from b alone.
        assert_eq!(divide(1_940, vec![needy("a"), comfortable("b")]), [mib(1_000), mib(940)]);
    }

    #[test]
    fn guest_moves_by_at_most_100_mib() {
        assert_eq!(divide(4_000, vec![needy("a"), comfortable("b")]), [mib(1_100), mib(1_000)]);
        assert_eq!(divide(500, vec![needy("a"), comfortable("b")]), [mib(1_000), mib(900)]);
    }

    #[test]
    fn all_are_served_if_none_is_preferred() {
        // Two comfortable guests share 80: each 400 + (1,200 + 80) / 2 = 1,040.
        assert_eq!(divide(2_080, vec![comfortable("a"), comfortable("b")]), [mib(1_040); 2]);
        assert_eq!(divide(1_920, vec![needy("a"), needy("b")]), [mib(960); 2]);
    }

    #[test]
    fn memory_beyond_the_minima_follows_shares() {
        // Σ(balloon − min) + 60 = 1,260 by 1 : 2 is 420 and 840: 820 and 1,240, at most 100 away.
        // The rest of 60 is divided again, and nothing more can move.
        let mut guests = vec![needy("a"), needy("b")];
        guests[1].shares = 2_000;
        assert_eq!(divide(2_060, guests), [mib(900), mib(1_100)]);
    }

    #[test]
    fn limits_hold_and_the_rest_goes_to_others() {
        // 60 to give; a has room for 10. Rounds: 1,030 and 1,030 wanted, a stops at 1,010; the rest
        // of 20 is divided again: Σ = 610 + 630 + 20 = 1,260, b's half 1,030 again. Nothing moves
        // further.
        let guests = vec![guest("a", 1_000, 1_000, 0, (400, 1_010)), needy("b")];
        assert_eq!(divide(2_060, guests), [mib(1_010), mib(1_030)]);
        // Nothing is taken at the minimum; the other guest gives one step.
        let guests = vec![guest("a", 0, 400, 400, (400, 4_000)), comfortable("b")];
        assert_eq!(divide(1_500, guests), [mib(400), mib(900)]);
    }

    #[test]
    fn comfort_needs_over_a_quarter_of_minimum_free() {
        // 100 MiB free of a minimum of 400: needy; 101: comfortable.
        let with_free = |free| guest("a", 900, 1_000, free, (400, 4_000));
        assert_eq!(divide(2_060, vec![with_free(100), needy("b")]), [mib(1_030), mib(1_030)]);
        assert_eq!(divide(2_060, vec![with_free(101), needy("b")]), [mib(1_000), mib(1_060)]);
    }

    #[test]
    fn budget_replaces_an_unknown_host() {
        // 80 % of 2,500 is 2,000; 1,960 are held.
        let guests = vec![guest("a", 1_960, 1_960, 0, (400, 4_000))];
        assert_eq!(targets(&Proxmox.divide(&Problem::new(mib(2_500), guests))), [mib(2_000)]);
    }
}
