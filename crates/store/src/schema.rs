//! The file: its tables and settings, and the check that it is a journal.
//!
//! Idea: `entry` holds ticks and events in one sequence, ordered by number. `session` has the
//! daemon's starts, `config` the configurations, `curve` the miss curves that ticks refer to.
//! SQLite's application id marks the file as a journal; its user version is [`FORMAT`].

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::JournalError;

/// Version of the tables. Raised together with a migration here.
pub const FORMAT: i64 = 3;

/// `Blst`: by this id SQLite and the program `file` recognize a journal.
const APPLICATION_ID: i64 = 0x426c_7374;

/// Longest wait for another program's lock on the file.
const BUSY_MAX: Duration = Duration::from_secs(1);

/// Pages of log (4 MiB) that trigger a checkpoint, with the only `fsync`: every few minutes at a
/// hundred guests.
const CHECKPOINT_PAGES: u32 = 1024;

/// Bytes of a page, the unit in which SQLite writes; and of a page in the log, with its header.
const PAGE_BYTES: u64 = 4096;
const LOG_PAGE_BYTES: u64 = PAGE_BYTES + 24;

/// Most pages in the log of a file that has no row yet: its tables.
const TABLE_PAGES: u64 = 9;

/// Entries of this kind are ticks.
pub(crate) const KIND_TICK: i64 = 0;
/// Entries of this kind are events.
pub(crate) const KIND_EVENT: i64 = 1;

const TABLES: &str = "
CREATE TABLE session (
    id INTEGER PRIMARY KEY,
    wall_ms INTEGER NOT NULL,
    mono_ms INTEGER NOT NULL,
    boot_id TEXT NOT NULL,
    version TEXT NOT NULL,
    pid INTEGER NOT NULL
) STRICT;
CREATE TABLE config (
    id INTEGER PRIMARY KEY,
    sha256 TEXT NOT NULL,
    toml TEXT NOT NULL
) STRICT;
CREATE TABLE entry (
    id INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    config INTEGER,
    kind INTEGER NOT NULL,
    format INTEGER NOT NULL,
    wall_ms INTEGER NOT NULL,
    mono_ms INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE INDEX entry_event ON entry (id) WHERE kind = 1;
";

/// Format 2 added the table of miss curves.
const CURVES: &str = "
ALTER TABLE entry ADD COLUMN curve INTEGER;
CREATE INDEX entry_curve ON entry (id) WHERE curve IS NOT NULL;
CREATE TABLE curve (
    id INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;
";

/// Format 3 added ticks that are written as their difference from the row `base`.
const BASES: &str = "ALTER TABLE entry ADD COLUMN base INTEGER;";

/// The write-ahead log beside `path`.
pub(crate) fn wal_path(path: &Path) -> PathBuf {
    with_suffix(path, "-wal")
}

/// `path` with `suffix` at its end.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Opens the journal at `path` for writing; creates it if necessary.
pub(crate) fn open_for_writing(path: &Path) -> Result<Connection, JournalError> {
    create_file(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection =
        Connection::open_with_flags(path, flags).map_err(|e| JournalError::sqlite(path, e))?;
    prepare(&connection, path)?;
    Ok(connection)
}

/// Refuses what is not a regular file, and a file shorter than 512 bytes: SQLite would treat that
/// as empty and overwrite it, but its own files are never so short.
fn check_file(path: &Path, found: &fs::Metadata) -> Result<(), JournalError> {
    let foreign = |found| Err(JournalError::Foreign { path: path.to_owned(), found });
    match found.len() {
        _ if found.is_dir() => foreign("a folder"),
        _ if !found.is_file() => foreign("a device, pipe or socket"),
        1..512 => Err(JournalError::NotAJournal {
            path: path.to_owned(),
            found: "not an SQLite file".into(),
        }),
        _ => Ok(()),
    }
}

/// Creates the file unless it exists. The daemon's group may read it, like the socket; SQLite
/// gives its side files the same mode.
fn create_file(path: &Path) -> Result<(), JournalError> {
    match fs::metadata(path) {
        Ok(found) => return check_file(path, &found),
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(JournalError::io(path, e)),
    }
    match OpenOptions::new().write(true).create_new(true).mode(0o640).open(path) {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(JournalError::io(path, e)),
    }
}

fn prepare(connection: &Connection, path: &Path) -> Result<(), JournalError> {
    let sqlite = |e| JournalError::sqlite(path, e);
    connection.busy_timeout(BUSY_MAX).map_err(sqlite)?;
    // A journal is small and written in order: a small cache suffices.
    let settings = format!(
        "PRAGMA cache_size = -512; PRAGMA temp_store = MEMORY; PRAGMA synchronous = NORMAL;
         PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES};
         PRAGMA journal_size_limit = {};",
        u64::from(CHECKPOINT_PAGES) * PAGE_BYTES
    );
    connection.execute_batch(&settings).map_err(sqlite)?;
    if is_empty(connection).map_err(sqlite)? {
        // Must precede the first write: it cannot be changed later.
        connection.execute_batch("PRAGMA auto_vacuum = INCREMENTAL;").map_err(sqlite)?;
        use_wal(connection).map_err(sqlite)?;
        let create = format!(
            "PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT};
             {TABLES} {CURVES} {BASES}"
        );
        return run_in_transaction(connection, &create).map_err(sqlite);
    }
    let found = check(connection, path)?;
    use_wal(connection).map_err(sqlite)?;
    if found < FORMAT {
        let curves = if found < 2 { CURVES } else { "" };
        let migrate = format!("PRAGMA user_version = {FORMAT}; {curves} {BASES}");
        return run_in_transaction(connection, &migrate).map_err(sqlite);
    }
    Ok(())
}

/// Runs all statements or none.
fn run_in_transaction(connection: &Connection, statements: &str) -> rusqlite::Result<()> {
    let result = connection.execute_batch(&format!("BEGIN IMMEDIATE; {statements} COMMIT;"));
    if result.is_err() {
        // Otherwise the transaction would stay open when the caller tries again.
        let _ = connection.execute_batch("ROLLBACK;");
    }
    result
}

/// Whether the file at `path` has no row yet, judged by its size alone, as the file may be
/// unreadable. The tables are written first, and stay in the log until the first checkpoint.
pub(crate) fn is_without_rows(path: &Path) -> bool {
    let size = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
    // The log begins with 32 bytes.
    size(path) <= PAGE_BYTES && size(&wal_path(path)) <= 32 + TABLE_PAGES * LOG_PAGE_BYTES
}

fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let id: i64 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    Ok(tables == 0 && id == 0)
}

fn use_wal(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))
}

