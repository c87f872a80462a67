//! Numbers in lines, or in one column of them.
//!
//! Limits: white space separates columns and means nothing else. Without a column chosen a line has
//! one number: of several any could be meant.

use super::lines::{Dialect, Wrong};
use super::{BLOCK_REFERENCES, number};
use crate::{Column, Fault};

/// Most decimal digits that always fit 64 bits.
const DIGITS_SURE: usize = 19;

pub(super) struct Text {
    /// From 1.
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
    fn line<'a>(&self, line: &'a [u8], out: &mut Vec<u64>) -> Result<(), Wrong<'a>> {
        let mut fields = line
            .split(u8::is_ascii_whitespace)
            .filter(|field| !field.is_empty())
            .take_while(|field| field[0] != b'#');
        let Some(first) = fields.next() else { return Ok(()) };
        let field = match self.column {
            None if fields.next().is_some() => {
                return Err(Wrong::ColumnNotSaid(line.trim_ascii()));
            }
            None | Some(1) => first,
            Some(wanted) => {
                let mut found = 1;
                loop {
                    let Some(field) = fields.next() else {
                        return Err(Wrong::Columns(found, wanted));
                    };
                    found += 1;
                    if found == wanted {
                        break field;
                    }
                }
            }
        };
        out.push(number::parse(field).ok_or(Wrong::Bytes(field, number::EXPECTED))?);
        Ok(())
    }

    /// Lines of nothing but up to [`DIGITS_SURE`] decimal digits.
    fn run(&self, bytes: &[u8], out: &mut Vec<u64>) -> usize {
        if self.column.is_some_and(|it| it > 1) {
            return 0;
        }
        let mut taken = 0;
        while out.len() < BLOCK_REFERENCES {
            let line = &bytes[taken..];
            let mut value = 0_u64;
            let mut digits = 0;
            while let Some(digit) = line.get(digits).map(|it| it.wrapping_sub(b'0'))
                && digit < 10
            {
                value = value.wrapping_mul(10).wrapping_add(digit.into());
                digits += 1;
            }
            if line.get(digits) != Some(&b'\n') || !(1..=DIGITS_SURE).contains(&digits) {
                break;
            }
            out.push(value);
            taken += digits + 1;
        }
        taken
    }
}
