//! Reclaims old page cache before the kernel has to.
//!
//! Uses the first available of two kernel interfaces that reclaim page cache without touching
//! anonymous memory:
//! - Generations (MGLRU): a command in debugfs evicts old generations, with swappiness 0.
//! - Control groups: `memory.reclaim` of the top-level groups, with `swappiness=0` if the kernel
//!   has that (6.9), and without it only if there is no swap.
//!
//! `drop_caches` is not used: it drops all clean pages, those in use included.
//!
//! Source: the kernel's `Documentation/admin-guide/cgroup-v2.rst` and `mm/multigen_lru.rst`.
//! Limits: needs root; at most [`GROUPS_MAX`] groups. It offers page cache that was not used
//! recently, and reports the fall of `Cached` as given.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use ballast_agent_proto::wire::MemorySizes;

use crate::linux::{lru_gen, page_bytes, parse};
use crate::shrink::shrinker::Shrinker;

/// Most control groups used.
const GROUPS_MAX: usize = 64;
/// Most bytes per command, so that the deadline is checked in between.
const STEP_BYTES: u64 = 16 << 20;
/// `EAGAIN`: the kernel reclaimed less than the command wanted.
const EAGAIN: i32 = 11;
/// `EINVAL`: the kernel does not know `swappiness=`.
const EINVAL: i32 = 22;

/// The shrinker of the page cache.
pub struct PageCache {
    root: PathBuf,
}

/// Page cache that can be reclaimed.
enum ReclaimTarget {
    Generations(lru_gen::ReclaimableGenerations),
    Group { folder: PathBuf, inactive: u64 },
}

impl PageCache {
    /// The page cache of the system at `root`, which is `/` except in tests.
    pub fn new(root: &Path) -> PageCache {
        PageCache { root: root.to_owned() }
    }

    /// The targets, largest first.
    fn targets(&self) -> Vec<ReclaimTarget> {
        let text = fs::read_to_string(self.root.join(lru_gen::FILE)).unwrap_or_default();
        let old = lru_gen::reclaimable(&text);
        if !old.is_empty() {
            return old.into_iter().map(ReclaimTarget::Generations).collect();
        }
        let entries = fs::read_dir(self.root.join("sys/fs/cgroup")).into_iter().flatten().flatten();
        let mut groups = Vec::new();
        for entry in entries.take(GROUPS_MAX) {
            let folder = entry.path();
            let inactive = inactive_file(&folder);
            if inactive > 0 && folder.join("memory.reclaim").exists() {
                groups.push((inactive, folder));
            }
        }
        groups.sort_by(|a, b| b.cmp(a));
        let target = |(inactive, folder)| ReclaimTarget::Group { folder, inactive };
        groups.into_iter().map(target).collect()
    }

    fn meminfo(&self) -> MemorySizes {
        parse::meminfo(&fs::read_to_string(self.root.join("proc/meminfo")).unwrap_or_default())
    }

    /// Reclaims once; returns whether more can be reclaimed from this target.
    fn reclaim(&self, target: &ReclaimTarget, bytes: u64) -> io::Result<bool> {
        let step = bytes.min(STEP_BYTES);
        match target {
            ReclaimTarget::Generations(old) => {
                let pages = step.div_ceil(page_bytes());
                write_command(&self.root.join(lru_gen::FILE), &old.command(pages)).map(|()| true)
            }
            ReclaimTarget::Group { folder, .. } => {
                let file = folder.join("memory.reclaim");
                let done = match write_command(&file, &format!("{step} swappiness=0")) {
                    Err(error) if error.raw_os_error() == Some(EINVAL) => {
                        if self.meminfo().swap_total_bytes != Some(0) {
                            let why = "memory.reclaim of this kernel would swap anonymous memory";
                            return Err(io::Error::other(why));
                        }
                        write_command(&file, &step.to_string())
                    }
                    other => other,
                };
                match done {
                    Ok(()) => Ok(true),
                    Err(error) if error.raw_os_error() == Some(EAGAIN) => Ok(false),
                    Err(error) => Err(error),
                }
            }
        }
    }
}

