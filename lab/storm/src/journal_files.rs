//! The files of a journal on a faulty disk, from one daemon to the next.
//!
//! Idea: each daemon has its own folder. When a daemon is killed, its files are copied as they are
//! at that moment, and the next daemon gets the copy, so nothing that SQLite does on closing can
//! help it. Damage is done to the copy. `lab/faulty-disk` decides which answers SQLite gets from
//! the disk, and what a loss of power leaves of unsynced data.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ballast_faulty_disk::{DiskFaults, FaultyDisk};
use fastrand::Rng;
use tempfile::TempDir;

use crate::fault::Fault;

/// The file with the rows, and its write-ahead log.
const FILE: &str = "journal.db";
const LOG: &str = "journal.db-wal";

/// How much a disk writes at once, bytes.
const SECTOR: u64 = 512;

/// The most free space of a disk that is nearly full, bytes.
const ROOM_MAX: u64 = 64 << 10;

/// A folder in memory, if the host has one, so that no test waits for a disk.
const IN_MEMORY: &str = "/dev/shm";

/// What happens to the files while no daemon writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    /// Nothing.
    None,
    /// A sector has other bytes than were written.
    Torn,
    /// The end of a file is gone.
    Cut,
    /// What was not synced is torn or gone: the host lost its power.
    Unsynced,
}

/// Files on a disk that fails.
#[derive(Debug)]
pub(crate) struct JournalFiles {
    // Dropped before the folder: the disk forgets its files first.
    pub(crate) disk: FaultyDisk,
    folder: TempDir,
    /// The number of daemons so far.
    pub(crate) daemons: u32,
    /// Whether the folder of the files is gone for now.
    pub(crate) is_gone: bool,
    /// Each kind of failure that is in force, and until when.
    failing: Vec<(Fault, Duration)>,
}

impl JournalFiles {
    /// An empty disk without a journal. If it `lies`, syncs keep nothing.
    pub(crate) fn new(lies: bool) -> io::Result<JournalFiles> {
        let mut builder = tempfile::Builder::new();
        builder.prefix("ballast-storm-");
        let folder = match Path::new(IN_MEMORY).is_dir() {
            true => builder.tempdir_in(IN_MEMORY)?,
            false => builder.tempdir()?,
        };
        let disk = FaultyDisk::new(folder.path(), 0)?;
        disk.set_faults(DiskFaults { syncs_lie: lies, ..DiskFaults::default() });
        Ok(JournalFiles { disk, folder, daemons: 0, is_gone: false, failing: Vec::new() })
    }

    fn folder_of(&self, daemon: u32) -> PathBuf {
        let name = if self.is_gone { format!("{daemon}.gone") } else { daemon.to_string() };
        self.folder.path().join(name)
    }

    /// The path of this daemon's journal; there is nothing while the disk is gone.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join(self.daemons.to_string()).join(FILE)
    }

    /// The number of unusable files that were moved aside.
    pub(crate) fn asides(&self) -> usize {
        let found = fs::read_dir(self.folder_of(self.daemons)).into_iter().flatten().flatten();
        let names = found.filter_map(|it| it.file_name().into_string().ok());
        // Each of them may have its log and the log's index beside it.
        let is_side_file = |it: &String| it.ends_with("-wal") || it.ends_with("-shm");
        names.filter(|it| it.contains(".aside-") && !is_side_file(it)).count()
    }

    /// The disk goes away, or comes back.
    pub(crate) fn set_gone(&mut self, is_gone: bool) {
        if self.is_gone != is_gone {
            let from = self.folder_of(self.daemons);
            self.is_gone = is_gone;
            fs::rename(from, self.folder_of(self.daemons)).expect("a folder can be renamed");
        }
    }

    /// A kind of failure begins and lasts until `until`; `noise` seeds how bad it is.
    pub(crate) fn strike(&mut self, fault: Fault, until: Duration, noise: u64) {
        let mut rng = Rng::with_seed(noise);
        let per_mille = [20, 200, 1000][rng.usize(0..3)];
        let mut faults = self.disk.faults();
        match fault {
            Fault::FailReads => faults.reads_per_mille = per_mille,
            Fault::FailWrites => faults.writes_per_mille = per_mille,
            Fault::FailSyncs => faults.syncs_per_mille = per_mille,
            _ => faults.room = Some(rng.u64(0..ROOM_MAX)),
        }
        self.disk.set_faults(faults);
        self.failing.retain(|(other, _)| *other != fault);
        self.failing.push((fault, until));
    }

    /// Ends the failures whose time is over at `now`.
    pub(crate) fn step(&mut self, now: Duration) {
        let mut faults = self.disk.faults();
        self.failing.retain(|&(fault, until)| {
            let is_over = now >= until;
            match fault {
                _ if !is_over => {}
                Fault::FailReads => faults.reads_per_mille = 0,
                Fault::FailWrites => faults.writes_per_mille = 0,
                Fault::FailSyncs => faults.syncs_per_mille = 0,
                _ => faults.room = None,
            }
            !is_over
        });
        self.disk.set_faults(faults);
    }

    /// Copies the files as they are, for the next daemon.
    pub(crate) fn copy(&mut self) -> io::Result<()> {
        let from = self.folder_of(self.daemons);
        self.daemons += 1;
        let to = self.folder_of(self.daemons);
        fs::create_dir(&to)?;
        if !from.exists() {
            return Ok(());
        }
        for entry in fs::read_dir(&from)? {
            let entry = entry?;
            let name = entry.file_name();
            // The log's index is not copied: SQLite makes it from the log again, as after a loss of
            // power.
            if !name.as_encoded_bytes().ends_with(b"-shm") {
                fs::copy(entry.path(), to.join(&name))?;
                self.disk.copied(&entry.path(), &to.join(&name));
            }
        }
        Ok(())
    }

    /// Removes the previous daemon's files, which no process has open any more.
    pub(crate) fn remove_last(&self) {
        if let Some(last) = self.daemons.checked_sub(1) {
            // The first daemon has no predecessor.
            let _ = fs::remove_dir_all(self.folder_of(last));
        }
    }

    pub(crate) fn damage(&self, damage: Damage, rng: &mut Rng) {
        match damage {
            Damage::None => {}
            Damage::Torn | Damage::Cut => self.spoil(damage, rng),
            Damage::Unsynced => self
                .disk
                .lose_power(&self.folder_of(self.daemons), rng.u64(..))
                .expect("the files take writes"),
        }
    }

    /// Tears or cuts one of the two files.
    fn spoil(&self, damage: Damage, rng: &mut Rng) {
        let path = self.folder_of(self.daemons).join(if rng.bool() { FILE } else { LOG });
        let Ok(file) = OpenOptions::new().write(true).open(&path) else { return };
        let length = file.metadata().map_or(0, |it| it.len());
        if damage == Damage::Cut {
            file.set_len(rng.u64(0..=length)).expect("the file can be cut");
        } else if length >= SECTOR {
            let noise: Vec<u8> =
                std::iter::repeat_with(|| rng.u8(..)).take(SECTOR as usize).collect();
            let at = rng.u64(0..length / SECTOR) * SECTOR;
            file.write_all_at(&noise, at).expect("the file takes writes");
        } else {
            return;
        }
        self.disk.changed(&path);
    }
}
