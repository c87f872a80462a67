//! Page faults and context switches of a guest's virtual processors, by thread.
//!
//! `/proc/PID/task/TID/stat` has the faults, `status` the switches. `perf_event_open` is not used:
//! its software events omit faults that KVM takes for a guest, and it needs a permission.
//! Cost: two small files per thread. Source: proc_pid_stat(5), proc_pid_status(5).
//! Limits: a page tracker's traps count as faults.

use std::fs;
use std::path::{Path, PathBuf};

use crate::signals::threads::virtual_processors;

/// Counts since the threads started, summed over the threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadActivity {
    /// Page faults without I/O.
    pub minor_faults: u64,
    /// Page faults with I/O.
    pub major_faults: u64,
    /// Voluntary and involuntary context switches.
    pub context_switches: u64,
}

impl ThreadActivity {
    fn plus(self, other: ThreadActivity) -> ThreadActivity {
        self.with(other, u64::saturating_add)
    }

    /// Counts since `earlier`.
    pub fn since(self, earlier: ThreadActivity) -> ThreadActivity {
        self.with(earlier, u64::saturating_sub)
    }

    fn with(self, other: ThreadActivity, f: fn(u64, u64) -> u64) -> ThreadActivity {
        ThreadActivity {
            minor_faults: f(self.minor_faults, other.minor_faults),
            major_faults: f(self.major_faults, other.major_faults),
            context_switches: f(self.context_switches, other.context_switches),
        }
    }
}

/// Reads the counts of one guest.
#[derive(Debug)]
pub struct ActivityReader {
    threads: Vec<PathBuf>,
}

impl ActivityReader {
    /// For the current virtual processors of process `pid` in `proc`; `None` if the process is
    /// gone.
    pub fn open(proc: &Path, pid: u32) -> Option<ActivityReader> {
        let task = proc.join(pid.to_string()).join("task");
        let threads = virtual_processors(&task);
        let threads = threads.into_iter().map(|tid| task.join(tid.to_string()));
        Some(ActivityReader { threads: threads.collect() }).filter(|it| !it.threads.is_empty())
    }

    /// The counts until now; `None` once a thread has ended.
    pub fn read(&self) -> Option<ThreadActivity> {
        let mut sum = ThreadActivity::default();
        for thread in &self.threads {
            let (minor_faults, major_faults) = parse_stat(&fs::read(thread.join("stat")).ok()?)?;
            let context_switches = parse_status(&fs::read(thread.join("status")).ok()?)?;
            sum = sum.plus(ThreadActivity { minor_faults, major_faults, context_switches });
        }
        Some(sum)
    }
}

/// Minor and major faults in the text of a `stat`. The name in it may have spaces and parentheses;
/// the last parenthesis ends it.
pub fn parse_stat(text: &[u8]) -> Option<(u64, u64)> {
    let end = text.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
    // The rest begins with field 3; minor faults are field 10, major faults field 12.
    let mut fields = rest.split_ascii_whitespace().skip(7);
    let minor = fields.next()?.parse().ok()?;
    let major = fields.nth(1)?.parse().ok()?;
    Some((minor, major))
}

/// The sum of voluntary and involuntary context switches in the text of a `status`.
pub fn parse_status(text: &[u8]) -> Option<u64> {
    let (mut voluntary, mut involuntary) = (None, None);
    for line in text.split(|&byte| byte == b'\n') {
        for (name, count) in [
            (&b"voluntary_ctxt_switches:"[..], &mut voluntary),
            (b"nonvoluntary_ctxt_switches:", &mut involuntary),
        ] {
            if let Some(value) = line.strip_prefix(name) {
                *count = Some(std::str::from_utf8(value).ok()?.trim().parse::<u64>().ok()?);
            }
        }
    }
    Some(voluntary?.saturating_add(involuntary?))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use proptest::prelude::*;

    use super::*;

    const STAT: &[u8] =
        b"412 (CPU 0) / (TCG) S 1 412 412 0 -1 4194560 8034 77 912 5 100 20 0 0 20 0 4 0 99 0 0\n";
    const STATUS: &[u8] = b"Name:\tCPU 0/TCG\nvoluntary_ctxt_switches:\t150\n\
        nonvoluntary_ctxt_switches:\t17\nx86_Thread_features:\t\n";

    /// Field 10 is 8034 minor faults, 11 is the children's 77, 12 is 912 major faults.
    #[test]
    fn stat_and_status_are_parsed() {
        assert_eq!(parse_stat(STAT), Some((8034, 912)));
        assert_eq!(parse_status(STATUS), Some(167));
        for text in [&b""[..], b"412 (x", b"412 (x) S 1 2", b"412 (x) S 1 2 3 4 5 6 -7 8 9 10"] {
            assert_eq!(parse_stat(text), None, "{text:?}");
        }
        for text in [&b""[..], b"voluntary_ctxt_switches:\t1\n", b"voluntary_ctxt_switches:\tx\n"] {
            assert_eq!(parse_status(text), None, "{text:?}");
        }
    }

    #[test]
    fn threads_are_summed_until_one_ends() {
        let proc = tempfile::tempdir().unwrap();
        for tid in ["412", "413"] {
            let thread = proc.path().join("412/task").join(tid);
            fs::create_dir_all(&thread).unwrap();
            fs::write(thread.join("comm"), "CPU 0/KVM\n").unwrap();
            fs::write(thread.join("stat"), STAT).unwrap();
            fs::write(thread.join("status"), STATUS).unwrap();
        }
        assert!(ActivityReader::open(proc.path(), 9).is_none());
        let reader = ActivityReader::open(proc.path(), 412).unwrap();
        let seen =
            ThreadActivity { minor_faults: 16_068, major_faults: 1824, context_switches: 334 };
        assert_eq!(reader.read(), Some(seen));
        let since =
            seen.since(ThreadActivity { minor_faults: 16_000, ..ThreadActivity::default() });
        assert_eq!((since.minor_faults, since.major_faults), (68, 1824));
        fs::remove_dir_all(proc.path().join("412/task/413")).unwrap();
        assert_eq!(reader.read(), None);
    }

    /// A child process, because its number of threads is constant, unlike that of this process.
    #[test]
    fn a_real_process_has_faults() {
        let piped = std::process::Stdio::piped;
        let mut child =
            std::process::Command::new("cat").stdin(piped()).stdout(piped()).spawn().unwrap();
        let mut answer = [0];
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut answer).unwrap();
        let reader = ActivityReader::open(Path::new("/proc"), child.id()).unwrap();
        let activity = reader.read();
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
        assert!(activity.unwrap().minor_faults > 0);
        assert_eq!(reader.read(), None);
    }

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(text in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = (parse_stat(&text), parse_status(&text));
        }
    }
}
