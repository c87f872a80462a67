//! What happened between ticks, as a record.

use serde::{Deserialize, Serialize};

use crate::Event;

/// An [`Event`]. A configuration's text is kept apart, under the number the row carries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "code", rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the variants are those of the event type, which documents them")]
pub enum EventRecord {
    Started,
    ConfigLoaded,
    ConfigRefused {
        why: String,
    },
    Command {
        who: String,
        command: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answer: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
    },
    Gap {
        ticks: u64,
        events: u64,
        why: String,
    },
    Stopped {
        why: String,
    },
}

impl From<&Event> for EventRecord {
    fn from(event: &Event) -> Self {
        match event {
            Event::Started => EventRecord::Started,
            Event::ConfigLoaded { .. } => EventRecord::ConfigLoaded,
            Event::ConfigRefused { why } => EventRecord::ConfigRefused { why: why.clone() },
            Event::Command { who, command, answer } => EventRecord::Command {
                who: who.clone(),
                command: command.clone(),
                answer: answer.as_ref().ok().cloned(),
                refused: answer.as_ref().err().cloned(),
            },
            Event::Gap { ticks, events, why } => {
                EventRecord::Gap { ticks: *ticks, events: *events, why: why.clone() }
            }
            Event::Stopped { why } => EventRecord::Stopped { why: why.clone() },
        }
    }
}

impl EventRecord {
    /// The event, given the text of the configuration its row names.
    pub fn into_event(self, toml: impl FnOnce() -> String) -> Event {
        match self {
            EventRecord::Started => Event::Started,
            EventRecord::ConfigLoaded => Event::ConfigLoaded { toml: toml() },
            EventRecord::ConfigRefused { why } => Event::ConfigRefused { why },
            EventRecord::Command { who, command, answer, refused } => Event::Command {
                who,
                command,
                answer: refused.map_or(Ok(answer.unwrap_or_default()), Err),
            },
            EventRecord::Gap { ticks, events, why } => Event::Gap { ticks, events, why },
            EventRecord::Stopped { why } => Event::Stopped { why },
        }
    }
}
