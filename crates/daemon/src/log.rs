//! The daemon's log, at the level of `BALLAST_LOG`: on standard error or, where systemd's journal
//! reads standard error, with fields in that journal.
//!
//! Idea: levels are set for all modules or by module (`info`, `ballast_qmp=debug`). Filters by span
//! or field would bring a regular expression engine into the daemon, a tenth of the program. Lines
//! and panics go through a [`LogQueue`], so that no tick waits for a reader of the log. At the end,
//! the program waits at most a second for the last ones to be written.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fs::File;
use std::io::{self, IsTerminal, stderr};
use std::os::fd::AsFd;
use std::panic::PanicHookInfo;
use std::time::Duration;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::log_journal::{JournalLayer, MESSAGE, SOCKET, is_stream};
use super::log_queue::LogQueue;
use super::worker::start_thread;

/// Longest wait for the last lines to be written.
const END_MAX: Duration = Duration::from_secs(1);

static QUEUE: LogQueue = LogQueue::new();

/// The log of this program, from [`start_log`] on.
#[derive(Debug)]
#[must_use = "the last lines are written when it ends"]
pub struct DaemonLog(());

/// From now on, logs to standard error, in colour on a terminal. The level is `info` unless the
/// environment variable `BALLAST_LOG` names another.
///
/// # Errors
/// Standard error is closed, or no thread can be started.
pub fn start_log() -> io::Result<DaemonLog> {
    // Not through `Stderr`, whose lock the thread would hold while it waits.
    let file = File::from(stderr().as_fd().try_clone_to_owned()?);
    start_thread("log", Box::new(move || QUEUE.write_to(&file)))?;
    std::panic::set_hook(Box::new(log_panic));
    let named = std::env::var("BALLAST_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
    let filter = named.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
    let journal = journal();
    let lines = journal.is_none().then(|| {
        tracing_subscriber::fmt::layer()
            .with_writer(|| &QUEUE)
            .with_ansi(stderr().is_terminal())
            .with_target(false)
            // The text already has what people need of the other fields.
            .fmt_fields(debug_fn(|out, field, value| match field.name() {
                MESSAGE => write!(out, "{value:?}"),
                _ => Ok(()),
            }))
    });
    tracing_subscriber::registry().with(lines).with(journal).with(filter).init();
    Ok(DaemonLog(()))
}

/// The journal, if it reads standard error and answers.
fn journal() -> Option<JournalLayer> {
    let named = std::env::var("JOURNAL_STREAM").ok()?;
    if !is_stream(&named, stderr()) {
        return None;
    }
    JournalLayer::connect(SOCKET.as_ref(), &QUEUE).ok()
}

/// Logs a panic with the text of the standard library.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let mut text = format!("\nthread '{}' {panic}\n", thread.name().unwrap_or("<unnamed>"));
    let trace = Backtrace::capture();
    if trace.status() == BacktraceStatus::Captured {
        text += &format!("{trace}\n");
    }
    QUEUE.push(text.as_bytes());
    QUEUE.flush(END_MAX);
}

/// Lines dropped since the start because no process read them.
pub(crate) fn lines_dropped() -> u64 {
    QUEUE.dropped()
}

impl DaemonLog {
    /// Waits at most a second until all lines are written. If it returns `false`, standard error
    /// takes no lines, and writing to it would block.
    pub fn end(self) -> bool {
        QUEUE.flush(END_MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeWriter, Read, Write, pipe};
    use std::process::{Command, Stdio};

    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

    use super::*;

    const ROLE: &str = "BALLAST_TEST_LOG";

    fn fill(mut pipe: &PipeWriter) {
        let flags = fcntl_getfl(pipe).unwrap();
        fcntl_setfl(pipe, flags | OFlags::NONBLOCK).unwrap();
        while pipe.write(&[b'-'; 4096]).is_ok() {}
        fcntl_setfl(pipe, flags).unwrap();
    }

    #[test]
    fn a_panic_is_logged_and_waits_for_no_reader() {
        if std::env::var_os(ROLE).is_some() {
            let _log = start_log().unwrap();
            panic!("on purpose");
        }
        for is_full in [false, true] {
            let (mut reader, writer) = pipe().unwrap();
            if is_full {
                fill(&writer);
            }
            let mut child = Command::new(std::env::current_exe().unwrap());
            child
                .args(["--exact", "log::tests::a_panic_is_logged_and_waits_for_no_reader"])
                .arg("--nocapture")
                .env(ROLE, "child")
                .stdout(Stdio::null())
                .stderr(writer);
            let mut running = child.spawn().unwrap();
            // The child has the other end of the pipe.
            drop(child);
            assert_eq!(running.wait().unwrap().code(), Some(101));
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            let is_said = text.contains("a_panic_is_logged") && text.contains("on purpose");
            assert!(is_said != is_full, "{text}");
        }
    }
}
