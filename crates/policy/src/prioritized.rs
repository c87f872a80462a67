//! Adds priorities and notes on missing data to a policy chosen by name.
//!
//! Idea: both are the same for all policies, so they are written once, and no policy needs to know
//! of them. A policy passed as an object, such as a rival's, does not get them.
//! Cost: O(n) with equal priorities, otherwise that of `priority`.

use ballast_model::{Bytes, GuestId, PolicyAnswer, PolicyName, Timestamp};

use crate::catalogue::{self, PolicyEntry};
use crate::flexmemd::Accounts;
use crate::{Division, Pacing, Policy, Problem, priority};

/// A policy with priorities and notes.
#[derive(Clone, Debug)]
pub(crate) struct PrioritizedPolicy {
    rule: Box<dyn Policy>,
    entry: Option<&'static PolicyEntry>,
    reserve: Bytes,
}

impl PrioritizedPolicy {
    /// Wraps `rule`; `reserve` is part of what guests of higher priority need.
    pub(crate) fn new(rule: Box<dyn Policy>, reserve: Bytes) -> PrioritizedPolicy {
        PrioritizedPolicy { entry: catalogue::entry(rule.name()), rule, reserve }
    }
}

impl Policy for PrioritizedPolicy {
    fn name(&self) -> PolicyName {
        self.rule.name()
    }

    fn pacing(&self) -> Pacing {
        self.rule.pacing()
    }

    fn divide(&mut self, problem: &Problem) -> Division {
        let mut division = self.rule.divide(problem);
        priority::apply(problem, self.reserve, &mut division);
        if let Some(entry) = self.entry {
            division.notes.extend(entry.missing(problem));
        }
        division
    }

    fn accounts(&self) -> Option<&Accounts> {
        self.rule.accounts()
    }

    fn restore_credits(&mut self, credits: &[(GuestId, u64)], now: Timestamp) {
        self.rule.restore_credits(credits, now);
    }

    fn set_credits(&mut self, guest: &GuestId, credits: u64, now: Timestamp) {
        self.rule.set_credits(guest, credits, now);
    }

    fn take_answer(&mut self, answer: PolicyAnswer) {
        self.rule.take_answer(answer);
    }
}
