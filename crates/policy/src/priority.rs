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

/// One guest, in pages.
struct Seat<'a> {
    contender: &'a Contender,
    floor: u64,
    need: u64,
    target: u64,
    taken: u64,
    payers: Option<Others>,
    given: u64,
    takers: Option<Others>,
}

impl<'a> Seat<'a> {
    fn new(contender: &'a Contender, target: Bytes, reserve: Bytes) -> Seat<'a> {
        let wants = contender.demand().max(contender.used).saturating_add(reserve);
        Seat {
            contender,
            floor: contender.floor.to_pages(),
            need: wants.min(contender.ceiling).page_ceil().to_pages(),
            target: target.to_pages(),
            taken: 0,
            payers: None,
            given: 0,
            takers: None,
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
    let targets = || division.wanted.iter().map(|wanted| wanted.desired.target);
    let mut left_over = problem.budget().saturating_sub(targets().sum()).to_pages();
    let seats = contenders.iter().zip(targets()).map(|(c, target)| Seat::new(c, target, reserve));
    let mut seats: Vec<Seat<'_>> = seats.collect();

    // From the lowest, each in the order of names.
    let mut by_priority: Vec<Vec<usize>> = vec![Vec::new(); 1 + usize::from(u8::MAX)];
    for (i, contender) in contenders.iter().enumerate() {
        by_priority[usize::from(contender.priority)].push(i);
    }
    let classes: Vec<&[usize]> =
        by_priority.iter().map(Vec::as_slice).filter(|class| !class.is_empty()).collect();
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
        tell(&mut seats, &payments, &takings);
    }
    for (seat, wanted) in seats.into_iter().zip(&mut division.wanted) {
        wanted.desired.target = Bytes::pages(seat.target);
        let reason = std::mem::replace(&mut wanted.desired.reason, PLACEHOLDER);
        wanted.desired.reason = seat.reason(reason);
    }
}

/// Stands in for a reason while it is wrapped.
const PLACEHOLDER: Reason = Reason::Committed { committed: Bytes::ZERO };

/// Has the guests of `class` give up to `asked` in proportion to what they can spare; what came.
fn pay(
    seats: &mut [Seat<'_>],
    class: &[usize],
    asked: u64,
    payments: &mut Vec<(usize, u64)>,
) -> u64 {
    let spare: Vec<u64> = class.iter().map(|&i| seats[i].spare()).collect();
    let paid = asked.min(spare.iter().sum());
    for (&i, pages) in class.iter().zip(in_proportion(&spare, paid)) {
        if pages > 0 {
            seats[i].target -= pages;
            seats[i].given += pages;
            payments.push((i, pages));
        }
    }
    paid
}

/// Gives `pages` to the guests of `class` in proportion to what they lack, who lack no less.
fn take(seats: &mut [Seat<'_>], class: &[usize], pages: u64) -> Vec<(usize, u64)> {
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
    largest_remainder(&due.collect::<Vec<_>>(), sum, total)
}

/// Notes who paid whom: what a class takes is one pot, so all who take have the same payers.
fn tell(seats: &mut [Seat<'_>], payments: &[(usize, u64)], takings: &[(usize, u64)]) {
    let name = |i: usize| seats[i].contender.id.clone();
    let (payers, takers) = (others(payments, name), others(takings, name));
    for &(i, _) in takings {
        seats[i].payers.clone_from(&payers);
    }
    for &(i, _) in payments {
        let seat = &mut seats[i];
        seat.takers = match (seat.takers.take(), &takers) {
            // Whoever took first has the highest priority.
            (Some(before), Some(now)) => {
                Some(Others { more: before.more + 1 + now.more, ..before })
            }
            (before, now) => before.or_else(|| now.clone()),
        };
    }
}

/// The one with the most, the first in order among equals, and how many more there are.
fn others(parts: &[(usize, u64)], name: impl Fn(usize) -> GuestId) -> Option<Others> {
    let most = parts.iter().copied().reduce(|a, b| if b.1 > a.1 { b } else { a })?;
    Some(Others { first: name(most.0), more: parts.len() - 1 })
}

impl Seat<'_> {
    /// Why it has what it has, where the policy gave it its part for `because`.
    fn reason(self, because: Reason) -> Reason {
        let priority = self.contender.priority;
        let lowered = match self.takers {
            Some(takers) => Reason::Lowered {
                given: Bytes::pages(self.given),
                priority,
                takers,
                because: Box::new(because),
            },
            None => because,
        };
        if self.taken == 0 {
            return lowered;
        }
        Reason::Raised {
            need: Bytes::pages(self.need),
            priority,
            taken: Bytes::pages(self.taken),
            payers: self.payers,
            because: Box::new(lowered),
        }
    }
}
