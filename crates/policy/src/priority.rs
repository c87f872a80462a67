//! Applies strict priorities to the division of any policy.
//!
//! Properties: with equal priorities nothing changes. Otherwise no guest of higher priority lacks
//! memory it needs while a guest of lower priority is above its floor; no guest is moved past its
//! floor or ceiling; as much is given as is taken; a higher priority never costs a guest memory,
//! except for rounding.
//!
//! Algorithm: after the policy has divided, a guest needs
//!
//! ```text
//! need_i = min( ceiling_i, max(demand_i, A_i) + f )
//! ```
//!
//! The need includes the reserve `f`, because used memory `A_i` never exceeds what a guest holds: a
//! guest known only by its use could never grow without it. From the highest priority down, guests
//! below their need take memory: first what the policy left over, then from the guests of the
//! lowest priority down to their floors, then from the next priority. Within a priority guests take
//! in proportion to what they lack and give in proportion to what they have above their floors, by
//! largest remainder. Guests of the lowest priority keep what the policy decided; they do not take
//! memory left over.
//!
//! Cost: O(n), plus at most O(n) for each different priority.
//! Source: ours; no paper has priorities.
//! Limits: the guard's rate limits apply to memory moved by priority; a policy's own limits do not.

use ballast_model::{Bytes, GuestId, Others, Reason, in_proportion};

use crate::problem::{Contender, Division, Problem};

/// One guest, in pages; kept small because there may be many.
struct PriorityHolding {
    floor: u64,
    need: u64,
    target: u64,
    taken: u64,
    given: u64,
    /// Rank of the transfer it took from.
    takes_from: u8,
    /// Rank of the first transfer it gave to.
    gives_to: u8,
    /// Number of takers of its later transfers.
    later_takers: u32,
    priority: u8,
}

/// The memory that all guests of one priority take: every taker has the same givers, and every
/// giver the same takers.
#[derive(Default)]
struct PriorityTransfer {
    givers: Option<Others>,
    takers: Option<Others>,
}

