//! The disk below one folder, as tests use it.
//!
//! Idea: a test sets the faults, counts the failures, and cuts the power. `state.rs` decides what
//! happens to each request.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use fastrand::Rng;

use crate::state::{DiskFaults, SharedState, State, id_of, locked};
use crate::vfs;

/// A disk with all files below one folder that SQLite opens. Dropping it ends the faults.
#[derive(Debug)]
pub struct FaultyDisk {
    root: PathBuf,
    state: SharedState,
}

impl FaultyDisk {
    /// A disk without faults below the folder `root`; `seed` decides which requests will fail.
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

    /// The faults now, with the room that is left.
    pub fn faults(&self) -> DiskFaults {
        locked(&self.state).faults
    }

    /// Sets the faults from now on.
    pub fn set_faults(&self, faults: DiskFaults) {
        locked(&self.state).faults = faults;
    }

    /// Calls `look`, which may access the files without any fault.
    pub fn quietly<T>(&self, look: impl FnOnce() -> T) -> T {
        let was_quiet = std::mem::replace(&mut locked(&self.state).is_quiet, true);
        let found = look();
        locked(&self.state).is_quiet = was_quiet;
        found
    }

    /// The number of requests that failed.
    pub fn failures(&self) -> u64 {
        locked(&self.state).failures
    }

    /// The number of syncs that really brought data to the disk.
    pub fn syncs(&self) -> u64 {
        locked(&self.state).syncs
    }

    /// `copy` was copied from `file`: both have the same contents on the disk.
    pub fn copied(&self, file: &Path, copy: &Path) {
        let (Some(file), Some(copy)) = (id_of(file), id_of(copy)) else { return };
        let mut state = locked(&self.state);
        if let Some(image) = state.images.get(&file).cloned() {
            state.images.insert(copy, image);
        }
    }

    /// The file was changed by others, and its present contents are on the disk.
    pub fn changed(&self, file: &Path) {
        if let Some(id) = id_of(file) {
            locked(&self.state).deleted(id);
        }
    }

    /// The host loses its power: in each file of `folder`, a part of the unsynced data is lost. No
    /// process may have the files open.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn lose_power(&self, folder: &Path, seed: u64) -> io::Result<()> {
        let mut rng = Rng::with_seed(seed);
        let mut files =
            fs::read_dir(folder)?.map(|it| Ok(it?.path())).collect::<io::Result<Vec<_>>>()?;
        // The order in which a folder lists its files is not defined.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::WriteFate;

    #[test]
    fn a_write_beyond_the_room_is_cut_short() {
        let folder = tempfile::tempdir().unwrap();
        let disk = FaultyDisk::new(folder.path(), 0).unwrap();
        let mut state = locked(&disk.state);
        let id = (0, 0);
        // The room on the disk; the offset and length of a write and the file's size; the result.
        for (room, at, len, size, fate) in [
            (100, 0, 100, 0, WriteFate::Whole),
            (99, 0, 100, 0, WriteFate::Full(99)),
            (0, 0, 100, 100, WriteFate::Whole),
            (0, 50, 100, 100, WriteFate::Full(50)),
            (5, 50, 100, 100, WriteFate::Full(55)),
            // The hole alone needs more than there is.
            (10, 1000, 100, 0, WriteFate::Full(0)),
        ] {
            state.faults.room = Some(room);
            assert_eq!(state.write(id, at, &vec![1; len], size), fate, "{room} {at} {size}");
        }
    }
}
