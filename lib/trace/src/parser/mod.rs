//! Parses bytes into references, without I/O.
//!
//! Idea: a [`Parser`] accepts bytes in any pieces and appends references; the result never depends
//! on the pieces. The output is limited too: a full block stops a push, and the caller pushes the
//! rest again. Cost: a fixed buffer, [`LINE_BYTES_MAX`] for what one piece left unfinished, and no
//! allocation per reference.

mod binary;
mod bounds;
mod csv;
mod lackey;
mod lines;
mod number;
mod text;
mod tolerance;

use crate::{Fault, Format, Options};
use number::Division;
use tolerance::Tolerance;

pub use bounds::{BLOCK_REFERENCES, LINE_BYTES_MAX};
pub use csv::CSV_COLUMNS_MAX;
pub use lackey::ACCESS_BYTES_MAX;

/// The state of parsing one trace.
pub struct Parser {
    kind: ParserKind,
    /// Divides values in formats with one value per record; lackey's parser divides on its own.
    division: Division,
    tolerance: Tolerance,
}

enum ParserKind {
    Text(lines::Lines<text::Text>),
    Csv(Box<csv::Rows>),
    Binary(binary::Records),
    Lackey(lines::Lines<lackey::Lackey>),
}

impl Parser {
    /// A parser at the beginning of a trace; it uses all of `options` except the format.
    ///
    /// # Errors
    /// If the options do not fit the format.
    pub fn new(format: Format, options: &Options) -> Result<Parser, Fault> {
        if options.column.is_some() && !format.has_columns() {
            return Err(Fault::NoColumns { format });
        }
        let mut division = Division::by(options.page_size);
        let kind = match format {
            Format::Text => {
                ParserKind::Text(lines::Lines::new(text::Text::new(options.column.as_ref())?))
            }
            Format::Csv => ParserKind::Csv(Box::new(csv::Rows::new(options.column.clone()))),
            Format::U64 => ParserKind::Binary(binary::Records::u64()),
            Format::OracleGeneral => ParserKind::Binary(binary::Records::oracle_general()),
            Format::Lackey => {
                let pages = std::mem::take(&mut division);
                ParserKind::Lackey(lines::Lines::new(lackey::Lackey::new(pages)))
            }
        };
        let tolerance = Tolerance { skip_bad: options.skip_bad, skipped: 0 };
        Ok(Parser { kind, division, tolerance })
    }

    /// Parses bytes and appends their references to `out`. Returns how many bytes it took: all,
    /// unless `out` has [`BLOCK_REFERENCES`] or more; then the caller empties `out` and pushes the
    /// rest.
    ///
    /// # Errors
    /// At the first fault, or with `skip_bad` at the first that cannot be skipped. `out` then has
    /// the references before it. After an error the parser must not be used again.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u64>) -> Result<usize, Fault> {
        let start = out.len();
        let tolerance = &mut self.tolerance;
        let taken = match &mut self.kind {
            ParserKind::Text(lines) => lines.push(bytes, out, tolerance),
            ParserKind::Csv(rows) => rows.push(bytes, out, tolerance),
            ParserKind::Binary(records) => Ok(records.push(bytes, out)),
            ParserKind::Lackey(lines) => lines.push(bytes, out, tolerance),
        };
        self.division.apply(&mut out[start..]);
        taken
    }

    /// Ends the trace: appends the references of the last bytes.
    ///
    /// # Errors
    /// As [`Parser::push`].
    pub fn finish(&mut self, out: &mut Vec<u64>) -> Result<(), Fault> {
        let start = out.len();
        let tolerance = &mut self.tolerance;
        let done = match &mut self.kind {
            ParserKind::Text(lines) => lines.finish(out, tolerance),
            ParserKind::Csv(rows) => rows.finish(out, tolerance),
            ParserKind::Binary(records) => records.finish(tolerance),
            ParserKind::Lackey(lines) => lines.finish(out, tolerance),
        };
        self.division.apply(&mut out[start..]);
        done
    }

    /// Number of bad records skipped so far.
    pub fn skipped(&self) -> u64 {
        self.tolerance.skipped
    }
}
