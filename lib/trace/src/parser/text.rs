//! Numbers in lines, or in one column of them.
//!
//! Limits: white space separates columns and means nothing else. Without a chosen column a line
//! must have one number: of several, any could be meant.

use super::lines::{Dialect, LineError};
use super::{LINE_BYTES_MAX, number};
use crate::{Column, Fault};

pub(super) struct Text {
    /// The chosen column, from 1.
    column: Option<u32>,
}

impl Text {
    pub(super) fn new(column: Option<&Column>) -> Result<Text, Fault> {
        match column {
            None => Ok(Text { column: None }),
            Some(Column::Number(number)) => Ok(Text { column: Some(number.get()) }),
            Some(column) => Err(Fault::ColumnNotANumber { column: column.clone() }),
        }
    }
}

impl Dialect for Text {
    fn line<'a>(&self, line: &'a [u8], out: &mut Vec<u64>) -> Result<(), LineError<'a>> {
        let mut fields = line
            .split(u8::is_ascii_whitespace)
            .filter(|field| !field.is_empty())
            .take_while(|field| field[0] != b'#');
        let Some(first) = fields.next() else { return Ok(()) };
        let field = match self.column {
            None if fields.next().is_some() => {
                return Err(LineError::ColumnNotSpecified(line.trim_ascii()));
            }
            None | Some(1) => first,
            Some(wanted) => {
                let mut found = 1;
                loop {
                    let Some(field) = fields.next() else {
                        return Err(LineError::Columns(found, wanted));
                    };
                    found += 1;
                    if found == wanted {
                        break field;
                    }
                }
            }
        };
        out.push(number::parse(field).ok_or(LineError::Bytes(field, number::EXPECTED))?);
        Ok(())
    }

    /// A line without a comment or, with a chosen column, any line that has this column.
    #[inline]
    fn usual(&self, bytes: &[u8], out: &mut Vec<u64>) -> Option<usize> {
        let mut at = 0;
        for _ in 1..self.column.unwrap_or(1) {
            at = skip_field(bytes, at)?;
        }
        let (value, digits) = match &bytes[at..] {
            [b'0', b'x' | b'X', hexadecimal @ ..] => {
                let (value, digits) = number::leading_hexadecimal(hexadecimal)?;
                (value, digits + 2)
            }
            decimal => number::leading_decimal(decimal)?,
        };
        at += digits;
        let end = match (bytes.get(at)?, self.column) {
            (b'\n', _) => at,
            (b' ' | b'\t' | b'\r', Some(_)) => at + memchr::memchr(b'\n', &bytes[at..])?,
            (b'\r', None) if bytes.get(at + 1) == Some(&b'\n') => at + 1,
            _ => return None,
        };
        if end > LINE_BYTES_MAX {
            return None;
        }
        out.push(value);
        Some(end + 1)
    }
}

/// The beginning of the field behind the one at `at`, if the line has it and neither is a comment.
#[inline]
fn skip_field(bytes: &[u8], mut at: usize) -> Option<usize> {
    let first = bytes.get(at)?;
    if *first == b'#' || first.is_ascii_whitespace() {
        return None;
    }
    while !bytes.get(at)?.is_ascii_whitespace() {
        at += 1;
    }
    while matches!(bytes.get(at)?, b' ' | b'\t') {
        at += 1;
    }
    (!bytes[at].is_ascii_whitespace()).then_some(at)
}
