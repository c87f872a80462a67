//! What a Linux kernel tells of its memory.
//!
//! Idea: everything that only Linux has is in this module: where its figures are, what they are called,
//! and where a virtio-serial port is found. Another system gets another module with the same few
//! functions. Files stay open and are read into one buffer: a guest short of memory must not need
//! memory to say so.
//!
//! Cost: three files a sample; watermarks, whose file is long, are read again every
//! `WATERMARKS_EVERY` samples or when the memory has changed.
//! Source: `proc(5)`. Limits: what is not there is `None`; nothing here fails.

pub mod lru_gen;
pub mod parse;
pub mod port;
mod proc_file;

use std::path::{Path, PathBuf};
use std::time::Duration;

use ballast_agent_wire::{Ages, Statistics, Watermarks};
use rustix::time::ClockId;

use proc_file::ProcFile;

/// Samples for which watermarks are believed unchanged.
const WATERMARKS_EVERY: u32 = 30;
/// What the kernel kills last: this program is what can prevent it from killing any.
const OOM_SCORE_ADJ: &str = "-900";

/// The kernel's files.
pub struct Sources {
    meminfo: ProcFile,
    vmstat: ProcFile,
    pressure: ProcFile,
    zoneinfo: ProcFile,
    lru_gen: PathBuf,
    page_bytes: u64,
    watermarks: Watermarks,
    watermarks_of: Option<u64>,
    samples_left: u32,
}

impl Sources {
    /// The files below `root`, which is `/` but in tests.
    pub fn open(root: &Path) -> Sources {
        Sources {
            meminfo: ProcFile::open(&root.join("proc/meminfo")),
            vmstat: ProcFile::open(&root.join("proc/vmstat")),
            pressure: ProcFile::open(&root.join("proc/pressure/memory")),
            zoneinfo: ProcFile::open(&root.join("proc/zoneinfo")),
            lru_gen: root.join(lru_gen::FILE),
            page_bytes: page_bytes(),
            watermarks: Watermarks::default(),
            watermarks_of: None,
            samples_left: 0,
        }
    }

    /// Figures of now.
    pub fn sample(&mut self) -> Statistics {
        let memory = parse::meminfo(self.meminfo.read());
        let counters = parse::vmstat(self.vmstat.read());
        let pressure = parse::pressure(self.pressure.read());
        if self.samples_left == 0 || self.watermarks_of != memory.total_bytes {
            self.watermarks = parse::zoneinfo(self.zoneinfo.read(), self.page_bytes);
            self.watermarks_of = memory.total_bytes;
            self.samples_left = WATERMARKS_EVERY;
        }
        self.samples_left -= 1;
        Statistics { memory, counters, watermarks: self.watermarks, pressure }
    }

    /// How long memory has not been used; `None` where the kernel does not know or does not tell.
    pub fn ages(&self) -> Option<Ages> {
        let text = std::fs::read_to_string(&self.lru_gen).ok()?;
        lru_gen::ages(&text, self.page_bytes)
    }
}

/// Bytes of a page.
pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// The kernel and its release.
pub fn system() -> String {
    format!("linux {}", rustix::system::uname().release().to_string_lossy())
}

/// Time since boot, time asleep included.
pub fn uptime() -> Duration {
    since(ClockId::Boottime)
}

/// Time on a clock that does not run backwards.
pub fn monotonic() -> Duration {
    since(ClockId::Monotonic)
}

/// Processor time this process has used.
pub fn processor_time() -> Duration {
    since(ClockId::ProcessCPUTime)
}

fn since(clock: ClockId) -> Duration {
    let now = rustix::time::clock_gettime(clock);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Any number; 0 where the kernel has none to give.
pub fn random() -> u64 {
    use std::io::Read;
    let mut bytes = [0; 8];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut it| it.read_exact(&mut bytes));
    read.map_or(0, |()| u64::from_ne_bytes(bytes))
}

/// Sees to it that this program works when memory is short, as far as it is allowed to.
pub fn stay_responsive() {
    use rustix::mm::MlockAllFlags;
    // As pages are touched, not all at once: most of the program never is.
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    // Both need a privilege; without it the service manager may have done the second.
    let _ = rustix::mm::mlockall(flags);
    let _ = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJ);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_figures() {
        let statistics = Sources::open(Path::new("/")).sample();
        let memory = statistics.memory;
        assert!(memory.total_bytes > Some(0) && memory.free_bytes < memory.total_bytes);
        assert!(memory.committed_bytes.is_some());
        assert!(statistics.counters.major_faults.is_some());
        assert!(statistics.watermarks.low_bytes < statistics.watermarks.high_bytes);
        assert!(system().starts_with("linux ") && page_bytes() >= 4096);
        assert_ne!(random(), random());
    }

    #[test]
    fn a_system_without_files_has_none() {
        let mut sources = Sources::open(Path::new("/nonexistent"));
        assert_eq!((sources.sample(), sources.ages()), (Statistics::default(), None));
    }
}
