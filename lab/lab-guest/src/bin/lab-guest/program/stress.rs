//! stress-ng, which writes to all of its memory.
//!
//! Idea: it reports its operations only when it exits, so its work is measured as the user time of
//! it and its descendants, which stops while they wait for memory.
//! Limits: resolution of 10 ms, the kernel's clock tick.

use std::collections::HashMap;
use std::fs;

use ballast_lab_guest::procfs;
use ballast_model::Bytes;

use super::running::{RunningProgram, WORK_TIME};
use super::subprocess::Subprocess;

/// Milliseconds per tick of `/proc/PID/stat` (`USER_HZ` is 100 on every Linux of this
/// architecture).
const TICK_MS: u64 = 10;

pub(super) struct Stress {
    program: Subprocess,
}

impl Stress {
    /// Starts it with `size` of memory in one process.
    pub(super) fn start(size: Bytes) -> Result<Stress, String> {
        let bytes = size.get().to_string();
        let arguments =
            ["--vm", "1", "--vm-bytes", &bytes, "--vm-keep", "--vm-method", "rand-set", "-t", "0"];
        Ok(Stress { program: Subprocess::start("stress-ng", &arguments, |_| {})? })
    }
}

impl RunningProgram for Stress {
    fn work(&mut self) -> Result<u64, String> {
        std::thread::sleep(WORK_TIME);
        self.program.check()?;
        let processes = fs::read_dir("/proc").map_err(|error| format!("/proc: {error}"))?;
        let stats = processes.flatten().filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            Some((pid, procfs::lineage(&fs::read_to_string(entry.path().join("stat")).ok()?)?))
        });
        Ok(ticks_below(self.program.pid(), &stats.collect()) * TICK_MS)
    }
}

/// User time of a process and all its descendants, in ticks.
fn ticks_below(top: u32, processes: &HashMap<u32, procfs::Lineage>) -> u64 {
    let descends = |mut pid: u32| {
        // Bounded, since a torn reading of `/proc` may contain a cycle.
        for _ in 0..processes.len() {
            if pid == top {
                return true;
            }
            let Some(process) = processes.get(&pid) else { return false };
            pid = process.parent;
        }
        false
    };
    let own = processes.iter().filter(|(pid, _)| descends(**pid));
    own.map(|(_, process)| process.user_ticks).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_time_includes_all_descendants() {
        let of = |parent, user_ticks| procfs::Lineage { parent, user_ticks };
        // 5 is the parent of 6, and 6 of 7; 8 is not a descendant of 5, and 9's parent has exited.
        let all = [(1, of(0, 100)), (5, of(1, 1)), (6, of(5, 20)), (7, of(6, 300)), (8, of(1, 9))];
        let mut all = HashMap::from(all);
        all.insert(9, of(99, 1000));
        assert_eq!(ticks_below(5, &all), 321);
        assert_eq!(ticks_below(77, &all), 0);
        // A cycle, as a torn reading may contain.
        all.insert(10, of(11, 1));
        all.insert(11, of(10, 1));
        assert_eq!(ticks_below(5, &all), 321);
    }
}
