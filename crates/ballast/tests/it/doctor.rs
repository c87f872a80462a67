//! Tests of `ballast doctor` on the machine that runs them, without a daemon and with one.
//!
//! Limits: asserts which checks are made and the form of the findings, not their content.

use crate::harness::{Daemon, Testbed, finding, guest, wait_for};
use ballast_cloud_hypervisor::testing::Machine as CloudHypervisor;
use ballast_firecracker::testing::Machine as Firecracker;
use ballast_qmp_testing::{Peer, PeerConfig};
use ballast_rest::testing::{Reply, RestServer};
use serde_json::Value;

/// The topics that every host has a finding about.
const HOST_TOPICS: [&str; 14] = [
    "cgroups",
    "damon",
    "huge-pages",
    "kernel",
    "ksm",
    "memory",
    "mglru",
    "numa",
    "overcommit",
    "pressure",
    "swap",
    "swappiness",
    "userfaultfd",
    "zswap",
];

/// The findings of a run; asserts that its exit status agrees with the worst of them.
fn findings(testbed: &Testbed, arguments: &[&str]) -> Vec<Value> {
    let (code, mut reply) = testbed.doctor(arguments);
    assert_eq!(reply["config"].as_str(), testbed.config_file().to_str());
    let order = ["ok", "note", "warning", "problem"];
    let worst = order.iter().position(|it| reply["worst"] == **it).unwrap();
    assert_eq!(code, Some(i32::from(worst > 1)), "{reply}");
    let Value::Array(findings) = reply["findings"].take() else { panic!("{reply}") };
    let mut seen = 0;
    for finding in &findings {
        let severity = order.iter().position(|it| finding["severity"] == **it).unwrap();
        seen = seen.max(severity);
        for key in ["area", "topic", "found", "why"] {
            let text = finding[key].as_str().unwrap();
            assert!(!text.is_empty() && !text.contains('\n'), "{key} of {finding}");
        }
        assert!(finding["why"].as_str().unwrap().ends_with('.'), "a sentence: {finding}");
    }
    assert_eq!(seen, worst);
    findings
}

fn reports(daemon: &Daemon<'_>, name: &str) -> Option<()> {
    guest(&daemon.status()?, name)?.stats_age_ms.map(drop)
}

#[test]
fn this_machine_is_judged_without_a_daemon() {
    let testbed = Testbed::new();
    testbed.configure("", "");
    let found = findings(&testbed, &[]);
    let mut host: Vec<&str> = found
        .iter()
        .filter(|it| it["area"] == "host")
        .map(|it| it["topic"].as_str().unwrap())
        .collect();
    host.sort_unstable();
    assert_eq!(host, HOST_TOPICS);
    let (severity, text) = finding(&found, "daemon", None);
    assert!(severity == "note" && text.contains("no daemon listens on"), "{text}");
    assert_eq!(finding(&found, "journal", None).0, "ok");
    let folder = testbed.path("qmp");
    assert_eq!(finding(&found, "qmp", folder.to_str()), ("note", "no sockets of guests"));

    let found = findings(&testbed, &["host"]);
    assert!(found.iter().all(|it| it["area"] != "guests"), "{found:?}");
    let found = findings(&testbed, &["guests"]);
    assert_eq!(finding(&found, "daemon", None).0, "problem", "what was asked for cannot be done");
    let config = testbed.config_file();
    let (_, out, _) = testbed.ballast(&["doctor", "--config", config.to_str().unwrap()]);
    for part in ["HOST", "HYPERVISORS", "GUESTS", "OWNERS", "PERMISSIONS", "not looked at"] {
        assert!(out.contains(part), "{part} in {out}");
    }
}

#[test]
fn guests_of_a_daemon_are_judged_and_its_sockets_left() {
    let testbed = Testbed::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let _runtime = runtime.enter();
    let _peer = Peer::spawn(&testbed.guest("web"), PeerConfig::default()).unwrap();
    std::fs::write(testbed.guest("file"), "").unwrap();
    testbed.configure("tick = \"100ms\"", "");
    let config = testbed.config_file();
    let folder = testbed.path("qmp");

    // Without a daemon the doctor asks the socket itself.
    let found = findings(&testbed, &["host"]);
    assert_eq!(finding(&found, "qmp", folder.to_str()).0, "warning", "a file is no socket");
    let usable = "1 of 1 sockets are usable";
    assert!(found.iter().any(|it| it["found"] == usable), "{found:?}");

    let daemon = testbed.start();
    wait_for("statistics", || reports(&daemon, "web"));
    let found = findings(&testbed, &[]);
    assert!(found.iter().any(|it| it["found"] == usable), "the daemon has it: {found:?}");
    assert_eq!(finding(&found, "monitor", Some("web")), ("ok", "running"));
    assert_eq!(finding(&found, "balloon", Some("web")), ("ok", "has a balloon device"));
    let (severity, text) = finding(&found, "statistics", Some("web"));
    assert!(severity == "ok" && text.starts_with("the driver reports, last "), "{text}");
    assert_eq!(finding(&found, "journal", None), ("ok", "the daemon records"));
    let (_, text) = finding(&found, "daemon-rights", None);
    assert!(text.contains(&format!("process {}", daemon.pid())), "{text}");

    let found = findings(&testbed, &["guests", "web"]);
    assert!(found.iter().all(|it| it["subject"] == "web"), "{found:?}");
    let line = ["doctor", "guests", "db", "--config", config.to_str().unwrap()];
    let (code, out, err) = testbed.ballast(&line);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.contains("no guest `db`: it knows web"), "{err}");
    assert!(daemon.stop().success());
}

