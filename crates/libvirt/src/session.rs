//! One connection to libvirt, without I/O: bytes in, bytes out.
//!
//! Idea: it authenticates, opens the hypervisor, and then carries calls, whose replies may come in
//! any order. Cost: O(log n) a call. Source: libvirt's internals/rpc.
//! Limits: local sockets, on which libvirt asks for no authentication unless it is configured to.

use std::collections::{BTreeMap, VecDeque};

use ballast_model::LinkDown;

use crate::call::{Call, RemoteError, Reply};
use crate::event::DomainEvent;
use crate::message::{self, MessageBuffer, MessageKind};

/// Most calls without a reply.
const CALLS_MAX: usize = 20_000;
/// Most events that wait to be taken.
const EVENTS_MAX: usize = 20_000;
/// No authentication.
const AUTH_NONE: i32 = 0;

/// Identifies a call until its reply is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Serial(u32);

/// How a call ended.
pub type Answer = Result<Reply, RemoteError>;

/// A connection.
#[derive(Debug)]
pub struct LibvirtSession {
    uri: String,
    received: MessageBuffer,
    outgoing: Vec<u8>,
    serial: u32,
    calls: BTreeMap<Serial, Call>,
    answers: VecDeque<(Serial, Answer)>,
    events: VecDeque<DomainEvent>,
    is_open: bool,
}

impl LibvirtSession {
    /// A new connection, which will open `uri`.
    pub fn new(uri: &str) -> LibvirtSession {
        let mut session = LibvirtSession {
            uri: uri.to_owned(),
            received: MessageBuffer::default(),
            outgoing: Vec::new(),
            serial: 0,
            calls: BTreeMap::new(),
            answers: VecDeque::new(),
            events: VecDeque::new(),
            is_open: false,
        };
        session.send(Call::AuthList);
        session
    }

    /// Whether calls can be made.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Makes a call. `None` if the connection is not open yet, or too many calls have no reply.
    pub fn call(&mut self, call: Call) -> Option<Serial> {
        (self.is_open && self.calls.len() < CALLS_MAX).then(|| self.send(call))
    }

    fn send(&mut self, call: Call) -> Serial {
        self.serial = self.serial.wrapping_add(1);
        let serial = Serial(self.serial);
        self.outgoing.extend(message::call(call.procedure(), self.serial, &call.arguments()));
        self.calls.insert(serial, call);
        serial
    }

    /// The bytes to write.
    pub fn outgoing(&self) -> &[u8] {
        &self.outgoing
    }

    /// Removes the first `count` outgoing bytes, which were written.
    pub fn mark_written(&mut self, count: usize) {
        self.outgoing.drain(..count.min(self.outgoing.len()));
    }

    /// Takes in bytes that were read.
    ///
    /// # Errors
    /// The connection must be closed: the bytes are no message, no event or no reply to a call that
    /// was made, or libvirt refuses.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), LinkDown> {
        let protocol = |error: &dyn std::fmt::Display| LinkDown::Protocol(error.to_string());
        self.received.push(bytes);
        loop {
            let message = match self.received.next() {
                Ok(Some(message)) => message,
                Ok(None) => return Ok(()),
                Err(error) => return Err(protocol(&error)),
            };
            let (serial, is_ok) = match message.kind {
                MessageKind::Reply { serial, is_ok } => (serial, is_ok),
                MessageKind::Event => {
                    let event = DomainEvent::read(message.procedure, message.body);
                    // An event beyond the bound is dropped, as if it had been lost.
                    let room = EVENTS_MAX - self.events.len();
                    let event = event.map_err(|error| protocol(&format!("an event: {error}")))?;
                    self.events.extend(event.filter(|_| room > 0));
                    continue;
                }
                MessageKind::Call { .. } | MessageKind::Other => continue,
            };
            let serial = Serial(serial);
            let Some(call) = self.calls.remove(&serial) else {
                return Err(protocol(&"a reply to a call that was not made"));
            };
            if call.procedure() != message.procedure {
                return Err(protocol(&"a reply to another call"));
            }
            let answer = match is_ok {
                true => call.reply(message.body).map(Ok),
                false => RemoteError::read(message.body).map(Err),
            };
            let answer = answer.map_err(|error| {
                protocol(&format!("a malformed reply to call {}: {error}", call.procedure()))
            })?;
            self.handle_answer(call, serial, answer)?;
        }
    }

    /// Takes in an answer: continues to open the connection, or keeps the answer.
    fn handle_answer(
        &mut self,
        call: Call,
        serial: Serial,
        answer: Answer,
    ) -> Result<(), LinkDown> {
        let refused = |why: String| LinkDown::Closed(why);
        match (call, answer) {
            (Call::AuthList, Ok(Reply::AuthList(ways))) if ways.contains(&AUTH_NONE) => {
                let uri = self.uri.clone();
                self.send(Call::Open { uri });
            }
            (Call::AuthList, Ok(_)) => {
                let why = "libvirt wants SASL or polkit on this socket: run the daemon as root, or \
                           set auth_unix_rw = \"none\" in libvirtd.conf";
                return Err(refused(why.to_owned()));
            }
            (Call::Open { .. }, Ok(_)) => self.is_open = true,
            (Call::AuthList | Call::Open { .. }, Err(error)) => {
                return Err(refused(format!("cannot open {}: {error}", self.uri)));
            }
            (_, answer) => self.answers.push_back((serial, answer)),
        }
        Ok(())
    }

    /// Takes the oldest event received.
    pub fn next_event(&mut self) -> Option<DomainEvent> {
        self.events.pop_front()
    }

    /// Takes the oldest answer received.
    pub fn next_answer(&mut self) -> Option<(Serial, Answer)> {
        self.answers.pop_front()
    }
}
