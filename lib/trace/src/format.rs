//! The formats, and how the name of a file shows its format.
//!
//! Idea: one table of names and extensions. The extension of a compression is removed first, so
//! `web.u64.zst` is `u64`. libCacheSim names its files `w01.oracleGeneral.bin.zst`, so `.bin` is
//! removed too, but means nothing alone. Limits: the bytes are not looked at; the format of a
//! lackey log called `run.log` has to be given.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// The format of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// One number per line, decimal or `0x` and hexadecimal, or a number in one of several columns
    /// separated by white space. Blank lines are skipped. A `#` at the beginning of a field begins
    /// a comment, which lasts to the end of the line.
    Text,
    /// Comma-separated values with a header and quoted fields; the column is chosen by its name.
    Csv,
    /// 64-bit numbers, little-endian, with nothing between them.
    U64,
    /// libCacheSim's 24-byte records: `u32` time, `u64` object, `u32` size, `i64` next access,
    /// packed and little-endian. The object is the reference; its size is ignored.
    OracleGeneral,
    /// The output of `valgrind --tool=lackey --trace-mem=yes`: byte addresses and sizes in lines
    /// like `I  04001000,3` and ` S 1ffe,8`. Lines that valgrind itself prints are skipped. A
    /// modification (` M`) is one reference: its store touches what its load has just touched, and
    /// would be a hit in any memory.
    Lackey,
}

impl Format {
    /// Every format, in the order in which messages list them.
    pub const ALL: [Format; 5] =
        [Format::Text, Format::Csv, Format::U64, Format::OracleGeneral, Format::Lackey];

    /// Its name, which [`FromStr`] accepts.
    pub fn as_str(self) -> &'static str {
        match self {
            Format::Text => "text",
            Format::Csv => "csv",
            Format::U64 => "u64",
            Format::OracleGeneral => "oracle-general",
            Format::Lackey => "lackey",
        }
    }

    /// The file extensions of the format, compared without regard to case.
    pub fn extensions(self) -> &'static [&'static str] {
        match self {
            Format::Text => &["txt", "text"],
            Format::Csv => &["csv"],
            Format::U64 => &["u64", "pg"],
            Format::OracleGeneral => &["oracleGeneral"],
            Format::Lackey => &["lackey"],
        }
    }

    /// The format that the name of a file shows, after the extension of a compression is removed;
    /// `None` if it shows none.
    pub fn from_path(path: &Path) -> Option<Format> {
        let mut name = Path::new(path.file_name()?);
        for around in [&["gz", "zst"][..], &["bin"]] {
            if has_extension(name, around) {
                name = Path::new(name.file_stem()?);
            }
        }
        Format::ALL.into_iter().find(|format| has_extension(name, format.extensions()))
    }

    /// Whether a trace in this format has columns to choose from.
    pub(crate) fn has_columns(self) -> bool {
        matches!(self, Format::Text | Format::Csv)
    }
}

pub(crate) fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    let extension = path.extension().and_then(|it| it.to_str());
    extension.is_some_and(|it| extensions.iter().any(|known| known.eq_ignore_ascii_case(it)))
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The error for a name that is no format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no format is called `{}`: it is one of {}", .0.escape_debug(), list())]
pub struct UnknownFormat(pub String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Format, UnknownFormat> {
        Format::ALL
            .into_iter()
            .find(|format| format.as_str() == name)
            .ok_or_else(|| UnknownFormat(name.to_owned()))
    }
}

/// The formats and their extensions, for messages.
pub(crate) fn list() -> String {
    let one = |format: Format| {
        let dotted: Vec<_> = format.extensions().iter().map(|it| format!(".{it}")).collect();
        format!("{format} ({})", dotted.join(", "))
    };
    Format::ALL.map(one).join(", ")
}
