//! Reads a journal, beside a running daemon or without one.
//!
//! Idea: rows are fetched a few at a time, each few in a transaction of its own, so that a slow
//! reader never keeps the daemon's write-ahead log from being folded back. Rows that retention takes
//! away meanwhile are skipped, with the curves they refer to.
//! Cost: about a millisecond per tick of a hundred guests, nearly all of it in making model values.
//! Limits: [`BATCH_ROWS`] rows in memory; a damaged row is an error of its own and the next can be read.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ballast_model::{Bytes, GuestId, Outcome, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row};

use crate::JournalError;
use crate::codec::decode;
use crate::curves;
use crate::entry::{Config, Entry, Event, Session, Start, TickEntry, What};
use crate::record::{CurveRecord, EventRecord, RECORD_FORMAT, TickRecord};
use crate::schema::{self, KIND_EVENT, KIND_TICK};

/// Most curves kept at hand; those of a tick are mostly those of the tick before.
const CURVES_MAX: usize = 4096;

/// Rows fetched at once.
const BATCH_ROWS: i64 = 16;

/// How far back [`Reader::latest`] looks for the last outcome of each guest: two minutes of ticks.
const OUTCOME_TICKS_MAX: usize = 120;

const COLUMNS: &str = "id, session, config, kind, format, wall_ms, mono_ms, body";

/// Which entries are wanted; each bound is inclusive, and `None` is no bound.
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
    /// One start of the daemon.
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
    /// Starts of the daemon of which rows are left.
    pub sessions: u64,
    /// Size of the file.
    pub file_bytes: Bytes,
    /// Size of the write-ahead log beside it.
    pub wal_bytes: Bytes,
}

/// All that is needed to say how things stood at the last tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latest {
    /// The entry of the tick: number, session, configuration and clocks.
    pub entry: Entry,
    /// The tick.
    pub tick: TickEntry,
    /// The last outcome of each guest, with the wall clock of the tick that recorded it.
    pub outcomes: BTreeMap<GuestId, (SystemTime, Outcome)>,
    /// The start of the daemon that wrote it.
    pub session: Session,
    /// Why that daemon ended, if it did so in order.
    pub stopped: Option<String>,
}

/// Reads one journal.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    connection: Connection,
    curves: RefCell<BTreeMap<i64, CurveRecord>>,
}

/// Why a row is no entry.
enum NoEntry {
    /// Retention took away what it refers to, and so the row.
    Gone,
    Failed(JournalError),
}

impl Reader {
    /// Opens the journal at `path` for reading only.
    ///
    /// # Errors
    /// There is none, or it is something else, damaged, or of a later format.
    pub fn open(path: &Path) -> Result<Reader, JournalError> {
        let connection = schema::open_for_reading(path)?;
        Ok(Reader { path: path.to_owned(), connection, curves: RefCell::default() })
    }

    /// What the journal holds.
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
            // Rows go from the old end only, so that there is no gap between.
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

    /// The last tick. `None`: there is none yet.
    ///
    /// # Errors
    /// The file or the row cannot be read.
    pub fn last_tick(&self) -> Result<Option<(Entry, TickEntry)>, JournalError> {
        self.tick_before(i64::MAX)
    }

