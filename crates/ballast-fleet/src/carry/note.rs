//! Notes of a host about a guest's move, which survive a crash.
//!
//! Idea: a note has what only this host knows and neither its hypervisor nor its daemon can tell:
//! which hypervisor has only ever listened, for which order a copy was begun, what the ceiling was.
//! It is written before the action, as one file a guest that a rename replaces. Only what is noted
//! while the record says `Starting` may be written later, but before the record says `Moved`.
//! Limits: if the folder is lost during a move, an operator has to clean up: a reservation, which
//! expires by itself, a ceiling, or a QEMU that waits.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ballast_fleet::HostId;
use ballast_fleet_move::{CarriedState, MoveRecord, Phase};
use ballast_model::{Bytes, GuestId, Timestamp};
use serde::{Deserialize, Serialize};

/// Version of this format.
const VERSION: u32 = 1;
/// Largest note, in bytes.
const NOTE_BYTES_MAX: u64 = 64 << 10;
const SUFFIX: &str = ".json";

/// The note about one guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Note {
    version: u32,
    /// The order that this machine takes part in, by the time at which that was ordered.
    order: Option<Timestamp>,
    /// Destination: the bytes that are reserved, or were to be.
    pub reserved: Option<u64>,
    /// Destination: whether the daemon has refused the reservation.
    pub is_refused: bool,
    /// Destination: whether its hypervisor was made to listen and the guest was never started in
    /// it.
    pub is_listener: bool,
    /// Destination: whether what the guest carried is in force, or will be once the daemon answers.
    pub is_taken_over: bool,
    /// Destination: what the guest carried, as long as it is not in force.
    pub to_take_over: Option<CarriedState>,
    /// Source: the lowered ceiling that is in force for the move.
    pub shrink: Option<ShrinkNote>,
    /// Source: whether a copy was begun for this order.
    pub began_copy: bool,
    /// Source: what is to be carried along, as last seen.
    pub carried: Option<CarriedState>,
}

/// A ceiling that a move has lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShrinkNote {
    /// The lowered ceiling.
    pub to_bytes: u64,
    /// The ceiling that its operator had set, if any.
    pub set_bytes: Option<u64>,
    /// Whether that comes from the configuration or the guest's own settings, not from a command.
    /// Left out if not, so that an earlier version reads the note.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_configured: bool,
    /// The ceiling that was in force, for a daemon of an earlier version, which cannot unset one.
    pub before_bytes: u64,
}

impl ShrinkNote {
    /// The ceiling that was set by command; `None` if none was.
    pub(crate) fn by_command(&self) -> Option<Bytes> {
        self.set_bytes.filter(|_| !self.is_configured).map(Bytes::new)
    }

    /// The ceiling to give back where it cannot be unset.
    pub(crate) fn before(&self) -> Bytes {
        Bytes::new(self.set_bytes.unwrap_or(self.before_bytes))
    }
}

impl Note {
    /// The note for `record` on `host`: of an older order it keeps only what has to be cleaned up.
    /// It is about no order if the move has gone too far to take part in it.
    pub(crate) fn for_order(mut self, record: &MoveRecord, host: &HostId) -> Note {
        if !self.is_of(record) {
            self.order = record.can_be_joined(host).then_some(record.ordered_at);
            self.began_copy = false;
            self.is_refused = false;
            self.is_taken_over = false;
            self.carried = None;
        }
        self
    }

    /// Whether this machine has noted that it takes part in the move of `record`.
    pub(crate) fn is_of(&self, record: &MoveRecord) -> bool {
        self.order == Some(record.ordered_at)
    }

    /// The same, and if `host` is the destination, also that it waits for the guest or has started
    /// it: another machine of its name may have reserved before.
    pub(crate) fn has_part(&self, record: &MoveRecord, host: &HostId) -> bool {
        self.is_of(record) && (record.from == *host || self.is_listener || self.is_taken_over)
    }

    /// The note of a guest that runs here while `record` says `Starting`: all that has to outlive
    /// that phase, whatever could be noted in it.
    pub(crate) fn arrived(mut self, record: &MoveRecord) -> Note {
        if let Phase::Starting { carried } = &record.phase
            && !self.is_taken_over
        {
            (self.to_take_over, self.is_taken_over) = (Some((**carried).clone()), true);
        }
        (self.is_listener, self.reserved) = (false, None);
        self
    }

