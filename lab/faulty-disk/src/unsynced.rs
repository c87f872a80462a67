//! What was written to one file and is not synced yet.
//!
//! Idea: each change is kept with what was there before. A loss of power takes all of them back, last
//! first; then those up to some moment are made again, and of the later ones any sectors, in any
//! order: a disk may write in whatever order it likes until it is told to sync.
//! Cost: twice the bytes written since the last sync.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use fastrand::Rng;

/// What a disk writes at once, bytes.
pub(crate) const SECTOR: u64 = 512;

/// One change of a file: bytes written, or its end cut off.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) at: u64,
    pub(crate) before: Vec<u8>,
    pub(crate) after: Vec<u8>,
    pub(crate) size_before: u64,
    pub(crate) size_after: u64,
}

/// What is not synced of one file.
#[derive(Debug)]
pub(crate) struct Unsynced {
    pub(crate) path: PathBuf,
    /// How long it is, bytes.
    pub(crate) size: u64,
    pub(crate) writes: Vec<Change>,
}

impl Unsynced {
    pub(crate) fn new(path: PathBuf) -> Unsynced {
        Unsynced { path, size: 0, writes: Vec::new() }
    }

    /// Whether it is a write-ahead log.
    pub(crate) fn is_log(&self) -> bool {
        self.path.as_os_str().as_encoded_bytes().ends_with(b"-wal")
    }

    /// Its copy at `path`, which takes its place.
    pub(crate) fn copied(&mut self, path: PathBuf) -> Unsynced {
        let writes = std::mem::take(&mut self.writes);
        let size = self.size;
        self.path = PathBuf::new();
        Unsynced { path, size, writes }
    }

    /// The file is gone; whoever has it open writes to no path.
    pub(crate) fn remove(&mut self) {
        self.path = PathBuf::new();
        self.writes.clear();
    }

    /// It was changed so.
    pub(crate) fn push(&mut self, change: Change) {
        self.size = change.size_after;
        self.writes.push(change);
    }

    /// Loses a part of it; how many changes were lost in whole or in part.
    pub(crate) fn lose(&mut self, rng: &mut Rng) -> io::Result<u64> {
        let changes = std::mem::take(&mut self.writes);
        if changes.is_empty() {
            return Ok(0);
        }
        let file = match OpenOptions::new().write(true).open(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
            file => file?,
        };
        for change in changes.iter().rev() {
            file.set_len(change.size_before)?;
            file.write_all_at(&change.before, change.at)?;
        }
        let kept = rng.usize(0..=changes.len());
        let mut lost = 0;
        for (place, change) in changes.iter().enumerate() {
            lost += u64::from(!change.redo(&file, || place < kept || rng.bool())?);
        }
        Ok(lost)
    }
}

impl Change {
    /// Makes it again as far as `survives` says for each sector; whether all of it was made.
    fn redo(&self, file: &File, mut survives: impl FnMut() -> bool) -> io::Result<bool> {
        if self.size_after < self.size_before {
            let survived = survives();
            if survived {
                file.set_len(self.size_after)?;
            }
            return Ok(survived);
        }
        let (mut at, mut rest, mut all) = (self.at, &self.after[..], true);
        while !rest.is_empty() {
            let len = (SECTOR - at % SECTOR).min(rest.len() as u64);
            let (sector, later) = rest.split_at(len as usize);
            let survived = survives();
            if survived {
                file.write_all_at(sector, at)?;
            }
            all &= survived;
            (at, rest) = (at + len, later);
        }
        Ok(all)
    }
}
