//! The log of the daemon process goes to a pipe that nobody reads.

use std::fs;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::process::{ExitStatus, Stdio};

use crate::harness::{Ground, wait_for};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

const FAST: &str = "tick = \"100ms\"";

/// A pipe that holds all it can.
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
    let ground = Ground::new();
    ground.configure(FAST, "");
    let (_reader, writer) = full_pipe();
    let daemon = ground.spawn_with(|command| {
        command.stderr(Stdio::from(writer)).env("BALLAST_LOG", "trace");
    });
    let ticks = || daemon.status()?.daemon.map(|it| it.ticks);
    wait_for("ticks", || ticks().filter(|ticks| *ticks > 5));
    assert!(daemon.stop().success());
    // Nor does it stop one that cannot start.
    fs::write(ground.path("ballast.toml"), "[daemon]\nsocket = \"/dev/null/api\"\n").unwrap();
    let (_reader, writer) = full_pipe();
    let failed = ground.spawn_with(|command| {
        command.stderr(Stdio::from(writer));
    });
    assert_eq!(failed.ended().code(), Some(1));
}

#[test]
fn the_last_lines_of_the_log_are_written() {
    let ground = Ground::new();
    let last_lines = |end: fn(&Ground) -> ExitStatus| {
        let before = ground.log().len();
        let status = end(&ground);
        (status.code(), ground.log().split_off(before))
    };
    ground.configure(FAST, "");
    let (code, log) = last_lines(|ground| ground.start().stop());
    assert!(code == Some(0) && log.contains("stopping: SIGTERM"), "{log}");
    ground.configure(FAST, "[qmp.no_such_table]\n");
    let (code, log) = last_lines(|ground| ground.spawn().ended());
    assert!(code == Some(1) && log.contains("error: "), "{log}");
}

#[test]
fn a_log_is_complete_once_it_is_read() {
    let ground = Ground::new();
    ground.configure(FAST, "");
    let (mut reader, writer) = full_pipe();
    let daemon = ground.spawn_with(|command| {
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
