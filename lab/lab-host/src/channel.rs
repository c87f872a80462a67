//! The host's side of the connection to the program in a guest.
//!
//! Idea: one thread reads the guest's messages, keeps the latest report and forwards every message
//! to the subscribers; a waiter wakes up when its message arrives, when the guest disconnects, or
//! at its timeout.
//! Limits: a slow subscriber loses the oldest messages and can see how many.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ballast_lab_guest::line::{self, LineReader};
use ballast_lab_guest::protocol::{
    FromGuest, LabReport, PROTOCOL_VERSION, ProcessEnd, Ready, ToGuest, WorkloadTotals,
};
use serde::{Deserialize, Serialize};

/// Most messages queued for one subscriber.
const EVENTS_MAX: usize = 1024;
/// Most unclaimed answers kept.
const ANSWERS_MAX: usize = 256;
/// Time between two attempts to connect or to greet.
const RETRY: Duration = Duration::from_millis(100);
/// Write timeout: the port's buffer is full only if the guest does not read.
const WRITE_PATIENCE: Duration = Duration::from_secs(30);
/// First number of a command, so that no number equals the name of a workload.
const EXEC_ID_FIRST: u64 = 1 << 40;

/// A message from a guest and its time of arrival.
#[derive(Clone, Debug)]
pub struct Event {
    /// When the host read it.
    pub at: Instant,
    /// The message.
    pub message: FromGuest,
}

/// The result of a program executed in a guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecOutput {
    /// How it ended.
    pub end: ProcessEnd,
    /// The end of its standard output.
    pub stdout: String,
    /// The end of its standard error.
    pub stderr: String,
    /// Whether the beginning of either was cut off.
    pub truncated: bool,
}

/// Why waiting for a message failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChannelError {
    /// The guest closed the channel: it has exited or is about to.
    Closed,
    /// The timeout expired.
    TimedOut,
    /// The guest refused; its error text.
    Refused(String),
}

/// What was received so far, as far as it is not claimed.
#[derive(Default)]
pub(crate) struct State {
    greeted: bool,
    version: Option<u32>,
    ready: Option<Ready>,
    report: Option<LabReport>,
    done: VecDeque<(String, ProcessEnd, WorkloadTotals)>,
    executed: BTreeMap<u64, ExecOutput>,
    errors: VecDeque<(Option<String>, String)>,
    closed: bool,
    subscribers: Vec<Weak<Inbox>>,
}

impl State {
    /// Takes the result of a workload.
    pub(crate) fn done(&mut self, id: &str) -> Option<(ProcessEnd, WorkloadTotals)> {
        let at = self.done.iter().position(|(name, ..)| name == id)?;
        self.done.remove(at).map(|(_, end, totals)| (end, totals))
    }

    /// The number of the latest report; 0 before the first.
    pub(crate) fn report_seq(&self) -> u64 {
        self.report.as_ref().map_or(0, |report| report.seq)
    }

    /// Whether a workload is running, according to the latest report.
    pub(crate) fn runs(&self, id: &str) -> bool {
        let report = self.report.as_ref();
        report.is_some_and(|report| report.workloads.iter().any(|load| load.id == id))
    }

    /// Whether a workload has an unclaimed result.
    pub(crate) fn has_done(&self, id: &str) -> bool {
        self.done.iter().any(|(name, ..)| name == id)
    }

    /// Takes the result of a command.
    pub(crate) fn executed(&mut self, id: u64) -> Option<ExecOutput> {
        self.executed.remove(&id)
    }
}

struct SharedChannel {
    nonce: u64,
    state: Mutex<State>,
    changed: Condvar,
}

/// Locks a mutex even if it is poisoned: a panic between assignments of plain values leaves them
/// usable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The messages of one guest since the subscription began; at most 1,024 are queued.
#[derive(Debug)]
pub struct Subscription {
    inbox: Arc<Inbox>,
}

#[derive(Debug, Default)]
struct Inbox {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Event>,
    lost: u64,
    closed: bool,
}

impl Subscription {
    /// Waits up to `patience` for the next message; `None` if none arrives or the guest is gone.
    pub fn next(&self, patience: Duration) -> Option<Event> {
        let queue = lock(&self.inbox.queue);
        let waiting = |queue: &mut Queue| queue.events.is_empty() && !queue.closed;
        let (mut queue, _) = self
            .inbox
            .arrived
            .wait_timeout_while(queue, patience, waiting)
            .unwrap_or_else(PoisonError::into_inner);
        queue.events.pop_front()
    }

    /// Number of messages lost so far because the queue was full.
    pub fn lost(&self) -> u64 {
        lock(&self.inbox.queue).lost
    }

