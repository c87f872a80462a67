//! Whose a cgroup's limits are.
//!
//! Idea: `memory.high` and `memory.low` have one value each, and others may set them: systemd by
//! `MemoryHigh=`, a container's runtime, the operator. What was found is noted in an extended
//! attribute of the cgroup's folder before anything else is set, with what is set. So a daemon that
//! is killed leaves a note that the next one reads; it ends with the cgroup, and cannot outlive
//! what it speaks of. A value that is not the one that was set is somebody else's: it is taken for
//! what was found from then on, and is the most that the container may have.
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

/// The two limits of a cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// `memory.high`; `None`: no limit.
    pub high: Option<Bytes>,
    /// `memory.low`: below this the host takes from others first. `None`: all of it.
    pub low: Option<Bytes>,
}

/// What was found, and what was set in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// What others had set.
    pub found: Limits,
    /// What Ballast set; the same as `found` where it set nothing.
    pub set: Limits,
    /// What was in force before that, which it may still be.
    pub before: Limits,
}

impl Note {
    /// Nothing was set yet.
    pub(crate) fn of(found: Limits) -> Note {
        Note { found, set: found, before: found }
    }

    /// The note of a cgroup, or that nothing was set, brought up to what is in force `now`: what
    /// others have changed since is theirs.
    pub(crate) fn read(folder: &Path, now: Limits) -> Note {
        let mut buffer = [0; BYTES_MAX];
        let read = getxattr(folder, NAME, &mut buffer).ok();
        let note = read.and_then(|len| Note::parse(buffer.get(..len)?));
        note.map_or_else(|| Note::of(now), |note| note.seen(now))
    }

    /// The same, with what others have set since: `now` is in force.
    pub(crate) fn seen(self, now: Limits) -> Note {
        let Note { mut found, set, before } = self;
        if now.high != set.high && now.high != before.high {
            found.high = now.high;
        }
        if now.low != set.low && now.low != before.low {
            found.low = now.low;
        }
        Note { found, set: now, before: now }
    }

    /// Writes it, or removes it where nothing is set.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), String> {
        if self.set == self.found {
            // One that stays speaks of what is in force, and does no harm.
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

    /// Reads what was written.
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
        assert_eq!(note.seen(set), Note { found, set, before: set });
        let undone = limits(Some(400), 0);
        let kept = Note { found, set: undone, before: undone };
        assert_eq!(note.seen(undone), kept, "it was killed before it set them");
        let theirs = note.seen(limits(Some(200), 128)).found;
        assert_eq!(theirs, limits(Some(200), 0));
        assert_eq!(note.seen(limits(None, 0)), Note::of(limits(None, 0)));
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
