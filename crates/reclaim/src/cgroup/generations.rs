//! How much memory of a guest was touched, by the generations of its cgroup.
//!
//! Idea: Linux's multi-generational LRU keeps a cgroup's pages by when they were last seen in use.
//! An *aging* walks its page tables, moves every page whose accessed bit was set into the youngest
//! generation, clears the bit, and begins another generation. So of two agings in a row, the second
//! leaves what was touched in between in the last but one generation: its size is the answer, and
//! no page has to be chosen or trapped.
//!
//! Cost: a walk over all memory of the cgroup for each aging; reading takes O(cgroups of the host).
//! Source: Linux, Documentation/admin-guide/mm/multigen_lru.rst and mm/vmscan.c.
//! Limits: root, and debugfs. Memory without a file counts (anonymous and shared), the hypervisor's
//! own too, and in huge pages 2 MiB at a time. An aging stays: the kernel then reclaims by it. Only
//! Linux 6.12 and later asks KVM what its guests touched; on others a guest under KVM looks idle,
//! which the caller must not believe.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ballast_model::Bytes;

use super::find::CgroupVersion;
use super::group::MemoryCgroup;
use crate::error::ReclaimError;
use crate::line::{decimal, malformed, numbered, word};

/// Longest text read: some hundred bytes for each cgroup of the host.
const TEXT_BYTES_MAX: u64 = 16 << 20;
/// Most NUMA nodes of a host.
const NODES_MAX: usize = 1024;
const NEEDS: &str = "the multi-generational LRU (CONFIG_LRU_GEN) and debugfs: \
                     `mount -t debugfs debugfs /sys/kernel/debug`";

/// The generations of one guest's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageGenerations {
    file: PathBuf,
    /// The cgroup's name in it.
    group: PathBuf,
    /// Each node, and the generation that was its youngest after the last aging.
    begun: Vec<(u64, u64)>,
}

/// What an aging found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aging {
    /// Memory touched since the aging before. Of the first: since at any time.
    pub touched: Bytes,
    /// How long it took.
    pub took: Duration,
}

/// The generations of a cgroup on one NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeGenerations {
    /// The kernel's number for the cgroup.
    pub cgroup: u64,
    /// The node's number.
    pub node: u64,
    /// Each generation's number, the oldest first, and its pages without a file.
    pub pages: Vec<(u64, u64)>,
}

impl PageGenerations {
    /// Finds those of process `pid`, which is alone in its cgroup. All files are below `root`
    /// (usually `/`).
    ///
    /// # Errors
    /// Those of [`MemoryCgroup::find`]; [`ReclaimError::CgroupLacks`] without the
    /// multi-generational LRU; [`ReclaimError::Unreadable`] where it is turned off, or may not be
    /// read.
    pub fn find(root: &Path, pid: u32) -> Result<PageGenerations, ReclaimError> {
        let enabled = root.join("sys/kernel/mm/lru_gen/enabled");
        let file = root.join("sys/kernel/debug/lru_gen");
        let text = match fs::read_to_string(&enabled) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(ReclaimError::CgroupLacks { path: enabled, needs: NEEDS });
            }
            read => read.map_err(|error| ReclaimError::unreadable(&enabled, error))?,
        };
        if text.trim().trim_start_matches("0x").bytes().all(|digit| digit == b'0') {
            let why = "the multi-generational LRU is turned off: expected `y` to be written here";
            return Err(ReclaimError::unreadable(&enabled, why));
        }
        let cgroup = MemoryCgroup::find(root, pid)?;
        if cgroup.version() == CgroupVersion::One {
            let why = "its memory is in a cgroup of version 1: expected one of version 2";
            return Err(ReclaimError::NoCgroup { pid, why });
        }
        let mut found =
            PageGenerations { file, group: cgroup.group().to_owned(), begun: Vec::new() };
        found.begun = found.nodes()?.iter().map(NodeGenerations::begun).collect();
        Ok(found)
    }

    /// Begins another generation.
    ///
    /// # Errors
    /// [`ReclaimError::Unreadable`], and [`ReclaimError::Cgroup`] if the kernel refuses.
    pub fn age(&mut self) -> Result<Aging, ReclaimError> {
        let began = Instant::now();
        for NodeGenerations { cgroup, node, pages } in self.nodes()? {
            let youngest = pages.last().map_or(0, |&(number, _)| number);
            // All pages, whether there is swap for them or not, and whether it would pay or not.
            self.write(&format!("+ {cgroup} {node} {youngest} 1 1"))?;
        }
        let nodes = self.nodes()?;
        let mut touched: u64 = 0;
        for NodeGenerations { node, pages, .. } in &nodes {
            let since = self.begun.iter().find(|(begun, _)| begun == node);
            let since = since.map_or(u64::MAX, |&(_, generation)| generation);
            // The kernel may have aged meanwhile, too: then what was touched is in more than one.
            // The youngest has what is new since just now.
            let (_, older) = pages.split_last().unwrap_or((&(0, 0), &[]));
            for (generation, pages) in older {
                if *generation >= since {
                    touched = pages.saturating_add(touched);
                }
            }
        }
        self.begun = nodes.iter().map(NodeGenerations::begun).collect();
        Ok(Aging { touched: Bytes::pages(touched), took: began.elapsed() })
    }

    fn nodes(&self) -> Result<Vec<NodeGenerations>, ReclaimError> {
        let unreadable = |why: String| ReclaimError::unreadable(&self.file, why);
        let file = match File::open(&self.file) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(ReclaimError::CgroupLacks { path: self.file.clone(), needs: NEEDS });
            }
            opened => opened.map_err(|error| unreadable(error.to_string()))?,
        };
        let mut text = Vec::new();
        file.take(TEXT_BYTES_MAX)
            .read_to_end(&mut text)
            .map_err(|error| unreadable(error.to_string()))?;
        let nodes = parse_generations(&text, &self.group).map_err(unreadable)?;
        if nodes.is_empty() {
            let group = self.group.display();
            return Err(unreadable(format!(
                "no memcg `{group}` in it: expected the guest's cgroup"
            )));
        }
        Ok(nodes)
    }

    fn write(&self, text: &str) -> Result<(), ReclaimError> {
        let file = File::options().write(true).open(&self.file);
        file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| {
            let (path, text, why) = (self.file.clone(), text.to_owned(), error.to_string());
            ReclaimError::Cgroup { path, text, why }
        })
    }
}

