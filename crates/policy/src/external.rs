//! `external`: an operator's program decides.
//!
//! Idea: whoever drives the controller asks the program and hands its answer in before the decision
//! ([`Policy::take_answer`]), so this policy stays a function of its inputs. It uses an answer only
//! if it gives every contender a target and all targets, clamped to the guests' bounds, fit the
//! budget. Otherwise it decides as `global` does and notes why ([`Note::Unanswered`]).
//!
//! Cost: O(n log n). Limits: the policy keeps the last answer and uses it again in a dry run.
//! Before a real decision the caller hands in the answer to its [`Question`].

use std::collections::BTreeMap;

use ballast_model::{
    AnswerFault, Bytes, Desired, GuestId, GuestTarget, Note, PolicyAnswer, PolicyName, Reason,
};

use crate::global::{PACING, tax_and_divide};
use crate::problem::{Contender, Division, Problem};
use crate::wants::Want;
use crate::{Pacing, Policy, PolicySettings};

/// The question to the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The budget and the guests.
    pub problem: Problem,
    /// Free memory to leave each guest on top of what it uses.
    pub reserve: Bytes,
}

impl Question {
    /// The question about `problem`; `None` if there is nothing to decide: no guest competes, or
    /// the floors alone exceed the budget.
    pub fn about(problem: Problem, reserve: Bytes) -> Option<Question> {
        is_open(&problem).then_some(Question { problem, reserve })
    }
}

/// Whether a problem leaves anything to decide.
fn is_open(problem: &Problem) -> bool {
    !problem.contenders().is_empty() && problem.shortfall() == Bytes::ZERO
}

/// The policy `external`.
#[derive(Clone, Debug)]
pub struct External {
    settings: PolicySettings,
    answer: PolicyAnswer,
}

impl External {
    /// The policy without an answer. `settings` are those of `global`, which decides in its place.
    pub fn new(settings: PolicySettings) -> External {
        External { settings, answer: PolicyAnswer::Fault(AnswerFault::NotAsked) }
    }
}

impl Policy for External {
    fn name(&self) -> PolicyName {
        PolicyName::External
    }

    fn pacing(&self) -> Pacing {
        PACING
    }

    fn divide(&mut self, problem: &Problem) -> Division {
        let fault = match &self.answer {
            _ if !is_open(problem) => None,
            PolicyAnswer::Fault(fault) => Some(fault.clone()),
            PolicyAnswer::Targets(targets) => match as_answered(problem, targets) {
                Ok(wanted) => {
                    return Division { wanted, shortfall: Bytes::ZERO, notes: Vec::new() };
                }
                Err(fault) => Some(fault),
            },
        };
        let mut division = tax_and_divide(problem, &self.settings);
        division.notes.extend(fault.map(|fault| Note::Unanswered { fault }));
        division
    }

    fn take_answer(&mut self, answer: PolicyAnswer) {
        self.answer = answer;
    }
}

/// The answered targets within the guests' bounds, in the problem's order.
fn as_answered(problem: &Problem, targets: &[GuestTarget]) -> Result<Vec<Desired>, AnswerFault> {
    let mut left: BTreeMap<&GuestId, Bytes> =
        targets.iter().map(|it| (&it.guest, it.target)).collect();
    let mut wanted = Vec::with_capacity(problem.contenders().len());
    for contender in problem.contenders() {
        let target = left.remove(&contender.id);
        let missing = || AnswerFault::MissingGuest { guest: contender.id.clone() };
        wanted.push(within_bounds(contender, target.ok_or_else(missing)?));
    }
    if let Some(guest) = left.into_keys().next() {
        return Err(AnswerFault::UnknownGuest { guest: guest.clone() });
    }
    let total: Bytes = wanted.iter().map(|it| it.target).sum();
    match total.saturating_sub(problem.budget()) {
        Bytes::ZERO => Ok(wanted),
        by => Err(AnswerFault::OverBudget { by }),
    }
}

