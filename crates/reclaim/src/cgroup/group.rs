//! The memory cgroup of one guest: its usage and limit, and reclaim by amount.

use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use ballast_model::Bytes;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;

use super::find::{CgroupVersion, parse_mountinfo, parse_proc_cgroup};
use crate::error::ReclaimError;
use crate::line::{decimal, malformed, numbered, word};

/// Largest amount of one [`MemoryCgroup::reclaim`]: bounds its duration.
pub const RECLAIM_BYTES_MAX: Bytes = Bytes::mib(64);

/// What provides `memory.reclaim`.
pub(crate) const RECLAIM_NEEDS: &str = "version 2 of cgroups, on Linux 5.19 or later";

/// Most cgroups below that of a guest: each of its threads may have one.
const FOLDERS_MAX: usize = 4096;

/// From this value on version 1 means no limit: the maximum, rounded down to pages of any size.
const UNLIMITED: u64 = i64::MAX as u64 & !0xffff;

/// A memory cgroup that contains one guest's process and no other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryCgroup {
    pub(super) root: PathBuf,
    folder: PathBuf,
    /// Its name in its hierarchy, such as `/machine.slice/vm`.
    group: PathBuf,
    version: CgroupVersion,
}

/// The result of [`MemoryCgroup::reclaim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reclaimed {
    /// The amount requested.
    pub asked: Bytes,
    /// Memory charged to the cgroup before, without swap.
    pub usage_before: Bytes,
    /// Memory charged to the cgroup after, without swap.
    pub usage_after: Bytes,
    /// Whether the kernel reports that it reclaimed the whole amount.
    pub is_complete: bool,
}

