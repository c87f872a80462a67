//! Frames: splits a lossy byte stream into payloads.
//!
//! ```text
//! F5 42 41 4C · version u8 = 1 · zero u8 · length u16 · crc u32 · payload
//! ```
//!
//! Numbers are little-endian. The checksum is CRC-32 as in zlib, over version, zero, length and
//! payload.
//!
//! A virtio-serial port loses bytes until the other side opens it, so a frame may be torn anywhere:
//! - Within its payload: the first byte of a frame, F5, never occurs in UTF-8. An F5 in a payload
//!   is the beginning of the next frame, and reading resumes there.
//! - Within its header: the next frame's magic appears in the header. (A checksum that contains the
//!   magic loses its frame, one in four billion.)
//! - Two torn frames whose pieces have a fitting length fail the checksum.
//!
//! Cost: each byte is read twice, and once more for every error before it.
//! Limits: payloads of 1 to [`PAYLOAD_BYTES_MAX`] bytes; a reader holds one frame and the last
//! push, if the caller takes all frames before it pushes more.

use thiserror::Error;

/// The first bytes of each frame.
pub const MAGIC: [u8; 4] = [0xF5, b'B', b'A', b'L'];
/// Version of the frame format; messages have their own version.
pub const FRAME_VERSION: u8 = 1;
/// Length of the header, in bytes.
pub const HEADER_LEN: usize = 12;
/// Longest payload, in bytes: ten times that of statistics.
pub const PAYLOAD_BYTES_MAX: usize = 16 << 10;

/// Why bytes are not a frame. The stream remains usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// A frame of an unknown version.
    #[error("frame version {0}: expected {FRAME_VERSION}")]
    Version(u8),
    /// A length out of range.
    #[error("frame with a payload of {0} bytes: expected 1 to {PAYLOAD_BYTES_MAX}")]
    Length(usize),
    /// The next frame begins before this one ends.
    #[error("frame torn after {0} bytes of its payload")]
    Torn(usize),
    /// The checksum does not match.
    #[error("frame checksum {found:08x}: expected {expected:08x}")]
    Checksum {
        /// Checksum in the frame.
        found: u32,
        /// Checksum of its bytes.
        expected: u32,
    },
    /// A valid frame whose payload is not UTF-8.
    #[error("frame payload is not UTF-8")]
    NotText,
}

/// Encodes `payload` as a frame.
///
/// # Errors
/// [`FrameError::Length`] if it is empty or too long.
pub fn encode(payload: &str) -> Result<Vec<u8>, FrameError> {
    let len = payload.len();
    let fits = (1..=PAYLOAD_BYTES_MAX).contains(&len);
    let len = u16::try_from(len).ok().filter(|_| fits).ok_or(FrameError::Length(len))?;
    let [low, high] = len.to_le_bytes();
    let fields = [FRAME_VERSION, 0, low, high];
    let mut frame = Vec::with_capacity(HEADER_LEN + payload.len());
    frame.extend_from_slice(&MAGIC);
    frame.extend_from_slice(&fields);
    frame.extend_from_slice(&checksum(&fields, payload.as_bytes()).to_le_bytes());
    frame.extend_from_slice(payload.as_bytes());
    Ok(frame)
}

fn checksum(fields: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(fields);
    hasher.update(payload);
    hasher.finalize()
}

/// What the buffer begins with.
enum FrameStatus {
    /// The beginning of a frame.
    Incomplete,
    /// Not a frame.
    Invalid(FrameError),
    /// A frame of this length.
    Complete(usize),
}

/// Splits a stream into payloads.
#[derive(Debug, Default)]
pub struct FrameReader {
    buffer: Vec<u8>,
    /// Offset of the first unprocessed byte in `buffer`.
    start: usize,
    /// Bytes of the current payload already searched for [`MAGIC`]'s first byte.
    scanned: usize,
    skipped: u64,
}

