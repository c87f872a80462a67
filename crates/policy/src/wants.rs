//! Divides memory by wants, for policies that know nothing else of a guest.
//!
//! Idea: while all wants fit, every guest gets what it wants. When they do not, a guest that wants
//! less than its part by shares still gets it, and the others divide the rest by shares: weighted
//! max-min fairness. A guest gains nothing by wanting more than its part, loses nothing by having
//! more shares, and nothing is left over.
//!
//! Algorithm: `divide` without a tax, with each guest's want as its ceiling. Both cases use the
//! same rounds, so targets do not jump when wants stop fitting. A tax on wants would be wrong: when
//! they exceed the budget there is no idle memory, and the tax would collect the shortage by
//! shares, most of it from the guests that the operator values most.
//!
//! Cost: that of `divide`. Source: ours; in TWS only one guest wants memory at a time.

use ballast_model::{Bytes, Clamped, Desired, Reason, Tax};

use crate::divide::{Allotment, Claim, TaxRule, allot, in_pages};
use crate::problem::{Contender, Division, Problem};

/// The memory a guest would get if there were enough.
pub(crate) struct Want {
    pub(crate) size: Bytes,
    pub(crate) reason: Reason,
}

impl Want {
    /// The want in whole pages within the guest's bounds; a bound that applies becomes the reason.
    pub(crate) fn within(self, contender: &Contender) -> Desired {
        let Contender { floor, ceiling, .. } = *contender;
        if self.size < floor {
            Desired { target: floor, reason: Reason::Bound(Clamped::Floor { floor }) }
        } else if self.size > ceiling {
            Desired { target: ceiling, reason: Reason::Bound(Clamped::Ceiling { ceiling }) }
        } else {
            Desired { target: self.size.page_ceil().min(ceiling), reason: self.reason }
        }
    }
}

/// Gives every guest what it wants, or a part of it. `want` is called once for each guest, in
/// order.
pub(crate) fn grant(problem: &Problem, mut want: impl FnMut(&Contender) -> Want) -> Division {
    let contenders = problem.contenders();
    let wants: Vec<Desired> = contenders.iter().map(|c| want(c).within(c)).collect();
    let allotments = allot_wants(problem, wants.iter().map(|want| want.target));
    let wanted = contenders
        .iter()
        .zip(wants)
        .zip(allotments)
        .map(|((contender, want), allotment)| granted(contender, want, allotment))
        .collect();
    Division { wanted, shortfall: problem.shortfall(), notes: Vec::new() }
}

/// What [`grant`] would give every guest, without reasons.
pub(crate) fn sizes(problem: &Problem, want: impl Fn(&Contender) -> Bytes) -> Vec<Bytes> {
    let within = |contender: &Contender| {
        let Contender { floor, ceiling, .. } = *contender;
        want(contender).max(floor).page_ceil().min(ceiling)
    };
    let allotments = allot_wants(problem, problem.contenders().iter().map(within));
    allotments.into_iter().map(|allotment| Bytes::pages(pages(allotment))).collect()
}

/// The rounds of `divide`, with every guest's want as its ceiling.
fn allot_wants(problem: &Problem, wants: impl Iterator<Item = Bytes>) -> Vec<Allotment> {
    let claim = |(contender, want): (&Contender, Bytes)| Claim {
        used: 0,
        ceiling: in_pages(want),
        ..Claim::from(contender)
    };
    let claims: Vec<Claim> = problem.contenders().iter().zip(wants).map(claim).collect();
    allot(&claims, in_pages(problem.budget()), 0, TaxRule::Fixed(Tax::ZERO))
}

fn pages(allotment: Allotment) -> u64 {
    match allotment {
        Allotment::Floor(pages) | Allotment::Ceiling(pages) | Allotment::Formula(pages, _) => pages,
    }
}

/// The target for a want that got `allotment`.
fn granted(contender: &Contender, want: Desired, allotment: Allotment) -> Desired {
    let target = Bytes::pages(pages(allotment));
    if target == want.target {
        return want;
    }
    let reason = match allotment {
        Allotment::Floor(_) => Reason::Bound(Clamped::Floor { floor: contender.floor }),
        Allotment::Ceiling(_) | Allotment::Formula(..) => Reason::Scarce {
            wanted: want.target,
            shares: contender.shares,
            because: Box::new(want.reason),
        },
    };
    Desired { target, reason }
}
