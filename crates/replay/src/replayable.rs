//! Which policies can be replayed on a record.
//!
//! Idea: a policy that depends on how guests react to it cannot be replayed, because recorded
//! guests reacted to another policy. A policy that needs an input which no recorded guest provided
//! would decide by its fallback alone, so the advice would be about another policy.

use ballast_model::{Input, Plan, PolicyName};
use ballast_policy::catalogue::{self, PolicyEntry};

/// Why a policy cannot be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReplayable {
    /// It depends on how guests react to it.
    #[error(
        "policy {policy} cannot be replayed: it depends on how guests respond ({input}), and \
         recorded guests do not respond; choose another with --policy, such as global"
    )]
    Answers {
        /// The policy.
        policy: PolicyName,
        /// The input that depends on it.
        input: Input,
    },
    /// No recorded guest provided an input that it needs.
    #[error(
        "policy {policy} cannot be replayed on this record: it needs a {input} of guests, from \
         {provider}, and none is recorded; choose another with --policy, such as global",
        provider = input.provider()
    )]
    Lacking {
        /// The policy.
        policy: PolicyName,
        /// The missing input.
        input: Input,
    },
    /// A program decides, and a replay does not run it.
    #[error(
        "policy {policy} cannot be replayed: its program is not called for a replay; choose \
         another with --policy, such as global"
    )]
    Program {
        /// The policy.
        policy: PolicyName,
    },
    /// It is not one of Ballast's policies.
    #[error(
        "policy {policy} cannot be replayed here: expected {names}",
        names = PolicyName::list()
    )]
    Foreign {
        /// The policy.
        policy: PolicyName,
    },
}

/// Whether `policy` can be replayed at all.
///
/// # Errors
/// It depends on how guests react, a program decides, or it is not one of Ballast's policies.
pub fn ensure_replayable(policy: PolicyName) -> Result<(), NotReplayable> {
    if policy == PolicyName::External {
        return Err(NotReplayable::Program { policy });
    }
    let entry = entry(policy)?;
    let answers = |input: &Input| matches!(input, Input::Probed | Input::Requests);
    match entry.needs.iter().map(|need| need.input).find(answers) {
        Some(input) => Err(NotReplayable::Answers { policy, input }),
        None => Ok(()),
    }
}

/// The inputs that guests of a record provided.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordedInputs {
    committed: bool,
    curve: bool,
    swap_rate: bool,
    free: bool,
}

impl RecordedInputs {
    /// Takes a recorded plan in.
    pub fn observe(&mut self, plan: &Plan) {
        for estimate in plan.guests.iter().filter_map(|guest| guest.estimate.as_ref()) {
            self.committed |= estimate.signals.committed.is_some();
            self.curve |= estimate.curve.is_some();
            self.swap_rate |= estimate.signals.swapped_pages_per_s.is_some();
            self.free |= estimate.signals.free.is_some();
        }
    }

    /// Checks that each input that `policy` needs was provided by some guest.
    ///
    /// # Errors
    /// The first input that was not.
    pub fn ensure(&self, policy: PolicyName) -> Result<(), NotReplayable> {
        let is_lacking = |input: &Input| match input {
            Input::Committed => !self.committed,
            Input::MissCurve => !self.curve,
            Input::SwapRate => !self.swap_rate,
            Input::Free => !self.free,
            Input::Probed | Input::Requests => true,
        };
        match entry(policy)?.needs.iter().map(|need| need.input).find(is_lacking) {
            Some(input) => Err(NotReplayable::Lacking { policy, input }),
            None => Ok(()),
        }
    }
}

fn entry(policy: PolicyName) -> Result<&'static PolicyEntry, NotReplayable> {
    catalogue::entry(policy).ok_or(NotReplayable::Foreign { policy })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_that_wait_for_answers_are_refused() {
        let refused: Vec<&str> = PolicyName::ALL
            .into_iter()
            .filter(|policy| ensure_replayable(*policy).is_err())
            .map(PolicyName::as_str)
            .collect();
        assert_eq!(refused, ["tws", "fcfs", "demand-proportional", "external"]);
        let rival = ensure_replayable(PolicyName::Custom("mom")).unwrap_err().to_string();
        assert!(rival.contains("mom") && rival.contains("global"), "{rival}");
    }

    #[test]
    fn an_input_that_nobody_provided_is_named() {
        let all = RecordedInputs { committed: true, curve: true, swap_rate: true, free: true };
        let none = RecordedInputs::default();
        for (policy, input) in [
            (PolicyName::Meb, Input::MissCurve),
            (PolicyName::SelfBalloon, Input::Committed),
            (PolicyName::Auction, Input::Free),
        ] {
            assert_eq!(none.ensure(policy), Err(NotReplayable::Lacking { policy, input }));
            assert_eq!(all.ensure(policy), Ok(()));
        }
        assert_eq!(none.ensure(PolicyName::Global), Ok(()));
    }
}
