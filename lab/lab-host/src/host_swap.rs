//! Swap of the host for as long as a run lasts, for guests to be paged out to.
//!
//! Idea: a file beside the guests' disks, turned on by root. Its path is in the run's folder before it exists, so that
//! whoever ends the run (owner, reaper, or the next run) turns it off and removes it.
//! Source: mkswap(8), swapon(8).
//! Cost: its size on the disk; turning it off after the guests have gone reads back what others have in it.
//! Limits: only root may; not on file systems in memory. While it is on, all of the host may be swapped to it.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ballast_model::Bytes;
use rustix::fs::FallocateFlags;

use crate::run_folder::RunFolder;
use crate::{Cache, LabError, tool};

/// The smallest; the kernel wants some pages for itself.
const SIZE_MIN: Bytes = Bytes::mib(16);
/// What to do where it cannot be.
const REMEDY: &str = "take `swap` out of [host], or give root the right to turn on swap and set BALLAST_CACHE to a \
                      folder on a file system that has swap files, such as ext4";

/// Checks that there can be so much.
///
/// # Errors
/// Says what would be possible.
pub(crate) fn validate(size: Bytes) -> Result<(), String> {
    match size >= SIZE_MIN {
        true => Ok(()),
        false => Err(format!("{size:#} of swap is too little: at least {SIZE_MIN}")),
    }
}

/// Checks that this process may, before minutes are spent.
///
/// # Errors
/// Says who may.
pub(crate) fn ensure_permitted(size: Bytes) -> Result<(), LabError> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(LabError::Invalid(format!(
        "{size} of swap on the host: only root may turn it on; run as root, or take `swap` out of [host]"
    )))
}

/// Turns on so much swap for the run of `folder`, in the cache's file system.
///
/// # Errors
/// It is not permitted or the file system has no swap files; what was begun is undone as the run ends.
pub(crate) fn turn_on(cache: &Cache, folder: &RunFolder, size: Bytes) -> Result<(), LabError> {
    let mkswap = tool::require("mkswap", "util-linux")?;
    let swapon = tool::require("swapon", "mount")?;
    let file = format!("swap-{}-{}", std::process::id(), folder.name());
    let path = cache.root().join(file);
    // Recorded first: whatever happens now, it is found again.
    folder.record_host_swap(&path)?;
    allocate(&path, size.page_floor())?;
    tool::run(Command::new(mkswap).arg(&path), REMEDY)?;
    tool::run(Command::new(swapon).arg(&path), REMEDY)?;
    Ok(())
}

fn allocate(path: &PathBuf, size: Bytes) -> Result<(), LabError> {
    let file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(LabError::io("create", path))?;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size.get())
        .map_err(|error| LabError::io("make room for", path)(error.into()))
}

/// Turns the file off, if it is on, and removes it.
pub(crate) fn turn_off(path: &Path) {
    if let Some(swapoff) = tool::find("swapoff") {
        let silent = || Stdio::null();
        let mut command = Command::new(swapoff);
        command.arg(path).stdin(silent()).stdout(silent()).stderr(silent());
        let _ = command.status();
    }
    let _ = fs::remove_file(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_told() {
        assert!(validate(Bytes::mib(16)).is_ok());
        assert!(validate(Bytes::mib(15)).unwrap_err().contains("at least 16MiB"));
        let is_root = rustix::process::geteuid().is_root();
        match ensure_permitted(Bytes::gib(1)) {
            Ok(()) => assert!(is_root),
            Err(error) => assert!(!is_root && error.to_string().contains("only root")),
        }
    }

    /// Turned on where that is permitted, and gone when the run's folder ends, in either case.
    #[test]
    fn it_ends_with_its_run() {
        let place = tempfile::tempdir().unwrap();
        let cache = Cache::at(place.path().join("cache")).unwrap();
        let base = place.path().join("runs");
        let folder = RunFolder::create(&base, &"swaps".parse().unwrap()).unwrap();
        let areas = || fs::read_to_string("/proc/swaps").unwrap_or_default();
        let is_on = || areas().contains(place.path().to_str().unwrap());
        match turn_on(&cache, &folder, Bytes::mib(16)) {
            Ok(()) => assert!(is_on(), "{}", areas()),
            Err(error) => println!("not tried: {error}"),
        }
        folder.end();
        assert!(!is_on(), "{}", areas());
        assert_eq!(fs::read_dir(cache.root()).unwrap().count(), 0);
    }
}
