//! The safety envelope: makes the wishes of a policy safe.
//!
//! The same for every policy. In the order in which the controller uses it:
//!
//! | file | answers |
//! |---|---|
//! | `holding` | how much does this guest hold, as far as the host can see? |
//! | `assessment` | may this guest be moved at all, and on which figures? |
//! | `owner_watch` | does something else move its balloon? |
//! | `swap_room` | what must be left to a guest without swap? |
//! | `compliance` | what was asked of each guest, and does it comply? |
//! | `budget` | how much may be handed out, and how much of it at once? |
//! | `goal` | what is the policy's wish within floor, ceiling, step limits and dead band? |
//! | `rooms` | what do the kernel's limits on guests' processes leave? |
//! | `allocate_grants` | which orders? Releases at once, grants only from memory that is free |
//! | `check` | does a finished plan keep every promise? Shares no code with the files above |
//!
//! Promises: a guest is never taken below its floor, nor below its use if it has no swap. It is
//! never shrunk on stale or implausible statistics. Memory is granted only after it was released,
//! and never from the host's reserve. A guest that gives nothing is set aside, and no other guest
//! pays for what it holds beyond its entitlement.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

pub mod check;

mod allocate_grants;
mod assessment;
mod budget;
mod compliance;
mod goal;
mod holding;
mod owner_watch;
mod rooms;
mod settings;
mod swap_room;

pub use allocate_grants::{Grant, Lack, allocate_grants};
pub use assessment::{Assessment, AssessmentInput, Capped, verdict};
pub use budget::{TickBudget, Totals, budget_for};
pub use compliance::ComplianceLog;
pub use goal::{Goal, goal_for};
pub use holding::Holding;
pub use owner_watch::OwnerWatch;
pub use rooms::Rooms;
pub use settings::GuardSettings;
