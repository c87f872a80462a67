//! The disk below one folder: what is wrong with it now, and what it does with each request.
//!
//! Idea: whoever tests sets the faults; the VFS asks before each read, write and sync. What a request
//! meets is drawn from a seed, so that the same requests meet the same faults. Limits: requests of
//! several threads at once come in any order.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastrand::Rng;

use crate::image::Image;
use crate::vfs;

/// What is wrong with a disk now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskFaults {
    /// Of a thousand reads so many fail.
    pub reads_per_mille: u32,
    /// Of a thousand writes so many fail, after a part of them.
    pub writes_per_mille: u32,
    /// Of a thousand syncs so many fail.
    pub syncs_per_mille: u32,
    /// By so many bytes files may grow still; `None`: there is room.
    pub room: Option<u64>,
    /// Syncs bring nothing to the disk, and say that they did.
    pub syncs_lie: bool,
}

/// Device and inode: a file keeps them when it is renamed.
pub(crate) type FileId = (u64, u64);

/// What becomes of a write.
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
    faults: DiskFaults,
    /// Whether all is well for now, whatever the faults.
    is_quiet: bool,
    rng: Rng,
    images: HashMap<FileId, Image>,
    failures: u64,
    syncs: u64,
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

    /// Whether nothing can grow any more.
    pub(crate) fn has_no_room(&self) -> bool {
        !self.is_quiet && self.faults.room == Some(0)
    }

    /// The index of the log could not grow.
    pub(crate) fn index_failed(&mut self) {
        self.failures += 1;
    }

    /// What becomes of a write of `len` bytes at `at` to a file of `size` bytes, which is noted.
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
        // A hole before the write counts as room that it needs.
        WriteFate::Full(len.saturating_sub(grows - fits))
    }

    fn note(&mut self, id: FileId, at: usize, bytes: &[u8]) {
        if let Some(image) = self.images.get_mut(&id).filter(|_| !bytes.is_empty()) {
            image.write(at, bytes);
        }
    }

    /// Whether a file cannot be cut; if it can, that is noted.
    pub(crate) fn cut_fails(&mut self, id: FileId, to: usize) -> bool {
        if self.strikes(self.faults.writes_per_mille) {
            return true;
        }
        if let Some(image) = self.images.get_mut(&id) {
            image.cut(to);
        }
        false
    }

    /// Whether a sync fails; if it does not, all before it is on the disk.
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

/// Its counters are whole at every point at which a thread can panic.
pub(crate) fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All files below one folder that SQLite opens. Dropping it ends the faults.
#[derive(Debug)]
pub struct FaultyDisk {
    root: PathBuf,
    state: SharedState,
}

impl FaultyDisk {
    /// A disk without a fault below the folder `root`, whose failures are drawn from `seed`.
    ///
    /// # Errors
    /// There is no such folder.
    pub fn new(root: &Path, seed: u64) -> io::Result<FaultyDisk> {
        let root = root.canonicalize()?;
        let state = Arc::new(Mutex::new(State {
            faults: DiskFaults::default(),
            is_quiet: false,
            rng: Rng::with_seed(seed),
            images: HashMap::new(),
            failures: 0,
            syncs: 0,
        }));
        vfs::add(&root, &state);
        Ok(FaultyDisk { root, state })
    }

    /// What is wrong now, with the room that is left.
    pub fn faults(&self) -> DiskFaults {
        locked(&self.state).faults
    }

    /// What is wrong from now on.
    pub fn set_faults(&self, faults: DiskFaults) {
        locked(&self.state).faults = faults;
    }

    /// Looks at the files without meeting a fault.
    pub fn quietly<T>(&self, look: impl FnOnce() -> T) -> T {
        let was_quiet = std::mem::replace(&mut locked(&self.state).is_quiet, true);
        let found = look();
        locked(&self.state).is_quiet = was_quiet;
        found
    }

    /// Requests that failed.
    pub fn failures(&self) -> u64 {
        locked(&self.state).failures
    }

    /// Syncs that did what they say.
    pub fn syncs(&self) -> u64 {
        locked(&self.state).syncs
    }

    /// The file `copy` was made of `file`: what is on the disk of one is on the disk of the other.
    pub fn copied(&self, file: &Path, copy: &Path) {
        let (Some(file), Some(copy)) = (id_of(file), id_of(copy)) else { return };
        let mut state = locked(&self.state);
        if let Some(image) = state.images.get(&file).cloned() {
            state.images.insert(copy, image);
        }
    }

    /// The file was changed by others, and is on the disk as it is now.
    pub fn changed(&self, file: &Path) {
        if let Some(id) = id_of(file) {
            locked(&self.state).deleted(id);
        }
    }

    /// The host loses its power: of what no sync has brought to the disk some is lost, in each file of
    /// `folder`. Nobody may have them open.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn lose_power(&self, folder: &Path, seed: u64) -> io::Result<()> {
        let mut rng = Rng::with_seed(seed);
        let mut files =
            fs::read_dir(folder)?.map(|it| Ok(it?.path())).collect::<io::Result<Vec<_>>>()?;
        // A folder lists its files in any order.
        files.sort();
        let mut state = locked(&self.state);
        for file in files {
            let image = id_of(&file).and_then(|id| state.images.get_mut(&id));
            if let Some(image) = image {
                fs::write(&file, image.lose_power(&mut rng))?;
            }
        }
        Ok(())
    }
}

impl Drop for FaultyDisk {
    fn drop(&mut self) {
        locked(&self.state).is_quiet = true;
        vfs::remove(&self.root);
    }
}

/// `None`: there is no such file.
pub(crate) fn id_of(path: &Path) -> Option<FileId> {
    fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_beyond_the_room_is_cut_short() {
        let folder = tempfile::tempdir().unwrap();
        let disk = FaultyDisk::new(folder.path(), 0).unwrap();
        let mut state = locked(&disk.state);
        let id = (0, 0);
        // Room, then where, how much, to a file of which size, and what is written of it.
        for (room, at, len, size, fate) in [
            (100, 0, 100, 0, WriteFate::Whole),
            (99, 0, 100, 0, WriteFate::Full(99)),
            (0, 0, 100, 100, WriteFate::Whole),
            (0, 50, 100, 100, WriteFate::Full(50)),
            (5, 50, 100, 100, WriteFate::Full(55)),
            // A hole alone needs more than there is.
            (10, 1000, 100, 0, WriteFate::Full(0)),
        ] {
            state.faults.room = Some(room);
            assert_eq!(state.write(id, at, &vec![1; len], size), fate, "{room} {at} {size}");
        }
    }
}