impl PriorityHolding {
    fn new(contender: &Contender, target: Bytes, reserve: Bytes) -> PriorityHolding {
        let wants = contender.demand().max(contender.used).saturating_add(reserve);
        PriorityHolding {
            floor: contender.floor.to_pages(),
            need: wants.min(contender.ceiling).page_ceil().to_pages(),
            target: target.to_pages(),
            taken: 0,
            given: 0,
            takes_from: 0,
            gives_to: 0,
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

/// Moves memory in `division`, the solution of `problem`, to guests of higher priority that need
/// it.
pub(crate) fn apply(problem: &Problem, reserve: Bytes, division: &mut Division) {
    let contenders = problem.contenders();
    let all_alike = contenders.iter().map(|c| c.priority).is_sorted_by(|a, b| a == b);
    if all_alike || division.wanted.len() != contenders.len() {
        return;
    }
    // Places of the guests by priority.
    let mut by_priority: Vec<Vec<usize>> = vec![Vec::new(); 1 + usize::from(u8::MAX)];
    let mut left_over = problem.budget();
    let with_targets = contenders.iter().zip(&division.wanted).enumerate();
    let mut holdings: Vec<PriorityHolding> = with_targets
        .map(|(i, (contender, wanted))| {
            let target = wanted.target;
            by_priority[usize::from(contender.priority)].push(i);
            left_over = left_over.saturating_sub(target);
            PriorityHolding::new(contender, target, reserve)
        })
        .collect();
    let mut left_over = left_over.to_pages();
    let classes: Vec<&[usize]> =
        by_priority.iter().map(Vec::as_slice).filter(|class| !class.is_empty()).collect();
    let mut transfers: Vec<PriorityTransfer> =
        classes.iter().map(|_| PriorityTransfer::default()).collect();
    let mut lowest_with_spare = 0;
    for (rank, class) in classes.iter().enumerate().skip(1).rev() {
        let mut lacking: u64 = class.iter().map(|&i| holdings[i].lack()).sum();
        let from_left_over = lacking.min(left_over);
        left_over -= from_left_over;
        lacking -= from_left_over;
        let mut gifts = Vec::new();
        while lacking > 0 && lowest_with_spare < rank {
            lacking -= collect_from(&mut holdings, classes[lowest_with_spare], lacking, &mut gifts);
            if lacking > 0 {
                lowest_with_spare += 1;
            }
        }
        let given: u64 = gifts.iter().map(|(_, pages)| pages).sum();
        let takings = distribute_to(&mut holdings, class, from_left_over + given);
        let name = |i: usize| contenders[i].id.clone();
        transfers[rank] =
            PriorityTransfer { givers: others(&gifts, name), takers: others(&takings, name) };
        record_transfer(&mut holdings, rank as u8, &gifts, &takings);
    }
    for (holding, wanted) in holdings.iter().zip(&mut division.wanted) {
        if holding.taken > 0 || holding.given > 0 {
            wanted.target = Bytes::pages(holding.target);
            let reason = std::mem::replace(&mut wanted.reason, PLACEHOLDER);
            wanted.reason = holding.reason(&transfers, reason);
        }
    }
}

/// Stands in for a reason while that is wrapped in another.
const PLACEHOLDER: Reason = Reason::Committed { committed: Bytes::ZERO };

/// Takes up to `limit` from the guests of `class` in proportion to what they can spare, and adds it
/// to `gifts`; returns the amount.
fn collect_from(
    holdings: &mut [PriorityHolding],
    class: &[usize],
    limit: u64,
    gifts: &mut Vec<(usize, u64)>,
) -> u64 {
    let spare: Vec<u64> = class.iter().map(|&i| holdings[i].spare()).collect();
    let given = limit.min(spare.iter().sum());
    for (&i, pages) in class.iter().zip(in_proportion(spare.iter().copied(), given)) {
        if pages > 0 {
            holdings[i].target -= pages;
            gifts.push((i, pages));
        }
    }
    given
}

/// Gives `pages` to the guests of `class` in proportion to what they lack, at least `pages` in sum.
fn distribute_to(
    holdings: &mut [PriorityHolding],
    class: &[usize],
    pages: u64,
) -> Vec<(usize, u64)> {
    let lack: Vec<u64> = class.iter().map(|&i| holdings[i].lack()).collect();
    let parts = class.iter().copied().zip(in_proportion(lack.iter().copied(), pages));
    let takings: Vec<(usize, u64)> = parts.filter(|(_, pages)| *pages > 0).collect();
    for &(i, pages) in &takings {
        holdings[i].target += pages;
        holdings[i].taken += pages;
    }
    takings
}

/// Notes who gave to the transfer of `rank` and who took from it.
fn record_transfer(
    holdings: &mut [PriorityHolding],
    rank: u8,
    gifts: &[(usize, u64)],
    takings: &[(usize, u64)],
) {
    for &(i, _) in takings {
        holdings[i].takes_from = rank;
    }
    let takers = takings.len() as u32;
    for &(i, pages) in gifts {
        let holding = &mut holdings[i];
        // The first transfer is the one of highest priority.
        if holding.given == 0 {
            holding.gives_to = rank;
        } else {
            holding.later_takers += takers;
        }
        holding.given += pages;
    }
}

/// The guest with the largest part, the first of equals, and the number of others.
fn others(parts: &[(usize, u64)], name: impl Fn(usize) -> GuestId) -> Option<Others> {
    let most = parts.iter().copied().reduce(|a, b| if b.1 > a.1 { b } else { a })?;
    Some(Others { first: name(most.0), more: parts.len() - 1 })
}

impl PriorityHolding {
    /// The reason for its target; `because` is the policy's reason.
    fn reason(&self, transfers: &[PriorityTransfer], because: Reason) -> Reason {
        let priority = self.priority;
        let lowered = match &transfers[usize::from(self.gives_to)].takers {
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
            payers: transfers[usize::from(self.takes_from)].givers.clone(),
            because: Box::new(lowered),
        }
    }
}
