//! What hosts of a fleet say to each other, through a service that all of them reach.
//!
//! Idea: each host keeps its record under its name and a lease; one of them leads, reads all
//! records and writes a plan. Here is all of that but the service: keys, records, what has changed,
//! and the leader's decision.
//!
//! | file | answers |
//! |---|---|
//! | `coordinator` | what does a fleet ask of the service? |
//! | `memory` | the same without a service, for tests |
//! | `keys` | which key holds what? |
//! | `record` | what is a host's record as JSON? |
//! | `sizes` | how are sizes written in few characters? |
//! | `delta` | what of it has to be written again? |
//! | `view` | what do all keys say of the fleet? |
//! | `decide`, `plan_record` | what does the leader plan, and how is that written? |
//! | `orders` | what does it write about moves? |
//! | `patience` | which needs last long enough to move somebody? |
//! | `past` | which moves of a guest are over? |
//!
//! Limits: how a guest is moved is `ballast-fleet-move`'s.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

mod coordinator;
mod decide;
mod delta;
mod keys;
mod memory;
mod orders;
mod past;
mod patience;
mod plan_record;
mod record;
mod sizes;
#[cfg(test)]
mod tests;
mod view;

pub use coordinator::{
    Changes, Condition, Coordinator, CoordinatorError, Entry, Follow, KeyEvent, KeyWrite, LeaseId,
    Listing, PutResult, Registration, Revision, VALUE_BYTES_MAX,
};
pub use decide::{Decision, decide};
pub use delta::{DueParts, WrittenParts};
pub use keys::{FleetKey, Keyspace, ParseClusterError};
pub use memory::MemoryCoordinator;
pub use orders::{LeaderWrite, leader_writes};
pub use past::{PAST_MOVES_MAX, PastMoves};
pub use patience::Patience;
pub use plan_record::{
    LISTED_MAX, LeftOutRecord, MODE_ADVISE, MODE_MOVE, MigrationRecord, PlanHeader, PlanRecord,
    UnmetRecord,
};
pub use record::{
    Author, FastPart, Identity, RECORD_VERSION, RecordError, SlowPart, decode, encode, join,
};
pub use view::{FleetView, MoveEntry};
