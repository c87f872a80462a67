//! What the program says of itself.
//!
//! Idea: one line on standard error when something is otherwise than it was last said to be; what
//! goes on for hours is said once.

use std::cell::RefCell;
use std::collections::BTreeMap;

use ballast_model::GuestId;
use ballast_report::{harmless_line, note};

/// Says each thing once, until it changes.
#[derive(Debug, Default)]
pub(crate) struct Speaker {
    said: RefCell<BTreeMap<String, String>>,
}

impl Speaker {
    /// The same, of one guest.
    pub(crate) fn say_of(&self, topic: &str, guest: &GuestId, text: &str) {
        self.say(&format!("{topic} {guest}"), text);
    }

    /// Says `text` about `topic`, unless that was the last said about it.
    pub(crate) fn say(&self, topic: &str, text: &str) {
        let mut said = self.said.borrow_mut();
        if said.get(topic).is_some_and(|last| last == text) {
            return;
        }
        note(&harmless_line(text));
        said.insert(topic.to_owned(), text.to_owned());
    }

    /// What was said last about `topic`.
    #[cfg(test)]
    pub(crate) fn last(&self, topic: &str) -> Option<String> {
        self.said.borrow().get(topic).cloned()
    }
}
