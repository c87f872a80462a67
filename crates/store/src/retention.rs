//! How much of the past is kept.
//!
//! Idea: each tick deletes a few of the oldest rows while there are too old or too many ones, inside
//! the tick's own transaction, and hands a few free pages back to the file system. Nothing is ever
//! deleted from the middle, so that what is left has no gap, and the newest row always stays.
//! Cost: nothing while nothing is due; else up to [`ROWS_MAX`] rows and [`VACUUM_PAGES_MAX`] pages.
//! Limits: age is judged by the wall clock of the newest and the oldest rows. A clock that jumps
//! ahead deletes sooner, [`ROWS_MAX`] rows a tick; rows from the "future" wait for the limit on size.

use std::time::Duration;

use ballast_model::Bytes;
use rusqlite::Connection;

/// Most rows deleted per tick: more than are written, so that any backlog shrinks.
pub(crate) const ROWS_MAX: i64 = 16;

/// Most pages handed back to the file system per tick (1 MiB).
const VACUUM_PAGES_MAX: i64 = 256;

/// Free pages kept for the next ticks: handing each back only to ask for it again is work for nothing.
const FREE_PAGES_KEPT: i64 = 256;

/// How much of the past is kept: whatever is older or beyond goes, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalConfig {
    /// Rows older than this go.
    pub age_max: Duration,
    /// The file's size; the write-ahead log beside it is a few MiB more.
    pub bytes_max: Bytes,
}

impl Default for JournalConfig {
    /// A week; 256 MiB, which is about six hours of a hundred guests at a tick a second, and
    /// some days of a few.
    fn default() -> Self {
        JournalConfig { age_max: Duration::from_secs(7 * 24 * 3600), bytes_max: Bytes::mib(256) }
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

    /// The whole file.
    pub(crate) fn file_bytes(self) -> Bytes {
        Bytes::new(self.count.saturating_mul(self.size).unsigned_abs())
    }

    fn used_bytes(self) -> Bytes {
        Bytes::new((self.count - self.free).max(0).saturating_mul(self.size).unsigned_abs())
    }
}

/// Deletes what is due; to be called within the transaction that writes the newest row.
pub(crate) fn trim(
    connection: &Connection,
    config: &JournalConfig,
    now_wall_ms: i64,
) -> rusqlite::Result<()> {
    let oldest_kept_ms = now_wall_ms
        .saturating_sub_unsigned(u64::try_from(config.age_max.as_millis()).unwrap_or(u64::MAX));
    // The latest of the oldest few that is too old: whatever came before it is older, even where a
    // clock that was set says otherwise.
    let too_old: Option<i64> = connection
        .prepare_cached(
            "SELECT max(id) FROM (SELECT id, wall_ms FROM entry ORDER BY id LIMIT ?1)
             WHERE wall_ms < ?2",
        )?
        .query_row((ROWS_MAX, oldest_kept_ms), |row| row.get(0))?;
    let too_many: Option<i64> = match Pages::of(connection)?.used_bytes() > config.bytes_max {
        true => connection
            .prepare_cached("SELECT max(id) FROM (SELECT id FROM entry ORDER BY id LIMIT ?1)")?
            .query_row([ROWS_MAX], |row| row.get(0))?,
        false => None,
    };
    let Some(last) = too_old.max(too_many) else { return Ok(()) };
    connection
        .prepare_cached("DELETE FROM entry WHERE id <= ?1 AND id < (SELECT max(id) FROM entry)")?
        .execute([last])?;
    // What only deleted rows belonged to. Numbers only grow, so that the oldest row has the lowest.
    for table in ["session", "config"] {
        connection
            .prepare_cached(&format!(
                "DELETE FROM {table} WHERE id < (SELECT {table} FROM entry ORDER BY id LIMIT 1)"
            ))?
            .execute([])?;
    }
    // No tick refers to a lower curve than an older one does (`curves`).
    connection
        .prepare_cached(
            "DELETE FROM curve WHERE id < coalesce(
                (SELECT curve FROM entry WHERE curve IS NOT NULL ORDER BY id LIMIT 1),
                9223372036854775807)",
        )?
        .execute([])?;
    Ok(())
}

/// Hands free pages back to the file system, a few at a time; outside of any transaction.
pub(crate) fn vacuum(connection: &Connection) -> rusqlite::Result<Pages> {
    let pages = Pages::of(connection)?;
    let spare = (pages.free - FREE_PAGES_KEPT).min(VACUUM_PAGES_MAX);
    if spare <= 0 {
        return Ok(pages);
    }
    // One row per page: the work is done while they are fetched.
    let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({spare})"))?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Pages::of(connection)
}
