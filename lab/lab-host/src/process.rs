//! Process identities that are safe against reuse of process ids.
//!
//! Idea: process ids are reused; a process id and a start time together are not. Killing a recorded
//! process checks both through a pidfd, which cannot refer to another process.
//! Source: proc(5), field 22 of `/proc/PID/stat`; pidfd_open(2).

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// Time between two checks of a process that is exiting.
const POLL: Duration = Duration::from_millis(5);

/// One process, unique until the host reboots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its process id.
    pub pid: i32,
    /// Its start time, in clock ticks since the host booted.
    pub start_ticks: u64,
}

impl ProcessId {
    /// The process that has the id `pid` now; `None` if there is none, or only a zombie.
    pub fn of(pid: u32) -> Option<ProcessId> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let start_ticks = parse_stat(&stat)?;
        Some(ProcessId { pid: i32::try_from(pid).ok()?, start_ticks })
    }

    /// This process.
    pub fn current() -> Option<ProcessId> {
        ProcessId::of(std::process::id())
    }

    /// Whether it is still running; a zombie is not.
    pub fn is_alive(self) -> bool {
        u32::try_from(self.pid).ok().and_then(ProcessId::of) == Some(self)
    }

    /// Kills it if it is running, and waits up to `patience` for its exit; true if it is gone.
    pub fn kill(self, patience: Duration) -> bool {
        let handle =
            Pid::from_raw(self.pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        // Checked after the pidfd is open: from then on it refers to this process only.
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
    // The second field is the name in parentheses, which may contain any character.
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
    fn start_time_is_parsed_for_any_program_name() {
        let tail = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(parse_stat(&format!("12 (a b) R) S {tail}")), Some(4711));
        assert_eq!(parse_stat(&format!("12 (a) Z {tail}")), None);
        for rubbish in ["", "12", "12 (a) S 1 2", "12 (a) S x x x x x x x x x x x x x x x x x x x"]
        {
            assert_eq!(parse_stat(rubbish), None, "{rubbish}");
        }
    }

    #[test]
    fn process_is_killed_only_if_its_identity_matches() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let id = ProcessId::of(child.id()).unwrap();
        let other = ProcessId { start_ticks: id.start_ticks + 1, ..id };
        assert!(other.kill(Duration::from_secs(1)), "a process with another start time is gone");
        assert!(id.is_alive(), "our process was not killed");
        assert!(id.kill(Duration::from_secs(10)));
        assert!(!id.is_alive());
        child.wait().unwrap();
    }
}
