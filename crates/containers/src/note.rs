//! Notes which of a cgroup's limits Ballast has set, and which it found.
//!
//! Idea: `memory.high` and `memory.low` have one value each, and others may set them, too: systemd
//! by `MemoryHigh=`, a container's runtime, the operator. Before a limit is set, the limit found
//! and the one to be set are noted in an extended attribute of the cgroup's folder. A daemon that
//! is killed leaves the note to the next one; the note ends with the cgroup, so it cannot outlive
//! the limits. A value in force that Ballast did not set comes from others: it replaces the limit
//! found, and is the most that the container may have.
//!
//! Limits: extended attributes of cgroups need Linux 5.7.

use std::path::Path;

use ballast_model::Bytes;
use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};

use crate::figures::parse_amount;

/// The attribute.
const NAME: &str = "user.ballast.container";

/// Longest note: six numbers of 20 digits and spaces.
const BYTES_MAX: usize = 6 * 21;

/// The limits of a cgroup that Ballast sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// `memory.high`; `None`: no limit.
    pub high: Option<Bytes>,
    /// `memory.low`: while it holds less than this, the host reclaims from others first. `None`:
    /// whatever it holds.
    pub low: Option<Bytes>,
}

/// The limits found, and those set in their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// The limits that others have set.
    pub found: Limits,
    /// The limits that Ballast has set; the same as `found` if it has set none.
    pub set: Limits,
    /// The limits in force before `set`; they may still be in force.
    pub before: Limits,
}

impl Note {
    /// The note of a cgroup whose limits were not changed.
    pub(crate) fn of(found: Limits) -> Note {
        Note { found, set: found, before: found }
    }

    /// Reads the note of a cgroup, and updates it by the limits in force (`now`). Without a note,
    /// no limit counts as set.
    pub(crate) fn read(folder: &Path, now: Limits) -> Note {
        let mut buffer = [0; BYTES_MAX];
        let read = getxattr(folder, NAME, &mut buffer).ok();
        let note = read.and_then(|len| Note::parse(buffer.get(..len)?));
        note.map_or_else(|| Note::of(now), |note| note.observed(now))
    }

    /// The note updated by the limits in force (`now`): a value that is neither `set` nor `before`
    /// was set by others.
    pub(crate) fn observed(self, now: Limits) -> Note {
        let Note { mut found, set, before } = self;
        if now.high != set.high && now.high != before.high {
            found.high = now.high;
        }
        if now.low != set.low && now.low != before.low {
            found.low = now.low;
        }
        Note { found, set: now, before: now }
    }

    /// Writes the note, or removes it if no limit is set.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), String> {
        if self.set == self.found {
            // If the removal fails, the note describes the limits in force, which does no harm.
            let _ = removexattr(folder, NAME);
            return Ok(());
        }
        let text = self.text();
        setxattr(folder, NAME, text.as_bytes(), XattrFlags::empty())
            .map_err(|why| format!("cannot note {NAME} at {}: {why}", folder.display()))
    }

    fn text(&self) -> String {
        let word = |limit: Option<Bytes>| limit.map_or("max".to_owned(), |it| it.get().to_string());
        let Note { found, set, before } = *self;
        [found.high, found.low, set.high, set.low, before.high, before.low].map(word).join(" ")
    }

    /// Parses a note; `None` if it is malformed.
    pub fn parse(text: &[u8]) -> Option<Note> {
        let text = std::str::from_utf8(text).ok()?;
        let mut words = text.split(' ').map(|word| parse_amount(word.as_bytes()).ok());
        let mut limits = || Some(Limits { high: words.next()??, low: words.next()?? });
        let (found, set, before) = (limits()?, limits()?, limits()?);
        words.next().is_none().then_some(Note { found, set, before })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn limits(high: Option<u64>, low: u64) -> Limits {
        Limits { high: high.map(Bytes::mib), low: Some(Bytes::mib(low)) }
    }

    #[test]
    fn what_others_change_is_theirs() {
        let (found, set) = (limits(None, 0), limits(Some(300), 128));
        let note = Note { found, set, before: limits(Some(400), 0) };
        assert_eq!(note.observed(set), Note { found, set, before: set });
        let undone = limits(Some(400), 0);
        let kept = Note { found, set: undone, before: undone };
        assert_eq!(note.observed(undone), kept, "it was killed before it set them");
        let theirs = note.observed(limits(Some(200), 128)).found;
        assert_eq!(theirs, limits(Some(200), 0));
        assert_eq!(note.observed(limits(None, 0)), Note::of(limits(None, 0)));
    }

    proptest! {
        #[test]
        fn notes_are_read_back(sizes: [Option<u64>; 6]) {
            let [a, b, c, d, e, f] = sizes.map(|size| size.map(Bytes::new));
            let note = Note {
                found: Limits { high: a, low: b },
                set: Limits { high: c, low: d },
                before: Limits { high: e, low: f },
            };
            let text = note.text();
            prop_assert!(text.len() <= BYTES_MAX);
            prop_assert_eq!(Note::parse(text.as_bytes()), Some(note));
        }

        #[test]
        fn any_note_is_read_or_refused(text: Vec<u8>) {
            let _ = Note::parse(&text);
        }
    }
}
