//! A disk under SQLite that fills up, fails, dies in mid write, and forgets what was not synced.
//!
//! Idea: SQLite reaches files through a table of functions (its VFS). This one hands every call on to
//! the usual one, but for files in the folder of a [`FaultyDisk`]: there it refuses what a disk in
//! [`Trouble`] refuses, and remembers what was written and not synced yet, so that a loss of power
//! can take it back (`unsynced.rs`). Whoever uses SQLite in this process need not know.
//!
//! Cost: one more read for each write. Limits: files made, renamed or removed otherwise than through
//! SQLite are not refused anything, and neither is the index that connections share; the removal of a
//! file survives a loss of power; what a failed sync has not written, a later one writes.
//!
//! Source: <https://sqlite.org/vfs.html>.

mod state;
mod unsynced;
mod vfs;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastrand::Rng;

use state::State;

pub use state::Trouble;

/// The disk of one folder. When it is dropped, the folder is like any other.
#[derive(Debug)]
pub struct FaultyDisk {
    folder: PathBuf,
    state: Arc<Mutex<State>>,
}

impl FaultyDisk {
    /// A disk without trouble; all files of SQLite that are opened in `folder` from now on are on it.
    pub fn new(folder: &Path) -> FaultyDisk {
        let state = Arc::new(Mutex::new(State::default()));
        vfs::add(folder, &state);
        FaultyDisk { folder: folder.to_owned(), state }
    }

    /// What is wrong with it from now on; `noise` draws which writes fail, and where.
    pub fn set_trouble(&self, trouble: Trouble, noise: u64) {
        let mut state = self.state();
        (state.trouble, state.rng) = (trouble, Rng::with_seed(noise));
    }

    /// What is wrong with it.
    pub fn trouble(&self) -> Trouble {
        self.state().trouble
    }

    /// Does `what` while nothing is wrong with it.
    pub fn without_trouble<T>(&self, what: impl FnOnce() -> T) -> T {
        let trouble = std::mem::take(&mut self.state().trouble);
        let done = what();
        self.state().trouble = trouble;
        done
    }

    /// From now on it says that it synced, and does not.
    pub fn lie(&self) {
        self.state().is_lying = true;
    }

    /// How often it refused anything.
    pub fn refused(&self) -> u64 {
        self.state().refused
    }

    /// How often a write-ahead log was synced.
    pub fn log_syncs(&self) -> u64 {
        self.state().log_syncs
    }

    /// The folder `from` is called `to` now.
    pub fn renamed(&self, from: &Path, to: &Path) {
        for file in &mut self.state().files {
            if let Ok(name) = file.path.strip_prefix(from) {
                file.path = to.join(name);
            }
        }
    }

    /// The files in `from` were copied to `to`, with all that is not synced of them. What is done to
    /// those in `from` from now on is of no interest.
    pub fn copied(&self, from: &Path, to: &Path) {
        let mut state = self.state();
        let mut copies = Vec::new();
        for file in &mut state.files {
            if let Ok(name) = file.path.strip_prefix(from) {
                copies.push(file.copied(to.join(name)));
            }
        }
        state.files.extend(copies);
    }

