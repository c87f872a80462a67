//! The path of a test's log, and the printing of its end.

use std::path::{Path, PathBuf};

/// Number of last log lines printed for a failed test; the file has all of them.
const LOG_LINES: usize = 60;

/// The file for the output of a test.
pub(super) fn log_file(logs: &Path, name: &str, suffix: &str) -> PathBuf {
    logs.join(name.replace("::", "-") + suffix)
}

/// Prints the last lines of a log.
pub(super) fn print_end(log: &str, path: &Path) {
    let lines: Vec<&str> = log.lines().collect();
    let from = lines.len().saturating_sub(LOG_LINES);
    println!("  last {} lines of {}:", lines.len() - from, path.display());
    lines[from..].iter().for_each(|line| println!("  | {line}"));
}
