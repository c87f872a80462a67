//! Output that is printed repeatedly: in place on a terminal, one frame after the other elsewhere.
//!
//! Idea: on a terminal each frame overwrites the one before on the alternate screen. Dropping the
//! value leaves that screen, so the shell's lines come back. A pipe or a file gets every frame,
//! with an empty line between them; with `--json`, one object a line.
//! Limits: a frame higher than the terminal is cut, and its last line says so.

use std::io::{self, IsTerminal, Write};

use anyhow::Context;
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::terminal::{Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{execute, queue};
use serde::Serialize;

use crate::format::wrapped;
use crate::json;
use crate::output::{CANNOT_PRINT, Output, print, terminal_size};
use crate::text::harmless;

/// Columns by which continuation lines are indented.
const INDENT: usize = 2;

/// Output that is printed repeatedly.
#[derive(Debug)]
pub struct Live {
    output: Output,
    /// Whether it is drawn on the terminal's alternate screen.
    is_screen: bool,
    /// The last frame; `None`: there was none yet.
    last: Option<String>,
}

impl Live {
    /// Enters the alternate screen if standard output is a terminal and the output is not JSON.
    ///
    /// # Errors
    /// The terminal cannot be written.
    pub fn begin(output: Output) -> anyhow::Result<Live> {
        let is_screen = !output.json && io::stdout().is_terminal();
        if is_screen {
            execute!(io::stdout(), EnterAlternateScreen, Hide).context(CANNOT_PRINT)?;
        }
        Ok(Live { output, is_screen, last: None })
    }

    /// Shows `reply`: as JSON, or as the text that `text` makes of it, given the terminal's width.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn show<T: Serialize>(
        &mut self,
        reply: &T,
        text: impl FnOnce(&T, Option<u16>) -> String,
    ) -> anyhow::Result<()> {
        if self.output.json {
            return json::write(reply, false, &mut io::stdout().lock()).context(CANNOT_PRINT);
        }
        let frame = harmless(&text(reply, terminal_size().map(|(columns, _)| columns)));
        let gap = if self.last.is_some() { "\n" } else { "" };
        match self.is_screen {
            true => draw(&frame).context(CANNOT_PRINT)?,
            false => print(&format!("{gap}{frame}"))?,
        }
        self.last = Some(frame);
        Ok(())
    }

    /// Shows why there is nothing new: above the last frame, or on standard error.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn show_trouble(&self, why: &str) -> anyhow::Result<()> {
        if !self.is_screen {
            crate::note(why);
            return Ok(());
        }
        let last = self.last.as_deref().unwrap_or_default();
        let width = terminal_size().map(|(columns, _)| columns);
        let why = wrapped(&format!("{}\n", harmless(why)), width, INDENT);
        draw(&format!("{why}\n{last}")).context(CANNOT_PRINT)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if self.is_screen {
            // A terminal that is gone need not be restored.
            let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
        }
    }
}

/// Overwrites the screen with a frame, line by line, so that nothing flickers.
fn draw(frame: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let rows = terminal_size().map_or(usize::MAX, |(_, rows)| usize::from(rows));
    let lines = cut(frame, rows);
    for (row, line) in (0..).zip(&lines) {
        queue!(out, MoveTo(0, row))?;
        out.write_all(line.as_bytes())?;
        queue!(out, Clear(ClearType::UntilNewLine))?;
    }
    queue!(out, Clear(ClearType::FromCursorDown))?;
    out.flush()
}

/// The lines of a frame that fit; the last one says how many do not.
fn cut(frame: &str, rows: usize) -> Vec<String> {
    let lines: Vec<String> = frame.lines().map(str::to_owned).collect();
    if lines.len() <= rows {
        return lines;
    }
    let kept = rows.saturating_sub(1);
    let more = format!("({} lines more: a higher terminal shows them)", lines.len() - kept);
    lines.into_iter().take(kept).chain([more]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_is_too_high_says_so() {
        assert_eq!(cut("a\nb\nc\n", 3), ["a", "b", "c"]);
        assert_eq!(cut("a\nb\nc\n", 2), ["a", "(2 lines more: a higher terminal shows them)"]);
    }
}
