//! Decisions, and how long each takes.
//!
//! Idea: a policy decides a few turns, then is copied for every run, so that each run decides the
//! same from the same state. The copy is not timed, nor is dropping the answer.

use std::hint::black_box;

use ballast_model::{Desired, PolicyName, Reason};
use ballast_policy::fairness::Fairness;
use ballast_policy::{Division, Policy, PolicySettings, Problem, build};

use super::super::timing::{RunTime, timed};
use super::guests::{self, Situation, problem};

/// Decisions before the one that is timed.
const TURNS_BEFORE: u64 = 3;

/// What is timed.
#[derive(Clone, Debug)]
enum Decider {
    /// Answers that every guest keeps what it has: no policy can be faster than that.
    Floor,
    /// Computes the index of fairness, which the daemon does beside every policy.
    Fairness(Fairness),
    Policy(Box<dyn Policy>),
}

/// The names of everything that is timed, in the order of the report: the floor first.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    ["floor", "fairness"].into_iter().chain(policies().map(PolicyName::as_str))
}

/// All built-in policies but `meb`, which has its own goal: see `ballast bench solver`.
fn policies() -> impl Iterator<Item = PolicyName> {
    PolicyName::BUILT_IN.iter().copied().filter(|name| *name != PolicyName::Meb)
}

impl Decider {
    fn all() -> Vec<Self> {
        let policies = policies().map(|name| build(name, PolicySettings::default()));
        let others = [Self::Floor, Self::Fairness(Fairness::default())];
        others.into_iter().chain(policies.map(Self::Policy)).collect()
    }

    fn decide(&mut self, problem: &Problem) -> Option<Division> {
        match self {
            Self::Floor => Some(keep(problem)),
            Self::Fairness(fairness) => {
                fairness.observe(problem);
                None
            }
            Self::Policy(policy) => Some(policy.divide(problem)),
        }
    }
}

fn keep(problem: &Problem) -> Division {
    let kept = problem.contenders().iter().map(|contender| Desired {
        target: contender.allocation,
        reason: Reason::Committed { committed: contender.allocation },
    });
    Division { wanted: kept.collect(), shortfall: problem.shortfall(), notes: Vec::new() }
}

/// Lets everything that is timed decide in turn, `repetitions` times; returns the times of each, in
/// the order of [`names`].
///
/// # Errors
/// The guests cannot be made.
pub(super) fn measure(
    situation: Situation,
    guests: u64,
    repetitions: usize,
) -> anyhow::Result<Vec<Vec<RunTime>>> {
    let (mut deciders, guests) = (Decider::all(), guests::names(guests)?);
    for turn in 0..TURNS_BEFORE {
        let problem = problem(situation, &guests, turn);
        deciders.iter_mut().for_each(|decider| drop(decider.decide(&problem)));
    }
    let problem = problem(situation, &guests, TURNS_BEFORE);
    let mut runs = vec![Vec::with_capacity(repetitions); deciders.len()];
    for _ in 0..repetitions {
        for (decider, runs) in deciders.iter().zip(&mut runs) {
            let mut decider = decider.clone();
            let (division, taken) = timed(|| black_box(decider.decide(black_box(&problem))));
            drop(division);
            runs.push(taken);
        }
    }
    Ok(runs)
}
