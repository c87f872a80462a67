//! Common output of all commands: tables, CSV, JSON, units, and atomic file replacement.
//!
//! Begin reading at `report.rs`. Limits: no plots and no pages; those are in `lab/chart`.

#![forbid(unsafe_code)]

pub mod command_line;
mod csv;
mod ending;
pub mod figures;
pub mod files;
pub mod format;
pub mod json;
mod live;
mod moments;
mod output;
mod report;
mod text;

pub use csv::csv_field;
pub use ending::exit_code;
pub use live::Live;
pub use moments::Moments;
pub use output::{CANNOT_PRINT, Output, print};
pub use report::Report;
pub use text::{harmless, harmless_line};

/// Prints a note to standard error, which keeps standard output clean.
pub fn note(text: &str) {
    use std::io::Write;
    // If standard error is closed, the note is lost.
    let _ = writeln!(std::io::stderr(), "note: {text}");
}