    /// Whether nothing has to be cleaned up or done later.
    pub(crate) fn is_done(&self) -> bool {
        self.reserved.is_none() && self.shrink.is_none() && self.to_take_over.is_none()
    }

    /// The ceiling that its operator has set, even while a move has lowered it.
    pub(crate) fn own_ceiling(&self, set: Option<Bytes>) -> Option<Bytes> {
        match &self.shrink {
            Some(shrink) => shrink.set_bytes.map(Bytes::new),
            None => set,
        }
    }
}

/// All notes of a host, in memory and in its folder.
#[derive(Debug)]
pub(crate) struct Notes {
    folder: PathBuf,
    notes: BTreeMap<GuestId, Note>,
    /// The guests whose notes are newer than their files.
    unwritten: BTreeSet<GuestId>,
}

impl Notes {
    /// Reads the notes in `folder`, which is created if it does not exist.
    ///
    /// # Errors
    /// The folder or a note in it cannot be read.
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
        Ok(Notes { folder: folder.to_owned(), notes, unwritten: BTreeSet::new() })
    }

    /// The guests that have a note.
    pub(crate) fn guests(&self) -> impl Iterator<Item = &GuestId> {
        self.notes.keys()
    }

    /// The note about `guest`.
    pub(crate) fn of(&self, guest: &GuestId) -> Option<&Note> {
        self.notes.get(guest)
    }

    /// Writes a note so that no crash loses it.
    ///
    /// # Errors
    /// It cannot be written; then its action must not be done.
    pub(crate) fn write(&mut self, guest: &GuestId, note: Note) -> io::Result<()> {
        let note = Note { version: VERSION, ..note };
        if self.notes.get(guest) == Some(&note) && !self.unwritten.contains(guest) {
            return Ok(());
        }
        let path = self.path(guest);
        let new = path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(&note)?)?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(&self.folder)?.sync_all()?;
        self.unwritten.remove(guest);
        self.notes.insert(guest.clone(), note);
        Ok(())
    }

    /// Makes a note count from now on, and writes it if that is possible. If it is not, the next
    /// [`Notes::write`] writes it, or says why not.
    pub(crate) fn hold(&mut self, guest: &GuestId, note: Note) {
        if self.write(guest, note.clone()).is_err() {
            self.unwritten.insert(guest.clone());
            self.notes.insert(guest.clone(), Note { version: VERSION, ..note });
        }
    }

    /// Removes the note about `guest`.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub(crate) fn remove(&mut self, guest: &GuestId) -> io::Result<()> {
        fs::remove_file(self.path(guest))?;
        self.unwritten.remove(guest);
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
    fn an_earlier_versions_note_gives_back_what_was_set() {
        let of = |set: &str| {
            let text = format!(r#"{{"to_bytes":1,"set_bytes":{set},"before_bytes":9}}"#);
            let note: ShrinkNote = serde_json::from_str(&text).unwrap();
            assert_eq!(serde_json::to_string(&note).unwrap(), text);
            (note.by_command(), note.before())
        };
        assert_eq!(of("7"), (Some(Bytes::new(7)), Bytes::new(7)));
        assert_eq!(of("null"), (None, Bytes::new(9)));
        let configured = of(r#"7,"is_configured":true"#);
        assert_eq!(configured, (None, Bytes::new(7)), "of this version");
    }

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
        let newer = Note { reserved: None, ..again.of(&guest).cloned().unwrap() };
        let aside = folder.path().join("aside");
        fs::rename(&at, &aside).unwrap();
        notes.hold(&guest, newer.clone());
        assert_eq!(notes.of(&guest), Some(&newer), "it counts");
        assert!(notes.write(&guest, newer.clone()).is_err(), "it is not written yet");
        fs::rename(&aside, &at).unwrap();
        notes.write(&guest, newer.clone()).unwrap();
        assert_eq!(Notes::open(&at).unwrap().of(&guest), Some(&newer));
        notes.remove(&guest).unwrap();
        assert_eq!(Notes::open(&at).unwrap().guests().count(), 0);
        for (text, needle) in [("{", "EOF"), (r#"{"version":2}"#, "missing field"), ("", "EOF")] {
            std::fs::write(at.join("db-1.json"), text).unwrap();
            let error = Notes::open(&at).unwrap_err().to_string();
            assert!(error.contains("db-1.json") && error.contains(needle), "{error}");
        }
    }
}