/// The file's format, if it is a journal that this version can read.
fn check(connection: &Connection, path: &Path) -> Result<i64, JournalError> {
    let pragma = |name: &str| -> Result<i64, JournalError> {
        connection
            .query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))
            .map_err(|e| JournalError::sqlite(path, e))
    };
    if pragma("application_id")? != APPLICATION_ID {
        let found = "an SQLite file of another program";
        return Err(JournalError::Foreign { path: path.to_owned(), found });
    }
    match pragma("user_version")? {
        found @ 1..=FORMAT => Ok(found),
        found if found > FORMAT => {
            Err(JournalError::Newer { path: path.to_owned(), found, known: FORMAT })
        }
        found => Err(JournalError::damaged(
            path,
            format!("it has format {found}: expected 1 to {FORMAT}"),
        )),
    }
}

/// Opens the journal at `path` for reading, even while a daemon writes it.
pub(crate) fn open_for_reading(path: &Path) -> Result<Connection, JournalError> {
    match fs::metadata(path) {
        Ok(found) => check_file(path, &found)?,
        Err(e) => return Err(JournalError::io(path, e)),
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    match try_reading(path, path, flags) {
        // There is no log, so no writer has the file open; and this user may not create the side
        // files that shared reading needs. Nothing can change during the read, so `immutable` is
        // safe.
        Err(JournalError::Sqlite { source, .. })
            if !wal_path(path).exists()
                && matches!(
                    source.sqlite_error_code(),
                    Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly)
                ) =>
        {
            let uri = format!("file:{}?immutable=1", uri_path(path));
            try_reading(path, Path::new(&uri), flags | OpenFlags::SQLITE_OPEN_URI)
        }
        other => other,
    }
}

fn try_reading(path: &Path, name: &Path, flags: OpenFlags) -> Result<Connection, JournalError> {
    let sqlite = |e| JournalError::sqlite(path, e);
    let connection = Connection::open_with_flags(name, flags).map_err(sqlite)?;
    connection.busy_timeout(BUSY_MAX).map_err(sqlite)?;
    if is_empty(&connection).map_err(sqlite)? {
        // A writer that died early leaves one or the other, and so does a log that was removed or
        // cannot be read.
        let found = match fs::metadata(path).is_ok_and(|found| found.len() == 0) {
            true => "an empty file",
            false => {
                "an SQLite file without tables; they may be in a log beside it that is gone or damaged"
            }
        };
        return Err(JournalError::NotAJournal { path: path.to_owned(), found: found.into() });
    }
    check(&connection, path)?;
    Ok(connection)
}

/// Percent-encodes the characters with a meaning in a URI.
fn uri_path(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/._-~".contains(&b);
    path.as_os_str()
        .as_bytes()
        .iter()
        .map(|&b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use ballast_model::Timestamp;

    use super::*;
    use crate::{JournalConfig, Start, Writer};

    #[test]
    fn a_file_without_rows_is_told_by_its_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.db");
        assert!(is_without_rows(&path), "there is none");
        let open = open_for_writing(&path).unwrap();
        assert!(is_without_rows(&path), "it has tables");
        drop(open);
        fs::remove_file(&path).unwrap();
        let start = Start {
            wall: SystemTime::UNIX_EPOCH,
            mono: Timestamp::ZERO,
            boot_id: String::new(),
            version: String::new(),
            pid: 1,
        };
        let writer = Writer::open(&path, JournalConfig::default(), start).unwrap();
        assert!(!is_without_rows(&path), "its start is recorded");
        drop(writer);
        assert!(!is_without_rows(&path), "it is closed, and has no log");
    }
}
