//! What the checker takes over from the previous daemon.
//!
//! Idea: the checker reads from the last recorded tick what guests were promised. A guest of that
//! tick is the same guest if its process is the same. While the process is unknown, because the
//! link is still down, the promise counts all the same; once another process is seen, the checker
//! drops it. Cost: nothing once all guests were seen. Limits: waits at most [`WITHIN`].

use std::collections::BTreeMap;
use std::time::Duration;

use ballast_model::{GuestId, LeftGuest, PerGuest, Snapshot, Timestamp};

use super::memory::Memory;

/// A guest that appears later is another one.
const WITHIN: Duration = Duration::from_secs(60);

/// Guests of the last daemon that have not appeared yet.
#[derive(Clone, Debug, Default)]
pub(super) struct LeftGuests {
    guests: BTreeMap<GuestId, LeftGuest>,
    until: Option<Timestamp>,
}

impl LeftGuests {
    pub(super) fn new(guests: &[LeftGuest]) -> LeftGuests {
        let by_name = |left: &LeftGuest| (left.handover.guest.clone(), left.clone());
        LeftGuests { guests: guests.iter().map(by_name).collect(), until: None }
    }

    /// Gives guests that appear in `snapshot` what they were promised.
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
                memory.restore(&left, now);
            }
        }
    }
}
