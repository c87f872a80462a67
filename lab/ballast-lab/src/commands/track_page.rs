//! `ballast-lab track-page`: the output of `ballast track --json` as one page.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::Context;
use ballast_daemon::track::{IntervalJson, Row};
use ballast_report::command_line::command_line;
use ballast_report::print;

use crate::track_page::render;

/// The name for standard input.
const STDIN: &str = "-";
/// The greatest number of intervals on a page: a day with one a second.
const ROWS_MAX: usize = 86_400;

/// Draw an HTML page from the output of `ballast track --json`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast track web-1 --json --for 60s > web-1.jsonl
  ballast-lab track-page web-1.jsonl --name web-1 > web-1.html")]
pub struct Args {
    /// The intervals, one JSON object per line; - is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Name of the guest, for the title
    #[arg(long, value_name = "NAME", default_value = "guest")]
    name: String,
    /// Command to show on the page [default: this one]
    #[arg(long, value_name = "COMMAND")]
    command: Option<String>,
}

/// Reads the intervals and prints the page.
///
/// # Errors
/// The intervals cannot be read (the error names the line), or standard output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let rows = if args.file == Path::new(STDIN) {
        rows(io::stdin().lock()).context("standard input")?
    } else {
        let place = || args.file.display().to_string();
        rows(BufReader::new(File::open(&args.file).with_context(place)?)).with_context(place)?
    };
    let command = args.command.clone().unwrap_or_else(command_line);
    print(&render(&args.name, &rows, &command)?)
}

/// The intervals, one a line.
fn rows(input: impl BufRead) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (index, line) in input.lines().enumerate() {
        let place = || format!("line {}", index + 1);
        let line = line.with_context(place)?;
        let interval: IntervalJson = serde_json::from_str(&line).with_context(|| {
            format!("line {}: expected what `ballast track --json` prints", index + 1)
        })?;
        rows.push(interval.row().map_err(anyhow::Error::msg).with_context(place)?);
        anyhow::ensure!(rows.len() <= ROWS_MAX, "{}: more than {ROWS_MAX} intervals", place());
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_line_is_named() {
        let good = r#"{"at_s":1.0,"length_s":1.0,"tracked_bytes":4096,"is_on":false,"up_ratio":0.5,
            "events":null,"known_bytes":4096,"next":null,"cost_share":0.0}"#
            .replace('\n', "");
        assert_eq!(rows(good.as_bytes()).unwrap().len(), 1);
        let error = rows(format!("{good}\n{{}}\n").as_bytes()).unwrap_err();
        assert!(error.to_string().contains("line 2"), "{error}");
    }
}
