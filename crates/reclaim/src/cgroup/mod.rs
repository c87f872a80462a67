//! The kernel's own reclaim, in the cgroup of one guest.
//!
//! Idea: a guest in a memory cgroup of its own can be squeezed as a whole: the kernel takes what it finds to be least
//! used. Version 2 has `memory.reclaim`, which asks for an amount, and `memory.high`, above which the group is
//! held back; version 1 has `memory.limit_in_bytes`, which is lowered in steps of [`LIMIT_STEP`] until the kernel
//! refuses (`EBUSY`): what is left is in use.
//!
//! A bound is somebody's: the guest that comes to it is slowed down, and with version 1 killed where swap has run
//! out. So it is held by a [`Squeeze`], and the one that was there before comes back with its end. Who pages a guest out
//! ([`GroupOut`](crate::GroupOut)) holds one for no longer than a step.
//!
//! Source: Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.
//! Limits: the group must have no other process. Version 2's memory controller was not to be had where this was
//! written: those paths were tried with files of our own only; version 1's with a real group.

mod find;
mod group;
mod squeeze;

pub use find::{CgroupMount, CgroupVersion, OwnGroups, parse_mountinfo, parse_own_groups};
pub(crate) use group::RECLAIM_NEEDS;
pub use group::{MemoryCgroup, RECLAIM_BYTES_MAX, Reclaimed, parse_amount};
pub use squeeze::{LIMIT_STEP, Squeeze, SqueezeStep, Squeezed};
