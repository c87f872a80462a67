//! The QMP codec: bytes in, messages out; commands in, bytes out. No I/O, no clock.
//!
//! Idea: QMP is a stream of JSON objects. A byte scanner finds where each object ends by counting
//! brackets outside of strings, so that one message per line and pretty-printed messages are read
//! alike; the object is then taken apart one level deep, and what a reply carries stays JSON text
//! for whoever knows its type. A tree of values is never built.
//!
//! Cost: one pass over the bytes to frame, one to validate UTF-8, one to take apart; see
//! `benches/codec.rs`.
//! Source: `docs/interop/qmp-spec.txt` of QEMU.
//! Limits: a message has at most [`MESSAGE_BYTES_MAX`] bytes and [`DEPTH_MAX`] levels. The first
//! error is final: what follows it in the stream cannot be trusted, so the connection must go.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Longest message accepted, in bytes. The longest Ballast asks for is the listing of a folder of
/// devices, about 60 bytes each; 1 MiB holds 17,000 of them, a hundred times what QEMU can attach.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Deepest nesting accepted, in levels of brackets. QEMU's own parser stops at 1,024; the replies
/// and events Ballast reads have at most 6, and events it skips stay below 20.
pub const DEPTH_MAX: usize = 64;

/// Buffer kept between messages, in bytes: a reply with statistics has about 600.
const BUFFER_KEPT_BYTES: usize = 2048;

/// Characters of foreign input quoted in an error.
const EXCERPT_CHARS_MAX: usize = 60;

/// Why bytes are not QMP.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// Something other than an object stands where a message must begin.
    #[error("got `{got}` at byte {at} of the stream, expected `{{` to begin a message")]
    NotAnObject {
        /// Where in the stream, in bytes from its beginning.
        at: u64,
        /// What stands there, shortened and escaped.
        got: String,
    },
    /// A message that does not end within the limit.
    #[error("got a message of more than {MESSAGE_BYTES_MAX} bytes, expected it to end before")]
    TooLong,
    /// A message nested deeper than the limit.
    #[error("got a message nested more than {DEPTH_MAX} levels deep, expected fewer")]
    TooDeep,
    /// A message that is not text.
    #[error("got a byte that is not UTF-8 at byte {at} of a message beginning `{got}`")]
    NotUtf8 {
        /// Where in the message.
        at: usize,
        /// How the message begins.
        got: String,
    },
    /// An object that is not JSON, or whose members have other types than a message's.
    #[error("got `{got}`, expected a message: {why}")]
    Malformed {
        /// How the message begins.
        got: String,
        /// What is wrong with it.
        why: String,
    },
    /// A well-formed object that is no message.
    #[error("got `{got}`, expected an object with `QMP`, `return`, `error` or `event`")]
    Unknown {
        /// How the message begins.
        got: String,
    },
}

/// One message of the server. Borrows from the decoder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// The first message of every connection.
    Greeting(Version),
    /// A command succeeded.
    Return {
        /// The command's id, if the reply has one that is a whole number.
        id: Option<u64>,
        /// What it returned, as JSON.
        json: &'a str,
    },
    /// A command failed.
    Error {
        /// The command's id, if the reply has one that is a whole number.
        id: Option<u64>,
        /// Why.
        error: ErrorReply,
    },
    /// Something happened by itself.
    Event {
        /// Its name, such as `STOP`.
        name: Cow<'a, str>,
        /// What it carries, as JSON.
        data: Option<&'a str>,
    },
}

/// The version of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Version {
    /// Major version.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
    /// Micro version.
    pub micro: u32,
}

/// Why a command failed, in the server's words.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, thiserror::Error)]
#[error("{class}: {desc}")]
pub struct ErrorReply {
    /// Class, such as `DeviceNotActive`.
    pub class: String,
    /// For people.
    pub desc: String,
}

impl ErrorReply {
    /// The class of "there is no such device", which `query-balloon` answers without a balloon.
    pub const DEVICE_NOT_ACTIVE: &str = "DeviceNotActive";
    /// The class of a command this version does not know.
    pub const COMMAND_NOT_FOUND: &str = "CommandNotFound";
}

/// The members of all messages together; which are there says which message it is.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(rename = "QMP")]
    qmp: Option<GreetingBody>,
    #[serde(borrow, rename = "return")]
    returned: Option<&'a RawValue>,
    error: Option<ErrorReply>,
    #[serde(borrow)]
    event: Option<Cow<'a, str>>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct GreetingBody {
    version: GreetingVersion,
}

