//! Lines from pieces.
//!
//! Idea: a [`Dialect`] sees whole lines, mostly where they are in the piece; only a divided line is
//! copied together. For lines of the most usual kind the end is not even searched first:
//! [`Dialect::usual`] parses up to it, which makes text fast. Limits: a line longer than
//! [`LINE_BYTES_MAX`] is bad; it is skipped without being held.

use super::{BLOCK_REFERENCES, LINE_BYTES_MAX, Tolerance};
use crate::error::shown;
use crate::{Fault, Position};

/// The meaning of lines in one format.
pub(super) trait Dialect {
    /// Appends the references of one line without its end.
    fn line<'a>(&self, line: &'a [u8], out: &mut Vec<u64>) -> Result<(), LineError<'a>>;

    /// If the bytes begin with a whole line of the most usual kind: appends its references and
    /// returns its length, with the line end. The result must be that of [`Dialect::line`].
    fn usual(&self, bytes: &[u8], out: &mut Vec<u64>) -> Option<usize>;
}

/// Why a line is bad.
#[derive(Debug)]
pub(super) enum LineError<'a> {
    /// These bytes, and what was expected instead.
    Bytes(&'a [u8], &'static str),
    /// The number of columns, and the number there should be at least.
    Columns(u32, u32),
    /// The line has several columns, and the options choose none.
    ColumnNotSpecified(&'a [u8]),
}

impl LineError<'_> {
    pub(super) fn at(&self, position: Position) -> Fault {
        let (found, expected) = match *self {
            LineError::Bytes(bytes, expected) => (shown(bytes), expected.to_owned()),
            LineError::Columns(found, wanted) => {
                let plural = if found == 1 { "" } else { "s" };
                (format!("{found} column{plural}"), format!("{wanted} or more"))
            }
            LineError::ColumnNotSpecified(line) => {
                (shown(line), "one number, or --column to choose one of several".to_owned())
            }
        };
        Fault::BadRecord { position, found, expected }
    }
}

pub(super) struct Lines<D> {
    dialect: D,
    /// The beginning of a line whose end is not reached yet.
    part: Vec<u8>,
    /// The line is already too long, and its end is not reached yet.
    too_long: bool,
    /// Number of lines ended so far.
    ended: u64,
}

impl<D: Dialect> Lines<D> {
    pub(super) fn new(dialect: D) -> Lines<D> {
        Lines { dialect, part: Vec::new(), too_long: false, ended: 0 }
    }

    pub(super) fn push(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u64>,
        tolerance: &mut Tolerance,
    ) -> Result<usize, Fault> {
        let mut rest = bytes;
        while !rest.is_empty() && out.len() < BLOCK_REFERENCES {
            // The first line may begin with a byte order mark.
            if self.part.is_empty() && !self.too_long && self.ended > 0 {
                while out.len() < BLOCK_REFERENCES
                    && let Some(taken) = self.dialect.usual(rest, out)
                {
                    self.ended += 1;
                    rest = &rest[taken..];
                }
                if rest.is_empty() || out.len() >= BLOCK_REFERENCES {
                    break;
                }
            }
            let Some(end) = memchr::memchr(b'\n', rest) else {
                self.keep(rest, tolerance)?;
                return Ok(bytes.len());
            };
            self.end(&rest[..end], out, tolerance)?;
            rest = &rest[end + 1..];
        }
        Ok(bytes.len() - rest.len())
    }

    pub(super) fn finish(
        &mut self,
        out: &mut Vec<u64>,
        tolerance: &mut Tolerance,
    ) -> Result<(), Fault> {
        if self.part.is_empty() {
            return Ok(());
        }
        self.end(&[], out, tolerance)
    }

    /// Takes the last bytes of a line.
    fn end(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u64>,
        tolerance: &mut Tolerance,
    ) -> Result<(), Fault> {
        let cut = !self.part.is_empty();
        if self.too_long || cut || bytes.len() > LINE_BYTES_MAX {
            self.keep(bytes, tolerance)?;
        }
        self.ended += 1;
        if std::mem::take(&mut self.too_long) {
            return Ok(());
        }
        let line = if cut { &self.part } else { bytes };
        let parsed = self.dialect.line(self.without_mark(line), out);
        let done = parsed.or_else(|error| tolerance.bad(|| error.at(Position::Line(self.ended))));
        self.part.clear();
        done
    }

    /// Keeps bytes of a line whose end is not reached yet.
    fn keep(&mut self, bytes: &[u8], tolerance: &mut Tolerance) -> Result<(), Fault> {
        if self.too_long {
            return Ok(());
        }
        let room = LINE_BYTES_MAX - self.part.len();
        self.part.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if bytes.len() <= room {
            return Ok(());
        }
        self.too_long = true;
        let found = format!("a line longer than {LINE_BYTES_MAX} bytes, {}", shown(&self.part));
        self.part.clear();
        tolerance.bad(|| Fault::BadRecord {
            position: Position::Line(self.ended + 1),
            found,
            expected: "lines of text; is it another format?".to_owned(),
        })
    }

    /// The first line without the byte order mark that some programs write.
    fn without_mark<'a>(&self, line: &'a [u8]) -> &'a [u8] {
        let marked = if self.ended == 1 { line.strip_prefix(b"\xef\xbb\xbf") } else { None };
        marked.unwrap_or(line)
    }
}
