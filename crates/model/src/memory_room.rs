//! What a limit of the host's kernel leaves to guests' processes.
//!
//! Idea: a process whose cgroup reaches its limit, or whose NUMA nodes are full, is killed or made
//! to crawl, however much memory the host has. A limit holds for all processes below it, so guests
//! with the same limit share what it leaves.

use crate::Bytes;
#[cfg(feature = "serde")]
use crate::unit;

/// A limit on the memory of a guest's process, and what it leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemoryRoom {
    /// What limits, and identifies the limit: a file such as
    /// `/sys/fs/cgroup/machine.slice/memory.max`, or NUMA nodes.
    pub by: String,
    /// The limit.
    #[cfg_attr(feature = "serde", serde(rename = "limit_bytes", with = "unit"))]
    pub limit: Bytes,
    /// What all processes below the limit together can still get: the limit less what they are
    /// charged, except for page cache that the kernel drops first. Of nodes: what is free there,
    /// and such page cache.
    #[cfg_attr(feature = "serde", serde(rename = "left_bytes", with = "unit"))]
    pub left: Bytes,
}
