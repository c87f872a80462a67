//! The shipped unit of `ballast-fleet`, unchanged, started by systemd beside the daemon's.
//!
//! Idea: everything that the service needs is used once: the daemon's socket, files that only root
//! may read, etcd by TLS, the folder for notes, and the socket that the daemon's page reads the
//! fleet from. Limits: needs etcd, root, and `ballast-fleet` built beside this program.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use ballast_etcd::certificates::{CertificateAge, TestAuthority};
use ballast_etcd::testing::{EtcdCluster, is_installed};
use serde_json::Value;

use crate::harness::wait_for;
use crate::support::systemd::{self, FLEET, property_of, systemctl};

const DAEMON: &str = include_str!("../../../../packaging/ballast.service");
const UNIT: &str = include_str!("../../../../packaging/ballast-fleet.service");
const SERVICE: &str = "ballast-fleet.service";
const CONFIG: &str = "/etc/ballast/fleet.toml";
const DAEMON_SOCKET: &str = "/run/ballast/ballast.sock";
const SOCKET: &str = "/run/ballast/ballast.fleet.sock";
/// The identity of this machine, which the test writes if it is missing.
const IDENTITY: &str = "/etc/machine-id";
const LOG: &str = "/run/lab/fleet.log";

/// Waits until the fleet's status satisfies `is_so`, and returns it.
fn status(what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    wait_for(what, || {
        let mut command = Command::new(FLEET);
        let command = command.args(["status", "--json"]).stdin(Stdio::null());
        let status: Value = serde_json::from_slice(&command.output().unwrap().stdout).ok()?;
        is_so(&status).then_some(status)
    })
}

#[test]
fn the_shipped_unit_makes_a_host_a_member() {
    let test = "fleet_unit::the_shipped_unit_makes_a_host_a_member";
    if !is_installed() {
        return;
    }
    if !systemd::is_inside() {
        return systemd::run_again_in_a_fleet(test, DAEMON, UNIT);
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let authority = TestAuthority::new(folder.path(), "ca").unwrap();
    let sign = |name| authority.sign(name, &["127.0.0.1"], CertificateAge::Valid).unwrap();
    let (server, host) = (sign("server"), sign("host"));
    let cluster = runtime.block_on(EtcdCluster::start_tls(1, &authority, &server)).unwrap();
    fs::create_dir_all("/etc/ballast").unwrap();
    if fs::read_to_string(IDENTITY).is_ok_and(|text| text.trim().is_empty()) {
        fs::write(IDENTITY, "0123456789abcdef0123456789abcdef\n").unwrap();
    }
    fs::write("/etc/ballast/ballast.toml", "[host]\nbudget = \"1GiB\"\n").unwrap();
    // The service's private temporary folder is empty, so the files lie where an operator has
    // them.
    let files = [
        (&authority.certificate, "ca.pem", 0o644),
        (&host.certificate, "host.pem", 0o644),
        (&host.key, "host-key.pem", 0o600),
    ];
    for (from, to, mode) in files {
        let to = format!("/etc/ballast/{to}");
        fs::copy(from, &to).unwrap();
        fs::set_permissions(to, fs::Permissions::from_mode(mode)).unwrap();
    }
    let config = format!(
        "cluster = \"test\"\nhost = \"node-1\"\nendpoints = {:?}\nbandwidth = \"1GiB\"\n\
         lease = \"3s\"\ntick = \"1s\"\n[tls]\nca = \"/etc/ballast/ca.pem\"\n\
         certificate = \"/etc/ballast/host.pem\"\nkey = \"/etc/ballast/host-key.pem\"\n\
         [compatibility]\nhypervisor = \"qemu\"\nversion = \"7.2\"\ncpu_model = \"EPYC\"\n",
        cluster.endpoints()
    );

    // A mistake in the configuration is reported at the start.
    fs::write(CONFIG, config.replace("bandwidth", "bandwith")).unwrap();
    let mut begin = Command::new("systemctl");
    let begun = begin.args(["start", SERVICE]).stdin(Stdio::null()).output().unwrap();
    assert!(!begun.status.success(), "{begun:?}");
    let log = fs::read_to_string(LOG).unwrap();
    assert!(log.contains("did you mean `bandwidth`"), "{log}");

    fs::write(CONFIG, config).unwrap();
    systemctl(&["reset-failed", SERVICE]);
    systemctl(&["start", "ballast.service", SERVICE]);
    assert_eq!(property_of(SERVICE, "ActiveState"), "active");
    let seen = status("a leader", |it| it["leader"] == "node-1" && it["hosts"][0]["guests"] == 0);
    assert_eq!(seen["hosts"][0]["budget_bytes"], 1_u64 << 30);
    assert_confined(&property_of(SERVICE, "MainPID"));
    assert_eq!(fs::metadata(SOCKET).unwrap().permissions().mode() & 0o777, 0o600);

    // The daemon has no network; it asks the member over a socket for its page.
    let reply = runtime.block_on(ballast_api::Client::new(DAEMON_SOCKET).fleet()).unwrap();
    assert_eq!(reply.status.unwrap()["leader"], "node-1");

    systemctl(&["stop", SERVICE]);
    assert_eq!(property_of(SERVICE, "Result"), "success");
    status("nobody left", |it| it["hosts"].as_array().is_some_and(Vec::is_empty));
    let log = fs::read_to_string(LOG).unwrap();
    for refusal in ["(os error 1)", "(os error 13)", "(os error 30)", "(os error 38)"] {
        assert!(!log.contains(refusal), "{log}");
    }
    systemctl(&["stop", "ballast.service"]);
}

/// Asserts that the unit's settings are in force, not only accepted.
fn assert_confined(process: &str) {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.unwrap().trim().to_owned()
    };
    assert_eq!((value("Seccomp"), value("NoNewPrivs")), ("2".to_owned(), "1".to_owned()));
    let rights = u64::from_str_radix(&value("CapEff"), 16).unwrap();
    assert!(rights.count_ones() <= 1, "{rights:x}");
}