impl NodeGenerations {
    /// The node, and its youngest generation.
    fn begun(&self) -> (u64, u64) {
        (self.node, self.pages.last().map_or(0, |&(number, _)| number))
    }
}

/// Parses the text of debugfs's `lru_gen`: the generations of cgroup `group` on each node; none if
/// it is not there.
///
/// # Errors
/// A line of that cgroup is malformed; the error names it.
pub fn parse_generations(text: &[u8], group: &Path) -> Result<Vec<NodeGenerations>, String> {
    const EXPECTED: &str =
        "`memcg ID PATH`, `node ID`, or `GENERATION AGE PAGES PAGES`, as in lru_gen";
    let mut nodes: Vec<NodeGenerations> = Vec::new();
    let mut cgroup = None;
    for (at, line) in numbered(text) {
        let mut rest = line.trim_ascii();
        let bad = || malformed(at, line, EXPECTED);
        let first = word(&mut rest);
        if first == b"memcg" {
            let number = decimal(word(&mut rest)).ok_or_else(bad)?;
            let is_it = rest.trim_ascii() == group.as_os_str().as_encoded_bytes();
            cgroup = is_it.then_some(number);
            continue;
        }
        let Some(cgroup) = cgroup else { continue };
        if first == b"node" {
            let node = decimal(word(&mut rest)).ok_or_else(bad)?;
            if nodes.len() >= NODES_MAX {
                return Err(bad());
            }
            nodes.push(NodeGenerations { cgroup, node, pages: Vec::new() });
            continue;
        }
        let number = decimal(first).ok_or_else(bad)?;
        let _age = word(&mut rest);
        // A generation that is no more is marked with an `x`.
        let pages = word(&mut rest);
        let pages = decimal(pages.strip_suffix(b"x").unwrap_or(pages)).ok_or_else(bad)?;
        nodes.last_mut().ok_or_else(bad)?.pages.push((number, pages));
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Debian's 6.12 writes it.
    const TEXT: &str = "\
memcg     1 /
 node     0
          0       5684          0           0 
          1       5684          0         442 
memcg    47 /vm
 node     0
          1       3140          0          82 
          2       3140          0           0 
          3       3140       4891x       8402 
          4          8         12           0 
 node     1
          7       3140          5           0 
memcg    48 /vm/below
 node     0
          0       3140          9           9 
";

    #[test]
    fn generations_of_one_cgroup_are_parsed() {
        let nodes = parse_generations(TEXT.as_bytes(), Path::new("/vm")).unwrap();
        let pages = vec![(1, 0), (2, 0), (3, 4891), (4, 12)];
        let first = NodeGenerations { cgroup: 47, node: 0, pages };
        assert_eq!(nodes, [first, NodeGenerations { cgroup: 47, node: 1, pages: vec![(7, 5)] }]);
        assert_eq!(parse_generations(TEXT.as_bytes(), Path::new("/v")), Ok(Vec::new()));
    }

    #[test]
    fn malformed_lines_of_the_cgroup_are_named() {
        for (line, text) in [
            (2, "memcg 1 /vm\n 1 2 3 4\n"),
            (1, "memcg x /vm\n"),
            (2, "memcg 1 /vm\n node -1\n"),
            (3, "memcg 1 /vm\n node 0\n 1 2\n"),
            (3, "memcg 1 /vm\n node 0\n 1 2 3y 4\n"),
        ] {
            let why = parse_generations(text.as_bytes(), Path::new("/vm")).unwrap_err();
            assert!(why.starts_with(&format!("line {line}: ")), "{text}: {why}");
        }
    }
}
