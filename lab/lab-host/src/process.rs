//! Processes, known so well that another one is never taken for them.
//!
//! Idea: process numbers are used again; a number and a start time together are not. Whoever ends a
//! recorded process checks both, through a handle of the process that cannot change under it.
//! Source: proc(5), field 22 of `/proc/PID/stat`; pidfd_open(2).

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// Time between two looks at a process that is ending.
const POLL: Duration = Duration::from_millis(5);

/// One process, for as long as the host runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its number.
    pub pid: i32,
    /// When it began, in clock ticks since the host booted.
    pub start_ticks: u64,
}

impl ProcessId {
    /// The process that has the number `pid` now; `None` when there is none, or only its remains.
    pub fn of(pid: u32) -> Option<ProcessId> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let start_ticks = parse_stat(&stat)?;
        Some(ProcessId { pid: i32::try_from(pid).ok()?, start_ticks })
    }

    /// This very process.
    pub fn current() -> Option<ProcessId> {
        ProcessId::of(std::process::id())
    }

    /// Whether it still runs. A zombie does not.
    pub fn is_alive(self) -> bool {
        u32::try_from(self.pid).ok().and_then(ProcessId::of) == Some(self)
    }

    /// Kills it if it still runs; waits up to `patience` for it to be gone. True when it is gone.
    pub fn kill(self, patience: Duration) -> bool {
        let handle =
            Pid::from_raw(self.pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        // The identity is checked after the handle is open: from then on the number is not reused.
        if let Some(handle) = handle
            && self.is_alive()
        {
            let _ = pidfd_send_signal(handle, Signal::KILL);
        }
        let end = Instant::now() + patience;
        while self.is_alive() {
            if Instant::now() > end {
                return false;
            }
            std::thread::sleep(POLL);
        }
        true
    }
}

/// The start time in `/proc/PID/stat`; `None` for a zombie or dead process.
fn parse_stat(stat: &str) -> Option<u64> {
    // The second field is the name in parentheses and may hold anything, parentheses too.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    // The state is field 3; the start time is field 22.
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_start_time_is_found_behind_any_name() {
        let tail = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(parse_stat(&format!("12 (a b) R) S {tail}")), Some(4711));
        assert_eq!(parse_stat(&format!("12 (a) Z {tail}")), None);
        for rubbish in ["", "12", "12 (a) S 1 2", "12 (a) S x x x x x x x x x x x x x x x x x x x"]
        {
            assert_eq!(parse_stat(rubbish), None, "{rubbish}");
        }
    }

    #[test]
    fn a_process_is_killed_only_by_its_full_identity() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let id = ProcessId::of(child.id()).unwrap();
        let other = ProcessId { start_ticks: id.start_ticks + 1, ..id };
        assert!(other.kill(Duration::from_secs(1)), "another process counts as gone");
        assert!(id.is_alive(), "and ours was left alone");
        assert!(id.kill(Duration::from_secs(10)));
        assert!(!id.is_alive());
        child.wait().unwrap();
    }
}
