//! What becomes of a journal's files between two daemons.
//!
//! Idea: the next daemon has copies, to which damage is done. Limits: at most one sector or one end of
//! a file is spoiled at once.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use fastrand::Rng;

/// The file with the rows, and its write-ahead log.
pub(crate) const FILE: &str = "journal.db";
const LOG: &str = "journal.db-wal";

/// What damage spoils at once, bytes.
const SECTOR: u64 = 512;

/// What happens to the files while no daemon writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    /// Nothing.
    None,
    /// A sector has other bytes than were written.
    Torn,
    /// The end of a file is gone.
    Cut,
    /// Any part of what was not synced is gone: the host lost its power.
    Unsynced,
    /// What the daemon was about to write is written in part: it was killed in the middle of it.
    Unfinished,
}

/// Copies the files in `from` as they are.
pub(crate) fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        // The log's index is made anew from the log, as after a loss of power.
        if !name.as_encoded_bytes().ends_with(b"-shm") {
            fs::copy(entry.path(), to.join(name))?;
        }
    }
    Ok(())
}

/// One of the two files in `folder` and its length, if it is there.
fn either(folder: &Path, rng: &mut Rng) -> Option<(File, u64)> {
    let name = if rng.bool() { FILE } else { LOG };
    let file = OpenOptions::new().write(true).open(folder.join(name)).ok()?;
    let length = file.metadata().map_or(0, |it| it.len());
    Some((file, length))
}

/// A sector has other bytes than were written.
pub(crate) fn tear(folder: &Path, rng: &mut Rng) {
    let Some((file, length)) = either(folder, rng) else { return };
    if length >= SECTOR {
        let noise: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(SECTOR as usize).collect();
        let at = rng.u64(0..length / SECTOR) * SECTOR;
        file.write_all_at(&noise, at).expect("the file takes writes");
    }
}

/// The end of a file is gone.
pub(crate) fn cut(folder: &Path, rng: &mut Rng) {
    let Some((file, length)) = either(folder, rng) else { return };
    file.set_len(rng.u64(0..=length)).expect("the file can be cut");
}
