//! Divides memory under an idle-memory tax, within bounds.
//!
//! Idea: with `s_i` the guest's part of all shares and `τ` the tax,
//!
//! ```text
//! target_i = τ A_i + s_i (N − τ ΣA)
//! ```
//!
//! charges every guest the same price per share for its idle memory; at equal shares it is `N/n + τ
//! (A_i − Ā)`, equation 5 of Global §3.3. `τ = 0` divides by shares alone. The dynamic tax of
//! Global §3.4 is the smallest that leaves the reserve `f` to every guest that uses more than its
//! part:
//!
//! ```text
//! τ = clamp( max over {A_i > s_i ΣA} of (f + A_i − s_i N) / (A_i − s_i ΣA), 0, 1 )
//! ```
//!
//! Bounds are ours. Each round divides what is left. If guests below their floors lack more in sum
//! than guests above their ceilings exceed, the former get their floors, otherwise the latter get
//! their ceilings; the next round divides the rest among the others. The larger side stays violated
//! when the smaller one is corrected, so no bound once applied has to be undone, and the remaining
//! bounds always fit the remaining budget.
//!
//! Arithmetic is exact: the tax is a fraction of 2^32, and targets are fractions of `2^32 ΣS` in
//! 128 bits, rounded once by largest remainder (`docs/decisions/0003`).
//!
//! Cost: O(n) a round, at most n rounds; a few in practice (`ballast bench policies`).
//! Source: Global §3.2–3.4; the bounds, the shares and the exact arithmetic are ours.

use ballast_model::{Bytes, Clamped, Desired, Reason, Tax, largest_remainder};

use crate::problem::{Contender, Division, Problem, Wanted};

/// How the idle-memory tax is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaxRule {
    /// Always this tax (Global Fig. 3).
    Fixed(Tax),
    /// As high as the neediest guest requires (Global §3.4).
    Dynamic,
}

/// One contender's figures in pages.
pub(crate) struct Claim {
    pub(crate) used: i128,
    pub(crate) floor: i128,
    pub(crate) ceiling: i128,
    pub(crate) shares: i128,
}

impl From<&Contender> for Claim {
    fn from(contender: &Contender) -> Claim {
        Claim {
            used: i128::from(contender.used.to_pages()),
            floor: i128::from(contender.floor.to_pages()),
            ceiling: i128::from(contender.ceiling.to_pages()),
            shares: i128::from(contender.shares),
        }
    }
}

/// A guest's memory in pages, and what decided it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allotment {
    Floor(u64),
    Ceiling(u64),
    Formula(u64, Tax),
}

/// Divides the whole budget; `reason` gives the reason for a part decided by the formula.
pub(crate) fn divide(
    problem: &Problem,
    reserve: Bytes,
    rule: TaxRule,
    reason: impl Fn(&Contender, Tax) -> Reason,
) -> Division {
    let contenders = problem.contenders();
    let claims: Vec<Claim> = contenders.iter().map(Claim::from).collect();
    let budget = i128::from(problem.budget().to_pages());
    let allotments = allot(&claims, budget, i128::from(reserve.to_pages()), rule);
    let wanted = contenders
        .iter()
        .zip(allotments)
        .map(|(contender, allotment)| {
            let (pages, reason) = match allotment {
                Allotment::Floor(pages) => {
                    (pages, Reason::Bound(Clamped::Floor { floor: contender.floor }))
                }
                Allotment::Ceiling(pages) => {
                    (pages, Reason::Bound(Clamped::Ceiling { ceiling: contender.ceiling }))
                }
                Allotment::Formula(pages, tax) => (pages, reason(contender, tax)),
            };
            let desired = Desired { target: Bytes::pages(pages), reason };
            Wanted { id: contender.id.clone(), desired }
        })
        .collect();
    Division { wanted, shortfall: problem.shortfall(), notes: Vec::new() }
}

