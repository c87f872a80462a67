//! The plugin's options on QEMU's command line.
//!
//! Keys: `rows`, the file of the intervals; `trace`, the file of the page sequence (optional);
//! `interval_ms`, the length of an interval (default 1,000). Limits: QEMU splits at commas, so a
//! path must not contain one.

use std::path::PathBuf;

/// Shortest and longest interval, in milliseconds.
const INTERVAL_MS: std::ops::RangeInclusive<u64> = 10..=3_600_000;

/// The parsed options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) rows: PathBuf,
    pub(crate) trace: Option<PathBuf>,
    pub(crate) interval_ms: u64,
}

/// Why options are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OptionError {
    #[error("`{0}` has no value: expected key=value")]
    NoValue(String),
    #[error("`{0}` is not an option: expected rows, trace or interval_ms")]
    Unknown(String),
    #[error("interval_ms = `{0}`: expected 10 to 3600000")]
    Interval(String),
    #[error("rows is missing: expected rows=PATH")]
    NoRows,
}

impl Options {
    /// Parses `key=value` words.
    pub(crate) fn parse<'a>(
        words: impl IntoIterator<Item = &'a str>,
    ) -> Result<Options, OptionError> {
        let (mut rows, mut trace, mut interval_ms) = (None, None, 1000);
        for word in words {
            let Some((key, value)) = word.split_once('=') else {
                return Err(OptionError::NoValue(word.to_owned()));
            };
            match key {
                "rows" => rows = Some(PathBuf::from(value)),
                "trace" => trace = Some(PathBuf::from(value)),
                "interval_ms" => {
                    let number = value.parse().ok().filter(|it| INTERVAL_MS.contains(it));
                    interval_ms = number.ok_or_else(|| OptionError::Interval(value.to_owned()))?;
                }
                _ => return Err(OptionError::Unknown(key.to_owned())),
            }
        }
        Ok(Options { rows: rows.ok_or(OptionError::NoRows)?, trace, interval_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed() {
        let options = Options::parse(["rows=/tmp/a.csv", "trace=a.pg.zst", "interval_ms=250"]);
        let expected =
            Options { rows: "/tmp/a.csv".into(), trace: Some("a.pg.zst".into()), interval_ms: 250 };
        assert_eq!(options, Ok(expected));
        let default = Options::parse(["rows=a"]).unwrap();
        assert_eq!((default.interval_ms, default.trace), (1000, None));
    }

    #[test]
    fn invalid_options_are_named() {
        for (words, expected) in [
            (&[][..], "rows is missing"),
            (&["rows"], "`rows` has no value"),
            (&["interval_ms=1"], "10 to 3600000"),
            (&["interval_ms=x"], "interval_ms = `x`"),
            (&["nosuch=1"], "`nosuch` is not an option"),
        ] {
            let error = Options::parse(words.iter().copied()).unwrap_err().to_string();
            assert!(error.contains(expected), "{words:?}: {error}");
        }
    }
}
