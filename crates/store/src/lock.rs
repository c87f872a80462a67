//! The lock that keeps two daemons from recording in one journal.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::JournalError;
use crate::schema;

/// Longest wait for a lock that is held.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);

/// Takes the lock of the journal at `path`. The kernel releases it when the process ends, even if
/// it is killed.
pub(crate) fn lock(path: &Path) -> Result<File, JournalError> {
    let name = schema::with_suffix(path, ".lock");
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o640)
        .open(&name)
        .map_err(|e| JournalError::io(&name, e))?;
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            // A program that the last daemon forked shares the lock until it has called exec.
            Err(TryLockError::WouldBlock) if began.elapsed() < LOCK_PATIENCE => {
                thread::sleep(LOCK_PATIENCE / 50);
            }
            Err(TryLockError::WouldBlock) => {
                return Err(JournalError::InUse { path: path.to_owned() });
            }
            Err(TryLockError::Error(e)) => return Err(JournalError::io(&name, e)),
        }
    }
}
