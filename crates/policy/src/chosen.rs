//! What every policy that is chosen by name gets on top of its own rule.
//!
//! Idea: priorities and the notes on missing data are alike for all policies, so each is written
//! once, and a policy need know of neither. A policy handed over ready made, such as a rival's, is
//! what it is.
//! Cost: O(n) where priorities are equal, and where they differ that of `priority`.

use ballast_model::{Bytes, GuestId, PolicyName, Timestamp};

use crate::catalogue::{self, Entry};
use crate::flexmemd::Ledger;
use crate::{Division, Pacing, Policy, Problem, priority};

/// A policy with priorities and notes.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    rule: Box<dyn Policy>,
    entry: Option<&'static Entry>,
    reserve: Bytes,
}

impl Chosen {
    /// `rule` with what its entry in the catalogue says it needs; `reserve` belongs to the need of
    /// guests of higher priority.
    pub(crate) fn new(rule: Box<dyn Policy>, reserve: Bytes) -> Chosen {
        Chosen { entry: catalogue::entry(rule.name()), rule, reserve }
    }
}

impl Policy for Chosen {
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

    fn ledger(&self) -> Option<&Ledger> {
        self.rule.ledger()
    }

    fn keep_credits(&mut self, accounts: &[(GuestId, u64)], now: Timestamp) {
        self.rule.keep_credits(accounts, now);
    }
}
