//! Stops threads of the tracker for good: no guest may wait for them longer than promised.
//!
//! The test is its own debugger: it starts itself again with a thread's number in the environment,
//! and that process stops the thread until its input ends.
//!
//! Source: ptrace(2). Limits: a process may debug its parent only as root, or if Yama allows it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::*;
use ballast_tracker::TrackerError;
use ballast_tracker_proto::RefusalReason;

/// Set in the process that is the debugger: the number of the thread to stop.
const DEBUGGED: &str = "BALLAST_TEST_DEBUGGED_THREAD";
const FIRST: u64 = 1 << 20;
/// The tracker promises one second; a loaded machine may need more.
const HELD_MAX: Duration = Duration::from_secs(5);

/// A thread of this process that does not go on while this lives.
struct StoppedThread(Child);

impl StoppedThread {
    /// `None` if this process may not be debugged.
    fn new(name: &str) -> Option<StoppedThread> {
        let thread = thread(name).unwrap();
        let mut debugger = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "stopped::a_thread_that_does_not_go_on_holds_no_guest"])
            .arg("--nocapture")
            .env(DEBUGGED, thread.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(debugger.stdout.as_mut().unwrap()).lines();
        let is_stopped = lines.map_while(Result::ok).any(|line| line.ends_with("stopped"));
        let stopped = StoppedThread(debugger);
        is_stopped.then_some(stopped)
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// The number of this process's thread of that name, if there is one.
fn thread(name: &str) -> Option<i32> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().map(|entry| entry.unwrap().path());
    let has_name = |path: &std::path::PathBuf| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name)
    };
    let path = threads.into_iter().find(has_name)?;
    Some(path.file_name()?.to_str()?.parse().unwrap())
}

/// The debugger: stops a thread until the input ends.
fn stop(thread: i32) -> ! {
    let none = std::ptr::null_mut::<libc::c_void>();
    let mut status = 0;
    // SAFETY: these requests have no memory of this process but the status.
    let is_stopped = unsafe {
        libc::ptrace(libc::PTRACE_SEIZE, thread, none, none) == 0
            && libc::ptrace(libc::PTRACE_INTERRUPT, thread, none, none) == 0
            && libc::waitpid(thread, &raw mut status, libc::__WALL) == thread
    };
    println!("{}", if is_stopped { "stopped" } else { "not allowed" });
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    // When a debugger ends, its threads continue.
    std::process::exit(0);
}

/// Touches revoked memory, and calls `meanwhile` again and again. Lets the stopped thread continue
/// only if the touch takes too long.
fn touch_while(stopped: &mut Option<StoppedThread>, memory: &Memory, mut meanwhile: impl FnMut()) {
    let end = Instant::now() + HELD_MAX;
    std::thread::scope(|scope| {
        let touch = scope.spawn(|| assert_eq!(memory.read(7), 7));
        while !touch.is_finished() && stopped.is_some() {
            meanwhile();
            if Instant::now() > end {
                *stopped = None;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    assert!(stopped.is_some(), "a guest is held");
}

#[test]
fn a_thread_that_does_not_go_on_holds_no_guest() {
    if let Ok(thread) = std::env::var(DEBUGGED) {
        stop(thread.parse().unwrap());
    }
    let Some(_turn) = turn() else { return };
    let memory = Memory::new(64);
    let (tracker, address) = tracker();
    for revokes in [false, true] {
        let mut client = client(&address);
        client.add_region(memory.region(0, FIRST)).unwrap();
        client.revoke(1).unwrap();
        let mut stopped = StoppedThread::new("ballast-faults");
        if stopped.is_none() {
            return println!("SKIPPED: this process may not be debugged by its child");
        }
        let mut answer = None;
        touch_while(&mut stopped, &memory, || {
            // The client is alive, so permissions are not restored because of its silence.
            let next = if revokes { client.revoke(2).err() } else { client.heartbeat().err() };
            answer = answer.take().or(next);
        });
        assert!(!memory.is_registered());
        let answer = answer.or_else(|| client.heartbeat().err()).unwrap();
        let TrackerError::Refused(refused) = &answer else { panic!("{answer}") };
        assert_eq!(refused.reason, RefusalReason::Unresolved);
        memory.touch(0..64);
    }
    let mut client = client(&address);
    client.add_region(memory.region(0, FIRST)).unwrap();
    client.revoke(1).unwrap();
    let mut stopped = StoppedThread::new("ballast-track");
    touch_while(&mut stopped, &memory, || {});
    wait_until("permissions are restored", || !memory.is_registered());
    memory.touch(0..64);
    // Nor does the end of the hypervisor wait for the thread.
    std::thread::scope(|scope| {
        let end = scope.spawn(|| drop(tracker));
        let by = Instant::now() + HELD_MAX;
        while !end.is_finished() && Instant::now() < by {
            std::thread::sleep(Duration::from_millis(10));
        }
        let is_held = !end.is_finished();
        stopped = None;
        assert!(!is_held);
    });
    wait_until("the thread ends", || thread("ballast-track").is_none());
}
