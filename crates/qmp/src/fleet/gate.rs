//! Which actions may still be carried out.
//!
//! Idea: a plan that was overtaken must not undo a later one, however late its actions arrive.
//! Carrying out the same action twice is harmless, because its target is absolute.

use ballast_model::{Action, Generation, OutcomeKind, Timestamp};

/// Remembers the last plan of which an action was carried out, for one guest.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gate {
    last: Option<Generation>,
}

impl Gate {
    /// Whether `action` may be begun at `now`.
    pub(super) fn check(&self, action: &Action, now: Timestamp) -> Result<(), OutcomeKind> {
        if self.last.is_some_and(|last| action.generation < last) {
            return Err(OutcomeKind::Superseded);
        }
        if now > action.deadline {
            return Err(OutcomeKind::Expired);
        }
        Ok(())
    }

    /// `action` was sent: from here on it may take effect, whatever is heard of it.
    pub(super) fn begun(&mut self, action: &Action) {
        self.last = self.last.max(Some(action.generation));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ballast_model::Bytes;

    #[test]
    fn older_plans_and_late_actions_are_refused() {
        let action = |generation, deadline_ms| Action {
            guest: "a".parse().unwrap(),
            target: Bytes::mib(512),
            plug: None,
            generation: Generation(generation),
            deadline: Timestamp::from_millis(deadline_ms),
        };
        let now = Timestamp::from_millis(100);
        let mut gate = Gate::default();
        assert_eq!(gate.check(&action(5, 100), now), Ok(()));
        assert_eq!(gate.check(&action(5, 99), now), Err(OutcomeKind::Expired));
        gate.begun(&action(5, 100));
        for (generation, deadline, expected) in [
            (4, 200, Err(OutcomeKind::Superseded)),
            (4, 50, Err(OutcomeKind::Superseded)),
            (5, 200, Ok(())),
            (6, 200, Ok(())),
        ] {
            assert_eq!(gate.check(&action(generation, deadline), now), expected);
        }
    }
}
