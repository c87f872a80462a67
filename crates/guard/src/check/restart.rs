//! What the checker takes over from the previous daemon's checker.
//!
//! Idea: the last recorded tick says what guests held and were promised. The guard wrote that, so
//! the checker compared it with its own memory when the tick was made: wherever the two differed,
//! its own is there too, and counts. A guest of that tick is the same guest if its process is the
//! same. While the process is unknown, because the link is still down, the promise counts all the
//! same; once another process is seen, the checker drops it.
//!
//! Cost: nothing once all guests were seen. Limits: waits at most [`WITHIN`]. Believes the tick on
//! the pause, and on reservations if its plan moved nothing and so was not checked; operators see
//! both. Use without swap is learned anew.

use std::collections::BTreeMap;
use std::time::Duration;

use ballast_model::{
    Bytes, CheckedGuest, GuestId, Handover, LeftGuest, PerGuest, ProcessId, Snapshot, Timestamp,
};

use super::memory::Memory;

/// A guest that appears later is another one.
const WITHIN: Duration = Duration::from_secs(60);

/// Guests of the last daemon that have not appeared yet.
#[derive(Clone, Debug, Default)]
pub(super) struct LeftGuests {
    guests: BTreeMap<GuestId, (ProcessId, CheckedGuest)>,
    until: Option<Timestamp>,
}

impl LeftGuests {
    pub(super) fn new(guests: &[LeftGuest]) -> LeftGuests {
        let by_name = |left: &LeftGuest| {
            let said = || said_of(left.held, left.target, &left.handover);
            let known = left.handover.checked.unwrap_or_else(said);
            (left.handover.guest.clone(), (left.process, known))
        };
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
            let Some((process, known)) = self.guests.remove(&sample.id) else { continue };
            if sample.process.is_none_or(|it| it == process) {
                memory.restore(process, known, now);
            }
        }
    }
}

/// What a tick without the checker's own record says of a guest.
pub(super) fn said_of(
    held: Option<Bytes>,
    target: Option<Bytes>,
    handover: &Handover,
) -> CheckedGuest {
    let Handover { transient_grant, granted, granted_lately, resident_cap, .. } = *handover;
    let has_transient = |_: &Bytes| transient_grant > Bytes::ZERO;
    let entitled = target.filter(has_transient).map(|it| it.saturating_add(transient_grant));
    CheckedGuest {
        held,
        target,
        granted: granted.or(target),
        granted_lately,
        entitled,
        resident_cap,
    }
}

/// What is `known` of a guest, unless the rest of the tick has `said` the same. That may say that
/// the guest holds more.
pub(super) fn unsaid(known: CheckedGuest, said: CheckedGuest) -> Option<CheckedGuest> {
    let holds_more = known.held.map(Bytes::page_floor) > said.held;
    let differs = CheckedGuest { held: said.held, ..known } != said;
    (holds_more || differs).then_some(known)
}
