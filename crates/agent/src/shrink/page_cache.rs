//! The kernel's page cache, reclaimed before it has to be.
//!
//! Idea: two ways by which a kernel lets page cache be reclaimed without touching programs' memory, tried
//! in this order. Generations (MGLRU): a command to the file in debugfs evicts those that were not
//! used lately, with swappiness 0. Control groups: `memory.reclaim` of the topmost groups, with
//! `swappiness=0` where the kernel has that (6.9), and without it only where there is no swap. There is no third: dropping
//! all clean pages (`drop_caches`) would take what is in use.
//!
//! Source: the kernel's `Documentation/admin-guide/cgroup-v2.rst` and `mm/multigen_lru.rst`.
//! Limits: root; [`GROUPS_MAX`] groups; offers what was not used lately, and gives what `Cached` fell by.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::Shrinker;
use crate::linux::{lru_gen, page_bytes, parse};

/// Most control groups looked at.
const GROUPS_MAX: usize = 64;
/// Most reclaimed by one command, so that the deadline is looked at in between.
const STEP_BYTES: u64 = 16 << 20;
/// The command was understood and got less than it wanted.
const AGAIN: i32 = 11;
/// The kernel does not know `swappiness=`.
const INVALID: i32 = 22;

/// The shrinker.
pub struct PageCache {
    root: PathBuf,
}

/// Something that reclaims page cache.
enum Way {
    Generations(lru_gen::Reclaimable),
    Group { folder: PathBuf, inactive: u64 },
}

impl PageCache {
    /// That of the system at `root`, which is `/` but in tests.
    pub fn new(root: &Path) -> PageCache {
        PageCache { root: root.to_owned() }
    }

    fn ways(&self) -> Vec<Way> {
        let text = fs::read_to_string(self.root.join(lru_gen::FILE)).unwrap_or_default();
        let old = lru_gen::reclaimable(&text);
        if !old.is_empty() {
            return old.into_iter().map(Way::Generations).collect();
        }
        let groups = fs::read_dir(self.root.join("sys/fs/cgroup")).into_iter().flatten().flatten();
        let groups = groups.map(|entry| entry.path()).take(GROUPS_MAX);
        let mut ways: Vec<(u64, PathBuf)> = groups
            .filter(|folder| folder.join("memory.reclaim").exists())
            .map(|folder| (inactive_file(&folder), folder))
            .filter(|(inactive, _)| *inactive > 0)
            .collect();
        ways.sort_by(|a, b| b.cmp(a));
        ways.into_iter().map(|(inactive, folder)| Way::Group { folder, inactive }).collect()
    }

    fn meminfo(&self) -> ballast_agent_wire::Memory {
        parse::meminfo(&fs::read_to_string(self.root.join("proc/meminfo")).unwrap_or_default())
    }

    /// Reclaims once; whether it is of any use to go on with this way.
    fn reclaim(&self, way: &Way, bytes: u64) -> io::Result<bool> {
        let step = bytes.min(STEP_BYTES);
        match way {
            Way::Generations(old) => {
                let pages = step.div_ceil(page_bytes());
                tell(&self.root.join(lru_gen::FILE), &old.command(pages)).map(|()| true)
            }
            Way::Group { folder, .. } => {
                let file = folder.join("memory.reclaim");
                let done = match tell(&file, &format!("{step} swappiness=0")) {
                    Err(error) if error.raw_os_error() == Some(INVALID) => {
                        if self.meminfo().swap_total_bytes != Some(0) {
                            let why = "memory.reclaim of this kernel cannot spare programs' memory";
                            return Err(io::Error::other(why));
                        }
                        tell(&file, &step.to_string())
                    }
                    other => other,
                };
                match done {
                    Ok(()) => Ok(true),
                    Err(error) if error.raw_os_error() == Some(AGAIN) => Ok(false),
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
        let ways = self.ways();
        if ways.is_empty() {
            return Err("neither generations nor a control group to reclaim from".to_owned());
        }
        Ok(ways.iter().map(Way::bytes).fold(0, u64::saturating_add))
    }

    fn give(&mut self, bytes: u64, deadline: Instant) -> Result<u64, String> {
        let before = self.meminfo().cached_bytes.ok_or("no Cached in /proc/meminfo")?;
        let gave = || before.saturating_sub(self.meminfo().cached_bytes.unwrap_or(before));
        let mut failed = None;
        for way in self.ways() {
            let mut left = way.bytes();
            while left > 0 && gave() < bytes && Instant::now() < deadline {
                match self.reclaim(&way, left.min(bytes - gave())) {
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

    /// Nothing holds it down.
    fn release(&mut self) -> Result<(), String> {
        Ok(())
    }
}

impl Way {
    fn bytes(&self) -> u64 {
        match self {
            Way::Generations(old) => old.file_pages.saturating_mul(page_bytes()),
            Way::Group { inactive, .. } => *inactive,
        }
    }
}

fn inactive_file(folder: &Path) -> u64 {
    let text = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("inactive_file "));
    line.and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn tell(file: &Path, command: &str) -> io::Result<()> {
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

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    #[test]
    fn without_a_way_nothing_is_offered() {
        let root = system(100);
        assert!(PageCache::new(root.path()).can_give().unwrap_err().contains("neither"));
    }

    #[test]
    fn the_groups_inactive_files_are_offered_and_asked_for() {
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
        // These files take everything and free nothing.
        assert_eq!(it.give(10_000, soon()), Ok(0));
        let told = |name: &str| {
            let path = root.path().join("sys/fs/cgroup").join(name).join("memory.reclaim");
            fs::read_to_string(path).unwrap()
        };
        assert_eq!(told("system.slice"), "8192 swappiness=0");
        assert_eq!(told("user.slice"), "4096 swappiness=0");
    }

    #[test]
    fn generations_come_first_and_the_youngest_stay() {
        let root = system(100);
        let file = root.path().join(lru_gen::FILE);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "memcg 0 /\n node 0\n 1 90 5 7\n 2 60 5 9\n 3 30 5 9\n").unwrap();
        let mut it = PageCache::new(root.path());
        assert_eq!(it.can_give(), Ok(7 * page_bytes()));
        assert_eq!(it.give(2 * page_bytes(), soon()), Ok(0));
        assert!(fs::read_to_string(&file).unwrap().starts_with("- 0 0 1 0 2"));
    }
}