impl Shrinker for PageCache {
    fn name(&self) -> &str {
        "page-cache"
    }

    fn can_give(&mut self) -> Result<u64, String> {
        let targets = self.targets();
        if targets.is_empty() {
            return Err("neither generations nor a control group to reclaim from".to_owned());
        }
        Ok(targets.iter().map(ReclaimTarget::bytes).fold(0, u64::saturating_add))
    }

    fn give(&mut self, bytes: u64, deadline: Instant) -> Result<u64, String> {
        let before = self.meminfo().cached_bytes.ok_or("no Cached in /proc/meminfo")?;
        let gave = || before.saturating_sub(self.meminfo().cached_bytes.unwrap_or(before));
        let mut failed = None;
        for target in self.targets() {
            let mut left = target.bytes();
            while left > 0 && gave() < bytes && Instant::now() < deadline {
                match self.reclaim(&target, left.min(bytes - gave())) {
                    Ok(true) => left = left.saturating_sub(STEP_BYTES),
                    Ok(false) => break,
                    Err(error) => {
                        failed = Some(error.to_string());
                        break;
                    }
                }
            }
        }
        match (gave(), failed) {
            (0, Some(why)) => Err(why),
            (gave, _) => Ok(gave),
        }
    }

    /// Does nothing: no limit was lowered.
    fn release(&mut self) -> Result<(), String> {
        Ok(())
    }
}

impl ReclaimTarget {
    fn bytes(&self) -> u64 {
        match self {
            ReclaimTarget::Generations(old) => old.file_pages.saturating_mul(page_bytes()),
            ReclaimTarget::Group { inactive, .. } => *inactive,
        }
    }
}

fn inactive_file(folder: &Path) -> u64 {
    let text = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("inactive_file "));
    line.and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn write_command(file: &Path, command: &str) -> io::Result<()> {
    File::options().write(true).open(file)?.write_all(command.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn system(cached_kib: u64) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc")).unwrap();
        let text = format!("Cached: {cached_kib} kB\nSwapTotal: 8 kB\n");
        fs::write(root.path().join("proc/meminfo"), text).unwrap();
        root
    }

    fn deadline() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    #[test]
    fn nothing_is_offered_without_a_kernel_interface() {
        let root = system(100);
        assert!(PageCache::new(root.path()).can_give().unwrap_err().contains("neither"));
    }

    #[test]
    fn inactive_files_of_groups_are_offered_and_reclaimed() {
        let root = system(100);
        for (name, inactive) in [("system.slice", 8192), ("user.slice", 4096)] {
            let folder = root.path().join("sys/fs/cgroup").join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("memory.stat"), format!("anon 5\ninactive_file {inactive}\n"))
                .unwrap();
            fs::write(folder.join("memory.reclaim"), "").unwrap();
        }
        let mut it = PageCache::new(root.path());
        assert_eq!(it.can_give(), Ok(12_288));
        // These plain files accept commands and free nothing.
        assert_eq!(it.give(10_000, deadline()), Ok(0));
        let command = |name: &str| {
            let path = root.path().join("sys/fs/cgroup").join(name).join("memory.reclaim");
            fs::read_to_string(path).unwrap()
        };
        assert_eq!(command("system.slice"), "8192 swappiness=0");
        assert_eq!(command("user.slice"), "4096 swappiness=0");
    }

    #[test]
    fn generations_are_preferred_and_the_youngest_kept() {
        let root = system(100);
        let file = root.path().join(lru_gen::FILE);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "memcg 0 /\n node 0\n 1 90 5 7\n 2 60 5 9\n 3 30 5 9\n").unwrap();
        let mut it = PageCache::new(root.path());
        assert_eq!(it.can_give(), Ok(7 * page_bytes()));
        assert_eq!(it.give(2 * page_bytes(), deadline()), Ok(0));
        assert!(fs::read_to_string(&file).unwrap().starts_with("- 0 0 1 0 2"));
    }
}
