//! What the tracker has done, and what that has cost.
//!
//! Idea: counts since a client attached, each only ever growing, so that a client takes differences;
//! and a few figures as they stand. Costs are measured where they arise: processor time by the clocks of
//! the tracker's threads, the time a trap stops a virtual processor by trapping the tracker itself.

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
    /// How long a trap stops a virtual processor, in nanoseconds: the median of those the tracker
    /// made on itself with the last revocation.
    trap_ns,
    /// Granules that are watched.
    granules_watched,
    /// Regions, as they stand.
    regions,
    /// 1 while faults are waited for, 0 while tracking rests.
    is_active,
}
