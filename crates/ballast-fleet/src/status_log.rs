//! What the program writes to standard error.
//!
//! Idea: one line when the state of a topic has changed, so that a state that lasts for hours is
//! reported once.

use std::cell::RefCell;
use std::collections::BTreeMap;

use ballast_model::GuestId;
use ballast_report::{harmless_line, note};

/// Writes the state of each topic once, until it changes.
#[derive(Debug, Default)]
pub(crate) struct StatusLog {
    last: RefCell<BTreeMap<String, String>>,
}

impl StatusLog {
    /// As `log`, about one guest.
    pub(crate) fn log_of(&self, topic: &str, guest: &GuestId, text: &str) {
        self.log(&format!("{topic} {guest}"), text);
    }

    /// Writes `text` about `topic`, unless that was the last text about it.
    pub(crate) fn log(&self, topic: &str, text: &str) {
        let mut last = self.last.borrow_mut();
        if last.get(topic).is_some_and(|logged| logged == text) {
            return;
        }
        note(&harmless_line(text));
        last.insert(topic.to_owned(), text.to_owned());
    }

    /// The last text about `topic`.
    #[cfg(test)]
    pub(crate) fn last(&self, topic: &str) -> Option<String> {
        self.last.borrow().get(topic).cloned()
    }
}