    /// The power is lost: of what was written in `folder` and not synced, any part is gone, as `noise`
    /// draws. Nobody may have the files open. Returns how many writes were lost in whole or in part.
    ///
    /// # Errors
    /// A file cannot be changed.
    pub fn lose_power(&self, folder: &Path, noise: u64) -> io::Result<u64> {
        let mut rng = Rng::with_seed(noise);
        let mut lost = 0;
        for file in self.state().files.iter_mut().filter(|file| file.path.starts_with(folder)) {
            lost += file.lose(&mut rng)?;
        }
        Ok(lost)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FaultyDisk {
    fn drop(&mut self) {
        vfs::remove(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::{Connection, ErrorCode};

    use super::*;

    /// A disk with a table in write-ahead mode, and its file.
    fn disk() -> (FaultyDisk, Connection, PathBuf, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let disk = FaultyDisk::new(folder.path());
        let file = folder.path().join("a.db");
        let connection = Connection::open(&file).unwrap();
        connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; CREATE TABLE t (n INTEGER PRIMARY KEY, b BLOB);").unwrap();
        (disk, connection, file, folder)
    }

    fn add(connection: &Connection, count: u64) -> rusqlite::Result<usize> {
        (0..count).try_fold(0, |_, _| {
            connection.execute("INSERT INTO t (b) VALUES (randomblob(3000))", [])
        })
    }

    fn count(connection: &Connection) -> i64 {
        let verdict: String =
            connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(verdict, "ok");
        connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn each_trouble_fails_as_a_disk_does() {
        use ErrorCode::{DiskFull, SystemIoFailure};
        for (trouble, code) in [
            (Trouble::Full { room: 9_000 }, DiskFull),
            (Trouble::FailsWrites, SystemIoFailure),
            (Trouble::Dies { writes: 3 }, SystemIoFailure),
        ] {
            let (disk, connection, ..) = disk();
            disk.set_trouble(trouble, 7);
            let error = add(&connection, 20).unwrap_err();
            assert_eq!(error.sqlite_error_code(), Some(code), "{trouble:?}");
            assert!(disk.refused() > 0);
            disk.set_trouble(Trouble::None, 0);
            let before = count(&connection);
            add(&connection, 2).unwrap();
            assert_eq!(count(&connection), before + 2);
        }
        let (disk, connection, ..) = disk();
        add(&connection, 20).unwrap();
        for trouble in [Trouble::FailsSyncs, Trouble::FailsReads] {
            disk.set_trouble(trouble, 7);
            connection.execute_batch("PRAGMA shrink_memory; PRAGMA wal_checkpoint;").unwrap_err();
        }
    }

    /// The copy of a killed program's files, after a loss of power.
    fn after_power_loss(disk: &FaultyDisk, folder: &Path, noise: u64) -> (u64, i64) {
        let to = folder.join(noise.to_string());
        std::fs::create_dir(&to).unwrap();
        for name in ["a.db", "a.db-wal"] {
            std::fs::copy(folder.join(name), to.join(name)).unwrap();
        }
        disk.copied(folder, &to);
        let lost = disk.lose_power(&to, noise).unwrap();
        (lost, count(&Connection::open(to.join("a.db")).unwrap()))
    }

    #[test]
    fn a_loss_of_power_leaves_at_least_what_was_synced() {
        let (mut least, mut most) = (i64::MAX, 0);
        for noise in 0..40 {
            let (disk, connection, _, folder) = disk();
            add(&connection, 10).unwrap();
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
            add(&connection, 10).unwrap();
            let (lost, left) = after_power_loss(&disk, folder.path(), noise);
            assert!((10..=20).contains(&left), "{left}");
            assert!(lost > 0 || left == 20);
            (least, most) = (least.min(left), most.max(left));
        }
        assert!(least < 13 && most > 17, "{least} to {most}");
    }

    #[test]
    fn a_disk_that_lies_loses_what_was_synced() {
        let is_lost = |noise| {
            let (disk, connection, _, folder) = disk();
            disk.lie();
            add(&connection, 10).unwrap();
            // Once for the log, once for the file.
            connection.execute_batch("PRAGMA wal_checkpoint;").unwrap();
            drop(connection);
            std::fs::write(folder.path().join("a.db-wal"), "").unwrap();
            let to = folder.path().join("to");
            std::fs::create_dir(&to).unwrap();
            std::fs::copy(folder.path().join("a.db"), to.join("a.db")).unwrap();
            disk.copied(folder.path(), &to);
            disk.lose_power(&to, noise).unwrap();
            let connection = Connection::open(to.join("a.db")).unwrap();
            connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)) != Ok(10)
        };
        assert!((0..20).any(is_lost));
    }
}
