//! What limits of cgroups and bound NUMA nodes leave to guests' processes, tick by tick.
//!
//! Idea: operators seldom change limits, so they are looked up seldom. What they leave is read in
//! every tick, after the sizes of all processes: what a guest fills in between must not count as
//! left. A guest that is bound to nodes shares them with others: it has a room for each set of
//! nodes that some guest is bound to and that contains all of its own.
//!
//! Cost: a tick, one `pread` for each limited cgroup (`ballast_host::RoomReader`) and one small
//! file for each node that guests are bound to. Every 30 s, for each guest, its `status` and two
//! small files for each cgroup above it, at most [`RENEWED_MAX`] guests a tick.
//! Limits: a limit that is set or lowered is not known before the next look-up. Guests bound to
//! sets of nodes that overlap, neither within the other, may together be granted more than the
//! nodes of both have.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use ballast_host::{
    CGROUPS, MemoryLimit, NODES, NodeSet, PROC, ReadError, RoomReader, read_bound_nodes,
    read_limits, read_node_rooms,
};
use ballast_model::{GuestSample, ProcessId, Timestamp};

/// How long a look-up counts.
const PERIOD: Duration = Duration::from_secs(30);

/// Most processes whose limits are looked up again in one tick. New processes come on top.
const RENEWED_MAX: usize = 64;

/// The limits on one process.
#[derive(Debug)]
struct Known {
    /// When they were looked up.
    at: Timestamp,
    /// Of its cgroups.
    limits: Vec<MemoryLimit>,
    /// The nodes to which it is bound.
    nodes: Option<NodeSet>,
}

/// The limits on guests' processes.
#[derive(Debug)]
pub(super) struct GuestRooms {
    proc: PathBuf,
    cgroups: PathBuf,
    nodes: PathBuf,
    known: BTreeMap<ProcessId, Known>,
    reader: RoomReader,
}

impl GuestRooms {
    /// Those of this host.
    pub(super) fn new() -> GuestRooms {
        GuestRooms::below(PROC.into(), CGROUPS.into(), NODES.into())
    }

    /// Reads below these folders.
    fn below(proc: PathBuf, cgroups: PathBuf, nodes: PathBuf) -> GuestRooms {
        let (known, reader) = (BTreeMap::new(), RoomReader::default());
        GuestRooms { proc, cgroups, nodes, known, reader }
    }

    /// Adds to each guest what limits leave to its process now. A guest whose limits cannot be read
    /// keeps those that were known. Returns the first error of such a kind.
    pub(super) fn add_to(
        &mut self,
        guests: &mut [GuestSample],
        now: Timestamp,
    ) -> Option<ReadError> {
        let error = self.look_up(guests, now);
        let limits: BTreeSet<&MemoryLimit> =
            self.known.values().flat_map(|known| &known.limits).collect();
        let sets: BTreeSet<&NodeSet> =
            self.known.values().filter_map(|known| known.nodes.as_ref()).collect();
        let rooms = self.reader.read(&limits);
        let node_rooms = read_node_rooms(&self.nodes, sets);
        if rooms.is_empty() && node_rooms.is_empty() {
            return error;
        }
        for guest in guests {
            let known = guest.process.and_then(|process| self.known.get(&process));
            let Some(Known { limits, nodes, .. }) = known else { continue };
            let of_limits = limits.iter().filter_map(|limit| rooms.get(limit));
            guest.rooms = of_limits.cloned().collect();
            if let Some(nodes) = nodes {
                let around = node_rooms.iter().filter(|(set, _)| nodes.is_within(set));
                guest.rooms.extend(around.map(|(_, room)| room.clone()));
            }
        }
        error
    }

    /// Looks up the limits on processes that are new or due. Returns the first error.
    fn look_up(&mut self, guests: &[GuestSample], now: Timestamp) -> Option<ReadError> {
        let mut first_error = None;
        let mut before = std::mem::take(&mut self.known);
        let mut renewed = 0;
        for process in guests.iter().filter_map(|guest| guest.process) {
            // A container has no process.
            if process.pid == 0 {
                continue;
            }
            let last = before.remove(&process);
            let is_due =
                |known: &Known| now.saturating_since(known.at) >= PERIOD && renewed < RENEWED_MAX;
            let known = match last {
                Some(known) if !is_due(&known) => known,
                last => {
                    renewed += usize::from(last.is_some());
                    let found = self.read(process, now);
                    let kept = |error| {
                        first_error.get_or_insert(error);
                        match last {
                            Some(known) => Known { at: now, ..known },
                            None => Known { at: now, limits: Vec::new(), nodes: None },
                        }
                    };
                    found.unwrap_or_else(kept)
                }
            };
            self.known.insert(process, known);
        }
        first_error
    }

