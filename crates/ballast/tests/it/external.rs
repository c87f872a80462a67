//! The policy `external`: the program of the documentation's example, and programs that fail.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ballast_api::StatusReply;
use ballast_model::{Bytes, PolicyAnswer};
use rustix::process::{Pid, Signal, kill_process};

use crate::daemon::{Peers, replay};
use crate::harness::{Daemon, Testbed, wait_for};

/// A long tick: a program has half a tick to answer, and the machine may be busy.
const TICK: &str = "tick = \"600ms\"";
/// What the example gives a peer that uses 600 MiB: 740 MiB as `global` does, and half of the 44
/// MiB that are left.
const BY_EXAMPLE: Bytes = Bytes::mib(762);
/// What `global` gives the same peer.
const BY_GLOBAL: Bytes = Bytes::mib(740);

fn configure(testbed: &Testbed, program: &Path, args: &[&str]) {
    let more = format!(
        "[host]\nbudget = \"1GiB\"\nreserve = \"0\"\n[policy]\nname = \"external\"\ninterval = \"600ms\"\n\
         believed_without_evidence = 1000\n[policy.external]\nprogram = {program:?}\nargs = {args:?}"
    );
    testbed.configure(TICK, &more);
}

fn holds(peer: &ballast_qmp_testing::Peer, wanted: Bytes) -> Option<()> {
    (peer.allocation().abs_diff(wanted) <= Bytes::mib(10)).then_some(())
}

/// The note about an answer that was not used.
fn unanswered(status: &StatusReply) -> Option<String> {
    let note = status.notes.iter().find(|note| note.code == "unanswered");
    note.map(|note| note.text.clone())
}

/// The process of the program that a daemon has started.
fn program_of(daemon: &Daemon<'_>) -> Option<Pid> {
    let parent = format!("PPid:\t{}\n", daemon.pid());
    let found = fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        (status.contains(&parent) && !status.contains("State:\tZ")).then_some(pid)
    });
    Pid::from_raw(found?)
}

#[test]
fn the_documented_example_decides_and_replays() {
    if Command::new("python3").arg("--version").output().is_err() {
        println!("SKIPPED: no python3 here");
        return;
    }
    let (testbed, peers) = (Testbed::new(), Peers::new());
    let busy = peers.using(&testbed, "busy", 600);
    let _idle = peers.using(&testbed, "idle", 100);
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/external-policy.py");
    configure(&testbed, &example.canonicalize().unwrap(), &[]);
    let daemon = testbed.start();
    wait_for("its targets", || holds(&busy, BY_EXAMPLE));
    let (_, output, _) = testbed.ballast(&["explain", "busy"]);
    assert!(output.contains("the policy's program answered"), "{output}");

    let first = program_of(&daemon).unwrap();
    kill_process(first, Signal::KILL).unwrap();
    wait_for("the log to say so", || {
        testbed.log().contains("the policy's program ended: signal: 9").then_some(())
    });
    wait_for("another one to decide", || {
        let is_new = program_of(&daemon).is_some_and(|pid| pid != first);
        (is_new && unanswered(&daemon.status()?).is_none()).then_some(())
    });
    wait_for("the log to say that, too", || {
        testbed.log().contains("the policy's program decides again").then_some(())
    });
    wait_for("its targets, still", || holds(&busy, BY_EXAMPLE));
    assert_eq!(daemon.status().unwrap().daemon.unwrap().plans_refused, 0);
    assert!(daemon.stop().success());
    let answers = replay(&testbed);
    let (mut answered, mut faults) = (0, 0);
    for answer in answers.iter().flatten() {
        match answer {
            PolicyAnswer::Targets(_) => answered += 1,
            PolicyAnswer::Fault(_) => faults += 1,
        }
    }
    assert!(answered > 3 && faults > 0, "{answered} answers, {faults} faults");
}

#[test]
fn programs_that_fail_leave_the_balancing_to_global() {
    let (shell, missing) = (PathBuf::from("/bin/sh"), PathBuf::from("/no/such/program"));
    for (program, args, reason) in [
        (&shell, &["-c", "read line; exec cat /dev/zero"][..], "longer than 1MiB"),
        (&shell, &["-c", "exec sleep 600"], "did not answer within 300 ms"),
        (&shell, &["-c", "while read line; do echo hello; done"], "no answer that can be read"),
        (&missing, &[], "could not be started: /no/such/program"),
    ] {
        let (testbed, peers) = (Testbed::new(), Peers::new());
        let busy = peers.using(&testbed, "busy", 600);
        let _idle = peers.using(&testbed, "idle", 100);
        configure(&testbed, program, args);
        let daemon = testbed.start();
        wait_for("what global gives", || holds(&busy, BY_GLOBAL));
        let note = wait_for("the reason", || unanswered(&daemon.status()?));
        assert!(note.contains(reason) && note.contains("`global`"), "{note}");
        let (_, explained, _) = testbed.ballast(&["explain", "busy"]);
        assert!(explained.contains(reason) && explained.contains("taxed"), "{explained}");
        wait_for("the log", || testbed.log().contains(reason).then_some(()));
        assert!(daemon.stop().success());
    }
}

#[test]
fn without_a_program_the_policy_is_refused() {
    let (testbed, peers) = (Testbed::new(), Peers::new());
    let _busy = peers.using(&testbed, "busy", 600);
    testbed.configure(TICK, "");
    let daemon = testbed.start();
    let (code, _, why) = testbed.ballast(&["set", "--policy", "external"]);
    assert!(code == Some(1) && why.contains("[policy.external]"), "{why}");
    assert_eq!(daemon.status().unwrap().daemon.unwrap().policy, "global");
    assert!(daemon.stop().success());
}
