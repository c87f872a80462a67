//! Kernel reclaim in the cgroup of one guest.
//!
//! Idea: if a guest has its own memory cgroup, the kernel can reclaim its least used memory.
//! Version 2 has `memory.reclaim`, which reclaims an amount, and `memory.high`, a limit that
//! throttles the cgroup above it. Version 1 has `memory.limit_in_bytes`, which is lowered in steps
//! of [`LIMIT_STEP`] until the kernel refuses (`EBUSY`) because the rest is in use.
//!
//! A limit left behind is dangerous: a guest that reaches it is throttled, and with version 1
//! killed once swap is full. So a [`Squeeze`] owns the lowered limit and restores the old one when
//! dropped. [`CgroupPageOut`](crate::CgroupPageOut) holds one for a single step. A [`Fence`] stays
//! in place, and notes on the cgroup itself that the limit is its own. Both lock the cgroup's
//! folder (`flock`) while they change a limit.
//!
//! Source: Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.
//! Limits: the cgroup must contain no other process. A host has the memory controller in one
//! version only: the tests use real cgroups of that version, and plain files for both.

mod fence;
mod find;
mod generations;
mod group;
mod squeeze;

pub use fence::{Fence, MARK};
pub use find::{CgroupMount, CgroupVersion, ProcessCgroups, parse_mountinfo, parse_proc_cgroup};
pub use generations::{Aging, NodeGenerations, PageGenerations, parse_generations};
pub(crate) use group::RECLAIM_NEEDS;
pub use group::{MemoryCgroup, RECLAIM_BYTES_MAX, Reclaimed, parse_amount};
pub use squeeze::{LIMIT_STEP, Squeeze, SqueezeState, SqueezeStep};
