//! The QMP codec: decodes messages and encodes commands. No I/O, no clock.
//!
//! Idea: QMP is a stream of JSON objects. A byte scanner finds the end of each object by counting
//! brackets outside strings, so that messages on one line and pretty-printed ones are read alike.
//! The object is then parsed one level deep; a reply's result stays JSON text for the caller, who
//! knows its type. No tree of values is built.
//!
//! Cost: one pass over the bytes to find messages, one to validate UTF-8, one to parse; see
//! `benches/codec.rs`.
//! Source: `docs/interop/qmp-spec.txt` of QEMU.
//! Limits: a message has at most [`MESSAGE_BYTES_MAX`] bytes and [`DEPTH_MAX`] levels. The first
//! error is final: the rest of the stream cannot be trusted, so the connection must be closed.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Longest message accepted, in bytes. The longest replies are listings of devices, about 60 bytes
/// each, and block statistics, 1.4 KB for each disk and each file in its backing chain: 1 MiB holds
/// 17,000 devices, a hundred times what QEMU can attach, or 700 files.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Deepest nesting accepted, in levels of brackets. QEMU's own parser stops at 1,024; the messages
/// that Ballast uses have at most 6 levels, block statistics one more for each file in a disk's
/// backing chain, and other events fewer than 20.
pub const DEPTH_MAX: usize = 64;

/// Buffer kept between messages, in bytes; a reply with statistics has about 600.
const BUFFER_KEPT_BYTES: usize = 2048;

/// Most characters of input quoted in an error.
const EXCERPT_CHARS_MAX: usize = 60;

/// Most characters kept of a text that the server wrote for people.
pub const TEXT_CHARS_MAX: usize = 200;

/// Why bytes are not QMP.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// A message does not begin with an object.
    #[error("got `{got}` at byte {at} of the stream, expected `{{` to begin a message")]
    NotAnObject {
        /// Position in the stream, in bytes.
        at: u64,
        /// An excerpt.
        got: String,
    },
    /// A message is longer than the limit.
    #[error("got a message of more than {MESSAGE_BYTES_MAX} bytes, expected a shorter one")]
    TooLong,
    /// A message is nested deeper than the limit.
    #[error("got a message nested more than {DEPTH_MAX} levels deep, expected fewer")]
    TooDeep,
    /// A message is not text.
    #[error("got a byte that is not UTF-8 at byte {at} of a message beginning `{got}`")]
    NotUtf8 {
        /// Position in the message.
        at: usize,
        /// The beginning of the message.
        got: String,
    },
    /// An object is not JSON, or a member has the wrong type.
    #[error("got `{got}`, expected a message: {why}")]
    Malformed {
        /// The beginning of the message.
        got: String,
        /// The parser's error.
        why: String,
    },
    /// An object is JSON but not a message.
    #[error("got `{got}`, expected an object with `QMP`, `return`, `error` or `event`")]
    Unknown {
        /// The beginning of the message.
        got: String,
    },
}

/// One message of the server. Borrows from the decoder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QmpMessage<'a> {
    /// The first message of every connection.
    Greeting(QemuVersion),
    /// A command succeeded.
    Return {
        /// The command's id; `None` if missing or not a whole number.
        id: Option<u64>,
        /// The result as JSON.
        json: &'a str,
    },
    /// A command failed.
    Error {
        /// The command's id; `None` if missing or not a whole number.
        id: Option<u64>,
        /// The error.
        error: ErrorReply,
    },
    /// An event.
    Event {
        /// Its name, such as `STOP`.
        name: Cow<'a, str>,
        /// Its payload as JSON.
        data: Option<&'a str>,
    },
}

/// The version of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct QemuVersion {
    /// Major version.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
    /// Micro version.
    pub micro: u32,
}

/// The server's error for a command. Both texts are printable and at most [`TEXT_CHARS_MAX`]
/// characters long, whatever the server sent.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, thiserror::Error)]
#[error("{class}: {desc}")]
pub struct ErrorReply {
    /// Class, such as `DeviceNotActive`.
    #[serde(deserialize_with = "printable_text")]
    pub class: String,
    /// Description for people.
    #[serde(deserialize_with = "printable_text")]
    pub desc: String,
}