    /// Whether the guest is gone and the queue is empty.
    pub fn is_over(&self) -> bool {
        let queue = lock(&self.inbox.queue);
        queue.closed && queue.events.is_empty()
    }
}

/// An open connection to one guest.
pub(crate) struct Channel {
    stream: Mutex<UnixStream>,
    shared: Arc<SharedChannel>,
    next_exec: Mutex<u64>,
    reader: Option<JoinHandle<()>>,
}

impl Channel {
    /// Connects to the port's socket and greets until the guest answers; gives up once `is_gone`.
    pub(crate) fn open(
        socket: &Path,
        deadline: Instant,
        is_gone: &dyn Fn() -> bool,
    ) -> Result<Channel, ChannelError> {
        Channel::over(connect(socket, deadline, is_gone)?, deadline, is_gone)
    }

    /// Greets over `stream` until the guest answers; gives up once `is_gone`.
    pub(crate) fn over(
        stream: UnixStream,
        deadline: Instant,
        is_gone: &dyn Fn() -> bool,
    ) -> Result<Channel, ChannelError> {
        let _ = stream.set_write_timeout(Some(WRITE_PATIENCE));
        let nonce = u64::from(std::process::id()) << 32 | u64::from(socket_number(&stream));
        let shared =
            Arc::new(SharedChannel { nonce, state: Mutex::default(), changed: Condvar::new() });
        let source = stream.try_clone().map_err(|_| ChannelError::Closed)?;
        let reader = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || read_messages(source, &shared)
        });
        let channel = Channel {
            stream: Mutex::new(stream),
            shared,
            next_exec: Mutex::new(EXEC_ID_FIRST),
            reader: Some(reader),
        };
        channel.greet(deadline, is_gone)?;
        Ok(channel)
    }

    /// Repeats the greeting until the guest answers: bytes sent before it opens its port are lost.
    fn greet(&self, deadline: Instant, is_gone: &dyn Fn() -> bool) -> Result<(), ChannelError> {
        let hello = ToGuest::Hello { version: PROTOCOL_VERSION, nonce: self.shared.nonce };
        loop {
            self.send(&hello)?;
            match self.wait_for(RETRY, |state| {
                let other = state.version.filter(|version| *version != PROTOCOL_VERSION);
                match other {
                    Some(version) => Some(Err(version)),
                    None => state.ready.is_some().then_some(Ok(())),
                }
            }) {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(version)) => {
                    return Err(ChannelError::Refused(format!(
                        "lab-guest speaks version {version}, this lab {PROTOCOL_VERSION}: build it \
                         again"
                    )));
                }
                Err(ChannelError::TimedOut) if is_gone() => return Err(ChannelError::Closed),
                Err(ChannelError::TimedOut) if Instant::now() < deadline => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a message after a line break, which terminates a line cut short earlier.
    pub(crate) fn send(&self, message: &ToGuest) -> Result<(), ChannelError> {
        let line =
            line::encode(message).map_err(|error| ChannelError::Refused(error.to_string()))?;
        let text = format!("\n{line}");
        lock(&self.stream).write_all(text.as_bytes()).map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => ChannelError::TimedOut,
            _ => ChannelError::Closed,
        })
    }

    /// Waits until `look` returns a value.
    pub(crate) fn wait_for<T>(
        &self,
        patience: Duration,
        mut look: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, ChannelError> {
        let end = Instant::now() + patience;
        let mut state = lock(&self.shared.state);
        loop {
            if let Some(found) = look(&mut state) {
                return Ok(found);
            }
            if state.closed {
                return Err(ChannelError::Closed);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ChannelError::TimedOut);
            }
            let woken = self.shared.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Sends `message` and waits for its answer, or for an error about `id`.
    pub(crate) fn ask<T>(
        &self,
        message: &ToGuest,
        id: &str,
        patience: Duration,
        mut look: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, ChannelError> {
        lock(&self.shared.state).errors.retain(|(about, _)| about.as_deref() != Some(id));
        self.send(message)?;
        self.wait_for(patience, |state| {
            let refused = state.errors.iter().position(|(about, _)| about.as_deref() == Some(id));
            if let Some((_, text)) = refused.and_then(|at| state.errors.remove(at)) {
                return Some(Err(ChannelError::Refused(text)));
            }
            look(state).map(Ok)
        })?
    }

    /// Drops the results of earlier workloads of that name; returns the number of the latest
    /// report.
    pub(crate) fn forget_done(&self, id: &str) -> u64 {
        let mut state = lock(&self.shared.state);
        state.done.retain(|(name, ..)| name != id);
        state.report_seq()
    }

    /// Allocates a number for the next command.
    pub(crate) fn next_exec_id(&self) -> u64 {
        let mut next = lock(&self.next_exec);
        *next += 1;
        *next
    }

    /// What the guest found at boot.
    pub(crate) fn ready(&self) -> Option<Ready> {
        lock(&self.shared.state).ready.clone()
    }

    /// The latest report.
    pub(crate) fn report(&self) -> Option<LabReport> {
        lock(&self.shared.state).report.clone()
    }

    /// Subscribes to every message from now on.
    pub(crate) fn subscribe(&self) -> Subscription {
        let inbox = Arc::new(Inbox::default());
        let mut state = lock(&self.shared.state);
        lock(&inbox.queue).closed = state.closed;
        state.subscribers.push(Arc::downgrade(&inbox));
        Subscription { inbox }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let _ = lock(&self.stream).shutdown(std::net::Shutdown::Both);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

fn connect(
    socket: &Path,
    deadline: Instant,
    is_gone: &dyn Fn() -> bool,
) -> Result<UnixStream, ChannelError> {
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => return Ok(stream),
            Err(_) if is_gone() => return Err(ChannelError::Closed),
            Err(_) if Instant::now() >= deadline => return Err(ChannelError::TimedOut),
            Err(_) => std::thread::sleep(RETRY),
        }
    }
}

/// A number that differs between all open connections of this process.
fn socket_number(stream: &UnixStream) -> u32 {
    use std::os::fd::AsRawFd;
    stream.as_raw_fd().unsigned_abs()
}

fn read_messages(mut source: UnixStream, shared: &SharedChannel) {
    let mut reader = LineReader::default();
    let mut chunk = [0; 16 << 10];
    loop {
        let read = match source.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        reader.push(&chunk[..read]);
        while let Some(line) = reader.next_line() {
            // An unreadable line is the rest of an earlier connection.
            if let Ok(message) = line.and_then(|line| line::decode::<FromGuest>(&line)) {
                let event = Event { at: Instant::now(), message };
                apply(&mut lock(&shared.state), shared.nonce, event);
                shared.changed.notify_all();
            }
        }
    }
    let mut state = lock(&shared.state);
    state.closed = true;
    for inbox in state.subscribers.iter().filter_map(Weak::upgrade) {
        lock(&inbox.queue).closed = true;
        inbox.arrived.notify_all();
    }
    shared.changed.notify_all();
}

/// Applies a message to the state. Messages before the answer to our own greeting are ignored.
fn apply(state: &mut State, ours: u64, event: Event) {
    match &event.message {
        FromGuest::Hello { version, nonce, .. } if *nonce == ours => {
            state.greeted = true;
            state.version = Some(*version);
        }
        _ if !state.greeted => return,
        FromGuest::Hello { .. } => return,
        FromGuest::Ready(ready) => state.ready = Some(ready.clone()),
        FromGuest::Report(report) => state.report = Some(report.as_ref().clone()),
        FromGuest::Done { id, end, totals } => {
            push_bounded(&mut state.done, (id.clone(), *end, *totals));
        }
        FromGuest::ExecDone { id, end, stdout, stderr, truncated } => {
            let output = ExecOutput {
                end: *end,
                stdout: stdout.clone(),
                stderr: stderr.clone(),
                truncated: *truncated,
            };
            state.executed.insert(*id, output);
            if state.executed.len() > ANSWERS_MAX {
                state.executed.pop_first();
            }
        }
        FromGuest::Error { id, text } => {
            push_bounded(&mut state.errors, (id.clone(), text.clone()));
        }
    }
    state.subscribers.retain(|inbox| inbox.upgrade().is_some_and(|inbox| deliver(&inbox, &event)));
}

fn push_bounded<T>(queue: &mut VecDeque<T>, item: T) {
    queue.push_back(item);
    if queue.len() > ANSWERS_MAX {
        queue.pop_front();
    }
}

/// Queues a message for a subscriber; always true, for `retain`.
fn deliver(inbox: &Inbox, event: &Event) -> bool {
    let mut queue = lock(&inbox.queue);
    queue.events.push_back(event.clone());
    if queue.events.len() > EVENTS_MAX {
        queue.events.pop_front();
        queue.lost += 1;
    }
    inbox.arrived.notify_all();
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn ready() -> FromGuest {
        FromGuest::Ready(Ready {
            kernel: "6.1".to_owned(),
            memory_total: None,
            swap_total: None,
            data_disk: false,
            complaints: Vec::new(),
        })
    }

    /// A guest that answers messages with `answer`; the first `deaf` messages are lost.
    fn guest(
        deaf: usize,
        answer: impl Fn(ToGuest) -> Vec<FromGuest> + Send + 'static,
    ) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("channel");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"rest of a line\n{\"type\":\"repo").unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            for line in lines.filter(|line| !line.is_empty()).skip(deaf) {
                for message in answer(line::decode(&line).unwrap()) {
                    let text = format!("\n{}", line::encode(&message).unwrap());
                    stream.write_all(text.as_bytes()).unwrap();
                }
            }
        });
        (folder, path)
    }

    fn greeting(message: &ToGuest) -> Vec<FromGuest> {
        match message {
            ToGuest::Hello { version, nonce } => {
                vec![FromGuest::Hello { version: *version, nonce: *nonce, uptime_ms: 5 }, ready()]
            }
            _ => Vec::new(),
        }
    }

    fn open(path: &Path) -> Result<Channel, ChannelError> {
        Channel::open(path, Instant::now() + PATIENCE, &|| false)
    }

    #[test]
    fn greeting_is_repeated_until_answered() {
        let (_folder, path) = guest(2, |message| greeting(&message));
        let channel = open(&path).unwrap();
        assert_eq!(channel.ready().unwrap().kernel, "6.1");
    }

    #[test]
    fn other_protocol_version_is_refused_with_remedy() {
        let (_folder, path) = guest(0, |message| match message {
            ToGuest::Hello { nonce, .. } => {
                vec![FromGuest::Hello { version: 99, nonce, uptime_ms: 1 }]
            }
            _ => Vec::new(),
        });
        let Err(ChannelError::Refused(why)) = open(&path) else { panic!("accepted") };
        assert!(why.contains("99") && why.contains("build it again"), "{why}");
    }

    #[test]
    fn answers_and_refusals_reach_their_requester() {
        let (_folder, path) = guest(0, |message| match message {
            ToGuest::Exec { id, .. } => vec![FromGuest::ExecDone {
                id,
                end: ProcessEnd::Exited { code: 3 },
                stdout: "out".to_owned(),
                stderr: String::new(),
                truncated: false,
            }],
            ToGuest::Stop { id } => {
                vec![FromGuest::Error { id: Some(id), text: "no such workload".to_owned() }]
            }
            other => greeting(&other),
        });
        let channel = open(&path).unwrap();
        let id = channel.next_exec_id();
        let exec = ToGuest::shell(id, "true", 1000);
        let output =
            channel.ask(&exec, &id.to_string(), PATIENCE, |answers| answers.executed(id)).unwrap();
        assert_eq!((output.end, output.stdout.as_str()), (ProcessEnd::Exited { code: 3 }, "out"));
        let stop = ToGuest::Stop { id: "w".to_owned() };
        let refused = channel.ask(&stop, "w", PATIENCE, |answers| answers.done("w"));
        assert_eq!(refused, Err(ChannelError::Refused("no such workload".to_owned())));
    }

    #[test]
    fn disconnect_wakes_every_waiter() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("channel");
        let listener = UnixListener::bind(&path).unwrap();
        let guest = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            while line.trim().is_empty() {
                line.clear();
                reader.read_line(&mut line).unwrap();
            }
            for message in greeting(&line::decode(&line).unwrap()) {
                stream.write_all(line::encode(&message).unwrap().as_bytes()).unwrap();
            }
            // Reads one message, then disconnects.
            reader.read_line(&mut line).unwrap();
            reader.read_line(&mut line).unwrap();
        });
        let channel = open(&path).unwrap();
        let subscription = channel.subscribe();
        let stop = ToGuest::Stop { id: "w".to_owned() };
        let answer = channel.ask(&stop, "w", PATIENCE, |answers| answers.done("w"));
        assert_eq!(answer, Err(ChannelError::Closed));
        assert!(subscription.next(PATIENCE).is_none());
        assert!(subscription.is_over());
        guest.join().unwrap();
    }

    #[test]
    fn slow_subscriber_loses_oldest_messages_and_counts_them() {
        let inbox = Inbox::default();
        for seq in 0..EVENTS_MAX as u64 + 3 {
            let message = FromGuest::Error { id: None, text: seq.to_string() };
            deliver(&inbox, &Event { at: Instant::now(), message });
        }
        let subscription = Subscription { inbox: Arc::new(inbox) };
        assert_eq!(subscription.lost(), 3);
        let first = subscription.next(Duration::ZERO).unwrap().message;
        assert_eq!(first, FromGuest::Error { id: None, text: "3".to_owned() });
    }
}
