//! What hosts of a fleet write to each other, through a service that all of them reach.
//!
//! Idea: each host keeps a record under its name and a lease. One host leads: it reads all records
//! and writes a plan. This crate has all of that except the service: keys, records, which parts
//! have to be written again, and the leader's decision.
//!
//! | file | answers |
//! |---|---|
//! | `coordinator` | what does a fleet ask of the service? |
//! | `memory` | the same in memory, for tests |
//! | `keys` | which key holds what? |
//! | `record` | how is a host's record written as JSON? |
//! | `sizes` | how are sizes written in few characters? |
//! | `delta` | which parts of a record have to be written again? |
//! | `view` | what do all keys together say of the fleet? |
//! | `decide`, `plan_record` | what does the leader plan, and how is that written? |
//! | `orders` | what does the leader write about moves? |
//! | `patience` | which needs have lasted long enough to move a guest? |
//! | `past` | which moves of a guest are over? |
//!
//! Limits: `ballast-fleet-move` says how a guest is moved.

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
    Changes, Condition, Coordinator, CoordinatorError, Entry, KeyEvent, KeyWatch, KeyWrite,
    LeaseId, Listing, PutResult, Registration, Revision, VALUE_BYTES_MAX,
};
pub use decide::{Decision, decide};
pub use delta::{DueParts, WrittenParts};
pub use keys::{FleetKey, Keyspace, ParseClusterError};
pub use memory::MemoryCoordinator;
pub use orders::{LeaderWrite, leader_writes};
pub use past::{PAST_MOVES_MAX, PastMoves};
pub use patience::NeedTimers;
pub use plan_record::{
    LISTED_MAX, LeftOutRecord, MODE_ADVISE, MODE_MOVE, MigrationRecord, PlanRecord, UnmetNeedRecord,
};
pub use record::{
    Author, FastPart, Identity, RECORD_VERSION, RecordError, SlowPart, decode, encode, join,
};
pub use view::{FleetView, MoveEntry};
