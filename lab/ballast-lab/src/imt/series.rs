//! Recorded series as CSV.
//!
//! Idea: a header with the columns `wss_bytes` and `events` (or another column for the events), in
//! any order, and a row for every interval. Errors name line, column, what was found and what was
//! expected; no row is skipped.
//! Cost: one pass. Source: RFC 4180, as `csv-core` reads it.
//! Limits: [`ROWS_MAX`] rows, fields of [`FIELD_BYTES_MAX`] bytes; other columns are ignored. Lines
//! and columns count from 1, columns in characters.

use std::fmt;

use ballast_estimate::phase::RecordedInterval;
use ballast_model::Bytes;
use csv_core::{ReadFieldResult, Reader};

/// The greatest number of rows: two months with one every 5 s.
const ROWS_MAX: usize = 1 << 20;
/// The greatest size of a field, in bytes.
const FIELD_BYTES_MAX: usize = 256;
/// The greatest number of columns in the header.
const COLUMNS_MAX: usize = 64;
/// The greatest size of a file, in bytes: [`ROWS_MAX`] rows of 64 bytes.
pub(crate) const BYTES_MAX: u64 = 64 << 20;
/// The greatest number of characters of a wrong field that a message quotes.
const SHOWN_CHARS_MAX: usize = 40;

const WSS: &str = "wss_bytes";
/// The default column of the events.
pub(crate) const EVENTS: &str = "events";
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A mistake in a series, and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {problem}")]
pub struct Fault {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// What was found, and what was expected.
    pub problem: Problem,
}

/// The mistakes that a series can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// There is no header.
    #[error("nothing: expected a header with the columns {WSS} and {0}")]
    Empty(String),
    /// The header lacks a column.
    #[error("no column {lacks} in the header: expected the columns {WSS} and {events}")]
    NoColumn {
        /// The missing column.
        lacks: String,
        /// The column that was expected to have the events.
        events: String,
    },
    /// The header has a column twice.
    #[error("a second column {0}: expected one")]
    SecondColumn(String),
    /// The header has too many columns.
    #[error("more than {COLUMNS_MAX} columns")]
    TooManyColumns,
    /// There is a header but no row.
    #[error("no row: expected one for every interval below the header")]
    NoRows,
    /// Too many rows.
    #[error("more than {ROWS_MAX} rows")]
    TooManyRows,
    /// A row and the header have different numbers of fields.
    #[error("a row of {found} fields: expected {expected}, as the header has")]
    Fields {
        /// Number in the row.
        found: usize,
        /// Number in the header.
        expected: usize,
    },
    /// A field is too long.
    #[error("a field of more than {FIELD_BYTES_MAX} bytes (is a quote not closed?)")]
    TooLong,
    /// A field is no number, or too large a number.
    #[error("{found} in column {name}: expected a whole number from 0 to 2^64 - 1")]
    NotANumber {
        /// The field, ready for a message.
        found: Shown,
        /// Name of the column.
        name: String,
    },
}

/// A field ready for a message: short, and without control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown(String);

impl Shown {
    fn new(field: &[u8]) -> Shown {
        let text = String::from_utf8_lossy(field);
        let mut chars = text.chars();
        let start: String = chars.by_ref().take(SHOWN_CHARS_MAX).collect();
        let more = if chars.next().is_some() { "…" } else { "" };
        Shown(format!("{}{more}", start.escape_debug()))
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { write!(f, "nothing") } else { write!(f, "`{}`", self.0) }
    }
}

/// Reads a series whose events are in the column `events`.
///
/// # Errors
/// The first mistake in it.
pub fn parse(bytes: &[u8]) -> Result<Vec<RecordedInterval>, Fault> {
    parse_with(bytes, EVENTS)
}

/// Reads a series whose events are in the column named `events`.
///
/// # Errors
/// The first mistake in it.
pub fn parse_with(bytes: &[u8], events: &str) -> Result<Vec<RecordedInterval>, Fault> {
    let mut fields = Fields::new(bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes));
    let header = Header::read(&mut fields, events)?;
    let mut rows = Vec::new();
    while let Some(row) = header.row(&mut fields)? {
        if rows.len() == ROWS_MAX {
            return Err(fields.fault(Problem::TooManyRows));
        }
        rows.push(row);
    }
    if rows.is_empty() { Err(fields.fault(Problem::NoRows)) } else { Ok(rows) }
}

/// The positions of the columns.
struct Header<'a> {
    wss: usize,
    events: usize,
    events_name: &'a str,
    columns: usize,
}

