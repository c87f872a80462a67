//! The version, features and settings of the host's kernel that matter to guests' memory.
//!
//! Idea: [`HostFacts`] holds what the kernel's files say, without a judgement. Each is a [`Fact`]:
//! a missing file means a kernel without that feature; a file that cannot be read, or has
//! unexpected content, is an error that names the file.
//! Cost: some fifteen small files, for a diagnosis. Source: Linux, Documentation/admin-guide/mm and
//! sysctl/vm.rst; proc_swaps(5). Limits: a snapshot; settings may change afterwards.

use std::path::Path;

use ballast_model::{PageMerging, Pressure};
use rustix::fs::{Access, access};

use crate::error::ReadError;
use crate::file::{KernelFile, read_fact};
use crate::line::number;
use crate::meminfo::{MemInfo, parse_meminfo};
use crate::merging::{merging_owner, read_merging};
use crate::pressure::read_open;
use crate::swap_areas::{SwapArea, parse_swaps};

/// What a file says; `None`: this kernel has no such file.
pub type Fact<T> = Result<Option<T>, ReadError>;

/// The kernel's version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelVersion {
    /// As `uname -r` prints it.
    pub release: String,
    /// Its first two numbers.
    pub number: (u64, u64),
}

/// Features and settings of the host's kernel.
#[derive(Debug)]
pub struct HostFacts {
    /// Its version.
    pub kernel: Fact<KernelVersion>,
    /// The host's memory and the size of its swap.
    pub memory: Fact<MemInfo>,
    /// Memory pressure; `None`: the kernel has no PSI.
    pub pressure: Fact<Pressure>,
    /// When private memory gets huge pages: `always`, `madvise` or `never`.
    pub huge_pages: Fact<&'static str>,
    /// When shared memory (shmem) gets huge pages: `always`, `within_size`, `advise`, `never`,
    /// `deny` or `force`.
    pub shared_huge_pages: Fact<&'static str>,
    /// The host's swap areas; empty: it does not swap.
    pub swaps: Fact<Vec<SwapArea>>,
    /// Whether swapped-out memory is first kept in memory, compressed (zswap).
    pub zswap: Fact<bool>,
    /// How readily the kernel swaps instead of dropping cache, 0 to 200 (`vm.swappiness`).
    pub swappiness: Fact<u64>,
    /// Whether the kernel promises more memory than it has: 0 by a heuristic, 1 always, 2 never
    /// (`vm.overcommit_memory`).
    pub overcommit: Fact<u64>,
    /// Number of NUMA nodes that have memory.
    pub memory_nodes: Fact<u64>,
    /// Whether any process may use userfaultfd (`vm.unprivileged_userfaultfd`).
    pub open_userfaultfd: Fact<bool>,
    /// Whether this process may open `/dev/userfaultfd`; `None`: there is none.
    pub userfaultfd_device: Option<bool>,
    /// Merging of equal pages (KSM).
    pub merging: Fact<PageMerging>,
    /// PID and name of another program that tunes merging.
    pub merging_owner: Option<(u32, &'static str)>,
}

impl HostFacts {
    /// Reads the files below `root`, which is `/` except in tests.
    pub fn read(root: &Path) -> HostFacts {
        let at = |path: &str| root.join(path);
        let proc = root.join("proc");
        let device = at("dev/userfaultfd");
        HostFacts {
            kernel: read_fact(at("proc/sys/kernel/osrelease"), parse_release),
            memory: read_fact(at("proc/meminfo"), parse_meminfo),
            pressure: read_open(
                &mut KernelFile::new(proc.join("pressure/memory")),
                &mut Vec::new(),
            ),
            huge_pages: read_fact(
                at("sys/kernel/mm/transparent_hugepage/enabled"),
                |path, text| {
                    choice(
                        path,
                        text,
                        &PRIVATE_CHOICES,
                        "`always [madvise] never`, one in brackets",
                    )
                },
            ),
            shared_huge_pages: read_fact(
                at("sys/kernel/mm/transparent_hugepage/shmem_enabled"),
                |path, text| {
                    let expected =
                        "`always within_size advise [never] deny force`, one in brackets";
                    choice(path, text, &SHARED_CHOICES, expected)
                },
            ),
            swaps: read_fact(at("proc/swaps"), parse_swaps),
            zswap: read_fact(at("sys/module/zswap/parameters/enabled"), parse_switch),
            swappiness: read_fact(at("proc/sys/vm/swappiness"), |path, text| {
                at_most(path, text, 200, "a number from 0 to 200")
            }),
            overcommit: read_fact(at("proc/sys/vm/overcommit_memory"), |path, text| {
                at_most(path, text, 2, "0, 1 or 2")
            }),
            memory_nodes: read_fact(at("sys/devices/system/node/has_memory"), parse_nodes),
            open_userfaultfd: read_fact(
                at("proc/sys/vm/unprivileged_userfaultfd"),
                |path, text| Ok(at_most(path, text, 1, "0 or 1")? == 1),
            ),
            userfaultfd_device: device
                .exists()
                .then(|| access(&device, Access::READ_OK | Access::WRITE_OK).is_ok()),
            merging: read_merging(&at("sys/kernel/mm/ksm")),
            merging_owner: merging_owner(&proc),
        }
    }
}

const PRIVATE_CHOICES: [&str; 3] = ["always", "madvise", "never"];
const SHARED_CHOICES: [&str; 6] = ["always", "within_size", "advise", "never", "deny", "force"];

/// The word in brackets, which is one of `choices`.
fn choice(
    path: &Path,
    text: &[u8],
    choices: &[&'static str],
    expected: &'static str,
) -> Result<&'static str, ReadError> {
    let chosen = std::str::from_utf8(text).ok().and_then(|text| {
        let mut words = text.split_whitespace();
        words.find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
    });
    let known = choices.iter().find(|it| Some(**it) == chosen);
    known.copied().ok_or_else(|| ReadError::malformed(path, 1, text, expected))
}

fn at_most(path: &Path, text: &[u8], max: u64, expected: &'static str) -> Result<u64, ReadError> {
    let found = number(text.trim_ascii()).filter(|found| *found <= max);
    found.ok_or_else(|| ReadError::malformed(path, 1, text, expected))
}

fn parse_switch(path: &Path, text: &[u8]) -> Result<bool, ReadError> {
    match text.trim_ascii() {
        b"Y" | b"1" => Ok(true),
        b"N" | b"0" => Ok(false),
        _ => Err(ReadError::malformed(path, 1, text, "`Y` or `N`")),
    }
}

/// Parses the text of `/sys/devices/system/node/has_memory`: the number of nodes in a list such as
/// `0-1,4`. `path` is for error messages.
///
/// # Errors
/// It is no list of numbers and ranges.
pub fn parse_nodes(path: &Path, text: &[u8]) -> Result<u64, ReadError> {
    let malformed =
        || ReadError::malformed(path, 1, text, "numbers and ranges of numbers: `0-1,4`");
    let mut nodes: u64 = 0;
    for part in text.trim_ascii().split(|&byte| byte == b',') {
        let mut ends = part.splitn(2, |&byte| byte == b'-').map(number);
        let first = ends.next().flatten().ok_or_else(malformed)?;
        let last = ends.next().unwrap_or(Some(first)).ok_or_else(malformed)?;
        let more = last.checked_sub(first).ok_or_else(malformed)?;
        nodes = nodes.saturating_add(more).saturating_add(1);
    }
    Ok(nodes)
}

/// Parses the text of `/proc/sys/kernel/osrelease`; `path` is for error messages.
///
/// # Errors
/// It does not begin with two numbers.
pub fn parse_release(path: &Path, text: &[u8]) -> Result<KernelVersion, ReadError> {
    let malformed =
        || ReadError::malformed(path, 1, text, "a version that begins with two numbers: `6.12.1`");
    let release = std::str::from_utf8(text.trim_ascii()).map_err(|_| malformed())?;
    let digits = |part: &str| {
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        number(&part.as_bytes()[..end])
    };
    let (major, rest) = release.split_once('.').ok_or_else(malformed)?;
    let found = number(major.as_bytes()).zip(digits(rest)).ok_or_else(malformed)?;
    Ok(KernelVersion { release: release.to_owned(), number: found })
}
