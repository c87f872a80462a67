//! A disk that fails under SQLite by seed, for tests of what is written with it.
//!
//! Idea: a VFS between SQLite and its own one (`vfs.rs`). It answers reads, writes and syncs of the
//! files below one folder with errors, takes no more than there is room for, and knows what of each
//! file a sync has brought to the disk (`image.rs`). So a loss of power can be played: of what was
//! not synced, some is there, some is torn, and some is lost. The files themselves are real, so
//! that whatever else looks at them (names, sizes, renames) sees what it would see on a host, and
//! SQLite's locks and the log's index are its own.
//!
//! [Decision 14](../../../docs/decisions/0014-faulty-disk.md) argues it.
//!
//! Cost: a copy of each file in memory, and of what was written since its last sync. No sync waits
//! for a disk. Limits: making, renaming and deleting a file is never lost; a sync that failed is
//! tried again with all that it had to bring, as on file systems that keep such pages dirty; the
//! index of the log is not struck but where it has no room to grow. It is the process's default VFS
//! from the first disk on; files in other folders pass it untouched.

mod disk;
mod image;
mod state;
#[cfg(test)]
mod tests;
mod vfs;

pub use disk::FaultyDisk;
pub use state::DiskFaults;
