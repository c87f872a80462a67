//! `squeezed`: the memory ballooning daemon of XAPI (XenServer, XCP-ng).
//!
//! Properties: ignores the guests' state; each guest gets the same fraction of its range from
//! minimum to maximum. Divides the whole budget, up to the maxima. Targets change only when guests
//! start or stop or limits change.
//!
//! Algorithm: `γ = clamp(surplus / Σ(max − min), 0, 1)` where the surplus is the budget beyond all
//! minima, `target = min + γ (max − min)`, exact, by largest remainder.
//! Source: xapi-project/xen-api, `ocaml/squeezed` and its design notes.
//!
//! Not reproduced: reservations for starting guests; dom0 and the slush reserve. Forced deviations:
//! squeezed excludes a guest that makes no progress for 5 s; here the guard does that, with its own
//! timeout, and also frees before it allocates.

use std::time::Duration;

use ballast_model::{Bytes, PolicyName, largest_remainder};
use ballast_policy::{Division, Pacing, Policy, Problem};

use super::rule::{division, wanted};

pub(super) const NAME: PolicyName = PolicyName::Custom("squeezed");

/// The policy; see the file's header.
#[derive(Clone, Copy, Debug)]
pub struct Squeezed;

impl Policy for Squeezed {
    fn name(&self) -> PolicyName {
        NAME
    }

    fn pacing(&self) -> Pacing {
        Pacing::every(Duration::from_secs(10), Bytes::ZERO)
    }

    fn divide(&mut self, problem: &Problem) -> Division {
        let guests = problem.contenders();
        let ranges: Vec<i128> =
            guests.iter().map(|c| i128::from((c.ceiling - c.floor).to_pages())).collect();
        let range: i128 = ranges.iter().sum();
        let floors: Bytes = guests.iter().map(|c| c.floor).sum();
        let surplus = i128::from(problem.budget().saturating_sub(floors).to_pages()).min(range);
        let parts: Vec<u64> = if range == 0 {
            vec![0; guests.len()]
        } else {
            largest_remainder(ranges.iter().map(|part| part * surplus), range, surplus as u64)
        };
        let wanted = guests.iter().zip(parts).map(|(guest, part)| {
            let target = guest.floor + Bytes::pages(part);
            wanted(guest, target, guest.used, "the same fraction of its range as every guest")
        });
        division(problem, wanted.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::tests::{guest, mib, targets};

    #[test]
    fn every_guest_gets_the_same_fraction_of_its_range() {
        // Ranges 800 and 400 of 1,200: minima 400, so 1,000 leaves 600: γ = 1/2.
        for (budget, expected) in [
            (1_000, [600, 400]),
            (400, [200, 200]),
            (300, [200, 200]),
            (1_600, [1_000, 600]),
            (9_000, [1_000, 600]),
            (430, [220, 210]),
        ] {
            let guests =
                vec![guest("a", 900, 500, 0, (200, 1_000)), guest("b", 0, 500, 500, (200, 600))];
            let division = Squeezed.divide(&Problem::new(mib(budget), guests));
            assert_eq!(targets(&division), expected.map(mib), "{budget}");
        }
    }

    #[test]
    fn fixed_guests_keep_their_memory() {
        let guests = vec![guest("a", 900, 500, 0, (200, 200)), guest("b", 0, 500, 0, (300, 300))];
        let division = Squeezed.divide(&Problem::new(mib(900), guests));
        assert_eq!(targets(&division), [mib(200), mib(300)]);
    }
}
