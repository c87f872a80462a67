//! Strict priorities, under every policy.
//!
//! Properties: with equal priorities nothing changes. Else nobody of higher priority lacks what it
//! needs while somebody of lower priority is above its floor; nobody is moved past its floor or its
//! ceiling; what is taken is what is given; a guest never has less for having a higher priority, up
//! to the pages of rounding.
//!
//! Algorithm: after the policy has divided, a guest needs
//!
//! ```text
//! need_i = min( ceiling_i, max(demand_i, A_i) + f )
//! ```
//!
//! The reserve `f` belongs to it: used memory `A_i` never exceeds what a guest holds, so one of which
//! no more is known could never grow without. From the highest priority down, those who lack some of
//! their need take it, first of what the policy left over, then of the guests of the lowest priority
//! down to their floors, then of those of the next one. Within a priority everybody takes in
//! proportion to what it lacks and gives in proportion to what it has above its floor, by largest
//! remainder. Among the lowest there is nobody to take from, and they take nothing left over: what
//! they have is the policy's to say.
//!
//! Cost: O(n), and O(n) more for each different priority at most.
//! Source: ours; no paper has priorities.
//! Limits: a policy's own limits of rate do not hold for what priority moves; the guard's do.

use ballast_model::{Bytes, GuestId, Others, Reason, largest_remainder};

use crate::problem::{Contender, Division, Problem};

/// One guest, in pages; no larger than need be, for there may be many.
struct Seat {
    floor: u64,
    need: u64,
    target: u64,
    taken: u64,
    given: u64,
    /// What it took is the pot of this rank.
    takes_from: u8,
    /// The first pot it paid into is that of this rank.
    pays_into: u8,
    /// Those who have something of the later ones.
    later_takers: u32,
    priority: u8,
}

/// What the guests of one priority take together: all who do have the same payers, and who pays into
/// it the same takers.
#[derive(Default)]
struct Pot {
    payers: Option<Others>,
    takers: Option<Others>,
}

impl Seat {
    fn new(contender: &Contender, target: Bytes, reserve: Bytes) -> Seat {
        let wants = contender.demand().max(contender.used).saturating_add(reserve);
        Seat {
            floor: contender.floor.to_pages(),
            need: wants.min(contender.ceiling).page_ceil().to_pages(),
            target: target.to_pages(),
            taken: 0,
            given: 0,
            takes_from: 0,
            pays_into: 0,
            later_takers: 0,
            priority: contender.priority,
        }
    }

    fn lack(&self) -> u64 {
        self.need.saturating_sub(self.target)
    }

    fn spare(&self) -> u64 {
        self.target.saturating_sub(self.floor)
    }
}

/// Moves memory of `division`, which answers `problem`, to guests of higher priority that need it.
pub(crate) fn apply(problem: &Problem, reserve: Bytes, division: &mut Division) {
    let contenders = problem.contenders();
    let all_alike = contenders.iter().map(|c| c.priority).is_sorted_by(|a, b| a == b);
    if all_alike || division.wanted.len() != contenders.len() {
        return;
    }
    // From the lowest, each in the order of names.
    let mut by_priority: Vec<Vec<usize>> = vec![Vec::new(); 1 + usize::from(u8::MAX)];
    let mut left_over = problem.budget();
    let with_targets = contenders.iter().zip(&division.wanted).enumerate();
    let mut seats: Vec<Seat> = with_targets
        .map(|(i, (contender, wanted))| {
            let target = wanted.desired.target;
            by_priority[usize::from(contender.priority)].push(i);
            left_over = left_over.saturating_sub(target);
            Seat::new(contender, target, reserve)
        })
        .collect();
    let mut left_over = left_over.to_pages();
    let classes: Vec<&[usize]> =
        by_priority.iter().map(Vec::as_slice).filter(|class| !class.is_empty()).collect();
    let mut pots: Vec<Pot> = classes.iter().map(|_| Pot::default()).collect();
    let mut lowest_with_spare = 0;
    for (rank, class) in classes.iter().enumerate().skip(1).rev() {
        let mut lacking: u64 = class.iter().map(|&i| seats[i].lack()).sum();
        let of_nobody = lacking.min(left_over);
        left_over -= of_nobody;
        lacking -= of_nobody;
        let mut payments = Vec::new();
        while lacking > 0 && lowest_with_spare < rank {
            let paid = pay(&mut seats, classes[lowest_with_spare], lacking, &mut payments);
            lacking -= paid;
            if lacking > 0 {
                lowest_with_spare += 1;
            }
        }
        let paid: u64 = payments.iter().map(|(_, pages)| pages).sum();
        let takings = take(&mut seats, class, of_nobody + paid);
        let name = |i: usize| contenders[i].id.clone();
        pots[rank] = Pot { payers: others(&payments, name), takers: others(&takings, name) };
        note(&mut seats, rank as u8, &payments, &takings);
    }
    for (seat, wanted) in seats.iter().zip(&mut division.wanted) {
        if seat.taken > 0 || seat.given > 0 {
            wanted.desired.target = Bytes::pages(seat.target);
            let reason = std::mem::replace(&mut wanted.desired.reason, PLACEHOLDER);
            wanted.desired.reason = seat.reason(&pots, reason);
        }
    }
}

