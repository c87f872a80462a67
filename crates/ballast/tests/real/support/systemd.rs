//! A systemd of the test's own, under which a test runs once more, beside a unit that is shipped.
//!
//! Idea: systemd becomes the first process of namespaces of processes, mounts and cgroups, whose
//! root is this machine's but for the folders that a service's files lie in. One of its services
//! runs the very test program, with the one test, and systemd exits with that one's status. So a
//! unit is started by systemd itself, with all its settings, and its daemon sees what that test
//! starts.
//! Cost: a second. Limits: needs root. The kernel, its devices and its swap are this machine's:
//! rights that root does not have here, services do not have either, and where the kernel has the
//! controllers of processes in cgroups of version 1, `TasksMax` limits nothing.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::PATIENCE;

const SCRIPT: &str = include_str!("systemd.sh");
const SYSTEMD: &str = "/lib/systemd/systemd";
/// In the environment of a test that runs there.
const INSIDE: &str = "BALLAST_TEST_UNDER_SYSTEMD";
/// Targets that services refer to, which are empty here.
const TARGETS: [&str; 3] = ["sysinit.target", "basic.target", "shutdown.target"];
const TARGET: &str = "[Unit]\nDefaultDependencies=no\n";
/// The fleet's program, inside.
pub const FLEET: &str = "/run/lab/ballast-fleet";
/// Longest run.
const RUN_MAX: Duration = PATIENCE.saturating_mul(2);

/// Whether this is such a run.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs the test of this name under systemd, where `unit` is `ballast.service`, not started yet,
/// and this program is the `ballast` of its path. Prints why, if this machine cannot do that.
pub fn run_again(test: &str, unit: &str) {
    let unit = unit.replace("/usr/bin/ballast", "/usr/local/bin/ballast");
    run(test, &[("ballast.service", &unit)], env!("CARGO_BIN_EXE_ballast"), &[]);
}

/// The same, where `fleet` is `ballast-fleet.service` and this is the folder of its program, which
/// was built beside this one. Prints why, if it was not.
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

/// The same where packages may be installed, which have the unit and the program: all that they
/// write is gone with systemd.
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
        // There is no journal of systemd's to take it.
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
    // Everything in there ends with this, if only because this process is killed.
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

/// Why this machine cannot run systemd that way.
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

/// What `systemctl` prints.
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