impl<'a> Header<'a> {
    fn read(fields: &mut Fields<'_>, events_name: &'a str) -> Result<Header<'a>, Fault> {
        let (mut wss, mut events, mut columns) = (None, None, 0);
        loop {
            let Some(field) = fields.field()? else {
                return Err(fields.fault(Problem::Empty(events_name.to_owned())));
            };
            for (place, name) in [(&mut wss, WSS), (&mut events, events_name)] {
                if field.text().trim_ascii() == name.as_bytes() && place.replace(columns).is_some()
                {
                    return Err(fields.fault(Problem::SecondColumn(name.to_owned())));
                }
            }
            columns += 1;
            if columns > COLUMNS_MAX {
                return Err(fields.fault(Problem::TooManyColumns));
            }
            if field.is_last {
                break;
            }
        }
        let lacking = |lacks: &str| {
            let (lacks, events) = (lacks.to_owned(), events_name.to_owned());
            Fault { line: fields.line, column: 1, problem: Problem::NoColumn { lacks, events } }
        };
        Ok(Header {
            wss: wss.ok_or_else(|| lacking(WSS))?,
            events: events.ok_or_else(|| lacking(events_name))?,
            events_name,
            columns,
        })
    }

    /// Reads the next row; `None` at the end.
    fn row(&self, fields: &mut Fields<'_>) -> Result<Option<RecordedInterval>, Fault> {
        let (mut wss, mut events) = (0, 0);
        for index in 0..self.columns {
            let Some(field) = fields.field()? else { return Ok(None) };
            if index == self.wss {
                wss = fields.number(&field, WSS)?;
            }
            if index == self.events {
                events = fields.number(&field, self.events_name)?;
            }
            let found = index + 1;
            if field.is_last != (found == self.columns) {
                let found = if field.is_last { found } else { found + fields.rest_of_row()? };
                return Err(fields.fault(Problem::Fields { found, expected: self.columns }));
            }
        }
        Ok(Some(RecordedInterval { wss: Bytes::new(wss), events }))
    }
}

/// One field.
struct Field {
    bytes: [u8; FIELD_BYTES_MAX],
    len: usize,
    /// Whether it is the last one of its row.
    is_last: bool,
}

