//! Options of a trace reader, apart from the path.

use std::convert::Infallible;
use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::str::FromStr;

use crate::Format;

/// How to read a trace. The default takes the format from the file's name, values as they are, and
/// stops at the first bad record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The format; `None`: the file's name gives it. Standard input has none, so there it must be
    /// given.
    pub format: Option<Format>,
    /// Where in a line of text, or in a row of CSV, the reference is. `None`: the only column there
    /// is.
    pub column: Option<Column>,
    /// Values are addresses, in bytes, and are divided by this, in bytes, down to a page; a lackey
    /// access that spans several pages then is a reference to each. `None`: values stand as they
    /// are, page or block numbers, whatever the format.
    pub page_size: Option<NonZeroU64>,
    /// Bad records are counted and left out, a last one cut short included, rather than being an
    /// error.
    pub skip_bad: bool,
}

/// A column: its number from 1, or its name in the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Column {
    /// Its place in the line, from 1; for text and CSV.
    Number(NonZeroU32),
    /// Its name in the header, white space around it aside; for CSV.
    Name(String),
}

impl FromStr for Column {
    type Err = Infallible;

    /// Digits alone (but 0) are a number, all else is a name.
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
