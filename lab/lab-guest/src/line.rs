//! Messages as lines of text.
//!
//! Idea: one JSON value per line, at most [`LINE_BYTES_MAX`] bytes, so that a reader that lost its place
//! finds it again at the next newline and never holds more than one line it cannot use. Empty lines
//! are skipped: a sender begins with one to close whatever a broken connection left half said.
//! Limits: no I/O; the caller pushes the bytes it read, in chunks of whatever size.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest line in either direction, in bytes without its newline. Room for one [`ExecDone`] whose two
/// outputs of [`EXEC_OUTPUT_BYTES_MAX`] are all control characters, six bytes each in JSON.
///
/// [`ExecDone`]: crate::protocol::FromGuest::ExecDone
/// [`EXEC_OUTPUT_BYTES_MAX`]: crate::protocol::EXEC_OUTPUT_BYTES_MAX
pub const LINE_BYTES_MAX: usize = 256 << 10;

/// Longest part of an unreadable line repeated in an error, in characters.
const EXCERPT_CHARS_MAX: usize = 120;

/// Why a line or message cannot be used. The stream stays usable: the next line is read afresh.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// The line is longer than [`LINE_BYTES_MAX`]; all of it is skipped.
    #[error("line longer than {LINE_BYTES_MAX} bytes: skipped up to the next newline")]
    TooLong,
    /// The line is not UTF-8.
    #[error("line is not UTF-8")]
    NotText,
    /// The line is not a message of this protocol.
    #[error("not a message ({why}): `{excerpt}`")]
    NotAMessage {
        /// What the JSON reader found.
        why: String,
        /// How the line begins.
        excerpt: String,
    },
}

/// `message` as one line with its newline.
///
/// # Errors
/// [`LineError::TooLong`] where the line would be over [`LINE_BYTES_MAX`].
pub fn encode<T: Serialize>(message: &T) -> Result<String, LineError> {
    let mut line = serde_json::to_string(message).map_err(|error| LineError::NotAMessage {
        why: error.to_string(),
        excerpt: String::new(),
    })?;
    if line.len() > LINE_BYTES_MAX {
        return Err(LineError::TooLong);
    }
    line.push('\n');
    Ok(line)
}

/// The message in one line.
///
/// # Errors
/// [`LineError::NotAMessage`] where the line is no JSON, or no `T`.
pub fn decode<T: DeserializeOwned>(line: &str) -> Result<T, LineError> {
    serde_json::from_str(line).map_err(|error| LineError::NotAMessage {
        why: error.to_string(),
        excerpt: line.chars().take(EXCERPT_CHARS_MAX).collect(),
    })
}

/// Cuts a stream of bytes into lines. Holds at most one line and the chunk last pushed, as long as
/// the caller takes every line before it pushes again.
#[derive(Debug, Default)]
pub struct LineReader {
    buffer: Vec<u8>,
    /// Bytes at the front of `buffer` known to hold no newline.
    scanned: usize,
    /// The rest of an overlong line is being skipped.
    skipping: bool,
}

impl LineReader {
    /// A reader at the beginning of a stream.
    pub fn new() -> Self {
        LineReader::default()
    }

    /// Adds bytes as they came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Forgets what was pushed: the stream begins anew.
    pub fn reset(&mut self) {
        *self = LineReader::default();
    }

    /// The next whole line without its newline, skipping empty ones; `None` until more is pushed.
    /// An overlong line is reported once.
    pub fn next_line(&mut self) -> Option<Result<String, LineError>> {
        loop {
            let newline = self.buffer[self.scanned..].iter().position(|&b| b == b'\n');
            let Some(at) = newline.map(|at| at + self.scanned) else {
                return self.without_newline();
            };
            let mut line: Vec<u8> = self.buffer.drain(..=at).collect();
            self.scanned = 0;
            line.pop();
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            if line.len() > LINE_BYTES_MAX {
                return Some(Err(LineError::TooLong));
            }
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            return Some(String::from_utf8(line).map_err(|_| LineError::NotText));
        }
    }

