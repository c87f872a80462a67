//! A systemd of the test's own, under which the test runs again, beside a shipped unit.
//!
//! Idea: systemd becomes the first process in new namespaces of processes, mounts and cgroups.
//! Their root is this machine's, except for the folders that contain a service's files. One of its
//! services runs the same test program with the one test, and systemd exits with the status of
//! that. So systemd itself starts the unit, with all its settings, and the unit's daemon sees what
//! the test starts.
//! Cost: a second. Limits: needs root. The kernel, its devices and its swap are this machine's:
//! services cannot have rights that root lacks here, and if the controller of processes is in
//! cgroups of version 1, `TasksMax` limits nothing.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::PATIENCE;

const SCRIPT: &str = include_str!("systemd.sh");
const SYSTEMD: &str = "/lib/systemd/systemd";
/// An environment variable that marks a test under that systemd.
const INSIDE: &str = "BALLAST_TEST_UNDER_SYSTEMD";
/// Targets that services refer to; they are empty here.
const TARGETS: [&str; 3] = ["sysinit.target", "basic.target", "shutdown.target"];
const TARGET: &str = "[Unit]\nDefaultDependencies=no\n";
/// The path of the fleet's program under that systemd.
pub const FLEET: &str = "/run/lab/ballast-fleet";
/// Longest run.
const RUN_MAX: Duration = PATIENCE.saturating_mul(2);

/// Whether this process runs under that systemd.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs the test of this name under systemd, with `unit` as `ballast.service`, not started yet, and
/// with the program under test as its `ballast`. Prints the reason if this machine cannot do that.
pub fn run_again(test: &str, unit: &str) {
    let unit = unit.replace("/usr/bin/ballast", "/usr/local/bin/ballast");
    run(test, &[("ballast.service", &unit)], env!("CARGO_BIN_EXE_ballast"), &[]);
}

/// The same, also with `fleet` as `ballast-fleet.service`, and with the program that was built
/// beside this one. Prints the reason if it was not built.
pub fn run_again_in_a_fleet(test: &str, unit: &str, fleet: &str) {
    let program = Path::new(env!("CARGO_BIN_EXE_ballast")).with_file_name("ballast-fleet");
    if !program.exists() {
        return println!("SKIPPED: {} is not built: cargo build", program.display());
    }
    let unit = unit.replace("/usr/bin/ballast", "/usr/local/bin/ballast");
    let fleet = fleet.replace("/usr/bin/ballast-fleet", FLEET);
    let units = [("ballast.service", &*unit), ("ballast-fleet.service", &*fleet)];
    run(test, &units, env!("CARGO_BIN_EXE_ballast"), &[&program]);
}

/// The same for packages to install, which contain the unit and the program: all that they write
/// disappears with systemd.
pub fn run_again_to_install(test: &str) {
    run(test, &[], "-", &[]);
}

fn run(test: &str, units: &[(&str, &str)], program: &str, others: &[&Path]) {
    if let Some(why) = why_not() {
        return println!("SKIPPED: {why}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("units")).unwrap();
    for (name, unit) in units {
        fs::write(path("units").join(name), unit).unwrap();
    }
    for other in others {
        fs::copy(other, path(other.file_name().unwrap().to_str().unwrap())).unwrap();
    }
    for (service, log) in [("ballast", "daemon"), ("ballast-fleet", "fleet")] {
        let folder = path("units").join(format!("{service}.service.d"));
        fs::create_dir(&folder).unwrap();
        // Logs go to files, because this systemd has no journal.
        let log = format!("[Service]\nStandardError=append:/run/lab/{log}.log\n");
        fs::write(folder.join("log.conf"), log).unwrap();
    }
    for target in TARGETS {
        fs::write(path("units").join(target), TARGET).unwrap();
    }
    fs::write(path("units/test.target"), format!("{TARGET}Wants=test.service\n")).unwrap();
    fs::write(path("units/test.service"), service(test)).unwrap();
    fs::write(path("systemd.sh"), SCRIPT).unwrap();
    let mut machine = Command::new("unshare")
        .args(["--mount", "bash"])
        .args([&path("systemd.sh"), Path::new("start"), folder.path()])
        .arg(program)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    // When this is dropped, also because this process is killed, everything in there ends.
    let held = machine.stdin.take();
    let began = Instant::now();
    let ended = loop {
        match machine.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if began.elapsed() > RUN_MAX => break None,
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    drop(held);
    let status = machine.wait().unwrap();
    let log = |name| fs::read_to_string(path(name)).unwrap_or_default();
    println!("{}", log("test.log"));
    let is_success = ended.is_some() && status.success();
    let logs = log("daemon.log") + &log("fleet.log");
    assert!(is_success, "ended: {ended:?}; the daemon's log:\n{logs}");
}

/// Why this machine cannot run systemd like that; `None`: it can.
fn why_not() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root can start a systemd of the test's own".to_owned());
    }
    if !Path::new(SYSTEMD).exists() {
        return Some(format!("there is no {SYSTEMD}: run scripts/setup"));
    }
    let namespaces = ["--mount", "--pid", "--uts", "--ipc", "--cgroup", "--fork", "true"];
    let tried = Command::new("unshare").args(namespaces).output();
    match tried {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(why) => Some(format!("unshare: {why}")),
    }
}

/// A unit that runs the test and ends systemd.
fn service(test: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let folder = std::env::current_dir().unwrap();
    let is_name = |name: &str| name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_');
    let names: Vec<String> = std::env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok().filter(|it| is_name(it)))
        .collect();
    format!(
        "[Unit]\nDefaultDependencies=no\nSuccessAction=exit-force\nFailureAction=exit-force\n\
         [Service]\nExecStart={} --exact {test} --nocapture\nWorkingDirectory={}\n\
         PassEnvironment={} TMPDIR\nEnvironment={INSIDE}=1\n\
         StandardOutput=append:/run/lab/test.log\nStandardError=append:/run/lab/test.log\n",
        program.display(),
        folder.display(),
        names.join(" "),
    )
}

/// The output of `systemctl`.
pub fn systemctl(arguments: &[&str]) -> String {
    let output = Command::new("systemctl").args(arguments).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "systemctl {arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// A property of `ballast.service`.
pub fn property(name: &str) -> String {
    property_of("ballast.service", name)
}

/// A property of a unit.
pub fn property_of(unit: &str, name: &str) -> String {
    systemctl(&["show", "--property", name, "--value", unit]).trim().to_owned()
}
