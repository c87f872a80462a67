//! How much memory a guest touched, from the page generations of its cgroup.
//!
//! Idea: Linux's multi-generational LRU keeps a cgroup's pages by when they were last seen in use.
//! An *aging* walks its page tables, moves every page whose accessed bit was set into the youngest
//! generation, clears the bit, and begins another generation. So after two agings in a row, the
//! last but one generation holds what was touched between them: its size is the answer, and no page
//! has to be sampled or trapped.
//!
//! Cost: a walk over all memory of the cgroup for each aging; reading takes O(cgroups of the host).
//! Source: Linux, Documentation/admin-guide/mm/multigen_lru.rst and mm/vmscan.c.
//! Limits: needs root and debugfs. Only memory without a file counts (anonymous and shared),
//! including the hypervisor's own; a touched huge page counts as 2 MiB. Memory that is locked, in a
//! file, in hugetlbfs pages, or first touched from another cgroup is in no generation (compare
//! [`Aging::listed`]). An aging has a lasting effect: the kernel reclaims by the new generations.
//! Only Linux 6.12 and later asks KVM what its guests touched; on older kernels a guest under KVM
//! looks idle, which the caller must not believe.

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
/// Generations that the kernel keeps (`MAX_NR_GENS`): older pages are in the oldest of them.
const GENERATIONS_MAX: u64 = 4;
/// Bits of `enabled`: the LRU is on; an aging walks page tables. Without the second bit an aging
/// only begins a generation, and every guest looks idle.
const CORE: u64 = 1;
const WALK: u64 = 2;
/// The initial cgroup namespace, as a link in `/proc` shows it. In other namespaces the names of
/// cgroups differ from those in `lru_gen`.
const FIRST_NAMESPACE: &str = "cgroup:[4026531835]";
const LOCKDOWN: &str = "sys/kernel/security/lockdown";
const NEEDS: &str = "the multi-generational LRU (CONFIG_LRU_GEN) and debugfs: \
                     `mount -t debugfs debugfs /sys/kernel/debug`";

/// The generations of one guest's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageGenerations {
    file: PathBuf,
    lockdown: PathBuf,
    /// The file with the cgroup's processor time.
    usage: PathBuf,
    /// The cgroup's name in `file`.
    group: PathBuf,
    /// Each node, and the generation that was its youngest after the last aging.
    youngest: Vec<(u64, u64)>,
}

/// What an aging found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aging {
    /// Memory touched since the previous aging; for the first one, since an unknown time before.
    /// `None` if the kernel has aged by itself too often meanwhile to tell.
    pub touched: Option<Bytes>,
    /// Memory in any generation: the memory whose touches can be seen.
    pub listed: Bytes,
    /// How long the aging took.
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
    /// Checks that page generations can be read on the host below `root` (usually `/`).
    ///
    /// # Errors
    /// Those of [`PageGenerations::find`] that are about the host.
    pub fn probe(root: &Path) -> Result<(), ReclaimError> {
        check_host(root).map(drop)
    }

    /// Finds the page generations of process `pid`, which must be alone in its cgroup. All files
    /// are below `root` (usually `/`).
    ///
    /// # Errors
    /// Those of [`MemoryCgroup::find`]; [`ReclaimError::NoGenerations`] without the
    /// multi-generational LRU, under lockdown, or in a cgroup namespace of its own;
    /// [`ReclaimError::CgroupLacks`] without debugfs; [`ReclaimError::Unreadable`] where the LRU is
    /// turned off, would not see touches, or may not be read.
    pub fn find(root: &Path, pid: u32) -> Result<PageGenerations, ReclaimError> {
        let file = check_host(root)?;
        let cgroup = MemoryCgroup::find(root, pid)?;
        if cgroup.version() == CgroupVersion::One {
            let why = "its memory is in a cgroup of version 1: expected one of version 2";
            return Err(ReclaimError::NoCgroup { pid, why });
        }
        let lockdown = root.join(LOCKDOWN);
        let group = cgroup.group().to_owned();
        let usage = cgroup.folder().join("cpu.stat");
        let mut found = PageGenerations { file, lockdown, usage, group, youngest: Vec::new() };
        found.youngest = found.nodes()?.iter().map(NodeGenerations::youngest).collect();
        Ok(found)
    }

    /// Ages the cgroup's pages: begins another generation on each node.
    ///
    /// # Errors
    /// [`ReclaimError::Unreadable`], and [`ReclaimError::Cgroup`] if the kernel refuses.
    pub fn age(&mut self) -> Result<Aging, ReclaimError> {
        let began = Instant::now();
        for NodeGenerations { cgroup, node, pages } in self.nodes()? {
            let youngest = pages.last().map_or(0, |&(number, _)| number);
            // The last two numbers: age anonymous pages even without swap for them, and walk all
            // page tables, even where few pages were touched.
            self.write(&format!("+ {cgroup} {node} {youngest} 1 1"))?;
        }
        let nodes = self.nodes()?;
        let touched = touched_since(&self.youngest, &nodes);
        self.youngest = nodes.iter().map(NodeGenerations::youngest).collect();
        let (touched, listed) = (touched.map(Bytes::pages), sum(&nodes));
        Ok(Aging { touched, listed, took: began.elapsed() })
    }

    /// Memory in any generation now.
    ///
    /// # Errors
    /// [`ReclaimError::Unreadable`] or [`ReclaimError::CgroupLacks`].
    pub fn listed(&self) -> Result<Bytes, ReclaimError> {
        Ok(sum(&self.nodes()?))
    }

    /// Processor time that the guest and its hypervisor have used; `None`: unknown.
    pub fn processor_time(&self) -> Option<Duration> {
        let text = fs::read_to_string(&self.usage).ok()?;
        let used = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
        used.trim().parse().ok().map(Duration::from_micros)
    }

    fn nodes(&self) -> Result<Vec<NodeGenerations>, ReclaimError> {
        let unreadable = |why: String| ReclaimError::unreadable(&self.file, why);
        let file = open(&self.file, &self.lockdown)?;
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
            let (path, text, why) =
                (self.file.clone(), text.to_owned(), refusal(&self.file, &self.lockdown, &error));
            ReclaimError::Cgroup { path, text, why }
        })
    }
}

