//! Moves through the ticks of a journal, and back through its events, without decoding them.
//!
//! Idea: a place is a row's number and its wall clock. Ticks are ordered by number. A step of time
//! leads to the first tick at least that far away by the wall clock, or to the tick at the end of
//! the journal. Cost: one query, which passes over the rows in between. Limits: where the wall
//! clock was set back, a step of time passes over all rows up to the time it was set back from.

use rusqlite::OptionalExtension;

use crate::JournalError;
use crate::reader::Reader;
use crate::schema::{KIND_EVENT, KIND_TICK};

/// The place of a tick or an event in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its number.
    pub id: i64,
    /// Its wall clock, milliseconds since 1970.
    pub wall_ms: i64,
}

/// Where to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// To the oldest tick.
    First,
    /// To the newest.
    Last,
    /// One tick ahead.
    Next,
    /// One tick back.
    Previous,
    /// This many milliseconds ahead.
    Later(u32),
    /// This many milliseconds back.
    Earlier(u32),
}

impl Reader {
    /// The tick that `seek` leads to from `from`, but not beyond the first or the last tick.
    /// `None`: the journal has no tick.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn seek(&self, from: Place, seek: Seek) -> Result<Option<Place>, JournalError> {
        let found = match seek {
            Seek::First | Seek::Last => None,
            Seek::Next => self.place_ahead(from.id, i64::MIN)?,
            Seek::Previous => self.place_back(from.id, i64::MAX)?,
            Seek::Later(ms) => self.place_ahead(from.id, from.wall_ms.saturating_add(ms.into()))?,
            Seek::Earlier(ms) => {
                self.place_back(from.id, from.wall_ms.saturating_sub(ms.into()))?
            }
        };
        if found.is_some() {
            return Ok(found);
        }
        match seek {
            Seek::First | Seek::Previous | Seek::Earlier(_) => self.place_ahead(i64::MIN, i64::MIN),
            Seek::Last | Seek::Next | Seek::Later(_) => self.place_back(i64::MAX, i64::MAX),
        }
    }

    /// The last event numbered below `id` with a wall clock of `wall_ms` or later, in milliseconds
    /// since 1970; `None`: there is none.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn event_before(&self, id: i64, wall_ms: i64) -> Result<Option<Place>, JournalError> {
        self.place(KIND_EVENT, "id < ?1 AND wall_ms >= ?2 ORDER BY id DESC", id, wall_ms)
    }

    /// The first tick numbered above `id` with a wall clock of `wall_ms` or later.
    fn place_ahead(&self, id: i64, wall_ms: i64) -> Result<Option<Place>, JournalError> {
        self.place(KIND_TICK, "id > ?1 AND wall_ms >= ?2 ORDER BY id", id, wall_ms)
    }

    /// The last tick numbered below `id` with a wall clock of `wall_ms` or earlier.
    fn place_back(&self, id: i64, wall_ms: i64) -> Result<Option<Place>, JournalError> {
        self.place(KIND_TICK, "id < ?1 AND wall_ms <= ?2 ORDER BY id DESC", id, wall_ms)
    }

    fn place(
        &self,
        kind: i64,
        which: &str,
        id: i64,
        wall_ms: i64,
    ) -> Result<Option<Place>, JournalError> {
        let sql = format!("SELECT id, wall_ms FROM entry WHERE kind = {kind} AND {which} LIMIT 1");
        let read = |row: &rusqlite::Row<'_>| Ok(Place { id: row.get(0)?, wall_ms: row.get(1)? });
        self.connection
            .prepare_cached(&sql)
            .and_then(|mut statement| statement.query_row((id, wall_ms), read).optional())
            .map_err(|e| self.sqlite(e))
    }
}
