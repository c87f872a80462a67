//! Messages as lines of text.
//!
//! Idea: one JSON value per line, at most [`LINE_BYTES_MAX`] bytes, so that a reader that lost
//! synchronization regains it at the next newline and never buffers more than one unusable line.
//! Empty lines are skipped: a sender begins with one to terminate a line that a broken connection
//! cut short.
//! Limits: no I/O; the caller pushes the bytes it read, in chunks of any size.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest line in either direction, in bytes without its newline. Room for one [`ExecDone`] whose
/// two outputs of [`EXEC_OUTPUT_BYTES_MAX`] are all control characters, six bytes each in JSON.
///
/// [`ExecDone`]: crate::protocol::FromGuest::ExecDone
/// [`EXEC_OUTPUT_BYTES_MAX`]: crate::protocol::EXEC_OUTPUT_BYTES_MAX
pub const LINE_BYTES_MAX: usize = 256 << 10;

/// Longest excerpt of an unreadable line in an error, in characters.
const EXCERPT_CHARS_MAX: usize = 120;

/// Why a line or message is refused. The stream stays usable: reading continues at the next line.
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
        /// The JSON parser's error.
        why: String,
        /// The beginning of the line.
        excerpt: String,
    },
}

/// Encodes a message as one line, including its newline.
///
/// # Errors
/// [`LineError::TooLong`] if the line would exceed [`LINE_BYTES_MAX`].
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

/// Decodes the message in a line.
///
/// # Errors
/// [`LineError::NotAMessage`] if the line is not JSON, or not a `T`.
pub fn decode<T: DeserializeOwned>(line: &str) -> Result<T, LineError> {
    serde_json::from_str(line).map_err(|error| LineError::NotAMessage {
        why: error.to_string(),
        excerpt: line.chars().take(EXCERPT_CHARS_MAX).collect(),
    })
}

/// Splits a stream of bytes into lines. Buffers at most one line and the last chunk, as long as the
/// caller takes every line before it pushes again.
#[derive(Debug, Default)]
pub struct LineReader {
    buffer: Vec<u8>,
    /// Number of bytes at the front of `buffer` that contain no newline.
    scanned: usize,
    /// Whether the rest of an overlong line is being skipped.
    skipping: bool,
}

impl LineReader {
    /// Adds bytes read from the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Discards all buffered bytes, for a new stream.
    pub fn reset(&mut self) {
        *self = LineReader::default();
    }

    /// The next complete line without its newline, skipping empty lines; `None` until more is
    /// pushed. An overlong line is reported once.
    pub fn next_line(&mut self) -> Option<Result<String, LineError>> {
        loop {
            let newline = self.buffer[self.scanned..].iter().position(|&b| b == b'\n');
            let Some(at) = newline.map(|at| at + self.scanned) else {
                return self.keep_partial_line();
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

    fn keep_partial_line(&mut self) -> Option<Result<String, LineError>> {
        if self.skipping || self.buffer.len() > LINE_BYTES_MAX {
            self.buffer.clear();
            self.scanned = 0;
            let is_reported = std::mem::replace(&mut self.skipping, true);
            return (!is_reported).then_some(Err(LineError::TooLong));
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
    fn line_split_at_any_byte_stays_one_line() {
        let mut reader = LineReader::default();
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
    fn overlong_line_is_reported_once_and_skipped() {
        for chunk in [1000, 3 * LINE_BYTES_MAX] {
            let mut stream = vec![b'x'; 2 * LINE_BYTES_MAX];
            stream.extend(b"\nnext\n");
            let mut reader = LineReader::default();
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
    fn line_of_maximum_length_is_read() {
        let longest = "y".repeat(LINE_BYTES_MAX);
        let mut reader = LineReader::default();
        reader.push(longest.as_bytes());
        assert_eq!(reader.next_line(), None);
        reader.push(b"\n");
        assert_eq!(reader.next_line(), Some(Ok(longest)));
    }

    #[test]
    fn invalid_utf8_loses_only_its_line() {
        let mut reader = LineReader::default();
        reader.push(b"\xff\xfe\nok\n");
        assert_eq!(lines(&mut reader), [Err(LineError::NotText), Ok("ok".to_owned())]);
    }

    #[test]
    fn sender_refuses_an_overlong_message() {
        let argv = vec!["a".repeat(LINE_BYTES_MAX)];
        let message = ToGuest::Exec { id: 1, argv, timeout_ms: 1 };
        assert_eq!(encode(&message), Err(LineError::TooLong));
    }

    proptest! {
        #[test]
        fn lines_equal_those_of_split(stream in prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..300),
                              chunk in 1usize..50) {
            let mut reader = LineReader::default();
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
        fn any_text_is_refused_without_panic(text in ".{0,200}") {
            let _ = decode::<ToGuest>(&text);
            let _ = decode::<crate::protocol::FromGuest>(&text);
        }
    }
}
