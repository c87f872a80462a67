//! The program that decides under the policy `external`.
//!
//! Idea: the program is started at the first question, without a shell, with its own environment
//! and ordinary priority. For a decision it gets one line and answers with one line, within a
//! deadline. Whatever goes wrong is a fault, and the decision is made without the program. A
//! program that ended, wrote an endless line, answered ahead of its questions, or owes an answer
//! for [`STALLED_AFTER`] is killed with all its children, and started again after a pause. A late
//! answer is awaited and dropped before the next question is asked, so that at most one question is
//! unanswered.
//!
//! Cost: a process, and one line each way for each decision.
//! Limits: waits at most for the deadline, and [`REAP_WAIT_MAX`] to learn how the program ended. A
//! daemon that is killed leaves it behind with its input closed. Its standard error is the
//! daemon's.

use std::io;
use std::mem;
use std::process::Stdio;
use std::time::Duration;

use ballast_config::ExternalSettings;
use ballast_model::{AnswerFault, Bytes, GuestTarget, PolicyAnswer};
use ballast_policy::Question;
use ballast_policy_proto::{ANSWER_BYTES_MAX, Answer, parse_answer, question_line};
use rustix::io::Errno;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::{Instant, timeout};
use tracing::info;

use crate::operator_program;

/// A program that owes an answer for this long hangs.
const STALLED_AFTER: Duration = Duration::from_secs(10);
/// Pause before it is started again. Doubles each time until it answers.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// Longest such pause.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Longest wait for the status of a program that closed its output.
const REAP_WAIT_MAX: Duration = Duration::from_millis(50);

/// The program, running or not.
#[derive(Debug)]
pub(crate) struct PolicyProgram {
    settings: ExternalSettings,
    running: Option<RunningPolicy>,
    /// The number of the last question.
    asked: u64,
    /// Why none is running, and until when none is started.
    ended: Option<(AnswerFault, Instant)>,
    pause: Duration,
}

impl PolicyProgram {
    /// A program that is not started yet.
    pub(crate) fn new(settings: ExternalSettings) -> PolicyProgram {
        PolicyProgram { settings, running: None, asked: 0, ended: None, pause: PAUSE_FIRST }
    }

    /// The settings by which it is started.
    pub(crate) fn settings(&self) -> &ExternalSettings {
        &self.settings
    }

    /// Its answer to a question, or why there is none.
    pub(crate) async fn ask(&mut self, question: &Question) -> PolicyAnswer {
        match self.answer(question).await {
            Ok(targets) => {
                self.pause = PAUSE_FIRST;
                PolicyAnswer::Targets(targets)
            }
            Err(fault) => PolicyAnswer::Fault(fault),
        }
    }

    async fn answer(&mut self, question: &Question) -> Result<Vec<GuestTarget>, AnswerFault> {
        let mut running = match self.running.take() {
            Some(running) => running,
            None => self.start()?,
        };
        self.asked += 1;
        let line = question_line(self.asked, question);
        let deadline = self.settings.deadline;
        let answered = timeout(deadline, running.ask(self.asked, &line)).await;
        let fault = match answered {
            Ok(Ok(answer)) => {
                self.running = Some(running);
                return Ok(answer.targets);
            }
            Ok(Err(fault)) => fault,
            Err(_) => AnswerFault::Late { deadline },
        };
        let fault = match fault {
            AnswerFault::Malformed { .. } => {
                self.running = Some(running);
                return Err(fault);
            }
            AnswerFault::Late { .. } if running.may_still_answer() => {
                self.running = Some(running);
                return Err(fault);
            }
            AnswerFault::Ended { how } => AnswerFault::Ended { how: running.end(how).await },
            fault => fault,
        };
        drop(running);
        Err(self.pause_starts(fault))
    }

    /// Starts it, unless the pause is not over.
    fn start(&mut self) -> Result<RunningPolicy, AnswerFault> {
        if let Some((fault, until)) = &self.ended
            && Instant::now() < *until
        {
            return Err(fault.clone());
        }
        match RunningPolicy::start(&self.settings) {
            Ok(running) => {
                info!("policy external: started {}", self.settings.program.display());
                Ok(running)
            }
            Err(why) => {
                let why = format!("{}: {why}", self.settings.program.display());
                Err(self.pause_starts(AnswerFault::NotStarted { why: AnswerFault::text(&why) }))
            }
        }
    }

    /// Keeps it from being started for a while. Returns the fault.
    fn pause_starts(&mut self, fault: AnswerFault) -> AnswerFault {
        self.ended = Some((fault.clone(), Instant::now() + self.pause));
        self.pause = (2 * self.pause).min(PAUSE_MAX);
        fault
    }
}

/// A question without an answer yet.
#[derive(Debug)]
struct OpenQuestion {
    number: u64,
    since: Instant,
    /// Whether the whole question was written.
    is_written: bool,
}