    /// The last tick numbered below `id`.
    fn tick_before(&self, id: i64) -> Result<Option<(Entry, TickEntry)>, JournalError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM entry WHERE kind = {KIND_TICK} AND id < ?1 ORDER BY id DESC LIMIT 1"
        );
        let row = self
            .connection
            .prepare_cached(&sql)
            .and_then(|mut statement| statement.query_row([id], RawRow::read).optional())
            .map_err(|e| self.sqlite(e))?;
        let Some(row) = row else { return Ok(None) };
        let entry = match self.entry(row) {
            Ok(entry) => entry,
            Err(NoEntry::Gone) => return Ok(None),
            Err(NoEntry::Failed(e)) => return Err(e),
        };
        match &entry.what {
            What::Tick(tick) => {
                let tick = (**tick).clone();
                Ok(Some((entry, tick)))
            }
            What::Event(_) => Ok(None),
        }
    }

    /// How things stood at the last tick. `None`: there is none yet.
    ///
    /// # Errors
    /// The file or a row cannot be read.
    pub fn latest(&self) -> Result<Option<Latest>, JournalError> {
        let Some((entry, tick)) = self.last_tick()? else { return Ok(None) };
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
        let session = self.session(entry.session)?.ok_or_else(|| {
            JournalError::damaged(&self.path, format!("no session {}", entry.session))
        })?;
        let after =
            Range { from_id: Some(entry.id), session: Some(session.id), ..Range::default() };
        let mut stopped = None;
        for event in self.events(after) {
            if let What::Event(Event::Stopped { why }) = event?.what {
                stopped = Some(why);
            }
        }
        Ok(Some(Latest { entry, tick, outcomes, session, stopped }))
    }

    /// A start of the daemon. `None`: no row of it is left.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn session(&self, id: i64) -> Result<Option<Session>, JournalError> {
        self.connection
            .query_row("SELECT * FROM session WHERE id = ?1", [id], session)
            .optional()
            .map_err(|e| self.sqlite(e))
    }

    /// Every start of the daemon of which rows are left, oldest first.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn sessions(&self) -> Result<Vec<Session>, JournalError> {
        self.connection
            .prepare("SELECT * FROM session ORDER BY id")
            .and_then(|mut statement| statement.query_map([], session)?.collect())
            .map_err(|e| self.sqlite(e))
    }

    /// A configuration by the number that entries carry.
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

    fn sqlite(&self, e: rusqlite::Error) -> JournalError {
        JournalError::sqlite(&self.path, e)
    }

    fn entry(&self, row: RawRow) -> Result<Entry, NoEntry> {
        let bad = |what: String| {
            NoEntry::Failed(JournalError::damaged(&self.path, format!("row {}: {what}", row.id)))
        };
        if row.format > RECORD_FORMAT || row.format < 1 {
            return Err(NoEntry::Failed(JournalError::Newer {
                path: self.path.clone(),
                found: row.format,
                known: RECORD_FORMAT,
            }));
        }
        let what = match row.kind {
            KIND_TICK => {
                let mut record: TickRecord = decode(&row.body).map_err(bad)?;
                curves::put_back(&mut record, |id| self.curve(id, &row))?;
                let tick = TickEntry::try_from(record).map_err(|e| bad(e.to_string()))?;
                What::Tick(Box::new(tick))
            }
            KIND_EVENT => {
                let record: EventRecord = decode(&row.body).map_err(bad)?;
                let config = row.config.map(|id| self.config(id)).transpose();
                let config = config.map_err(NoEntry::Failed)?.flatten();
                let toml = || config.map(|config| config.toml).unwrap_or_default();
                What::Event(record.into_event(toml))
            }
            other => return Err(bad(format!("of an unknown kind {other}"))),
        };
        Ok(Entry {
            id: row.id,
            session: row.session,
            config: row.config,
            wall_ms: row.wall_ms,
            mono: Timestamp::from_millis(row.mono_ms.max(0).unsigned_abs()),
            what,
        })
    }

    /// A curve that `row` refers to.
    fn curve(&self, id: i64, row: &RawRow) -> Result<CurveRecord, NoEntry> {
        if let Some(known) = self.curves.borrow().get(&id) {
            return Ok(known.clone());
        }
        let failed = |e| NoEntry::Failed(self.sqlite(e));
        let body: Option<Vec<u8>> = self
            .connection
            .prepare_cached("SELECT body FROM curve WHERE id = ?1")
            .and_then(|mut statement| statement.query_row([id], |row| row.get(0)).optional())
            .map_err(failed)?;
        let bad = |what: String| {
            let what = format!("row {}: curve {id}: {what}", row.id);
            NoEntry::Failed(JournalError::damaged(&self.path, what))
        };
        let Some(body) = body else {
            let is_left: bool = self
                .connection
                .query_row("SELECT EXISTS (SELECT 1 FROM entry WHERE id = ?1)", [row.id], |row| {
                    row.get(0)
                })
                .map_err(failed)?;
            return Err(if is_left { bad("there is none".into()) } else { NoEntry::Gone });
        };
        let curve: CurveRecord = decode(&body).map_err(bad)?;
        let mut curves = self.curves.borrow_mut();
        if curves.len() >= CURVES_MAX {
            curves.clear();
        }
        curves.insert(id, curve.clone());
        Ok(curve)
    }

    fn fetch(
        &self,
        range: &Range,
        kind: Option<i64>,
        after: Option<i64>,
    ) -> rusqlite::Result<VecDeque<RawRow>> {
        // Without a bound on the kind the partial index is of no use, and with it the index gives
        // events without walking over ticks.
        let kind = match kind {
            Some(KIND_EVENT) => "AND kind = 1",
            Some(_) => "AND kind = 0",
            None => "",
        };
        let sql = format!(
            "SELECT {COLUMNS} FROM entry WHERE id >= ?1 AND id <= ?2 AND wall_ms BETWEEN ?3 AND ?4
             AND (?5 IS NULL OR session = ?5) {kind} ORDER BY id LIMIT {BATCH_ROWS}"
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

#[derive(Debug)]
struct RawRow {
    id: i64,
    session: i64,
    config: Option<i64>,
    kind: i64,
    format: i64,
    wall_ms: i64,
    mono_ms: i64,
    body: Vec<u8>,
}

impl RawRow {
    fn read(row: &Row<'_>) -> rusqlite::Result<RawRow> {
        Ok(RawRow {
            id: row.get(0)?,
            session: row.get(1)?,
            config: row.get(2)?,
            kind: row.get(3)?,
            format: row.get(4)?,
            wall_ms: row.get(5)?,
            mono_ms: row.get(6)?,
            body: row.get(7)?,
        })
    }
}

/// Walks over entries in order; ends after the newest one there is when it gets there.
#[derive(Debug)]
pub struct Entries<'r> {
    reader: &'r Reader,
    range: Range,
    kind: Option<i64>,
    after: Option<i64>,
    rows: VecDeque<RawRow>,
    done: bool,
}

impl Iterator for Entries<'_> {
    type Item = Result<Entry, JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.rows.is_empty() && !self.done {
                match self.reader.fetch(&self.range, self.kind, self.after) {
                    Ok(rows) => {
                        self.after = rows.back().map(|row| row.id);
                        self.done = rows.is_empty();
                        self.rows = rows;
                    }
                    Err(e) => {
                        self.done = true;
                        return Some(Err(self.reader.sqlite(e)));
                    }
                }
            }
            match self.reader.entry(self.rows.pop_front()?) {
                Ok(entry) => return Some(Ok(entry)),
                Err(NoEntry::Gone) => {}
                Err(NoEntry::Failed(e)) => return Some(Err(e)),
            }
        }
    }
}
