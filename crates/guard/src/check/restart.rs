//! What the checker takes over from the daemon before.
//!
//! Idea: the checker learns by itself, from the last tick recorded, what guests were promised. A
//! guest of that tick is the same one if its process is. While that is not known, as its link is
//! still down, what it was promised counts all the same: once another process is seen, the checker
//! forgets it. Cost: nothing once all guests were seen. Limits: at most [`WITHIN`].

use std::collections::BTreeMap;
use std::time::Duration;

use ballast_model::{GuestId, LeftGuest, PerGuest, Snapshot, Timestamp};

use super::memory::Memory;

/// A guest that has not appeared by then is another one.
const WITHIN: Duration = Duration::from_secs(60);

/// Guests of the last daemon that have not appeared yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Left {
    guests: BTreeMap<GuestId, LeftGuest>,
    until: Option<Timestamp>,
}

impl Left {
    pub(super) fn new(guests: &[LeftGuest]) -> Left {
        let by_name = |left: &LeftGuest| (left.handover.guest.clone(), left.clone());
        Left { guests: guests.iter().map(by_name).collect(), until: None }
    }

    pub(super) fn add(&mut self, left: &LeftGuest) {
        self.guests.insert(left.handover.guest.clone(), left.clone());
        self.until = None;
    }

    /// Gives the guests that appear in `snapshot` what they were promised.
    pub(super) fn join(&mut self, memories: &mut PerGuest<Memory>, snapshot: &Snapshot) {
        if self.guests.is_empty() {
            return;
        }
        let now = snapshot.taken_at;
        if now > *self.until.get_or_insert(now + WITHIN) {
            self.guests.clear();
        }
        for (memory, sample) in memories.values_mut().zip(snapshot.guests()) {
            let Some(left) = self.guests.remove(&sample.id) else { continue };
            if sample.process.is_none_or(|process| process == left.process) {
                memory.left(&left, now);
            }
        }
    }
}
