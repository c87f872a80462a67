//! What NUMA nodes leave to processes that may use only some of them.
//!
//! Idea: a process whose cpuset allows only some nodes is killed when these are full, whatever the
//! others have. Nodes leave their free memory and their page cache that was not used lately: less
//! than the kernel would find.
//!
//! Cost: for a look-up a process's `status`, for a reading the `meminfo` of each node that some
//! process is bound to. Source: Linux, cpuset(7), proc_pid_status(5), numa(7).
//! Limits: memory policies (`mbind`, QEMU's `host-nodes`) are not seen. Only
//! `/proc/<pid>/numa_maps` shows them, and reading it walks all page tables of the process.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use ballast_model::{Bytes, MemoryRoom};

use crate::error::ReadError;
use crate::file::read_fact;
use crate::line::{KIB_EXPECTED, kib, number, numbered};
use crate::process::gone_is_none;

/// The usual folder of the nodes.
pub const NODES: &str = "/sys/devices/system/node";

/// The kernel numbers nodes below this.
const NODES_MAX: u64 = 1024;

/// Some NUMA nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeSet(Vec<u64>);

impl NodeSet {
    /// Whether all of its nodes are in `others` too.
    pub fn is_within(&self, others: &NodeSet) -> bool {
        self.0.iter().all(|node| others.0.contains(node))
    }

    /// The nodes that are in both.
    fn shared_with(&self, others: &NodeSet) -> NodeSet {
        NodeSet(self.0.iter().filter(|node| others.0.contains(node)).copied().collect())
    }
}

impl fmt::Display for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<String> = self.0.iter().map(u64::to_string).collect();
        let noun = if nodes.len() == 1 { "node" } else { "nodes" };
        write!(f, "NUMA {noun} {}", nodes.join(","))
    }
}

/// The nodes to which process `pid` is bound. `nodes` is [`NODES`] except in tests. `None`: it may
/// use all nodes that have memory; or it has ended, or the kernel knows no nodes.
///
/// # Errors
/// A file cannot be read, or is malformed.
pub fn read_bound_nodes(proc: &Path, nodes: &Path, pid: u32) -> Result<Option<NodeSet>, ReadError> {
    let Some(all) = read_fact(nodes.join("has_memory"), parse_node_set)? else { return Ok(None) };
    if all.0.len() < 2 {
        return Ok(None);
    }
    let status = proc.join(pid.to_string()).join("status");
    let allowed = gone_is_none(read_fact(status, parse_allowed_nodes))?.flatten();
    Ok(allowed.map(|allowed| allowed.shared_with(&all)).filter(|bound| *bound != all))
}

/// What each of these sets of nodes leaves now, in whole MiB, except those with a node that cannot
/// be read. A set's limit is all memory of its nodes.
pub fn read_node_rooms<'s>(
    nodes: &Path,
    sets: impl IntoIterator<Item = &'s NodeSet>,
) -> BTreeMap<&'s NodeSet, MemoryRoom> {
    let mut known: BTreeMap<u64, Option<NodeMemory>> = BTreeMap::new();
    let mut rooms = BTreeMap::new();
    for set in sets {
        let mut sum = Some(NodeMemory::default());
        for node in &set.0 {
            let of_node = *known.entry(*node).or_insert_with(|| {
                let path = nodes.join(format!("node{node}/meminfo"));
                read_fact(path, parse_node_memory).ok().flatten()
            });
            sum = sum.zip(of_node).map(|(sum, of_node)| sum.plus(of_node));
        }
        if let Some(NodeMemory { total, left }) = sum {
            let left = Bytes::mib(left.get() >> 20);
            rooms.insert(set, MemoryRoom { by: set.to_string(), limit: total, left });
        }
    }
    rooms
}

/// The memory of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeMemory {
    /// All of it.
    pub total: Bytes,
    /// What is free, and page cache that was not used lately.
    pub left: Bytes,
}

impl NodeMemory {
    fn plus(self, other: NodeMemory) -> NodeMemory {
        NodeMemory {
            total: self.total.saturating_add(other.total),
            left: self.left.saturating_add(other.left),
        }
    }
}

/// Parses the text of a node's `meminfo`; `path` is for error messages.
///
/// # Errors
/// A line used here is malformed, or one is missing.
pub fn parse_node_memory(path: &Path, text: &[u8]) -> Result<NodeMemory, ReadError> {
    let (mut total, mut free, mut cache) = (None, None, None);
    for (at, line) in numbered(text) {
        // `Node 0 MemTotal:       1024 kB`
        let mut words = line.splitn(4, |&byte| byte == b' ');
        let (Some(name), Some(value)) = (words.nth(2), words.next()) else { continue };
        let figure = match name {
            b"MemTotal:" => &mut total,
            b"MemFree:" => &mut free,
            b"Inactive(file):" => &mut cache,
            _ => continue,
        };
        let value = kib(value);
        *figure = Some(value.ok_or_else(|| ReadError::malformed(path, at, line, KIB_EXPECTED))?);
    }
    let missing = |name| ReadError::missing_line(path, name, KIB_EXPECTED);
    let total = total.ok_or_else(|| missing("MemTotal:"))?;
    let free: Bytes = free.ok_or_else(|| missing("MemFree:"))?;
    Ok(NodeMemory { total, left: free.saturating_add(cache.unwrap_or_default()) })
}

/// Parses the nodes that a process may use from the text of `/proc/<pid>/status`; `path` is for
/// error messages. `None`: this kernel does not say.
///
/// # Errors
/// The line is malformed.
pub fn parse_allowed_nodes(path: &Path, text: &[u8]) -> Result<Option<NodeSet>, ReadError> {
    for (at, line) in numbered(text) {
        if let Some(list) = line.strip_prefix(b"Mems_allowed_list:") {
            let set = node_set(list).ok_or_else(|| malformed(path, at, line))?;
            return Ok(Some(set));
        }
    }
    Ok(None)
}

/// Parses a list of nodes such as `0-1,4`; `path` is for error messages.
///
/// # Errors
/// It is no list of numbers and ranges below 1024.
pub fn parse_node_set(path: &Path, text: &[u8]) -> Result<NodeSet, ReadError> {
    node_set(text).ok_or_else(|| malformed(path, 1, text))
}

fn malformed(path: &Path, line: usize, text: &[u8]) -> ReadError {
    ReadError::malformed(path, line, text, "numbers and ranges of numbers below 1024: `0-1,4`")
}

fn node_set(list: &[u8]) -> Option<NodeSet> {
    let mut nodes = Vec::new();
    for part in list.trim_ascii().split(|&byte| byte == b',') {
        let mut ends = part.splitn(2, |&byte| byte == b'-').map(number);
        let first = ends.next()??;
        let last = ends.next().unwrap_or(Some(first))?;
        if first > last || last >= NODES_MAX {
            return None;
        }
        nodes.extend(first..=last);
    }
    nodes.sort_unstable();
    nodes.dedup();
    Some(NodeSet(nodes))
}
