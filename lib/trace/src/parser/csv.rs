//! One column of comma-separated values, chosen by the header.
//!
//! Idea: `csv-core` parses rows from pieces into a buffer of fixed size for one row; a quoted field
//! may contain commas and line ends. Rows without quotes bypass it ([`Rows::usual`]). A byte order
//! mark at the beginning is removed here, since `csv-core` recognizes one only if it is whole in
//! the first piece. Limits: a row of more than [`LINE_BYTES_MAX`] bytes or [`CSV_COLUMNS_MAX`]
//! columns is bad; a quote that is never closed makes the rest of the file one such row.

use csv_core::ReadRecordResult;

use super::lines::LineError;
use super::{BLOCK_REFERENCES, LINE_BYTES_MAX, Tolerance, number};
use crate::error::{listed, shown};
use crate::{Column, Fault, Position};

/// Most columns of a row.
pub const CSV_COLUMNS_MAX: usize = 1024;

const MARK: &[u8] = b"\xef\xbb\xbf";

pub(super) struct Rows {
    core: csv_core::Reader,
    wanted: Option<Column>,
    /// Index of the column; `None` before the header.
    column: Option<usize>,
    /// The row so far: its fields one behind the other, and the end of each.
    row: Vec<u8>,
    row_len: usize,
    ends: Vec<usize>,
    ends_len: usize,
    /// The row is already too long, and its end is not reached yet.
    too_long: bool,
    /// Number of bytes of a byte order mark matched so far; `None` after the beginning of the
    /// trace.
    mark: Option<usize>,
    last: u8,
    /// Number of line ends that `csv-core` did not see.
    lines_aside: u64,
}

impl Rows {
    pub(super) fn new(wanted: Option<Column>) -> Rows {
        Rows {
            core: csv_core::Reader::new(),
            wanted,
            column: None,
            row: vec![0; LINE_BYTES_MAX],
            row_len: 0,
            ends: vec![0; CSV_COLUMNS_MAX],
            ends_len: 0,
            too_long: false,
            mark: Some(0),
            last: 0,
            lines_aside: 0,
        }
    }

    pub(super) fn push(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u64>,
        tolerance: &mut Tolerance,
    ) -> Result<usize, Fault> {
        let mut taken = 0;
        while let Some(come) = self.mark
            && taken < bytes.len()
        {
            if bytes[taken] == MARK[come] {
                taken += 1;
                self.mark = Some(come + 1).filter(|it| *it < MARK.len());
                continue;
            }
            self.no_mark(out, tolerance)?;
        }
        while taken < bytes.len() && out.len() < BLOCK_REFERENCES {
            if let Some(row) = self.usual(&bytes[taken..], out) {
                taken += row;
                continue;
            }
            // The very first byte goes to `csv-core` alone, so that it does not see a byte order
            // mark.
            let end = if self.last == 0 { taken + 1 } else { bytes.len() };
            taken += self.step(&bytes[taken..end], out, tolerance)?;
        }
        Ok(taken)
    }

    pub(super) fn finish(
        &mut self,
        out: &mut Vec<u64>,
        tolerance: &mut Tolerance,
    ) -> Result<(), Fault> {
        self.no_mark(out, tolerance)?;
        // The last row has no line end, or it would have been taken before.
        self.last = 0;
        self.step(&[], out, tolerance)?;
        Ok(())
    }

    /// The bytes matched so far were no byte order mark: hands them to `csv-core`.
    fn no_mark(&mut self, out: &mut Vec<u64>, tolerance: &mut Tolerance) -> Result<(), Fault> {
        for at in 0..self.mark.take().unwrap_or(0) {
            self.step(&MARK[at..=at], out, tolerance)?;
        }
        Ok(())
    }

    /// If the bytes begin with a whole row without quotes: appends its reference and returns its
    /// length, with the line end. `csv-core` would give the same at a quarter of the speed.
    fn usual(&mut self, bytes: &[u8], out: &mut Vec<u64>) -> Option<usize> {
        let column = self.column.filter(|_| self.row_len + self.ends_len == 0 && !self.too_long)?;
        // If `csv-core` has begun a row that has no field yet, only `csv-core` knows its state.
        if !matches!(self.last, b'\n' | b'\r') {
            return None;
        }
        let end = memchr::memchr3(b'\n', b'"', b'\r', bytes)?;
        let end_bytes = if bytes[end..].starts_with(b"\r\n") { 2 } else { 1 };
        // A row with fewer bytes than the most columns exceeds no limit.
        if bytes[end + end_bytes - 1] != b'\n' || end >= CSV_COLUMNS_MAX {
            return None;
        }
        let mut field = &bytes[..end];
        for _ in 0..column {
            field = &field[memchr::memchr(b',', field)? + 1..];
        }
        let (value, digits) = number::leading_decimal(field)?;
        if !matches!(field.get(digits), None | Some(b',')) {
            return None;
        }
        out.push(value);
        self.lines_aside += 1;
        self.last = b'\n';
        Some(end + end_bytes)
    }

