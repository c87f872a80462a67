//! What a disk admits, and what it has not synced.
//!
//! Idea: a disk in trouble is asked before each call; a write that it refuses may have got through in
//! part, sector by sector, as on a real one. Cost: O(1) a call.

use std::ffi::c_int;
use std::path::{Path, PathBuf};

use fastrand::Rng;
use rusqlite::ffi;

use crate::unsynced::{SECTOR, Unsynced};

/// What is wrong with a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing.
    #[default]
    None,
    /// Files may grow by this much in all, bytes, and no more.
    Full {
        /// What is left of it.
        room: u64,
    },
    /// Every other write fails, in part or in whole.
    FailsWrites,
    /// Nothing can be read.
    FailsReads,
    /// Nothing can be synced.
    FailsSyncs,
    /// After so many writes nothing changes any more: the program is killed in the next.
    Dies {
        /// How many are left.
        writes: u32,
    },
}

/// A write that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// How much of it was written, bytes.
    pub(crate) written: u64,
    /// SQLite's word for it.
    pub(crate) code: c_int,
}

/// What a disk is like, and what was done on it.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) trouble: Trouble,
    pub(crate) rng: Rng,
    pub(crate) is_lying: bool,
    pub(crate) refused: u64,
    pub(crate) log_syncs: u64,
    /// Every file that was opened; handles know their places here.
    pub(crate) files: Vec<Unsynced>,
}

impl State {
    /// The place of the file at `path`, `size` bytes long.
    pub(crate) fn opened(&mut self, path: PathBuf, size: u64) -> usize {
        let known = self.files.iter().position(|file| file.path == path);
        let place = known.unwrap_or(self.files.len());
        if known.is_none() {
            self.files.push(Unsynced::new(path));
        }
        let file = &mut self.files[place];
        file.size = size;
        if size == 0 {
            // A new file under an old name.
            file.writes.clear();
        }
        place
    }

    /// The file at `path` is removed.
    ///
    /// # Errors
    /// It may not be.
    pub(crate) fn remove(&mut self, path: &Path) -> Result<(), c_int> {
        if self.is_dead() || self.trouble == Trouble::FailsWrites && self.rng.bool() {
            self.refused += 1;
            return Err(ffi::SQLITE_IOERR_DELETE);
        }
        self.files.iter_mut().filter(|file| file.path == path).for_each(Unsynced::remove);
        Ok(())
    }

    /// Whether `len` bytes may be written at `offset` of a file of `size` bytes.
    pub(crate) fn write(&mut self, offset: u64, len: u64, size: u64) -> Result<(), Refused> {
        let failed = |state: &mut State| {
            let sectors = state.rng.u64(0..=len / SECTOR);
            let written = (sectors * SECTOR).min(len.saturating_sub(1));
            Refused { written, code: ffi::SQLITE_IOERR_WRITE }
        };
        let refused = match &mut self.trouble {
            Trouble::Full { room } => {
                let grows = (offset + len).saturating_sub(size);
                let fits = grows.min(*room);
                *room -= fits;
                let written = (len - (grows - fits)) / SECTOR * SECTOR;
                (fits < grows).then_some(Refused { written, code: ffi::SQLITE_FULL })
            }
            Trouble::FailsWrites if self.rng.bool() => Some(failed(self)),
            Trouble::Dies { writes: 0 } => {
                Some(Refused { written: 0, code: ffi::SQLITE_IOERR_WRITE })
            }
            Trouble::Dies { writes } => {
                *writes -= 1;
                (*writes == 0).then(|| failed(self))
            }
            _ => None,
        };
        self.refused += u64::from(refused.is_some());
        refused.map_or(Ok(()), Err)
    }

    /// Whether a file may be cut.
    pub(crate) fn truncate(&mut self) -> Result<(), c_int> {
        let is_refused = self.is_dead() || self.trouble == Trouble::FailsWrites && self.rng.bool();
        self.refuse(is_refused, ffi::SQLITE_IOERR_TRUNCATE)
    }

    /// Whether a file may be read.
    pub(crate) fn read(&mut self) -> Result<(), c_int> {
        self.refuse(self.trouble == Trouble::FailsReads, ffi::SQLITE_IOERR_READ)
    }

    /// Whether what was written to the file at `place` may be synced.
    pub(crate) fn sync(&mut self, place: usize) -> Result<(), c_int> {
        let is_refused = self.is_dead() || self.trouble == Trouble::FailsSyncs;
        self.refuse(is_refused, ffi::SQLITE_IOERR_FSYNC)?;
        let file = &mut self.files[place];
        self.log_syncs += u64::from(file.is_log());
        if !self.is_lying {
            file.writes.clear();
        }
        Ok(())
    }

    fn is_dead(&self) -> bool {
        matches!(self.trouble, Trouble::Dies { writes: 0 })
    }

    fn refuse(&mut self, is_refused: bool, code: c_int) -> Result<(), c_int> {
        self.refused += u64::from(is_refused);
        if is_refused { Err(code) } else { Ok(()) }
    }
}
