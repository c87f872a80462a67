//! A daemon under test: the real program, with its own configuration, socket and journal in a
//! temporary folder. Tests wait for states with generous limits, because the machine may be busy.

#![allow(dead_code, unreachable_pub)] // each test file uses its part

pub mod terminal;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use ballast_api::StatusReply;
use serde_json::Value;
use tempfile::TempDir;

/// Longest wait for a state. Guests under KVM on emulated hardware need minutes for some.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Waits until `check` returns a value; panics with `what` otherwise.
pub fn wait_for<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A folder with everything one daemon needs.
pub struct Testbed {
    folder: TempDir,
}

impl Testbed {
    pub fn new() -> Self {
        Testbed::within(&std::env::temp_dir())
    }

    /// As `new`, in the folder `parent`.
    pub fn within(parent: &Path) -> Self {
        let folder = tempfile::tempdir_in(parent).unwrap();
        fs::create_dir(folder.path().join("qmp")).unwrap();
        Testbed { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The QMP socket of the guest called `name`.
    pub fn guest(&self, name: &str) -> PathBuf {
        self.path("qmp").join(format!("{name}.sock"))
    }

    pub fn config_file(&self) -> PathBuf {
        self.path("ballast.toml")
    }

    pub fn journal(&self) -> PathBuf {
        self.path("journal.db")
    }

    /// Writes the configuration: what every test needs, with a fast tick; `daemon` is more for the
    /// table `[daemon]`, `more` are other tables.
    pub fn configure(&self, daemon: &str, more: &str) {
        self.configure_for(&self.path("qmp"), daemon, more);
    }

    /// The same, with the guests' sockets in the folder `qmp`.
    pub fn configure_for(&self, qmp: &Path, daemon: &str, more: &str) {
        let text = format!(
            "[daemon]\nsocket = {:?}\nraise_priority = false\n{daemon}\n\
             [qmp]\nfolders = [{qmp:?}]\n[journal]\npath = {:?}\n{more}\n",
            self.path("api.sock"),
            self.journal(),
        );
        fs::write(self.config_file(), text).unwrap();
    }

    /// Adds `mode = "observe"` to the configuration that was written.
    pub fn configure_to_observe(&self) {
        let text = fs::read_to_string(self.config_file()).unwrap();
        fs::write(self.config_file(), format!("mode = \"observe\"\n{text}")).unwrap();
    }

    /// Starts the daemon and waits for its first tick.
    pub fn start(&self) -> Daemon<'_> {
        let daemon = self.spawn();
        wait_for("the first tick", || daemon.status());
        daemon
    }

    /// Starts the daemon without waiting.
    pub fn spawn(&self) -> Daemon<'_> {
        self.spawn_with(|_| {})
    }

    /// The same, with the command changed by `prepare`.
    pub fn spawn_with(&self, prepare: impl FnOnce(&mut Command)) -> Daemon<'_> {
        let log = fs::File::options().append(true).create(true).open(self.path("daemon.log"));
        let log = log.unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ballast"));
        command.args(["daemon", "--config"]).arg(self.config_file());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        prepare(&mut command);
        Daemon { child: Some(command.spawn().unwrap()), testbed: self }
    }

    /// A daemon that something else starts and ends, with its socket in this folder.
    pub fn of_another(&self) -> Daemon<'_> {
        Daemon { child: None, testbed: self }
    }

    /// The log of all daemons in this folder so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("daemon.log")).unwrap_or_default()
    }

    /// Runs a command against the daemon: exit status, output, errors.
    pub fn ballast(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_ballast"))
            .args(arguments)
            .env("BALLAST_SOCKET", self.path("api.sock"))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    /// Exit status and JSON of `ballast doctor` with this configuration.
    pub fn doctor(&self, subject: &[&str]) -> (Option<i32>, Value) {
        let config = self.config_file();
        let common = ["--json", "--config", config.to_str().unwrap()];
        let (code, out, err) = self.ballast(&[&["doctor"], subject, &common].concat());
        (code, serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{err}")))
    }
}

/// One finding of `ballast doctor`: its severity, and what was found.
pub fn finding<'a>(
    findings: &'a [Value],
    topic: &str,
    subject: Option<&str>,
) -> (&'a str, &'a str) {
    let is_it = |it: &&Value| it["topic"] == topic && it["subject"].as_str() == subject;
    let found = findings.iter().find(is_it);
    let found = found.unwrap_or_else(|| panic!("{topic} of {subject:?} in {findings:#?}"));
    (found["severity"].as_str().unwrap(), found["found"].as_str().unwrap())
}

/// A running daemon; killed when dropped, if the test started it.
pub struct Daemon<'a> {
    child: Option<Child>,
    testbed: &'a Testbed,
}

impl Daemon<'_> {
    /// Its status, if it answers.
    pub fn status(&self) -> Option<StatusReply> {
        let (code, out, _) = self.testbed.ballast(&["status", "--json"]);
        (code == Some(0)).then(|| serde_json::from_str(&out).unwrap())
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// `kill -9`.
    pub fn kill(mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Sends SIGTERM and returns the exit status.
    pub fn stop(self) -> ExitStatus {
        self.signal(rustix::process::Signal::TERM);
        self.ended()
    }

    /// Waits until it ends.
    pub fn ended(mut self) -> ExitStatus {
        let mut child = self.child.take().unwrap();
        wait_for("the daemon's end", || child.try_wait().unwrap())
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            if std::thread::panicking() {
                let (_, status, _) = self.testbed.ballast(&["status"]);
                eprintln!("{status}\nthe daemon's log:\n{}", self.testbed.log());
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// One guest's line of a status.
pub fn guest<'a>(status: &'a StatusReply, name: &str) -> Option<&'a ballast_api::GuestView> {
    status.guests.iter().find(|guest| guest.guest == name)
}