/// Divides `budget` by the rounds described above, all in pages.
pub(crate) fn allot(
    claims: &[Claim],
    budget: i128,
    reserve: i128,
    rule: TaxRule,
) -> Vec<Allotment> {
    let mut settled: Vec<Option<Allotment>> = vec![None; claims.len()];
    if claims.iter().map(|p| p.floor).sum::<i128>() >= budget {
        return claims.iter().map(|p| Allotment::Floor(p.floor as u64)).collect();
    }
    if claims.iter().map(|p| p.ceiling).sum::<i128>() <= budget {
        return claims.iter().map(|p| Allotment::Ceiling(p.ceiling as u64)).collect();
    }
    let mut open: Vec<usize> = (0..claims.len()).collect();
    let mut left = budget;
    while !open.is_empty() {
        let round = TaxRound::new(claims, &open, left, reserve, rule);
        let (mut lacking, mut cut_off) = (0, 0);
        for &i in &open {
            let due = round.due(&claims[i]);
            lacking += (claims[i].floor * round.denominator - due).max(0);
            cut_off += (due - claims[i].ceiling * round.denominator).max(0);
        }
        if lacking == 0 && cut_off == 0 {
            let due = open.iter().map(|&i| round.due(&claims[i]));
            let pages = largest_remainder(due, round.denominator, left as u64);
            for (&i, pages) in open.iter().zip(pages) {
                settled[i] = Some(Allotment::Formula(pages, round.tax));
            }
            break;
        }
        open.retain(|&i| {
            let claim = &claims[i];
            let due = round.due(claim);
            let allotment = if lacking >= cut_off && due < claim.floor * round.denominator {
                Allotment::Floor(claim.floor as u64)
            } else if lacking <= cut_off && due > claim.ceiling * round.denominator {
                Allotment::Ceiling(claim.ceiling as u64)
            } else {
                return true;
            };
            left -= match allotment {
                Allotment::Floor(_) => claim.floor,
                _ => claim.ceiling,
            };
            settled[i] = Some(allotment);
            false
        });
    }
    settled
        .into_iter()
        .zip(claims)
        .map(|(allotment, claim)| allotment.unwrap_or(Allotment::Floor(claim.floor as u64)))
        .collect()
}

/// The formula for the guests still open and the budget left for them.
struct TaxRound {
    tax: Tax,
    /// `2^32 ΣS`, over which every due is a whole number.
    denominator: i128,
    /// `τ ΣS`, with τ over 2^32.
    taxed: i128,
    /// `N 2^32 − τ ΣA`, with τ over 2^32.
    untaxed: i128,
}

impl TaxRound {
    fn new(
        claims: &[Claim],
        open: &[usize],
        budget: i128,
        reserve: i128,
        rule: TaxRule,
    ) -> TaxRound {
        let shares: i128 = open.iter().map(|&i| claims[i].shares).sum();
        let used: i128 = open.iter().map(|&i| claims[i].used).sum();
        let tax = match rule {
            TaxRule::Fixed(tax) => tax,
            TaxRule::Dynamic => open.iter().fold(Tax::ZERO, |tax, &i| {
                raised(tax, &claims[i], (shares, used, budget), reserve)
            }),
        };
        let one = i128::from(Tax::ONE.numerator());
        let tau = i128::from(tax.numerator());
        TaxRound {
            tax,
            denominator: one * shares,
            taxed: tau * shares,
            untaxed: budget * one - tau * used,
        }
    }

    /// `target_i × denominator`; negative if the guest's part of an overdrawn budget is.
    fn due(&self, claim: &Claim) -> i128 {
        self.taxed * claim.used + claim.shares * self.untaxed
    }
}

/// `tax`, raised if necessary to leave `claim` its reserve, rounded up to 2^-32. It stays as it is
/// if the guest uses no more than its part by shares.
fn raised(
    tax: Tax,
    claim: &Claim,
    (shares, used, budget): (i128, i128, i128),
    reserve: i128,
) -> Tax {
    let beyond_part = claim.used * shares - claim.shares * used;
    let lacking = (reserve + claim.used) * shares - claim.shares * budget;
    let one = i128::from(Tax::ONE.numerator());
    if beyond_part <= 0 || lacking <= 0 {
        return tax;
    }
    if lacking >= beyond_part {
        return Tax::ONE;
    }
    // Multiplying shows that most need no more; dividing takes longer.
    if lacking * one <= i128::from(tax.numerator()) * beyond_part {
        return tax;
    }
    let numerator = (lacking * one + beyond_part - 1) / beyond_part;
    Tax::from_fraction(numerator as u64)
}
