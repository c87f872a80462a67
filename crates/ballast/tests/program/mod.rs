//! Runs the program as a script does: arguments and input, output per stream, and exit status.

#![allow(dead_code, unreachable_pub)] // each test file uses its part

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// A finished run.
pub struct Done {
    pub status: Option<i32>,
    pub out: String,
    pub err: String,
}

/// The program, about to be run with `arguments`.
pub fn ballast<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Command {
    let mut command = Command::new(crate::PROGRAM);
    command.args(arguments);
    command
}

/// Runs it with nothing to read.
pub fn run(command: &mut Command) -> Done {
    done(command.stdin(Stdio::null()).output().unwrap())
}

/// Runs it with `input` to read.
pub fn feed(command: &mut Command, input: &[u8]) -> Done {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Fails if the program has already ended.
    let _ = child.stdin.take().unwrap().write_all(input);
    done(child.wait_with_output().unwrap())
}

fn done(output: Output) -> Done {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Done { status: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}
