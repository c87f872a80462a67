//! Which guests of several hosts to move where: a snapshot of hosts to a plan of migrations.
//!
//! Idea: a host balances its own guests. Only where that cannot give each guest its floor, keep its
//! objective, or spare it more misses than the copying costs, a guest is moved to another host.
//! Planning is a function of a [`FleetSnapshot`], [`FleetSettings`] and the time; a [`Violation`]
//! is what an independent checker finds wrong in its result.
//!
//! | file | answers |
//! |---|---|
//! | `snapshot`, `admission` | what is known of hosts and guests, and which records are believed? |
//! | `curve` | how many misses does a guest have with how much memory? |
//! | `plan/host_figures` | what is there on a host, and what do its guests need? |
//! | `plan/candidate` | may a guest be moved now, how large is it then, what does the copy cost? |
//! | `plan/destinations` | where is room for it? |
//! | `plan/cover` | which guests have the cheapest copies and leave a host enough? |
//! | `plan/restore` | the migrations without which floors, objectives or a drain are not met |
//! | `plan/benefit` | the migrations that save more misses than they cost |
//! | `migration` | the result: migrations with reasons, and needs that none could meet |
//! | `check` | does a plan keep every promise? Written apart from all of `plan` |
//!
//! Promises: a migration never counts on memory that another one will free. The destination has
//! room for every arriving guest, and the source for every guest it has, from the first
//! moment to the last: whichever migrations fail, and when, every guest keeps its floor.
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
    Compatibility, GuestRecord, HostRecord, HypervisorVersion, LastMove, ReservationRecord, Stays,
};
