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

use std::cmp::Ordering;

use ballast_model::{Bytes, Clamped, Desired, Reason, Tax, largest_remainder};

use crate::problem::{Contender, Division, Problem};

/// How the idle-memory tax is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaxRule {
    /// Always this tax (Global Fig. 3).
    Fixed(Tax),
    /// As high as the neediest guest requires (Global §3.4).
    Dynamic,
}

/// One contender's figures, in pages.
#[derive(Clone, Copy)]
pub(crate) struct Claim {
    pub(crate) used: i64,
    pub(crate) floor: i64,
    pub(crate) ceiling: i64,
    pub(crate) shares: i64,
}

impl From<&Contender> for Claim {
    fn from(contender: &Contender) -> Claim {
        Claim {
            used: in_pages(contender.used),
            floor: in_pages(contender.floor),
            ceiling: in_pages(contender.ceiling),
            shares: i64::from(contender.shares),
        }
    }
}

/// Whole pages, as many as [`Problem::new`] permits.
pub(crate) fn in_pages(size: Bytes) -> i64 {
    size.to_pages().cast_signed()
}

/// `a b`, which must fit. All products here do: by [`Problem::new`] there are at most 2^16 guests
/// with 2^40 pages and 2^20 shares each, and the tax is at most 2^32. Checking each product would
/// take longer than the rest of a round.
fn times(a: i128, b: i64) -> i128 {
    debug_assert!(a.checked_mul(b.into()).is_some(), "{a} {b}");
    a.wrapping_mul(b.into())
}

/// `a b` of two 64-bit figures.
fn product(a: i64, b: i64) -> i128 {
    i128::from(a) * i128::from(b)
}

/// `2^32 a b`: the product over the denominator of a tax.
fn scaled(a: i64, b: i64) -> i128 {
    product(a, b) << Tax::ONE.numerator().trailing_zeros()
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
    let allotments = allot(&claims, in_pages(problem.budget()), in_pages(reserve), rule);
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
            Desired { target: Bytes::pages(pages), reason }
        })
        .collect();
    Division { wanted, shortfall: problem.shortfall(), notes: Vec::new() }
}

/// A guest that no bound has settled yet.
struct OpenClaim<'a> {
    index: usize,
    claim: &'a Claim,
    /// `target × denominator` in the current round.
    due: i128,
    /// Less: below its floor. Greater: above its ceiling.
    to_bounds: Ordering,
}

/// Divides `budget` by the rounds described above, all in pages.
pub(crate) fn allot(claims: &[Claim], budget: i64, reserve: i64, rule: TaxRule) -> Vec<Allotment> {
    let floor = |claim: &Claim| Allotment::Floor(claim.floor.cast_unsigned());
    let ceiling = |claim: &Claim| Allotment::Ceiling(claim.ceiling.cast_unsigned());
    // Until a round settles it, a guest has its floor.
    let mut settled: Vec<Allotment> = claims.iter().map(floor).collect();
    if claims.iter().map(|claim| i128::from(claim.floor)).sum::<i128>() >= budget.into() {
        return settled;
    }
    if claims.iter().map(|claim| i128::from(claim.ceiling)).sum::<i128>() <= budget.into() {
        return claims.iter().map(ceiling).collect();
    }
    let untried = |(index, claim)| OpenClaim { index, claim, due: 0, to_bounds: Ordering::Equal };
    let mut open: Vec<OpenClaim<'_>> = claims.iter().enumerate().map(untried).collect();
    let mut sums = OpenSums { shares: 0, used: 0, budget };
    for claim in claims {
        sums.shares += claim.shares;
        sums.used += claim.used;
    }
    while !open.is_empty() {
        let round = TaxRound::new(&open, &sums, reserve, rule);
        let (mut lacking, mut cut_off) = (0, 0);
        for OpenClaim { claim, due, to_bounds, .. } in &mut open {
            *due = round.due(claim);
            let (floor, ceiling) =
                (scaled(claim.floor, sums.shares), scaled(claim.ceiling, sums.shares));
            *to_bounds = Ordering::Equal;
            if *due < floor {
                *to_bounds = Ordering::Less;
                lacking += floor - *due;
            } else if *due > ceiling {
                *to_bounds = Ordering::Greater;
                cut_off += *due - ceiling;
            }
        }
        if lacking == 0 && cut_off == 0 {
            let due = open.iter().map(|guest| guest.due);
            let pages = largest_remainder(due, round.denominator, sums.budget.cast_unsigned());
            for (guest, pages) in open.iter().zip(pages) {
                settled[guest.index] = Allotment::Formula(pages, round.tax);
            }
            break;
        }
        open.retain(|OpenClaim { index, claim, to_bounds, .. }| {
            if lacking >= cut_off && to_bounds.is_lt() {
                sums.budget -= claim.floor;
            } else if lacking <= cut_off && to_bounds.is_gt() {
                settled[*index] = ceiling(claim);
                sums.budget -= claim.ceiling;
            } else {
                return true;
            }
            sums.shares -= claim.shares;
            sums.used -= claim.used;
            false
        });
    }
    settled
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

/// Sums over the guests still open, and the budget left for them.
struct OpenSums {
    shares: i64,
    used: i64,
    budget: i64,
}

impl TaxRound {
    fn new(open: &[OpenClaim<'_>], sums: &OpenSums, reserve: i64, rule: TaxRule) -> TaxRound {
        let tax = match rule {
            TaxRule::Fixed(tax) => tax,
            TaxRule::Dynamic => open
                .iter()
                .fold(Tax::ZERO, |tax, OpenClaim { claim, .. }| raised(tax, claim, sums, reserve)),
        };
        let tau = tax.numerator().cast_signed();
        TaxRound {
            tax,
            denominator: scaled(1, sums.shares),
            taxed: product(tau, sums.shares),
            untaxed: scaled(1, sums.budget) - product(tau, sums.used),
        }
    }

    /// `target_i × denominator`; negative if the guest's part of an overdrawn budget is.
    fn due(&self, claim: &Claim) -> i128 {
        times(self.taxed, claim.used) + times(self.untaxed, claim.shares)
    }
}

/// `tax`, raised if necessary to leave `claim` its reserve, rounded up to 2^-32. It stays as it is
/// if the guest uses no more than its part by shares.
fn raised(tax: Tax, claim: &Claim, sums: &OpenSums, reserve: i64) -> Tax {
    let beyond_part = product(claim.used, sums.shares) - product(sums.used, claim.shares);
    if beyond_part <= 0 {
        return tax;
    }
    let lacking = product(reserve + claim.used, sums.shares) - product(sums.budget, claim.shares);
    if lacking <= 0 {
        return tax;
    }
    if lacking >= beyond_part {
        return Tax::ONE;
    }
    let one = Tax::ONE.numerator().cast_signed();
    // Multiplying is faster than dividing, and shows that most guests need no higher tax.
    if times(lacking, one) <= times(beyond_part, tax.numerator().cast_signed()) {
        return tax;
    }
    let numerator = (times(lacking, one) + beyond_part - 1) / beyond_part;
    Tax::from_fraction(numerator as u64)
}
