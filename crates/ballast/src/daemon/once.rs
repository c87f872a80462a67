//! Warnings that are said when they begin, not every second.

use std::collections::BTreeMap;

use tracing::warn;

/// Most subjects remembered; beyond that the oldest names are forgotten and may be said again.
const SUBJECTS_MAX: usize = 1000;

/// Remembers what was said last about each subject.
#[derive(Debug, Default)]
pub(super) struct Once {
    said: BTreeMap<String, String>,
}

impl Once {
    /// Says `what` about `subject`, unless that was the last thing said about it.
    pub(super) fn warn(&mut self, subject: &str, what: &str) {
        if self.said.get(subject).is_some_and(|last| last == what) {
            return;
        }
        if self.said.len() >= SUBJECTS_MAX {
            self.said.pop_first();
        }
        self.said.insert(subject.to_owned(), what.to_owned());
        warn!("{subject}: {what}");
    }

    /// What troubled `subject` is over; it is worth saying again.
    pub(super) fn over(&mut self, subject: &str) -> bool {
        self.said.remove(subject).is_some()
    }
}