    fn read(&self, process: ProcessId, now: Timestamp) -> Result<Known, ReadError> {
        let limits = read_limits(&self.proc, &self.cgroups, process.pid)?.unwrap_or_default();
        let nodes = read_bound_nodes(&self.proc, &self.nodes, process.pid)?;
        Ok(Known { at: now, limits, nodes })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ballast_model::{Bytes, LinkState, MemoryRoom};
    use ballast_reclaim::MARK;
    use tempfile::TempDir;

    use super::*;

    /// Files below `proc` and `cgroups` of a host with two guests in one slice.
    const FILES: [(&str, &str); 9] = [
        ("proc/7/cgroup", "0::/machine.slice/web.scope/emulator\n"),
        ("proc/8/cgroup", "0::/machine.slice/db.scope\n"),
        ("cgroups/cgroup.controllers", "cpu memory\n"),
        ("cgroups/machine.slice/memory.max", "8589934592\n"),
        ("cgroups/machine.slice/memory.high", "max\n"),
        ("cgroups/machine.slice/memory.current", "5368709120\n"),
        ("cgroups/machine.slice/web.scope/memory.max", "max\n"),
        ("cgroups/machine.slice/web.scope/memory.high", "3221225472\n"),
        ("cgroups/machine.slice/web.scope/memory.current", "1073741824\n"),
    ];

    fn rooms_of(root: &TempDir) -> GuestRooms {
        let at = |name: &str| root.path().join(name);
        GuestRooms::below(at("proc"), at("cgroups"), at("nodes"))
    }

    fn guest(name: &str, pid: u32) -> GuestSample {
        GuestSample {
            process: Some(ProcessId { pid, start_ticks: 5 }),
            ..GuestSample::unknown(name.parse().unwrap(), LinkState::Up)
        }
    }

    /// The last folder, the file, the limit and what is left of each room, in MiB.
    fn rooms(guest: &GuestSample) -> Vec<(String, u64, u64)> {
        let room = |it: &MemoryRoom| {
            let file = it.by.rsplit('/').take(2).collect::<Vec<_>>().join(" of ");
            (file, it.limit.get() >> 20, it.left.get() >> 20)
        };
        guest.rooms.iter().map(room).collect()
    }

    #[test]
    fn each_guest_has_the_rooms_above_it() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        FILES.iter().for_each(|(name, text)| write(name, text));
        let mut found = rooms_of(&root);
        let mut at = |second: u64| {
            let mut guests = [guest("db", 8), guest("gone", 9), guest("web", 7)];
            let error = found.add_to(&mut guests, Timestamp::from_millis(second * 1000));
            assert!(error.is_none(), "{error:?}");
            guests.map(|guest| rooms(&guest))
        };
        let slice = |left: u64| ("memory.max of machine.slice".to_owned(), 8192_u64, left);
        let web = ("memory.high of web.scope".to_owned(), 3072_u64, 2048_u64);
        assert_eq!(at(100), [vec![slice(3072)], vec![], vec![web.clone(), slice(3072)]]);
        // What is charged is read in every tick, limits are not.
        write("cgroups/machine.slice/memory.current", "6442450944\n");
        write("cgroups/machine.slice/web.scope/memory.high", "max\n");
        assert_eq!(at(129), [vec![slice(2048)], vec![], vec![web, slice(2048)]]);
        assert_eq!(at(130), [vec![slice(2048)], vec![], vec![slice(2048)]]);
        write("cgroups/cgroup.controllers", "cpu\n");
        assert_eq!(at(161), [vec![], vec![], vec![]], "version 1 has the memory");
    }

    #[test]
    fn more_guests_than_a_tick_renews_keep_their_rooms() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("cgroups/a");
        fs::create_dir_all(&folder).unwrap();
        fs::write(root.path().join("cgroups/cgroup.controllers"), "memory").unwrap();
        fs::write(folder.join("memory.max"), Bytes::gib(8).get().to_string()).unwrap();
        fs::write(folder.join("memory.current"), "0").unwrap();
        let names: Vec<String> = (0..3 * RENEWED_MAX).map(|at| format!("g{at:03}")).collect();
        for pid in 1..=names.len() {
            let process = root.path().join(format!("proc/{pid}"));
            fs::create_dir_all(&process).unwrap();
            fs::write(process.join("cgroup"), "0::/a\n").unwrap();
        }
        let mut rooms = rooms_of(&root);
        for (second, left) in [(100, 0), (101, 0), (131, 2), (132, 1), (133, 0), (134, 0)] {
            let mut guests: Vec<GuestSample> =
                names.iter().zip(1..).map(|(name, pid)| guest(name, pid)).collect();
            let now = Timestamp::from_millis(second * 1000);
            assert!(rooms.add_to(&mut guests, now).is_none());
            assert!(guests.iter().all(|guest| guest.rooms.len() == 1), "{second}");
            let due = rooms.known.values().filter(|it| now.saturating_since(it.at) >= PERIOD);
            assert_eq!(due.count(), left * RENEWED_MAX, "{second}");
        }
    }

    #[test]
    fn bound_guests_share_their_nodes() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("nodes/has_memory", "0-2\n");
        for (node, free) in [(0, 1 << 20), (1, 2 << 20), (2, 3 << 20)] {
            let text = format!(
                "Node {node} MemTotal:    8388608 kB\nNode {node} MemFree: {free} kB\n\
                 Node {node} Inactive(file):     1024 kB\n"
            );
            write(&format!("nodes/node{node}/meminfo"), &text);
        }
        for (pid, allowed) in [(1, "1"), (2, "0-1"), (3, "0-2"), (4, "0-7"), (5, "2")] {
            let text = format!("Name:\tqemu\nMems_allowed_list:\t{allowed}\n");
            write(&format!("proc/{pid}/status"), &text);
        }
        let mut guests = [1, 2, 3, 4, 5].map(|pid| guest(&format!("g{pid}"), pid));
        let error = rooms_of(&root).add_to(&mut guests, Timestamp::from_millis(1000));
        assert!(error.is_none(), "{error:?}");
        let one = |name: &str, limit, left| (name.to_owned(), limit, left);
        let both = || one("NUMA nodes 0,1", 16_384_u64, 3074_u64);
        assert_eq!(rooms(&guests[0]), [both(), one("NUMA node 1", 8192, 2049)]);
        assert_eq!(rooms(&guests[1]), [both()]);
        assert!(guests[2].rooms.is_empty() && guests[3].rooms.is_empty(), "they are not bound");
        assert_eq!(rooms(&guests[4]), [one("NUMA node 2", 8192, 3073)]);
    }

    #[test]
    fn the_mark_of_a_fence_has_one_name() {
        assert_eq!(ballast_host::FENCE_MARK, MARK);
    }
}
