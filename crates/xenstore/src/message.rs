//! Messages of xenstore's protocol: a header of sixteen bytes, and a payload.
//!
//! Idea: bytes arrive in pieces of any size; [`MessageBuffer`] returns whole messages. Cost: each
//! byte is copied once. Source: Xen's `xs_wire.h`; all numbers are in the host's byte order,
//! because both ends are on one machine.
//! Limits: payloads up to [`PAYLOAD_MAX`] bytes, which is xenstore's own limit.

use thiserror::Error;

/// Largest payload, in bytes; `XENSTORE_PAYLOAD_MAX`.
pub const PAYLOAD_MAX: usize = 4096;
/// Bytes of the header.
pub(crate) const HEADER_LEN: usize = 16;

/// The kind of a message; the numbers are those of `xsd_sockmsg_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum MessageKind {
    /// Lists the children of a node.
    Directory = 1,
    /// Reads a node.
    Read = 2,
    /// Sets a watch on a node.
    Watch = 4,
    /// Removes a watch.
    Unwatch = 5,
    /// Begins a transaction.
    TransactionStart = 6,
    /// Ends a transaction.
    TransactionEnd = 7,
    /// Writes a node, and creates it if there is none.
    Write = 11,
    /// Removes a node and all below it.
    Remove = 13,
    /// An event of a watch, sent by the store.
    WatchEvent = 15,
    /// The answer to a request that failed.
    Error = 16,
    /// Lists a part of a node's children, for a node that has many.
    DirectoryPart = 22,
}

impl MessageKind {
    /// All of them.
    pub const ALL: [MessageKind; 11] = [
        MessageKind::Directory,
        MessageKind::Read,
        MessageKind::Watch,
        MessageKind::Unwatch,
        MessageKind::TransactionStart,
        MessageKind::TransactionEnd,
        MessageKind::Write,
        MessageKind::Remove,
        MessageKind::WatchEvent,
        MessageKind::Error,
        MessageKind::DirectoryPart,
    ];

    fn of(number: u32) -> Option<MessageKind> {
        MessageKind::ALL.into_iter().find(|kind| *kind as u32 == number)
    }
}

/// Why bytes are not a message, or cannot be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MessageError {
    /// Its payload is too long.
    #[error(
        "a message of {0} bytes, where {PAYLOAD_MAX} is the most: is this the socket of xenstored?"
    )]
    Length(usize),
    /// Its kind is none of these.
    #[error("a message of type {0}, which was not asked for: is this the socket of xenstored?")]
    Kind(u32),
}

/// A message, from either side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its kind.
    pub kind: MessageKind,
    /// The request's number, which its answer repeats; 0 in an event.
    pub request: u32,
    /// The transaction that it belongs to; 0: none.
    pub transaction: u32,
    /// Its contents.
    pub payload: Vec<u8>,
}

impl Message {
    /// Appends its bytes to `to`.
    ///
    /// # Errors
    /// [`MessageError::Length`]; nothing is appended.
    pub fn write(&self, to: &mut Vec<u8>) -> Result<(), MessageError> {
        let len = self.payload.len();
        let shown = u32::try_from(len).map_err(|_| MessageError::Length(len))?;
        if len > PAYLOAD_MAX {
            return Err(MessageError::Length(len));
        }
        for number in [self.kind as u32, self.request, self.transaction, shown] {
            to.extend_from_slice(&number.to_ne_bytes());
        }
        to.extend_from_slice(&self.payload);
        Ok(())
    }
}

/// Received bytes that are not yet a whole message.
#[derive(Debug, Default)]
pub struct MessageBuffer {
    bytes: Vec<u8>,
    /// Bytes of messages already returned.
    taken: usize,
}

impl MessageBuffer {
    /// Takes in bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole message; `None` if more bytes are needed.
    ///
    /// # Errors
    /// The bytes are no message. The rest of the stream cannot be used.
    pub fn next_message(&mut self) -> Result<Option<Message>, MessageError> {
        let bytes = &self.bytes[self.taken..];
        let Some(header) = bytes.first_chunk::<HEADER_LEN>() else { return Ok(None) };
        let [kind, request, transaction, len] = numbers(header);
        let len = len as usize;
        if len > PAYLOAD_MAX {
            return Err(MessageError::Length(len));
        }
        let kind = MessageKind::of(kind).ok_or(MessageError::Kind(kind))?;
        let Some(payload) = bytes.get(HEADER_LEN..HEADER_LEN + len) else { return Ok(None) };
        let message = Message { kind, request, transaction, payload: payload.to_vec() };
        self.taken += HEADER_LEN + len;
        Ok(Some(message))
    }
}

/// The four numbers of a header.
fn numbers(header: &[u8; HEADER_LEN]) -> [u32; 4] {
    let mut numbers = [0; 4];
    for (number, bytes) in numbers.iter_mut().zip(header.as_chunks::<4>().0) {
        *number = u32::from_ne_bytes(*bytes);
    }
    numbers
}
