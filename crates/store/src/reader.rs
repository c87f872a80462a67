//! Reads a journal, with or without a running daemon.
//!
//! Idea: rows are fetched in batches, each in its own transaction, so that a slow reader never
//! blocks checkpoints of the daemon's write-ahead log. Rows that retention deletes in between are
//! skipped. Cost: 0.5 to 1 ms per tick of a hundred guests, nearly all of it for parsing JSON.
//! Limits: [`BATCH_ROWS`] rows in memory. A damaged row is one error, and so are the rows of a
//! damaged page; those after them can still be read.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use ballast_model::{Bytes, CurveReference, MissCurve, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row};
use serde_json::Value;

use crate::JournalError;
use crate::aside::is_about_content;
use crate::codec::{decode, decode_bytes};
use crate::entry::{Config, Entry, EntryContent, Event, RECORD_FORMAT, Session, Start, TickEntry};
use crate::row::RawRow;
use crate::schema::{self, KIND_EVENT, KIND_TICK};
use crate::{curves, delta};

/// Most curves cached; consecutive ticks mostly share theirs.
const CURVES_MAX: usize = 4096;

/// Most row numbers that are tried to get past damaged pages: as many as a hundred pages can hold.
const SKIPPED_ROWS_MAX: usize = 10_000;

/// Rows fetched at once.
const BATCH_ROWS: i64 = 16;

/// Selects entries; bounds are inclusive, and `None` is no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// The first number.
    pub from_id: Option<i64>,
    /// The last number.
    pub to_id: Option<i64>,
    /// Entries of this wall-clock time (milliseconds since 1970) or later.
    pub from_wall_ms: Option<i64>,
    /// Entries of this wall-clock time or earlier.
    pub to_wall_ms: Option<i64>,
    /// One session.
    pub session: Option<i64>,
}

/// What a journal holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// The file.
    pub path: PathBuf,
    /// Rows.
    pub entries: u64,
    /// Number and wall clock (milliseconds since 1970) of the oldest row.
    pub first: Option<(i64, i64)>,
    /// Number and wall clock of the newest row.
    pub last: Option<(i64, i64)>,
    /// Sessions that still have rows.
    pub sessions: u64,
    /// Size of the file.
    pub file_bytes: Bytes,
    /// Size of the write-ahead log beside it.
    pub wal_bytes: Bytes,
}

/// Reads one journal.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    pub(crate) connection: Connection,
    curves: RefCell<BTreeMap<i64, Arc<MissCurve>>>,
    /// Cache: number and content of the whole row from which the last difference was made.
    base: RefCell<Option<(i64, Value)>>,
    columns: String,
}

/// Why a row yields no entry.
enum EntryError {
    /// Retention has deleted it, or a row that it needs.
    Gone,
    Failed(JournalError),
}

impl Reader {
    /// Opens the journal at `path` for reading only.
    ///
    /// # Errors
    /// There is no file, or it is not a journal, is damaged, or has a later format.
    pub fn open(path: &Path) -> Result<Reader, JournalError> {
        if !path.exists() {
            return Err(JournalError::Missing { path: path.to_owned() });
        }
        let connection = schema::open_for_reading(path)?;
        let format: i64 = connection
            .query_row("PRAGMA user_version", [], |row| row.get(0))
            .map_err(|e| JournalError::sqlite(path, e))?;
        Ok(Reader {
            path: path.to_owned(),
            connection,
            curves: RefCell::default(),
            base: RefCell::default(),
            columns: RawRow::columns(format),
        })
    }

