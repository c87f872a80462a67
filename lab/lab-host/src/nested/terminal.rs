//! Connects this program's terminal to a shell in an outer machine.
//!
//! Idea: in raw mode the terminal passes every key on, including those that would interrupt this
//! program. The shell's terminal is the machine's console behind a socket.
//! Limits: the shell sees the window's size at the start.

use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::output::POLL;

/// A terminal in raw mode; restored when dropped.
pub(super) struct RawTerminal {
    before: Option<Termios>,
}

impl RawTerminal {
    /// Puts standard input into raw mode, if it is a terminal.
    pub(super) fn enter() -> RawTerminal {
        let before = tcgetattr(io::stdin()).ok();
        if let Some(before) = &before {
            let mut raw = before.clone();
            raw.make_raw();
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &raw);
        }
        RawTerminal { before }
    }

    /// Rows and columns; the usual ones of a serial terminal if there is no window.
    pub(super) fn size() -> (u16, u16) {
        let window = io::stdout().is_terminal().then(|| tcgetwinsize(io::stdout()).ok()).flatten();
        window.map_or((24, 80), |window| (window.ws_row, window.ws_col))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

/// Waits until the shell has written something and passes that on, or until `is_over`.
pub(super) fn wait_for_prompt(mut from: &UnixStream, is_over: &AtomicBool) {
    let _ = from.set_read_timeout(Some(POLL));
    let mut chunk = [0; 4096];
    while !is_over.load(Ordering::Acquire) {
        if let Ok(read @ 1..) = from.read(&mut chunk) {
            let _ = io::stdout().write_all(&chunk[..read]);
            let _ = io::stdout().flush();
            return;
        }
    }
}

/// Passes standard input on to the shell, in a thread that ends with this program.
pub(super) fn pass_keys_on(to: &UnixStream) {
    let Ok(mut to) = to.try_clone() else { return };
    std::thread::spawn(move || {
        let mut chunk = [0; 4096];
        while let Ok(read @ 1..) = io::stdin().lock().read(&mut chunk) {
            if to.write_all(&chunk[..read]).is_err() {
                return;
            }
        }
        // At the end of the input, sends what a terminal sends for Ctrl-D, which ends the shell's
        // input.
        let _ = to.write_all(&[4]);
    });
}