impl MemoryCgroup {
    /// Finds the cgroup of process `pid`. All files are below `root` (usually `/`). The caller
    /// guards against PID reuse by calling [`VmmProcess::is_alive`](crate::VmmProcess::is_alive)
    /// afterwards.
    ///
    /// # Errors
    /// [`ReclaimError::NoCgroup`], [`ReclaimError::SharedCgroup`], [`ReclaimError::Gone`] or
    /// [`ReclaimError::Unreadable`].
    pub fn find(root: &Path, pid: u32) -> Result<MemoryCgroup, ReclaimError> {
        let own_path = root.join(format!("proc/{pid}/cgroup"));
        let own = fs::read(&own_path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ReclaimError::Gone { pid },
            _ => ReclaimError::unreadable(&own_path, error),
        })?;
        let own =
            parse_proc_cgroup(&own).map_err(|why| ReclaimError::unreadable(&own_path, why))?;
        let mounts = read_and_parse(&root.join("proc/self/mountinfo"), parse_mountinfo)?;
        // A controller is in one hierarchy only: if version 1 has it, version 2 does not.
        let groups = [(CgroupVersion::One, own.memory), (CgroupVersion::Two, own.unified)];
        let mut why = "no cgroup hierarchy with a memory controller is mounted: \
                       expected one of version 1 or 2";
        for (version, group) in groups {
            let Some(group) = group else { continue };
            for mount in mounts.iter().filter(|mount| mount.version == version) {
                let Ok(inside) = group.strip_prefix(&mount.root) else { continue };
                // `..` leads to cgroups outside the mounted part.
                if inside.iter().any(|part| part == "..") {
                    continue;
                }
                let point = below(root, &mount.point);
                let Some(folder) = charged_folder(&point, inside, version) else {
                    if version == CgroupVersion::One || point.join("cgroup.controllers").exists() {
                        why = "it is in the root cgroup, or in none with a memory controller: \
                               expected a cgroup below the root cgroup";
                    }
                    continue;
                };
                let inside = folder.strip_prefix(&point).unwrap_or(&folder);
                let group = mount.root.join(inside);
                let cgroup = MemoryCgroup { root: root.to_owned(), folder, group, version };
                cgroup.check_alone(pid)?;
                return Ok(cgroup);
            }
        }
        Err(ReclaimError::NoCgroup { pid, why })
    }

    /// The interface version.
    pub fn version(&self) -> CgroupVersion {
        self.version
    }

    /// The folder of its files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its name in its hierarchy.
    pub(super) fn group(&self) -> &Path {
        &self.group
    }

    /// Memory charged to it: swap cache counts, swap does not.
    ///
    /// # Errors
    /// [`ReclaimError::Unreadable`].
    pub fn usage(&self) -> Result<Bytes, ReclaimError> {
        let name = usage_name(self.version);
        let why = "`max`: expected a number";
        self.amount(name)?.ok_or_else(|| ReclaimError::unreadable(&self.folder.join(name), why))
    }

    /// The limit that a [`Squeeze`](super::Squeeze) lowers; `None`: unlimited.
    ///
    /// # Errors
    /// [`ReclaimError::Unreadable`].
    pub fn limit(&self) -> Result<Option<Bytes>, ReclaimError> {
        self.amount(self.limit_name())
    }

    /// Makes the kernel reclaim `amount`, at most [`RECLAIM_BYTES_MAX`]. Version 2 only.
    ///
    /// # Errors
    /// [`ReclaimError::CgroupLacks`], [`ReclaimError::Cgroup`] or [`ReclaimError::Unreadable`].
    pub fn reclaim(&self, amount: Bytes) -> Result<Reclaimed, ReclaimError> {
        let asked = amount.min(RECLAIM_BYTES_MAX).page_floor();
        let usage_before = self.usage()?;
        self.has("memory.reclaim", RECLAIM_NEEDS)?;
        let is_complete = match self.write("memory.reclaim", &asked.get().to_string()) {
            Ok(()) => true,
            // The kernel reclaimed less than the amount.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) => {
                return Err(self.write_error("memory.reclaim", asked.get().to_string(), error));
            }
        };
        Ok(Reclaimed { asked, usage_before, usage_after: self.usage()?, is_complete })
    }

    /// Fails with [`ReclaimError::CgroupLacks`] if it lacks the file `name`; `needs` says what
    /// provides the file.
    pub(crate) fn has(&self, name: &str, needs: &'static str) -> Result<(), ReclaimError> {
        let path = self.folder.join(name);
        if path.exists() { Ok(()) } else { Err(ReclaimError::CgroupLacks { path, needs }) }
    }

    /// The name of the file with the limit.
    pub fn limit_name(&self) -> &'static str {
        match self.version {
            CgroupVersion::One => "memory.limit_in_bytes",
            CgroupVersion::Two => "memory.high",
        }
    }

    /// The file of the limit.
    pub(super) fn limit_path(&self) -> PathBuf {
        self.folder.join(self.limit_name())
    }

    /// Sets the limit; `None`: unlimited. Takes as long as the kernel reclaims.
    pub(super) fn set_limit(&self, limit: Option<Bytes>) -> io::Result<()> {
        self.write(self.limit_name(), &self.limit_text(limit))
    }

    pub(super) fn limit_error(&self, limit: Option<Bytes>, error: io::Error) -> ReclaimError {
        self.write_error(self.limit_name(), self.limit_text(limit), error)
    }

    fn limit_text(&self, limit: Option<Bytes>) -> String {
        match (limit, self.version) {
            (Some(limit), _) => limit.get().to_string(),
            (None, CgroupVersion::One) => "-1".to_owned(),
            (None, CgroupVersion::Two) => "max".to_owned(),
        }
    }

    /// Waits for the lock on the limit and holds it until the descriptor is dropped: more than one
    /// thread reads, changes and restores a limit.
    pub(super) fn lock_limit(&self) -> Result<OwnedFd, ReclaimError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open(&self.folder, flags, Mode::empty())
            .and_then(|folder| flock(&folder, FlockOperation::LockExclusive).map(|()| folder));
        folder.map_err(|error| ReclaimError::unreadable(&self.folder, error))
    }

    /// Page cache charged to it: the kernel drops it, or writes it to its file, and needs no swap.
    pub(super) fn page_cache(&self) -> Result<Bytes, ReclaimError> {
        // With version 1 the names without `total_` leave out the cgroups below.
        let names = match self.version {
            CgroupVersion::One => ["total_inactive_file", "total_active_file"],
            CgroupVersion::Two => ["inactive_file", "active_file"],
        };
        let parse = |text: &[u8]| parse_stat(text, &names);
        read_and_parse(&self.folder.join("memory.stat"), parse)
    }

    pub(super) fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let path = self.folder.join(name);
        fs::OpenOptions::new().write(true).truncate(true).open(path)?.write_all(text.as_bytes())
    }

    pub(super) fn write_error(&self, name: &str, text: String, error: io::Error) -> ReclaimError {
        ReclaimError::Cgroup { path: self.folder.join(name), text, why: error.to_string() }
    }

    fn amount(&self, name: &str) -> Result<Option<Bytes>, ReclaimError> {
        read_and_parse(&self.folder.join(name), parse_amount)
    }

    /// Fails if this cgroup, or one below it, contains a process other than `pid`: all of them are
    /// charged to this cgroup.
    fn check_alone(&self, pid: u32) -> Result<(), ReclaimError> {
        let mut others = 0;
        let mut folders = vec![self.folder.clone()];
        let mut looked_at = 0;
        while let Some(folder) = folders.pop() {
            looked_at += 1;
            if looked_at > FOLDERS_MAX {
                let why = format!("more than {FOLDERS_MAX} cgroups below: expected a guest's own");
                return Err(ReclaimError::unreadable(&self.folder, why));
            }
            others += match others_in(&folder.join("cgroup.procs"), pid) {
                Err(_) if folder != self.folder && !folder.join("cgroup.procs").exists() => 0,
                others => others?,
            };
            folders.extend(folders_in(&folder));
        }
        match others {
            0 => Ok(()),
            others => Err(ReclaimError::SharedCgroup { path: self.folder.clone(), pid, others }),
        }
    }
}

