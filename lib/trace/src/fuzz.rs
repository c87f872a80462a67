//! Promises that must hold for any bytes, for property tests and fuzz targets alike.
//!
//! Idea: the same bytes in different pieces give the same references, the same bad records and the
//! same fault. Nothing panics, and no push gives more than a block and one record.

use std::io::{self, Read};
use std::num::NonZeroU64;

use crate::{ACCESS_BYTES_MAX, BLOCK_REFERENCES, Fault, Format, Options, Parser, TraceReader};

/// Most blocks read of a compressed stream: a few bytes can decompress to any size.
const BLOCKS_MAX: usize = 32;

/// Divides the input of a fuzz target: options and the size of a piece from the first two bytes,
/// and the trace from the rest.
pub fn input(bytes: &[u8]) -> Option<(Options, usize, &[u8])> {
    let [how, piece_bytes, trace @ ..] = bytes else { return None };
    let column = [None, Some("1"), Some("2"), Some("a")][usize::from(how >> 4 & 3)];
    let page_size = [0, 1, 10, 4096][usize::from(how >> 1 & 3)];
    let options = Options {
        format: None,
        column: column.map(|it| it.parse().unwrap_or_else(|never| match never {})),
        page_size: NonZeroU64::new(page_size),
        skip_bad: how & 1 != 0,
    };
    Some((options, usize::from(*piece_bytes), trace))
}

/// Everything a parser made of a trace.
#[derive(Debug, PartialEq, Eq)]
pub struct ParseResult {
    /// The references.
    pub references: Vec<u64>,
    /// Number of bad records skipped.
    pub skipped: u64,
    /// How parsing ended.
    pub end: Result<(), Fault>,
}

/// Parses the bytes in pieces of `piece_bytes` each.
///
/// # Panics
/// If a promise of [`Parser`] is broken.
pub fn parse(parser: &mut Parser, bytes: &[u8], piece_bytes: usize) -> ParseResult {
    let mut references = Vec::new();
    let mut out = Vec::new();
    let mut all = || -> Result<(), Fault> {
        for piece in bytes.chunks(piece_bytes.max(1)) {
            let mut rest = piece;
            while !rest.is_empty() {
                let taken = parser.push(rest, &mut out);
                assert!(out.len() < BLOCK_REFERENCES + ACCESS_BYTES_MAX as usize);
                if let Ok(taken) = taken {
                    assert!(taken == rest.len() || out.len() >= BLOCK_REFERENCES);
                }
                references.append(&mut out);
                rest = &rest[taken?..];
            }
        }
        parser.finish(&mut out)
    };
    let end = all();
    references.append(&mut out);
    ParseResult { references, skipped: parser.skipped(), end }
}

/// Parses the bytes whole, one by one, and in pieces of `piece_bytes`.
///
/// # Panics
/// If the results differ.
pub fn pieces_do_not_show(format: Format, options: &Options, bytes: &[u8], piece_bytes: usize) {
    let Ok(mut parser) = Parser::new(format, options) else { return };
    let whole = parse(&mut parser, bytes, usize::MAX);
    assert!(!options.skip_bad || !matches!(whole.end, Err(Fault::BadRecord { .. })));
    for piece_bytes in [1, piece_bytes] {
        let mut parser = Parser::new(format, options).expect("it was made from the same before");
        assert_eq!(parse(&mut parser, bytes, piece_bytes), whole, "{format}, {piece_bytes}");
    }
}

/// Reads a stream that may be compressed, whole and in pieces of `piece_bytes`.
///
/// # Panics
/// If the results differ.
pub fn reading_is_the_same(options: &Options, bytes: &[u8], piece_bytes: usize) {
    let whole = read(options, bytes, usize::MAX);
    let pieces = read(options, bytes, piece_bytes.max(1));
    assert_eq!(whole, pieces, "{piece_bytes}");
}

/// The references of a stream; `None` if it has a fault. The place where damaged compression is
/// noticed may depend on the pieces, and so may the number of references before it.
fn read(options: &Options, bytes: &[u8], piece_bytes: usize) -> Option<Vec<u64>> {
    let stream = PieceReader { rest: bytes.to_vec().into(), piece_bytes };
    let mut reader = TraceReader::from_read("fuzz", Box::new(stream), options).ok()?;
    let (mut references, mut block) = (Vec::new(), Vec::new());
    for _ in 0..BLOCKS_MAX {
        if reader.read_block(&mut block).ok()? == 0 {
            assert_eq!(reader.progress().references, references.len() as u64);
            break;
        }
        references.append(&mut block);
    }
    Some(references)
}

/// A stream that yields a few bytes at a time, as a pipe does.
struct PieceReader {
    rest: std::collections::VecDeque<u8>,
    piece_bytes: usize,
}

impl Read for PieceReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let most = out.len().min(self.piece_bytes);
        self.rest.read(&mut out[..most])
    }
}
