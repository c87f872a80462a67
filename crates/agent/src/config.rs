//! The agent's configuration file.
//!
//! The file is optional, and command-line options override it. The agent shrinks only applications
//! that are named in the file or in the options.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ballast_agent_proto::request::linux::RequestThresholds;
use ballast_model::Bytes;
use ballast_toml_strict::{Error, duration};
use serde::Deserialize;

/// The agent's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentConfig {
    /// The host's address. Default: the virtio-serial port.
    pub connect: Option<String>,
    /// Requests for memory.
    pub requests: RequestConfig,
    /// Histograms of idle ages.
    pub ages: AgesConfig,
    /// Shrinkers.
    pub shrinkers: ShrinkersConfig,
}

/// When the agent asks for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RequestConfig {
    /// Whether it asks at all.
    pub enabled: bool,
    /// Whether failing reclaim is an emergency.
    pub emergencies: bool,
    /// Added to the kernel's watermarks, to ask earlier.
    pub margin: Bytes,
    /// Share of scanned pages that were not reclaimed, above which there is an emergency: 1 to 100.
    pub emergency_percent: u8,
    /// The share of its allowed size below which the active list must be for memory to be offered:
    /// 1 to 100.
    pub spare_percent: u8,
}

impl Default for RequestConfig {
    fn default() -> RequestConfig {
        let RequestThresholds { emergency, spare } = RequestThresholds::default();
        RequestConfig {
            enabled: true,
            emergencies: true,
            margin: Bytes::ZERO,
            emergency_percent: emergency,
            spare_percent: spare,
        }
    }
}

/// How often idle ages are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgesConfig {
    /// Interval between histograms.
    #[serde(with = "duration")]
    pub every: Duration,
}

impl Default for AgesConfig {
    fn default() -> AgesConfig {
        AgesConfig { every: Duration::from_secs(10) }
    }
}

/// The shrinkers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShrinkersConfig {
    /// Whether page cache is reclaimed, if the kernel can do so without touching anonymous memory.
    pub page_cache: bool,
    /// Whether shrinkers also work when the host does not grant a request.
    pub when_refused: bool,
    /// Folder of executables; each is a shrinker.
    pub hooks: Option<PathBuf>,
    /// A redis used as a cache.
    pub redis: Option<RedisConfig>,
    /// A memcached server.
    pub memcached: Option<MemcachedConfig>,
}

impl Default for ShrinkersConfig {
    fn default() -> ShrinkersConfig {
        ShrinkersConfig {
            page_cache: true,
            when_refused: true,
            hooks: None,
            redis: None,
            memcached: None,
        }
    }
}

/// A redis server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedisConfig {
    /// `127.0.0.1:6379`, or the path of its socket.
    pub address: String,
    /// A file whose first line is the password.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// Memory the server always keeps. Default: half of the most it used at any order since the
    /// guest booted.
    #[serde(default)]
    pub keep: Option<Bytes>,
}

/// A memcached server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemcachedConfig {
    /// `127.0.0.1:11211`, or the path of its socket.
    pub address: String,
    /// Memory the server always keeps. Default: half of the most it held at any order since the
    /// guest booted.
    #[serde(default)]
    pub keep: Option<Bytes>,
}

/// Parses `text`, the contents of `file`.
///
/// # Errors
/// The first error, with its line and column.
pub fn parse(text: &str, file: &Path) -> Result<AgentConfig, Error> {
    let config: AgentConfig = ballast_toml_strict::parse(text, file)?;
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
    fn an_empty_file_gives_the_defaults() {
        assert_eq!(parse("", Path::new("a.toml")).unwrap(), AgentConfig::default());
    }

    /// Every key is in the example; keys that name a program or place are commented out.
    #[test]
    fn the_example_file_shows_the_defaults() {
        assert_eq!(parse(EXAMPLE, Path::new("a.toml")).unwrap(), AgentConfig::default());
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
    fn errors_state_line_and_column() {
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
