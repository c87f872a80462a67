//! `ballast top` and `status --watch` in a real terminal, by tmux: what an operator would see and
//! type.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use crate::daemon::{BUDGET, FAST, Peers};
use crate::harness::terminal::Terminal;
use crate::harness::{Testbed, wait_for};

/// A terminal with a shell whose commands ask the daemon of `testbed`.
fn open(testbed: &Testbed) -> Option<Terminal> {
    let variables = format!("BALLAST_SOCKET={}", testbed.path("api.sock").display());
    Terminal::open(testbed.path("tmux.sock"), &variables)
}

impl Terminal {
    /// Runs `ballast top` in the shell, which afterwards compares the terminal's settings.
    fn start(&self, arguments: &str) {
        self.start_command(&format!("top {arguments}"));
    }

    /// The same with any command of `ballast`.
    fn start_command(&self, arguments: &str) {
        let line = format!(
            "clear; a=$(stty -g); {} {arguments}; s=$?; b=$(stty -g); \
             [ \"$a\" = \"$b\" ] && echo \"ended with $s, as before\"",
            crate::PROGRAM
        );
        self.press(&[&line, "Enter"]);
    }

    /// Waits until the shell has the terminal again, with its settings as before.
    fn is_restored(&self, status: u8) {
        let screen = self.shows(&[&format!("ended with {status}, as before"), "ready:"]);
        assert!(!screen.contains("GUEST"), "{screen}");
        let flags = "#{alternate_on} #{cursor_flag}";
        assert_eq!(self.tmux(&["display-message", "-p", flags]).trim(), "0 1");
    }

    /// The process number of the program that the shell runs.
    fn child(&self) -> i32 {
        let shell = self.tmux(&["display-message", "-p", "#{pane_pid}"]);
        let shell = shell.trim();
        let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
        children.trim().parse().unwrap()
    }
}

#[test]
fn an_operator_watches_explains_and_pauses_in_a_terminal() {
    let (testbed, peers) = (Testbed::new(), Peers::new());
    let _busy = peers.using(&testbed, "busy", 600);
    let _idle = peers.using(&testbed, "idle", 100);
    testbed.configure(FAST, BUDGET);
    let Some(terminal) = open(&testbed) else { return };
    let daemon = testbed.start();
    terminal.start("");
    terminal.shows(&["GUEST▲", "busy", "idle", "policy", "acting", "budget 1GiB"]);
    terminal.press(&["j", "Enter"]);
    terminal.shows(&["guest      idle", "decision   plan #", "statistics"]);
    terminal.press(&["Escape"]);
    terminal.shows(&["GUEST▲"]);
    terminal.press(&["p"]);
    terminal.shows(&["This is the same as:", "ballast pause"]);
    terminal.press(&["y"]);
    terminal.shows(&["PAUSED", "WANTED"]);
    assert!(daemon.status().unwrap().tick.paused);
    terminal.press(&["p"]);
    terminal.shows(&["ballast resume"]);
    terminal.press(&["y"]);
    terminal.shows(&["acting"]);
    assert!(!daemon.status().unwrap().tick.paused);
    terminal.press(&["s", "Tab", "Tab", "0", "Enter"]);
    terminal.shows(&["Change the bounds of idle?", "ballast set idle --shares 10000"]);
    terminal.press(&["y"]);
    wait_for("the shares", || {
        let status = daemon.status()?;
        let idle = status.guests.iter().find(|guest| guest.guest == "idle")?;
        (idle.shares == Some(10_000)).then_some(())
    });
    // The view stays when the daemon ends, and finds the next one.
    daemon.kill();
    terminal.shows(&["no status for", "busy"]);
    let daemon = testbed.start();
    let screen = terminal.shows(&["the daemon answers again"]);
    assert!(!screen.contains("no status for"), "{screen}");
    terminal.press(&["q"]);
    terminal.is_restored(0);
    assert!(daemon.stop().success());
}

#[test]
fn signals_leave_the_terminal_as_it_was() {
    let testbed = Testbed::new();
    let Some(terminal) = open(&testbed) else { return };
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        terminal.start("--no-color");
        // There is no daemon yet, and it waits.
        terminal.shows(&["no daemon answered yet", "no status for"]);
        let pid = rustix::process::Pid::from_raw(terminal.child()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
        terminal.is_restored(0);
    }
}

