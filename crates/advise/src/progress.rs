//! How far reading is, on standard error, where that is a terminal.
//!
//! Idea: one line that is written over, at most once per cent and not before the first.

use std::io::{IsTerminal, Write, stderr};

/// A line that is written over.
#[derive(Debug)]
pub struct ProgressLine {
    what: String,
    is_shown: bool,
    percent: u64,
}

impl ProgressLine {
    /// A line about `what`.
    pub fn new(what: &str) -> ProgressLine {
        ProgressLine { what: what.to_owned(), is_shown: stderr().is_terminal(), percent: 0 }
    }

    /// `done` of `whole` are done.
    pub fn show(&mut self, done: u64, whole: u64) {
        let percent = done.saturating_mul(100) / whole.max(1);
        if self.is_shown && percent > self.percent {
            self.percent = percent;
            // If standard error is closed, nobody waits for it.
            let _ = write!(stderr(), "\r{} {percent} %", self.what);
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.is_shown && self.percent > 0 {
            // To the beginning of the line, and nothing after that.
            let _ = write!(stderr(), "\r\u{1b}[K");
        }
    }
}
