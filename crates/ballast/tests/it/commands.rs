//! Tests of the program as scripts use it: exit statuses and output streams.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::program::{self, Done};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ballast.example.toml");

fn ballast(arguments: &[&str]) -> Command {
    let mut command = program::ballast(arguments);
    command.env("BALLAST_SOCKET", "/nonexistent/ballast.sock");
    command
}

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Done { status, out, err } = program::run(&mut ballast(arguments));
    (status, out, err)
}

#[test]
fn commands_print_their_result_and_exit_with_zero() {
    for arguments in [&["--help"][..], &["--version"], &["set", "--help"]] {
        let (status, out, err) = run(arguments);
        assert_eq!((status, err.as_str()), (Some(0), ""), "{arguments:?}");
        assert!(!out.is_empty());
    }
}

#[test]
fn wrong_usage_and_failure_have_different_exit_statuses() {
    for arguments in [
        &["statsu"][..],
        &["set", "web-1"],
        &["explain", "../x"],
        &["set", "web-1", "--floor", "2GiB", "--ceiling", "1GiB"],
        &["plan", "--dry-run", "--journal", "x"],
        &["reserve"],
        &["reserve", "1GiB", "--release"],
        &["reserve", "1GB"],
        &[],
    ] {
        let (status, out, err) = run(arguments);
        assert_eq!((status, out.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(!err.is_empty());
    }
}

/// A folder with a program `ballast` that notes its arguments and fails, and a `PATH` that begins
/// with that folder.
fn failing_ballast() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    note_calls(folder.path(), "ballast", 1);
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    (folder, path)
}

/// Writes a program that appends its name and arguments to the file `noted` beside it.
fn note_calls(folder: &Path, name: &str, status: i32) {
    let noted = folder.join("noted");
    let text = format!("#!/bin/sh\necho {name} \"$@\" >>{}\nexit {status}\n", noted.display());
    std::fs::write(folder.join(name), text).unwrap();
    std::fs::set_permissions(folder.join(name), Permissions::from_mode(0o755)).unwrap();
}

const DOMAIN: &str = "<domain>\n  <memory unit='KiB'>2097152</memory>\n  \
                      <currentMemory unit='KiB'>1048576</currentMemory>\n</domain>\n";

/// Runs the hook as libvirt does.
fn run_hook(path: &str, step: [&str; 4], xml: &str) {
    let hook = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/libvirt-hook.sh");
    let mut command = Command::new("sh");
    command.arg(hook).args(step).env("PATH", path).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A hook that does not read closes the pipe.
    let _ = child.stdin.take().unwrap().write_all(xml.as_bytes());
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_hook_of_libvirt_reserves_memory_and_never_fails() {
    let (folder, path) = failing_ballast();
    for (step, xml) in [
        (["web", "prepare", "begin", "-"], DOMAIN),
        (["web", "prepare", "begin", "-"], "<domain/>"),
        (["web", "start", "begin", "-"], DOMAIN),
        (["web", "release", "end", "-"], DOMAIN),
    ] {
        run_hook(&path, step, xml);
    }
    let noted = std::fs::read_to_string(folder.path().join("noted")).unwrap();
    let calls = "ballast status --json\nballast reserve 2147483648 --for web --wait 0s\n";
    assert_eq!(noted, calls);
}

#[test]
fn the_hook_of_libvirt_keeps_what_is_reserved() {
    let (folder, path) = failing_ballast();
    let ballast = folder.path().join("ballast");
    let script = std::fs::read_to_string(&ballast).unwrap();
    let status = r#"{"reservations": [{"guest": "web", "size_bytes": 7}]}"#;
    std::fs::write(&ballast, script.replace("exit 1", &format!("echo '{status}'"))).unwrap();
    for (domain, expected) in [
        ("web", "ballast status --json\n"),
        ("we", "ballast status --json\nballast reserve 2147483648 --for we --wait 0s\n"),
    ] {
        run_hook(&path, [domain, "prepare", "begin", "-"], DOMAIN);
        let noted = folder.path().join("noted");
        assert_eq!(std::fs::read_to_string(&noted).unwrap(), expected);
        std::fs::remove_file(noted).unwrap();
    }
}

#[test]
fn the_wrapper_of_qemu_reserves_its_guests_memory() {
    let (folder, path) = failing_ballast();
    note_calls(folder.path(), "qemu", 0);
    let wrapper = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/qemu-reserving.sh");
    for (arguments, environment, status, expected) in [
        (&["-name", "web", "-m", "2G", "-S"][..], "", 0, "2GiB --for web --wait 30s"),
        (&["-m", "1536", "-name", "guest=web,process=q"], "", 0, "1536MiB --for web --wait 30s"),
        (&["-m", "slots=2,size=1g,maxmem=4g", "--name", "web"], "", 0, "1GiB --for web --wait 30s"),
        (&["-m", "64M", "-name", "a"], "BALLAST_GUEST=b", 0, "64MiB --for b --wait 30s"),
        (&["-m", "64M", "-name", "a"], "BALLAST_WAIT=2m", 0, "64MiB --for a --wait 2m"),
        (&["-m", "64M"], "", 0, ""),
        (&["-name", "web"], "", 0, ""),
        (&["-m", "64M", "-name", "a"], "BALLAST_REQUIRED=1", 1, "64MiB --for a --wait 30s"),
        (&["-m", "64M"], "BALLAST_REQUIRED=1", 1, ""),
        (&["-m", "64M", "-name", "a", "-incoming", "tcp::7"], "", 0, "64MiB --for a --wait 30s"),
        (&["-m", "64M", "-name", "a", "-S", "-incoming", "defer"], "", 0, ""),
        (&["-m", "64M", "-name", "a", "--incoming", "defer"], "BALLAST_REQUIRED=1", 0, ""),
    ] {
        let environment = environment.split_once('=').unwrap_or(("BALLAST_REQUIRED", ""));
        let mut command = Command::new("sh");
        command.arg(wrapper).args(arguments).env("PATH", &path).env("BALLAST_QEMU", "qemu");
        let ended = command.env(environment.0, environment.1).output().unwrap();
        assert_eq!(ended.status.code(), Some(status), "{arguments:?} {environment:?}: {ended:?}");
        let mut calls = String::new();
        if !expected.is_empty() {
            calls += &format!("ballast reserve {expected}\n");
        }
        if status == 0 {
            calls += &format!("qemu {}\n", arguments.join(" "));
        } else if !expected.is_empty() {
            calls += "ballast reserve --release --for a\n";
        }
        let noted = folder.path().join("noted");
        assert_eq!(std::fs::read_to_string(&noted).unwrap_or_default(), calls, "{arguments:?}");
        let _ = std::fs::remove_file(noted);
    }
}

#[test]
fn without_a_daemon_every_command_fails_with_one_error() {
    for arguments in [
        &["status"][..],
        &["status", "--json"],
        &["explain", "web-1"],
        &["plan", "--dry-run"],
        &["set", "web-1", "--shares", "5"],
        &["mode"],
        &["mode", "observe"],
        &["pause"],
        &["resume"],
        &["reserve", "1GiB"],
    ] {
        let (status, out, err) = run(arguments);
        assert_eq!((status, out.as_str()), (Some(1), ""), "{arguments:?}");
        let no_daemon = "error: no daemon listens on /nonexistent/ballast.sock: start one with";
        assert!(err.starts_with(no_daemon), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
    let (status, _, err) = run(&["status", "--journal", "/nonexistent/journal.db"]);
    assert_eq!(status, Some(1));
    assert!(err.contains("error: there is no journal at /nonexistent/journal.db"), "{err}");
}

#[test]
fn the_live_view_refuses_what_is_no_terminal() {
    for arguments in [&["top"][..], &["top", "--journal", "/nonexistent/journal.db"]] {
        let (status, out, err) = run(arguments);
        assert_eq!((status, out.as_str()), (Some(1), ""), "{arguments:?}");
        assert!(err.starts_with("error: standard output is not a terminal"), "{err}");
        assert!(err.contains("`ballast status` prints"), "{err}");
    }
}

#[test]
fn a_closed_pipe_is_not_a_failure() {
    let mut child = ballast(&["daemon", "--check", "--config", EXAMPLE])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    assert_eq!((status.code(), stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn lab_errors_name_the_missing_part_and_its_remedy() {
    let empty = tempfile::tempdir().unwrap();
    let cache = tempfile::tempdir().unwrap();
    let lab = |change: &dyn Fn(&mut Command)| {
        let mut command = ballast(&["lab", "up", "--run", "lacking"]);
        command.env("BALLAST_CACHE", cache.path());
        change(&mut command);
        let Output { status, stderr, .. } = command.output().unwrap();
        (status.code(), String::from_utf8(stderr).unwrap())
    };
    let (status, err) = lab(&|command| {
        command.env("PATH", empty.path());
    });
    assert_eq!(status, Some(1));
    assert!(err.contains("apt-get install"), "{err}");
    let (status, err) = lab(&|command| {
        command.env("BALLAST_LAB_GUEST", "/nonexistent/lab-guest");
    });
    assert_eq!(status, Some(1));
    assert!(err.contains("/nonexistent/lab-guest") && err.contains("cargo build"), "{err}");
}
