//! What a host notes of a guest's move, so that a crash forgets nothing.
//!
//! Idea: what only this host knows and neither its hypervisor nor its daemon tells: which
//! hypervisor has only ever listened, whose copy this is, what the ceiling was. It is noted before
//! it is done, one file a guest, which a rename replaces.
//! Limits: a folder that is lost with a move under way leaves what the move made to an operator: a
//! reservation, which ends by itself, a ceiling, or a QEMU that waits.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ballast_fleet_move::{Carried, MoveRecord};
use ballast_model::{Bytes, GuestId, Timestamp};
use serde::{Deserialize, Serialize};

/// Of this format.
const VERSION: u32 = 1;
/// Largest note.
const NOTE_BYTES_MAX: u64 = 64 << 10;
const SUFFIX: &str = ".json";

/// What is noted of one guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Note {
    version: u32,
    /// Which order it is about.
    order: Option<Timestamp>,
    /// Destination: what is or was to be reserved.
    pub reserved: Option<u64>,
    /// Destination: the daemon has refused to reserve.
    pub is_refused: bool,
    /// Destination: its hypervisor listens, and the guest was never started in it.
    pub is_listener: bool,
    /// Destination: what came along counts, or will as soon as the daemon answers.
    pub is_taken_over: bool,
    /// Destination: what came along and does not count yet.
    pub to_take_over: Option<Carried>,
    /// Source: the ceiling that is in force for the move.
    pub shrink: Option<ShrinkNote>,
    /// Source: the last copy was begun for this order.
    pub began_copy: bool,
    /// Source: what goes along, as it was last seen.
    pub carried: Option<Carried>,
}

/// A ceiling that a move has lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShrinkNote {
    /// To this.
    pub to_bytes: u64,
    /// What its operator had set; `None`: nothing.
    pub set_bytes: Option<u64>,
    /// What was in force.
    pub before_bytes: u64,
}

impl Note {
    /// What it says for `record`: of an earlier order only what is still to be put away.
    pub(crate) fn for_order(mut self, record: &MoveRecord) -> Note {
        if self.order != Some(record.ordered_at) {
            self.order = Some(record.ordered_at);
            self.began_copy = false;
            self.is_refused = false;
            self.is_taken_over = false;
            self.carried = None;
        }
        self
    }

    /// Whether nothing has to be put away, and nothing is still to be done.
    pub(crate) fn is_done(&self) -> bool {
        self.reserved.is_none() && self.shrink.is_none() && self.to_take_over.is_none()
    }

    /// The ceiling that its operator has set, whatever a move has made of it.
    pub(crate) fn own_ceiling(&self, set: Option<Bytes>) -> Option<Bytes> {
        match &self.shrink {
            Some(shrink) => shrink.set_bytes.map(Bytes::new),
            None => set,
        }
    }
}

/// All notes of a host, as they are in its folder.
#[derive(Debug)]
pub(crate) struct Notes {
    folder: PathBuf,
    notes: BTreeMap<GuestId, Note>,
}

impl Notes {
    /// Reads those in `folder`, which is made if it is not there.
    ///
    /// # Errors
    /// It cannot be read, or a note in it is none.
    pub(crate) fn open(folder: &Path) -> io::Result<Notes> {
        let at = |path: &Path, error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        };
        fs::create_dir_all(folder).map_err(|error| at(folder, error))?;
        let mut notes = BTreeMap::new();
        for entry in fs::read_dir(folder).map_err(|error| at(folder, error))? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some(guest) = name.strip_suffix(SUFFIX).and_then(|name| name.parse().ok()) else {
                continue;
            };
            notes.insert(guest, read(&path).map_err(|error| at(&path, error))?);
        }
        Ok(Notes { folder: folder.to_owned(), notes })
    }

    /// The guests that something is noted of.
    pub(crate) fn guests(&self) -> impl Iterator<Item = &GuestId> {
        self.notes.keys()
    }

    /// What is noted of `guest`.
    pub(crate) fn of(&self, guest: &GuestId) -> Option<&Note> {
        self.notes.get(guest)
    }

    /// Notes it so that no crash loses it.
    ///
    /// # Errors
    /// It cannot be written: then nothing is to be done about it.
    pub(crate) fn write(&mut self, guest: &GuestId, note: Note) -> io::Result<()> {
        if self.notes.get(guest) == Some(&note) {
            return Ok(());
        }
        let note = Note { version: VERSION, ..note };
        let path = self.path(guest);
        let new = path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(&note)?)?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(&self.folder)?.sync_all()?;
        self.notes.insert(guest.clone(), note);
        Ok(())
    }

    /// Nothing of a move is left.
    ///
    /// # Errors
    /// The file stays.
    pub(crate) fn remove(&mut self, guest: &GuestId) -> io::Result<()> {
        fs::remove_file(self.path(guest))?;
        self.notes.remove(guest);
        Ok(())
    }

    fn path(&self, guest: &GuestId) -> PathBuf {
        self.folder.join(format!("{guest}{SUFFIX}"))
    }
}

fn read(path: &Path) -> io::Result<Note> {
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let length = fs::metadata(path)?.len();
    if length > NOTE_BYTES_MAX {
        return Err(invalid(format!("{length} bytes: expected {NOTE_BYTES_MAX} at most")));
    }
    let note: Note = serde_json::from_slice(&fs::read(path)?)?;
    if note.version != VERSION {
        return Err(invalid(format!("version {} of a note: expected {VERSION}", note.version)));
    }
    Ok(note)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_survive_and_broken_ones_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("fleet");
        let guest: GuestId = "db-1".parse().unwrap();
        let note = Note { reserved: Some(7), is_listener: true, ..Note::default() };
        let mut notes = Notes::open(&at).unwrap();
        notes.write(&guest, note.clone()).unwrap();
        let again = Notes::open(&at).unwrap();
        assert_eq!(again.of(&guest), Some(&Note { version: VERSION, ..note }));
        notes.remove(&guest).unwrap();
        assert_eq!(Notes::open(&at).unwrap().guests().count(), 0);
        for (text, needle) in [("{", "EOF"), (r#"{"version":2}"#, "missing field"), ("", "EOF")] {
            std::fs::write(at.join("db-1.json"), text).unwrap();
            let error = Notes::open(&at).unwrap_err().to_string();
            assert!(error.contains("db-1.json") && error.contains(needle), "{error}");
        }
    }
}
