//! Options of a trace reader, without the path.

use std::convert::Infallible;
use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::str::FromStr;

use crate::Format;

/// How to read a trace. By default the file's name gives the format, values are the references
/// themselves, and reading stops at the first bad record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The format; `None`: the file's name shows it. A stream has no name, so for standard input
    /// the format must be given.
    pub format: Option<Format>,
    /// The column of the reference in a line of text or a row of CSV. `None`: the line or row has
    /// only one.
    pub column: Option<Column>,
    /// The page size in bytes. Values are then addresses in bytes, and are divided by it; a lackey
    /// access that spans several pages is a reference to each of them. `None`: values are the
    /// references themselves, such as page or block numbers, whatever the format.
    pub page_size: Option<NonZeroU64>,
    /// Whether to count and skip bad records, and a record cut short at the end, instead of
    /// failing.
    pub skip_bad: bool,
}

/// A column: its number from 1, or its name in the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Column {
    /// Its place in the line, from 1; for text and CSV.
    Number(NonZeroU32),
    /// Its name in the header, without white space around it; for CSV.
    Name(String),
}

impl FromStr for Column {
    type Err = Infallible;

    /// Digits alone (but not 0) are a number, everything else is a name.
    fn from_str(text: &str) -> Result<Column, Infallible> {
        Ok(match text.parse() {
            Ok(number) => Column::Number(number),
            Err(_) => Column::Name(text.to_owned()),
        })
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Column::Number(number) => number.fmt(f),
            Column::Name(name) => write!(f, "`{}`", name.escape_debug()),
        }
    }
}