impl FrameReader {
    /// A reader at the beginning of a stream.
    pub fn new() -> FrameReader {
        FrameReader::default()
    }

    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Total bytes skipped because they belong to no frame.
    pub const fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Bytes in the buffer.
    pub fn held(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// The next payload or error; `None` until more is pushed.
    pub fn next_frame(&mut self) -> Option<Result<String, FrameError>> {
        self.skip_to_frame();
        match self.status() {
            FrameStatus::Incomplete => None,
            FrameStatus::Invalid(error) => {
                // Only one byte: the next frame may begin within the apparent header.
                self.skip(1);
                Some(Err(error))
            }
            FrameStatus::Complete(len) => {
                let payload = self.rest().get(HEADER_LEN..len).unwrap_or_default().to_vec();
                self.start += len;
                self.scanned = 0;
                Some(String::from_utf8(payload).map_err(|_| FrameError::NotText))
            }
        }
    }

    fn rest(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }

    fn skip(&mut self, bytes: usize) {
        self.start += bytes;
        self.skipped += bytes as u64;
        self.scanned = 0;
    }

    /// Skips to where a frame may begin.
    fn skip_to_frame(&mut self) {
        loop {
            let rest = self.rest();
            let Some(at) = rest.iter().position(|byte| *byte == MAGIC[0]) else {
                return self.skip(rest.len());
            };
            if at > 0 {
                self.skip(at);
            }
            if self.rest().iter().zip(MAGIC).all(|(byte, expected)| *byte == expected) {
                return;
            }
            self.skip(1);
        }
    }

    fn status(&mut self) -> FrameStatus {
        let rest = self.buffer.get(self.start..).unwrap_or_default();
        let &[_, _, _, _, version, zero, low, high, c0, c1, c2, c3, ref payload @ ..] = rest else {
            return FrameStatus::Incomplete;
        };
        let torn_header = rest.windows(MAGIC.len()).skip(1).take(HEADER_LEN - 1);
        if torn_header.into_iter().any(|bytes| bytes == MAGIC) {
            return FrameStatus::Invalid(FrameError::Torn(0));
        }
        if version != FRAME_VERSION || zero != 0 {
            return FrameStatus::Invalid(FrameError::Version(version));
        }
        let len = usize::from(u16::from_le_bytes([low, high]));
        if !(1..=PAYLOAD_BYTES_MAX).contains(&len) {
            return FrameStatus::Invalid(FrameError::Length(len));
        }
        let available = payload.get(..len.min(payload.len())).unwrap_or_default();
        let unscanned = available.get(self.scanned..).unwrap_or_default();
        if let Some(at) = unscanned.iter().position(|byte| *byte == MAGIC[0]) {
            return FrameStatus::Invalid(FrameError::Torn(self.scanned + at));
        }
        self.scanned = available.len();
        if available.len() < len {
            return FrameStatus::Incomplete;
        }
        let found = u32::from_le_bytes([c0, c1, c2, c3]);
        let expected = checksum(&[version, zero, low, high], available);
        if found != expected {
            return FrameStatus::Invalid(FrameError::Checksum { found, expected });
        }
        FrameStatus::Complete(HEADER_LEN + len)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read_all(pieces: &[&[u8]]) -> (Vec<String>, Vec<FrameError>, FrameReader) {
        let (mut payloads, mut errors) = (Vec::new(), Vec::new());
        let mut reader = FrameReader::new();
        for piece in pieces {
            reader.push(piece);
            while let Some(frame) = reader.next_frame() {
                match frame {
                    Ok(payload) => payloads.push(payload),
                    Err(error) => errors.push(error),
                }
            }
        }
        (payloads, errors, reader)
    }

    #[test]
    fn frames_computed_by_hand() {
        // crc32(01 00 02 00 7B 7D) by zlib.
        let expected = [0xF5, 0x42, 0x41, 0x4C, 1, 0, 2, 0, 0x31, 0x17, 0xE8, 0x32, 0x7B, 0x7D];
        assert_eq!(encode("{}").unwrap(), expected);
        assert_eq!(encode(""), Err(FrameError::Length(0)));
        let long = "x".repeat(PAYLOAD_BYTES_MAX + 1);
        assert_eq!(encode(&long), Err(FrameError::Length(long.len())));
        let longest = "x".repeat(PAYLOAD_BYTES_MAX);
        let (payloads, errors, reader) = read_all(&[&encode(&longest).unwrap()]);
        assert_eq!((payloads, errors, reader.skipped()), (vec![longest], vec![], 0));
    }

    #[test]
    fn invalid_frames_are_reported_and_the_next_is_read() {
        let good = encode("{\"a\":1}").unwrap();
        let corrupt = |at: usize, byte: u8| {
            let mut frame = good.clone();
            frame[at] = byte;
            frame
        };
        for (bad, expected) in [
            (corrupt(4, 2), Some(FrameError::Version(2))),
            (corrupt(5, 9), Some(FrameError::Version(1))),
            (corrupt(7, 0xFF), Some(FrameError::Length(0xFF07))),
            (corrupt(6, 0), Some(FrameError::Length(0))),
            (corrupt(6, 200), Some(FrameError::Torn(7))),
            (good[..15].to_vec(), Some(FrameError::Torn(3))),
            (good[..10].to_vec(), Some(FrameError::Torn(0))),
            (corrupt(0, b'x'), None),
            (b"rubbish \xF5\xF5BA".to_vec(), None),
        ] {
            let (payloads, errors, reader) = read_all(&[&bad, &good]);
            assert_eq!(payloads, ["{\"a\":1}"], "{bad:?}");
            assert_eq!(errors.first().copied(), expected, "{bad:?}");
            assert_eq!(reader.skipped(), bad.len() as u64, "{bad:?}");
        }
        let (_, errors, _) = read_all(&[&corrupt(14, b'b')]);
        assert!(matches!(errors[..], [FrameError::Checksum { .. }]), "{errors:?}");
    }

    #[test]
    fn two_torn_frames_of_fitting_length_fail_the_checksum() {
        let (one, other) = (encode("{\"a\":1}").unwrap(), encode("{\"b\":2}").unwrap());
        let (payloads, errors, _) = read_all(&[&one[..15], &other[15..]]);
        assert!(payloads.is_empty());
        assert!(matches!(errors[..], [FrameError::Checksum { .. }]), "{errors:?}");
    }

    fn text() -> impl Strategy<Value = String> {
        "[ -~\u{e9}\u{20ac}\u{1f600}]{1,60}"
    }

    proptest! {
        #[test]
        fn payloads_do_not_depend_on_how_the_stream_is_split(
            payloads in prop::collection::vec(text(), 1..6),
            cuts in prop::collection::vec(1..40usize, 1..60),
        ) {
            let stream: Vec<u8> = payloads.iter().flat_map(|it| encode(it).unwrap()).collect();
            let (mut pieces, mut rest) = (Vec::new(), stream.as_slice());
            for cut in cuts {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                pieces.push(piece);
                rest = after;
            }
            pieces.push(rest);
            let (read, errors, reader) = read_all(&pieces);
            prop_assert_eq!(read, payloads);
            prop_assert_eq!(errors, vec![]);
            prop_assert_eq!((reader.skipped(), reader.held()), (0, 0));
        }

        /// After lost bytes and noise, the following whole frames are read, and nothing else.
        #[test]
        fn reading_resumes_after_loss_and_noise(
            payloads in prop::collection::vec(text(), 2..6),
            noise in prop::collection::vec(any::<u8>(), 0..80),
            lost in 0..70usize,
            at in 0..200usize,
        ) {
            let frames: Vec<Vec<u8>> = payloads.iter().map(|it| encode(it).unwrap()).collect();
            let stream = frames.concat();
            let at = at.min(stream.len());
            let end = (at + lost).min(stream.len());
            let damaged = [&stream[..at], &noise, &stream[end..]].concat();
            // Frames that lie wholly before or after the loss. Noise may look like a header, which
            // then consumes the bytes up to the next frame.
            let (mut before, mut after, mut offset) = (Vec::new(), Vec::new(), 0);
            for (frame, payload) in frames.iter().zip(&payloads) {
                if offset + frame.len() <= at {
                    before.push(payload.clone());
                } else if offset >= end {
                    after.push(payload.clone());
                }
                offset += frame.len();
            }
            let (read, _, reader) = read_all(&[&damaged]);
            prop_assert!(read.starts_with(&before), "{read:?}");
            prop_assert!(read.len() >= before.len() + after.len().saturating_sub(1));
            prop_assert!(reader.held() <= HEADER_LEN + PAYLOAD_BYTES_MAX);
            let noise_has_frame = noise.windows(4).any(|it| it == MAGIC);
            if !noise_has_frame && !noise.contains(&MAGIC[0]) {
                prop_assert!(read.ends_with(&after), "{read:?}");
                prop_assert!(read.iter().all(|it| payloads.contains(it)));
            }
        }

        #[test]
        fn arbitrary_bytes_neither_panic_nor_fill_the_buffer(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
        ) {
            let mut reader = FrameReader::new();
            for piece in &pieces {
                reader.push(piece);
                while reader.next_frame().is_some() {}
                prop_assert!(reader.held() <= HEADER_LEN + PAYLOAD_BYTES_MAX);
            }
        }
    }
}
