//! Tests of the shipped systemd unit: systemd accepts it and rates it as sufficiently confined, and
//! the daemon works with the rights that it leaves.
//!
//! Limits: systemd is not started here; in `tests/real/unit.rs` one starts the unit, beside real
//! guests.

use std::fs;
use std::process::{Command, Output, Stdio};

use crate::harness::{Testbed, wait_for};
use ballast_qmp_testing::{Peer, PeerConfig};

/// The unit as it is shipped.
const UNIT: &str = include_str!("../../../../packaging/ballast.service");

/// Most exposure that `systemd-analyze security` may find, in tenths: 40 is "OK".
const EXPOSURE_MAX: u32 = 40;

/// Runs `systemd-analyze` on the unit with this program in it. Prints that the test is skipped and
/// returns `None` if there is none.
fn analyze(arguments: &[&str]) -> Option<Output> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ballast.service");
    fs::write(&path, UNIT.replace("/usr/bin/ballast", crate::PROGRAM)).unwrap();
    let mut command = Command::new("systemd-analyze");
    match command.args(arguments).arg(&path).stdin(Stdio::null()).output() {
        Ok(output) => Some(output),
        Err(error) => {
            println!("SKIPPED: systemd-analyze: {error}: run scripts/setup");
            None
        }
    }
}

/// The values of a key of the unit, in order.
fn values(key: &str) -> Vec<&'static str> {
    UNIT.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
}

#[test]
fn systemd_understands_every_line_of_the_unit() {
    let Some(output) = analyze(&["verify", "--man=no"]) else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    // It also checks units of the machine.
    let own: Vec<&str> = said.lines().filter(|line| line.contains("ballast.service")).collect();
    assert!(output.status.success() && own.is_empty(), "{own:?}");
}

#[test]
fn systemd_finds_the_unit_closed_enough() {
    let threshold = format!("--threshold={EXPOSURE_MAX}");
    let Some(output) = analyze(&["security", "--offline=true", "--no-pager", &threshold]) else {
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn the_unit_makes_every_folder_of_the_default_configuration() {
    let made = values("ExecStartPre").join(" ");
    let config = ballast_config::parse("", "ballast.toml".as_ref()).unwrap();
    let agents = ballast_config::parse("[agents]\nenabled = true\n", "ballast.toml".as_ref());
    let folders = config.qmp_folders.into_iter().chain(agents.unwrap().agents.unwrap().folders);
    for folder in folders {
        let folder = folder.display().to_string();
        assert!(made.split(' ').any(|word| word == folder), "{folder} is not in {made}");
    }
}

/// Needs root; the daemon gets only the capabilities that the unit grants.
#[test]
fn the_units_capabilities_suffice_for_foreign_guests() {
    const HYPERVISOR: u32 = 64_055;
    if !rustix::process::geteuid().is_root() {
        return println!("SKIPPED: only root can be left with some of its capabilities");
    }
    let testbed = Testbed::new();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let _runtime = runtime.enter();
    let socket = testbed.guest("a");
    let _peer = Peer::spawn(&socket, PeerConfig::default()).unwrap();
    // As QEMU leaves its socket: only its own user may write to it.
    std::os::unix::fs::chown(&socket, Some(HYPERVISOR), None).unwrap();
    fs::set_permissions(&socket, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    testbed.configure("tick = \"100ms\"\ngroup = \"nogroup\"", "");
    let kept: Vec<String> = values("CapabilityBoundingSet")
        .iter()
        .flat_map(|line| line.split(' '))
        .map(|name| format!("+{}", name.trim_start_matches("CAP_").to_lowercase()))
        .collect();
    let mut daemon = Command::new("setpriv")
        .arg(format!("--bounding-set=-all,{}", kept.join(",")))
        .arg("--no-new-privs")
        .args([crate::PROGRAM, "daemon", "--config"])
        .arg(testbed.config_file())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let said = wait_for("the guest", || {
        let (_, out, _) = testbed.ballast(&["status"]);
        out.contains("running").then_some(out)
    });
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&daemon),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    assert!(wait_for("its end", || daemon.try_wait().unwrap()).success(), "{said}");
}
