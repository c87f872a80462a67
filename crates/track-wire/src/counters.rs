//! What the tracker has done, and what that has cost.
//!
//! Idea: counts since a client attached, each only ever growing, so that a client takes differences;
//! and a few figures as they stand. Costs are measured where they arise: processor time by the clocks of
//! the tracker's threads, the time a trap stops a virtual processor by that of the thread that answers it,
//! or by trapping the tracker itself.

use std::time::Duration;

use crate::bytes::{Reader, Writer};
use crate::message::WireError;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since a client attached.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            pub(crate) fn encode(&self, out: &mut Writer) {
                $(out.u64(self.$name);)*
            }

            pub(crate) fn decode(input: &mut Reader<'_>) -> Result<Counters, WireError> {
                Ok(Counters { $($name: input.u64()?,)* })
            }
        }
    };
}

counters! {
    /// Touches that were seen: of watched granules.
    traps,
    /// Faults on granules that are not watched: their pages were not mapped for other reasons.
    strays,
    /// Entries that found the ring full.
    dropped,
    /// Pages that were given back their permission.
    pages_restored,
    /// Faults that ended without a page, because it was gone by then: the access was made again.
    retried,
    /// Granules whose permission was revoked, by command or because they left the hot set.
    granules_revoked,
    /// Granules in the hot set, as it stands.
    hot_granules,
    /// Processor time of the thread that answers faults, in nanoseconds.
    handler_ns,
    /// Processor time of the thread that takes commands and revokes, in nanoseconds.
    control_ns,
    /// How long a trap stops a virtual processor on another processor than the thread that answers it, in
    /// nanoseconds: the lower quartile of those the tracker made on itself with the last few revocations.
    trap_ns,
    /// Granules that are watched.
    granules_watched,
    /// Regions, as they stand.
    regions,
    /// 1 while faults are waited for, 0 while tracking rests.
    is_active,
}

/// What a trap takes of a virtual processor beside whom the thread that answers runs, besides that thread's
/// own time: entering the kernel, and two switches between the threads. The program of `ballast bench track`
/// was stopped for 2.6 to 7.1 µs a trap.
const SWITCHES_NS: u64 = 1_000;

impl Counters {
    /// How long a trap has stopped the guest since `before`, in nanoseconds. Where the thread that answers
    /// `is_beside` the virtual processor, on the same processor of the host, the guest waits for just that
    /// thread; else for another to wake up too, as measured by [`trap_ns`](Self::trap_ns).
    pub fn trap_ns_since(&self, before: &Counters, is_beside: bool) -> u64 {
        match self.handler_ns.saturating_sub(before.handler_ns).checked_div(self.faults(before)) {
            Some(each_ns) if is_beside => each_ns.saturating_add(SWITCHES_NS),
            _ => self.trap_ns,
        }
    }

    /// What it has cost since then: processor time of the thread that revokes, and that by which traps
    /// stopped the guest. The latter has the work of the thread that answers them in it, unless that is more.
    pub fn cost_since(&self, before: &Counters, is_beside: bool) -> Duration {
        let stopped_ns = self.faults(before).saturating_mul(self.trap_ns_since(before, is_beside));
        let stopped_ns = stopped_ns.max(self.handler_ns.saturating_sub(before.handler_ns));
        let control_ns = self.control_ns.saturating_sub(before.control_ns);
        Duration::from_nanos(stopped_ns.saturating_add(control_ns))
    }

    fn faults(&self, before: &Counters) -> u64 {
        let since = |of: fn(&Counters) -> u64| of(self).saturating_sub(of(before));
        since(|it| it.traps).saturating_add(since(|it| it.strays))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_by_hand() {
        let before = Counters { traps: 100, control_ns: 50, handler_ns: 7, ..Counters::default() };
        let now = Counters {
            traps: 103,
            strays: 1,
            control_ns: 80,
            handler_ns: 47,
            trap_ns: 15,
            ..Counters::default()
        };
        // Four faults of 15 ns, and 30 ns of revoking.
        assert_eq!(now.cost_since(&before, false), Duration::from_nanos(90));
        // The handler worked for longer than they stopped the guest.
        let short = Counters { trap_ns: 1, ..now };
        assert_eq!(short.cost_since(&before, false), Duration::from_nanos(70));
        // Of 10 ns each, and the switches.
        assert_eq!(now.trap_ns_since(&before, true), 10 + SWITCHES_NS);
        assert_eq!(now.cost_since(&before, true), Duration::from_nanos(70 + 4 * SWITCHES_NS));
        assert_eq!(now.trap_ns_since(&now, true), 15, "nobody waited");
        assert_eq!(before.cost_since(&now, true), Duration::ZERO);
    }
}
