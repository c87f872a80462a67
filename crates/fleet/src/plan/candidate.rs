//! May a guest be moved now, at which size, and what does the copy cost?
//!
//! Idea: a guest is ballooned down to what it should have before it is copied, because ballooned
//! pages are not copied. Pages that it writes during the copy are copied again. With the dirty rate
//! as a share of the bandwidth, `bytes × (1 + dirty rate)` are copied in all.
//! Damping: after a migration a guest rests for a quarter of an hour, or for as long as the
//! migration took if that is longer; twice as long for each further migration within 24 hours; at
//! most six hours. A drain does not wait for that, as the operator ordered it.
//! Limits: the bandwidth is that of the source. With a slower destination the copy takes longer,
//! but not more bytes. A destination that is slower than the guest writes is not considered.

use std::time::Duration;

use ballast_model::{Bytes, Timestamp};

use super::host_figures::GuestSizes;
use crate::{FleetSettings, GuestRecord, HostRecord, Obstacle};

/// A guest that may be moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    /// Index of its host in the snapshot.
    pub(crate) host: u32,
    pub(crate) guest: &'a GuestRecord,
    pub(crate) sizes: GuestSizes,
    /// The balloon target before the copy; `None` if it gives no memory.
    pub(crate) shrink_to: Option<u64>,
    /// How much more of its host's memory it occupies during the copy.
    pub(crate) fills: u64,
    /// What is copied if it writes nothing meanwhile.
    pub(crate) bytes: u64,
    /// What is copied in all, including what it writes meanwhile.
    pub(crate) traffic: u64,
}

impl<'a> Candidate<'a> {
    /// The guest as a candidate, or the obstacle.
    pub(crate) fn of(
        place: u32,
        host: &HostRecord,
        guest: &'a GuestRecord,
        settings: &FleetSettings,
        now: Timestamp,
    ) -> Result<Candidate<'a>, Obstacle> {
        if let Some(by) = guest.pinned_by {
            return Err(Obstacle::Pinned(by));
        }
        let rests_until = rests_until(guest, settings).filter(|until| *until > now);
        if let Some(until) = rests_until.filter(|_| !host.is_draining) {
            return Err(Obstacle::Rests(until));
        }
        if guest.dirty_per_s >= host.bandwidth_per_s {
            return Err(Obstacle::WritesTooFast);
        }
        let sizes = GuestSizes::of(guest);
        let shrunk = guest.allocation.page_ceil().get().min(sizes.full);
        let shrink_to = guest.can_shrink.then_some(shrunk);
        let bytes = shrink_to.unwrap_or(u64::MAX).min(guest.resident.get());
        let again =
            Bytes::new(bytes).fraction(guest.dirty_per_s.get(), host.bandwidth_per_s.get()).get();
        let fills = guest.filled_by_copy().get();
        Ok(Candidate { host: place, guest, sizes, shrink_to, fills, bytes, traffic: bytes + again })
    }

    /// How long the copy takes at the slower of both hosts' bandwidths.
    pub(crate) fn copy_time(&self, from: &HostRecord, to: &HostRecord) -> Duration {
        let bandwidth = from.bandwidth_per_s.min(to.bandwidth_per_s).get();
        Duration::from_millis(Bytes::new(self.traffic).fraction(1000, bandwidth).get())
    }
}

/// When the guest may be moved again; `None` if it was never moved.
fn rests_until(guest: &GuestRecord, settings: &FleetSettings) -> Option<Timestamp> {
    let last = guest.last_move?;
    let base = settings.cooldown_min.max(last.took);
    let doublings = guest.moves_in_24h.saturating_sub(1).min(31);
    let rest = base.saturating_mul(1 << doublings).min(settings.cooldown_max);
    Some(last.at + rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LastMove;
    use crate::tests::fleets::guest;

    #[test]
    fn rest_doubles_with_each_move_up_to_six_hours() {
        let settings = FleetSettings::default();
        let minutes = |n: u64| Duration::from_secs(60 * n);
        for (moves, took, rest) in [
            (1, 0, 15),
            (2, 0, 30),
            (3, 0, 60),
            (5, 0, 240),
            (6, 0, 360),
            (40, 0, 360),
            (1, 20, 20),
        ] {
            let at = Timestamp::from_millis(5);
            let last_move = Some(LastMove { at, took: minutes(took) });
            let guest = crate::GuestRecord { moves_in_24h: moves, last_move, ..guest("a", 1) };
            assert_eq!(rests_until(&guest, &settings), Some(at + minutes(rest)), "{moves} moves");
        }
        assert_eq!(rests_until(&guest("a", 1), &settings), None);
    }
}