#[test]
fn what_is_no_journal_is_named_without_a_view() {
    let testbed = Testbed::new();
    let Some(terminal) = open(&testbed) else { return };
    let newer = testbed.path("newer.db");
    fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/../store/tests/fixtures/v3.db"), &newer)
        .unwrap();
    // The format's number is SQLite's user version, at byte 60 of the file.
    let file = fs::File::options().write(true).open(&newer).unwrap();
    file.write_all_at(&99_u32.to_be_bytes(), 60).unwrap();
    fs::write(testbed.path("text.db"), "no journal").unwrap();
    for (name, error) in [
        ("absent.db", "error: there is no journal at"),
        ("text.db", "not a journal of Ballast"),
        ("newer.db", "written in format 99"),
    ] {
        terminal.start(&format!("--journal {}", testbed.path(name).display()));
        terminal.shows(&[error]);
        terminal.is_restored(1);
    }
}

#[test]
fn a_journal_is_watched_back_and_forth_in_a_terminal() {
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../store/tests/fixtures/v3.db");
    let testbed = Testbed::new();
    // Reading leaves files beside a journal, so a copy is read.
    fs::copy(fixture, testbed.journal()).unwrap();
    let Some(terminal) = open(&testbed) else { return };
    terminal.start(&format!("--journal {}", testbed.journal().display()));
    terminal.shows(&["journal journal.db", "at 100 % of it", "GUEST▲"]);
    terminal.press(&["Home"]);
    let first = terminal.shows(&["at 0 % of it"]);
    terminal.press(&["Enter"]);
    terminal.shows(&["guest      ", "decision   plan #"]);
    // Escape alone: followed at once by a key, it would be that key with Alt.
    terminal.press(&["Escape"]);
    terminal.shows(&["GUEST▲"]);
    terminal.press(&["Space"]);
    let last = terminal.shows(&["at 100 % of it", "GUEST▲"]);
    assert_ne!(first.lines().next(), last.lines().next());
    terminal.press(&["q"]);
    terminal.is_restored(0);
}

#[test]
fn a_watched_status_is_redrawn_until_it_is_interrupted() {
    let (testbed, peers) = (Testbed::new(), Peers::new());
    let _busy = peers.using(&testbed, "busy", 600);
    testbed.configure(FAST, BUDGET);
    let Some(terminal) = open(&testbed) else { return };
    let daemon = testbed.start();
    terminal.start_command("status --watch 0.2");
    let plan = |screen: &str| {
        let number = screen.split_once("(plan #")?.1.split_once(',')?.0;
        number.parse::<u64>().ok()
    };
    let screen = terminal.shows(&["GUEST", "busy", "no room for", "PRIORITY"]);
    let first = plan(&screen).unwrap();
    wait_for("another plan in its place", || {
        let screen = terminal.screen();
        assert!(screen.matches("GUEST").count() <= 1, "{screen}");
        plan(&screen).filter(|number| *number > first)
    });
    // `status --watch` stays when the daemon ends.
    daemon.kill();
    terminal.shows(&["no daemon listens on", "busy"]);
    let daemon = testbed.start();
    wait_for("the next daemon", || (!terminal.screen().contains("no daemon")).then_some(()));
    let child = rustix::process::Pid::from_raw(terminal.child()).unwrap();
    rustix::process::kill_process(child, rustix::process::Signal::INT).unwrap();
    terminal.is_restored(0);
    assert!(daemon.stop().success());
}

#[test]
fn a_watched_status_is_an_object_a_line() {
    let (testbed, peers) = (Testbed::new(), Peers::new());
    let _busy = peers.using(&testbed, "busy", 600);
    testbed.configure(FAST, BUDGET);
    let daemon = testbed.start();
    let watch = |arguments: &[&str]| {
        let mut command = Command::new(crate::PROGRAM);
        command.args(["status", "--watch", "0.1"]).args(arguments);
        command.env("BALLAST_SOCKET", testbed.path("api.sock")).stdin(Stdio::null());
        command.stdout(Stdio::piped()).spawn().unwrap()
    };
    let mut child = watch(&["--json"]);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().take(3);
    for line in lines {
        let status: ballast_api::StatusReply = serde_json::from_str(&line.unwrap()).unwrap();
        assert_eq!(status.guests[0].guest, "busy");
    }
    // A reader that has gone is no failure.
    assert_eq!(wait_for("its end", || child.try_wait().unwrap()).code(), Some(0));
    let mut child = watch(&[]);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let (mut text, mut tables) = (String::new(), 0);
    while tables < 2 {
        let from = text.len();
        assert!(out.read_line(&mut text).unwrap() > 0, "{text}");
        tables += usize::from(text[from..].starts_with("GUEST"));
    }
    assert!(text.contains("\n\ndaemon   version"), "frames stand apart: {text}");
    assert!(!text.contains('\u{1b}'), "{text}");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    drop(out);
    assert_eq!(wait_for("its end", || child.try_wait().unwrap()).code(), Some(0));
    assert!(daemon.stop().success());
}
