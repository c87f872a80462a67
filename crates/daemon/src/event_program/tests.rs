//! Runs real scripts: what they get, and what happens to those that hang, fail or print much.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

/// A shell script in a folder of its own.
struct Script {
    folder: tempfile::TempDir,
    settings: EventSettings,
}

impl Script {
    fn new(text: &str) -> Script {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("told");
        let here = folder.path().display();
        fs::write(&run, format!("#!/bin/sh\nhere={here}\n{text}\n")).unwrap();
        fs::set_permissions(&run, fs::Permissions::from_mode(0o755)).unwrap();
        let settings = EventSettings { run, timeout: PATIENCE, apart: Duration::ZERO };
        Script { folder, settings }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path(name)).ok()
    }
}

fn stuck(guest: &str) -> Incident {
    Incident {
        kind: IncidentKind::GuestStuck,
        guest: Some(guest.parse().unwrap()),
        is_over: false,
        text: "stuck, released nothing for 20s".to_owned(),
    }
}

fn at() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(1_767_323_045_678)
}

fn wait_for<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let begun = std::time::Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[tokio::test]
async fn the_program_gets_json_and_a_clean_environment() {
    let script = Script::new("cat >$here/input; env | sort >$here/env; pwd >$here/folder");
    run(&script.settings, at(), &stuck("web-1")).await.unwrap();
    let input: serde_json::Value = serde_json::from_str(&script.text("input").unwrap()).unwrap();
    let expected = json!({
        "version": 1, "event": "guest-stuck", "state": "begun", "guest": "web-1",
        "text": "stuck, released nothing for 20s", "at_unix_ms": 1_767_323_045_678u64,
    });
    assert_eq!(input, expected);
    // PWD and the like are the shell's own.
    let env = script.text("env").unwrap();
    let env = env.lines().filter(|line| {
        !["PWD", "OLDPWD", "SHLVL", "_"].iter().any(|own| line.split('=').next() == Some(own))
    });
    let expected = [
        "BALLAST_EVENT=guest-stuck",
        "BALLAST_GUEST=web-1",
        "BALLAST_STATE=begun",
        "BALLAST_TEXT=stuck, released nothing for 20s",
        "LANG=C.UTF-8",
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    ];
    assert_eq!(env.collect::<Vec<_>>(), expected);
    assert_eq!(script.text("folder").unwrap(), "/\n");
}

#[tokio::test]
async fn a_program_that_takes_too_long_dies_with_its_children() {
    let mut script = Script::new("sleep 1000 & echo $! >$here/child; wait");
    script.settings.timeout = Duration::from_millis(500);
    let why = run(&script.settings, at(), &stuck("a")).await.unwrap_err();
    assert!(why.contains("was killed: it took longer than 500ms"), "{why}");
    let child = script.text("child").unwrap();
    wait_for("the child's end", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.trim())).ok();
        // The process that inherits orphans may not have waited for it.
        stat.is_none_or(|stat| stat.contains(") Z ")).then_some(())
    });
}

#[tokio::test]
async fn failures_name_what_is_wrong() {
    let failed = Script::new("exit 3");
    let many = Script::new("head -c 1000000 /dev/zero; echo done >$here/done");
    let open = Script::new("");
    fs::set_permissions(&open.settings.run, fs::Permissions::from_mode(0o757)).unwrap();
    let plain = Script::new("");
    fs::set_permissions(&plain.settings.run, fs::Permissions::from_mode(0o644)).unwrap();
    let absent = Script::new("");
    fs::remove_file(&absent.settings.run).unwrap();
    for (script, part) in [
        (&failed, "failed: exit status: 3"),
        (&open, "is refused: everybody may write to it"),
        (&plain, "cannot be started: Permission denied"),
        (&absent, "cannot be run: No such file or directory"),
    ] {
        let why = run(&script.settings, at(), &stuck("a")).await.unwrap_err();
        assert!(why.contains(part), "{why}");
    }
    // It neither reads its input nor keeps its output short.
    run(&many.settings, at(), &stuck("a")).await.unwrap();
    assert!(many.text("done").is_some());
}

#[test]
fn one_of_a_kind_runs_at_a_time() {
    // If the folder exists already, another run is in progress.
    let script = Script::new(
        "mkdir $here/$BALLAST_EVENT || echo beside >>$here/beside
         read line; echo $BALLAST_GUEST >>$here/$BALLAST_EVENT.order
         while [ -d $here ] && ! [ -e $here/go ]; do sleep 0.01; done
         rmdir $here/$BALLAST_EVENT",
    );
    let mut program = EventProgram::new(script.settings.clone());
    let short = Incident { kind: IncidentKind::HostShort, guest: None, ..stuck("a") };
    program.report_incidents(at(), &[stuck("a"), stuck("b"), stuck("c"), short]);
    // Kinds do not wait for each other.
    wait_for("one of each kind", || {
        script.text("host-short.order").zip(script.text("guest-stuck.order"))
    });
    fs::write(script.path("go"), "").unwrap();
    let order = wait_for("all", || {
        script.text("guest-stuck.order").filter(|order| order.lines().count() == 3)
    });
    assert_eq!(order, "a\nb\nc\n");
    assert_eq!(script.text("beside"), None);
}

#[test]
fn beyond_a_full_queue_incidents_are_dropped() {
    let script = Script::new(
        "echo >>$here/runs; while [ -d $here ] && ! [ -e $here/go ]; do sleep 0.01; done",
    );
    let mut program = EventProgram::new(script.settings.clone());
    assert_eq!(program.queue((at(), stuck("a"))), Ok(()));
    wait_for("the first", || script.text("runs"));
    for _ in 0..WAITING_MAX {
        assert_eq!(program.queue((at(), stuck("b"))), Ok(()));
    }
    let why = program.queue((at(), stuck("c"))).unwrap_err();
    assert!(why.contains("wait for it already"), "{why}");
    // The script ends when its folder is gone.
}

#[test]
fn runs_of_a_kind_keep_their_distance() {
    let mut script = Script::new("echo $BALLAST_GUEST >>$here/order");
    script.settings.apart = Duration::from_secs(3600);
    let mut program = EventProgram::new(script.settings.clone());
    let short = Incident { kind: IncidentKind::HostShort, guest: None, ..stuck("a") };
    program.report_incidents(at(), &[stuck("a"), stuck("b"), short]);
    // The second guest has to wait; the host's event came after it.
    wait_for("two runs", || script.text("order").filter(|order| order.lines().count() == 2));
    assert!(!script.text("order").unwrap().contains('b'));
}
