//! Signals that a guest has entered a new phase, while its working set is not tracked.
//!
//! Cheap counters of a guest's virtual processors: data TLB misses ([`DataTlbCounter`]), or page
//! faults and context switches ([`ThreadActivity`]) if the processor does not count misses. Other
//! signals are the traps of a tiny sample ([`TrackingSession`](crate::TrackingSession)) and the
//! referenced bits ([`referenced`](crate::referenced())). The caller chooses.
//!
//! Source: MEB §3.5 and IMT for data TLB misses; the other signals are our own.

mod activity;
mod data_tlb;
mod threads;

pub use activity::{ActivityReader, ThreadActivity, parse_stat, parse_status};
pub use data_tlb::DataTlbCounter;
