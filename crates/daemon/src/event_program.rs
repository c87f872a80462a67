//! Runs the operator's program for every incident that begins or ends.
//!
//! Idea: the main loop puts an incident into a bounded queue of its kind and goes on. A thread runs
//! the program for one incident of a kind at a time: without a shell, with its own environment and
//! JSON on standard input. After a deadline the program and its children are killed. Its output
//! goes to the log.
//! Cost: a thread from the first incident on, and a process for each.
//! Limits: when [`WAITING_MAX`] incidents of a kind wait, new ones are dropped, with a warning.
//! Processes that leave the program's process group are not killed. When the daemon ends, waiting
//! incidents are dropped.

use std::path::Path;
use std::process::Stdio;
use std::time::SystemTime;

use ballast_config::EventSettings;
use ballast_control::incident::{Incident, IncidentKind};
use ballast_host::give_up_raised_priority;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info, warn};

use crate::operator_program;
use crate::worker::start_thread;

/// Most incidents of a kind that wait: all guests of a full host may get stuck at once.
const WAITING_MAX: usize = 256;
/// Most bytes of the program's standard output, and of its standard error, that are logged.
const OUTPUT_BYTES_MAX: u64 = 4096;
/// An incident and when it was seen, wall clock.
type SeenIncident = (SystemTime, Incident);

/// The operator's program, and the incidents that wait for it.
#[derive(Debug)]
pub(crate) struct EventProgram {
    settings: EventSettings,
    /// A queue for each kind, in the order of kinds; empty before the first incident.
    queues: Vec<mpsc::Sender<SeenIncident>>,
}

impl EventProgram {
    /// A program that has not been run for any incident.
    pub(crate) fn new(settings: EventSettings) -> EventProgram {
        EventProgram { settings, queues: Vec::new() }
    }

    /// Queues a run of the program for each of `incidents`, without waiting.
    pub(crate) fn report_incidents(&mut self, at: SystemTime, incidents: &[Incident]) {
        for incident in incidents {
            if let Err(why) = self.queue((at, incident.clone())) {
                let event = incident.kind.code();
                warn!(event, "{} is not run for {event}: {why}", self.settings.run.display());
            }
        }
    }

    fn queue(&mut self, seen: SeenIncident) -> Result<(), String> {
        let place = seen.1.kind as usize;
        // The queues of a thread that panicked are closed.
        if self.queues.get(place).is_none_or(mpsc::Sender::is_closed) {
            self.start().map_err(|error| format!("no thread can be started: {error}"))?;
        }
        let Some(queue) = self.queues.get(place) else { return Ok(()) };
        queue.try_send(seen).map_err(|error| match error {
            TrySendError::Full(_) => format!("{WAITING_MAX} wait for it already"),
            TrySendError::Closed(_) => "its thread ended".to_owned(),
        })
    }

    fn start(&mut self) -> std::io::Result<()> {
        let (queues, waiting): (Vec<_>, Vec<_>) =
            IncidentKind::ALL.map(|_| mpsc::channel(WAITING_MAX)).into_iter().unzip();
        let settings = self.settings.clone();
        let work = move || {
            // The program inherits this thread's priority.
            give_up_raised_priority();
            match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime.block_on(run_all(settings, waiting)),
                Err(error) => warn!("no program is run for events: no runtime: {error}"),
            }
        };
        start_thread("events", Box::new(work))?;
        self.queues = queues;
        Ok(())
    }
}

async fn run_all(settings: EventSettings, waiting: Vec<mpsc::Receiver<SeenIncident>>) {
    let mut kinds = JoinSet::new();
    for queue in waiting {
        kinds.spawn(run_of_kind(settings.clone(), queue));
    }
    while kinds.join_next().await.is_some() {}
}

/// Runs the program for one incident after the other, at most once in `apart`.
async fn run_of_kind(settings: EventSettings, mut waiting: mpsc::Receiver<SeenIncident>) {
    while let Some((at, incident)) = waiting.recv().await {
        let begun = Instant::now();
        let (event, program) = (incident.kind.code(), settings.run.display());
        match run(&settings, at, &incident).await {
            Ok(()) => debug!(event, "{program} was run for {event}"),
            Err(why) => warn!(event, "{program}, run for {event}, {why}"),
        }
        sleep_until(begun + settings.apart).await;
    }
}

/// Runs the program once.
///
/// # Errors
/// What was wrong, as the end of a sentence about the program.
async fn run(settings: &EventSettings, at: SystemTime, incident: &Incident) -> Result<(), String> {
    operator_program::check_owner(&settings.run, None)?;
    let mut child = operator_program::spawn(&mut command(&settings.run, incident))
        .map_err(|error| format!("cannot be started: {error}"))?;
    let input = form(at, incident).to_string();
    let event = incident.kind.code();
    let ended = match timeout(settings.timeout, finish(&mut child, &input, event)).await {
        Ok(ended) => ended.map_err(|error| format!("cannot be waited for: {error}"))?,
        Err(_) => {
            operator_program::kill(&mut child).await;
            return Err(format!("was killed: it took longer than {:?}", settings.timeout));
        }
    };
    if ended.success() { Ok(()) } else { Err(format!("failed: {ended}")) }
}

fn command(program: &Path, incident: &Incident) -> Command {
    let mut command = operator_program::command(program);
    command
        .env("BALLAST_EVENT", incident.kind.code())
        .env("BALLAST_STATE", state(incident))
        .env("BALLAST_TEXT", &incident.text)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(guest) = &incident.guest {
        command.env("BALLAST_GUEST", guest.as_str());
    }
    command
}

const fn state(incident: &Incident) -> &'static str {
    if incident.is_over { "over" } else { "begun" }
}

/// The JSON that the program reads.
fn form(at: SystemTime, incident: &Incident) -> serde_json::Value {
    let since_1970 = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    json!({
        "version": 1,
        "event": incident.kind.code(),
        "state": state(incident),
        "guest": incident.guest.as_ref().map(|guest| guest.as_str()),
        "text": incident.text,
        "at_unix_ms": u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX),
    })
}

/// Gives the program its input, logs its output, and waits for its end.
async fn finish(
    child: &mut Child,
    input: &str,
    event: &'static str,
) -> std::io::Result<std::process::ExitStatus> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A program need not read it.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
    };
    tokio::join!(feed, log_output(stdout, event), log_output(stderr, event));
    child.wait().await
}

/// Logs output up to the limit, and reads the rest without logging it.
async fn log_output(from: Option<impl AsyncRead + Unpin>, event: &'static str) {
    let Some(mut from) = from else { return };
    let mut bytes = Vec::new();
    let _ = (&mut from).take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes).await;
    for line in String::from_utf8_lossy(&bytes).lines() {
        let harmless = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
        info!(event, "{event}: {}", line.chars().map(harmless).collect::<String>());
    }
    let rest = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    if let Ok(bytes @ 1..) = rest {
        info!(event, "{event}: ({bytes} bytes more of output are left out)");
    }
}

#[cfg(test)]
mod tests;