#[derive(Deserialize)]
struct GreetingVersion {
    qemu: Version,
}

/// Where the scanner stands within a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scan {
    Between,
    Plain,
    String,
    Escape,
}

/// Bytes that matter outside of strings.
const IS_STRUCTURAL: [bool; 256] = {
    let mut table = [false; 256];
    table[b'"' as usize] = true;
    table[b'{' as usize] = true;
    table[b'[' as usize] = true;
    table[b'}' as usize] = true;
    table[b']' as usize] = true;
    table
};

/// Finds messages in a stream of bytes.
///
/// Feed it bytes with [`Decoder::feed`] and take messages with [`Decoder::next_message`] until it
/// gives none. It holds at most [`MESSAGE_BYTES_MAX`] + 1 bytes.
#[derive(Debug)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Bytes of `buffer` that belong to messages already handed out.
    taken: usize,
    /// Bytes of `buffer` already looked at.
    scanned: usize,
    scan: Scan,
    depth: usize,
    /// Bytes of the stream before `buffer`.
    passed: u64,
    failed: Option<CodecError>,
}

impl Default for Decoder {
    fn default() -> Self {
        Decoder {
            buffer: Vec::new(),
            taken: 0,
            scanned: 0,
            scan: Scan::Between,
            depth: 0,
            passed: 0,
            failed: None,
        }
    }
}

impl Decoder {
    /// A decoder at the beginning of a stream.
    pub fn new() -> Self {
        Decoder::default()
    }

    /// Takes in bytes, as many as fit, and says how many. Where it takes fewer than all, call
    /// [`Decoder::next_message`] until it gives none and feed the rest.
    pub fn feed(&mut self, bytes: &[u8]) -> usize {
        self.discard_taken();
        let fitting = bytes.len().min(self.room());
        self.buffer.extend_from_slice(&bytes[..fitting]);
        fitting
    }

    /// How many bytes [`Decoder::feed`] takes at once. Never zero after
    /// [`Decoder::next_message`] gave `None`.
    pub fn room(&self) -> usize {
        (MESSAGE_BYTES_MAX + 1).saturating_sub(self.buffer.len() - self.taken)
    }

    /// Bytes held.
    pub fn buffered_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// The next complete message, or `None` until more bytes are fed.
    ///
    /// # Errors
    /// When the stream is not QMP. Every later call gives the same error.
    pub fn next_message(&mut self) -> Result<Option<Message<'_>>, CodecError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let message = self.find_end().and_then(|end| {
            let Some(end) = end else { return Ok(None) };
            let message = self.taken..end;
            self.taken = end;
            take_apart(&self.buffer[message]).map(Some)
        });
        if let Err(error) = &message {
            self.failed = Some(error.clone());
        }
        message
    }

    /// Scans on from where it stopped to the end of the message that begins at `taken`.
    fn find_end(&mut self) -> Result<Option<usize>, CodecError> {
        loop {
            let rest = &self.buffer[self.scanned..];
            // Most bytes mean nothing to the state they are met in: skip to the next that does.
            let next = match self.scan {
                Scan::Between => rest.iter().position(|byte| !byte.is_ascii_whitespace()),
                Scan::Plain => rest.iter().position(|byte| IS_STRUCTURAL[usize::from(*byte)]),
                Scan::String => rest.iter().position(|byte| matches!(byte, b'"' | b'\\')),
                Scan::Escape => (!rest.is_empty()).then_some(0),
            };
            let Some(skipped) = next else { break };
            let at = self.scanned + skipped;
            self.scanned = at + 1;
            match (self.scan, self.buffer[at]) {
                (Scan::Between, b'{') => {
                    self.taken = at;
                    self.depth = 1;
                    self.scan = Scan::Plain;
                }
                (Scan::Between, _) => {
                    return Err(CodecError::NotAnObject {
                        at: self.passed + at as u64,
                        got: excerpt(&self.buffer[at..]),
                    });
                }
                (Scan::Plain, b'"') | (Scan::Escape, _) => self.scan = Scan::String,
                (Scan::Plain, b'{' | b'[') => {
                    self.depth += 1;
                    if self.depth > DEPTH_MAX {
                        return Err(CodecError::TooDeep);
                    }
                }
                (Scan::Plain, _) => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        self.scan = Scan::Between;
                        return Ok(Some(at + 1));
                    }
                }
                (Scan::String, b'"') => self.scan = Scan::Plain,
                (Scan::String, _) => self.scan = Scan::Escape,
            }
        }
        self.scanned = self.buffer.len();
        if self.scan == Scan::Between {
            self.taken = self.scanned;
        }
        if self.scanned - self.taken > MESSAGE_BYTES_MAX {
            return Err(CodecError::TooLong);
        }
        Ok(None)
    }

    /// Drops the bytes of messages already handed out, and what one long message made the buffer.
    fn discard_taken(&mut self) {
        if self.taken > 0 {
            self.buffer.drain(..self.taken);
            self.passed += self.taken as u64;
            self.scanned -= self.taken;
            self.taken = 0;
            self.buffer.shrink_to(BUFFER_KEPT_BYTES);
        }
    }
}

