//! A disk below SQLite that fails by seed, for tests of programs that use SQLite.
//!
//! Idea: a VFS between SQLite and SQLite's own VFS (`vfs.rs`). It fails reads, writes and syncs of
//! the files below one folder, limits their room, and knows which contents of each file a sync has
//! brought to the disk (`image.rs`). So it can simulate a loss of power: unsynced data is partly
//! there, partly torn, and partly lost. The files themselves are real, so their names, sizes and
//! renames are as on a host, and SQLite's locks and the log's index are SQLite's own.
//!
//! [Decision 14](../../../docs/decisions/0014-faulty-disk.md) argues it.
//!
//! Cost: a copy of each file in memory, and of what was written since its last sync. No sync waits
//! for a disk. Limits: creating, renaming and deleting a file is never lost. A sync that failed is
//! retried with everything that it had to write, as on file systems that keep such pages dirty. The
//! log's index never fails, except when it has no room to grow. The VFS is the process's default
//! VFS from the first disk on; files in other folders are not affected.

mod disk;
mod image;
mod state;
#[cfg(test)]
mod tests;
mod vfs;

pub use disk::FaultyDisk;
pub use state::DiskFaults;