    /// Summarizes the journal.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn info(&self) -> Result<Info, JournalError> {
        let first = self.row_at_end("ASC")?;
        let last = self.row_at_end("DESC")?;
        let sessions: i64 = self
            .connection
            .query_row("SELECT count(*) FROM session", [], |row| row.get(0))
            .map_err(|e| self.sqlite(e))?;
        let size = |path: &Path| Bytes::new(fs::metadata(path).map_or(0, |found| found.len()));
        Ok(Info {
            path: self.path.clone(),
            // Only the oldest rows are ever deleted: numbers have no gap.
            entries: match (first, last) {
                (Some((first, _)), Some((last, _))) => (last - first).max(0).unsigned_abs() + 1,
                _ => 0,
            },
            first,
            last,
            sessions: sessions.unsigned_abs(),
            file_bytes: size(&self.path),
            wal_bytes: size(&schema::wal_path(&self.path)),
        })
    }

    fn row_at_end(&self, order: &str) -> Result<Option<(i64, i64)>, JournalError> {
        self.connection
            .query_row(
                &format!("SELECT id, wall_ms FROM entry ORDER BY id {order} LIMIT 1"),
                [],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .optional()
            .map_err(|e| self.sqlite(e))
    }

    /// Ticks and events in order.
    pub fn entries(&self, range: Range) -> Entries<'_> {
        Entries { reader: self, range, kind: None, after: None, rows: VecDeque::new(), done: false }
    }

    /// Ticks in order.
    pub fn ticks(&self, range: Range) -> Entries<'_> {
        Entries { kind: Some(KIND_TICK), ..self.entries(range) }
    }

    /// Events in order.
    pub fn events(&self, range: Range) -> Entries<'_> {
        Entries { kind: Some(KIND_EVENT), ..self.entries(range) }
    }

    /// The last tick; `None`: none was recorded.
    ///
    /// # Errors
    /// The file or the row cannot be read.
    pub fn last_tick(&self) -> Result<Option<(Entry, TickEntry)>, JournalError> {
        self.tick_before(i64::MAX)
    }

    /// The last tick numbered below `id`.
    pub(crate) fn tick_before(&self, id: i64) -> Result<Option<(Entry, TickEntry)>, JournalError> {
        let sql = format!(
            "SELECT {} FROM entry WHERE kind = {KIND_TICK} AND id < ?1 ORDER BY id DESC LIMIT 1",
            self.columns
        );
        let row = self
            .connection
            .prepare_cached(&sql)
            .and_then(|mut statement| statement.query_row([id], RawRow::read).optional())
            .map_err(|e| self.sqlite(e))?;
        let Some(row) = row else { return Ok(None) };
        let entry = match self.entry(row) {
            Ok(entry) => entry,
            Err(EntryError::Gone) => return Ok(None),
            Err(EntryError::Failed(e)) => return Err(e),
        };
        match &entry.content {
            EntryContent::Tick(tick) => {
                let tick = (**tick).clone();
                Ok(Some((entry, tick)))
            }
            EntryContent::Event(_) => Ok(None),
        }
    }

    /// A session; `None`: it has no rows left.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn session(&self, id: i64) -> Result<Option<Session>, JournalError> {
        self.connection
            .query_row("SELECT * FROM session WHERE id = ?1", [id], session)
            .optional()
            .map_err(|e| self.sqlite(e))
    }

    /// The sessions that still have rows, oldest first.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn sessions(&self) -> Result<Vec<Session>, JournalError> {
        self.connection
            .prepare("SELECT * FROM session ORDER BY id")
            .and_then(|mut statement| statement.query_map([], session)?.collect())
            .map_err(|e| self.sqlite(e))
    }

    /// A configuration by its number in [`Entry::config`].
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn config(&self, id: i64) -> Result<Option<Config>, JournalError> {
        self.connection
            .query_row("SELECT id, sha256, toml FROM config WHERE id = ?1", [id], |row| {
                Ok(Config { id: row.get(0)?, sha256: row.get(1)?, toml: row.get(2)? })
            })
            .optional()
            .map_err(|e| self.sqlite(e))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn sqlite(&self, e: rusqlite::Error) -> JournalError {
        JournalError::sqlite(&self.path, e)
    }

    fn entry(&self, row: RawRow) -> Result<Entry, EntryError> {
        let bad = |what: String| self.damaged(&row, &what);
        if row.format > RECORD_FORMAT || row.format < 1 {
            return Err(EntryError::Failed(JournalError::Newer {
                path: self.path.clone(),
                found: row.format,
                known: RECORD_FORMAT,
            }));
        }
        let content = match row.kind {
            KIND_TICK => {
                let tick: TickEntry = match row.base {
                    None => decode(&row.body).map_err(bad)?,
                    Some(base) => self.tick_from(base, &row)?,
                };
                let find = |CurveReference { id, shifted }| match shifted {
                    0 => self.curve(id, &row),
                    _ => match curves::shifted(&*self.curve(id, &row)?, shifted) {
                        Ok(curve) => Ok(Arc::new(curve)),
                        Err(e) => Err(bad(format!("curve {id} shifted by {shifted} steps: {e}"))),
                    },
                };
                EntryContent::Tick(Box::new(curves::resolve(tick, find)?))
            }
            KIND_EVENT => {
                let mut event: Event = decode(&row.body).map_err(bad)?;
                if let (Event::ConfigLoaded { toml }, Some(id)) = (&mut event, row.config) {
                    let config = self.config(id).map_err(EntryError::Failed)?;
                    *toml = config.map(|config| config.toml).unwrap_or_default();
                }
                EntryContent::Event(event)
            }
            other => {
                return Err(bad(format!("unknown kind {other}: expected 0 (tick) or 1 (event)")));
            }
        };
        Ok(Entry {
            id: row.id,
            session: row.session,
            config: row.config,
            wall_ms: row.wall_ms,
            mono: Timestamp::from_millis(row.mono_ms.max(0).unsigned_abs()),
            content,
        })
    }

    /// The tick of `row`, which is stored as its difference from the row `base`.
    fn tick_from(&self, base: i64, row: &RawRow) -> Result<TickEntry, EntryError> {
        let bad = |what: String| self.damaged(row, &what);
        let mut last = self.base.borrow_mut();
        if last.as_ref().is_none_or(|(id, _)| *id != base) {
            let body: Option<Vec<u8>> = self
                .connection
                .prepare_cached("SELECT body FROM entry WHERE id = ?1")
                .and_then(|mut statement| statement.query_row([base], |row| row.get(0)).optional())
                .map_err(|e| EntryError::Failed(self.sqlite(e)))?;
            let of_base = |what: String| bad(format!("row {base}, from which it differs: {what}"));
            let Some(body) = body else {
                return Err(match self.exists(row.id).map_err(EntryError::Failed)? {
                    true => of_base("there is none".into()),
                    false => EntryError::Gone,
                });
            };
            *last = Some((base, decode(&body).map_err(of_base)?));
        }
        let Some((_, value)) = &*last else { return Err(bad("it has no base".into())) };
        let made = decode_bytes(&row.body).map_err(bad)?;
        let value = delta::apply(value, &made).map_err(bad)?;
        serde_json::from_value(value).map_err(|e| bad(format!("its JSON does not fit: {e}")))
    }

    /// The error that `row` is damaged.
    fn damaged(&self, row: &RawRow, what: &str) -> EntryError {
        EntryError::Failed(JournalError::damaged(&self.path, format!("row {}: {what}", row.id)))
    }

    /// Whether the row still exists: retention may have deleted it since it was fetched.
    fn exists(&self, id: i64) -> Result<bool, JournalError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM entry WHERE id = ?1)";
        self.connection.query_row(sql, [id], |row| row.get(0)).map_err(|e| self.sqlite(e))
    }

    /// A curve by its number; `row` refers to it.
    fn curve(&self, id: i64, row: &RawRow) -> Result<Arc<MissCurve>, EntryError> {
        if let Some(known) = self.curves.borrow().get(&id) {
            return Ok(Arc::clone(known));
        }
        let failed = |e| EntryError::Failed(self.sqlite(e));
        let body: Option<Vec<u8>> = self
            .connection
            .prepare_cached("SELECT body FROM curve WHERE id = ?1")
            .and_then(|mut statement| statement.query_row([id], |row| row.get(0)).optional())
            .map_err(failed)?;
        let bad = |what: String| self.damaged(row, &format!("curve {id}: {what}"));
        let Some(body) = body else {
            let exists = self.exists(row.id).map_err(EntryError::Failed)?;
            return Err(if exists { bad("there is none".into()) } else { EntryError::Gone });
        };
        let curve: Arc<MissCurve> = decode(&body).map(Arc::new).map_err(bad)?;
        if curve.reference().is_some() {
            return Err(bad("it refers to another curve: expected its points".into()));
        }
        let mut curves = self.curves.borrow_mut();
        if curves.len() >= CURVES_MAX {
            curves.clear();
        }
        curves.insert(id, Arc::clone(&curve));
        Ok(curve)
    }

    /// The first readable row after `after`, for when one of the next rows lies in a damaged page;
    /// and whether it is the very next one, with no unreadable row before it. `None`: no row is
    /// readable. Cost: one query for each number that is passed over.
    fn row_after_damage(
        &self,
        range: &Range,
        kind: Option<i64>,
        after: Option<i64>,
    ) -> Option<(RawRow, bool)> {
        let (first, _) = self.row_at_end("ASC").ok().flatten()?;
        let (last, _) = self.row_at_end("DESC").ok().flatten()?;
        let from = after.map_or(first, |id| id.saturating_add(1)).max(first);
        let from = from.max(range.from_id.unwrap_or(i64::MIN));
        let to = last.min(range.to_id.unwrap_or(i64::MAX));
        let mut is_next = true;
        // The range is limited, because the number of the last row may be damaged too.
        for id in (from..=to).take(SKIPPED_ROWS_MAX) {
            let one = Range { from_id: Some(id), to_id: Some(id), ..*range };
            match self.fetch(&one, kind, None) {
                Ok(mut rows) => {
                    if let Some(row) = rows.pop_front() {
                        return Some((row, is_next));
                    }
                }
                Err(_) => is_next = false,
            }
        }
        None
    }

    fn fetch(
        &self,
        range: &Range,
        kind: Option<i64>,
        after: Option<i64>,
    ) -> rusqlite::Result<VecDeque<RawRow>> {
        // A constant in the SQL, not a parameter, so that SQLite uses the partial index of events.
        let kind = match kind {
            Some(KIND_EVENT) => "AND kind = 1",
            Some(_) => "AND kind = 0",
            None => "",
        };
        let sql = format!(
            "SELECT {} FROM entry WHERE id >= ?1 AND id <= ?2 AND wall_ms BETWEEN ?3 AND ?4
             AND (?5 IS NULL OR session = ?5) {kind} ORDER BY id LIMIT {BATCH_ROWS}",
            self.columns
        );
        let from = after.map_or(i64::MIN, |id| id.saturating_add(1));
        self.connection
            .prepare_cached(&sql)?
            .query_map(
                (
                    from.max(range.from_id.unwrap_or(i64::MIN)),
                    range.to_id.unwrap_or(i64::MAX),
                    range.from_wall_ms.unwrap_or(i64::MIN),
                    range.to_wall_ms.unwrap_or(i64::MAX),
                    range.session,
                ),
                RawRow::read,
            )?
            .collect()
    }
}