/// The running program and its two pipes. Dropping it kills the process and its process group.
#[derive(Debug)]
struct RunningPolicy {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    /// The beginning of a line whose end was not read yet.
    line: Vec<u8>,
    open: Option<OpenQuestion>,
}

impl RunningPolicy {
    fn start(settings: &ExternalSettings) -> io::Result<RunningPolicy> {
        let mut command = operator_program::command(&settings.program);
        command.args(&settings.args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut run_as = None;
        if let Some(name) = &settings.user {
            let user = nix::unistd::User::from_name(name)?;
            let user = user.ok_or_else(|| io::Error::other(format!("no user `{name}` here")))?;
            // Drops supplementary groups too: the standard library removes root's.
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
            run_as = Some(user.uid.as_raw());
        }
        operator_program::check_owner(&settings.program, run_as)
            .map_err(|why| io::Error::other(format!("it {why}")))?;
        let mut child =
            operator_program::spawn(&mut command).map_err(|error| match &settings.user {
                Some(name) if is_forbidden(&error) => not_as(name, &error),
                _ => error,
            })?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (to, from) = pipes.ok_or_else(|| io::Error::other("its pipes are missing"))?;
        Ok(RunningPolicy { child, to, from: BufReader::new(from), line: Vec::new(), open: None })
    }

    /// Asks and waits for the answer. May be dropped while it waits; the open question is
    /// remembered.
    async fn ask(&mut self, number: u64, line: &str) -> Result<Answer, AnswerFault> {
        if let Some(open) = &self.open {
            let late = self.reply(open.number).await;
            if let Err(fault) = late
                && !matches!(fault, AnswerFault::Malformed { .. })
            {
                return Err(fault);
            }
        }
        self.open = Some(OpenQuestion { number, since: Instant::now(), is_written: false });
        self.to.write_all(line.as_bytes()).await.map_err(|error| ended(&error.to_string()))?;
        if let Some(open) = &mut self.open {
            open.is_written = true;
        }
        self.reply(number).await
    }

    /// The answer to the open question.
    async fn reply(&mut self, asked: u64) -> Result<Answer, AnswerFault> {
        loop {
            let line = self.next_line().await?;
            let read = parse_answer(&line);
            let answered = read.as_ref().map_or(asked, |answer| answer.question);
            if answered < asked {
                // A second answer to an earlier question, whose first one was malformed.
                continue;
            }
            self.open = None;
            return match read {
                Ok(_) if answered > asked => Err(AnswerFault::OutOfStep { asked, answered }),
                read => read,
            };
        }
    }

    /// The next line, without its end.
    async fn next_line(&mut self) -> Result<Vec<u8>, AnswerFault> {
        loop {
            let read = self.from.fill_buf().await.map_err(|error| ended(&error.to_string()))?;
            if read.is_empty() {
                return Err(ended("it closed its output"));
            }
            let end = read.iter().position(|&byte| byte == b'\n');
            let length = end.unwrap_or(read.len());
            if self.line.len() + length > ANSWER_BYTES_MAX {
                let line_max = Bytes::new(ANSWER_BYTES_MAX as u64);
                return Err(AnswerFault::TooLong { line_max });
            }
            self.line.extend_from_slice(&read[..length]);
            self.from.consume(length + usize::from(end.is_some()));
            if end.is_some() {
                return Ok(mem::take(&mut self.line));
            }
        }
    }

    /// Whether a late answer may still come.
    fn may_still_answer(&self) -> bool {
        let waits = |open: &OpenQuestion| open.is_written && open.since.elapsed() < STALLED_AFTER;
        self.open.as_ref().is_none_or(waits)
    }

    /// How the process ended, if that shows soon; else `how`.
    async fn end(&mut self, how: String) -> String {
        match timeout(REAP_WAIT_MAX, self.child.wait()).await {
            Ok(Ok(status)) => status.to_string(),
            _ => how,
        }
    }
}

impl Drop for RunningPolicy {
    fn drop(&mut self) {
        operator_program::kill_group(&self.child);
    }
}

/// Whether the kernel forbids this process to become another user.
fn is_forbidden(error: &io::Error) -> bool {
    // The system-call filter of a systemd unit answers ENOSYS.
    matches!(Errno::from_io_error(error), Some(Errno::PERM | Errno::NOSYS))
}

/// The error, with what running a program as another user requires.
fn not_as(name: &str, error: &io::Error) -> io::Error {
    io::Error::other(format!(
        "as `{name}`: {error}: takes root, and in systemd's unit \
         CapabilityBoundingSet=CAP_SETUID CAP_SETGID CAP_KILL and SystemCallFilter=@setuid"
    ))
}

fn ended(how: &str) -> AnswerFault {
    AnswerFault::Ended { how: AnswerFault::text(how) }
}

#[cfg(test)]
mod tests;