/// Stands in for a reason while it is wrapped.
const PLACEHOLDER: Reason = Reason::Committed { committed: Bytes::ZERO };

/// Has the guests of `class` give up to `asked` in proportion to what they can spare; what came.
fn pay(seats: &mut [Seat], class: &[usize], asked: u64, payments: &mut Vec<(usize, u64)>) -> u64 {
    let spare: Vec<u64> = class.iter().map(|&i| seats[i].spare()).collect();
    let paid = asked.min(spare.iter().sum());
    for (&i, pages) in class.iter().zip(in_proportion(&spare, paid)) {
        if pages > 0 {
            seats[i].target -= pages;
            payments.push((i, pages));
        }
    }
    paid
}

/// Gives `pages` to the guests of `class` in proportion to what they lack, who lack no less.
fn take(seats: &mut [Seat], class: &[usize], pages: u64) -> Vec<(usize, u64)> {
    let lack: Vec<u64> = class.iter().map(|&i| seats[i].lack()).collect();
    let parts = class.iter().copied().zip(in_proportion(&lack, pages));
    let takings: Vec<(usize, u64)> = parts.filter(|(_, pages)| *pages > 0).collect();
    for &(i, pages) in &takings {
        seats[i].target += pages;
        seats[i].taken += pages;
    }
    takings
}

/// `total` in proportion to `weights`, which add up to no less: nobody's part exceeds its weight.
fn in_proportion(weights: &[u64], total: u64) -> Vec<u64> {
    let sum: i128 = weights.iter().map(|&weight| i128::from(weight)).sum();
    if sum == 0 {
        return vec![0; weights.len()];
    }
    let due = weights.iter().map(|&weight| i128::from(weight) * i128::from(total));
    largest_remainder(due, sum, total)
}

/// Notes who paid into the pot of `rank` and who took from it.
fn note(seats: &mut [Seat], rank: u8, payments: &[(usize, u64)], takings: &[(usize, u64)]) {
    for &(i, _) in takings {
        seats[i].takes_from = rank;
    }
    let takers = takings.len() as u32;
    for &(i, pages) in payments {
        let seat = &mut seats[i];
        // Whoever took first has the highest priority.
        if seat.given == 0 {
            seat.pays_into = rank;
        } else {
            seat.later_takers += takers;
        }
        seat.given += pages;
    }
}

/// The one with the most, the first in order among equals, and how many more there are.
fn others(parts: &[(usize, u64)], name: impl Fn(usize) -> GuestId) -> Option<Others> {
    let most = parts.iter().copied().reduce(|a, b| if b.1 > a.1 { b } else { a })?;
    Some(Others { first: name(most.0), more: parts.len() - 1 })
}

impl Seat {
    /// Why it has what it has, where the policy gave it its part for `because`.
    fn reason(&self, pots: &[Pot], because: Reason) -> Reason {
        let priority = self.priority;
        let lowered = match &pots[usize::from(self.pays_into)].takers {
            Some(takers) if self.given > 0 => Reason::Lowered {
                given: Bytes::pages(self.given),
                priority,
                takers: Others {
                    first: takers.first.clone(),
                    more: takers.more + self.later_takers as usize,
                },
                because: Box::new(because),
            },
            _ => because,
        };
        if self.taken == 0 {
            return lowered;
        }
        Reason::Raised {
            need: Bytes::pages(self.need),
            priority,
            taken: Bytes::pages(self.taken),
            payers: pots[usize::from(self.takes_from)].payers.clone(),
            because: Box::new(lowered),
        }
    }
}
