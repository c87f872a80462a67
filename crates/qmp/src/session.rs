//! One QMP connection as a state machine: no I/O, and time is a parameter.
//!
//! Idea: greeting, then `qmp_capabilities`, then commands. Several commands may be queued before the
//! bytes are written, so that they travel in one write; replies find their command by id. A command
//! whose deadline passes is reported once and stays in flight until its answer comes, so that a
//! hypervisor that hangs is never sent more than [`IN_FLIGHT_MAX`] commands.
//!
//! Limits: [`IN_FLIGHT_MAX`] commands, [`EVENTS_MAX`] events kept; more events are counted and
//! dropped, oldest first. An error is final.

use std::collections::VecDeque;
use std::time::Duration;

use ballast_model::Timestamp;

use crate::codec::{CodecError, Decoder, ErrorReply, Message, Version};
use crate::command::Command;

/// Most commands sent and not yet answered. Probing a guest needs eight at once, a tick three or four.
pub const IN_FLIGHT_MAX: usize = 32;

/// Most events kept until they are taken. QEMU limits its frequent events to one a second each.
pub const EVENTS_MAX: usize = 64;

/// Longest event payload kept, in bytes; a longer one is dropped and only its name kept.
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
    /// A message that has no place here.
    #[error("got {got}, expected {expected}")]
    Unexpected {
        /// What came.
        got: &'static str,
        /// What should have come.
        expected: &'static str,
    },
    /// A reply to a command that was never sent.
    #[error("got a reply with id {got}, expected one of the {sent} ids sent so far")]
    UnknownId {
        /// Its id.
        got: u64,
        /// How many ids were given out; they count from 0.
        sent: u64,
    },
    /// A failure that belongs to no command: the server could not read what it was sent.
    #[error("got a failure that belongs to no command: {0}")]
    NoId(ErrorReply),
    /// `qmp_capabilities` was refused.
    #[error("capabilities negotiation refused: {0}")]
    Negotiation(ErrorReply),
}

/// Why a command was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The connection has not been negotiated yet.
    #[error("the connection is not ready for commands yet")]
    NotReady,
    /// Too many commands wait for their answers.
    #[error("{IN_FLIGHT_MAX} commands already wait for answers")]
    Full,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The greeting has not come.
    Greeting,
    /// `qmp_capabilities` has been sent.
    Negotiating,
    /// Commands may be sent.
    Ready,
}

/// What one message of the server means. Borrows from the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<'a> {
    /// Negotiation goes on; nothing to do.
    Negotiating,
    /// Negotiation is done: commands may be sent.
    Ready,
    /// A command was answered.
    Reply {
        /// Which.
        id: CommandId,
        /// JSON of what it returned, or why it failed.
        result: Result<&'a str, ErrorReply>,
    },
    /// An event was queued; see [`Session::pop_event`].
    Event,
    /// A second answer to one command, ignored.
    Duplicate,
}

/// Something that happened by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its name, such as `STOP`.
    pub name: String,
    /// What it carries, as JSON.
    pub data: Option<String>,
}

#[derive(Debug)]
struct InFlight {
    id: u64,
    deadline: Timestamp,
    expired: bool,
}

/// The state of one connection.
#[derive(Debug)]
pub struct Session {
    decoder: Decoder,
    phase: Phase,
    version: Option<Version>,
    greeting_deadline: Timestamp,
    negotiation_timeout: Duration,
    next_id: u64,
    in_flight: VecDeque<InFlight>,
    outgoing: Vec<u8>,
    written: usize,
    events: VecDeque<Event>,
    events_dropped: u64,
}

impl Session {
    /// A connection made at `now`, whose greeting should come within `timeout`, and the answer to
    /// `qmp_capabilities` within `timeout` after that.
    pub fn new(now: Timestamp, timeout: Duration) -> Self {
        Session {
            decoder: Decoder::new(),
            phase: Phase::Greeting,
            version: None,
            greeting_deadline: now + timeout,
            negotiation_timeout: timeout,
            next_id: 0,
            in_flight: VecDeque::new(),
            outgoing: Vec::new(),
            written: 0,
            events: VecDeque::new(),
            events_dropped: 0,
        }
    }

    /// How far the connection has come.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The server's version, once it has greeted.
    pub fn version(&self) -> Option<Version> {
        self.version
    }

    /// Takes in bytes, as many as fit, and says how many; then call [`Session::poll`] until it gives
    /// nothing.
    pub fn receive(&mut self, bytes: &[u8]) -> usize {
        self.decoder.feed(bytes)
    }

    /// How many bytes [`Session::receive`] takes at once.
    pub fn room(&self) -> usize {
        self.decoder.room()
    }

