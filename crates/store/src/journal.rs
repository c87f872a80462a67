//! The journal for the daemon's main loop: a queue to the writer's thread.
//!
//! Idea: a thread owns the [`Writer`]; the loop sends it ticks through a bounded queue and never
//! waits for a disk. If the queue is full, the tick is dropped and counted, in the status and (once
//! the disk accepts writes again) in the journal. Cost: one copy of the tick, tens of microseconds
//! for a hundred guests. Limits: [`QUEUE_MAX`] entries wait, and `kill -9` loses them; normally
//! that is at most one tick.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use ballast_model::{Bytes, Timestamp};

use crate::JournalError;
use crate::entry::{Event, Start, Tick, TickEntry};
use crate::retention::JournalConfig;
use crate::writer::{Lost, Writer};

/// Entries that may wait for the disk: at one tick a second, a stall of 16 s.
pub const QUEUE_MAX: usize = 16;

/// Longest wait for the writer when a journal is dropped without [`Journal::close`].
const DROP_WAIT: Duration = Duration::from_secs(2);

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
}

/// State shared by the loop and the thread; never locked during a write.
#[derive(Debug, Default)]
struct Shared {
    status: JournalStatus,
    /// Dropped because the queue was full, and not yet reported to the writer.
    overflow: Lost,
}

enum Message {
    Tick(SystemTime, Box<TickEntry>),
    Event(SystemTime, Timestamp, Event),
    Retention(JournalConfig),
}

/// The journal of a running daemon.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    /// `None` once closing.
    queue: Option<SyncSender<Message>>,
    shared: Arc<Mutex<Shared>>,
    /// Disconnects when the thread ends.
    ended: Receiver<()>,
}

impl Journal {
    /// Opens or creates the journal at `path`, records the start, and starts the writer's thread. A
    /// full disk is not an error here: see [`JournalStatus::error`].
    ///
    /// # Errors
    /// As [`Writer::open`], or the thread could not be started.
    pub fn open(path: &Path, config: JournalConfig, start: Start) -> Result<Journal, JournalError> {
        let writer = Writer::open(path, config, start)?;
        let (queue, messages) = sync_channel(QUEUE_MAX);
        let (alive, ended) = channel();
        let shared = Arc::new(Mutex::new(Shared::default()));
        let theirs = Arc::clone(&shared);
        thread::Builder::new()
            .name("journal".into())
            .spawn(move || {
                run(writer, &messages, &theirs);
                drop(alive);
            })
            .map_err(|e| JournalError::io(path, e))?;
        Ok(Journal { path: path.to_owned(), queue: Some(queue), shared, ended })
    }

    /// Queues one tick. Never waits.
    ///
    /// # Errors
    /// The queue is full or the writer has ended; the tick is counted as lost. A failed write
    /// appears later, in [`Journal::status`].
    pub fn record(&self, tick: &Tick<'_>) -> Result<(), JournalError> {
        self.send(Message::Tick(tick.wall, Box::new(tick.to_entry())))
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
        self.send(Message::Event(wall, mono, event))
    }

    /// Changes how much is kept.
    ///
    /// # Errors
    /// As [`Journal::record`].
    pub fn set_retention(&self, config: JournalConfig) -> Result<(), JournalError> {
        self.send(Message::Retention(config))
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
        let said = self.record_event(wall, mono, Event::Stopped { why: why.to_owned() }).is_ok();
        said && self.finish(wait)
    }

    fn finish(&mut self, wait: Duration) -> bool {
        self.queue = None;
        matches!(self.ended.recv_timeout(wait), Err(RecvTimeoutError::Disconnected))
            && locked(&self.shared).status.error.is_none()
    }

    fn send(&self, message: Message) -> Result<(), JournalError> {
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
            Message::Tick(..) => shared.overflow.ticks += 1,
            Message::Event(..) => shared.overflow.events += 1,
            Message::Retention(_) => {}
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
fn locked(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(mut writer: Writer, messages: &Receiver<Message>, shared: &Mutex<Shared>) {
    publish(&writer, shared, |_| {});
    for message in messages {
        let overflow = take_overflow(&mut locked(shared));
        if overflow != Lost::default() {
            writer.lose(overflow, "the disk was slower than the ticks".into());
        }
        let began = Instant::now();
        let is_tick = matches!(message, Message::Tick(..));
        let result = match message {
            Message::Tick(wall, tick) => writer.record(&tick.at(wall)),
            Message::Event(wall, mono, event) => writer.record_event(wall, mono, event),
            Message::Retention(config) => {
                writer.set_retention(config);
                continue;
            }
        };
        publish(&writer, shared, |status| {
            status.last_write = began.elapsed();
            status.ticks_recorded += u64::from(is_tick && result.is_ok());
            status.error = result.err().map(|e| e.to_string());
        });
    }
}

/// Moves dropped entries into the status under the same lock, so that the sum never loses any.
fn take_overflow(shared: &mut Shared) -> Lost {
    let overflow = std::mem::take(&mut shared.overflow);
    shared.status.ticks_lost += overflow.ticks;
    shared.status.events_lost += overflow.events;
    overflow
}

fn publish(writer: &Writer, shared: &Mutex<Shared>, change: impl FnOnce(&mut JournalStatus)) {
    let (file_bytes, wal_bytes) = (writer.file_bytes(), writer.wal_bytes());
    let mut shared = locked(shared);
    let status = &mut shared.status;
    status.file_bytes = file_bytes;
    status.wal_bytes = wal_bytes;
    status.ticks_lost = writer.lost().ticks;
    status.events_lost = writer.lost().events;
    change(status);
}
