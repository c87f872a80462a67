//! Division by what each guest wants, for policies that know a want and nothing else.
//!
//! Idea: while all wants fit, everybody has what it wants. When they do not, whoever wants less than
//! its part by shares still gets it, and the rest is divided by shares among the others: weighted
//! max-min fairness. Nobody gets more for wanting more than its part, nobody less for having more
//! shares, and nothing is left over.
//!
//! Algorithm: `divide` without a tax, with each guest's want as its ceiling; both cases are the same
//! rounds, so nothing jumps where wants begin not to fit. A tax with wants in place of used memory
//! would not do here: where wants exceed the budget there is no idle memory, and a tax takes what is
//! lacking in proportion to shares, most from whom the operator values most.
//!
//! Cost: that of `divide`. Source: ours; TWS has no more than one guest want at a time.

use ballast_model::{Bytes, Clamped, Desired, Reason, Tax};

use crate::divide::{Part, Party, TaxRule, parts};
use crate::problem::{Contender, Division, Problem, Wanted};

/// What a guest would have without the others.
pub(crate) struct Want {
    /// The memory.
    pub(crate) size: Bytes,
    /// Why.
    pub(crate) reason: Reason,
}

impl Want {
    /// Within the guest's bounds, in whole pages, with the bound as the reason where it holds.
    fn within(self, contender: &Contender) -> Desired {
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

/// Gives everybody what `want` says, or a part of it; it is asked once for each, in order.
pub(crate) fn grant(problem: &Problem, mut want: impl FnMut(&Contender) -> Want) -> Division {
    let contenders = problem.contenders();
    let wants: Vec<Desired> = contenders.iter().map(|c| want(c).within(c)).collect();
    let parties: Vec<Party> = contenders
        .iter()
        .zip(&wants)
        .map(|(contender, want)| Party {
            used: 0,
            ceiling: i128::from(want.target.to_pages()),
            ..Party::from(contender)
        })
        .collect();
    let budget = i128::from(problem.budget().to_pages());
    let parts = parts(&parties, budget, 0, TaxRule::Fixed(Tax::ZERO));
    let wanted = contenders
        .iter()
        .zip(wants)
        .zip(parts)
        .map(|((contender, want), part)| Wanted {
            id: contender.id.clone(),
            desired: granted(contender, want, part),
        })
        .collect();
    Division { wanted, shortfall: problem.shortfall(), notes: Vec::new() }
}

/// What comes of a want.
fn granted(contender: &Contender, want: Desired, part: Part) -> Desired {
    let pages = match part {
        Part::Floor(pages) | Part::Ceiling(pages) | Part::Formula(pages, _) => pages,
    };
    let target = Bytes::pages(pages);
    if target == want.target {
        return want;
    }
    let reason = match part {
        Part::Floor(_) => Reason::Bound(Clamped::Floor { floor: contender.floor }),
        Part::Ceiling(_) | Part::Formula(..) => Reason::Scarce {
            wanted: want.target,
            shares: contender.shares,
            because: Box::new(want.reason),
        },
    };
    Desired { target, reason }
}
