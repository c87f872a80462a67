//! Errors of the journal.

use std::io;
use std::path::{Path, PathBuf};

use ballast_model::Bytes;
use rusqlite::ErrorCode;

/// With less free space than this, a failed write counts as a full disk.
const ROOM_BYTES_MIN: u64 = 1 << 20;

/// Why a journal could not be opened, written or read. Names the file and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// There is no file of that name.
    #[error("there is no journal at {path}: name the daemon's with --journal PATH (`path` under [journal] in its configuration)", path = path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The disk is full.
    #[error(
        "journal: {path}: no space left: free some on that disk, or lower the journal's size limit; \
         recording resumes by itself when there is space", path = path.display()
    )]
    NoSpace {
        /// The file.
        path: PathBuf,
    },
    /// Another daemon writes this journal.
    #[error("journal: {path}: another daemon records here: stop it, or configure another journal path", path = path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file at the path is not a journal.
    #[error("journal: {path}: not a journal of Ballast ({found}): move that file away, or configure another journal path", path = path.display())]
    NotAJournal {
        /// The file.
        path: PathBuf,
        /// What the file is.
        found: String,
    },
    /// The path holds something that must be neither moved nor overwritten: another program's
    /// database, a folder, a device.
    #[error("journal: {path}: not a journal of Ballast ({found}): move that file away, or configure another journal path", path = path.display())]
    Foreign {
        /// The path.
        path: PathBuf,
        /// What is there.
        found: &'static str,
    },
    /// The file can neither be used nor moved aside.
    #[error("{why}; it cannot be moved aside: {source}")]
    CannotMoveAside {
        /// What is wrong with it.
        why: String,
        /// Why it cannot be moved aside.
        source: io::Error,
    },
    /// A later version wrote it.
    #[error("journal: {path}: written in format {found}, this version reads up to {known}: use a later version of ballast, or move the file away", path = path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The latest format known here.
        known: i64,
    },
    /// A row or the file itself is damaged.
    #[error("journal: {path}: damaged: {what}: move the file away to start a new one; `sqlite3 FILE .recover` may save the rest", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is damaged, and how.
        what: String,
    },
    /// Another program's read transaction keeps the write-ahead log from being checkpointed.
    #[error("journal: {path}: the write-ahead log has grown to {wal_bytes}: some program keeps a read transaction open; end it", path = path.display())]
    WalBlocked {
        /// The file.
        path: PathBuf,
        /// The log's size.
        wal_bytes: Bytes,
    },
    /// The disk failed, or a quota or file-size limit was reached.
    #[error(
        "journal: {path}: the disk refused ({source}): see the kernel's log, and check quotas and limits on \
         file sizes; recording resumes by itself", path = path.display()
    )]
    Disk {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The file system refused.
    #[error("journal: {path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// SQLite refused for another reason.
    #[error("journal: {path}: {source}", path = path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: rusqlite::Error,
    },
    /// The queue to the writer is full: the disk is slower than the ticks.
    #[error("journal: {path}: tick not recorded: {queued} ticks already wait for the disk", path = path.display())]
    QueueFull {
        /// The file.
        path: PathBuf,
        /// Entries waiting.
        queued: usize,
    },
    /// The writer thread has ended.
    #[error("journal: {path}: the writer thread has ended: restart the daemon", path = path.display())]
    WriterGone {
        /// The file.
        path: PathBuf,
    },
}

impl JournalError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::FileTooLarge) {
            return JournalError::NoSpace { path: path.to_owned() };
        }
        JournalError::Io { path: path.to_owned(), source }
    }

    /// Whether writing may succeed later without anybody changing the file.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            JournalError::NoSpace { .. }
            | JournalError::Disk { .. }
            | JournalError::WalBlocked { .. } => true,
            JournalError::Sqlite { source, .. } => matches!(
                source.sqlite_error_code(),
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::OutOfMemory)
            ),
            _ => false,
        }
    }

    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        JournalError::Damaged { path: path.to_owned(), what: what.into() }
    }

    pub(crate) fn sqlite(path: &Path, source: rusqlite::Error) -> Self {
        let path_owned = path.to_owned();
        match source.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => JournalError::NoSpace { path: path_owned },
            Some(ErrorCode::NotADatabase) => {
                JournalError::NotAJournal { path: path_owned, found: "not an SQLite file".into() }
            }
            // No row comes near SQLite's limit of a gigabyte, so a length in the file is wrong.
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::TooBig) => {
                JournalError::Damaged { path: path_owned, what: source.to_string() }
            }
            // A full disk also shows as a failure to enlarge the shared-memory index.
            Some(ErrorCode::SystemIoFailure) if is_disk_full(path) => {
                JournalError::NoSpace { path: path_owned }
            }
            Some(ErrorCode::SystemIoFailure) => JournalError::Disk { path: path_owned, source },
            _ => JournalError::Sqlite { path: path_owned, source },
        }
    }
}

fn is_disk_full(path: &Path) -> bool {
    rustix::fs::statvfs(path)
        .is_ok_and(|room| room.f_bavail.saturating_mul(room.f_frsize) < ROOM_BYTES_MIN)
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    #[test]
    fn a_row_that_is_too_big_is_damage() {
        let connection = Connection::open_in_memory().unwrap();
        let read: rusqlite::Result<Vec<u8>> =
            connection.query_row("SELECT zeroblob(2000000000)", [], |row| row.get(0));
        let error = JournalError::sqlite(Path::new("journal.db"), read.unwrap_err());
        let JournalError::Damaged { what, .. } = error else { panic!("{error}") };
        assert!(what.contains("too big"), "{what}");
    }
}
