//! The last tick of a journal: for people, and for the next daemon.
//!
//! Idea: people want the last tick with the last outcome of each guest. A daemon that starts needs
//! the last tick and the events since, and nothing earlier. Limits: outcomes are looked for in the
//! last [`OUTCOME_TICKS_MAX`] ticks.

use std::collections::{BTreeMap, VecDeque};
use std::time::SystemTime;

use ballast_model::{GuestId, Outcome};

use crate::JournalError;
use crate::entry::{Entry, EntryContent, Event, Session, TickEntry};
use crate::reader::{Entries, Range, Reader};

/// How far back [`Reader::latest`] looks for the last outcome of each guest: two minutes of ticks.
const OUTCOME_TICKS_MAX: usize = 120;

/// Most events of [`JournalTail`]; the latest are kept. An operator hardly sends more between two
/// ticks.
const TAIL_EVENTS_MAX: usize = 64;

/// The last tick and its context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latest {
    /// The entry of the tick: number, session, configuration and clocks.
    pub entry: Entry,
    /// The tick.
    pub tick: TickEntry,
    /// The last outcome of each guest, with the wall clock of the tick that recorded it.
    pub outcomes: BTreeMap<GuestId, (SystemTime, Outcome)>,
    /// Its session.
    pub session: Session,
    /// Why that daemon stopped; `None`: it runs, crashed or was killed.
    pub stopped: Option<String>,
}

/// The tail of a journal: what the daemons before this one left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalTail {
    /// The last tick, and the start of the daemon that recorded it; `None`: none was recorded.
    pub last: Option<(Session, TickEntry)>,
    /// The events after that tick, in order, each with the boot id of its session. They are of
    /// that daemon, and of daemons that ended before they recorded a tick.
    pub events: VecDeque<(String, Event)>,
}

impl Reader {
    /// The last tick with its context; `None`: none was recorded.
    ///
    /// # Errors
    /// The file or a row cannot be read.
    pub fn latest(&self) -> Result<Option<Latest>, JournalError> {
        self.latest_until(i64::MAX)
    }

    /// The last tick numbered at most `id`, with its context as it was then; `None`: there is none.
    ///
    /// # Errors
    /// The file or a row cannot be read.
    pub fn latest_until(&self, id: i64) -> Result<Option<Latest>, JournalError> {
        let Some((entry, tick)) = self.tick_before(id.saturating_add(1))? else { return Ok(None) };
        let mut outcomes = BTreeMap::new();
        let mut next = Some((entry.clone(), tick.clone()));
        for _ in 0..OUTCOME_TICKS_MAX {
            let Some((at, then)) = next.take_if(|(at, _)| at.session == entry.session) else {
                break;
            };
            for outcome in then.outcomes.iter().rev() {
                outcomes
                    .entry(outcome.guest.clone())
                    .or_insert_with(|| (at.wall(), outcome.clone()));
            }
            if tick.plan.guests.iter().all(|guest| outcomes.contains_key(&guest.id)) {
                break;
            }
            next = self.tick_before(at.id)?;
        }
        let session = self.session_of(&entry)?;
        let mut stopped = None;
        for event in self.events_after(&entry) {
            if let EntryContent::Event(Event::Stopped { why }) = event?.content {
                stopped = Some(why);
            }
        }
        Ok(Some(Latest { entry, tick, outcomes, session, stopped }))
    }

    /// The tail of the journal: what the daemons before this one left behind.
    ///
    /// # Errors
    /// The last tick or what came after it cannot be read. An earlier tick is no substitute, as its
    /// promises no longer hold.
    pub fn tail(&self) -> Result<JournalTail, JournalError> {
        let mut tail = JournalTail::default();
        let mut after = Range::default();
        if let Some((entry, tick)) = self.last_tick()? {
            after.from_id = Some(entry.id);
            tail.last = Some((self.session_of(&entry)?, tick));
        }
        for entry in self.events(after) {
            let entry = entry?;
            let boot_id = self.session_of(&entry)?.start.boot_id;
            if let EntryContent::Event(event) = entry.content {
                tail.events.push_back((boot_id, event));
            }
            if tail.events.len() > TAIL_EVENTS_MAX {
                tail.events.pop_front();
            }
        }
        Ok(tail)
    }

    fn session_of(&self, entry: &Entry) -> Result<Session, JournalError> {
        let missing =
            || JournalError::damaged(self.path(), format!("no session {}", entry.session));
        self.session(entry.session)?.ok_or_else(missing)
    }

    /// What happened after `entry` in its session.
    fn events_after(&self, entry: &Entry) -> Entries<'_> {
        let session = Some(entry.session);
        self.events(Range { from_id: Some(entry.id), session, ..Range::default() })
    }
}
