//! Rejects outdated actions.
//!
//! Idea: an action of an older plan must not undo a newer plan, however late it arrives. Carrying
//! out the same action twice is harmless, because its target is absolute.

use ballast_model::{Action, Generation, OutcomeKind, Timestamp};

/// The generation of the last action sent to one guest.
#[derive(Clone, Copy, Debug, Default)]
pub struct GenerationGate {
    last: Option<Generation>,
}

impl GenerationGate {
    /// Checks whether `action` may be sent at `now`.
    ///
    /// # Errors
    /// Why it may not: [`OutcomeKind::Superseded`] or [`OutcomeKind::Expired`].
    pub fn check(&self, action: &Action, now: Timestamp) -> Result<(), OutcomeKind> {
        if self.last.is_some_and(|last| action.generation < last) {
            return Err(OutcomeKind::Superseded);
        }
        if now > action.deadline {
            return Err(OutcomeKind::Expired);
        }
        Ok(())
    }

    /// Notes that `action` was sent: it may take effect whatever the reply is.
    pub fn sent(&mut self, action: &Action) {
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
        let mut gate = GenerationGate::default();
        assert_eq!(gate.check(&action(5, 100), now), Ok(()));
        assert_eq!(gate.check(&action(5, 99), now), Err(OutcomeKind::Expired));
        gate.sent(&action(5, 100));
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
