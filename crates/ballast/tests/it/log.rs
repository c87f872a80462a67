//! The log of the daemon process goes to a pipe that nobody reads, or to systemd's journal.

use std::fs;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, ExitStatus, Stdio};

use crate::harness::{PATIENCE, Testbed, wait_for};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

const FAST: &str = "tick = \"100ms\"";

/// A pipe that is full.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    let flags = fcntl_getfl(&writer).unwrap();
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
    while writer.write(&[b'-'; 4096]).is_ok() {}
    fcntl_setfl(&writer, flags).unwrap();
    (reader, writer)
}

#[test]
fn a_log_that_nobody_reads_stops_no_tick() {
    let testbed = Testbed::new();
    testbed.configure(FAST, "");
    let (_reader, writer) = full_pipe();
    let daemon = testbed.spawn_with(|command| {
        command.stderr(Stdio::from(writer)).env("BALLAST_LOG", "trace");
    });
    let ticks = || daemon.status()?.daemon.map(|it| it.ticks);
    wait_for("ticks", || ticks().filter(|ticks| *ticks > 5));
    assert!(daemon.stop().success());
    // A full pipe does not keep a daemon that cannot start from ending.
    fs::write(testbed.path("ballast.toml"), "[daemon]\nsocket = \"/dev/null/api\"\n").unwrap();
    let (_reader, writer) = full_pipe();
    let failed = testbed.spawn_with(|command| {
        command.stderr(Stdio::from(writer));
    });
    assert_eq!(failed.ended().code(), Some(1));
}

#[test]
fn the_last_lines_of_the_log_are_written() {
    let testbed = Testbed::new();
    let last_lines = |end: fn(&Testbed) -> ExitStatus| {
        let before = testbed.log().len();
        let status = end(&testbed);
        (status.code(), testbed.log().split_off(before))
    };
    testbed.configure(FAST, "");
    let (code, log) = last_lines(|testbed| testbed.start().stop());
    assert!(code == Some(0) && log.contains("stopping: SIGTERM"), "{log}");
    testbed.configure(FAST, "[qmp.no_such_table]\n");
    let (code, log) = last_lines(|testbed| testbed.spawn().ended());
    assert!(code == Some(1) && log.contains("error: "), "{log}");
}

#[test]
fn a_log_is_complete_once_it_is_read() {
    let testbed = Testbed::new();
    testbed.configure(FAST, "");
    let (mut reader, writer) = full_pipe();
    let daemon = testbed.spawn_with(|command| {
        command.stderr(Stdio::from(writer));
    });
    wait_for("the first tick", || daemon.status());
    let reading = std::thread::spawn(move || {
        let mut log = String::new();
        reader.read_to_string(&mut log).map(|_| log)
    });
    assert!(daemon.stop().success());
    let log = reading.join().unwrap().unwrap();
    assert!(log.contains("API on") && log.contains("stopping: SIGTERM"), "{log}");
}

/// Runs in a mount namespace of its own, where a receiver stands in for the journal. Needs root.
#[test]
fn the_journal_gets_entries_with_their_fields() {
    let testbed = Testbed::new();
    testbed.configure(FAST, "[host]\nreserve = \"1000TiB\"");
    let receiver = UnixDatagram::bind(testbed.path("journal.sock")).unwrap();
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    let prepare = "mount -t tmpfs none /run && mkdir -p /run/systemd/journal && \
                   ln -s \"$1\" /run/systemd/journal/socket";
    let socket = testbed.path("journal.sock");
    let unshared = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh"]).arg(&socket);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    };
    if !unshared(prepare).stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        return println!("SKIPPED: only root can have a mount namespace");
    }
    let log = fs::File::create(testbed.path("daemon.log")).unwrap();
    let stream = log.metadata().unwrap();
    let script = format!("{prepare} && exec \"$2\" daemon --config \"$3\"");
    let mut daemon = unshared(&script)
        .arg(crate::PROGRAM)
        .arg(testbed.config_file())
        .env("JOURNAL_STREAM", format!("{}:{}", stream.dev(), stream.ino()))
        .stderr(log)
        .spawn()
        .unwrap();
    let mut entries = std::iter::repeat_with(|| {
        let mut bytes = [0; 4096];
        let length = receiver.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    });
    let entry = entries.find(|entry| entry.contains("BALLAST_EVENT=")).unwrap();
    let lines: Vec<&str> = entry.lines().collect();
    for line in [
        "PRIORITY=4",
        "SYSLOG_IDENTIFIER=ballast",
        "BALLAST_EVENT=host-short",
        "BALLAST_STATE=begun",
    ] {
        assert!(lines.contains(&line), "{line} is not in {entry}");
    }
    let pid = rustix::process::Pid::from_child(&daemon);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(wait_for("its end", || daemon.try_wait().unwrap()).success());
    assert_eq!(testbed.log(), "", "nothing is said twice");
}
