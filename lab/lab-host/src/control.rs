//! The protocol between the lab's commands and the process that owns a run.
//!
//! Idea: one request and one answer per connection, each a line of JSON, over a Unix socket in the
//! run's folder, which only its owner can access.
//! Limits: lines up to [`LINE_BYTES_MAX`]; the timeout of a request is short, that of an answer is
//! the time the request may take.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use ballast_lab_guest::protocol::{LabReport, ProcessEnd, WorkloadTotals};
use ballast_lab_guest::workload::WorkloadSpec;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{ExecOutput, LabError, RunFolder};

/// Longest line, in bytes: twice a guest's longest answer.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// How much longer a client waits than the supervisor.
const ANSWER_GRACE: Duration = Duration::from_secs(120);

/// A request to the process that owns a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Execute a program in a guest.
    Exec {
        /// The guest.
        guest: String,
        /// The program and its arguments.
        argv: Vec<String>,
        /// Timeout after which it is killed, in milliseconds.
        timeout_ms: u64,
    },
    /// Start a workload.
    Start {
        /// The guest.
        guest: String,
        /// The workload's name.
        id: String,
        /// What it does.
        spec: WorkloadSpec,
    },
    /// Stop a workload.
    Stop {
        /// The guest.
        guest: String,
        /// The workload's name.
        id: String,
    },
    /// The latest report of a guest.
    Report {
        /// The guest.
        guest: String,
    },
    /// Kill a guest as if the power had failed.
    Kill {
        /// The guest.
        guest: String,
    },
    /// End the run.
    Down {},
}

/// An answer of the process that owns a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Answer {
    /// The request succeeded.
    Done {},
    /// A program has ended.
    Executed {
        /// Its result.
        output: ExecOutput,
    },
    /// A workload has been stopped.
    Stopped {
        /// How it ended.
        end: ProcessEnd,
        /// Its totals.
        totals: WorkloadTotals,
    },
    /// The latest report; `None` before the first.
    Report {
        /// The report.
        report: Option<Box<LabReport>>,
    },
    /// The request failed.
    Error {
        /// Why.
        text: String,
    },
}

/// Sends a request to the process that owns the run in `folder`.
///
/// # Errors
/// When no answer arrives, or the answer is [`Answer::Error`].
pub fn ask(folder: &RunFolder, request: &Request) -> Result<Answer, LabError> {
    let socket = folder.control_socket();
    let unreachable = |error: io::Error| {
        let owner = folder.live_owner().map_or("no live process owns it".to_owned(), |owner| {
            format!("process {} owns it and must end it", owner.pid)
        });
        LabError::Supervisor(format!(
            "run {} does not accept requests ({error}): {owner}",
            folder.name()
        ))
    };
    let mut stream = UnixStream::connect(&socket).map_err(unreachable)?;
    let patience = match request {
        Request::Exec { timeout_ms, .. } => Duration::from_millis(*timeout_ms) + ANSWER_GRACE,
        _ => ANSWER_GRACE,
    };
    let talk = |stream: &mut UnixStream| {
        stream.set_read_timeout(Some(patience))?;
        write_line(stream, request)?;
        read_line(stream)
    };
    match talk(&mut stream).map_err(LabError::io("ask", &socket))? {
        Answer::Error { text } => Err(LabError::Supervisor(text)),
        answer => Ok(answer),
    }
}

/// Writes one message.
pub(crate) fn write_line<T: Serialize>(stream: &mut impl Write, message: &T) -> io::Result<()> {
    let mut line = serde_json::to_string(message)?;
    line.push('\n');
    stream.write_all(line.as_bytes())?;
    stream.flush()
}

/// Reads one message; bytes that follow it may be lost.
pub(crate) fn read_line<T: DeserializeOwned>(stream: &mut impl Read) -> io::Result<T> {
    let mut line = String::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_line(&mut line)?;
    if !line.ends_with('\n') {
        let why =
            if line.is_empty() { "no answer arrived" } else { "the line is truncated or too long" };
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
    }
    Ok(serde_json::from_str(&line)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_round_trip_and_overlong_lines_are_refused() {
        let mut bytes = Vec::new();
        write_line(&mut bytes, &Request::Down {}).unwrap();
        assert_eq!(read_line::<Request>(&mut bytes.as_slice()).unwrap(), Request::Down {});
        let long = vec![b' '; LINE_BYTES_MAX as usize + 10];
        assert!(read_line::<Request>(&mut long.as_slice()).is_err());
        assert!(read_line::<Request>(&mut &b""[..]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_line::<Request>(&mut bytes.as_slice());
            let _ = read_line::<Answer>(&mut bytes.as_slice());
        }
    }
}
