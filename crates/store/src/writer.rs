//! Writes the journal, on the caller's thread.
//!
//! Idea: each call is one transaction: waiting events, the row, and retention's deletions. A failed
//! write loses its tick, which is counted; events wait for the next try. The first write that
//! succeeds again records the loss ([`Event::Gap`]). If the file was removed or replaced, a new one
//! is created; if it is damaged, it is moved aside first (`aside.rs`). Cost: `benches/journal.rs`.
//! `fsync` happens at checkpoints only. Limits: one writer per file, ensured by a lock file beside
//! it (`….lock`, left in place); at most [`EVENTS_WAITING_MAX`] waiting events and
//! [`WAL_BYTES_MAX`] of log.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ballast_model::{Bytes, MissCurve, Timestamp};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};
use sha2::{Digest, Sha256};

use crate::JournalError;
use crate::aside::{self, MovedAside};
use crate::codec::Encoder;
use crate::curves::Curves;
use crate::entry::{Event, RECORD_FORMAT, RECORD_FORMAT_WHOLE, Start, Tick, wall_ms};
use crate::lock::lock;
use crate::retention::{self, JournalConfig, Pages};
use crate::schema::{self, KIND_EVENT, KIND_TICK};
use crate::whole::DeltaEncoder;

/// Most waiting events; beyond that the oldest is dropped and counted.
const EVENTS_WAITING_MAX: usize = 64;

/// If the write-ahead log is larger than this and cannot be checkpointed, writes are refused.
const WAL_BYTES_MAX: u64 = 64 << 20;

/// How many entries were not recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LostCounts {
    pub(crate) ticks: u64,
    pub(crate) events: u64,
}

struct WaitingEvent {
    wall_ms: i64,
    mono: Timestamp,
    event: Event,
}

struct OpenFile {
    connection: Connection,
    /// Device and inode, to notice when the path leads to another file.
    file: (u64, u64),
    /// The session's row, once written.
    session: Option<i64>,
    /// The row of the configuration in force, once written.
    config: Option<i64>,
    /// The curves of the previous tick.
    curves: Curves,
    /// The tick that the next one may be written as a difference from.
    deltas: DeltaEncoder,
}

/// Writes one journal. [`Journal`](crate::Journal) runs one on a thread; tests and tools use it
/// directly.
pub struct Writer {
    path: PathBuf,
    retention: JournalConfig,
    start: Start,
    open: Option<OpenFile>,
    encoder: Encoder,
    waiting: VecDeque<WaitingEvent>,
    /// The configuration in force, written again if the file is replaced.
    toml: Option<String>,
    /// Lost since the journal was opened.
    lost: LostCounts,
    /// The part of `lost` that no [`Event::Gap`] records yet. `lost_why` is its last cause.
    unrecorded: LostCounts,
    lost_why: String,
    /// Why the last write failed.
    error: Option<String>,
    pages: Pages,
    moved_aside: Vec<MovedAside>,
    /// Whether every tick is written whole.
    all_whole: bool,
    /// Locked while the writer lives.
    _lock: File,
}

impl Writer {
    /// Opens or creates the journal at `path` and records the daemon's start. A file that cannot be
    /// used is moved aside ([`Writer::moved_aside`]). A full or failing disk is not an error here,
    /// and neither is any failure after a file was moved aside: recording begins once the disk
    /// accepts writes.
    ///
    /// # Errors
    /// Another daemon records there; the file is another program's; it can neither be used nor
    /// moved aside; or its folder does not exist.
    pub fn open(path: &Path, retention: JournalConfig, start: Start) -> Result<Self, JournalError> {
        let lock = lock(path)?;
        let encoder = Encoder::new().map_err(|e| JournalError::io(path, e))?;
        let started =
            WaitingEvent { wall_ms: wall_ms(start.wall), mono: start.mono, event: Event::Started };
        let mut writer = Writer {
            path: path.to_owned(),
            retention,
            start,
            open: None,
            encoder,
            waiting: VecDeque::from([started]),
            toml: None,
            lost: LostCounts::default(),
            unrecorded: LostCounts::default(),
            lost_why: String::new(),
            error: None,
            pages: Pages::default(),
            moved_aside: Vec::new(),
            all_whole: false,
            _lock: lock,
        };
        let written = match writer.write(None) {
            // At most one file is moved: with a new file only the disk can be wrong.
            Err(e) if writer.moved_aside.is_empty() && aside::is_unusable(&e) => {
                writer.write_to_new_file(None, e)
            }
            written => written,
        };
        writer.error = written.as_ref().err().map(ToString::to_string);
        match written {
            // A writer that has moved a file aside is returned: it reports that, and tries again.
            Err(e) if !e.is_transient() && writer.moved_aside.is_empty() => Err(e),
            _ => Ok(writer),
        }
    }

