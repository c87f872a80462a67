//! Starts QEMU so that it cannot outlive the lab.
//!
//! Idea: the kernel kills a child when the *thread* that started it exits (parent-death signal), so
//! one thread, which lives as long as the run, starts all of them.
//! Source: prctl(2), PR_SET_PDEATHSIG.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use rustix::io::FdFlags;
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

type ChildRequest = (Command, Vec<File>, Sender<io::Result<Child>>);

/// The thread that starts processes.
#[derive(Debug)]
pub(crate) struct Spawner {
    requests: Option<Sender<ChildRequest>>,
    thread: Option<JoinHandle<()>>,
}

impl Spawner {
    pub(crate) fn start() -> Spawner {
        let (requests, queue) = channel::<ChildRequest>();
        let thread = std::thread::spawn(move || {
            for (mut command, files, reply) in queue {
                let _ = reply.send(spawn(&mut command, &files));
                // The files close here: from now on only the child has them open.
            }
        });
        Spawner { requests: Some(requests), thread: Some(thread) }
    }

    /// Starts a process that inherits `files` under their current descriptors, is killed when this
    /// spawner is dropped, and is in a process group of its own, out of reach of the terminal's
    /// signals.
    pub(crate) fn spawn(&self, command: Command, files: Vec<File>) -> io::Result<Child> {
        let (reply, answer) = channel();
        let gone = || io::Error::other("the thread that starts guests has exited");
        let requests = self.requests.as_ref().ok_or_else(gone)?;
        requests.send((command, files, reply)).map_err(|_| gone())?;
        answer.recv().map_err(|_| gone())?
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        drop(self.requests.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn spawn(command: &mut Command, files: &[File]) -> io::Result<Child> {
    let inherited: Vec<RawFd> = files.iter().map(|file| file.as_fd().as_raw_fd()).collect();
    let parent = getpid();
    command.process_group(0);
    // SAFETY: the closure runs between fork and exec and only makes system calls; it reads a vector
    // made before the fork and allocates nothing unless it fails.
    unsafe {
        command.pre_exec(move || prepare_child(parent, &inherited));
    }
    command.spawn()
}

/// Runs in the child before it executes QEMU.
fn prepare_child(parent: Pid, inherited: &[RawFd]) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // A parent that died before that call causes no signal.
    if getppid() != Some(parent) {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    for fd in inherited {
        // SAFETY: the parent keeps these files open until the child has started, and the child has
        // its own copies since the fork.
        let fd = unsafe { BorrowedFd::borrow_raw(*fd) };
        rustix::io::fcntl_setfd(fd, FdFlags::empty())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::ProcessId;
    use std::io::Write;
    use std::process::Stdio;
    use std::time::{Duration, Instant};

    #[test]
    fn children_die_with_the_spawner() {
        let spawner = Spawner::start();
        let mut command = Command::new("sleep");
        command.arg("1000");
        let mut child = spawner.spawn(command, Vec::new()).unwrap();
        let process = ProcessId::of(child.id()).unwrap();
        assert!(process.is_alive());
        drop(spawner);
        let end = Instant::now() + Duration::from_secs(20);
        while process.is_alive() {
            assert!(Instant::now() < end, "the child outlived its spawner");
            std::thread::sleep(Duration::from_millis(5));
        }
        child.wait().unwrap();
    }

    #[test]
    fn files_are_inherited_under_their_descriptors() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"from the parent").unwrap();
        let fd = file.as_raw_fd();
        let spawner = Spawner::start();
        let mut command = Command::new("cat");
        command.arg(format!("/proc/self/fd/{fd}")).stdout(Stdio::piped());
        let child = spawner.spawn(command, vec![file]).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "from the parent");
    }

    #[test]
    fn missing_program_is_an_error() {
        let spawner = Spawner::start();
        assert!(spawner.spawn(Command::new("/no/such/program"), Vec::new()).is_err());
    }
}