impl Field {
    fn text(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// Reads one field after another and keeps track of the place.
struct Fields<'a> {
    core: Reader,
    rest: &'a [u8],
    /// Where the latest field begins or, after the last field, where the next thing begins.
    line: usize,
    column: usize,
    is_row_start: bool,
    /// Lines and characters between that place and `rest`.
    lines_taken: usize,
    chars_taken: usize,
}

impl<'a> Fields<'a> {
    fn new(rest: &'a [u8]) -> Fields<'a> {
        let core = Reader::new();
        let (line, column) = (1, 1);
        Fields { core, rest, line, column, is_row_start: true, lines_taken: 0, chars_taken: 0 }
    }

    fn field(&mut self) -> Result<Option<Field>, Fault> {
        self.go_to_next();
        let mut field = Field { bytes: [0; FIELD_BYTES_MAX], len: 0, is_last: false };
        loop {
            let room = field.bytes.get_mut(field.len..).unwrap_or_default();
            let (result, taken, written) = self.core.read_field(self.rest, room);
            self.advance(taken);
            field.len += written;
            match result {
                // The end of the input is passed to the reader as an empty input.
                ReadFieldResult::InputEmpty => {}
                ReadFieldResult::OutputFull => return Err(self.fault(Problem::TooLong)),
                ReadFieldResult::Field { record_end } => {
                    (field.is_last, self.is_row_start) = (record_end, record_end);
                    return Ok(Some(field));
                }
                ReadFieldResult::End => return Ok(None),
            }
        }
    }

    /// The number of fields left in this row.
    fn rest_of_row(&mut self) -> Result<usize, Fault> {
        let (line, column) = (self.line, self.column);
        let mut count = 0;
        while let Some(field) = self.field()? {
            count += 1;
            if field.is_last {
                break;
            }
        }
        (self.line, self.column) = (line, column);
        Ok(count)
    }

    /// Advances the place to the next field; empty lines between rows count as lines.
    fn go_to_next(&mut self) {
        if self.is_row_start {
            // `csv-core` would skip them as a part of the next field, whose place would be wrong.
            let ends = self.rest.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
            self.advance(ends);
        }
        (self.line, self.column) = match self.lines_taken {
            0 => (self.line, self.column + self.chars_taken),
            lines => (self.line + lines, 1 + self.chars_taken),
        };
        (self.lines_taken, self.chars_taken) = (0, 0);
    }

    fn advance(&mut self, count: usize) {
        let (taken, rest) = self.rest.split_at(count.min(self.rest.len()));
        for byte in taken {
            match byte {
                b'\n' => (self.lines_taken, self.chars_taken) = (self.lines_taken + 1, 0),
                // Continuation bytes of UTF-8 are not characters of their own.
                0x80..=0xbf => {}
                _ => self.chars_taken += 1,
            }
        }
        self.rest = rest;
    }

    fn number(&self, field: &Field, name: &str) -> Result<u64, Fault> {
        let text = field.text().trim_ascii();
        let digits = text.iter().all(u8::is_ascii_digit).then_some(text);
        let number = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        number.ok_or_else(|| {
            self.fault(Problem::NotANumber { found: Shown::new(text), name: name.to_owned() })
        })
    }

    fn fault(&self, problem: Problem) -> Fault {
        Fault { line: self.line, column: self.column, problem }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn recorded(wss: u64, events: u64) -> RecordedInterval {
        RecordedInterval { wss: Bytes::new(wss), events }
    }

    #[test]
    fn columns_are_found_by_name() {
        let two = vec![recorded(4096, 7), recorded(8192, 0)];
        for text in [
            "wss_bytes,events\n4096,7\n8192,0\n",
            "wss_bytes,events\n4096,7\n8192,0",
            "events,wss_bytes\n7,4096\n0,8192\n",
            "\u{feff}wss_bytes,events\r\n4096,7\r\n8192,0\r\n",
            "time, wss_bytes ,events\n9, 4096 ,7\n\"x,\ny\",\"8192\",0\n",
            "\n\nwss_bytes,events\n\n4096,7\n\n\n8192,0\n\n",
        ] {
            assert_eq!(parse(text.as_bytes()).as_ref(), Ok(&two), "{text:?}");
        }
    }

    #[test]
    fn events_may_be_in_another_column() {
        let text = b"wss_bytes,events,faults\n4096,,9\n";
        assert_eq!(parse_with(text, "faults"), Ok(vec![recorded(4096, 9)]));
        let error = parse_with(text, "swaps").unwrap_err().to_string();
        assert_eq!(
            error,
            "1:1: no column swaps in the header: expected the columns wss_bytes and swaps"
        );
        assert!(parse(text).is_err());
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let long = format!("wss_bytes,events\n1,{}\n", "9".repeat(300));
        let wide = "x,".repeat(65) + "wss_bytes,events\n";
        for (text, expected) in [
            ("", "1:1: nothing: expected a header with the columns wss_bytes and events"),
            ("\n\n", "3:1: nothing: expected a header with the columns wss_bytes and events"),
            ("wss_bytes,events\n", "2:1: no row: expected one for every interval below the header"),
            (
                "100,200\n",
                "1:1: no column wss_bytes in the header: expected the columns wss_bytes and events",
            ),
            (
                "wss_bytes,misses\n1,2\n",
                "1:1: no column events in the header: expected the columns wss_bytes and events",
            ),
            ("events,wss_bytes,events\n", "1:18: a second column events: expected one"),
            (
                "wss_bytes,events\n1,2\n300,-5\n",
                "3:5: `-5` in column events: expected a whole number from 0 to 2^64 - 1",
            ),
            (
                "té,wss_bytes,events\né,1.5,2\n",
                "2:3: `1.5` in column wss_bytes: expected a whole number from 0 to 2^64 - 1",
            ),
            (
                "wss_bytes,events\n,2\n",
                "2:1: nothing in column wss_bytes: expected a whole number from 0 to 2^64 - 1",
            ),
            (
                "wss_bytes,events\n1,18446744073709551616\n",
                "2:3: `18446744073709551616` in column events: expected a whole number from 0 to \
                 2^64 - 1",
            ),
            (
                "wss_bytes,events\n1,\u{1b}[2J\n",
                "2:3: `\\u{1b}[2J` in column events: expected a whole number from 0 to 2^64 - 1",
            ),
            ("x,wss_bytes,events\n1,2\n", "2:3: a row of 2 fields: expected 3, as the header has"),
            (
                "wss_bytes,events\n1,2,3,4\n",
                "2:3: a row of 4 fields: expected 2, as the header has",
            ),
            (&long, "2:3: a field of more than 256 bytes (is a quote not closed?)"),
            (&wide, "1:129: more than 64 columns"),
        ] {
            let fault = parse(text.as_bytes()).expect_err(text);
            assert_eq!(fault.to_string(), expected, "{text:?}");
        }
    }

    #[test]
    fn rows_are_bounded() {
        let mut text = "wss_bytes,events\n".to_owned() + &"1,2\n".repeat(ROWS_MAX);
        assert_eq!(parse(text.as_bytes()).unwrap().len(), ROWS_MAX);
        text.push_str("1,2\n");
        let fault = parse(text.as_bytes()).unwrap_err();
        assert_eq!((fault.line, fault.problem), (ROWS_MAX + 2, Problem::TooManyRows));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(rows in prop::collection::vec(any::<(u64, u64)>(), 1..50)) {
            let lines = rows.iter().map(|(wss, events)| format!("{wss},{events}\n"));
            let text = "wss_bytes,events\n".to_owned() + &lines.collect::<String>();
            let rows: Vec<_> = rows.iter().map(|(wss, events)| recorded(*wss, *events)).collect();
            prop_assert_eq!(parse(text.as_bytes()), Ok(rows));
        }

        #[test]
        fn rubbish_is_refused_where_it_is(
            bytes in prop::collection::vec(any::<u8>(), 0..200), with_header: bool,
        ) {
            let header: &[u8] = if with_header { b"wss_bytes,events\n" } else { b"" };
            let text = [header, &bytes].concat();
            if let Err(fault) = parse(&text) {
                let lines = text.iter().filter(|byte| **byte == b'\n').count() + 1;
                prop_assert!((1..=lines).contains(&fault.line) && fault.column >= 1);
                prop_assert!(!fault.to_string().chars().any(char::is_control));
            }
        }
    }
}
