//! Warnings that are logged when a problem begins, not at every tick.

use std::collections::BTreeMap;

use tracing::warn;

/// Most subjects remembered. With more, the alphabetically first one is forgotten, and its warning
/// may repeat.
const SUBJECTS_MAX: usize = 1000;

/// Remembers the last warning about each subject.
#[derive(Debug, Default)]
pub(crate) struct WarnOnce {
    last: BTreeMap<String, String>,
}

impl WarnOnce {
    /// Warns of `what` about `subject`, unless that was the last warning about it.
    pub(crate) fn warn(&mut self, subject: &str, what: &str) {
        if self.last.get(subject).is_some_and(|last| last == what) {
            return;
        }
        if self.last.len() >= SUBJECTS_MAX {
            self.last.pop_first();
        }
        self.last.insert(subject.to_owned(), what.to_owned());
        warn!(subject, "{subject}: {what}");
    }

    /// Forgets the warning about `subject`, because the problem is over. Returns whether there was
    /// one.
    pub(crate) fn clear(&mut self, subject: &str) -> bool {
        self.last.remove(subject).is_some()
    }
}
