//! Limits of cgroups on the memory of processes, and what they leave.
//!
//! Idea: a cgroup's limit holds for all processes below it. At `memory.max` the kernel kills one of
//! them if it cannot reclaim; above `memory.high` it slows them down until they crawl, so that one
//! counts as a limit too. Page cache that was not used lately does not count as charged, because
//! the kernel drops it first.
//!
//! Cost: for a look-up ([`read_limits`]) one small file of the process, for which the kernel waits
//! for the lock of all cgroups, and two for each cgroup above it.
//! For a reading ([`RoomReader::read`]) one `pread` for each limited cgroup, and for at most
//! [`CACHES_MAX`] that are nearly full a `memory.stat`, whose counters the kernel first adds up.
//! Source: Linux, Documentation/admin-guide/cgroup-v2.rst.
//! Limits: version 2, mounted at [`CGROUPS`]. A limit of Ballast's own, a fence, does not count. On
//! Linux before 5.19, which lacks `memory.reclaim`, the limit of a guest that is being paged out
//! may be taken for one until the next look-up.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ballast_model::{Bytes, MemoryRoom};
use rustix::fs::getxattr;

use crate::error::ReadError;
use crate::file::{KernelFile, read_fact};
use crate::line::{number, numbered};
use crate::merging::parse_number;
use crate::process::gone_is_none;

/// The usual mount point of cgroups of version 2.
pub const CGROUPS: &str = "/sys/fs/cgroup";

/// The extended attribute of a cgroup whose `memory.high` is Ballast's: that of
/// `ballast_reclaim::MARK`.
pub const FENCE_MARK: &str = "user.ballast.fence";

/// Longest note in that attribute.
const NOTE_BYTES_MAX: usize = 64;

/// Most cgroups above a process that are read; libvirt has five.
const LEVELS_MAX: usize = 32;

/// Page cache matters where a limit leaves less than this without it.
const NEARLY_FULL: Bytes = Bytes::gib(1);

/// Most cgroups whose page cache is read at once; each of the others has its turn later.
const CACHES_MAX: usize = 32;

/// The limit of one cgroup.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemoryLimit {
    /// Its file: `memory.max` or `memory.high`, whichever is lower.
    pub file: PathBuf,
    /// The limit.
    pub limit: Bytes,
}

/// The limits on the memory of process `pid`, those of the innermost cgroup first. `cgroups` is
/// [`CGROUPS`] except in tests. `None`: not known, because version 2 does not control memory on
/// this host or the process's cgroup is not below `cgroups`; or the process has ended.
///
/// # Errors
/// A file cannot be read, or is malformed.
pub fn read_limits(
    proc: &Path,
    cgroups: &Path,
    pid: u32,
) -> Result<Option<Vec<MemoryLimit>>, ReadError> {
    let has_memory = |_: &Path, text: &[u8]| {
        Ok(text.split(u8::is_ascii_whitespace).any(|word| word == b"memory"))
    };
    if read_fact(cgroups.join("cgroup.controllers"), has_memory)? != Some(true) {
        return Ok(None);
    }
    let own = proc.join(pid.to_string()).join("cgroup");
    let group = gone_is_none(read_fact(own, |_, text| Ok(group_of(text))))?.flatten();
    let Some(group) = group else { return Ok(None) };
    let mut limits = Vec::new();
    for inside in group.ancestors().take(LEVELS_MAX) {
        // The root cgroup has no limit.
        if inside != Path::new("") {
            limits.extend(limit_of(&cgroups.join(inside))?);
        }
    }
    Ok(Some(limits))
}

/// The cgroup of version 2 by the text of `/proc/<pid>/cgroup`, relative to the root cgroup.
/// `None`: there is none, or it is outside of what this process sees.
fn group_of(text: &[u8]) -> Option<PathBuf> {
    let path = numbered(text).find_map(|(_, line)| line.strip_prefix(b"0::/"))?;
    let path = Path::new(OsStr::from_bytes(path));
    (!path.iter().any(|part| part == "..")).then(|| path.to_owned())
}

