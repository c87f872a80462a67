//! The journal for the daemon's main loop: a queue to the writer's thread.
//!
//! Idea: a thread owns the [`Writer`]; the loop sends it ticks through a bounded queue and never
//! waits for a disk. If the queue is full, the tick is dropped and counted, in the status and (once
//! the disk accepts writes again) in the journal. A caller that wants to know when an entry is
//! written passes a function with it. The function is called once the row was handed to the
//! kernel: from then on the death of this process cannot lose it (a power failure can).
//!
//! Opening succeeds unless another daemon writes the journal. A file that cannot be used is moved
//! aside (`aside.rs`). Where that fails too, nothing is recorded, the status says why, and the
//! thread tries to open the journal again with every entry.
//!
//! Cost: one copy of the tick, tens of microseconds for a hundred guests. Limits: [`QUEUE_MAX`]
//! entries wait, and `kill -9` loses them; normally that is at most one tick.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use ballast_model::{Bytes, Timestamp};

use crate::JournalError;
use crate::aside::MovedAside;
use crate::entry::{Event, Start, Tick, TickEntry};
use crate::latest::JournalTail;
use crate::reader::Reader;
use crate::retention::JournalConfig;
use crate::writer::{LostCounts, Writer};

/// Entries that may wait for the disk: at one tick a second, a stall of 16 s.
pub const QUEUE_MAX: usize = 16;

/// Longest wait for the writer when a journal is dropped without [`Journal::close`].
const DROP_WAIT: Duration = Duration::from_secs(2);

/// Longest wait for the file when a journal is opened. After that only the thread waits for the
/// disk.
const OPEN_WAIT: Duration = Duration::from_secs(5);

/// The journal's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalStatus {
    /// Ticks recorded since the daemon started.
    pub ticks_recorded: u64,
    /// Ticks not recorded since the daemon started.
    pub ticks_lost: u64,
    /// Events not recorded since the daemon started.
    pub events_lost: u64,
    /// Why nothing is recorded at present; `None`: recording works.
    pub error: Option<String>,
    /// Size of the file.
    pub file_bytes: Bytes,
    /// Size of the write-ahead log beside it.
    pub wal_bytes: Bytes,
    /// Time the last write took.
    pub last_write: Duration,
    /// Files that were moved aside since the daemon started, oldest first.
    pub moved_aside: Vec<MovedAside>,
}

/// State shared by the loop and the thread; never locked during a write.
#[derive(Debug, Default)]
struct SharedJournal {
    status: JournalStatus,
    /// Dropped because the queue was full, and not yet reported to the writer.
    overflow: LostCounts,
}

/// Called once it is known whether an entry was written.
type WriteCallback = Box<dyn FnOnce(bool) + Send>;

enum JournalMessage {
    Tick(SystemTime, Box<TickEntry>, WriteCallback),
    Event(SystemTime, Timestamp, Event, WriteCallback),
    Retention(JournalConfig),
}

/// The thread's report after its first attempt to open the file.
struct OpenReport {
    error: Option<JournalError>,
    tail: Result<JournalTail, JournalError>,
}