    fn without_newline(&mut self) -> Option<Result<String, LineError>> {
        if self.skipping {
            self.buffer.clear();
            self.scanned = 0;
            return None;
        }
        if self.buffer.len() > LINE_BYTES_MAX {
            self.buffer.clear();
            self.scanned = 0;
            self.skipping = true;
            return Some(Err(LineError::TooLong));
        }
        self.scanned = self.buffer.len();
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ToGuest;
    use proptest::prelude::*;

    fn lines(reader: &mut LineReader) -> Vec<Result<String, LineError>> {
        std::iter::from_fn(|| reader.next_line()).collect()
    }

    #[test]
    fn a_line_split_anywhere_is_one_line() {
        let mut reader = LineReader::new();
        for byte in b"\n\r\n{\"type\":\"shut" {
            reader.push(&[*byte]);
            assert_eq!(reader.next_line(), None);
        }
        reader.push(b"down\"}\n{\"a\"");
        let line = reader.next_line().unwrap().unwrap();
        assert_eq!(decode::<ToGuest>(&line), Ok(ToGuest::Shutdown {}));
        assert_eq!(reader.next_line(), None);
    }

    #[test]
    fn an_overlong_line_is_reported_once_and_the_next_is_read() {
        for chunk in [1000, 3 * LINE_BYTES_MAX] {
            let mut stream = vec![b'x'; 2 * LINE_BYTES_MAX];
            stream.extend(b"\nnext\n");
            let mut reader = LineReader::new();
            let mut seen = Vec::new();
            for part in stream.chunks(chunk) {
                reader.push(part);
                seen.extend(lines(&mut reader));
                assert!(reader.buffer.len() <= LINE_BYTES_MAX, "holds {}", reader.buffer.len());
            }
            assert_eq!(seen, [Err(LineError::TooLong), Ok("next".to_owned())], "chunk {chunk}");
        }
    }

    #[test]
    fn the_longest_line_allowed_is_read() {
        let longest = "y".repeat(LINE_BYTES_MAX);
        let mut reader = LineReader::new();
        reader.push(longest.as_bytes());
        assert_eq!(reader.next_line(), None);
        reader.push(b"\n");
        assert_eq!(reader.next_line(), Some(Ok(longest)));
    }

    #[test]
    fn bytes_that_are_no_text_cost_their_line_only() {
        let mut reader = LineReader::new();
        reader.push(b"\xff\xfe\nok\n");
        assert_eq!(lines(&mut reader), [Err(LineError::NotText), Ok("ok".to_owned())]);
    }

    #[test]
    fn a_message_too_long_is_refused_by_the_sender() {
        let argv = vec!["a".repeat(LINE_BYTES_MAX)];
        let message = ToGuest::Exec { id: 1, argv, timeout_ms: 1 };
        assert_eq!(encode(&message), Err(LineError::TooLong));
    }

    proptest! {
        #[test]
        fn cuts_as_split_does(stream in prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..300),
                              chunk in 1usize..50) {
            let mut reader = LineReader::new();
            let mut seen = Vec::new();
            for part in stream.chunks(chunk) {
                reader.push(part);
                seen.extend(lines(&mut reader));
            }
            let mut naive: Vec<&[u8]> = stream.split(|&b| b == b'\n').collect();
            naive.pop();
            let naive: Vec<_> = naive
                .into_iter()
                .filter(|line| !line.iter().all(u8::is_ascii_whitespace))
                .map(|line| String::from_utf8(line.to_vec()).map_err(|_| LineError::NotText))
                .collect();
            prop_assert_eq!(seen, naive);
        }

        #[test]
        fn rubbish_is_refused_without_panic(text in ".{0,200}") {
            let _ = decode::<ToGuest>(&text);
            let _ = decode::<crate::protocol::FromGuest>(&text);
        }
    }
}
