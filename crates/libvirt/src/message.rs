//! Messages of libvirt's RPC: a length, a header, and a body.
//!
//! Idea: bytes arrive in pieces of any size; [`MessageBuffer`] returns whole messages. Cost: each
//! byte is copied once. Source: libvirt's internals/rpc and `virnetprotocol.x`.
//! Limits: messages up to [`MESSAGE_MAX`] bytes, as in libvirt; no streams, no file descriptors.

use crate::xdr::{XdrError, XdrReader, XdrWriter};

/// Largest message, with its length; libvirt's `VIR_NET_MESSAGE_MAX` and 4.
pub const MESSAGE_MAX: usize = (32 << 20) + 4;
/// Bytes of the length.
const LENGTH_LEN: usize = 4;
/// Bytes of length and header.
const HEAD_LEN: usize = 28;

/// The program of all calls here: `REMOTE_PROGRAM`.
const PROGRAM: u32 = 0x2000_8086;
const VERSION: u32 = 1;

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MessageError {
    /// Its length is impossible.
    #[error(
        "a message of {0} bytes, where {HEAD_LEN} to {MESSAGE_MAX} can be: is this libvirt's socket?"
    )]
    Length(u32),
    /// Its header is malformed.
    #[error("a header that is malformed: {0}")]
    Header(#[from] XdrError),
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageKind {
    /// A call with this serial.
    Call { serial: u32 },
    /// The reply to the call with this serial, and whether the call succeeded.
    Reply { serial: u32, is_ok: bool },
    /// An event.
    Event,
    /// Anything else; ignored.
    Other,
}

/// A whole message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) kind: MessageKind,
    /// The number of the procedure.
    pub(crate) procedure: i32,
    pub(crate) body: &'a [u8],
}

/// The bytes of a call.
pub(crate) fn call(procedure: i32, serial: u32, body: &[u8]) -> Vec<u8> {
    // Type 0 is a call; status 0.
    written(procedure, 0, serial, 0, body)
}

/// The bytes of the reply to the call with this serial; `is_ok`: the call succeeded.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn reply(procedure: i32, serial: u32, is_ok: bool, body: &[u8]) -> Vec<u8> {
    written(procedure, 1, serial, (!is_ok).into(), body)
}

fn written(procedure: i32, kind: i32, serial: u32, status: i32, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(HEAD_LEN + body.len()).unwrap_or(u32::MAX);
    let head = XdrWriter::default().u32(len).u32(PROGRAM).u32(VERSION).i32(procedure);
    head.i32(kind).u32(serial).i32(status).fixed(body).done()
}

/// Received bytes that are not yet a whole message.
#[derive(Debug, Default)]
pub(crate) struct MessageBuffer {
    bytes: Vec<u8>,
    /// Bytes of messages already returned.
    taken: usize,
}

impl MessageBuffer {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole message; `None` if more bytes are needed.
    pub(crate) fn next(&mut self) -> Result<Option<Message<'_>>, MessageError> {
        let bytes = &self.bytes[self.taken..];
        let Some(length) = bytes.first_chunk::<LENGTH_LEN>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length);
        let len = length as usize;
        if !(HEAD_LEN..=MESSAGE_MAX).contains(&len) {
            return Err(MessageError::Length(length));
        }
        let Some(message) = bytes.get(LENGTH_LEN..len) else { return Ok(None) };
        self.taken += len;
        parse(message).map(Some)
    }
}

/// Parses a message, given without its length.
fn parse(message: &[u8]) -> Result<Message<'_>, MessageError> {
    let mut head = XdrReader::new(message);
    let program = head.u32("the program")?;
    let _version = head.u32("the version")?;
    let procedure = head.i32("the procedure")?;
    let kind = head.i32("the type")?;
    let serial = head.u32("the serial")?;
    let status = head.i32("the status")?;
    let kind = match kind {
        _ if program != PROGRAM => MessageKind::Other,
        0 => MessageKind::Call { serial },
        1 => MessageKind::Reply { serial, is_ok: status == 0 },
        2 => MessageKind::Event,
        _ => MessageKind::Other,
    };
    Ok(Message { kind, procedure, body: &message[HEAD_LEN - LENGTH_LEN..] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_come_whole_however_they_are_cut(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..6),
            cuts in prop::collection::vec(1..30_usize, 1..40),
        ) {
            let sent: Vec<u8> = bodies.iter().zip(0..).flat_map(|(body, n)| call(7, n, body)).collect();
            let (mut buffer, mut rest, mut found) = (MessageBuffer::default(), &sent[..], Vec::new());
            for cut in cuts.iter().cycle() {
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                buffer.push(now);
                while let Some(message) = buffer.next().unwrap() {
                    prop_assert_eq!(message.procedure, 7);
                    found.push(message.body.to_vec());
                }
                rest = later;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(found, bodies);
        }

        #[test]
        fn rubbish_does_not_panic(bytes: Vec<u8>) {
            let mut buffer = MessageBuffer::default();
            buffer.push(&bytes);
            while let Ok(Some(_)) = buffer.next() {}
        }
    }

    #[test]
    fn lengths_that_cannot_be_are_refused() {
        for length in [0, 27, 0x4854_5450, u32::MAX] {
            let mut buffer = MessageBuffer::default();
            buffer.push(&length.to_be_bytes());
            assert_eq!(buffer.next(), Err(MessageError::Length(length)));
        }
    }
}
