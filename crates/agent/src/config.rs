//! What an operator may set.
//!
//! Idea: a file that need not be there, and options of the command line above it. Nothing of an
//! application is touched that is not named in either.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ballast_model::Bytes;
use ballast_request::linux::Thresholds;
use ballast_toml_strict::{Error, duration};
use serde::Deserialize;

/// The file's contents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The host's address; the virtio-serial port without it.
    pub connect: Option<String>,
    /// Requests.
    pub requests: Requests,
    /// Histograms of ages.
    pub ages: Ages,
    /// What makes programs shrink.
    pub shrinkers: Shrinkers,
}

/// When memory is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Requests {
    /// Whether it is at all.
    pub enabled: bool,
    /// Whether failing reclaim is an emergency.
    pub emergencies: bool,
    /// Asks when so much more is free than the kernel's watermarks.
    pub margin: Bytes,
    /// Failures of reclaim that are an emergency, in per cent of what was tried, 1 to 100.
    pub emergency_percent: u8,
    /// Memory is offered while programs use less than this part of what the kernel lets them, in per cent, 1 to 100.
    pub spare_percent: u8,
}

impl Default for Requests {
    fn default() -> Requests {
        let Thresholds { emergency, spare } = Thresholds::default();
        Requests {
            enabled: true,
            emergencies: true,
            margin: Bytes::ZERO,
            emergency_percent: emergency,
            spare_percent: spare,
        }
    }
}

/// How often ages are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ages {
    /// Time between two histograms.
    #[serde(with = "duration")]
    pub every: Duration,
}

impl Default for Ages {
    fn default() -> Ages {
        Ages { every: Duration::from_secs(10) }
    }
}

/// What makes programs shrink.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Shrinkers {
    /// Whether page cache is reclaimed, where the kernel can without touching programs' memory.
    pub page_cache: bool,
    /// Whether they also work by themselves when the host does not grant what was asked for.
    pub when_refused: bool,
    /// Folder of executables, each a shrinker.
    pub hooks: Option<PathBuf>,
    /// A redis used as a cache.
    pub redis: Option<Redis>,
    /// A memcached.
    pub memcached: Option<Memcached>,
}

impl Default for Shrinkers {
    fn default() -> Shrinkers {
        Shrinkers {
            page_cache: true,
            when_refused: true,
            hooks: None,
            redis: None,
            memcached: None,
        }
    }
}

/// A redis.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redis {
    /// `127.0.0.1:6379`, or the path of its socket.
    pub address: String,
    /// A file whose first line is its password.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// What it keeps in any case; half of what it has without it.
    #[serde(default)]
    pub keep: Option<Bytes>,
}

/// A memcached.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memcached {
    /// `127.0.0.1:11211`, or the path of its socket.
    pub address: String,
    /// What it keeps in any case; half of what it has without it.
    #[serde(default)]
    pub keep: Option<Bytes>,
}

/// Reads `text`, the contents of `file`.
///
/// # Errors
/// The first mistake, with its place.
pub fn parse(text: &str, file: &Path) -> Result<Config, Error> {
    let config: Config = ballast_toml_strict::parse(text, file)?;
    if config.ages.every < Duration::from_secs(1) {
        return Err(Error::at(text, file, &["ages", "every"], "expected at least 1s"));
    }
    let percents = [
        ("emergency_percent", config.requests.emergency_percent),
        ("spare_percent", config.requests.spare_percent),
    ];
    for (key, percent) in percents {
        if !(1..=100).contains(&percent) {
            return Err(Error::at(text, file, &["requests", key], "expected 1 to 100"));
        }
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = include_str!("../packaging/agent.example.toml");

    #[test]
    fn nothing_said_is_the_default() {
        assert_eq!(parse("", Path::new("a.toml")).unwrap(), Config::default());
    }

    /// Every key is in the example, commented; with its defaults but for what names a program.
    #[test]
    fn the_example_is_what_it_says() {
        assert_eq!(parse(EXAMPLE, Path::new("a.toml")).unwrap(), Config::default());
        let keys = EXAMPLE.lines().map(|line| {
            let key = line.strip_prefix('#').unwrap_or(line);
            if key.starts_with(' ') { "" } else { key }
        });
        let all: String = keys.map(|line| format!("{line}\n")).collect();
        let config = parse(&all, Path::new("a.toml")).unwrap();
        assert!(config.shrinkers.redis.is_some_and(|it| it.keep.is_some()));
        assert!(config.shrinkers.memcached.is_some() && config.shrinkers.hooks.is_some());
        assert!(config.connect.is_some());
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        for (text, expected) in [
            ("[requests]\nmargn = 1\n", "did you mean `margin`"),
            ("[requests]\nspare_percent = 0\n", "a.toml:2:17: requests.spare_percent: expected 1"),
            ("[ages]\nevery = \"1ms\"\n", "a.toml:2:9: ages.every: expected at least 1s"),
            ("[shrinkers.redis]\n", "address"),
        ] {
            let error = parse(text, Path::new("a.toml")).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
