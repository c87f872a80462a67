//! Memory statistics of a Linux kernel.
//!
//! This module holds everything specific to Linux; another system needs another module with the
//! same functions. Files stay open and are read into reused buffers: a guest short of memory must
//! not need memory to report that.
//!
//! Cost: three files per sample. `/proc/zoneinfo` is long, so watermarks are read every
//! `WATERMARKS_EVERY` samples and when the amount of memory changes.
//! Source: `proc(5)`. Limits: missing values are `None`; no function fails.

pub mod lru_gen;
pub mod parse;
pub mod port;
mod proc_file;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ballast_agent_proto::wire::{Ages, Statistics, Watermarks};
use rustix::time::ClockId;

use proc_file::ProcFile;

/// Samples between two reads of the watermarks.
const WATERMARKS_EVERY: u32 = 30;
/// Makes the OOM killer spare this program, which can prevent further kills.
const OOM_SCORE_ADJ: &str = "-900";

/// The kernel's files, opened.
pub struct KernelSources {
    meminfo: ProcFile,
    vmstat: ProcFile,
    pressure: ProcFile,
    zoneinfo: ProcFile,
    lru_gen: PathBuf,
    page_bytes: u64,
    watermarks: Watermarks,
    /// `MemTotal` when the watermarks were read.
    watermarks_total: Option<u64>,
    samples_left: u32,
}

impl KernelSources {
    /// Opens the files below `root`, which is `/` except in tests.
    pub fn open(root: &Path) -> KernelSources {
        KernelSources {
            meminfo: ProcFile::open(&root.join("proc/meminfo")),
            vmstat: ProcFile::open(&root.join("proc/vmstat")),
            pressure: ProcFile::open(&root.join("proc/pressure/memory")),
            zoneinfo: ProcFile::open(&root.join("proc/zoneinfo")),
            lru_gen: root.join(lru_gen::FILE),
            page_bytes: page_bytes(),
            watermarks: Watermarks::default(),
            watermarks_total: None,
            samples_left: 0,
        }
    }

    /// Takes a sample.
    pub fn sample(&mut self) -> Statistics {
        let memory = parse::meminfo(self.meminfo.read());
        let counters = parse::vmstat(self.vmstat.read());
        let pressure = parse::pressure(self.pressure.read());
        if self.samples_left == 0 || self.watermarks_total != memory.total_bytes {
            self.watermarks = parse::zoneinfo(self.zoneinfo.read(), self.page_bytes);
            self.watermarks_total = memory.total_bytes;
            self.samples_left = WATERMARKS_EVERY;
        }
        self.samples_left -= 1;
        Statistics { memory, counters, watermarks: self.watermarks, pressure }
    }

    /// The histogram of idle ages; `None` if the kernel has none or the agent may not read it.
    pub fn ages(&self) -> Option<Ages> {
        let text = std::fs::read_to_string(&self.lru_gen).ok()?;
        lru_gen::ages(&text, self.page_bytes)
    }
}

/// The page size.
pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// The kernel's name and release.
pub fn system() -> String {
    format!("linux {}", rustix::system::uname().release().to_string_lossy())
}

/// Time since boot, time asleep included.
pub fn uptime() -> Duration {
    read_clock(ClockId::Boottime)
}

/// Time on the monotonic clock.
pub fn monotonic() -> Duration {
    read_clock(ClockId::Monotonic)
}

fn read_clock(clock: ClockId) -> Duration {
    let now = rustix::time::clock_gettime(clock);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// A random number, which no two starts of this program share. It needs no device: the standard
/// library asks the kernel.
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Keeps this program responsive when memory is short. Returns what its privileges do not allow,
/// each with the reason and how to allow it.
pub fn stay_responsive() -> Vec<String> {
    let mut refused = Vec::new();
    if let Err(error) = lock_memory() {
        refused.push(format!(
            "its memory is not locked, so it may wait for swap like others: {error}; run it as \
             root, or set LimitMEMLOCK= of its service"
        ));
    }
    if let Err(error) = lower_oom_score(Path::new("/proc/self/oom_score_adj")) {
        refused.push(format!(
            "the kernel may kill it for want of memory like others: {error}; run it as root, or \
             set OOMScoreAdjust= of its service"
        ));
    }
    refused
}

/// Locks only pages that are touched: most of the program never is.
fn lock_memory() -> rustix::io::Result<()> {
    use rustix::mm::{MlockAllFlags, mlockall};
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)
}

/// Lowers the score in the file `path`, unless it is that low already, as the service manager may
/// have set it.
fn lower_oom_score(path: &Path) -> std::io::Result<()> {
    let score = |text: &str| text.trim().parse::<i32>().ok();
    let own = std::fs::read_to_string(path).ok().and_then(|text| score(&text));
    if own.is_some_and(|own| Some(own) <= score(OOM_SCORE_ADJ)) {
        return Ok(());
    }
    std::fs::write(path, OOM_SCORE_ADJ)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_statistics() {
        let statistics = KernelSources::open(Path::new("/")).sample();
        let memory = statistics.memory;
        assert!(memory.total_bytes > Some(0) && memory.free_bytes < memory.total_bytes);
        assert!(memory.committed_bytes.is_some());
        assert!(statistics.counters.major_faults.is_some());
        assert!(statistics.watermarks.low_bytes < statistics.watermarks.high_bytes);
        assert!(system().starts_with("linux ") && page_bytes() >= 4096);
        assert_ne!(random(), random());
    }

    /// Linux keeps capabilities per thread, so only this test loses them.
    #[test]
    fn memory_that_may_not_be_locked_is_reported() {
        use rustix::process::{Resource, getrlimit};
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

        if getrlimit(Resource::Memlock).current.is_none_or(|bytes| bytes > 16 << 20) {
            println!("SKIPPED: nothing limits locked memory here");
            return;
        }
        let refused = std::thread::spawn(|| {
            let mut own = capabilities(None).unwrap();
            own.effective.remove(CapabilitySet::IPC_LOCK);
            set_capabilities(None, own).unwrap();
            // More than the limit allows to lock.
            let _memory = Vec::<u8>::with_capacity(64 << 20);
            lock_memory()
        });
        assert_eq!(refused.join().unwrap(), Err(rustix::io::Errno::NOMEM));
    }

    #[test]
    fn the_oom_score_is_lowered_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("oom_score_adj");
        assert!(lower_oom_score(&folder.path().join("none/at/all")).is_err());
        for (before, after) in [("0\n", "-900"), ("-899\n", "-900"), ("-1000\n", "-1000\n")] {
            std::fs::write(&path, before).unwrap();
            lower_oom_score(&path).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), after);
        }
    }

    #[test]
    fn a_system_without_files_has_no_statistics() {
        let mut sources = KernelSources::open(Path::new("/nonexistent"));
        assert_eq!((sources.sample(), sources.ages()), (Statistics::default(), None));
    }
}