/// Checks that the host below `root` (usually `/`) has generations that show what is touched;
/// returns their file.
///
/// # Errors
/// [`ReclaimError::NoGenerations`] without the multi-generational LRU, under lockdown, or in a
/// cgroup namespace of its own; [`ReclaimError::CgroupLacks`] without debugfs;
/// [`ReclaimError::Unreadable`] where the LRU is turned off, would not see touches, or may not be
/// read.
fn check_host(root: &Path) -> Result<PathBuf, ReclaimError> {
    let enabled = root.join("sys/kernel/mm/lru_gen/enabled");
    let text = match fs::read_to_string(&enabled) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let why = format!("no such file: expected {NEEDS}");
            return Err(ReclaimError::NoGenerations { path: enabled, why });
        }
        read => read.map_err(|error| ReclaimError::unreadable(&enabled, error))?,
    };
    check_enabled(text.trim()).map_err(|why| ReclaimError::unreadable(&enabled, why))?;
    let namespace = root.join("proc/self/ns/cgroup");
    if fs::read_link(&namespace).is_ok_and(|link| link != Path::new(FIRST_NAMESPACE)) {
        let why = "this program is in a cgroup namespace of its own, as in a container, and lists \
                   cgroups by other names than the kernel: expected the host's";
        return Err(ReclaimError::NoGenerations { path: namespace, why: why.to_owned() });
    }
    let file = root.join("sys/kernel/debug/lru_gen");
    open(&file, &root.join(LOCKDOWN))?;
    Ok(file)
}

fn open(file: &Path, lockdown: &Path) -> Result<File, ReclaimError> {
    File::open(file).map_err(|error| match error.kind() {
        ErrorKind::NotFound => ReclaimError::CgroupLacks { path: file.to_owned(), needs: NEEDS },
        ErrorKind::PermissionDenied if is_locked_down(lockdown) => {
            let why = refusal(file, lockdown, &error);
            ReclaimError::NoGenerations { path: file.to_owned(), why }
        }
        _ => ReclaimError::unreadable(file, refusal(file, lockdown, &error)),
    })
}

/// Whether the kernel closes debugfs; `lockdown` is the file that says so.
fn is_locked_down(lockdown: &Path) -> bool {
    let text = fs::read_to_string(lockdown).unwrap_or_default();
    ["[integrity]", "[confidentiality]"].iter().any(|level| text.contains(level))
}

/// Why the file may not be used, and what to do.
fn refusal(file: &Path, lockdown: &Path, error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied if is_locked_down(lockdown) => format!(
            "{error}: the kernel is locked down, which closes debugfs: expected another source"
        ),
        ErrorKind::PermissionDenied => format!("{error}: expected root"),
        ErrorKind::ReadOnlyFilesystem => {
            format!("{error}: expected `ReadWritePaths=-{}` in the daemon's unit", file.display())
        }
        _ => error.to_string(),
    }
}

impl NodeGenerations {
    /// The node's number, and that of its youngest generation.
    fn youngest(&self) -> (u64, u64) {
        (self.node, self.pages.last().map_or(0, |&(number, _)| number))
    }
}

fn sum(nodes: &[NodeGenerations]) -> Bytes {
    let mut listed: u64 = 0;
    for (_, pages) in nodes.iter().flat_map(|node| &node.pages) {
        listed = listed.saturating_add(*pages);
    }
    Bytes::pages(listed)
}

