//! Runs `xl`.
//!
//! Idea: each run has a bounded time and output. If it fails, the last line of its standard error
//! is the error.
//! Limits: [`OUTPUT_MAX`] bytes of output; a run that is late is killed.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::timeout;

/// Most bytes of output that are read.
const OUTPUT_MAX: u64 = 4 << 20;
/// Most bytes read of standard error.
const COMPLAINTS_MAX: u64 = 4 << 10;
/// Most characters of its error text that are repeated.
const SHOWN: usize = 200;

/// The program, and how long a run may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct XlProgram {
    pub(crate) path: PathBuf,
    pub(crate) timeout: Duration,
}

impl XlProgram {
    /// Runs it with `arguments`; returns its output.
    ///
    /// # Errors
    /// It cannot be run, fails, or does not end in time; the text says which and why.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Result<Vec<u8>, String> {
        let shown = format!("`{} {}`", self.path.display(), arguments.join(" "));
        match timeout(self.timeout, self.run_to_end(arguments)).await {
            Err(_) => Err(format!("{shown} has not ended within {:?}", self.timeout)),
            Ok(Err(why)) => Err(format!("{shown}: {why}")),
            Ok(Ok(output)) => Ok(output),
        }
    }

    async fn run_to_end(&self, arguments: &[&str]) -> Result<Vec<u8>, String> {
        let mut command = Command::new(&self.path);
        command.args(arguments).env("LC_ALL", "C").kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err("it has no output".to_owned());
        };
        let (mut output, mut complaints) = (Vec::new(), Vec::new());
        let (mut stdout, mut stderr) = (stdout.take(OUTPUT_MAX), stderr.take(COMPLAINTS_MAX));
        let read = async {
            tokio::join!(stdout.read_to_end(&mut output), stderr.read_to_end(&mut complaints))
        };
        let (read, _) = read.await;
        read.map_err(|error| error.to_string())?;
        // A program that writes more than was read finds the pipe closed.
        drop((stdout, stderr));
        let status = child.wait().await.map_err(|error| error.to_string())?;
        if status.success() {
            return Ok(output);
        }
        let complaints = String::from_utf8_lossy(&complaints);
        let line = complaints.lines().last().unwrap_or_default();
        let line: String = line.chars().take(SHOWN).flat_map(char::escape_debug).collect();
        Err(format!("{status}: {line}"))
    }
}
