//! What the benchmark of the running daemon stands on: the daemon, the process of the peers it
//! speaks with, and what a process has used.

#![allow(unreachable_pub)] // one benchmark is all that uses it

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const ROLE: &str = "BALLAST_BENCH_ROLE";
const FOLDER: &str = "BALLAST_BENCH_FOLDER";

/// What this process was started as, and its folder; `None`: it is the one that measures.
pub fn own_role() -> Option<(String, PathBuf)> {
    Some((std::env::var(ROLE).ok()?, std::env::var_os(FOLDER)?.into()))
}

/// The process of the peers.
pub struct Peers(Child);

impl Peers {
    /// Starts it as `name` and waits until all are there.
    pub fn start(name: &str, folder: &Path) -> Peers {
        let mut command = role(name, folder);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut peers = Peers(child.expect("the peers' process"));
        peers.line();
        peers
    }

    /// The next line that it prints.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        let output = self.0.stdout.as_mut().expect("piped");
        BufReader::with_capacity(1, output).read_line(&mut line).expect("the peers' word");
        line.trim_end().to_owned()
    }

    /// Ends it.
    pub fn end(mut self) {
        drop(self.0.stdin.take());
        self.0.wait().expect("the peers' end");
    }
}

/// This program in another role.
pub fn role(role: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command.env(ROLE, role).env(FOLDER, folder);
    command
}

/// The daemon on the guests of `qmp`, which may have `budget` together; `more` is added to its
/// configuration.
pub fn start_daemon(ground: &Path, qmp: &Path, budget: &str, more: &str) -> Child {
    let config = ground.join("ballast.toml");
    let text = format!(
        "[daemon]\nsocket = {:?}\nraise_priority = false\n[qmp]\nfolders = [{qmp:?}]\n\
         [host]\nbudget = {budget:?}\nreserve = \"0\"\n[journal]\npath = {:?}\n{more}\n",
        ground.join("api.sock"),
        ground.join("journal.db"),
    );
    std::fs::write(&config, text).expect("a configuration");
    Command::new(env!("CARGO_BIN_EXE_ballast"))
        .args(["daemon", "--config"])
        .arg(&config)
        .stderr(Stdio::null())
        .spawn()
        .expect("the daemon")
}

/// Processor time used in one turn, and the largest resident memory in KiB.
pub fn watch(child: &Child, warm_up: Duration, turn: Duration) -> (Duration, u64) {
    std::thread::sleep(warm_up);
    let before = processor_time(child.id());
    std::thread::sleep(turn);
    let spent = processor_time(child.id()) - before;
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
    let status = status.expect("the process is there");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = resident.and_then(|text| text.trim().split(' ').next()?.parse().ok());
    (spent, kib.expect("VmHWM in kB"))
}

/// Time all threads of a process have run.
fn processor_time(pid: u32) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process is there");
    let ran = |entry: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(entry.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    Duration::from_nanos(threads.filter_map(ran).sum())
}

/// Ends a process as a service manager does.
pub fn stop(child: &mut Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("a signal");
    child.wait().expect("its end");
}
