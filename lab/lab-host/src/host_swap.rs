//! Host swap for the duration of a run, so that guests can be paged out.
//!
//! Idea: a swap file beside the guests' disks, enabled by root. The run's folder records its path
//! before the file exists, so that any process that ends the run (owner, reaper, or the next run)
//! disables and removes it.
//! Source: mkswap(8), swapon(8).
//! Cost: its size on the disk; disabling it after the guests have exited reads back the pages of
//! other processes.
//! Limits: needs root and a file system on a disk. While it is enabled, any process of the host may
//! be swapped to it.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ballast_model::Bytes;
use rustix::fs::FallocateFlags;

use crate::{Cache, LabError, tool};

/// Smallest size; the kernel needs some pages for itself.
const SIZE_MIN: Bytes = Bytes::mib(16);
/// Remedy when swap cannot be enabled.
const REMEDY: &str = "take `swap` out of [host], or give root the right to turn on swap and set BALLAST_CACHE to a \
                      folder on a file system that has swap files, such as ext4";

/// Checks the size.
///
/// # Errors
/// A message that says which sizes are valid.
pub(crate) fn validate(size: Bytes) -> Result<(), String> {
    match size >= SIZE_MIN {
        true => Ok(()),
        false => Err(format!("{size:#} of swap is too small: at least {SIZE_MIN}")),
    }
}

/// Checks early that this process may enable swap.
///
/// # Errors
/// When this process is not root.
pub(crate) fn ensure_permitted(size: Bytes) -> Result<(), LabError> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(LabError::Invalid(format!(
        "{size} of swap on the host: only root may enable it; run as root, or take `swap` out of [host]"
    )))
}

/// Enables `size` of swap for the run called `run`, on the cache's file system. Calls `record` with
/// the path of the swap file before it creates it.
///
/// # Errors
/// When it is not permitted or the file system does not support swap files; ending the run undoes
/// partial work.
pub(crate) fn turn_on(
    cache: &Cache,
    run: &str,
    size: Bytes,
    record: impl FnOnce(&Path) -> Result<(), LabError>,
) -> Result<(), LabError> {
    let mkswap = tool::require("mkswap", "util-linux")?;
    let swapon = tool::require("swapon", "mount")?;
    let file = format!("swap-{}-{}", std::process::id(), run);
    let path = cache.root().join(file);
    // Recorded first, so that it is found whatever happens next.
    record(&path)?;
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

/// Disables the swap file if it is enabled, and removes it.
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
    use crate::run_folder::RunFolder;

    #[test]
    fn invalid_size_and_missing_privilege_are_reported() {
        assert!(validate(Bytes::mib(16)).is_ok());
        assert!(validate(Bytes::mib(15)).unwrap_err().contains("at least 16MiB"));
        let is_root = rustix::process::geteuid().is_root();
        match ensure_permitted(Bytes::gib(1)) {
            Ok(()) => assert!(is_root),
            Err(error) => assert!(!is_root && error.to_string().contains("only root")),
        }
    }

    /// Enables swap if permitted; in either case no swap is left when the run's folder ends.
    #[test]
    fn swap_ends_with_its_run() {
        let place = tempfile::tempdir().unwrap();
        let cache = Cache::at(place.path().join("cache")).unwrap();
        let base = place.path().join("runs");
        let folder = RunFolder::create(&base, &"swaps".parse().unwrap()).unwrap();
        let areas = || fs::read_to_string("/proc/swaps").unwrap_or_default();
        let is_on = || areas().contains(place.path().to_str().unwrap());
        let record = |path: &Path| folder.record_host_swap(path);
        match turn_on(&cache, "swaps", Bytes::mib(16), record) {
            Ok(()) => assert!(is_on(), "{}", areas()),
            // Not root, a container without the right to it, or a file system without swap files.
            Err(error @ LabError::ToolFailed { .. }) if error.to_string().contains("swapon") => {
                println!("SKIPPED: {error}");
            }
            Err(error) => panic!("{error}"),
        }
        folder.end();
        assert!(!is_on(), "{}", areas());
        assert_eq!(fs::read_dir(cache.root()).unwrap().count(), 0);
    }
}
