//! Adapts `meb` to the common [`Policy`] interface: fewest misses of all guests in sum (MEB §4).
//!
//! Properties, algorithm, source and deviations are those of [`balance`](super::balance). This file
//! adds a reason for each target and a note for each service objective that is not met. It decides
//! every 5 s and ignores changes of less than a step.
//! Limits: by default a guest shrinks by at most a tenth or grows by three tenths in a decision, so
//! a large change of demand takes several.

use std::time::Duration;

use ballast_model::{Bytes, Clamped, Desired, Note, PolicyName, Reason};

use super::MebSettings;
use super::balance::{MebTarget, ObjectiveViolation, TargetRule, balance};
use crate::{Contender, Division, Pacing, Policy, Problem};

/// MEB balances every five seconds (§4).
const INTERVAL: Duration = Duration::from_secs(5);

/// The policy `meb`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meb {
    settings: MebSettings,
}

impl Meb {
    /// The policy with `settings`.
    pub fn new(settings: MebSettings) -> Meb {
        Meb { settings }
    }
}

impl Policy for Meb {
    fn name(&self) -> PolicyName {
        PolicyName::Meb
    }

    fn pacing(&self) -> Pacing {
        let dead_band = Bytes::pages(self.settings.step_pages() - 1);
        Pacing::every(INTERVAL, dead_band)
    }

    fn divide(&mut self, problem: &Problem) -> Division {
        let decided = balance(problem, &self.settings);
        let contenders = problem.contenders().iter();
        let wanted = contenders.zip(&decided.targets).map(|(contender, target)| Desired {
            target: target.size,
            reason: reason(contender, target),
        });
        Division {
            wanted: wanted.collect(),
            shortfall: decided.shortfall,
            notes: decided.violations.into_iter().map(note).collect(),
        }
    }
}

fn reason(contender: &Contender, target: &MebTarget) -> Reason {
    let misses_per_s = contender.curve.as_ref().map(|curve| curve.misses_per_s(target.size));
    match target.rule {
        TargetRule::Floor => Reason::Bound(Clamped::Floor { floor: contender.floor }),
        TargetRule::Bonus => Reason::DemandAndBonus { demand: target.demand },
        TargetRule::FewestMisses | TargetRule::AssumedMisses => {
            Reason::FewestMisses { demand: target.demand, misses_per_s }
        }
    }
}

fn note(violation: ObjectiveViolation) -> Note {
    Note::ObjectiveViolated {
        guest: violation.id,
        misses_per_s_max: violation.misses_per_s_max,
        misses_per_s: violation.misses_per_s,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ballast_model::MissCurve;

    use super::*;

    fn guest(name: &str, mib: u64, misses: &[u64]) -> Contender {
        let interval = Duration::from_secs(1);
        let curve = MissCurve::new(Bytes::mib(100), interval, misses.to_vec()).unwrap();
        Contender {
            ceiling: Bytes::gib(1),
            curve: Some(Arc::new(curve)),
            ..Contender::new(name.parse().unwrap(), Bytes::mib(mib))
        }
    }

    #[test]
    fn targets_have_reasons_and_unmet_objectives_have_notes() {
        // Both use 400 MiB of a budget of 760. The misses of `a` rise steeply below 400 MiB. `b`
        // misses more than its objective at every size.
        let a = guest("a", 400, &[5000, 5000, 5000, 5000, 0]);
        let mut b = guest("b", 400, &[40, 30, 20, 15, 10]);
        b.miss_rate_max = Some(8);
        let division = Meb::default().divide(&Problem::new(Bytes::mib(760), vec![a, b]));
        let [a, b] = &division.wanted[..] else { panic!("{division:?}") };
        assert_eq!((a.target, b.target), (Bytes::mib(400), Bytes::mib(360)));
        assert_eq!(
            a.reason.to_string(),
            "fewest misses of all guests together: demand 400MiB, 0 misses a second"
        );
        assert_eq!(
            division.notes.iter().map(Note::to_string).collect::<Vec<_>>(),
            ["objective of b not met: 15 misses a second, at most 8 wanted"]
        );
    }

    #[test]
    fn spare_memory_is_shared_as_a_bonus() {
        let division =
            Meb::default().divide(&Problem::new(Bytes::gib(2), vec![guest("a", 400, &[9, 0])]));
        let only = &division.wanted[0];
        // At most three tenths more than it holds.
        assert_eq!(only.target, Bytes::mib(520));
        assert_eq!(
            only.reason.to_string(),
            "demands 400MiB; memory that no guest demands is shared out"
        );
    }
}
