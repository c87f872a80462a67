//! A connection to libvirt's socket, with the purpose of each open call.
//!
//! Idea: bytes are read and written only while the daemon waits for something; each answer is filed
//! by the purpose of its call. Limits: an answer that no caller waits for any more is dropped.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::Path;

use ballast_model::{GuestId, LinkDown, OutcomeKind, Timestamp};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout_at};

use crate::session::{Answer, LibvirtSession, Serial};

/// The folders of a libvirt that manages the whole host.
const SYSTEM_FOLDERS: [&str; 2] = ["/run/libvirt", "/var/run/libvirt"];
/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

/// A connection, with the purpose of each open call.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    pub(crate) session: LibvirtSession,
    pub(crate) pending: BTreeMap<Serial, Purpose>,
    /// Whether events were subscribed to.
    pub(crate) is_watched: bool,
    /// Outcomes of orders, as received.
    pub(crate) outcomes: BTreeMap<Serial, OutcomeKind>,
    /// Answers to commands, as received.
    pub(crate) replies: BTreeMap<Serial, Answer>,
    /// Other answers, as received, and when.
    pub(crate) answers: VecDeque<(Purpose, Answer, Instant)>,
}

/// The purpose of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The call was sent at this time: the figures in the answer are as old.
    Stats(Timestamp),
    /// What domains have read from their disks; the call was sent at this time, by both clocks.
    DiskReads(Timestamp, Instant),
    /// The guest's current memory; the call was sent at this time.
    CurrentMemory(GuestId, Timestamp),
    Xml(GuestId),
    StatsPeriod(GuestId),
    Order,
    Command,
    Watch,
}

impl Connection {
    /// Connects to `socket`, before `until`.
    pub(crate) async fn open(socket: &Path, until: Instant) -> Result<Connection, LinkDown> {
        match timeout_at(until, UnixStream::connect(socket)).await {
            Err(_) => Err(LinkDown::TimedOut),
            Ok(Err(error)) => Err(match error.kind() {
                io::ErrorKind::PermissionDenied => LinkDown::PermissionDenied,
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => LinkDown::Refused,
                _ => LinkDown::Closed(error.to_string()),
            }),
            Ok(Ok(stream)) => Ok(Connection::new(stream, uri(socket))),
        }
    }

    fn new(stream: UnixStream, uri: &str) -> Connection {
        Connection {
            stream,
            session: LibvirtSession::new(uri),
            pending: BTreeMap::new(),
            is_watched: false,
            outcomes: BTreeMap::new(),
            replies: BTreeMap::new(),
            answers: VecDeque::new(),
        }
    }

    pub(crate) fn is_pending(&self, purpose: &Purpose) -> bool {
        self.pending.values().any(|it| it == purpose)
    }

    pub(crate) fn awaits_stats(&self) -> bool {
        self.pending.values().any(|it| matches!(it, Purpose::Stats(_)))
    }

    /// Whether a call for current memory is open: of this guest or, if `None`, any; sent at this
    /// time or, if `None`, at any time.
    pub(crate) fn awaits_current_memory(
        &self,
        of: Option<&GuestId>,
        at: Option<Timestamp>,
    ) -> bool {
        let is_it = |purpose: &Purpose| match purpose {
            Purpose::CurrentMemory(id, asked_at) => {
                of.is_none_or(|of| of == id) && at.is_none_or(|at| at == *asked_at)
            }
            _ => false,
        };
        self.pending.values().any(is_it)
    }

    /// Files the received answers by the purposes of their calls.
    pub(crate) fn sort_answers(&mut self) {
        while let Some((serial, answer)) = self.session.next_answer() {
            match (self.pending.remove(&serial), answer) {
                // The caller no longer waits.
                (None, _) => {}
                (Some(Purpose::Order), Ok(_)) => {
                    self.outcomes.insert(serial, OutcomeKind::Accepted);
                }
                (Some(Purpose::Order), Err(error)) => {
                    self.outcomes.insert(serial, OutcomeKind::Failed(error.to_string()));
                }
                (Some(Purpose::Command), answer) => {
                    self.replies.insert(serial, answer);
                }
                (Some(purpose), answer) => {
                    self.answers.push_back((purpose, answer, Instant::now()));
                }
            }
        }
    }

    /// Reads and writes once. `false` if `is_done` holds or `until` has passed.
    pub(crate) async fn move_bytes(
        &mut self,
        until: Instant,
        is_done: impl Fn(&Connection) -> bool,
    ) -> Result<bool, LinkDown> {
        if is_done(self) {
            return Ok(false);
        }
        match timeout_at(until, self.exchange()).await {
            Ok(moved) => moved.map(|()| true),
            Err(_) => Ok(false),
        }
    }

    /// Waits until the socket is ready, then reads and writes once. No byte is lost if the future
    /// is dropped.
    pub(crate) async fn exchange(&mut self) -> Result<(), LinkDown> {
        let interest = match self.session.outgoing().is_empty() {
            true => Interest::READABLE,
            false => Interest::READABLE | Interest::WRITABLE,
        };
        let ready = self.stream.ready(interest).await;
        let ready = ready.map_err(|error| LinkDown::Closed(error.to_string()))?;
        if ready.is_writable() {
            let written = self.stream.try_write(self.session.outgoing());
            self.session.mark_written(count(written)?.unwrap_or(0));
        }
        if ready.is_readable() {
            let mut bytes = vec![0; READ_BYTES];
            match count(self.stream.try_read(&mut bytes))? {
                Some(0) => return Err(LinkDown::Closed("end of stream".to_owned())),
                Some(read) => self.session.receive(&bytes[..read])?,
                None => {}
            }
        }
        Ok(())
    }
}

/// The URI to open on a socket.
fn uri(socket: &Path) -> &'static str {
    let is_system = SYSTEM_FOLDERS.iter().any(|folder| socket.starts_with(folder));
    if is_system { "qemu:///system" } else { "qemu:///session" }
}

/// The number of bytes moved; `None` if the socket is not ready.
fn count(moved: io::Result<usize>) -> Result<Option<usize>, LinkDown> {
    match moved {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(LinkDown::Closed(error.to_string())),
    }
}
