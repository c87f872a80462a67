//! How memory is moved, and what moving it cost.
//!
//! Idea: the guard decides how much each guest should hold; these modules decide how it gets there.
//! The controller calls them after the guard, in this order:
//!
//! | module | answers |
//! |---|---|
//! | `host_pressure` | how short of memory is the host, and how far does it go to get some back? |
//! | `hotplug` | does a target need memory plugged in or out, besides the balloon? |
//! | `rates` | how fast does each mechanism take memory from a guest, and which one should? |
//! | `paging` | what is the cap on a guest's process, and is the guest paged out or in for that? |
//! | `fence` | how much may a guest's cgroup hold at most? |
//! | `merging` | how hard does the host search for equal pages of its guests? |
//! | `thrash` | what did taking memory cost the guest, and must it be restored? |
//!
//! Source: flexmemd §3.1.3 and §3.2.2. Limits: every part is bounded per tick, and comes to rest
//! under a constant target.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

pub mod fence;
pub mod host_pressure;
pub mod hotplug;
pub mod merging;
pub mod paging;
pub mod rates;
pub mod thrash;