fn take_apart(message: &[u8]) -> Result<Message<'_>, CodecError> {
    let text = std::str::from_utf8(message)
        .map_err(|error| CodecError::NotUtf8 { at: error.valid_up_to(), got: excerpt(message) })?;
    let envelope: Envelope<'_> = serde_json::from_str(text).map_err(|error| {
        CodecError::Malformed { got: excerpt(message), why: shorten(&error.to_string()) }
    })?;
    // Ids are given out by this side and are whole numbers; any other id matches none of them.
    let id = envelope.id.and_then(|id| id.get().parse().ok());
    if let Some(json) = envelope.returned {
        Ok(Message::Return { id, json: json.get() })
    } else if let Some(error) = envelope.error {
        Ok(Message::Error { id, error })
    } else if let Some(name) = envelope.event {
        Ok(Message::Event { name, data: envelope.data.map(RawValue::get) })
    } else if let Some(greeting) = envelope.qmp {
        Ok(Message::Greeting(greeting.version.qemu))
    } else {
        Err(CodecError::Unknown { got: excerpt(message) })
    }
}

/// The beginning of foreign bytes, printable and short.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    let head = &bytes[..bytes.len().min(4 * EXCERPT_CHARS_MAX)];
    let text = String::from_utf8_lossy(head);
    let mut shown: String =
        text.chars().flat_map(char::escape_debug).take(EXCERPT_CHARS_MAX).collect();
    if text.chars().count() > EXCERPT_CHARS_MAX || head.len() < bytes.len() {
        shown.push('…');
    }
    shown
}

/// Foreign text within an error message, short.
pub(crate) fn shorten(text: &str) -> String {
    const CHARS_MAX: usize = 200;
    text.chars().take(CHARS_MAX).collect()
}

#[derive(Serialize)]
struct CommandFrame<'a, A> {
    execute: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<A>,
    id: u64,
}

/// Appends a command to `out`.
///
/// Without spaces, because QEMU up to 9 reads its monitor one byte per turn of its main loop: every
/// byte costs it a system call.
pub fn encode_command<A: Serialize>(
    execute: &str,
    arguments: Option<A>,
    id: u64,
    out: &mut Vec<u8>,
) {
    let frame = CommandFrame { execute, arguments, id };
    // Writing plain data with string keys to memory cannot fail.
    let written = serde_json::to_writer(&mut *out, &frame);
    debug_assert!(written.is_ok(), "{written:?}");
    out.push(b'\n');
}

/// Feeds `bytes` in pieces whose lengths `bytes` itself determines and takes all messages: the
/// entry of the fuzz target. Says how many messages there were.
///
/// # Panics
/// When the decoder holds more than it may, or gives a message after an error.
pub fn fuzz_decode(bytes: &[u8]) -> usize {
    let (mut decoder, mut whole) = (Decoder::new(), 0);
    let step = bytes.first().map_or(1, |first| usize::from(*first) + 1);
    for piece in bytes.chunks(step) {
        let mut rest = piece;
        while !rest.is_empty() {
            rest = &rest[decoder.feed(rest)..];
            assert!(decoder.buffered_bytes() <= MESSAGE_BYTES_MAX + 1);
            loop {
                match decoder.next_message() {
                    Ok(Some(_)) => whole += 1,
                    Ok(None) => break,
                    Err(error) => {
                        assert_eq!(decoder.next_message(), Err(error));
                        return whole;
                    }
                }
            }
        }
    }
    whole
}