impl ErrorReply {
    /// Class of the error of `query-balloon` without a balloon.
    pub const DEVICE_NOT_ACTIVE: &str = "DeviceNotActive";
    /// Class of the error of a command that this version does not know.
    pub const COMMAND_NOT_FOUND: &str = "CommandNotFound";
}

/// The members of all kinds of messages; those present determine the kind.
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
    qemu: QemuVersion,
}

/// The scanner's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScanState {
    BetweenMessages,
    OutsideString,
    InString,
    AfterBackslash,
}

/// Bytes that matter outside strings.
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
/// returns none. It holds at most [`MESSAGE_BYTES_MAX`] + 1 bytes.
#[derive(Debug)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Bytes of `buffer` that belong to messages already returned.
    taken: usize,
    /// Bytes of `buffer` already scanned.
    scanned: usize,
    scan: ScanState,
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
            scan: ScanState::BetweenMessages,
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

    /// Takes in as many bytes as fit and returns their number. If some are left, call
    /// [`Decoder::next_message`] until it returns none, then feed the rest.
    pub fn feed(&mut self, bytes: &[u8]) -> usize {
        self.discard_taken();
        let fitting = bytes.len().min(self.room());
        self.buffer.extend_from_slice(&bytes[..fitting]);
        fitting
    }

    /// How many bytes [`Decoder::feed`] takes at once. Never zero after
    /// [`Decoder::next_message`] has returned `None`.
    pub fn room(&self) -> usize {
        (MESSAGE_BYTES_MAX + 1).saturating_sub(self.buffer.len() - self.taken)
    }

    /// Number of bytes held.
    pub fn buffered_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// The next complete message, or `None` until more bytes are fed.
    ///
    /// # Errors
    /// The stream is not QMP. Every later call returns the same error.
    pub fn next_message(&mut self) -> Result<Option<QmpMessage<'_>>, CodecError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let message = self.find_end().and_then(|end| {
            let Some(end) = end else { return Ok(None) };
            let message = self.taken..end;
            self.taken = end;
            parse_message(&self.buffer[message]).map(Some)
        });
        if let Err(error) = &message {
            self.failed = Some(error.clone());
        }
        message
    }

    /// Continues the scan to the end of the message that begins at `taken`.
    fn find_end(&mut self) -> Result<Option<usize>, CodecError> {
        loop {
            let rest = &self.buffer[self.scanned..];
            // Most bytes do not change the state: skip to the next that does.
            let next = match self.scan {
                ScanState::BetweenMessages => {
                    rest.iter().position(|byte| !byte.is_ascii_whitespace())
                }
                ScanState::OutsideString => {
                    rest.iter().position(|byte| IS_STRUCTURAL[usize::from(*byte)])
                }
                ScanState::InString => rest.iter().position(|byte| matches!(byte, b'"' | b'\\')),
                ScanState::AfterBackslash => (!rest.is_empty()).then_some(0),
            };
            let Some(skipped) = next else { break };
            let at = self.scanned + skipped;
            self.scanned = at + 1;
            match (self.scan, self.buffer[at]) {
                (ScanState::BetweenMessages, b'{') => {
                    self.taken = at;
                    self.depth = 1;
                    self.scan = ScanState::OutsideString;
                }
                (ScanState::BetweenMessages, _) => {
                    return Err(CodecError::NotAnObject {
                        at: self.passed + at as u64,
                        got: excerpt(&self.buffer[at..]),
                    });
                }
                (ScanState::OutsideString, b'"') | (ScanState::AfterBackslash, _) => {
                    self.scan = ScanState::InString
                }
                (ScanState::OutsideString, b'{' | b'[') => {
                    self.depth += 1;
                    if self.depth > DEPTH_MAX {
                        return Err(CodecError::TooDeep);
                    }
                }
                (ScanState::OutsideString, _) => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        self.scan = ScanState::BetweenMessages;
                        return Ok(Some(at + 1));
                    }
                }
                (ScanState::InString, b'"') => self.scan = ScanState::OutsideString,
                (ScanState::InString, _) => self.scan = ScanState::AfterBackslash,
            }
        }
        self.scanned = self.buffer.len();
        if self.scan == ScanState::BetweenMessages {
            self.taken = self.scanned;
        }
        if self.scanned - self.taken > MESSAGE_BYTES_MAX {
            return Err(CodecError::TooLong);
        }
        Ok(None)
    }

    /// Drops the bytes of messages already returned, and the capacity left over from a long one.
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

