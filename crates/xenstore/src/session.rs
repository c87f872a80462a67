//! One connection to xenstored, without I/O: bytes in, bytes out.
//!
//! Idea: requests are numbered, and an answer repeats its request's number; events come at any time
//! between them. Cost: O(log n) per request.
//! Limits: [`REQUESTS_MAX`] requests without an answer; [`EVENTS_MAX`] events that were not taken.
//! Further events are lost; the caller then has to read everything again
//! ([`XenstoreSession::has_lost_events`]). A caller that writes message by message must do so from
//! the beginning.

use std::collections::{BTreeMap, VecDeque};

use ballast_model::LinkDown;

use crate::message::{HEADER_LEN, Message, MessageBuffer, MessageKind};
use crate::request::{Reply, Request, StoreError, TransactionId};

/// Most requests without an answer.
const REQUESTS_MAX: usize = 50_000;
/// Most events that wait to be taken.
pub const EVENTS_MAX: usize = 50_000;

/// Identifies a request until its answer is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(u32);

/// How a request ended.
pub type Answer = Result<Reply, StoreError>;

/// Something changed below a watched node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchEvent {
    /// The node that changed, or the watched one when the watch is new.
    pub path: String,
    /// The watch's token.
    pub token: String,
}

/// A connection.
#[derive(Debug, Default)]
pub struct XenstoreSession {
    received: MessageBuffer,
    outgoing: Vec<u8>,
    last_request: u32,
    requests: BTreeMap<RequestId, (Request, Option<TransactionId>)>,
    answers: VecDeque<(RequestId, Answer)>,
    events: VecDeque<WatchEvent>,
    has_lost_events: bool,
}

impl XenstoreSession {
    /// A new connection.
    pub fn new() -> XenstoreSession {
        XenstoreSession::default()
    }

    /// Queues a request. `None` if too many requests have no answer, or this one is too long.
    pub fn request(&mut self, request: Request) -> Option<RequestId> {
        self.request_in(request, None)
    }

    /// As `request`, within a transaction.
    pub fn request_in(
        &mut self,
        request: Request,
        transaction: Option<TransactionId>,
    ) -> Option<RequestId> {
        if self.requests.len() >= REQUESTS_MAX {
            return None;
        }
        // Number 0 is that of events.
        let number = self.last_request.checked_add(1).unwrap_or(1);
        let message = Message {
            kind: request.kind(),
            request: number,
            transaction: transaction.map_or(0, |it| it.0),
            payload: request.payload(),
        };
        message.write(&mut self.outgoing).ok()?;
        self.last_request = number;
        let id = RequestId(number);
        self.requests.insert(id, (request, transaction));
        Some(id)
    }

    /// The number of requests without an answer.
    pub fn unanswered(&self) -> usize {
        self.requests.len()
    }

    /// The bytes to write.
    pub fn outgoing(&self) -> &[u8] {
        &self.outgoing
    }

    /// The first of the outgoing messages, or the rest of it: a device takes one message at a time.
    pub fn outgoing_message(&self) -> &[u8] {
        let len = self.outgoing.get(..HEADER_LEN).and_then(|head| head.last_chunk::<4>());
        let len = len.map_or(0, |len| u32::from_ne_bytes(*len) as usize);
        self.outgoing.get(..HEADER_LEN + len).unwrap_or(&self.outgoing)
    }

    /// Removes the first `count` outgoing bytes, which were written.
    pub fn mark_written(&mut self, count: usize) {
        self.outgoing.drain(..count.min(self.outgoing.len()));
    }

    /// Takes in bytes that were read.
    ///
    /// # Errors
    /// The connection must be closed: the bytes are no message, or no answer to a request that was
    /// made.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), LinkDown> {
        self.received.push(bytes);
        loop {
            let message = self.received.next_message();
            let message = message.map_err(|error| LinkDown::Protocol(error.to_string()))?;
            let Some(message) = message else { return Ok(()) };
            match message.kind {
                MessageKind::WatchEvent => self.take_event(&message)?,
                _ => self.take_answer(message)?,
            }
        }
    }

    fn take_event(&mut self, message: &Message) -> Result<(), LinkDown> {
        let texts: Vec<&[u8]> = message.payload.split(|byte| *byte == 0).collect();
        // The path and the token, and nothing after the last zero byte. A special watch of later
        // versions may have more texts.
        let (Some(path), Some(token)) = (texts.first(), texts.get(1).filter(|_| texts.len() > 2))
        else {
            return Err(LinkDown::Protocol("an event without path or token".to_owned()));
        };
        if self.events.len() >= EVENTS_MAX {
            self.has_lost_events = true;
            return Ok(());
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.events.push_back(WatchEvent { path: text(path), token: text(token) });
        Ok(())
    }

    fn take_answer(&mut self, message: Message) -> Result<(), LinkDown> {
        let protocol = |what: &str| LinkDown::Protocol(what.to_owned());
        let id = RequestId(message.request);
        let Some((request, transaction)) = self.requests.remove(&id) else {
            return Err(protocol("an answer to a request that was not made"));
        };
        let answer = if message.kind == MessageKind::Error {
            Err(StoreError::read(&message.payload))
        } else if message.kind != request.kind() {
            return Err(protocol("an answer to another request"));
        } else if message.transaction != transaction.map_or(0, |it| it.0) {
            return Err(protocol("an answer of another transaction"));
        } else {
            let reply = request.reply(&message.payload);
            Ok(reply.map_err(|error| {
                LinkDown::Protocol(format!("an answer to {:?}: {error}", request.kind()))
            })?)
        };
        self.answers.push_back((id, answer));
        Ok(())
    }

    /// Takes the oldest answer received.
    pub fn next_answer(&mut self) -> Option<(RequestId, Answer)> {
        self.answers.pop_front()
    }

    /// Takes the oldest event received.
    pub fn next_event(&mut self) -> Option<WatchEvent> {
        self.events.pop_front()
    }

    /// Whether events were lost since the last call of this method.
    pub fn has_lost_events(&mut self) -> bool {
        std::mem::take(&mut self.has_lost_events)
    }
}