    /// Hands bytes to `csv-core`, up to the end of a row; no bytes mean the end of the file.
    fn step(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u64>,
        tolerance: &mut Tolerance,
    ) -> Result<usize, Fault> {
        let (row, ends) = (&mut self.row[self.row_len..], &mut self.ends[self.ends_len..]);
        let (result, taken, row_len, ends_len) = self.core.read_record(bytes, row, ends);
        self.row_len += row_len;
        self.ends_len += ends_len;
        if taken > 0 {
            self.last = bytes[taken - 1];
        }
        match result {
            ReadRecordResult::InputEmpty | ReadRecordResult::End => {}
            ReadRecordResult::Record => self.end_row(out, tolerance)?,
            ReadRecordResult::OutputFull | ReadRecordResult::OutputEndsFull => {
                self.overflow(tolerance)?;
            }
        }
        Ok(taken)
    }

    fn end_row(&mut self, out: &mut Vec<u64>, tolerance: &mut Tolerance) -> Result<(), Fault> {
        let done = if std::mem::take(&mut self.too_long) {
            Ok(())
        } else if let Some(column) = self.column {
            self.value(column)
                .map(|value| out.push(value))
                .or_else(|error| tolerance.bad(|| error.at(self.position())))
        } else {
            self.find_column().map(|column| self.column = Some(column))
        };
        (self.row_len, self.ends_len) = (0, 0);
        done
    }

    fn value(&self, column: usize) -> Result<u64, LineError<'_>> {
        if column >= self.ends_len {
            return Err(LineError::Columns(self.ends_len as u32, column as u32 + 1));
        }
        let field = self.field(column).trim_ascii();
        number::parse(field).ok_or(LineError::Bytes(field, number::EXPECTED))
    }

    fn field(&self, column: usize) -> &[u8] {
        let start = if column == 0 { 0 } else { self.ends[column - 1] };
        &self.row[start..self.ends[column]]
    }

    /// The index of the wanted column, by the header in the row's buffer.
    fn find_column(&self) -> Result<usize, Fault> {
        let columns = (0..self.ends_len).map(|column| self.field(column).trim_ascii());
        let found = match &self.wanted {
            None if self.ends_len == 1 => Some(0),
            None => return Err(Fault::ColumnNotSpecified { columns: listed(columns) }),
            Some(Column::Name(name)) => {
                columns.clone().position(|column| column == name.trim().as_bytes())
            }
            Some(Column::Number(number)) => {
                let index = usize::try_from(number.get()).ok().map(|it| it - 1);
                index.filter(|it| *it < self.ends_len)
            }
        };
        found.ok_or_else(|| {
            let column = self.wanted.clone().expect("without one any single column is found");
            Fault::NoColumn { column, columns: listed(columns) }
        })
    }

    /// The row exceeds a limit: drops the fields read so far; the rest will be dropped too.
    fn overflow(&mut self, tolerance: &mut Tolerance) -> Result<(), Fault> {
        let first_time = !std::mem::replace(&mut self.too_long, true);
        let done = if self.column.is_none() {
            Err(Fault::HeaderTooLong { bytes_max: LINE_BYTES_MAX, columns_max: CSV_COLUMNS_MAX })
        } else if first_time {
            tolerance.bad(|| Fault::BadRecord {
                position: self.position(),
                found: format!(
                    "a row longer than {LINE_BYTES_MAX} bytes or {CSV_COLUMNS_MAX} columns, {}",
                    shown(&self.row[..self.row_len])
                ),
                expected: "a row; is a quote not closed?".to_owned(),
            })
        } else {
            Ok(())
        };
        (self.row_len, self.ends_len) = (0, 0);
        done
    }

    /// The line at which the row in the buffer begins. `csv-core` counts the line ends it has
    /// passed, and counts the row's own too, unless that is a lone carriage return or the end of
    /// the file.
    fn position(&self) -> Position {
        let inside = memchr::memchr_iter(b'\n', &self.row[..self.row_len]).count() as u64;
        let passed = self.core.line() + self.lines_aside;
        Position::Line(passed - inside - u64::from(self.last == b'\n' && !self.too_long))
    }
}