/// A target within the guest's bounds, rounded down: rounding up could exceed the budget.
fn within_bounds(contender: &Contender, target: Bytes) -> Desired {
    let reason = Reason::Answered { target, used: contender.used };
    Want { size: target.page_floor(), reason }.within(contender)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(name: &str) -> GuestId {
        name.parse().unwrap()
    }

    /// Guests `a` and `b` with floors of 100 and ceilings of 900 MiB.
    fn problem(budget: Bytes) -> Problem {
        let guest = |name: &str| Contender {
            floor: Bytes::mib(100),
            ceiling: Bytes::mib(900),
            ..Contender::new(id(name), Bytes::mib(300))
        };
        Problem::new(budget, vec![guest("a"), guest("b")])
    }

    fn divided(budget: Bytes, answer: PolicyAnswer) -> Division {
        let mut policy = External::new(PolicySettings::default());
        policy.take_answer(answer);
        policy.divide(&problem(budget))
    }

    fn targets(targets: &[(&str, Bytes)]) -> PolicyAnswer {
        let target = |&(name, target): &(&str, Bytes)| GuestTarget { guest: id(name), target };
        PolicyAnswer::Targets(targets.iter().map(target).collect())
    }

    #[test]
    fn a_whole_answer_is_what_is_wanted() {
        let answer = targets(&[("a", Bytes::new(700 * 1024 * 1024 + 1)), ("b", Bytes::mib(200))]);
        let division = divided(Bytes::gib(1), answer);
        let wanted: Vec<Bytes> = division.wanted.iter().map(|it| it.target).collect();
        assert_eq!((wanted, division.notes), (vec![Bytes::mib(700), Bytes::mib(200)], vec![]));
        assert_eq!(division.wanted[0].reason.code(), "answered");
    }

    #[test]
    fn bounds_hold_before_the_sum_is_judged() {
        let (low, high) = (Bytes::ZERO, Bytes::MAX);
        let division = divided(Bytes::gib(1), targets(&[("a", low), ("b", high)]));
        let codes: Vec<&str> = division.wanted.iter().map(|it| it.reason.code()).collect();
        assert_eq!((codes, division.notes), (vec!["floor", "ceiling"], vec![]));
    }

    #[test]
    fn other_answers_are_refused_and_global_decides() {
        let (a, b) = (("a", Bytes::mib(600)), ("b", Bytes::mib(400)));
        let budget = Bytes::mib(999);
        let global = tax_and_divide(&problem(budget), &PolicySettings::default());
        let by = Bytes::mib(1);
        for (answer, fault) in [
            (targets(&[a]), AnswerFault::MissingGuest { guest: id("b") }),
            (targets(&[]), AnswerFault::MissingGuest { guest: id("a") }),
            (targets(&[a, b, ("c", by)]), AnswerFault::UnknownGuest { guest: id("c") }),
            (targets(&[a, b]), AnswerFault::OverBudget { by }),
            (PolicyAnswer::Fault(AnswerFault::NotAsked), AnswerFault::NotAsked),
        ] {
            let division = divided(budget, answer);
            assert_eq!(division.wanted, global.wanted, "{fault:?}");
            assert_eq!(division.notes, [Note::Unanswered { fault }]);
        }
    }

    #[test]
    fn no_answer_is_blamed_for_floors_beyond_the_budget() {
        let budget = Bytes::mib(150);
        assert_eq!(Question::about(problem(budget), Bytes::ZERO), None);
        let division = divided(budget, targets(&[]));
        assert_eq!((division.shortfall, division.notes), (Bytes::mib(50), vec![]));
    }

    proptest! {
        #[test]
        fn any_answer_keeps_bounds_and_budget(
            answer in prop::collection::vec((0..4usize, any::<u64>()), 0..5),
            budget in 0..2_000u64,
        ) {
            let target = |&(name, target): &(usize, u64)| GuestTarget {
                guest: id(["a", "b", "c", "d"][name]),
                target: Bytes::new(target >> (target % 40)),
            };
            let answer = PolicyAnswer::Targets(answer.iter().map(target).collect());
            let budget = Bytes::mib(budget);
            let division = divided(budget, answer);
            let total: Bytes = division.wanted.iter().map(|it| it.target).sum();
            prop_assert!(division.shortfall > Bytes::ZERO || total <= budget);
            for (wanted, contender) in division.wanted.iter().zip(problem(budget).contenders()) {
                let range = contender.floor..=contender.ceiling;
                prop_assert!(range.contains(&wanted.target), "{wanted:?}");
                prop_assert_eq!(wanted.target, wanted.target.page_floor());
            }
        }
    }
}