    /// Handles the next message received.
    ///
    /// # Errors
    /// When the server does not keep to the protocol; the connection must be closed.
    pub fn poll(&mut self, now: Timestamp) -> Result<Option<Input<'_>>, SessionError> {
        let Some(message) = self.decoder.next_message()? else { return Ok(None) };
        let (id, result) = match (message, self.phase) {
            (Message::Greeting(version), Phase::Greeting) => {
                self.version = Some(version);
                self.phase = Phase::Negotiating;
                let deadline = now + self.negotiation_timeout;
                enqueue(
                    &mut self.in_flight,
                    &mut self.next_id,
                    &mut self.outgoing,
                    &Command::QmpCapabilities,
                    deadline,
                );
                return Ok(Some(Input::Negotiating));
            }
            (Message::Greeting(_), _) => {
                return Err(unexpected("a second greeting", "replies and events"));
            }
            (_, Phase::Greeting) => {
                return Err(unexpected("a reply or an event", "the greeting first"));
            }
            (Message::Event { name, data }, _) => {
                if self.events.len() == EVENTS_MAX {
                    self.events.pop_front();
                    self.events_dropped += 1;
                }
                let name = name.chars().take(EVENT_NAME_CHARS_MAX).collect();
                let data = data.filter(|data| data.len() <= EVENT_DATA_BYTES_MAX);
                self.events.push_back(Event { name, data: data.map(str::to_owned) });
                return Ok(Some(Input::Event));
            }
            (Message::Return { id: None, .. }, _) => {
                return Err(unexpected("a reply without a whole-number id", "the id of a command"));
            }
            (Message::Error { id: None, error }, _) => return Err(SessionError::NoId(error)),
            (Message::Return { id: Some(id), json }, _) => (id, Ok(json)),
            (Message::Error { id: Some(id), error }, _) => (id, Err(error)),
        };
        if id >= self.next_id {
            return Err(SessionError::UnknownId { got: id, sent: self.next_id });
        }
        // Answers come in order from QEMU, so the first is almost always the one.
        let Some(at) = self.in_flight.iter().position(|command| command.id == id) else {
            return Ok(Some(Input::Duplicate));
        };
        self.in_flight.remove(at);
        if self.phase == Phase::Negotiating {
            return match result {
                Ok(_) => {
                    self.phase = Phase::Ready;
                    Ok(Some(Input::Ready))
                }
                Err(error) => Err(SessionError::Negotiation(error)),
            };
        }
        Ok(Some(Input::Reply { id: CommandId(id), result }))
    }

    /// Queues a command whose answer should come before `deadline`.
    ///
    /// # Errors
    /// When the connection is not ready, or too many commands wait for answers.
    pub fn send(
        &mut self,
        command: &Command<'_>,
        deadline: Timestamp,
    ) -> Result<CommandId, SendError> {
        if self.phase != Phase::Ready {
            return Err(SendError::NotReady);
        }
        if self.in_flight.len() >= IN_FLIGHT_MAX {
            return Err(SendError::Full);
        }
        let queue = (&mut self.in_flight, &mut self.next_id, &mut self.outgoing);
        Ok(enqueue(queue.0, queue.1, queue.2, command, deadline))
    }

    /// Bytes to be written.
    pub fn outgoing(&self) -> &[u8] {
        &self.outgoing[self.written..]
    }

    /// Says that the first `count` of the outgoing bytes were written.
    pub fn mark_written(&mut self, count: usize) {
        self.written = (self.written + count).min(self.outgoing.len());
        if self.written == self.outgoing.len() {
            self.outgoing.clear();
            self.written = 0;
        }
    }

    /// Whether the greeting has not come in time.
    pub fn is_greeting_overdue(&self, now: Timestamp) -> bool {
        self.phase == Phase::Greeting && now >= self.greeting_deadline
    }

    /// The oldest command not yet reported whose deadline has passed; it is reported once. Call
    /// until it gives none.
    pub fn expire(&mut self, now: Timestamp) -> Option<CommandId> {
        let late = self.in_flight.iter_mut().find(|one| !one.expired && now >= one.deadline)?;
        late.expired = true;
        Some(CommandId(late.id))
    }

    /// Whether a command that was reported as late still has no answer.
    pub fn is_overdue(&self) -> bool {
        self.in_flight.iter().any(|command| command.expired)
    }

    /// When to look at the deadlines next.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let greeting = (self.phase == Phase::Greeting).then_some(self.greeting_deadline);
        let commands = self.in_flight.iter().filter(|one| !one.expired).map(|one| one.deadline);
        commands.chain(greeting).min()
    }

    /// Commands sent and not answered.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The oldest event queued.
    pub fn pop_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Events dropped because nobody took them in time.
    pub fn events_dropped(&self) -> u64 {
        self.events_dropped
    }
}

fn unexpected(got: &'static str, expected: &'static str) -> SessionError {
    SessionError::Unexpected { got, expected }
}

/// Free of `self`, so that a reply may still borrow from the decoder.
fn enqueue(
    in_flight: &mut VecDeque<InFlight>,
    next_id: &mut u64,
    outgoing: &mut Vec<u8>,
    command: &Command<'_>,
    deadline: Timestamp,
) -> CommandId {
    let id = *next_id;
    *next_id += 1;
    command.encode(id, outgoing);
    in_flight.push_back(InFlight { id, deadline, expired: false });
    CommandId(id)
}