fn parse_message(message: &[u8]) -> Result<QmpMessage<'_>, CodecError> {
    let text = std::str::from_utf8(message)
        .map_err(|error| CodecError::NotUtf8 { at: error.valid_up_to(), got: excerpt(message) })?;
    let envelope: Envelope<'_> = serde_json::from_str(text).map_err(|error| {
        CodecError::Malformed { got: excerpt(message), why: shorten(&error.to_string()) }
    })?;
    // This side chooses the ids, and they are whole numbers; any other id matches no command.
    let id = envelope.id.and_then(|id| id.get().parse().ok());
    if let Some(json) = envelope.returned {
        Ok(QmpMessage::Return { id, json: json.get() })
    } else if let Some(error) = envelope.error {
        Ok(QmpMessage::Error { id, error })
    } else if let Some(name) = envelope.event {
        Ok(QmpMessage::Event { name, data: envelope.data.map(RawValue::get) })
    } else if let Some(greeting) = envelope.qmp {
        Ok(QmpMessage::Greeting(greeting.version.qemu))
    } else {
        Err(CodecError::Unknown { got: excerpt(message) })
    }
}

/// The beginning of received bytes, printable and short.
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

/// Received text that is safe in a log and on a terminal: characters that do not print are escaped,
/// and at most `chars_max` characters are left.
pub(crate) fn printable(text: &str, chars_max: usize) -> String {
    let mut shown = String::new();
    for character in text.chars().take(chars_max) {
        match character {
            '"' | '\'' | '\\' => shown.push(character),
            other => shown.extend(other.escape_debug()),
        }
    }
    match shown.char_indices().nth(chars_max) {
        Some((end, _)) => shown[..end].to_owned(),
        None => shown,
    }
}

/// [`printable`] with the usual length.
pub(crate) fn shorten(text: &str) -> String {
    printable(text, TEXT_CHARS_MAX)
}

fn printable_text<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    String::deserialize(deserializer).map(|text| shorten(&text))
}

#[derive(Serialize)]
struct CommandFrame<'a, A> {
    execute: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<A>,
    id: u64,
}

/// Appends a command to `out`, without spaces: QEMU up to 9 reads its monitor one byte per turn of
/// its main loop, so that every byte costs it a system call.
pub fn encode_command<A: Serialize>(
    execute: &str,
    arguments: Option<A>,
    id: u64,
    out: &mut Vec<u8>,
) {
    let frame = CommandFrame { execute, arguments, id };
    // Serializing plain data with string keys to memory cannot fail.
    let written = serde_json::to_writer(&mut *out, &frame);
    debug_assert!(written.is_ok(), "{written:?}");
    out.push(b'\n');
}

/// The fuzz target's entry point: feeds `bytes` in pieces of a length that `bytes` determines,
/// takes all messages and returns their number.
///
/// # Panics
/// The decoder holds more than its limit, or returns a message after an error.
pub fn fuzz_decode(bytes: &[u8]) -> usize {
    let (mut decoder, mut messages) = (Decoder::new(), 0);
    let step = bytes.first().map_or(1, |first| usize::from(*first) + 1);
    for piece in bytes.chunks(step) {
        let mut rest = piece;
        while !rest.is_empty() {
            rest = &rest[decoder.feed(rest)..];
            assert!(decoder.buffered_bytes() <= MESSAGE_BYTES_MAX + 1);
            loop {
                match decoder.next_message() {
                    Ok(Some(_)) => messages += 1,
                    Ok(None) => break,
                    Err(error) => {
                        assert_eq!(decoder.next_message(), Err(error));
                        return messages;
                    }
                }
            }
        }
    }
    messages
}