/// The journal of a running daemon.
pub struct Journal {
    path: PathBuf,
    /// `None` once the journal is being closed.
    queue: Option<SyncSender<JournalMessage>>,
    shared: Arc<Mutex<SharedJournal>>,
    /// Disconnects when the thread ends.
    ended: Receiver<()>,
    tail: Result<JournalTail, JournalError>,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Journal {
    /// Opens or creates the journal at `path`, records the start, and starts the writer's thread. A
    /// file that cannot be used or a failing disk is no error here: see
    /// [`JournalStatus::moved_aside`] and [`JournalStatus::error`]. Waits at most 5 s.
    ///
    /// # Errors
    /// Another daemon records there, or the thread could not be started.
    pub fn open(path: &Path, config: JournalConfig, start: Start) -> Result<Journal, JournalError> {
        let (queue, messages) = sync_channel(QUEUE_MAX);
        let (alive, ended) = channel();
        let (opened, first_try) = channel();
        let shared = Arc::new(Mutex::new(SharedJournal::default()));
        locked(&shared).status.error =
            Some(format!("journal: {}: the disk has not answered yet", path.display()));
        let theirs = Arc::clone(&shared);
        let options = WriterOptions { path: path.to_owned(), config, start };
        thread::Builder::new()
            .name("journal".into())
            .spawn(move || {
                run(options, &opened, &messages, &theirs);
                drop(alive);
            })
            .map_err(|e| JournalError::io(path, e))?;
        let tail = match first_try.recv_timeout(OPEN_WAIT) {
            Ok(OpenReport { error: Some(error @ JournalError::InUse { .. }), .. }) => {
                return Err(error);
            }
            Ok(OpenReport { tail, .. }) => tail,
            Err(_) => {
                let slow = format!("the disk did not answer within {OPEN_WAIT:?}");
                Err(JournalError::io(path, std::io::Error::other(slow)))
            }
        };
        Ok(Journal { path: path.to_owned(), queue: Some(queue), shared, ended, tail })
    }

    /// Takes the tail that the daemons before this one left behind; later calls return nothing.
    ///
    /// # Errors
    /// It cannot be read, or could not be read in time.
    pub fn take_tail(&mut self) -> Result<JournalTail, JournalError> {
        std::mem::replace(&mut self.tail, Ok(JournalTail::default()))
    }

    /// Queues one tick. Never waits.
    ///
    /// # Errors
    /// The queue is full or the writer has ended; the tick is counted as lost. A failed write
    /// appears later, in [`Journal::status`].
    pub fn record(&self, tick: &Tick<'_>) -> Result<(), JournalError> {
        self.record_then(tick, |_| {})
    }

    /// As [`Journal::record`]. `written` is called on the writer's thread with whether the kernel
    /// has the row; it is dropped without a call if the tick is lost before that.
    ///
    /// # Errors
    /// As [`Journal::record`].
    pub fn record_then(
        &self,
        tick: &Tick<'_>,
        written: impl FnOnce(bool) + Send + 'static,
    ) -> Result<(), JournalError> {
        self.send(JournalMessage::Tick(tick.wall, Box::new(tick.to_entry()), Box::new(written)))
    }

    /// Queues an event. Never waits.
    ///
    /// # Errors
    /// As [`Journal::record`].
    pub fn record_event(
        &self,
        wall: SystemTime,
        mono: Timestamp,
        event: Event,
    ) -> Result<(), JournalError> {
        self.record_event_then(wall, mono, event, |_| {})
    }

    /// Queues an event; `written` as in [`Journal::record_then`].
    ///
    /// # Errors
    /// As [`Journal::record`].
    pub fn record_event_then(
        &self,
        wall: SystemTime,
        mono: Timestamp,
        event: Event,
        written: impl FnOnce(bool) + Send + 'static,
    ) -> Result<(), JournalError> {
        self.send(JournalMessage::Event(wall, mono, event, Box::new(written)))
    }

    /// Changes how much is kept.
    ///
    /// # Errors
    /// As [`Journal::record`].
    pub fn set_retention(&self, config: JournalConfig) -> Result<(), JournalError> {
        self.send(JournalMessage::Retention(config))
    }

    /// The journal's state.
    pub fn status(&self) -> JournalStatus {
        let shared = locked(&self.shared);
        let mut status = shared.status.clone();
        status.ticks_lost += shared.overflow.ticks;
        status.events_lost += shared.overflow.events;
        status
    }

    /// Records the stop and waits at most `wait` for the queue to empty. Returns whether everything
    /// was written.
    pub fn close(mut self, wall: SystemTime, mono: Timestamp, why: &str, wait: Duration) -> bool {
        let stopped = Event::Stopped { why: why.to_owned() };
        let is_queued = self.record_event(wall, mono, stopped).is_ok();
        is_queued && self.finish(wait)
    }

    fn finish(&mut self, wait: Duration) -> bool {
        self.queue = None;
        matches!(self.ended.recv_timeout(wait), Err(RecvTimeoutError::Disconnected))
            && locked(&self.shared).status.error.is_none()
    }

    fn send(&self, message: JournalMessage) -> Result<(), JournalError> {
        let gone = || JournalError::WriterGone { path: self.path.clone() };
        let (error, message) = match self.queue.as_ref().ok_or_else(gone)?.try_send(message) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Full(message)) => {
                (JournalError::QueueFull { path: self.path.clone(), queued: QUEUE_MAX }, message)
            }
            Err(TrySendError::Disconnected(message)) => (gone(), message),
        };
        let mut shared = locked(&self.shared);
        match message {
            JournalMessage::Tick(..) => shared.overflow.ticks += 1,
            JournalMessage::Event(..) => shared.overflow.events += 1,
            JournalMessage::Retention(_) => {}
        }
        Err(error)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if self.queue.is_some() {
            self.finish(DROP_WAIT);
        }
    }
}

/// Ignores poisoning: the counters are consistent at every point where a thread can panic.
fn locked(shared: &Mutex<SharedJournal>) -> MutexGuard<'_, SharedJournal> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a journal is opened with.
struct WriterOptions {
    path: PathBuf,
    config: JournalConfig,
    start: Start,
}

impl WriterOptions {
    fn open(&self) -> Result<Writer, JournalError> {
        Writer::open(&self.path, self.config, self.start.clone())
    }
}

/// The state while the journal cannot be opened.
struct OpenFailure {
    error: String,
    /// The configuration in force, to be recorded once there is a file.
    config: Option<(SystemTime, Timestamp, Event)>,
}