/// Pages touched between the previous aging and the latest one. `before` has each node's youngest
/// generation after the previous aging, `nodes` the generations after the latest. `None` if the
/// kernel has aged too often to tell. A node that is missing in `before` counts from the next aging
/// on.
fn touched_since(before: &[(u64, u64)], nodes: &[NodeGenerations]) -> Option<u64> {
    let mut touched: u64 = 0;
    for NodeGenerations { node, pages, .. } in nodes {
        let Some((_, since)) = before.iter().find(|(known, _)| known == node) else { continue };
        // The youngest generation has only what was touched since this aging.
        let Some(((youngest, _), older)) = pages.split_last() else { continue };
        // The kernel may have aged meanwhile: then touched pages are in more than one generation.
        // But it keeps so few generations that untouched pages are soon among them.
        if youngest.saturating_sub(*since) >= GENERATIONS_MAX - 1 {
            return None;
        }
        for (generation, pages) in older {
            if generation >= since {
                touched = touched.saturating_add(*pages);
            }
        }
    }
    Some(touched)
}

/// Checks by the text of `enabled` that agings show what was touched. The error says why they do
/// not.
fn check_enabled(text: &str) -> Result<(), String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let bits = u64::from_str_radix(digits, 16)
        .map_err(|_| format!("`{text}`: expected hexadecimal digits, such as `0x0007`"))?;
    if bits & CORE == 0 {
        return Err(
            "the multi-generational LRU is turned off: expected `y` to be written here".into()
        );
    }
    if bits & WALK == 0 {
        return Err(format!(
            "{text}: agings do not walk page tables, so nothing would be seen: expected `y` to be \
             written here, and a processor that sets accessed bits"
        ));
    }
    Ok(())
}

/// Parses the text of debugfs's `lru_gen`: the generations of cgroup `group` on each node; empty if
/// the cgroup is not listed.
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
        // The kernel marks a count with an `x` if its generation no longer exists.
        let pages = word(&mut rest);
        let pages = decimal(pages.strip_suffix(b"x").unwrap_or(pages)).ok_or_else(bad)?;
        nodes.last_mut().ok_or_else(bad)?.pages.push((number, pages));
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text as Linux 6.12 of Debian writes it.
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

    #[test]
    fn only_a_kernel_whose_agings_walk_is_believed() {
        for text in ["0x0007", "0x0003", "7", "0x000f"] {
            assert_eq!(check_enabled(text), Ok(()), "{text}");
        }
        for (text, expected) in [
            ("0x0000", "turned off"),
            ("0x0006", "turned off"),
            ("0x0001", "do not walk"),
            ("0x0005", "do not walk"),
            ("", "hexadecimal"),
            ("y", "hexadecimal"),
        ] {
            let why = check_enabled(text).unwrap_err();
            assert!(why.contains(expected) && why.contains("expected"), "{text}: {why}");
        }
    }

    /// One node's pages as the kernel keeps them, in at most four generations. An aging moves what
    /// was touched into the youngest and begins another.
    struct Kernel {
        youngest: u64,
        oldest: u64,
        /// Each page's generation, and whether its accessed bit is set.
        pages: Vec<(u64, bool)>,
    }

    impl Kernel {
        fn age(&mut self) {
            for (generation, is_touched) in &mut self.pages {
                if std::mem::take(is_touched) {
                    *generation = self.youngest;
                }
            }
            self.youngest += 1;
            self.oldest = self.oldest.max(self.youngest.saturating_sub(GENERATIONS_MAX - 1));
            for (generation, _) in &mut self.pages {
                *generation = self.oldest.max(*generation);
            }
        }

        fn text(&self) -> String {
            let mut text =
                String::from("memcg     1 /\n node     0\nmemcg    47 /vm\n node     0\n");
            for generation in self.oldest..=self.youngest {
                let pages = self.pages.iter().filter(|(its, _)| *its == generation).count();
                text.push_str(&format!(" {generation:10} {:10} {pages:10}  {:10} \n", 9, 77));
            }
            text
        }

        fn nodes(&self) -> Vec<NodeGenerations> {
            parse_generations(self.text().as_bytes(), Path::new("/vm")).unwrap()
        }
    }

    proptest::proptest! {
        #[test]
        fn what_was_touched_between_two_agings_is_counted(
            before in proptest::collection::vec(0_usize..40, 0..60),
            since in proptest::collection::btree_set(0_usize..40, 0..40),
            agings in 1_usize..8,
            kernel_agings in 0_usize..4,
        ) {
            let mut kernel = Kernel { youngest: 1, oldest: 0, pages: vec![(0, true); 40] };
            for touches in before.chunks(before.len() / agings + 1) {
                touches.iter().for_each(|&page| kernel.pages[page].1 = true);
                kernel.age();
            }
            kernel.age();
            let begun: Vec<_> = kernel.nodes().iter().map(NodeGenerations::youngest).collect();
            for (number, &page) in since.iter().enumerate() {
                kernel.pages[page].1 = true;
                // The kernel's own reclaim ages, too.
                if number < kernel_agings {
                    kernel.age();
                }
            }
            kernel.age();
            let expected = (kernel_agings.min(since.len()) < 2).then_some(since.len() as u64);
            proptest::prop_assert_eq!(touched_since(&begun, &kernel.nodes()), expected);
            proptest::prop_assert_eq!(touched_since(&[(1, 0)], &kernel.nodes()), Some(0));
        }
    }
}