    /// Records one tick.
    ///
    /// # Errors
    /// Why the write failed; the tick is counted as lost, and the next call tries again.
    pub fn record(&mut self, tick: &Tick<'_>) -> Result<(), JournalError> {
        self.write(Some(tick)).inspect_err(|e| {
            let why = e.to_string();
            self.count_lost(LostCounts { ticks: 1, events: 0 }, why);
        })
    }

    /// Records an event, and the waiting ones.
    ///
    /// # Errors
    /// Why the write failed; the event waits for the next call.
    pub fn record_event(
        &mut self,
        wall: SystemTime,
        mono: Timestamp,
        event: Event,
    ) -> Result<(), JournalError> {
        let is_full = self.waiting.len() == EVENTS_WAITING_MAX;
        if is_full {
            self.waiting.pop_front();
        }
        self.waiting.push_back(WaitingEvent { wall_ms: wall_ms(wall), mono, event });
        let result = self.write(None);
        if is_full {
            let why = result.as_ref().err().map_or_else(String::new, ToString::to_string);
            self.count_lost(LostCounts { ticks: 0, events: 1 }, why);
        }
        result
    }

    /// Writes every tick whole from now on, for programs that decode rows by themselves.
    pub fn write_all_whole(&mut self) {
        self.all_whole = true;
    }

    /// Changes how much is kept, from the next tick on.
    pub fn set_retention(&mut self, retention: JournalConfig) {
        self.retention = retention;
    }

    /// Counts entries that were lost before they reached this writer.
    pub(crate) fn count_lost(&mut self, lost: LostCounts, why: String) {
        for total in [&mut self.lost, &mut self.unrecorded] {
            total.ticks = total.ticks.saturating_add(lost.ticks);
            total.events = total.events.saturating_add(lost.events);
        }
        self.lost_why = why;
    }

    pub(crate) fn lost(&self) -> &LostCounts {
        &self.lost
    }

    /// Why the last write failed; `None`: it did not.
    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// The files that were moved aside since the journal was opened, oldest first; at most
    /// [`ASIDE_MAX`](crate::ASIDE_MAX).
    pub fn moved_aside(&self) -> &[MovedAside] {
        &self.moved_aside
    }

    /// Size of the file, without its log.
    pub fn file_bytes(&self) -> Bytes {
        self.pages.file_bytes()
    }

    /// Size of the write-ahead log beside the file.
    pub fn wal_bytes(&self) -> Bytes {
        Bytes::new(fs::metadata(schema::wal_path(&self.path)).map_or(0, |found| found.len()))
    }

    fn write(&mut self, tick: Option<&Tick<'_>>) -> Result<(), JournalError> {
        let result = match self.try_write(tick) {
            Err(e) if aside::is_about_content(&e) => self.write_to_new_file(tick, e),
            result => result,
        };
        self.error = result.as_ref().err().map(ToString::to_string);
        // After a full disk the connection is still good; after other errors a new one is safer.
        if let Err(e) = &result
            && !matches!(e, JournalError::NoSpace { .. } | JournalError::WalBlocked { .. })
        {
            self.open = None;
        }
        result
    }

    /// Moves the file aside, because it cannot be written due to `error`, and writes to a new one.
    fn write_to_new_file(
        &mut self,
        tick: Option<&Tick<'_>>,
        error: JournalError,
    ) -> Result<(), JournalError> {
        self.open = None;
        let why = error.to_string();
        let moved = aside::move_aside(&self.path, SystemTime::now(), why.clone())
            .map_err(|source| JournalError::CannotMoveAside { why, source })?;
        self.moved_aside.push(moved);
        self.try_write(tick)
    }

