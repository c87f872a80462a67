//! Runs that outlive the command that started them.
//!
//! Idea: `up` starts this program again with a hidden command; that process, in a session of its
//! own, starts and owns the run and accepts requests on a socket. Until the guests are ready the
//! starter keeps a pipe to it open: if the starter is interrupted, the run ends. Then the starter
//! sends `keep`.
//! Limits: [`CONNECTIONS_MAX`] requests at once.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::control::{Answer, Request, ask, read_line, write_line};
use crate::reaper::SUPERVISOR_COMMAND;
use crate::run_folder::{GuestRecord, GuestState};
use crate::{LabError, Run, RunFolder, RunOptions, runs_folder};

/// Most requests served at once.
const CONNECTIONS_MAX: usize = 32;
/// Timeout for a client to send its request.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);
/// Timeout for starting a workload; a thrashing guest is slow.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// Timeout for the owner of an ended run to exit.
const OWNER_PATIENCE: Duration = Duration::from_secs(10);
/// What the starter sends to let the run outlive it.
const KEEP: &str = "keep";

/// A message from the supervisor to its starter.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "news", rename_all = "kebab-case")]
enum SupervisorMessage {
    Progress { line: String },
    Ready {},
    Failed { why: String },
}

/// The status of a run.
#[derive(Clone, Debug, Serialize)]
pub struct RunStatus {
    /// Its name.
    pub name: String,
    /// The process that owns it; `None` if that process is dead.
    pub owner_pid: Option<i32>,
    /// Whether it accepts requests.
    pub takes_requests: bool,
    /// The folder of its QMP sockets for the daemon.
    pub qmp_folder: std::path::PathBuf,
    /// Its guests.
    pub guests: Vec<GuestStatus>,
}

/// The status of a guest.
#[derive(Clone, Debug, Serialize)]
pub struct GuestStatus {
    /// Its state.
    pub state: GuestState,
    /// Its record.
    #[serde(flatten)]
    pub record: GuestRecord,
}

/// Every run of this user.
///
/// # Errors
/// When the folder of runs is not usable.
pub fn list_runs() -> Result<Vec<RunStatus>, LabError> {
    Ok(RunFolder::list(&runs_folder()?).iter().map(status_of).collect())
}

fn status_of(folder: &RunFolder) -> RunStatus {
    let guests = folder.guests().into_iter();
    RunStatus {
        name: folder.name(),
        owner_pid: folder.live_owner().map(|owner| owner.pid),
        takes_requests: UnixStream::connect(folder.control_socket()).is_ok(),
        qmp_folder: folder.qmp_folder(),
        guests: guests.map(|record| GuestStatus { state: record.state(), record }).collect(),
    }
}

/// Starts a run that outlives this process, and waits until its guests are ready.
///
/// # Errors
/// Those of [`Run::start`]; then nothing is left behind.
pub fn up(options: &RunOptions, say: &dyn Fn(&str)) -> Result<RunFolder, LabError> {
    options.validate()?;
    let mut child = options
        .helper
        .command(SUPERVISOR_COMMAND)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(LabError::io("start", &options.helper.program))?;
    match follow(&mut child, options, say) {
        Ok(()) => RunFolder::open(&options.runs_folder()?, options.name.as_str()),
        Err(error) => {
            // Our end of the pipe closes here, which ends the run.
            drop(child.stdin.take());
            let _ = child.wait();
            Err(error)
        }
    }
}

/// Sends the options and follows the messages until the guests are ready.
fn follow(child: &mut Child, options: &RunOptions, say: &dyn Fn(&str)) -> Result<(), LabError> {
    let died = || {
        LabError::Supervisor(format!(
            "the process that owns the run exited unexpectedly: does {} have the command \
             `{SUPERVISOR_COMMAND}`?",
            options.helper.program.display()
        ))
    };
    let (Some(stdin), Some(stdout)) = (child.stdin.as_mut(), child.stdout.take()) else {
        return Err(died());
    };
    write_line(stdin, options).map_err(|_| died())?;
    for line in BufReader::new(stdout).lines() {
        let news = line.ok().and_then(|line| serde_json::from_str(&line).ok());
        match news.ok_or_else(died)? {
            SupervisorMessage::Progress { line } => say(&line),
            SupervisorMessage::Failed { why } => return Err(LabError::Supervisor(why)),
            SupervisorMessage::Ready {} => return writeln!(stdin, "{KEEP}").map_err(|_| died()),
        }
    }
    Err(died())
}

