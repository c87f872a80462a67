//! A guest's run state, from events and `query-status`.
//!
//! Idea: an event reports a change at once; if the new state is uncertain, `query-status` is sent.
//! Source: `qapi/run-state.json`.
//! Limits: a panic is only visible with a `pvpanic` device. QEMU may let a panicked guest run on
//! and report `running`; here it stays panicked until it is reset or resumed.

use ballast_model::RunState;

use crate::codec::printable;

/// The run state of one guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RunTracker {
    state: Option<RunState>,
    was_queried: bool,
    needs_query: bool,
}

impl RunTracker {
    /// The state, once it is known.
    pub(super) fn state(&self) -> Option<&RunState> {
        self.state.as_ref()
    }

    /// Whether to send `query-status` now; assumes that the caller does.
    pub(super) fn take_query_due(&mut self) -> bool {
        let needs_query = self.needs_query || !self.was_queried;
        self.was_queried = true;
        self.needs_query = false;
        needs_query
    }

    /// The state may have changed.
    pub(super) fn request_query(&mut self) {
        self.needs_query = true;
    }

    /// The connection ended: the state is unknown, unless the guest had shut down or panicked.
    pub(super) fn disconnected(&mut self) {
        if !matches!(self.state, Some(RunState::Shutdown | RunState::Panicked)) {
            *self = RunTracker::default();
        }
    }

    pub(super) fn event(&mut self, name: &str) {
        match name {
            "GUEST_PANICKED" | "GUEST_CRASHLOADED" => self.state = Some(RunState::Panicked),
            "SHUTDOWN" => self.state = Some(RunState::Shutdown),
            // The stop is a consequence of the shutdown or panic before it.
            "STOP" if matches!(self.state, Some(RunState::Panicked | RunState::Shutdown)) => {}
            "STOP" => {
                self.state = Some(RunState::Paused);
                // The reason may also be an I/O error, migration or saving.
                self.needs_query = true;
            }
            "RESUME" => {
                self.state = Some(RunState::Running);
                self.needs_query = true;
            }
            "RESET" => {
                self.state = None;
                self.needs_query = true;
            }
            "SUSPEND" | "SUSPEND_DISK" | "WAKEUP" | "WATCHDOG" | "MIGRATION" => {
                self.needs_query = true;
            }
            _ => {}
        }
    }

    /// Takes in the status in the reply to `query-status`.
    pub(super) fn status(&mut self, word: &str) {
        let state = match word {
            "running" if self.state == Some(RunState::Panicked) => RunState::Panicked,
            "running" => RunState::Running,
            "paused" => RunState::Paused,
            "shutdown" => RunState::Shutdown,
            "guest-panicked" => RunState::Panicked,
            "inmigrate" => RunState::Incoming,
            other => RunState::Other(printable(other, WORD_CHARS_MAX)),
        };
        self.state = Some(state);
    }
}

/// Longest unknown state kept; QEMU's longest run state has 15 characters.
const WORD_CHARS_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_and_replies_determine_the_state() {
        let other = |word: &str| RunState::Other(word.to_owned());
        // Steps: upper case is an event, lower case a reply.
        let table: &[(&[&str], RunState, bool)] = &[
            (&["running"], RunState::Running, false),
            (&["prelaunch"], other("prelaunch"), false),
            (&["inmigrate"], RunState::Incoming, false),
            (&["inmigrate", "RESUME"], RunState::Running, true),
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
        for (steps, state, needs_query) in table {
            let mut tracker = RunTracker::default();
            assert!(tracker.take_query_due(), "unknown at first");
            for step in *steps {
                if step.starts_with(|c: char| c.is_ascii_uppercase()) {
                    tracker.event(step);
                } else {
                    tracker.take_query_due();
                    tracker.status(step);
                }
            }
            assert_eq!(tracker.state(), Some(state), "{steps:?}");
            assert_eq!(tracker.take_query_due(), *needs_query, "{steps:?}");
        }
    }

    #[test]
    fn an_unknown_state_is_short_and_printable() {
        let mut tracker = RunTracker::default();
        tracker.status(&format!("a\n\u{1b}[2J{}", "x".repeat(100)));
        let Some(RunState::Other(word)) = tracker.state() else { panic!("{tracker:?}") };
        assert!(word.starts_with(r"a\n\u{1b}[2Jx"), "{word}");
        assert_eq!(word.chars().count(), WORD_CHARS_MAX);
    }
}
