//! The daemon's own standing on a host that is short of memory.
//!
//! Idea: the balancer must run just when everything else waits: its server ran at raised priority
//! (Global §4.1). Nice −10 gives it roughly nine times the weight of an ordinary process, which is
//! plenty for a task that sleeps most of each second. A real-time class (`SCHED_RR`) is not used: a
//! fault in the daemon could then take a core from the host, and the gain over nice is microseconds.
//! The out-of-memory score keeps the kernel from killing the one process that can make room.
//!
//! Limits: nothing here fails; what the kernel refuses is reported. Both settings are inherited:
//! whoever starts guests from a raised process sets them back in the child.

use std::fmt;
use std::fs;
use std::path::Path;

use rustix::process::{Pid, getpriority_process, setpriority_process};

/// Most threads raised one by one; the daemon has a handful.
const THREADS_MAX: usize = 256;

/// What to ask the kernel for. `None` leaves a setting alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// Nice value, −20 (favoured) to 19.
    pub nice: Option<i32>,
    /// Out-of-memory score adjustment, −1,000 (never killed) to 1,000.
    pub oom_score_adj: Option<i32>,
}

impl Default for Priority {
    fn default() -> Self {
        // −1,000 would make the daemon unkillable even if it leaked all memory itself.
        Priority { nice: Some(-10), oom_score_adj: Some(-900) }
    }
}

/// What came of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Nothing was asked for.
    Untouched,
    /// It was so, or more favourable, already.
    Already(i32),
    /// It was changed.
    Set {
        /// Before.
        from: i32,
        /// Now.
        to: i32,
    },
    /// The kernel refused; the text says what and how to permit it.
    Refused(String),
}

/// What came of [`raise_priority`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raised {
    /// The scheduling priority.
    pub nice: Setting,
    /// The out-of-memory score adjustment.
    pub oom_score_adj: Setting,
}

impl Raised {
    /// What could not be done, as lines for the log.
    pub fn refusals(&self) -> impl Iterator<Item = &str> {
        [&self.nice, &self.oom_score_adj].into_iter().filter_map(|setting| match setting {
            Setting::Refused(why) => Some(why.as_str()),
            _ => None,
        })
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Untouched => f.write_str("left alone"),
            Setting::Already(now) => write!(f, "{now} already"),
            Setting::Set { from, to } => write!(f, "{to}, was {from}"),
            Setting::Refused(why) => write!(f, "not changed: {why}"),
        }
    }
}

/// Raises the calling process as `wanted`: all its threads, and those it starts later. `proc` is
/// [`PROC`](crate::PROC); with another folder only the score in it is written and no thread found
/// there is raised.
pub fn raise_priority(proc: &Path, wanted: Priority) -> Raised {
    Raised {
        nice: wanted.nice.map_or(Setting::Untouched, |nice| raise_nice(proc, nice)),
        oom_score_adj: wanted
            .oom_score_adj
            .map_or(Setting::Untouched, |score| lower_oom_score(proc, score)),
    }
}

fn raise_nice(proc: &Path, nice: i32) -> Setting {
    let refused = |what: rustix::io::Errno| {
        Setting::Refused(format!(
            "nice {nice}: {what}: run as root, or give the service CAP_SYS_NICE (systemd: Nice={nice})"
        ))
    };
    let from = match getpriority_process(None) {
        Ok(now) if now <= nice => return Setting::Already(now),
        Ok(now) => now,
        Err(e) => return refused(e),
    };
    // On Linux a nice value belongs to a thread; new threads inherit it from the one that starts
    // them, which is most likely this one.
    if let Err(e) = setpriority_process(None, nice) {
        return refused(e);
    }
    let threads = fs::read_dir(proc.join("self/task")).into_iter().flatten().flatten();
    for thread in threads.take(THREADS_MAX) {
        let tid = thread.file_name().to_str().and_then(|name| name.parse().ok());
        // A thread that has just ended cannot be raised and need not be.
        if let Some(tid) = tid.and_then(Pid::from_raw) {
            let _ = setpriority_process(Some(tid), nice);
        }
    }
    Setting::Set { from, to: nice }
}

fn lower_oom_score(proc: &Path, score: i32) -> Setting {
    let path = proc.join("self/oom_score_adj");
    let now = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<i32>().ok());
    match now {
        Some(now) if now <= score => Setting::Already(now),
        Some(from) => match fs::write(&path, score.to_string()) {
            Ok(()) => Setting::Set { from, to: score },
            Err(e) => Setting::Refused(format!(
                "{} {score}: {e}: run as root, or give the service CAP_SYS_RESOURCE \
                 (systemd: OOMScoreAdjust={score})",
                path.display()
            )),
        },
        None => {
            Setting::Refused(format!("{}: expected a number from -1000 to 1000", path.display()))
        }
    }
}
