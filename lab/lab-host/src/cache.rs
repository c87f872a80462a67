//! The cache of files that are expensive to create.
//!
//! Idea: an entry is a folder that is created under a temporary name and renamed when it is
//! complete, so that it exists completely or not at all; one lock on the whole cache prevents two
//! processes from creating the same entry.
//! Limits: entries are never updated; remove the folder to recreate them. Creating an entry must
//! not request another one: the lock is not recursive.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::LabError;

/// Environment variable that names the cache folder.
const CACHE_VARIABLE: &str = "BALLAST_CACHE";
/// Prefix of entries that are being created.
const UNFINISHED_PREFIX: &str = ".unfinished-";
/// The file that is locked while an entry is created.
const LOCK_FILE: &str = ".lock";

/// The cache folder.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// Opens this user's cache: `BALLAST_CACHE`, else `$XDG_CACHE_HOME/ballast`, else
    /// `~/.cache/ballast`.
    ///
    /// # Errors
    /// When none of them is set or the folder cannot be created.
    pub fn open() -> Result<Cache, LabError> {
        let variable = |name: &str| {
            std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
        };
        let root = variable(CACHE_VARIABLE)
            .or_else(|| variable("XDG_CACHE_HOME").map(|folder| folder.join("ballast")))
            .or_else(|| variable("HOME").map(|home| home.join(".cache/ballast")))
            .ok_or(LabError::NoFolder { what: "the cache", variable: CACHE_VARIABLE })?;
        Cache::at(root)
    }

    /// Opens the cache in the folder `root` and creates the folder if needed.
    ///
    /// # Errors
    /// When the folder cannot be created.
    pub fn at(root: impl Into<PathBuf>) -> Result<Cache, LabError> {
        let root = std::path::absolute(root.into()).map_err(LabError::io("find", "."))?;
        fs::create_dir_all(&root).map_err(LabError::io("create", &root))?;
        Ok(Cache { root })
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the folder of the entry `name` (a relative path). If it does not exist, `make` fills
    /// an empty folder. A failed or killed `make` leaves no entry.
    ///
    /// # Errors
    /// Those of `make`, and of the file system.
    pub fn entry(
        &self,
        name: &str,
        make: impl FnOnce(&Path) -> Result<(), LabError>,
    ) -> Result<PathBuf, LabError> {
        let folder = self.root.join(name);
        if folder.is_dir() {
            return Ok(folder);
        }
        let _lock = self.lock()?;
        if folder.is_dir() {
            return Ok(folder);
        }
        self.remove_unfinished();
        let unfinished = tempfile::Builder::new()
            .prefix(UNFINISHED_PREFIX)
            .tempdir_in(&self.root)
            .map_err(LabError::io("write to", &self.root))?;
        make(unfinished.path())?;
        if let Some(parent) = folder.parent() {
            fs::create_dir_all(parent).map_err(LabError::io("create", parent))?;
        }
        fs::rename(unfinished.path(), &folder).map_err(LabError::io("create", &folder))?;
        Ok(folder)
    }

    /// The entries below `group`, newest first.
    pub(crate) fn entries(&self, group: &str) -> Vec<PathBuf> {
        let Ok(listing) = fs::read_dir(self.root.join(group)) else { return Vec::new() };
        let mut entries: Vec<_> = listing
            .filter_map(|entry| {
                let entry = entry.ok()?;
                Some((entry.metadata().ok()?.modified().ok()?, entry.path()))
            })
            .collect();
        entries.sort();
        entries.into_iter().rev().map(|(_, path)| path).collect()
    }

    fn lock(&self) -> Result<File, LabError> {
        let path = self.root.join(LOCK_FILE);
        let file = File::create(&path).map_err(LabError::io("create", &path))?;
        file.lock().map_err(LabError::io("lock", &path))?;
        Ok(file)
    }

    /// Removes the remains of killed processes; the caller holds the lock, so no process uses them.
    fn remove_unfinished(&self) {
        let Ok(listing) = fs::read_dir(&self.root) else { return };
        for entry in listing.flatten() {
            if entry.file_name().to_string_lossy().starts_with(UNFINISHED_PREFIX) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn cache() -> (tempfile::TempDir, Cache) {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().join("cache")).unwrap();
        (folder, cache)
    }

    #[test]
    fn concurrent_requests_create_an_entry_once() {
        let (_folder, cache) = cache();
        let made = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let path = cache
                        .entry("group/one", |folder| {
                            made.fetch_add(1, Ordering::SeqCst);
                            fs::write(folder.join("file"), "x").unwrap();
                            Ok(())
                        })
                        .unwrap();
                    assert!(path.join("file").is_file());
                });
            }
        });
        assert_eq!(made.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn failure_leaves_no_entry() {
        let (_folder, cache) = cache();
        let failure = || LabError::Invalid("no".to_owned());
        assert!(cache.entry("one", |_| Err(failure())).is_err());
        let left: Vec<_> = fs::read_dir(cache.root()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "only the lock file is left: {left:?}");
        assert!(cache.entry("one", |_| Ok(())).unwrap().is_dir());
    }

    #[test]
    fn remains_of_killed_processes_are_removed() {
        let (_folder, cache) = cache();
        let left = cache.root().join(format!("{UNFINISHED_PREFIX}x"));
        fs::create_dir(&left).unwrap();
        cache.entry("one", |_| Ok(())).unwrap();
        assert!(!left.exists());
    }
}