/// The limit of the cgroup in `folder`.
fn limit_of(folder: &Path) -> Result<Option<MemoryLimit>, ReadError> {
    let amount = |name: &str| -> Result<Option<MemoryLimit>, ReadError> {
        let file = folder.join(name);
        let limit = read_fact(file.clone(), parse_limit)?.flatten();
        Ok(limit.map(|limit| MemoryLimit { file, limit }))
    };
    let (max, high) = (amount("memory.max")?, amount("memory.high")?);
    // A fence notes its limit before it sets it.
    let is_fence = || getxattr(folder, FENCE_MARK, &mut [0_u8; NOTE_BYTES_MAX]).is_ok();
    Ok(match (max, high.filter(|_| !is_fence())) {
        (Some(max), Some(high)) => Some(if high.limit < max.limit { high } else { max }),
        (max, high) => max.or(high),
    })
}

/// Parses the text of `memory.max` or `memory.high`; `None`: no limit. `path` is for error
/// messages.
///
/// # Errors
/// It is neither a number nor `max`.
pub fn parse_limit(path: &Path, text: &[u8]) -> Result<Option<Bytes>, ReadError> {
    const EXPECTED: &str = "a number of bytes, or `max`";
    match text.trim_ascii() {
        b"max" => Ok(None),
        digits => match number(digits) {
            Some(bytes) => Ok(Some(Bytes::new(bytes))),
            None => Err(ReadError::malformed(path, 1, text, EXPECTED)),
        },
    }
}

/// Parses the page cache that was not used lately from the text of `memory.stat`; `path` is for
/// error messages. No such line: zero.
///
/// # Errors
/// The line is malformed.
pub fn parse_inactive_file(path: &Path, text: &[u8]) -> Result<Bytes, ReadError> {
    for (at, line) in numbered(text) {
        if let Some(digits) = line.strip_prefix(b"inactive_file ") {
            let found = number(digits).map(Bytes::new);
            return found
                .ok_or_else(|| ReadError::malformed(path, at, line, "`inactive_file NUMBER`"));
        }
    }
    Ok(Bytes::ZERO)
}

/// Reads what limits leave, again and again.
#[derive(Debug, Default)]
pub struct RoomReader {
    /// By the file of a limit: the charge of its cgroup.
    charges: BTreeMap<PathBuf, KernelFile>,
    /// Where the next reading of page cache begins.
    turn: usize,
    buffer: Vec<u8>,
}

impl RoomReader {
    /// What `limits` leave now, in whole MiB, except those whose cgroup cannot be read. Closes the
    /// files of all other limits.
    pub fn read<'l>(
        &mut self,
        limits: &BTreeSet<&'l MemoryLimit>,
    ) -> BTreeMap<&'l MemoryLimit, MemoryRoom> {
        if self.charges.len() > limits.len() {
            let files: BTreeSet<&Path> = limits.iter().map(|limit| limit.file.as_path()).collect();
            self.charges.retain(|file, _| files.contains(file.as_path()));
        }
        let (mut left, mut nearly_full) = (BTreeMap::new(), Vec::new());
        for &limit in limits {
            let Some(charged) = self.charged(limit) else { continue };
            let plain = limit.limit.saturating_sub(charged);
            left.insert(limit, plain);
            if plain < NEARLY_FULL {
                nearly_full.push((limit, charged));
            }
        }
        let begin = if nearly_full.len() > CACHES_MAX { self.turn } else { 0 };
        let in_turn = nearly_full.iter().cycle().skip(begin % nearly_full.len().max(1));
        for &(limit, charged) in in_turn.take(nearly_full.len().min(CACHES_MAX)) {
            let stat = limit.file.with_file_name("memory.stat");
            if let Ok(Some(cache)) = read_fact(stat, parse_inactive_file) {
                left.insert(limit, limit.limit.saturating_sub(charged.saturating_sub(cache)));
            }
        }
        self.turn = begin.wrapping_add(CACHES_MAX);
        let room = |(limit, left): (&'l MemoryLimit, Bytes)| {
            let by = limit.file.display().to_string();
            // A figure that moves with every page would fill journals.
            let left = Bytes::mib(left.get() >> 20);
            (limit, MemoryRoom { by, limit: limit.limit, left })
        };
        left.into_iter().map(room).collect()
    }

    /// What processes below a limit are charged; `None`: it cannot be read.
    fn charged(&mut self, limit: &MemoryLimit) -> Option<Bytes> {
        let new = || KernelFile::new(limit.file.with_file_name("memory.current"));
        let file = self.charges.entry(limit.file.clone()).or_insert_with(new);
        let text = file.read(&mut self.buffer).ok()??;
        parse_number(file.path(), text).ok().map(Bytes::new)
    }
}
