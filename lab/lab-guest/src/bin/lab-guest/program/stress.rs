//! stress-ng, writing to all of its memory.
//!
//! Idea: its own count of operations comes only when it ends; what it does is reckoned as milliseconds of
//! processor time of it and all that it has started, which stand still while it waits for memory.
//! Limits: as fine as the kernel's clock ticks, 10 ms.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use ballast_lab_guest::procfs;
use ballast_model::Bytes;

use super::Running;
use super::beside::Beside;

/// Time between two looks at what it has done.
const LOOK: Duration = Duration::from_millis(200);
/// Milliseconds in a tick of `/proc/PID/stat` (`USER_HZ` is 100 on every Linux of this architecture).
const TICK_MS: u64 = 10;

pub(super) struct Stress {
    program: Beside,
}

impl Stress {
    /// With `size` of memory in one process.
    pub(super) fn start(size: Bytes) -> Result<Stress, String> {
        let bytes = size.get().to_string();
        let arguments =
            ["--vm", "1", "--vm-bytes", &bytes, "--vm-keep", "--vm-method", "rand-set", "-t", "0"];
        Ok(Stress { program: Beside::start("stress-ng", &arguments, |_| {})? })
    }
}

impl Running for Stress {
    fn work(&mut self) -> Result<u64, String> {
        std::thread::sleep(LOOK);
        self.program.check()?;
        let processes = fs::read_dir("/proc").map_err(|error| format!("/proc: {error}"))?;
        let stats = processes.flatten().filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            Some((pid, procfs::lineage(&fs::read_to_string(entry.path().join("stat")).ok()?)?))
        });
        Ok(ticks_below(self.program.pid(), &stats.collect()) * TICK_MS)
    }
}

/// Ticks of user time of a process and of all that descend from it.
fn ticks_below(top: u32, processes: &HashMap<u32, procfs::Lineage>) -> u64 {
    let descends = |mut pid: u32| {
        // A chain is no longer than there are processes.
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
    fn a_process_and_all_below_it_count() {
        let of = |parent, user_ticks| procfs::Lineage { parent, user_ticks };
        // 5 has started 6, and that 7; 8 is another's, and 9's parent is gone.
        let all = [(1, of(0, 100)), (5, of(1, 1)), (6, of(5, 20)), (7, of(6, 300)), (8, of(1, 9))];
        let mut all = HashMap::from(all);
        all.insert(9, of(99, 1000));
        assert_eq!(ticks_below(5, &all), 321);
        assert_eq!(ticks_below(77, &all), 0);
        // A circle, as a torn reading may have it, ends.
        all.insert(10, of(11, 1));
        all.insert(11, of(10, 1));
        assert_eq!(ticks_below(5, &all), 321);
    }
}
