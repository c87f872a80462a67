//! `xenmm`: the published code of Global, which differs from its paper.
//!
//! Properties: divides the whole budget. The tax rises at once when a guest is short and falls by a
//! tenth of the difference per decision, so that memory is returned slowly.
//!
//! Algorithm: `τ*` of Global §3.4 at every decision; `τ := τ*` if that is higher, else
//! `τ := τ − (τ − τ*) / 10`; then Global §3.3 at that τ.
//! Source: wzzhang-HIT/xenmm, the code that Global cites.
//!
//! Not reproduced: its division by zero if all guests use the same, and that it never enforces the
//! minimum it stores: both bugs would distort a comparison. Forced deviations: the division is that
//! of the policy `global`, with its limits and shares. If limits determine every guest's part, the
//! division has no tax, and τ falls as if none were needed.

use std::time::Duration;

use ballast_model::{Bytes, Desired, PolicyName, Reason, Tax};
use ballast_policy::{Division, Pacing, Policy, PolicySettings, Problem, TaxRule, build};

pub(super) const NAME: PolicyName = PolicyName::Custom("xenmm");

/// Divisor of the excess by which the tax falls per decision.
const FALL: u64 = 10;

/// The policy; see the file's header.
#[derive(Clone, Debug)]
pub struct Xenmm {
    tax: Tax,
}

impl Default for Xenmm {
    fn default() -> Self {
        Xenmm { tax: Tax::ZERO }
    }
}

impl Policy for Xenmm {
    fn name(&self) -> PolicyName {
        NAME
    }

    fn pacing(&self) -> Pacing {
        Pacing::every(Duration::from_secs(2), Bytes::mib(10))
    }

    fn divide(&mut self, problem: &Problem) -> Division {
        let at_once = global(problem, TaxRule::Dynamic);
        let needed = at_once.wanted.iter().filter_map(tax_of).max().unwrap_or(Tax::ZERO);
        self.tax = if needed >= self.tax {
            needed
        } else {
            let (tax, needed) = (self.tax.numerator(), needed.numerator());
            Tax::from_fraction(tax - (tax - needed).div_ceil(FALL))
        };
        global(problem, TaxRule::Fixed(self.tax))
    }
}

fn global(problem: &Problem, tax: TaxRule) -> Division {
    let settings = PolicySettings { tax, ..PolicySettings::default() };
    build(PolicyName::Global, settings).divide(problem)
}

fn tax_of(wanted: &Desired) -> Option<Tax> {
    match wanted.reason {
        Reason::IdleTax { tax, .. } => Some(tax),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::tests::{guest, mib, targets};

    #[test]
    fn tax_rises_at_once_and_falls_by_a_tenth() {
        // Two guests on 2,000 MiB, f = 100. a uses 1,100, b 100: τ* = (100 + 1,100 − 1,000) / 500 =
        // 0.4: targets 1,000 ± 0.4 · 500.
        let busy = || {
            let room = (0, 4_000);
            vec![guest("a", 1_100, 1_000, 0, room), guest("b", 100, 1_000, 900, room)]
        };
        let mut xenmm = Xenmm::default();
        let divide =
            |xenmm: &mut Xenmm, guests| targets(&xenmm.divide(&Problem::new(mib(2_000), guests)));
        assert_eq!(divide(&mut xenmm, busy()), [mib(1_200), mib(800)]);
        assert_eq!(divide(&mut xenmm, busy()), [mib(1_200), mib(800)]);
        // a needs no more but uses 200 above the mean: τ = 0.36, then 0.324.
        let idle = || {
            let room = (0, 4_000);
            vec![guest("a", 500, 1_200, 700, room), guest("b", 100, 800, 700, room)]
        };
        assert_eq!(divide(&mut xenmm, idle()), [mib(1_072), mib(928)]);
        let got = divide(&mut xenmm, idle());
        assert!((got[0].as_mib_f64() - 1_064.8).abs() < 0.01, "{}", got[0]);
        assert_eq!(divide(&mut xenmm, busy()), [mib(1_200), mib(800)]);
    }

    #[test]
    fn equal_use_gets_equal_memory() {
        let guests =
            vec![guest("a", 900, 1_000, 0, (0, 4_000)), guest("b", 900, 1_000, 0, (0, 4_000))];
        let division = Xenmm::default().divide(&Problem::new(mib(2_000), guests));
        assert_eq!(targets(&division), [mib(1_000); 2]);
    }
}