/// How many processes other than `pid` a file `cgroup.procs` names.
fn others_in(path: &Path, pid: u32) -> Result<usize, ReclaimError> {
    let pid = pid.to_string();
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.lines().filter(|line| *line != pid).count()),
        // A cgroup for threads: its processes are listed by the one above.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::OPNOTSUPP) => Ok(0),
        // The cgroup was removed just now, so it has no process.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NODEV) => Ok(0),
        Err(error) => Err(ReclaimError::unreadable(path, error)),
    }
}

/// The cgroups right below `folder`; none if it was removed just now.
fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let entries = entries.filter_map(Result::ok).filter(is_folder);
    entries.map(|entry| entry.path()).collect()
}

fn read_and_parse<T>(
    path: &Path,
    parse: impl Fn(&[u8]) -> Result<T, String>,
) -> Result<T, ReclaimError> {
    let text = fs::read(path).map_err(|error| ReclaimError::unreadable(path, error))?;
    parse(&text).map_err(|why| ReclaimError::unreadable(path, why))
}

fn usage_name(version: CgroupVersion) -> &'static str {
    match version {
        CgroupVersion::One => "memory.usage_in_bytes",
        CgroupVersion::Two => "memory.current",
    }
}

/// The folder of the cgroup charged for cgroup `inside` of the hierarchy at `point`: itself or its
/// nearest ancestor with a memory controller, except the root cgroup, which covers the whole host.
fn charged_folder(point: &Path, inside: &Path, version: CgroupVersion) -> Option<PathBuf> {
    // Threads of a guest may be in cgroups below the one that has its memory.
    for ancestor in inside.ancestors().filter(|ancestor| *ancestor != Path::new("")) {
        let folder = point.join(ancestor);
        if folder.join(usage_name(version)).exists() {
            return Some(folder);
        }
    }
    None
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Adds up the figures `names` in the text of `memory.stat`; a missing one counts as zero.
///
/// # Errors
/// A line with one of them is malformed; the error names it.
fn parse_stat(text: &[u8], names: &[&str]) -> Result<Bytes, String> {
    let mut sum = Bytes::ZERO;
    for (at, line) in numbered(text) {
        let mut rest = line;
        let name = word(&mut rest);
        if names.iter().any(|wanted| wanted.as_bytes() == name) {
            let amount = decimal(rest.trim_ascii())
                .ok_or_else(|| malformed(at, line, "`NAME NUMBER`, as in memory.stat"))?;
            sum = sum.saturating_add(Bytes::new(amount));
        }
    }
    Ok(sum)
}

/// Parses the text of a file with one amount, such as `memory.current`, `memory.high` or
/// `memory.limit_in_bytes`; `None`: no limit.
///
/// # Errors
/// The text is neither a whole number nor `max`.
pub fn parse_amount(text: &[u8]) -> Result<Option<Bytes>, String> {
    let word = text.trim_ascii();
    if word == b"max" {
        return Ok(None);
    }
    let amount = decimal(word).ok_or_else(|| malformed(1, word, "a number of bytes, or `max`"))?;
    Ok((amount < UNLIMITED).then_some(Bytes::new(amount)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn amounts_of_both_versions_are_parsed() {
        for (text, amount) in [
            ("4096\n", Some(Bytes::pages(1))),
            ("0", Some(Bytes::ZERO)),
            ("max\n", None),
            ("9223372036854771712\n", None),
        ] {
            assert_eq!(parse_amount(text.as_bytes()), Ok(amount), "{text}");
        }
        for text in ["", "-1", "maximum", "1 2", "1M"] {
            let why = parse_amount(text.as_bytes()).unwrap_err();
            assert!(why.contains("expected a number of bytes, or `max`"), "{why}");
        }
    }

    proptest! {
        #[test]
        fn amounts_are_parsed_or_rejected(text: Vec<u8>, amount in 0..UNLIMITED) {
            let _ = parse_amount(&text);
            let written = format!("{amount}\n");
            prop_assert_eq!(parse_amount(written.as_bytes()), Ok(Some(Bytes::new(amount))));
        }
    }
}
