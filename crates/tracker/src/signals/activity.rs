//! Page faults and context switches of a guest's virtual processors, as the kernel counts them by thread.
//!
//! Idea: `/proc/PID/task/TID/stat` has the faults, `status` the switches. They are read and not asked for by
//! `perf_event_open`, whose software events leave out faults that KVM takes on a guest's behalf, and which
//! needs a permission.
//! Cost: two small files a thread. Source: proc_pid_stat(5), proc_pid_status(5).
//! Limits: a trap of a page tracker is a fault too, and counted.

use std::fs;
use std::path::{Path, PathBuf};

use super::threads::virtual_processors;

/// What was counted since the threads began; of several threads the sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Page faults that did not wait.
    pub minor_faults: u64,
    /// Page faults that did.
    pub major_faults: u64,
    /// Times a thread was taken from its processor, or left it.
    pub context_switches: u64,
}

impl Activity {
    fn plus(self, other: Activity) -> Activity {
        self.with(other, u64::saturating_add)
    }

    /// What was counted since `earlier`.
    pub fn since(self, earlier: Activity) -> Activity {
        self.with(earlier, u64::saturating_sub)
    }

    fn with(self, other: Activity, f: fn(u64, u64) -> u64) -> Activity {
        Activity {
            minor_faults: f(self.minor_faults, other.minor_faults),
            major_faults: f(self.major_faults, other.major_faults),
            context_switches: f(self.context_switches, other.context_switches),
        }
    }
}

/// Reads it of one guest.
#[derive(Debug)]
pub struct ActivityReader {
    threads: Vec<PathBuf>,
}

impl ActivityReader {
    /// Of the process `pid`, as seen in `proc`, with the virtual processors that it has now; `None` where it
    /// is not there.
    pub fn open(proc: &Path, pid: u32) -> Option<ActivityReader> {
        let task = proc.join(pid.to_string()).join("task");
        let threads = virtual_processors(&task);
        let threads = threads.into_iter().map(|tid| task.join(tid.to_string()));
        Some(ActivityReader { threads: threads.collect() }).filter(|it| !it.threads.is_empty())
    }

    /// What was counted until now; `None` as soon as one of the threads has ended.
    pub fn read(&self) -> Option<Activity> {
        let of = |thread: &PathBuf| {
            let (minor_faults, major_faults) = parse_stat(&fs::read(thread.join("stat")).ok()?)?;
            let context_switches = parse_status(&fs::read(thread.join("status")).ok()?)?;
            Some(Activity { minor_faults, major_faults, context_switches })
        };
        self.threads.iter().try_fold(Activity::default(), |sum, thread| Some(sum.plus(of(thread)?)))
    }
}

/// Minor and major faults in the text of a `stat`; `None` of what is none. The name in it is the process's
/// own choice and may have spaces and parentheses: the last one ends it.
pub fn parse_stat(text: &[u8]) -> Option<(u64, u64)> {
    let end = text.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
    // The third field of the line comes first, so its tenth is the eighth and its twelfth the tenth.
    let mut fields = rest.split_ascii_whitespace().skip(7);
    let minor = fields.next()?.parse().ok()?;
    let major = fields.nth(1)?.parse().ok()?;
    Some((minor, major))
}

/// Context switches of both kinds in the text of a `status`; `None` of what has not both.
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

    /// Fields 10 and 12 as proc_pid_stat(5) counts them; 8034 minor, its children's 77, 912 major.
    #[test]
    fn an_example_by_hand() {
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
    fn threads_add_up_and_one_that_ended_leaves_nothing() {
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
        let seen = Activity { minor_faults: 16_068, major_faults: 1824, context_switches: 334 };
        assert_eq!(reader.read(), Some(seen));
        let since = seen.since(Activity { minor_faults: 16_000, ..Activity::default() });
        assert_eq!((since.minor_faults, since.major_faults), (68, 1824));
        fs::remove_dir_all(proc.path().join("412/task/413")).unwrap();
        assert_eq!(reader.read(), None);
    }

    /// A child has one thread for as long as it runs; this process has one for every test that runs now.
    #[test]
    fn a_process_that_answers_has_faults() {
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
        fn rubbish_is_no_count_and_no_panic(text in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = (parse_stat(&text), parse_status(&text));
        }
    }
}
