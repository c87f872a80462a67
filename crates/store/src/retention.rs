//! Deletes old rows.
//!
//! Idea: while rows are too old or the file is too large, each tick deletes a few of the oldest
//! rows in its own transaction and returns a few free pages to the file system. Rows in the middle
//! are never deleted, so numbers have no gap. The newest row always stays, and a whole tick stays
//! as long as any difference from it. Cost: nothing while nothing is due; else up to [`ROWS_MAX`]
//! rows and [`VACUUM_PAGES_MAX`] pages. Limits: a row's age is the newest row's wall clock minus
//! its own. If the clock jumps ahead, rows are deleted sooner, [`ROWS_MAX`] a tick; rows from the
//! "future" wait for the size limit.

use std::time::Duration;

use ballast_model::Bytes;
use rusqlite::Connection;

/// Rows deleted per tick, unless that would be none (see [`ROWS_MAX`]).
const ROWS_USUAL: i64 = 16;

/// Most rows deleted per tick: more than are written, so that any backlog shrinks; and more than a
/// whole tick, its differences and the events between them, which can only be deleted together.
const ROWS_MAX: i64 = 128;

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

/// Deletes what is due; call it in the transaction that writes the newest row.
pub(crate) fn trim(
    connection: &Connection,
    config: &JournalConfig,
    now_wall_ms: i64,
) -> rusqlite::Result<()> {
    let oldest_kept_ms = now_wall_ms
        .saturating_sub_unsigned(u64::try_from(config.age_max.as_millis()).unwrap_or(u64::MAX));
    let is_too_large = Pages::of(connection)?.used_bytes() > config.bytes_max;
    let due = Due { oldest_kept_ms, is_too_large };
    // A few rows, unless nothing can be deleted without a whole tick and all its differences.
    let mut deleted = due.delete(connection, ROWS_USUAL)?;
    if deleted == Some(0) {
        deleted = due.delete(connection, ROWS_MAX)?;
    }
    if deleted.is_none_or(|count| count == 0) {
        return Ok(());
    }
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
    Ok(())
}

/// Which rows are due.
#[derive(Clone, Copy)]
struct Due {
    oldest_kept_ms: i64,
    is_too_large: bool,
}

impl Due {
    /// Deletes the due rows among the `rows` oldest ones and returns how many it deleted. `None`:
    /// nothing is due.
    fn delete(self, connection: &Connection, rows: i64) -> rusqlite::Result<Option<usize>> {
        // The last row that is due. Rows before it were written earlier, even if the clock was set
        // back since.
        let last: Option<i64> = connection
            .prepare_cached(
                "SELECT max(id) FROM (SELECT id, wall_ms FROM entry ORDER BY id LIMIT ?1)
                 WHERE wall_ms < ?2 OR ?3",
            )?
            .query_row((rows, self.oldest_kept_ms, self.is_too_large), |row| row.get(0))?;
        let Some(last) = last else { return Ok(None) };
        // The oldest row that the remaining rows need, as a base or as one of them.
        let first_kept: Option<i64> = connection
            .prepare_cached(
                "SELECT min(coalesce(base, id)) FROM (SELECT id, base FROM entry
                 WHERE id > min(?1, (SELECT max(id) - 1 FROM entry)) ORDER BY id LIMIT ?2)",
            )?
            .query_row((last, ROWS_MAX), |row| row.get(0))?;
        let mut delete = connection.prepare_cached("DELETE FROM entry WHERE id < ?1")?;
        delete.execute([first_kept]).map(Some)
    }
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
