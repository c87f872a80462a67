//! Plans which guests to move between hosts: takes a snapshot of the hosts, returns migrations.
//!
//! Idea: a host balances its own guests. A guest is moved to another host only where balancing
//! cannot give each guest its floor or keep its objective, or where the move saves more misses than
//! the copy costs. Planning is a function of a [`FleetSnapshot`], [`FleetSettings`] and the time.
//! An independent checker judges each plan; a [`Violation`] is one thing that it finds wrong.
//!
//! | file | answers |
//! |---|---|
//! | `snapshot`, `admission` | what is known of hosts and guests, and which records are believed? |
//! | `curve` | how many misses does a guest have with how much memory? |
//! | `plan/host_figures` | how much memory does a host have for guests, and what do they need? |
//! | `plan/candidate` | may a guest be moved now, at which size, and what does the copy cost? |
//! | `plan/destinations` | where is room for it? |
//! | `plan/cover` | which guests are cheapest to copy and relieve a host enough? |
//! | `plan/restore` | which migrations are needed for floors, objectives and drains? |
//! | `plan/benefit` | which migrations save more misses than they cost? |
//! | `migration` | the result: migrations with reasons, and needs that none could meet |
//! | `check` | does a plan keep every promise? Shares no code with `plan` |
//!
//! Promises: a migration never counts on memory that another one will free. From the first moment
//! to the last, the destination has room for every arriving guest, and the source for every guest
//! that it has. Whichever migrations fail, and when, every guest keeps its floor.
//!
//! Limits: nothing here moves a guest (`docs/fleet.md`).

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

mod admission;
mod check;
mod curve;
mod label;
mod migration;
mod plan;
mod settings;
mod snapshot;
#[cfg(test)]
mod tests;

pub use admission::{FleetSnapshot, RefusedRecord};
pub use check::{Violation, check};
pub use curve::{CompactCurve, CompactCurveError};
pub use label::{HostId, Label, ParseLabelError};
pub use migration::{Migration, MigrationPlan, MigrationReason, Obstacle, UnmetKind, UnmetNeed};
pub use plan::plan;
pub use settings::FleetSettings;
pub use snapshot::{
    Compatibility, GuestRecord, HostRecord, HypervisorVersion, LastMove, PinnedBy,
    ReservationRecord,
};
