//! Division under an idle-memory tax, within bounds.
//!
//! Idea: with `s_i` the guest's part of all shares and `τ` the tax,
//!
//! ```text
//! target_i = τ A_i + s_i (N − τ ΣA)
//! ```
//!
//! gives every guest the same price per share for its idle memory; at equal shares it is
//! `N/n + τ (A_i − Ā)`, equation 5 of Global §3.3. `τ = 0` is division by shares alone. The dynamic
//! tax of Global §3.4 is the smallest that leaves the reserve `f` to every guest that uses more
//! than its part:
//!
//! ```text
//! τ = clamp( max over {A_i > s_i ΣA} of (f + A_i − s_i N) / (A_i − s_i ΣA), 0, 1 )
//! ```
//!
//! Bounds are ours. In rounds: divide; where floors lack more in all than ceilings cut off, give
//! the guests under their floor just that, else those over their ceiling, and divide the rest again
//! among the rest. Whichever side is the larger stays violated when the other is mended, so nothing
//! is ever taken back and the bounds of the rest always fit the rest of the budget.
//!
//! Arithmetic is exact: the tax is a fraction of 2^32, targets are fractions of `2^32 ΣS` in 128
//! bits, rounded once by largest remainder (`docs/decisions/0003`).
//!
//! Cost: O(n) a round, at most n rounds; a few in practice (`ballast bench policies`).
//! Source: Global §3.2–3.4; the bounds, the shares and the exact arithmetic are ours.

use ballast_model::{Bytes, Clamped, Desired, Reason, Tax, largest_remainder};

use crate::problem::{Contender, Division, Problem, Wanted};

/// How the idle-memory tax is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaxRule {
    /// Always this one (Global Fig. 3).
    Fixed(Tax),
    /// Just as high as the neediest guest requires (Global §3.4).
    Dynamic,
}

/// One contender in pages, with what it got once a bound settled it.
pub(crate) struct Party {
    pub(crate) used: i128,
    pub(crate) floor: i128,
    pub(crate) ceiling: i128,
    pub(crate) shares: i128,
}

impl From<&Contender> for Party {
    fn from(contender: &Contender) -> Party {
        Party {
            used: i128::from(contender.used.to_pages()),
            floor: i128::from(contender.floor.to_pages()),
            ceiling: i128::from(contender.ceiling.to_pages()),
            shares: i128::from(contender.shares),
        }
    }
}

/// What a guest is to have, in pages, and by which rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Floor(u64),
    Ceiling(u64),
    Formula(u64, Tax),
}

/// Divides the whole budget; `reason` words what the formula (not a bound) decided.
pub(crate) fn divide(
    problem: &Problem,
    reserve: Bytes,
    rule: TaxRule,
    reason: impl Fn(&Contender, Tax) -> Reason,
) -> Division {
    let contenders = problem.contenders();
    let parties: Vec<Party> = contenders.iter().map(Party::from).collect();
    let budget = i128::from(problem.budget().to_pages());
    let parts = parts(&parties, budget, i128::from(reserve.to_pages()), rule);
    let wanted = contenders
        .iter()
        .zip(parts)
        .map(|(contender, part)| {
            let (pages, reason) = match part {
                Part::Floor(pages) => {
                    (pages, Reason::Bound(Clamped::Floor { floor: contender.floor }))
                }
                Part::Ceiling(pages) => {
                    (pages, Reason::Bound(Clamped::Ceiling { ceiling: contender.ceiling }))
                }
                Part::Formula(pages, tax) => (pages, reason(contender, tax)),
            };
            let desired = Desired { target: Bytes::pages(pages), reason };
            Wanted { id: contender.id.clone(), desired }
        })
        .collect();
    Division { wanted, shortfall: problem.shortfall(), notes: Vec::new() }
}