/// Ends a run.
///
/// # Errors
/// When its owner is alive but does not answer.
pub fn down(folder: &RunFolder) -> Result<(), LabError> {
    let Some(owner) = folder.live_owner() else {
        folder.end();
        return Ok(());
    };
    ask(folder, &Request::Down {})?;
    // The run has ended; its owner is about to exit.
    let end = Instant::now() + OWNER_PATIENCE;
    while owner.is_alive() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Implements the hidden command [`SUPERVISOR_COMMAND`]; returns when the run has ended.
pub fn supervisor_main() -> ExitCode {
    let mut stdin = BufReader::new(io::stdin());
    let mut line = String::new();
    let options = stdin.read_line(&mut line).ok().and_then(|_| serde_json::from_str(&line).ok());
    let Some(options) = options else { return ExitCode::FAILURE };
    let kept = watch_starter(stdin);
    let send = |news: SupervisorMessage| {
        // If the starter is gone, the other pipe shows it.
        let _ = write_line(&mut io::stdout(), &news);
    };
    match hold(&options, &kept, &send) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            send(SupervisorMessage::Failed { why: error.to_string() });
            ExitCode::FAILURE
        }
    }
}

/// Exits, which ends the run, if the starter goes before it has sent [`KEEP`].
fn watch_starter(mut stdin: BufReader<io::Stdin>) -> Receiver<()> {
    let (say_kept, kept) = channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let _ = stdin.read_line(&mut line);
        if line.trim() != KEEP {
            // The reaper and the kernel end what was started.
            std::process::exit(1);
        }
        let _ = say_kept.send(());
    });
    kept
}

fn hold(
    options: &RunOptions,
    kept: &Receiver<()>,
    send: &dyn Fn(SupervisorMessage),
) -> Result<(), LabError> {
    let run =
        Run::start(options, &|line| send(SupervisorMessage::Progress { line: line.to_owned() }))?;
    let socket = run.folder().control_socket();
    let listener = UnixListener::bind(&socket).map_err(LabError::io("listen on", &socket))?;
    send(SupervisorMessage::Ready {});
    let _ = kept.recv();
    let run = Arc::new(run);
    let (say_down, down) = channel();
    std::thread::spawn({
        let run = Arc::clone(&run);
        move || serve(&listener, &run, &say_down)
    });
    let _ = down.recv();
    Ok(())
}

fn serve(listener: &UnixListener, run: &Arc<Run>, say_down: &Sender<()>) {
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming().flatten() {
        if open.fetch_add(1, Ordering::SeqCst) >= CONNECTIONS_MAX {
            open.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let (run, open, say_down) = (Arc::clone(run), Arc::clone(&open), say_down.clone());
        std::thread::spawn(move || {
            if converse(stream, &run) {
                let _ = say_down.send(());
            }
            open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

/// Serves one connection; true if it ended the run.
fn converse(mut stream: UnixStream, run: &Run) -> bool {
    let _ = stream.set_read_timeout(Some(REQUEST_PATIENCE));
    let _ = stream.set_write_timeout(Some(REQUEST_PATIENCE));
    let request = match read_line::<Request>(&mut stream) {
        Ok(request) => request,
        Err(error) => {
            let _ = write_line(&mut stream, &Answer::Error { text: error.to_string() });
            return false;
        }
    };
    let ends = request == Request::Down {};
    let answer =
        answer(run, request).unwrap_or_else(|error| Answer::Error { text: error.to_string() });
    let _ = write_line(&mut stream, &answer);
    ends
}

fn answer(run: &Run, request: Request) -> Result<Answer, LabError> {
    Ok(match request {
        Request::Exec { guest, argv, timeout_ms } => {
            let timeout = Duration::from_millis(timeout_ms);
            Answer::Executed { output: run.guest(&guest)?.exec(&argv, timeout)? }
        }
        Request::Start { guest, id, spec } => {
            run.guest(&guest)?.start_workload(&id, &spec, START_PATIENCE)?;
            Answer::Done {}
        }
        Request::Stop { guest, id } => {
            let (end, totals) = run.guest(&guest)?.stop_workload(&id)?;
            Answer::Stopped { end, totals }
        }
        Request::Report { guest } => {
            Answer::Report { report: run.guest(&guest)?.latest_report()?.map(Box::new) }
        }
        Request::Kill { guest } => {
            run.guest(&guest)?.kill();
            Answer::Done {}
        }
        Request::Down {} => {
            run.end();
            Answer::Done {}
        }
    })
}
