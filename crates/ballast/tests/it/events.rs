//! The daemon runs a real script for events of its guests and its host.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use ballast_model::Bytes;
use ballast_qmp_testing::PeerConfig;
use serde_json::Value;

use crate::daemon::{BUDGET, FAST, Peers};
use crate::harness::{Testbed, wait_for};

/// Writes a script for a daemon of this testbed, and returns the table of the configuration that
/// names it.
fn script(testbed: &Testbed, text: &str) -> String {
    let path: PathBuf = testbed.path("told");
    let events = testbed.path("events");
    fs::write(&path, format!("#!/bin/sh\nevents={}\n{text}\n", events.display())).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    format!("[events]\nrun = {path:?}\napart = \"0s\"\ntimeout = \"500ms\"")
}

/// The events that the script has written, one a line.
fn events(testbed: &Testbed) -> Vec<Value> {
    let text = fs::read_to_string(testbed.path("events")).unwrap_or_default();
    // A line that is just being written has no end yet.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_script_hears_of_stuck_guests_and_a_short_host() {
    let (testbed, peers) = (Testbed::new(), Peers::new());
    let _busy = peers.using(&testbed, "busy", 600);
    let unmoved =
        PeerConfig { used: Bytes::mib(100), rate_per_sec: Bytes::ZERO, ..PeerConfig::default() };
    let _stuck = peers.spawn(&testbed, "stuck", unmoved);
    // One write per line, because scripts for two kinds of events run at the same time.
    let events_table =
        script(&testbed, "line=$(cat); echo \"$line\" >>$events; echo heard of $BALLAST_EVENT");
    let guard = "[guard]\nstuck_after = \"1s\"\nrelease_grace = \"0s\"";
    testbed.configure(FAST, &format!("{BUDGET}\n{guard}\n{events_table}"));
    let daemon = testbed.start();
    let event = wait_for("the event", || events(&testbed).into_iter().next());
    assert_eq!(event["event"], "guest-stuck", "{event}");
    assert_eq!((&event["guest"], &event["state"]), (&"stuck".into(), &"begun".into()));
    assert!(event["text"].as_str().unwrap().starts_with("stuck, released nothing for"), "{event}");
    wait_for("the output in the log", || {
        testbed.log().contains("guest-stuck: heard of guest-stuck").then_some(())
    });
    assert!(daemon.stop().success());

    testbed.configure(FAST, &format!("[host]\nreserve = \"1000TiB\"\n{events_table}"));
    let daemon = testbed.start();
    let event = wait_for("the host's event", || {
        events(&testbed).into_iter().find(|it| it["event"] == "host-short")
    });
    assert_eq!(event["guest"], Value::Null);
    // The levels are reached one after the other; together they are one event.
    wait_for("the last level", || (daemon.status()?.host_pressure.code == "freeze").then_some(()));
    let short = events(&testbed).into_iter().filter(|it| it["event"] == "host-short");
    assert_eq!(short.count(), 1);
    assert!(daemon.stop().success());
}

#[test]
fn a_script_that_hangs_delays_no_tick() {
    let (testbed, peers) = (Testbed::new(), Peers::new());
    let _guest = peers.using(&testbed, "a", 100);
    let events_table = script(&testbed, "sleep 1000");
    testbed.configure(FAST, &format!("[host]\nreserve = \"1000TiB\"\n{events_table}"));
    let daemon = testbed.start();
    wait_for("the script's end", || {
        testbed.log().contains("was killed: it took longer than 500ms").then_some(())
    });
    let ticks = daemon.status().unwrap().daemon.unwrap().ticks;
    wait_for("more ticks", || (daemon.status()?.daemon?.ticks > ticks + 3).then_some(()));
    assert!(daemon.stop().success());
}
