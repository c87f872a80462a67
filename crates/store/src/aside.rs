//! Moves a file that can no longer be written out of the journal's way.
//!
//! Idea: a file that is damaged, unreadable or of a later version is renamed, together with its
//! write-ahead log, and a new one is begun. Nothing is ever deleted: `ballast journal --journal` or
//! `sqlite3 FILE .recover` may still read the old file. What belongs to somebody else is never
//! renamed: another program's database, a folder, a device.
//!
//! Limits: at most [`ASIDE_MAX`] such files per journal. Beyond that nothing is moved; otherwise a
//! disk that damages every file would fill up with them.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rusqlite::{ErrorCode, ffi};

use crate::JournalError;
use crate::schema::{self, with_suffix};

/// Most files that one journal moves aside.
pub const ASIDE_MAX: usize = 4;

/// The name of a file moved aside is the journal's name, this mark, and the time.
const MARK: &str = ".aside-";

/// Suffixes of the files that SQLite puts beside a database.
const SIDE_FILES: [&str; 2] = ["-wal", "-shm"];

/// A file that was in the journal's way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedAside {
    /// Its name now.
    pub to: PathBuf,
    /// What was wrong with it.
    pub why: String,
}

/// Whether `error` is about the file's content, so that a new file would help.
pub(crate) fn is_about_content(error: &JournalError) -> bool {
    match error {
        JournalError::Damaged { .. }
        | JournalError::Newer { .. }
        | JournalError::NotAJournal { .. } => true,
        // Only if the disk has lost a part of the file: a new file does not help against a disk
        // that refuses to write. And only if the file has rows: without any it is not worth one of
        // the places for files moved aside.
        JournalError::Disk { path, source } => {
            let is_lost = source.sqlite_error().is_some_and(|e| {
                [ffi::SQLITE_IOERR_READ, ffi::SQLITE_IOERR_SHORT_READ, ffi::SQLITE_IOERR_CORRUPTFS]
                    .contains(&e.extended_code)
            });
            is_lost && !schema::is_without_rows(path)
        }
        _ => false,
    }
}

/// Whether `error`, returned when the file was opened, means that this user cannot use the file
/// as it is: tables are missing, or it may not be written.
pub(crate) fn is_unusable(error: &JournalError) -> bool {
    match error {
        JournalError::Sqlite { source, .. } => matches!(
            source.sqlite_error_code(),
            Some(
                ErrorCode::Unknown
                    | ErrorCode::CannotOpen
                    | ErrorCode::ReadOnly
                    | ErrorCode::PermissionDenied
                    | ErrorCode::ConstraintViolation
                    | ErrorCode::TypeMismatch
            )
        ),
        other => is_about_content(other),
    }
}

/// Renames the file at `path` and its side files; `why` says what is wrong with the file.
///
/// # Errors
/// [`ASIDE_MAX`] files were moved already, or the file system refuses.
pub(crate) fn move_aside(path: &Path, now: SystemTime, why: String) -> io::Result<MovedAside> {
    let aside = count(path)?;
    if aside >= ASIDE_MAX {
        return Err(io::Error::other(format!(
            "{aside} such files lie beside it already: find out what damages them, and move them away"
        )));
    }
    let moment = jiff::Timestamp::try_from(now).unwrap_or_default();
    let stamp = moment.strftime("%Y%m%dT%H%M%SZ");
    let names = (1..=ASIDE_MAX + 1).map(|nth| match nth {
        1 => with_suffix(path, &format!("{MARK}{stamp}")),
        nth => with_suffix(path, &format!("{MARK}{stamp}-{nth}")),
    });
    let mut names = names.filter(|name| !name.exists());
    let to = names.next().ok_or(ErrorKind::AlreadyExists)?;
    // The file first. If this process dies before the log is renamed too, SQLite removes the log,
    // as it has no file.
    fs::rename(path, &to)?;
    for side in SIDE_FILES {
        match fs::rename(with_suffix(path, side), with_suffix(&to, side)) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(MovedAside { to, why })
}

/// How many files of this journal were moved aside.
fn count(path: &Path) -> io::Result<usize> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(0) };
    let folder = if folder == Path::new("") { Path::new(".") } else { folder };
    let mut prefix = name.to_owned();
    prefix.push(MARK);
    let mut count = 0;
    for entry in fs::read_dir(folder)? {
        let found = entry?.file_name();
        let found = found.as_encoded_bytes();
        let is_side_file = SIDE_FILES.iter().any(|side| found.ends_with(side.as_bytes()));
        count += usize::from(found.starts_with(prefix.as_encoded_bytes()) && !is_side_file);
    }
    Ok(count)
}
