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

use std::fs;
use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, getppid, getpriority_process, set_parent_process_death_signal, setpriority_process,
};

/// The nice value of the lowest priority.
const NICE_LOWEST: i32 = 19;
/// The out-of-memory score adjustment of a process that is to be killed first.
const OOM_SCORE_FIRST: &str = "1000";

/// Most threads raised one by one; the daemon has a handful.
const THREADS_MAX: usize = 256;

/// The daemon's nice value, of −20 (highest priority) to 19.
const NICE: i32 = -10;
/// The daemon's out-of-memory score adjustment, of −1,000 to 1,000. With −1,000 the kernel could
/// not kill the daemon even if it leaked all memory itself.
const OOM_SCORE_ADJ: i32 = -900;

/// Raises the priority of the calling process: of all its threads and of those that it starts
/// later. `proc` is [`PROC`](crate::PROC), or a test's folder: then only the score is written
/// there, and only the calling thread is raised. Returns the refusals, which name the setting and
/// how to permit it.
pub fn raise_priority(proc: &Path) -> Vec<String> {
    [raise_nice(proc), lower_oom_score(proc)].into_iter().filter_map(Result::err).collect()
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

fn raise_nice(proc: &Path) -> Result<(), String> {
    let refused = |error: Errno| {
        format!(
            "nice {NICE}: {error}: run as root, or give the service CAP_SYS_NICE \
             (systemd: Nice={NICE})"
        )
    };
    if getpriority_process(None).map_err(refused)? <= NICE {
        return Ok(());
    }
    // On Linux a nice value belongs to a thread. A new thread inherits it from the one that starts
    // it, most likely this one.
    setpriority_process(None, NICE).map_err(refused)?;
    let threads = fs::read_dir(proc.join("self/task")).into_iter().flatten().flatten();
    for thread in threads.take(THREADS_MAX) {
        let tid = thread.file_name().to_str().and_then(|name| name.parse().ok());
        // A failure means that the thread has just ended.
        if let Some(tid) = tid.and_then(Pid::from_raw) {
            let _ = setpriority_process(Some(tid), NICE);
        }
    }
    Ok(())
}

fn lower_oom_score(proc: &Path) -> Result<(), String> {
    let path = proc.join("self/oom_score_adj");
    let shown = path.display();
    let now = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<i32>().ok());
    match now {
        Some(now) if now <= OOM_SCORE_ADJ => Ok(()),
        Some(_) => fs::write(&path, OOM_SCORE_ADJ.to_string()).map_err(|error| {
            format!(
                "{shown} {OOM_SCORE_ADJ}: {error}: run as root, or give the service \
                 CAP_SYS_RESOURCE (systemd: OOMScoreAdjust={OOM_SCORE_ADJ})"
            )
        }),
        None => Err(format!("{shown}: expected a number from -1000 to 1000")),
    }
}
