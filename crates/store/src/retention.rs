//! Deletes old rows.
//!
//! Idea: while rows are too old or the file is too large, each write deletes a few of the oldest
//! rows in its own transaction and returns a few free pages to the file system. Rows in the middle
//! are never deleted, so numbers have no gap. The newest row always stays, and a whole tick stays
//! as long as any difference from it. So if the oldest row is such a tick, it is deleted together
//! with its differences and the events between them, once the last of them is due. `whole.rs`
//! bounds their number, which earlier versions did not.
//!
//! Cost: nothing while nothing is due; else those rows and up to [`VACUUM_PAGES_MAX`] pages.
//! Limits: a row's age is the newest row's wall clock minus its own. If the clock jumps ahead, rows
//! are deleted sooner, a few a write; rows from the "future" wait for the size limit.

use std::time::Duration;

use ballast_model::Bytes;
use rusqlite::{Connection, OptionalExtension};

use crate::schema::KIND_TICK;

/// Rows deleted per write, unless that would be none: more than are written, so that any backlog
/// shrinks.
const ROWS_USUAL: i64 = 16;

/// Most pages returned to the file system per tick (1 MiB).
const VACUUM_PAGES_MAX: i64 = 256;

/// Free pages kept for the next ticks, which would otherwise allocate them again.
const FREE_PAGES_KEPT: i64 = 256;

/// How much is kept; the oldest rows beyond it are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalConfig {
    /// Rows older than this are deleted.
    pub age_max: Duration,
    /// Limit on the file's size; the write-ahead log beside it takes a few MiB more.
    pub bytes_max: Bytes,
}

impl Default for JournalConfig {
    /// A week, and 16 GiB, which is about a week of a thousand guests at one tick a second
    /// (`benches/journal.rs`). A hundred guests need a tenth of that.
    fn default() -> Self {
        JournalConfig { age_max: Duration::from_secs(7 * 24 * 3600), bytes_max: Bytes::gib(16) }
    }
}

/// The file's size in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pages {
    pub(crate) size: i64,
    pub(crate) count: i64,
    pub(crate) free: i64,
}

impl Pages {
    pub(crate) fn of(connection: &Connection) -> rusqlite::Result<Pages> {
        let pragma = |name: &str| -> rusqlite::Result<i64> {
            connection.prepare_cached(&format!("PRAGMA {name}"))?.query_row([], |row| row.get(0))
        };
        Ok(Pages {
            size: pragma("page_size")?,
            count: pragma("page_count")?,
            free: pragma("freelist_count")?,
        })
    }

    /// Size of the whole file.
    pub(crate) fn file_bytes(self) -> Bytes {
        Bytes::new(self.count.saturating_mul(self.size).unsigned_abs())
    }

    fn used_bytes(self) -> Bytes {
        Bytes::new((self.count - self.free).max(0).saturating_mul(self.size).unsigned_abs())
    }
}

/// Deletes what is due; call it in the transaction that writes the newest row. Returns the number
/// of the oldest row that is left.
pub(crate) fn trim(
    connection: &Connection,
    config: &JournalConfig,
    now_wall_ms: i64,
) -> rusqlite::Result<i64> {
    let oldest_kept_ms = now_wall_ms
        .saturating_sub_unsigned(u64::try_from(config.age_max.as_millis()).unwrap_or(u64::MAX));
    let is_too_large = Pages::of(connection)?.used_bytes() > config.bytes_max;
    let (oldest, newest): (i64, i64) = connection
        .prepare_cached("SELECT (SELECT min(id) FROM entry), (SELECT max(id) FROM entry)")?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let due = Due { oldest_kept_ms, is_too_large, newest };
    // A few rows; or more, if the oldest is a whole tick that goes only with all its differences.
    let mut first_kept = due.first_kept(connection, oldest.saturating_add(ROWS_USUAL - 1))?;
    if first_kept.is_some_and(|first| first <= oldest) {
        let next = whole_after(connection, oldest)?.unwrap_or(newest);
        first_kept = due.first_kept(connection, next.saturating_add(ROWS_USUAL - 1))?;
    }
    let Some(first_kept) = first_kept.filter(|first| *first > oldest) else { return Ok(oldest) };
    connection.prepare_cached("DELETE FROM entry WHERE id < ?1")?.execute([first_kept])?;
    // Sessions and configurations without rows. Numbers only grow: the oldest row has the lowest.
    for table in ["session", "config"] {
        connection
            .prepare_cached(&format!(
                "DELETE FROM {table} WHERE id < (SELECT {table} FROM entry ORDER BY id LIMIT 1)"
            ))?
            .execute([])?;
    }
    // A tick's lowest curve is never below an older tick's (`curves.rs`).
    connection
        .prepare_cached(
            "DELETE FROM curve WHERE id < coalesce(
                (SELECT curve FROM entry WHERE curve IS NOT NULL ORDER BY id LIMIT 1),
                9223372036854775807)",
        )?
        .execute([])?;
    Ok(first_kept)
}

/// Which rows are due.
#[derive(Clone, Copy)]
struct Due {
    oldest_kept_ms: i64,
    is_too_large: bool,
    /// The newest row, which stays.
    newest: i64,
}

impl Due {
    /// The oldest row to keep when the due rows up to the row `end` are deleted: the first row
    /// after them, or the whole tick that later ticks are differences from. `None`: nothing is due.
    fn first_kept(self, connection: &Connection, end: i64) -> rusqlite::Result<Option<i64>> {
        // The last row that is due. Rows before it were written earlier, even if the clock was set
        // back since.
        let last: Option<i64> = connection
            .prepare_cached(
                "SELECT id FROM entry WHERE id <= ?1 AND (wall_ms < ?2 OR ?3)
                 ORDER BY id DESC LIMIT 1",
            )?
            .query_row((end, self.oldest_kept_ms, self.is_too_large), |row| row.get(0))
            .optional()?;
        let Some(last) = last else { return Ok(None) };
        let next = last.saturating_add(1).min(self.newest);
        // Every tick is written as its difference from the last whole one before it. So of the
        // ticks from `next` on, only the first can need an older row, and others need the same one.
        let base: Option<Option<i64>> = connection
            .prepare_cached(&format!(
                "SELECT base FROM entry WHERE id >= ?1 AND kind = {KIND_TICK} ORDER BY id LIMIT 1"
            ))?
            .query_row([next], |row| row.get(0))
            .optional()?;
        Ok(Some(base.flatten().map_or(next, |base| base.min(next))))
    }
}

/// The first whole tick after the row `id`; `None`: there is none.
fn whole_after(connection: &Connection, id: i64) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached(&format!(
            "SELECT id FROM entry WHERE id > ?1 AND kind = {KIND_TICK} AND base IS NULL
             ORDER BY id LIMIT 1"
        ))?
        .query_row([id], |row| row.get(0))
        .optional()
}

/// Returns a few free pages to the file system; call it outside of transactions.
pub(crate) fn vacuum(connection: &Connection) -> rusqlite::Result<Pages> {
    let pages = Pages::of(connection)?;
    let spare = (pages.free - FREE_PAGES_KEPT).min(VACUUM_PAGES_MAX);
    if spare <= 0 {
        return Ok(pages);
    }
    // SQLite frees one page per row fetched.
    let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({spare})"))?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Pages::of(connection)
}
