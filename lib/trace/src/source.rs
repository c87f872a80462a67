//! The bytes of a trace: a file or a stream, plain or decompressed.
//!
//! Idea: a name that ends in `.gz` or `.zst` decides the compression; otherwise the first bytes do.
//! Several compressed files one behind the other are one trace, as `cat` joins them. The bytes read
//! of the file itself are counted, since a progress bar knows the size of that.
//! Cost: a decompressor's window, 32 KiB for gzip and at most 2^[`WINDOW_LOG_MAX`] bytes for zstd.
//! Source: RFC 1952 §2.3.1, RFC 8878 §3.1.1.

use std::fmt;
use std::io::{self, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use crate::format::has_extension;

/// Largest window of a zstd stream, as a power of two: 128 MiB, which `zstd --long` writes and
/// every decompressor accepts by default.
pub const WINDOW_LOG_MAX: u32 = 27;

/// Bytes read from the file at a time.
const READ_BYTES: usize = 128 << 10;
/// Number of first bytes examined: a gzip header.
const HEAD_BYTES: usize = 10;

/// How a trace is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// gzip.
    Gzip,
    /// Zstandard.
    Zstd,
}

impl Compression {
    /// The compression that a file's name shows; `None` if it shows none.
    pub fn from_path(path: &Path) -> Option<Compression> {
        if has_extension(path, &["gz"]) {
            Some(Compression::Gzip)
        } else if has_extension(path, &["zst"]) {
            Some(Compression::Zstd)
        } else {
            None
        }
    }

    /// The compression that the first bytes show. They could also be a number of a binary trace, so
    /// everything that gzip's header fixes is compared: its magic number, the method, flags, level,
    /// and operating system.
    fn from_head(head: &[u8]) -> Option<Compression> {
        match *head {
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Compression::Zstd),
            [0x1f, 0x8b, 8, flags, _, _, _, _, 0 | 2 | 4, 0..=13 | 255] if flags < 32 => {
                Some(Compression::Gzip)
            }
            _ => None,
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
        })
    }
}

type TraceStream = Box<dyn Read + Send>;

/// Bytes of a trace, decompressed.
pub(crate) enum Source {
    Plain(CountingReader),
    Gzip(Box<MultiGzDecoder<BufReader<CountingReader>>>),
    Zstd(zstd::Decoder<'static, BufReader<CountingReader>>),
}

impl Source {
    /// Begins to read; `from_name` is the compression that the name shows.
    pub(crate) fn new(stream: TraceStream, from_name: Option<Compression>) -> io::Result<Source> {
        let mut reader =
            CountingReader { stream, head: [0; HEAD_BYTES], head_len: 0, head_at: 0, bytes: 0 };
        reader.read_head()?;
        let head = &reader.head[..reader.head_len];
        let compression =
            from_name.or_else(|| Compression::from_head(head)).filter(|_| !head.is_empty());
        let Some(compression) = compression else { return Ok(Source::Plain(reader)) };
        let buffered = BufReader::with_capacity(READ_BYTES, reader);
        Ok(match compression {
            Compression::Gzip => Source::Gzip(Box::new(MultiGzDecoder::new(buffered))),
            Compression::Zstd => {
                let mut decoder = zstd::Decoder::with_buffer(buffered)?;
                decoder.window_log_max(WINDOW_LOG_MAX)?;
                Source::Zstd(decoder)
            }
        })
    }

    /// How it is compressed.
    pub(crate) fn compression(&self) -> Option<Compression> {
        match self {
            Source::Plain(_) => None,
            Source::Gzip(_) => Some(Compression::Gzip),
            Source::Zstd(_) => Some(Compression::Zstd),
        }
    }

    /// Bytes read of the file itself.
    pub(crate) fn bytes_read(&self) -> u64 {
        let (reader, waiting) = match self {
            Source::Plain(reader) => (reader, 0),
            Source::Gzip(decoder) => buffered(decoder.get_ref()),
            Source::Zstd(decoder) => buffered(decoder.get_ref()),
        };
        reader.bytes - waiting
    }

    /// As [`Read::read`], but an interrupted call is repeated.
    pub(crate) fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = match self {
                Source::Plain(reader) => reader.read(out),
                Source::Gzip(decoder) => decoder.read(out),
                Source::Zstd(decoder) => decoder.read(out),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }
}

fn buffered(reader: &BufReader<CountingReader>) -> (&CountingReader, u64) {
    (reader.get_ref(), reader.buffer().len() as u64)
}

/// A stream that counts its bytes and has its first ones examined.
pub(crate) struct CountingReader {
    stream: TraceStream,
    head: [u8; HEAD_BYTES],
    head_len: usize,
    head_at: usize,
    bytes: u64,
}

impl CountingReader {
    /// Reads the first bytes; a pipe may give them in pieces.
    fn read_head(&mut self) -> io::Result<()> {
        while self.head_len < HEAD_BYTES {
            match self.stream.read(&mut self.head[self.head_len..]) {
                Ok(0) => break,
                Ok(read) => self.head_len += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Read for CountingReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let head = &self.head[self.head_at..self.head_len];
        let read = if head.is_empty() {
            self.stream.read(out)?
        } else {
            let read = head.len().min(out.len());
            out[..read].copy_from_slice(&head[..read]);
            self.head_at += read;
            read
        };
        self.bytes += read as u64;
        Ok(read)
    }
}
