//! The tracker's counters, and the cost of tracking.
//!
//! Counters start when a client attaches and only grow, so clients take differences; a few fields
//! are current values. Processor time comes from the clocks of the tracker's threads. The time a
//! trap stops a virtual processor is the answering thread's time, or is measured with traps of the
//! tracker's own.

use std::time::Duration;

use crate::fields::{FieldReader, FieldWriter};
use crate::wire_error::WireError;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters since a client attached.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct TrackerCounters { $($(#[$doc])* pub $name: u64,)* }

        impl TrackerCounters {
            pub(crate) fn encode(&self, out: FieldWriter) -> FieldWriter {
                out$(.u64(self.$name))*
            }

            pub(crate) fn decode(input: &mut FieldReader<'_>) -> Result<TrackerCounters, WireError> {
                Ok(TrackerCounters { $($name: input.u64()?,)* })
            }
        }
    };
}

counters! {
    /// Touches of watched granules.
    traps,
    /// Faults on granules that are not watched, whose pages were unmapped for other reasons.
    strays,
    /// Entries dropped because the ring was full.
    dropped,
    /// Pages whose permission was restored.
    pages_restored,
    /// Faults retried because the page was gone by then.
    retried,
    /// Granules whose permission was revoked, by request or because they left the hot set.
    granules_revoked,
    /// Granules in the hot set now.
    hot_granules,
    /// Processor time of the thread that answers faults, in nanoseconds.
    handler_ns,
    /// Processor time of the thread that takes requests and revokes, in nanoseconds.
    control_ns,
    /// How long a trap stops a virtual processor that runs on another processor than the answering
    /// thread, in nanoseconds: the lower quartile of the tracker's own traps during the last few
    /// revocations.
    trap_ns,
    /// Granules watched now.
    granules_watched,
    /// Regions now.
    regions,
    /// 1 while permissions are revoked, 0 while tracking rests.
    is_active,
}

/// Overhead of a trap that is answered on the same processor, beside the answering thread's time:
/// entering the kernel and two context switches. `ballast bench track` measured 2.6 to 7.1 µs per
/// trap in all.
const SWITCHES_NS: u64 = 1_000;

impl TrackerCounters {
    /// How long a trap has stopped the guest since `before`, in nanoseconds. If the answering
    /// thread runs on the same processor of the host as the virtual processor (`is_on_same_cpu`),
    /// the guest waits only for that thread; otherwise also for a wake-up on another processor, see
    /// [`trap_ns`](Self::trap_ns).
    pub fn trap_ns_since(&self, before: &TrackerCounters, is_on_same_cpu: bool) -> u64 {
        match self.handler_ns.saturating_sub(before.handler_ns).checked_div(self.faults(before)) {
            Some(each_ns) if is_on_same_cpu => each_ns.saturating_add(SWITCHES_NS),
            _ => self.trap_ns,
        }
    }

    /// The cost since `before`: processor time of the revoking thread, and the time that traps
    /// stopped the guest. The latter is at least the processor time of the answering thread.
    pub fn cost_since(&self, before: &TrackerCounters, is_on_same_cpu: bool) -> Duration {
        let stopped_ns =
            self.faults(before).saturating_mul(self.trap_ns_since(before, is_on_same_cpu));
        let stopped_ns = stopped_ns.max(self.handler_ns.saturating_sub(before.handler_ns));
        let control_ns = self.control_ns.saturating_sub(before.control_ns);
        Duration::from_nanos(stopped_ns.saturating_add(control_ns))
    }

    fn faults(&self, before: &TrackerCounters) -> u64 {
        let traps = self.traps.saturating_sub(before.traps);
        traps.saturating_add(self.strays.saturating_sub(before.strays))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_computed_by_hand() {
        let before = TrackerCounters {
            traps: 100,
            control_ns: 50,
            handler_ns: 7,
            ..TrackerCounters::default()
        };
        let now = TrackerCounters {
            traps: 103,
            strays: 1,
            control_ns: 80,
            handler_ns: 47,
            trap_ns: 15,
            ..TrackerCounters::default()
        };
        // Four faults of 15 ns each, and 30 ns of revoking.
        assert_eq!(now.cost_since(&before, false), Duration::from_nanos(90));
        // The handler worked longer than the traps would have taken.
        let short = TrackerCounters { trap_ns: 1, ..now };
        assert_eq!(short.cost_since(&before, false), Duration::from_nanos(70));
        // 10 ns each, and the context switches.
        assert_eq!(now.trap_ns_since(&before, true), 10 + SWITCHES_NS);
        assert_eq!(now.cost_since(&before, true), Duration::from_nanos(70 + 4 * SWITCHES_NS));
        assert_eq!(now.trap_ns_since(&now, true), 15, "no faults");
        assert_eq!(before.cost_since(&now, true), Duration::ZERO);
    }
}
