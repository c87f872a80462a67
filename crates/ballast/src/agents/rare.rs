//! A line for the log that comes again and again, said now and then.
//!
//! Idea: the first is said at once, those that come within [`AGAIN_AFTER`] of it are counted, and the next that is
//! said tells how many they were: a guest that floods or lies fills nobody's log.

use std::time::Duration;

use ballast_model::Timestamp;

/// How long one is enough.
pub(super) const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// The lines of one kind.
#[derive(Debug, Default)]
pub(super) struct Rare {
    said: Option<Timestamp>,
    held_back: u64,
}

impl Rare {
    /// What is said of `text` at `now`; `None`: nothing yet.
    pub(super) fn say(&mut self, text: String, now: Timestamp) -> Option<String> {
        if self.said.is_some_and(|at| now.saturating_since(at) < AGAIN_AFTER) {
            self.held_back += 1;
            return None;
        }
        self.said = Some(now);
        match std::mem::take(&mut self.held_back) {
            0 => Some(text),
            more => Some(format!("{text} (and {more} more like it before)")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_said_and_the_others_are_counted() {
        let mut rare = Rare::default();
        let mut say = |s: u64| rare.say("x".to_owned(), Timestamp::from_millis(s * 1000));
        assert_eq!(say(5).as_deref(), Some("x"));
        assert_eq!((say(5), say(64)), (None, None));
        assert_eq!(say(65).as_deref(), Some("x (and 2 more like it before)"));
        assert_eq!(say(300).as_deref(), Some("x"));
    }
}
