//! What a guest is doing, from what QEMU says and from what happens.
//!
//! Idea: events say that something changed, at once; `query-status` says to what. An event that
//! leaves a doubt asks for the query.
//! Source: `qapi/run-state.json`.
//! Limits: a panic is only known where the guest has a `pvpanic` device. QEMU may let a panicked
//! guest run on and say `running`; it stays panicked here until it is reset or resumed.

use ballast_model::RunState;

/// Follows the run state of one guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RunTracker {
    state: Option<RunState>,
    asked: bool,
    doubt: bool,
}

impl RunTracker {
    /// The state, once it is known.
    pub(super) fn state(&self) -> Option<&RunState> {
        self.state.as_ref()
    }

    /// Whether `query-status` should be asked; asking settles it.
    pub(super) fn take_doubt(&mut self) -> bool {
        let doubt = self.doubt || !self.asked;
        self.asked = true;
        self.doubt = false;
        doubt
    }

    /// What was known may no longer be so.
    pub(super) fn doubt(&mut self) {
        self.doubt = true;
    }

    /// Nothing can be seen any more; only an end stays an end.
    pub(super) fn disconnected(&mut self) {
        if !matches!(self.state, Some(RunState::Shutdown | RunState::Panicked)) {
            *self = RunTracker::default();
        }
    }

    /// An event of this name has come.
    pub(super) fn event(&mut self, name: &str) {
        match name {
            "GUEST_PANICKED" | "GUEST_CRASHLOADED" => self.state = Some(RunState::Panicked),
            "SHUTDOWN" => self.state = Some(RunState::Shutdown),
            // A stop belongs to the end or the panic that came before it.
            "STOP" if matches!(self.state, Some(RunState::Panicked | RunState::Shutdown)) => {}
            "STOP" => {
                self.state = Some(RunState::Paused);
                // It also stops for I/O errors, migration, saving: the query tells.
                self.doubt = true;
            }
            "RESUME" => {
                self.state = Some(RunState::Running);
                self.doubt = true;
            }
            "RESET" => {
                self.state = None;
                self.doubt = true;
            }
            "SUSPEND" | "SUSPEND_DISK" | "WAKEUP" | "WATCHDOG" | "MIGRATION" => self.doubt = true,
            _ => {}
        }
    }

    /// `query-status` answered this word.
    pub(super) fn status(&mut self, word: &str) {
        let state = match word {
            "running" if self.state == Some(RunState::Panicked) => RunState::Panicked,
            "running" => RunState::Running,
            "paused" => RunState::Paused,
            "shutdown" => RunState::Shutdown,
            "guest-panicked" => RunState::Panicked,
            other => RunState::Other(other.chars().take(WORD_CHARS_MAX).collect()),
        };
        self.state = Some(state);
    }
}

/// Longest foreign word kept; QEMU's longest run state has 15 characters.
const WORD_CHARS_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_and_answers_lead_to_the_state() {
        let other = |word: &str| RunState::Other(word.to_owned());
        // Steps: upper case is an event, lower case an answer.
        let table: &[(&[&str], RunState, bool)] = &[
            (&["running"], RunState::Running, false),
            (&["prelaunch"], other("prelaunch"), false),
            (&["running", "STOP"], RunState::Paused, true),
            (&["running", "STOP", "io-error"], other("io-error"), false),
            (&["running", "STOP", "paused", "RESUME"], RunState::Running, true),
            (&["running", "SHUTDOWN"], RunState::Shutdown, false),
            (&["running", "SHUTDOWN", "STOP"], RunState::Shutdown, false),
            (&["running", "GUEST_PANICKED"], RunState::Panicked, false),
            (&["running", "GUEST_PANICKED", "STOP"], RunState::Panicked, false),
            (&["running", "GUEST_PANICKED", "running"], RunState::Panicked, false),
            (&["running", "GUEST_PANICKED", "RESET", "running"], RunState::Running, false),
            (&["guest-panicked"], RunState::Panicked, false),
            (&["running", "BALLOON_CHANGE"], RunState::Running, false),
        ];
        for (steps, state, doubt) in table {
            let mut tracker = RunTracker::default();
            assert!(tracker.take_doubt(), "nothing is known at first");
            for step in *steps {
                if step.starts_with(|c: char| c.is_ascii_uppercase()) {
                    tracker.event(step);
                } else {
                    tracker.take_doubt();
                    tracker.status(step);
                }
            }
            assert_eq!(tracker.state(), Some(state), "{steps:?}");
            assert_eq!(tracker.take_doubt(), *doubt, "{steps:?}");
        }
    }
}
