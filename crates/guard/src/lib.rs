//! The safety envelope: what a policy wants, made safe.
//!
//! The same for every policy. In the order in which the controller uses it:
//!
//! | file | answers |
//! |---|---|
//! | `holding` | what does the host see of what this guest claims to hold? |
//! | `assessment` | may this guest be moved at all, and on what figures? |
//! | `owner_watch` | does somebody else move it? |
//! | `swap_room` | what must a guest be left that has no swap? |
//! | `compliance` | what was asked of each guest, and does it comply? |
//! | `budget` | how much may be handed out, and how much of it at once? |
//! | `goal` | the policy's wish within floor, ceiling, step limits and dead band |
//! | `allocate_grants` | the orders: releases at once, grants only from what is really free |
//! | `check` | does a finished plan keep every promise? Written apart from all of the above |
//!
//! Promises: never below a floor, never below its use without swap, never shrunk on stale or
//! implausible statistics, memory granted only after it was released, never into the host's
//! reserve; a guest that gives nothing is set aside, and nobody else pays for what it holds beyond
//! its entitlement.

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
mod settings;
mod swap_room;

pub use allocate_grants::{Grant, Lack, allocate_grants};
pub use assessment::{Assessment, Capped, Known, verdict};
pub use budget::{TickBudget, Totals, budget_for};
pub use compliance::ComplianceLog;
pub use goal::{Goal, goal_for};
pub use holding::Holding;
pub use owner_watch::OwnerWatch;
pub use settings::GuardSettings;
