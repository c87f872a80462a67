//! What happens to each request of a disk: its faults now, and what of its files is on it.
//!
//! Idea: the VFS asks before each read, write and sync. A seed decides which requests fail, so the
//! same requests always meet the same faults. Limits: the order of requests from several threads is
//! not defined.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastrand::Rng;

use crate::image::Image;

/// The faults of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskFaults {
    /// This many of a thousand reads fail.
    pub reads_per_mille: u32,
    /// This many of a thousand writes fail, after writing a part.
    pub writes_per_mille: u32,
    /// This many of a thousand syncs fail.
    pub syncs_per_mille: u32,
    /// How many bytes files may still grow by; `None`: any number.
    pub room: Option<u64>,
    /// Syncs bring nothing to the disk but report success.
    pub syncs_lie: bool,
}

/// Device and inode of a file; a rename does not change them.
pub(crate) type FileId = (u64, u64);

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteFate {
    Whole,
    /// The first bytes are written, then an error is reported.
    Fails(usize),
    /// The first bytes are written, then there is no room.
    Full(usize),
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) faults: DiskFaults,
    /// Whether requests succeed for now, whatever the faults.
    pub(crate) is_quiet: bool,
    pub(crate) rng: Rng,
    pub(crate) images: HashMap<FileId, Image>,
    pub(crate) failures: u64,
    pub(crate) syncs: u64,
}

impl State {
    fn strikes(&mut self, per_mille: u32) -> bool {
        let strikes = !self.is_quiet && per_mille > 0 && self.rng.u32(0..1000) < per_mille;
        self.failures += u64::from(strikes);
        strikes
    }

    pub(crate) fn opened(&mut self, id: FileId, path: &Path) {
        self.images.entry(id).or_insert_with(|| Image::of(fs::read(path).unwrap_or_default()));
    }

    pub(crate) fn deleted(&mut self, id: FileId) {
        self.images.remove(&id);
    }

    pub(crate) fn read_fails(&mut self) -> bool {
        self.strikes(self.faults.reads_per_mille)
    }

    /// Whether no file can grow any more.
    pub(crate) fn has_no_room(&self) -> bool {
        !self.is_quiet && self.faults.room == Some(0)
    }

    /// Counts a failure: the log's index could not grow.
    pub(crate) fn index_failed(&mut self) {
        self.failures += 1;
    }

    /// The result of a write of `bytes` at `at` to a file of `size` bytes; the write is recorded.
    pub(crate) fn write(&mut self, id: FileId, at: usize, bytes: &[u8], size: usize) -> WriteFate {
        let len = bytes.len();
        let fate = if self.strikes(self.faults.writes_per_mille) {
            WriteFate::Fails(self.rng.usize(0..len.max(1)))
        } else {
            self.room_for(at, len, size)
        };
        let (WriteFate::Fails(written) | WriteFate::Full(written)) = fate else {
            self.note(id, at, bytes);
            return fate;
        };
        self.note(id, at, &bytes[..written]);
        fate
    }

    fn room_for(&mut self, at: usize, len: usize, size: usize) -> WriteFate {
        let Some(room) = self.faults.room.filter(|_| !self.is_quiet) else {
            return WriteFate::Whole;
        };
        let grows = (at + len).saturating_sub(size);
        let fits = grows.min(usize::try_from(room).unwrap_or(usize::MAX));
        self.faults.room = Some(room - fits as u64);
        if fits == grows {
            return WriteFate::Whole;
        }
        self.failures += 1;
        // The hole before the write also needs room.
        WriteFate::Full(len.saturating_sub(grows - fits))
    }

    fn note(&mut self, id: FileId, at: usize, bytes: &[u8]) {
        if let Some(image) = self.images.get_mut(&id).filter(|_| !bytes.is_empty()) {
            image.write(at, bytes);
        }
    }

    /// Whether truncating a file to `to` fails; if it does not, it is recorded.
    pub(crate) fn cut_fails(&mut self, id: FileId, to: usize) -> bool {
        if self.strikes(self.faults.writes_per_mille) {
            return true;
        }
        if let Some(image) = self.images.get_mut(&id) {
            image.cut(to);
        }
        false
    }

    /// Whether a sync fails; if it does not, everything before it is on the disk.
    pub(crate) fn sync_fails(&mut self, id: FileId) -> bool {
        if self.strikes(self.faults.syncs_per_mille) {
            return true;
        }
        if let Some(image) = self.images.get_mut(&id).filter(|_| !self.faults.syncs_lie) {
            image.sync();
        }
        self.syncs += 1;
        false
    }
}

pub(crate) type SharedState = Arc<Mutex<State>>;

/// Locks even a poisoned mutex: the state is consistent wherever a thread can panic.
pub(crate) fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The id of a file; `None`: there is no such file.
pub(crate) fn id_of(path: &Path) -> Option<FileId> {
    fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}
