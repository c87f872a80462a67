//! The journal as the daemon's main loop sees it: handed over and forgotten.
//!
//! Idea: a thread owns the [`Writer`]; the loop hands it ticks through a bounded queue and never
//! waits for a disk. A full queue means that the disk is slower than the ticks: the tick is given up
//! and counted, here and (as soon as it can be written) in the journal itself.
//! Cost: a tick is copied once, tens of microseconds for a hundred guests.
//! Limits: [`QUEUE_MAX`] entries wait; `kill -9` loses those, which while the disk keeps up is at
//! most the tick being written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use ballast_model::{Bytes, GuestId, GuestLimits, Outcome, Plan, Snapshot, Timestamp};

use crate::JournalError;
use crate::entry::{Event, Start, Tick};
use crate::retention::JournalConfig;
use crate::writer::{Missing, Writer};

/// Entries that may wait for the disk: at a tick a second it may stand still for a quarter of a
/// minute, and memory stays bounded.
pub const QUEUE_MAX: usize = 16;

/// Longest wait for the writer when a journal is dropped without [`Journal::close`].
const DROP_WAIT: Duration = Duration::from_secs(2);

/// How the journal fares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalStatus {
    /// Ticks recorded since the daemon started.
    pub ticks_recorded: u64,
    /// Ticks not recorded since the daemon started.
    pub ticks_lost: u64,
    /// Events not recorded since the daemon started.
    pub events_lost: u64,
    /// Why nothing is recorded at present, if so.
    pub error: Option<String>,
    /// Size of the file.
    pub file_bytes: Bytes,
    /// Size of the write-ahead log beside it.
    pub wal_bytes: Bytes,
    /// Time the last write took.
    pub last_write: Duration,
}

/// What the loop and the thread both touch; never locked across a write.
#[derive(Debug, Default)]
struct Shared {
    status: JournalStatus,
    /// Given up because the queue was full, and not known to the writer yet.
    overflow: Missing,
}

enum Message {
    Tick(Box<OwnedTick>),
    Event(SystemTime, Timestamp, Event),
    Retention(JournalConfig),
}

struct OwnedTick {
    wall: SystemTime,
    snapshot: Snapshot,
    plan: Plan,
    outcomes: Vec<Outcome>,
    limits: BTreeMap<GuestId, GuestLimits>,
    paused: bool,
    decision_cost: Duration,
}

/// The journal of a running daemon.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    /// `None` once it is being closed.
    queue: Option<SyncSender<Message>>,
    shared: Arc<Mutex<Shared>>,
    /// Disconnects when the thread has ended.
    ended: Receiver<()>,
}

impl Journal {
    /// Opens or creates the journal at `path`, records the start, and starts the writer's thread. A
    /// full disk is no error here: see [`JournalStatus::error`].
    ///
    /// # Errors
    /// As [`Writer::open`]; or no thread could be started.
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

    /// Hands over one tick. Never waits.
    ///
    /// # Errors
    /// The tick is not recorded because the queue is full or the writer has ended; it is counted. A
    /// failure to write shows later, in [`Journal::status`].
    pub fn record(&self, tick: &Tick<'_>) -> Result<(), JournalError> {
        self.send(Message::Tick(Box::new(OwnedTick {
            wall: tick.wall,
            snapshot: tick.snapshot.clone(),
            plan: tick.plan.clone(),
            outcomes: tick.outcomes.to_vec(),
            limits: tick.limits.clone(),
            paused: tick.paused,
            decision_cost: tick.decision_cost,
        })))
    }

    /// Hands over an event. Never waits.
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

    /// How the journal fares.
    pub fn status(&self) -> JournalStatus {
        let shared = locked(&self.shared);
        let mut status = shared.status.clone();
        status.ticks_lost += shared.overflow.ticks;
        status.events_lost += shared.overflow.events;
        status
    }

    /// Records an orderly end and waits at most `wait` until everything handed over is written.
    /// Whether it was.
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
            Message::Tick(_) => shared.overflow.ticks += 1,
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

/// A panic elsewhere must not silence the journal: the counters in there are always consistent.
fn locked(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(mut writer: Writer, messages: &Receiver<Message>, shared: &Mutex<Shared>) {
    publish(&writer, shared, |_| {});
    for message in messages {
        let overflow = take_overflow(&mut locked(shared));
        if overflow != Missing::default() {
            writer.lose(overflow, "the disk was slower than the ticks".into());
        }
        let began = Instant::now();
        let is_tick = matches!(message, Message::Tick(_));
        let result = match message {
            Message::Tick(tick) => writer.record(&Tick {
                wall: tick.wall,
                snapshot: &tick.snapshot,
                plan: &tick.plan,
                outcomes: &tick.outcomes,
                limits: &tick.limits,
                paused: tick.paused,
                decision_cost: tick.decision_cost,
            }),
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

/// Moves what the queue refused into the status at the same moment, so that none is missing from it.
fn take_overflow(shared: &mut Shared) -> Missing {
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
    status.ticks_lost = writer.missing().ticks;
    status.events_lost = writer.missing().events;
    change(status);
}