/// The rounds of the header, in pages.
pub(crate) fn parts(parties: &[Party], budget: i128, reserve: i128, rule: TaxRule) -> Vec<Part> {
    let mut settled: Vec<Option<Part>> = vec![None; parties.len()];
    if parties.iter().map(|p| p.floor).sum::<i128>() >= budget {
        return parties.iter().map(|p| Part::Floor(p.floor as u64)).collect();
    }
    if parties.iter().map(|p| p.ceiling).sum::<i128>() <= budget {
        return parties.iter().map(|p| Part::Ceiling(p.ceiling as u64)).collect();
    }
    let mut open: Vec<usize> = (0..parties.len()).collect();
    let mut left = budget;
    while !open.is_empty() {
        let round = Round::new(parties, &open, left, reserve, rule);
        let (mut lacking, mut cut_off) = (0, 0);
        for &i in &open {
            let due = round.due(&parties[i]);
            lacking += (parties[i].floor * round.denominator - due).max(0);
            cut_off += (due - parties[i].ceiling * round.denominator).max(0);
        }
        if lacking == 0 && cut_off == 0 {
            let due = open.iter().map(|&i| round.due(&parties[i]));
            let pages = largest_remainder(due, round.denominator, left as u64);
            for (&i, pages) in open.iter().zip(pages) {
                settled[i] = Some(Part::Formula(pages, round.tax));
            }
            break;
        }
        open.retain(|&i| {
            let party = &parties[i];
            let due = round.due(party);
            let part = if lacking >= cut_off && due < party.floor * round.denominator {
                Part::Floor(party.floor as u64)
            } else if lacking <= cut_off && due > party.ceiling * round.denominator {
                Part::Ceiling(party.ceiling as u64)
            } else {
                return true;
            };
            left -= match part {
                Part::Floor(_) => party.floor,
                _ => party.ceiling,
            };
            settled[i] = Some(part);
            false
        });
    }
    settled
        .into_iter()
        .zip(parties)
        .map(|(part, party)| part.unwrap_or(Part::Floor(party.floor as u64)))
        .collect()
}

/// The formula for the guests still open and the budget left to them.
struct Round {
    tax: Tax,
    /// `2^32 ΣS`, under which everybody's due is a whole number.
    denominator: i128,
    shares: i128,
    /// `N 2^32 − τ ΣA`, with τ over 2^32.
    untaxed: i128,
}

impl Round {
    fn new(parties: &[Party], open: &[usize], budget: i128, reserve: i128, rule: TaxRule) -> Round {
        let shares: i128 = open.iter().map(|&i| parties[i].shares).sum();
        let used: i128 = open.iter().map(|&i| parties[i].used).sum();
        let tax = match rule {
            TaxRule::Fixed(tax) => tax,
            TaxRule::Dynamic => open.iter().fold(Tax::ZERO, |tax, &i| {
                raised(tax, &parties[i], (shares, used, budget), reserve)
            }),
        };
        let one = i128::from(Tax::ONE.numerator());
        let tau = i128::from(tax.numerator());
        Round { tax, denominator: one * shares, shares, untaxed: budget * one - tau * used }
    }

    /// `target_i × denominator`; negative where the guest's part of an overdrawn budget is.
    fn due(&self, party: &Party) -> i128 {
        i128::from(self.tax.numerator()) * party.used * self.shares + party.shares * self.untaxed
    }
}

/// `tax`, or what leaves `party` its reserve where that is more, rounded up to 2^-32; as it is where the
/// party uses no more than its part of all shares, used memory and budget.
fn raised(
    tax: Tax,
    party: &Party,
    (shares, used, budget): (i128, i128, i128),
    reserve: i128,
) -> Tax {
    let beyond_part = party.used * shares - party.shares * used;
    let lacking = (reserve + party.used) * shares - party.shares * budget;
    let one = i128::from(Tax::ONE.numerator());
    if beyond_part <= 0 || lacking <= 0 {
        return tax;
    }
    if lacking >= beyond_part {
        return Tax::ONE;
    }
    // Most are found by multiplying not to need more; dividing takes longer.
    if lacking * one <= i128::from(tax.numerator()) * beyond_part {
        return tax;
    }
    let numerator = (lacking * one + beyond_part - 1) / beyond_part;
    Tax::from_fraction(numerator as u64)
}
