//! Printing of a command's result: text for people, JSON for programs.

use std::io::{self, Write};

use anyhow::Context;
use serde::Serialize;

use crate::json;
use crate::text::harmless;

/// The error message when standard output cannot be written.
pub const CANNOT_PRINT: &str = "cannot write the output";

/// How to print.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Output {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Output {
    /// Prints `reply` as JSON, or as the text that `text` makes of it, given the terminal's width.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn print<T: Serialize>(
        self,
        reply: &T,
        text: impl FnOnce(&T, Option<u16>) -> String,
    ) -> anyhow::Result<()> {
        if self.json {
            return json::write(reply, true, &mut io::stdout().lock()).context(CANNOT_PRINT);
        }
        print(&harmless(&text(reply, terminal_size().map(|(columns, _)| columns))))
    }
}

/// Columns and rows of the terminal; `None` for a file or a pipe, which gets lines of any width.
pub(crate) fn terminal_size() -> Option<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

/// Writes all of `text` to standard output.
///
/// # Errors
/// It cannot be written, for example because the pipe is closed.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context(CANNOT_PRINT)
}