fn session(row: &Row<'_>) -> rusqlite::Result<Session> {
    let wall_ms: i64 = row.get("wall_ms")?;
    let mono_ms: i64 = row.get("mono_ms")?;
    let start = Start {
        wall: UNIX_EPOCH + Duration::from_millis(wall_ms.max(0).unsigned_abs()),
        mono: Timestamp::from_millis(mono_ms.max(0).unsigned_abs()),
        boot_id: row.get("boot_id")?,
        version: row.get("version")?,
        pid: row.get("pid")?,
    };
    Ok(Session { id: row.get("id")?, start })
}

/// Iterates over entries in order, up to the newest one when the end is reached.
#[derive(Debug)]
pub struct Entries<'r> {
    reader: &'r Reader,
    range: Range,
    kind: Option<i64>,
    after: Option<i64>,
    rows: VecDeque<RawRow>,
    done: bool,
}

impl Entries<'_> {
    /// Takes in a batch. Rows out of order are an error: a damaged file may have them, and the
    /// iteration could become endless.
    fn take_in(&mut self, rows: VecDeque<RawRow>) -> Result<(), JournalError> {
        for row in rows {
            if let Some(after) = self.after.filter(|after| row.id <= *after) {
                let what = format!("row {} comes after row {after}", row.id);
                return Err(JournalError::damaged(&self.reader.path, what));
            }
            self.after = Some(row.id);
            self.rows.push_back(row);
        }
        Ok(())
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<Entry, JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.rows.is_empty() && !self.done {
                match self.reader.fetch(&self.range, self.kind, self.after) {
                    Ok(rows) => {
                        self.done = rows.is_empty();
                        if let Err(error) = self.take_in(rows) {
                            self.done = true;
                            return Some(Err(error));
                        }
                    }
                    Err(e) => {
                        let error = self.reader.sqlite(e);
                        let past = match is_about_content(&error) {
                            true => {
                                self.reader.row_after_damage(&self.range, self.kind, self.after)
                            }
                            false => None,
                        };
                        let Some((row, is_next)) = past else {
                            self.done = true;
                            return Some(Err(error));
                        };
                        self.after = Some(row.id);
                        self.rows.push_back(row);
                        if is_next {
                            continue;
                        }
                        return Some(Err(error));
                    }
                }
            }
            match self.reader.entry(self.rows.pop_front()?) {
                Ok(entry) => return Some(Ok(entry)),
                Err(EntryError::Gone) => {}
                Err(EntryError::Failed(e)) => return Some(Err(e)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::retention::JournalConfig;
    use crate::writer::Writer;

    #[test]
    fn rows_that_come_again_end_a_reading() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.db");
        let start = Start {
            wall: SystemTime::UNIX_EPOCH,
            mono: Timestamp::ZERO,
            boot_id: "here".to_owned(),
            version: "0.1.0".to_owned(),
            pid: 1,
        };
        drop(Writer::open(&path, JournalConfig::default(), start).unwrap());
        let reader = Reader::open(&path).unwrap();
        let rows = || reader.fetch(&Range::default(), None, None).unwrap();
        let mut entries = reader.entries(Range::default());
        assert!(!rows().is_empty() && entries.take_in(rows()).is_ok());
        let again = entries.take_in(rows()).unwrap_err().to_string();
        assert!(again.contains("row 1 comes after row 1"), "{again}");
    }
}
