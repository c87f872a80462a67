//! The progress of reading, on standard error if that is a terminal.
//!
//! Idea: one line that is overwritten each time another per cent is done.

use std::io::{IsTerminal, Write, stderr};

/// A line that is overwritten as work proceeds.
#[derive(Debug)]
pub struct ProgressLine {
    what: String,
    is_shown: bool,
    percent: u64,
}

impl ProgressLine {
    /// A line that begins with `what`; shows nothing yet.
    pub fn new(what: &str) -> ProgressLine {
        ProgressLine { what: what.to_owned(), is_shown: stderr().is_terminal(), percent: 0 }
    }

    /// Shows that `done` of `whole` are done.
    pub fn show(&mut self, done: u64, whole: u64) {
        let percent = done.saturating_mul(100) / whole.max(1);
        if self.is_shown && percent > self.percent {
            self.percent = percent;
            // If standard error is closed, nobody reads the progress.
            let _ = write!(stderr(), "\r{} {percent} %", self.what);
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.is_shown && self.percent > 0 {
            // Clear the line.
            let _ = write!(stderr(), "\r\u{1b}[K");
        }
    }
}