    fn try_write(&mut self, tick: Option<&Tick<'_>>) -> Result<(), JournalError> {
        self.reopen_if_replaced()?;
        self.check_wal()?;
        let sqlite = |e| JournalError::sqlite(&self.path, e);
        let Some(open) = &mut self.open else { return Ok(()) };
        let new = match tick {
            Some(tick) => {
                let (curves, referring) = open.curves.extract(tick);
                let row = match &referring {
                    Some((snapshot, plan)) => Tick { snapshot, plan, ..*tick },
                    None => *tick,
                };
                let body = open.deltas.encode(&row, self.all_whole, &mut self.encoder);
                let body = body.map_err(|e| JournalError::io(&self.path, e))?;
                Some((wall_ms(tick.wall), tick.snapshot.taken_at, curves, body))
            }
            None => None,
        };
        let transaction = open
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(sqlite)?;
        let session = match open.session {
            Some(id) => id,
            None => insert_session(&transaction, &self.start).map_err(sqlite)?,
        };
        let mut rows = Rows {
            transaction: &transaction,
            session,
            config: open.config,
            encoder: &mut self.encoder,
        };
        rows.config_of_a_new_file(self.toml.as_deref()).map_err(sqlite)?;
        // The time of this write, for the gap and for retention.
        let (now_ms, now) = match (&new, self.waiting.back()) {
            (Some((wall_ms, mono, ..)), _) => (*wall_ms, *mono),
            (None, Some(last)) => (last.wall_ms, last.mono),
            (None, None) => (wall_ms(self.start.wall), self.start.mono),
        };
        if self.unrecorded != LostCounts::default() {
            let LostCounts { ticks, events } = self.unrecorded;
            let gap = Event::Gap { ticks, events, why: self.lost_why.clone() };
            rows.event(now_ms, now, &gap).map_err(sqlite)?;
        }
        for waiting in &self.waiting {
            rows.event(waiting.wall_ms, waiting.mono, &waiting.event).map_err(sqlite)?;
        }
        if let Some((wall_ms, mono, curves, body)) = &new {
            for (id, curve) in &curves.new {
                rows.curve(*id, curve).map_err(sqlite)?;
            }
            let refers = References { curve: curves.lowest, base: body.base };
            rows.insert(KIND_TICK, *wall_ms, *mono, &body.bytes, refers).map_err(sqlite)?;
        }
        let config = rows.config;
        let id = transaction.last_insert_rowid();
        let oldest = retention::trim(&transaction, &self.retention, now_ms).map_err(sqlite)?;
        transaction.commit().map_err(sqlite)?;
        open.session = Some(session);
        open.config = config;
        let body = new.map(|(_, _, curves, body)| {
            open.curves = curves.after;
            body
        });
        open.deltas.committed(id, body);
        // If the last tick is deleted, the next one must not refer to what went with it.
        if open.deltas.deleted_below(oldest) {
            open.curves.forget();
        }
        for waiting in self.waiting.drain(..) {
            if let Event::ConfigLoaded { toml } = waiting.event {
                self.toml = Some(toml);
            }
        }
        self.unrecorded = LostCounts::default();
        // The transaction is committed, so a failure here does no harm: the next write tries again.
        if let Ok(pages) = retention::vacuum(&open.connection) {
            self.pages = pages;
        }
        Ok(())
    }

    fn reopen_if_replaced(&mut self) -> Result<(), JournalError> {
        let identity = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
        if let Some(open) = &self.open
            && identity(&self.path).is_ok_and(|file| file == open.file)
        {
            return Ok(());
        }
        self.open = None;
        let connection = schema::open_for_writing(&self.path)?;
        let file = identity(&self.path).map_err(|e| JournalError::io(&self.path, e))?;
        let highest: i64 = connection
            .query_row("SELECT coalesce(max(id), 0) FROM curve", [], |row| row.get(0))
            .map_err(|e| JournalError::sqlite(&self.path, e))?;
        let curves = Curves::new(highest);
        let deltas = DeltaEncoder::default();
        self.open =
            Some(OpenFile { connection, file, session: None, config: None, curves, deltas });
        Ok(())
    }

