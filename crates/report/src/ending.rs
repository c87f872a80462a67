//! The end of a program: its exit status and error message.

use std::io::{self, Write};
use std::process::ExitCode;

use crate::text::harmless;

/// Prints the error of a command, if it failed, and returns the exit status: 0 done, 1 failed, 2
/// wrong usage.
pub fn exit_code(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    // The reader closed the pipe, as in `ballast status | head -1`: not a failure.
    if is_broken_pipe(&error) {
        return ExitCode::SUCCESS;
    }
    match error.downcast::<clap::Error>() {
        // Wrong usage that only a comparison of values shows: clap prints it and exits with 2.
        Ok(usage) => usage.exit(),
        Err(error) => {
            // If standard error is closed too, the error cannot be reported.
            let _ = writeln!(io::stderr(), "error: {}", safe_lines(&message(&error)));
            ExitCode::FAILURE
        }
    }
}

/// The error and its causes; a cause whose text the error already contains is left out.
fn message(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text += &format!(": {cause}");
        }
    }
    text
}

/// `text` made safe for a terminal: foreign names in it can neither send control characters nor
/// start a line that looks like this program's.
fn safe_lines(text: &str) -> String {
    harmless(text).replace('\n', "\n  ")
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let closed = |cause: &io::Error| cause.kind() == io::ErrorKind::BrokenPipe;
    error.chain().filter_map(|cause| cause.downcast_ref()).any(closed)
}
