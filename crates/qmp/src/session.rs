//! One QMP connection as a state machine: no I/O, and time is a parameter.
//!
//! Idea: greeting, then `qmp_capabilities`, then commands. Several commands may be queued before
//! the bytes are written, so that they leave in one write; a reply finds its command by id. A
//! command whose deadline passes is reported once and stays in flight until its reply comes, so
//! that a hypervisor that hangs never has more than [`IN_FLIGHT_MAX`] commands to answer.
//!
//! Limits: [`IN_FLIGHT_MAX`] commands, [`OUTGOING_BYTES_MAX`] bytes to be written, and
//! [`EVENTS_MAX`] events; further events displace the oldest, which are counted. An error is final.

use std::collections::VecDeque;
use std::time::Duration;

use ballast_model::Timestamp;

use crate::codec::{CodecError, Decoder, ErrorReply, QemuVersion, QmpMessage};
use crate::command::QmpCommand;

/// Most commands in flight: sent and not answered. A probe needs eight, a tick five.
pub const IN_FLIGHT_MAX: usize = 32;

/// Most bytes that wait to be written before further commands are refused. A hypervisor can answer
/// commands that it has not read, so the limit of commands in flight does not bound them. As many
/// commands with the longest path have about 16 KiB.
pub const OUTGOING_BYTES_MAX: usize = 16 << 10;

/// Most events kept. QEMU limits its frequent events to one a second each.
pub const EVENTS_MAX: usize = 64;

/// Longest event payload kept, in bytes; of an event with a longer one only the name is kept.
const EVENT_DATA_BYTES_MAX: usize = 4096;

/// Longest event name kept, in characters; QEMU's longest has 29.
const EVENT_NAME_CHARS_MAX: usize = 64;

/// The id of a command within its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId(u64);

/// Why a connection can no longer be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The bytes are not QMP.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// A message is out of sequence.
    #[error("got {got}, expected {expected}")]
    Unexpected {
        /// The message.
        got: &'static str,
        /// The expected messages.
        expected: &'static str,
    },
    /// A reply to a command that was never sent.
    #[error("got a reply with id {got}, expected one of the {sent} ids sent so far")]
    UnknownId {
        /// The id.
        got: u64,
        /// Number of ids used so far, counted from 0.
        sent: u64,
    },
    /// An error without an id: the server could not parse what it received.
    #[error("got an error without a command's id: {0}")]
    NoId(ErrorReply),
    /// `qmp_capabilities` was refused.
    #[error("capabilities negotiation refused: {0}")]
    Negotiation(ErrorReply),
}

/// Why a command was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The connection is not negotiated yet.
    #[error("the connection is not ready for commands yet")]
    NotReady,
    /// Too many commands are in flight, or the hypervisor does not read them.
    #[error(
        "{IN_FLIGHT_MAX} commands already wait for replies, or the hypervisor does not read them"
    )]
    Full,
}

/// The phases of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionPhase {
    /// The greeting has not come.
    Greeting,
    /// `qmp_capabilities` has been sent.
    Negotiating,
    /// Commands may be sent.
    Ready,
}

/// The meaning of one message of the server. Borrows from the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionInput<'a> {
    /// Negotiation goes on; nothing to do.
    Negotiating,
    /// Negotiation is done: commands may be sent.
    Ready,
    /// A command was answered.
    Reply {
        /// The command.
        id: CommandId,
        /// Its result as JSON, or its error.
        result: Result<&'a str, ErrorReply>,
    },
    /// An event was queued; see [`QmpSession::pop_event`].
    Event,
    /// A second reply to the same command, ignored.
    Duplicate,
}

/// An event of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QmpEvent {
    /// Its name, such as `STOP`.
    pub name: String,
    /// Its payload as JSON.
    pub data: Option<String>,
}

#[derive(Debug)]
struct PendingCommand {
    id: u64,
    deadline: Timestamp,
    is_expired: bool,
}

/// Commands in flight, and their bytes to be written.
#[derive(Debug, Default)]
struct CommandQueue {
    next_id: u64,
    pending: VecDeque<PendingCommand>,
    /// Bytes not written yet.
    bytes: Vec<u8>,
}

impl CommandQueue {
    fn push(&mut self, command: &QmpCommand<'_>, deadline: Timestamp) -> CommandId {
        let id = self.next_id;
        self.next_id += 1;
        command.encode(id, &mut self.bytes);
        self.pending.push_back(PendingCommand { id, deadline, is_expired: false });
        CommandId(id)
    }
}

/// The state of one connection.
#[derive(Debug)]
pub struct QmpSession {
    decoder: Decoder,
    phase: SessionPhase,
    version: Option<QemuVersion>,
    greeting_deadline: Timestamp,
    negotiation_timeout: Duration,
    commands: CommandQueue,
    events: VecDeque<QmpEvent>,
    events_dropped: u64,
}

impl QmpSession {
    /// A connection made at `now`. The greeting should come within `timeout`, and the reply to
    /// `qmp_capabilities` within `timeout` after that.
    pub fn new(now: Timestamp, timeout: Duration) -> Self {
        QmpSession {
            decoder: Decoder::new(),
            phase: SessionPhase::Greeting,
            version: None,
            greeting_deadline: now + timeout,
            negotiation_timeout: timeout,
            commands: CommandQueue::default(),
            events: VecDeque::new(),
            events_dropped: 0,
        }
    }

    /// The current phase.
    pub fn phase(&self) -> SessionPhase {
        self.phase
    }

    /// The server's version, once its greeting has come.
    pub fn version(&self) -> Option<QemuVersion> {
        self.version
    }