/// The sockets of two guests of each hypervisor, a good one and one without most devices, and of a
/// web server.
fn light_guests(testbed: &Testbed) -> Vec<RestServer> {
    let (folder, other) = (testbed.path("ch"), testbed.path("fc"));
    for folder in [&folder, &other] {
        std::fs::create_dir(folder).unwrap();
    }
    let mut whole = CloudHypervisor::new();
    let mut bare = whole.clone();
    let config = bare.config.as_mut().unwrap();
    (config["balloon"], config["vsock"]) = (Value::Null, Value::Null);
    let (mut reports, mut blind) = (Firecracker::new(60), Firecracker::new(0));
    vec![
        RestServer::start(&folder.join("whole.sock"), move |asked| whole.answer(asked)),
        RestServer::start(&folder.join("bare.sock"), move |asked| bare.answer(asked)),
        RestServer::start(&folder.join("page.sock"), |_| Reply::Html(200)),
        RestServer::start(&other.join("reports.sock"), move |asked| reports.answer(asked)),
        RestServer::start(&other.join("blind.sock"), move |asked| blind.answer(asked)),
    ]
}

#[test]
fn sockets_of_rest_apis_are_judged_and_nothing_changed() {
    let testbed = Testbed::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let _runtime = runtime.enter();
    let servers = light_guests(&testbed);
    let more = format!(
        "[cloud_hypervisor]\nsockets = [\"{0}/ch/*.sock\"]\n\
         [firecracker]\nsockets = [\"{0}/fc/*.sock\"]\n[agents]\nvsock = true",
        testbed.path("").display()
    );
    testbed.configure("tick = \"100ms\"", &more);
    testbed.configure_to_observe();
    let found = findings(&testbed, &["host"]);
    let of = |socket: &str| {
        let path = testbed.path(socket).display().to_string();
        let of_socket = found.iter().filter(|it| it["subject"] == *path);
        of_socket
            .map(|it| format!("{}: {} $ {}", it["severity"], it["found"], it["remedy"]))
            .collect::<Vec<_>>()
            .join("\n")
    };
    let has = |socket: &str, parts: &[&str]| {
        let text = of(socket);
        assert!(parts.iter().all(|part| text.contains(part)), "{parts:?} in {text}");
    };
    has("ch/whole.sock", &["Cloud Hypervisor 53.0.0 answers", "has a balloon;", "/run/a.vsock"]);
    has("ch/bare.sock", &["no balloon", "--balloon size=0", "--vsock cid=3,socket="]);
    has("ch/page.sock", &["warning", "no guest of Cloud Hypervisor", "correct sockets"]);
    has("fc/reports.sock", &["Firecracker 1.16.1 answers", "has a balloon with statistics"]);
    has("fc/blind.sock", &["problem", "configured without statistics", "stats_polling_interval_s"]);
    for server in &servers {
        assert_eq!(server.take_changes(), [""; 0]);
    }

    let daemon = testbed.start();
    wait_for("the guests", || guest(&daemon.status()?, "bare")?.boot_bytes);
    let found = findings(&testbed, &["guests", "bare", "whole"]);
    let remedies: Vec<&str> = found.iter().filter_map(|it| it["remedy"].as_str()).collect();
    assert!(remedies.iter().any(|it| it.starts_with("cloud-hypervisor … --balloon")), "{found:?}");
    assert!(remedies.iter().all(|it| !it.contains("qemu") && !it.contains("virsh")), "{found:?}");
    assert!(daemon.stop().success());
}

#[test]
fn a_bad_configuration_is_an_error_that_names_it() {
    let testbed = Testbed::new();
    std::fs::write(testbed.config_file(), "[host]\nreserv = 1\n").unwrap();
    let config = testbed.config_file();
    let (code, out, err) = testbed.ballast(&["doctor", "--config", config.to_str().unwrap()]);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.contains("ballast.toml:2:1: unknown key `reserv`"), "{err}");
    let (code, _, _) = testbed.ballast(&["doctor", "everything"]);
    assert_eq!(code, Some(2));
}