    /// Refuses to write while the log is too large, because a long read transaction of another
    /// program keeps it from being checkpointed.
    fn check_wal(&self) -> Result<(), JournalError> {
        let wal_bytes = self.wal_bytes();
        let Some(open) = &self.open else { return Ok(()) };
        if wal_bytes.get() <= WAL_BYTES_MAX {
            return Ok(());
        }
        let is_checkpointed = open
            .connection
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
                Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
            })
            .is_ok_and(|(pages, done)| pages == done);
        match is_checkpointed {
            true => Ok(()),
            false => Err(JournalError::WalBlocked { path: self.path.clone(), wal_bytes }),
        }
    }
}

fn insert_session(transaction: &Transaction<'_>, start: &Start) -> rusqlite::Result<i64> {
    transaction.execute(
        "INSERT INTO session (wall_ms, mono_ms, boot_id, version, pid) VALUES (?1, ?2, ?3, ?4, ?5)",
        (wall_ms(start.wall), stored_ms(start.mono), &start.boot_id, &start.version, start.pid),
    )?;
    Ok(transaction.last_insert_rowid())
}

/// Saturates at SQLite's largest integer: 292 million years.
fn stored_ms(mono: Timestamp) -> i64 {
    i64::try_from(mono.as_millis()).unwrap_or(i64::MAX)
}

/// The rows that another row needs to be read.
#[derive(Clone, Copy, Debug, Default)]
struct References {
    /// The lowest number among its curves.
    curve: Option<i64>,
    /// The row it is a difference from.
    base: Option<i64>,
}

/// The rows of one transaction.
struct Rows<'a> {
    transaction: &'a Transaction<'a>,
    session: i64,
    config: Option<i64>,
    encoder: &'a mut Encoder,
}

impl Rows<'_> {
    /// Writes the configuration in force into a new file, before its first row.
    fn config_of_a_new_file(&mut self, toml: Option<&str>) -> rusqlite::Result<()> {
        if let (None, Some(toml)) = (self.config, toml) {
            self.config = Some(self.config_row(toml)?);
        }
        Ok(())
    }

    fn event(&mut self, wall_ms: i64, mono: Timestamp, event: &Event) -> rusqlite::Result<()> {
        if let Event::ConfigLoaded { toml } = event {
            self.config = Some(self.config_row(toml)?);
        }
        let body = match self.encoder.encode(event) {
            Ok(body) => body.to_vec(),
            Err(e) => return Err(rusqlite::Error::ToSqlConversionFailure(Box::new(e))),
        };
        self.insert(KIND_EVENT, wall_ms, mono, &body, References::default())
    }

    fn curve(&mut self, id: i64, curve: &MissCurve) -> rusqlite::Result<()> {
        let body = self.encoder.encode(curve);
        let body = body.map_err(|e| rusqlite::Error::ToSqlConversionFailure(Box::new(e)))?;
        self.transaction
            .prepare_cached("INSERT INTO curve (id, body) VALUES (?1, ?2)")?
            .execute((id, body))?;
        Ok(())
    }

    fn insert(
        &mut self,
        kind: i64,
        wall_ms: i64,
        mono: Timestamp,
        body: &[u8],
        refers: References,
    ) -> rusqlite::Result<()> {
        let format = match refers.base {
            Some(_) => RECORD_FORMAT,
            None => RECORD_FORMAT_WHOLE,
        };
        self.transaction
            .prepare_cached(
                "INSERT INTO entry
                     (session, config, kind, format, wall_ms, mono_ms, body, curve, base)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute((
                self.session,
                self.config,
                kind,
                format,
                wall_ms,
                stored_ms(mono),
                body,
                refers.curve,
                refers.base,
            ))?;
        Ok(())
    }

    /// The row of a configuration: the latest one if its text is the same, else a new one.
    fn config_row(&mut self, toml: &str) -> rusqlite::Result<i64> {
        let sha256: String =
            Sha256::digest(toml.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        let latest: Option<(i64, String)> = self
            .transaction
            .query_row("SELECT id, sha256 FROM config ORDER BY id DESC LIMIT 1", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()?;
        match latest {
            Some((id, same)) if same == sha256 => Ok(id),
            _ => {
                self.transaction.execute(
                    "INSERT INTO config (sha256, toml) VALUES (?1, ?2)",
                    (&sha256, toml),
                )?;
                Ok(self.transaction.last_insert_rowid())
            }
        }
    }
}
