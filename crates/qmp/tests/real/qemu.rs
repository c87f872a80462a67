//! A QEMU process without a guest system, killed when dropped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running QEMU.
pub(crate) struct Qemu {
    child: Child,
    socket: PathBuf,
}

impl Qemu {
    /// Starts QEMU with 256 MiB and a QMP socket, and waits until the socket accepts connections.
    pub(crate) fn start(socket: &Path, arguments: &[&str]) -> Qemu {
        let child = Command::new("qemu-system-x86_64")
            .args(["-S", "-nodefaults", "-display", "none", "-accel", "tcg", "-m", "256"])
            .args(["-machine", "q35"])
            .arg("-qmp")
            .arg(format!("unix:{},server=on,wait=off", socket.display()))
            .args(arguments)
            .stdin(Stdio::null())
            .spawn()
            .expect("cannot start qemu-system-x86_64: install the package qemu-system-x86");
        let mut qemu = Qemu { child, socket: socket.to_owned() };
        let begun = Instant::now();
        while std::os::unix::net::UnixStream::connect(socket).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(30), "QEMU makes no socket");
            assert_eq!(qemu.child.try_wait().unwrap(), None, "QEMU ended by itself");
            std::thread::sleep(Duration::from_millis(10));
        }
        qemu
    }

    /// Its QMP socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops the process, as if it hung.
    pub(crate) fn stop(&self) {
        self.signal("-STOP");
    }

    /// Resumes the process.
    pub(crate) fn resume(&self) {
        self.signal("-CONT");
    }

    /// Sends SIGTERM and waits for the process to end; it removes its socket.
    ///
    /// A signal that comes before QEMU catches it kills QEMU at once and leaves the socket behind.
    /// QEMU 7.2 may hang in its monitor's dispatcher if a request arrives while it ends; the next
    /// signal wakes it.
    pub(crate) fn terminate(&mut self) {
        let begun = Instant::now();
        while !self.catches_termination() {
            assert!(begun.elapsed() < Duration::from_secs(30), "QEMU does not catch SIGTERM");
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut signals = 0;
        while self.child.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < Duration::from_secs(30), "QEMU does not end");
            if begun.elapsed() >= Duration::from_secs(signals) {
                self.signal("-TERM");
                signals += 1;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn catches_termination(&self) -> bool {
        const SIGTERM: u32 = 15;
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << (SIGTERM - 1)) != 0
    }

    /// Kills the process; its socket stays behind.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.pid().to_string()]).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
