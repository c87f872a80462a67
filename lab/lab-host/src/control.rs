//! What is said between the commands of the lab and the process that holds a run.
//!
//! Idea: one request and one answer per connection, each a line of JSON, on a Unix socket in the
//! run's folder, which only its owner can enter.
//! Limits: lines up to [`LINE_BYTES_MAX`]; a request is waited for briefly, an answer as long as what
//! was asked may take.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use ballast_lab_guest::protocol::{End, Report, Totals};
use ballast_lab_guest::workload::WorkloadSpec;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{ExecOutput, LabError, RunFolder};

/// Longest line, in bytes: twice what a guest's longest answer takes.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// How much longer than the supervisor a client waits.
const ANSWER_GRACE: Duration = Duration::from_secs(120);

/// What can be asked of the process that holds a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Execute a program in a guest.
    Exec {
        /// The guest.
        guest: String,
        /// The program and its arguments.
        argv: Vec<String>,
        /// When it is killed, in milliseconds.
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

/// What the process that holds a run answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Answer {
    /// It is done.
    Done {},
    /// A program has ended.
    Executed {
        /// What it left.
        output: ExecOutput,
    },
    /// A workload has been stopped.
    Stopped {
        /// How it ended.
        end: End,
        /// What it did.
        totals: Totals,
    },
    /// The latest report; `None` before the first.
    Report {
        /// The report.
        report: Option<Box<Report>>,
    },
    /// It cannot be done.
    Error {
        /// Why.
        text: String,
    },
}

/// Asks the process that holds the run in `folder`.
///
/// # Errors
/// When nobody answers, or the answer is [`Answer::Error`].
pub fn ask(folder: &RunFolder, request: &Request) -> Result<Answer, LabError> {
    let socket = folder.control_socket();
    let unreachable = |error: io::Error| {
        let owner = folder.live_owner().map_or("nobody".to_owned(), |owner| owner.pid.to_string());
        LabError::Supervisor(format!(
            "run {} takes no requests ({error}): it is held by process {owner}, which must end it",
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

/// Reads one message; what follows it on the stream may be lost.
pub(crate) fn read_line<T: DeserializeOwned>(stream: &mut impl Read) -> io::Result<T> {
    let mut line = String::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_line(&mut line)?;
    if !line.ends_with('\n') {
        let why = if line.is_empty() { "no answer came" } else { "the line is cut or too long" };
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
    }
    Ok(serde_json::from_str(&line)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_read_back_and_overlong_ones_are_refused() {
        let mut bytes = Vec::new();
        write_line(&mut bytes, &Request::Down {}).unwrap();
        assert_eq!(read_line::<Request>(&mut bytes.as_slice()).unwrap(), Request::Down {});
        let long = vec![b' '; LINE_BYTES_MAX as usize + 10];
        assert!(read_line::<Request>(&mut long.as_slice()).is_err());
        assert!(read_line::<Request>(&mut &b""[..]).is_err());
    }

    proptest! {
        #[test]
        fn rubbish_is_refused_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_line::<Request>(&mut bytes.as_slice());
            let _ = read_line::<Answer>(&mut bytes.as_slice());
        }
    }
}
