//! The record of the pages a guest really touches, to compare with estimates from outside.
//!
//! Idea: under emulation QEMU calls a plugin for every load and store; the plugin (lab/lab-truth)
//! writes the number of distinct pages of each interval and, if requested, the sequence of pages to
//! a trace file.
//! Limits: emulated guests only, which run about half as fast with it; instruction fetches and
//! accesses by devices are not recorded.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ballast_model::Bytes;
use ballast_toml_strict::duration;
use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::artifact::Artifact;

/// The plugin.
const PLUGIN: Artifact =
    Artifact { variable: "BALLAST_LAB_TRUTH", built: "release/libballast_lab_truth.so" };

/// How a guest's accesses are recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Truth {
    /// Length of an interval, 10 ms to 1 h, in whole milliseconds; 1 s by default.
    #[serde(with = "duration")]
    pub interval: Duration,
    /// The trace file for the sequence of pages (as `u64`, compressed with zstd), if any; tens of
    /// MB per second.
    pub trace: Option<PathBuf>,
}

impl Default for Truth {
    fn default() -> Self {
        Truth { interval: Duration::from_secs(1), trace: None }
    }
}

/// The pages a guest touched in one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TruthRow {
    /// The interval's end on the host's monotonic clock, in nanoseconds.
    pub end_ns: u64,
    /// Distinct pages loaded from or stored to.
    #[serde(rename = "wss_bytes")]
    pub wss: Bytes,
    /// Loads and stores.
    pub accesses: u64,
    /// References in the trace up to the interval's end; 0 without a trace.
    pub references: u64,
}

/// Shortest and longest interval.
const INTERVAL: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(3600);

impl Truth {
    /// Checks its values.
    pub(crate) fn validate(&self) -> Result<(), String> {
        match INTERVAL.contains(&self.interval) {
            true => Ok(()),
            false => Err(format!("truth: interval {:?}: expected 10ms to 1h", self.interval)),
        }
    }

    /// The value of QEMU's `-plugin` option for a plugin that writes its rows to the file `rows`.
    ///
    /// # Errors
    /// When the plugin is not built, or a path or the interval is invalid.
    pub(crate) fn argument(&self, rows: &Path) -> Result<OsString, LabError> {
        let plugin = PLUGIN.find().map_err(LabError::TruthMissing)?;
        let mut argument = OsString::from(&plugin);
        argument.push(",rows=");
        argument.push(rows);
        argument.push(format!(",interval_ms={}", self.interval.as_millis()));
        if let Some(trace) = &self.trace {
            argument.push(",trace=");
            argument.push(trace);
        }
        // QEMU splits this option at every comma, even if doubled.
        for path in
            [Some(plugin.as_path()), Some(rows), self.trace.as_deref()].into_iter().flatten()
        {
            if path.as_os_str().as_encoded_bytes().contains(&b',') {
                return Err(LabError::Invalid(format!(
                    "truth: {}: the path contains a comma, which QEMU does not support here",
                    path.display()
                )));
            }
        }
        Ok(argument)
    }
}

/// Reads the rows written so far, without an incomplete last line.
///
/// # Errors
/// When the file cannot be read, or is not a file of the plugin.
pub(crate) fn rows(path: &Path) -> Result<Vec<TruthRow>, LabError> {
    let text = fs::read_to_string(path).map_err(LabError::io("read", path))?;
    parse(&text).map_err(|line| {
        LabError::Invalid(format!("{}:{line}: expected four numbers", path.display()))
    })
}

/// The rows of `text`, or the number of the invalid line.
fn parse(text: &str) -> Result<Vec<TruthRow>, usize> {
    let complete = text.rfind('\n').map_or("", |end| &text[..=end]);
    let lines = complete.lines().enumerate().skip(1);
    lines.map(|(place, line)| row(line).ok_or(place + 1)).collect()
}

fn row(line: &str) -> Option<TruthRow> {
    let mut numbers = line.split(',').map(|word| word.parse::<u64>().ok());
    let mut next = || numbers.next().flatten();
    let row = TruthRow {
        end_ns: next()?,
        wss: Bytes::new(next()?),
        accesses: next()?,
        references: next()?,
    };
    numbers.next().is_none().then_some(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_last_row_is_ignored() {
        let text = "end_ns,wss_bytes,accesses,references\n10,8192,5,2\n20,4096,1,3\n30,40";
        let rows = parse(text).unwrap();
        let row = |end_ns, kib, accesses, references| TruthRow {
            end_ns,
            wss: Bytes::kib(kib),
            accesses,
            references,
        };
        assert_eq!(rows, [row(10, 8, 5, 2), row(20, 4, 1, 3)]);
        assert_eq!(parse(""), Ok(vec![]));
    }

    #[test]
    fn invalid_interval_is_refused() {
        for (ms, possible) in [(9, false), (10, true), (3_600_000, true), (3_600_001, false)] {
            let truth = Truth { interval: Duration::from_millis(ms), trace: None };
            assert_eq!(truth.validate().is_ok(), possible, "{ms}");
        }
    }

    #[test]
    fn invalid_line_is_named() {
        for wrong in ["1,2,3", "1,2,3,4,5", "1,2,3,x", ""] {
            assert_eq!(parse(&format!("head\n1,2,3,4\n{wrong}\n")), Err(3), "{wrong}");
        }
    }
}