    /// Takes in as many bytes as fit and returns their number. Then call [`QmpSession::poll`] until
    /// it returns nothing.
    pub fn receive(&mut self, bytes: &[u8]) -> usize {
        self.decoder.feed(bytes)
    }

    /// How many bytes [`QmpSession::receive`] takes at once.
    pub fn room(&self) -> usize {
        self.decoder.room()
    }

    /// Handles the next message received.
    ///
    /// # Errors
    /// The server violates the protocol; the connection must be closed.
    pub fn poll(&mut self, now: Timestamp) -> Result<Option<SessionInput<'_>>, SessionError> {
        let Some(message) = self.decoder.next_message()? else { return Ok(None) };
        let (id, result) = match (message, self.phase) {
            (QmpMessage::Greeting(version), SessionPhase::Greeting) => {
                self.version = Some(version);
                self.phase = SessionPhase::Negotiating;
                let deadline = now + self.negotiation_timeout;
                self.commands.push(&QmpCommand::QmpCapabilities, deadline);
                return Ok(Some(SessionInput::Negotiating));
            }
            (QmpMessage::Greeting(_), _) => {
                return Err(unexpected("a second greeting", "replies and events"));
            }
            (_, SessionPhase::Greeting) => {
                return Err(unexpected("a reply or an event", "the greeting first"));
            }
            (QmpMessage::Event { name, data }, _) => {
                if self.events.len() == EVENTS_MAX {
                    self.events.pop_front();
                    self.events_dropped += 1;
                }
                let name = name.chars().take(EVENT_NAME_CHARS_MAX).collect();
                let data = data.filter(|data| data.len() <= EVENT_DATA_BYTES_MAX);
                self.events.push_back(QmpEvent { name, data: data.map(str::to_owned) });
                return Ok(Some(SessionInput::Event));
            }
            (QmpMessage::Return { id: None, .. }, _) => {
                return Err(unexpected("a reply without a whole-number id", "the id of a command"));
            }
            (QmpMessage::Error { id: None, error }, _) => return Err(SessionError::NoId(error)),
            (QmpMessage::Return { id: Some(id), json }, _) => (id, Ok(json)),
            (QmpMessage::Error { id: Some(id), error }, _) => (id, Err(error)),
        };
        if id >= self.commands.next_id {
            return Err(SessionError::UnknownId { got: id, sent: self.commands.next_id });
        }
        // QEMU answers in order, so this is almost always the first.
        let Some(at) = self.commands.pending.iter().position(|command| command.id == id) else {
            return Ok(Some(SessionInput::Duplicate));
        };
        self.commands.pending.remove(at);
        if self.phase == SessionPhase::Negotiating {
            return match result {
                Ok(_) => {
                    self.phase = SessionPhase::Ready;
                    Ok(Some(SessionInput::Ready))
                }
                Err(error) => Err(SessionError::Negotiation(error)),
            };
        }
        Ok(Some(SessionInput::Reply { id: CommandId(id), result }))
    }

    /// Queues a command whose reply should come before `deadline`.
    ///
    /// # Errors
    /// The connection is not ready, or too many commands or bytes wait.
    pub fn send(
        &mut self,
        command: &QmpCommand<'_>,
        deadline: Timestamp,
    ) -> Result<CommandId, SendError> {
        if self.phase != SessionPhase::Ready {
            return Err(SendError::NotReady);
        }
        if self.in_flight() >= IN_FLIGHT_MAX || self.outgoing().len() >= OUTGOING_BYTES_MAX {
            return Err(SendError::Full);
        }
        Ok(self.commands.push(command, deadline))
    }

    /// Bytes to write: [`OUTGOING_BYTES_MAX`] and one command at most.
    pub fn outgoing(&self) -> &[u8] {
        &self.commands.bytes
    }

    /// Removes the first `count` outgoing bytes, which were written.
    pub fn mark_written(&mut self, count: usize) {
        let bytes = &mut self.commands.bytes;
        bytes.drain(..count.min(bytes.len()));
    }

    /// Whether the greeting is late.
    pub fn is_greeting_overdue(&self, now: Timestamp) -> bool {
        self.phase == SessionPhase::Greeting && now >= self.greeting_deadline
    }

    /// The oldest command whose deadline has passed and that was not returned here before. Call
    /// until it returns none.
    pub fn expire(&mut self, now: Timestamp) -> Option<CommandId> {
        let late = self
            .commands
            .pending
            .iter_mut()
            .find(|command| !command.is_expired && now >= command.deadline)?;
        late.is_expired = true;
        Some(CommandId(late.id))
    }

    /// Whether a command that [`QmpSession::expire`] returned still has no reply.
    pub fn is_overdue(&self) -> bool {
        self.commands.pending.iter().any(|command| command.is_expired)
    }

    /// The next deadline.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let greeting = (self.phase == SessionPhase::Greeting).then_some(self.greeting_deadline);
        let waiting = self.commands.pending.iter().filter(|command| !command.is_expired);
        waiting.map(|command| command.deadline).chain(greeting).min()
    }

    /// Number of commands sent and not answered.
    pub fn in_flight(&self) -> usize {
        self.commands.pending.len()
    }

    /// Takes the oldest event.
    pub fn pop_event(&mut self) -> Option<QmpEvent> {
        self.events.pop_front()
    }

    /// Number of events that later ones displaced.
    pub fn events_dropped(&self) -> u64 {
        self.events_dropped
    }
}

fn unexpected(got: &'static str, expected: &'static str) -> SessionError {
    SessionError::Unexpected { got, expected }
}
