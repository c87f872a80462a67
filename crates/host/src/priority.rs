//! The daemon's own scheduling priority and out-of-memory score.
//!
//! Idea: the daemon must run when everything else waits for memory; the server of Global §4.1 ran
//! at raised priority too. Nice −10 gives it roughly nine times the weight of an ordinary process,
//! which is plenty for a task that sleeps most of each second. A real-time class (`SCHED_RR`) is
//! not used: a fault in the daemon could then take a core from the host, to gain microseconds over
//! nice. The out-of-memory score keeps the kernel from killing the one process that can free
//! memory.
//!
//! Limits: nothing here fails; a refusal of the kernel is reported. Child processes inherit both
//! settings: a raised process that starts guests must reset them in the child.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use rustix::process::{
    Pid, Signal, getppid, getpriority_process, set_parent_process_death_signal, setpriority_process,
};

/// The nice value of the lowest priority.
const NICE_LOWEST: i32 = 19;
/// The out-of-memory score adjustment of a process that is to be killed first.
const OOM_SCORE_FIRST: &str = "1000";

/// Most threads raised one by one; the daemon has a handful.
const THREADS_MAX: usize = 256;

/// The settings wanted. `None` leaves a setting unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// Nice value, −20 (highest priority) to 19.
    pub nice: Option<i32>,
    /// Out-of-memory score adjustment, −1,000 (never killed) to 1,000.
    pub oom_score_adj: Option<i32>,
}

impl Default for Priority {
    fn default() -> Self {
        // With −1,000 the kernel could not kill the daemon even if it leaked all memory itself.
        Priority { nice: Some(-10), oom_score_adj: Some(-900) }
    }
}

/// The outcome of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingOutcome {
    /// No change was wanted.
    Untouched,
    /// The value already was at least as favourable.
    Already(i32),
    /// The value was changed.
    Set {
        /// The old value.
        from: i32,
        /// The new value.
        to: i32,
    },
    /// The kernel refused; the text names the setting and how to permit it.
    Refused(String),
}

/// The outcome of [`raise_priority`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriorityOutcome {
    /// The scheduling priority.
    pub nice: SettingOutcome,
    /// The out-of-memory score adjustment.
    pub oom_score_adj: SettingOutcome,
}

impl PriorityOutcome {
    /// The refusals, as lines for the log.
    pub fn refusals(&self) -> impl Iterator<Item = &str> {
        [&self.nice, &self.oom_score_adj].into_iter().filter_map(|setting| match setting {
            SettingOutcome::Refused(why) => Some(why.as_str()),
            _ => None,
        })
    }
}

impl fmt::Display for SettingOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingOutcome::Untouched => f.write_str("unchanged"),
            SettingOutcome::Already(now) => write!(f, "already {now}"),
            SettingOutcome::Set { from, to } => write!(f, "{to}, was {from}"),
            SettingOutcome::Refused(why) => write!(f, "not changed: {why}"),
        }
    }
}

/// Raises the priority of the calling process as `wanted`: of all its threads and of those that it
/// starts later. `proc` is [`PROC`](crate::PROC), or a test's folder: then only the score is
/// written there, and only the calling thread is raised.
pub fn raise_priority(proc: &Path, wanted: Priority) -> PriorityOutcome {
    PriorityOutcome {
        nice: wanted.nice.map_or(SettingOutcome::Untouched, |nice| raise_nice(proc, nice)),
        oom_score_adj: wanted
            .oom_score_adj
            .map_or(SettingOutcome::Untouched, |score| lower_oom_score(proc, score)),
    }
}

/// Gives the calling thread ordinary priority, if it has a raised one. On Linux a nice value
/// belongs to a thread, which inherits it from the thread that starts it.
pub fn give_up_raised_priority() {
    if getpriority_process(None).is_ok_and(|nice| nice < 0) {
        // Lowering a priority is never refused.
        let _ = setpriority_process(None, 0);
    }
}

/// Gives ordinary priority to the process `pid`, which this one has just started and which has
/// inherited a raised one. Refusals are ignored. `proc` is [`PROC`](crate::PROC).
pub fn give_ordinary_priority(proc: &Path, pid: u32) {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if raw.is_some_and(|pid| getpriority_process(Some(pid)).is_ok_and(|nice| nice < 0)) {
        // Lowering the priority of an own process is never refused.
        let _ = setpriority_process(raw, 0);
    }
    let path = proc.join(pid.to_string()).join("oom_score_adj");
    let score = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<i32>().ok());
    if score.is_some_and(|score| score < 0) {
        let _ = fs::write(&path, "0");
    }
}

/// Makes the calling process a background worker of its parent, the process `parent`: it gets the
/// lowest priority, is the first to be killed when memory runs out, and is killed when the thread
/// that started it ends. Call it before the process starts threads; `proc` is
/// [`PROC`](crate::PROC).
///
/// # Errors
/// `parent` is not the parent, or has ended; or the kernel refuses.
pub fn work_in_background_of(proc: &Path, parent: u32) -> io::Result<()> {
    // Lowering the priority and raising the score are never refused.
    setpriority_process(None, NICE_LOWEST)?;
    fs::write(proc.join("self/oom_score_adj"), OOM_SCORE_FIRST)?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have ended before the signal was requested.
    let found = getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
    if found == parent {
        return Ok(());
    }
    Err(io::Error::other(format!("process {parent} did not start this one, or has ended")))
}

fn raise_nice(proc: &Path, nice: i32) -> SettingOutcome {
    let refused = |error: rustix::io::Errno| {
        SettingOutcome::Refused(format!(
            "nice {nice}: {error}: run as root, or give the service CAP_SYS_NICE \
             (systemd: Nice={nice})"
        ))
    };
    let from = match getpriority_process(None) {
        Ok(now) if now <= nice => return SettingOutcome::Already(now),
        Ok(now) => now,
        Err(e) => return refused(e),
    };
    // On Linux a nice value belongs to a thread. A new thread inherits it from the one that starts
    // it, most likely this one.
    if let Err(e) = setpriority_process(None, nice) {
        return refused(e);
    }
    let threads = fs::read_dir(proc.join("self/task")).into_iter().flatten().flatten();
    for thread in threads.take(THREADS_MAX) {
        let tid = thread.file_name().to_str().and_then(|name| name.parse().ok());
        // A failure means that the thread has just ended.
        if let Some(tid) = tid.and_then(Pid::from_raw) {
            let _ = setpriority_process(Some(tid), nice);
        }
    }
    SettingOutcome::Set { from, to: nice }
}

fn lower_oom_score(proc: &Path, score: i32) -> SettingOutcome {
    let path = proc.join("self/oom_score_adj");
    let now = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<i32>().ok());
    match now {
        Some(now) if now <= score => SettingOutcome::Already(now),
        Some(from) => match fs::write(&path, score.to_string()) {
            Ok(()) => SettingOutcome::Set { from, to: score },
            Err(e) => SettingOutcome::Refused(format!(
                "{} {score}: {e}: run as root, or give the service CAP_SYS_RESOURCE \
                 (systemd: OOMScoreAdjust={score})",
                path.display()
            )),
        },
        None => SettingOutcome::Refused(format!(
            "{}: expected a number from -1000 to 1000",
            path.display()
        )),
    }
}