fn run(
    mut options: WriterOptions,
    opened: &Sender<OpenReport>,
    messages: &Receiver<JournalMessage>,
    shared: &Mutex<SharedJournal>,
) {
    let first = options.open();
    let is_in_use = matches!(first, Err(JournalError::InUse { .. }));
    // Read while the writer holds the lock, so that nobody else adds to the file.
    let tail = Reader::open(&options.path).and_then(|reader| reader.tail());
    let tail = match tail {
        Err(JournalError::Missing { .. }) => Ok(JournalTail::default()),
        tail => tail,
    };
    let (mut state, error) = match first {
        Ok(writer) => (Ok(writer), None),
        Err(e) => (Err(OpenFailure { error: e.to_string(), config: None }), Some(e)),
    };
    match &state {
        Ok(writer) => publish(writer, shared, |_| {}),
        Err(failure) => locked(shared).status.error = Some(failure.error.clone()),
    }
    // Fails if the opening thread has given up waiting.
    let _ = opened.send(OpenReport { error, tail });
    if is_in_use {
        return;
    }
    for message in messages {
        if let JournalMessage::Retention(config) = &message {
            options.config = *config;
        }
        if let Err(failure) = &mut state {
            match options.open() {
                Ok(writer) => state = Ok(resumed(writer, failure, shared)),
                Err(e) => failure.error = e.to_string(),
            }
        }
        match &mut state {
            Ok(writer) => write(writer, message, shared),
            Err(failure) => count_lost(failure, message, shared),
        }
    }
}

/// Goes on with a file that could not be opened before.
fn resumed(mut writer: Writer, failure: &mut OpenFailure, shared: &Mutex<SharedJournal>) -> Writer {
    let status = locked(shared).status.clone();
    writer.count_lost(
        LostCounts { ticks: status.ticks_lost, events: status.events_lost },
        std::mem::take(&mut failure.error),
    );
    if let Some((wall, mono, config)) = failure.config.take() {
        // An event that cannot be written now waits in the writer.
        let _ = writer.record_event(wall, mono, config);
    }
    writer
}

/// Counts an entry as lost, because there is no open file.
fn count_lost(failure: &mut OpenFailure, message: JournalMessage, shared: &Mutex<SharedJournal>) {
    let mut shared = locked(shared);
    take_overflow(&mut shared);
    match message {
        JournalMessage::Tick(_, _, written) => {
            shared.status.ticks_lost += 1;
            written(false);
        }
        JournalMessage::Event(wall, mono, event, written) => {
            if matches!(event, Event::ConfigLoaded { .. }) {
                failure.config = Some((wall, mono, event));
            } else {
                shared.status.events_lost += 1;
            }
            written(false);
        }
        JournalMessage::Retention(_) => {}
    }
    shared.status.error = Some(failure.error.clone());
}

fn write(writer: &mut Writer, message: JournalMessage, shared: &Mutex<SharedJournal>) {
    let overflow = take_overflow(&mut locked(shared));
    if overflow != LostCounts::default() {
        writer.count_lost(overflow, "the disk was slower than the ticks".into());
    }
    let began = Instant::now();
    let is_tick = matches!(message, JournalMessage::Tick(..));
    let (result, written) = match message {
        JournalMessage::Tick(wall, tick, written) => (writer.record(&tick.at(wall)), written),
        JournalMessage::Event(wall, mono, event, written) => {
            (writer.record_event(wall, mono, event), written)
        }
        JournalMessage::Retention(config) => return writer.set_retention(config),
    };
    let is_written = result.is_ok();
    publish(writer, shared, |status| {
        status.last_write = began.elapsed();
        status.ticks_recorded += u64::from(is_tick && is_written);
    });
    written(is_written);
}

/// Moves dropped entries into the status under the same lock, so that the sum never loses any.
fn take_overflow(shared: &mut SharedJournal) -> LostCounts {
    let overflow = std::mem::take(&mut shared.overflow);
    shared.status.ticks_lost += overflow.ticks;
    shared.status.events_lost += overflow.events;
    overflow
}

fn publish(
    writer: &Writer,
    shared: &Mutex<SharedJournal>,
    change: impl FnOnce(&mut JournalStatus),
) {
    let (file_bytes, wal_bytes) = (writer.file_bytes(), writer.wal_bytes());
    let mut shared = locked(shared);
    let status = &mut shared.status;
    status.file_bytes = file_bytes;
    status.wal_bytes = wal_bytes;
    status.ticks_lost = writer.lost().ticks;
    status.events_lost = writer.lost().events;
    status.error = writer.error().map(ToOwned::to_owned);
    if status.moved_aside.len() != writer.moved_aside().len() {
        status.moved_aside = writer.moved_aside().to_vec();
    }
    change(status);
}
