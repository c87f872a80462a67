//! Moves through the ticks of a journal, and back through its events, without reading what they
//! hold.
//!
//! Idea: a place is a row's number and its wall clock. Ticks are ordered by number; a span of time
//! leads to the first tick that is at least so far away by the wall clock, and at an end to the
//! last one there. Cost: a query, which passes over the rows between. Limits: where the wall clock
//! was set back, a step of time passes over all the rows until it is so late again.

use rusqlite::OptionalExtension;

use crate::JournalError;
use crate::reader::Reader;
use crate::schema::{KIND_EVENT, KIND_TICK};

/// The place of a tick, or of an event, in the journal.
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
    /// So many milliseconds ahead.
    Later(u32),
    /// So many milliseconds back.
    Earlier(u32),
}

impl Reader {
    /// The tick that `seek` leads to from `from`; at an end, the one at that end. `None`: the
    /// journal has no tick.
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

    /// The last event numbered below `id` that is of `wall_ms` or later; `None`: there is none.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn event_before(&self, id: i64, wall_ms: i64) -> Result<Option<Place>, JournalError> {
        self.place(KIND_EVENT, "id < ?1 AND wall_ms >= ?2 ORDER BY id DESC", id, wall_ms)
    }

    /// The first tick numbered above `id` that is of `wall_ms` or later.
    fn place_ahead(&self, id: i64, wall_ms: i64) -> Result<Option<Place>, JournalError> {
        self.place(KIND_TICK, "id > ?1 AND wall_ms >= ?2 ORDER BY id", id, wall_ms)
    }

    /// The last tick numbered below `id` that is of `wall_ms` or earlier.
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
