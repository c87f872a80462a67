//! A real terminal, by tmux: reads what an operator would see, and types.

#![allow(dead_code, unreachable_pub)] // each test program uses its part

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::wait_for;

/// A terminal of 80 columns and 24 rows with a shell, by a tmux server of its own.
pub struct Terminal {
    socket: PathBuf,
}

impl Terminal {
    /// Opens it with the server's `socket`, and variables for the shell, `NAME=VALUE`. Prints a
    /// message and returns `None` if there is no tmux.
    pub fn open(socket: PathBuf, variables: &str) -> Option<Terminal> {
        if let Err(error) = Command::new("tmux").arg("-V").stdout(Stdio::null()).status() {
            println!("SKIPPED: tmux: {error}: run scripts/setup");
            return None;
        }
        let terminal = Terminal { socket };
        // The prompt shows that the shell waits for a command.
        let shell = format!("env -u NO_COLOR PS1=ready: {variables} sh");
        terminal.tmux(&["new-session", "-d", "-x", "80", "-y", "24", &shell]);
        terminal.shows(&["ready:"]);
        Some(terminal)
    }

    pub fn tmux(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("tmux");
        // The locale decides whether what is captured is UTF-8.
        command.args(["-u", "-f", "/dev/null", "-S"]).arg(&self.socket).args(arguments);
        let output = command.env("LC_ALL", "C.UTF-8").env_remove("TMUX").output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The text on the screen; lines that the terminal wrapped are joined.
    pub fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-J"])
    }

    /// Presses keys, by tmux's names.
    pub fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Waits until the screen has all `texts`.
    pub fn shows(&self, texts: &[&str]) -> String {
        let mut last = String::new();
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for("the screen", || {
                last = self.screen();
                texts.iter().all(|text| last.contains(text)).then(|| last.clone())
            })
        }));
        found.unwrap_or_else(|_| panic!("no {texts:?} on:\n{last}"))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Its server ends with its session.
        let mut command = Command::new("tmux");
        let _ = command.arg("-S").arg(&self.socket).arg("kill-server").status();
    }
}
