//! Durations in files: `"500ms"`, `"2s"`, `"5min"`, `"1h 30min"`.
//!
//! Idea: `#[serde(with = "ballast_toml_strict::duration")]` is for a [`Duration`] field, and
//! [`option`] for an `Option<Duration>`. A bare number is refused: seconds and milliseconds are
//! confused too easily. Limits: from nanoseconds to about 584 thousand million years, never
//! negative.

use std::fmt;
use std::time::Duration;

use serde::{Deserializer, Serializer};

/// Writes the shortest text that reads back as the same duration.
///
/// # Errors
///
/// Only those of `serializer`.
pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_duration(*duration))
}

/// Reads a text with units.
///
/// # Errors
///
/// Numbers without a unit, unknown units, and values that are not text.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    struct Visitor;
    impl serde::de::Visitor<'_> for Visitor {
        type Value = Duration;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a duration with its unit, such as \"500ms\", \"2s\" or \"5min\"")
        }
        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Duration, E> {
            humantime::parse_duration(text).map_err(|error| {
                E::custom(format_args!(
                    "`{text}` is not a duration ({error}): expected a number with its unit, such as \
                     \"500ms\", \"2s\" or \"5min\""
                ))
            })
        }
        fn visit_u64<E: serde::de::Error>(self, n: u64) -> Result<Duration, E> {
            Err(E::custom(format_args!("{n} has no unit: write \"{n}s\" for seconds")))
        }
        fn visit_i64<E: serde::de::Error>(self, n: i64) -> Result<Duration, E> {
            match u64::try_from(n) {
                Ok(n) => self.visit_u64(n),
                Err(_) => {
                    Err(E::custom(format_args!("{n} is negative: a duration is at least 0s")))
                }
            }
        }
        fn visit_f64<E: serde::de::Error>(self, n: f64) -> Result<Duration, E> {
            Err(E::custom(format_args!(
                "{n} has no unit: write \"1500ms\" for one and a half seconds"
            )))
        }
    }
    deserializer.deserialize_any(Visitor)
}

/// The same for `Option<Duration>`; the field needs `#[serde(default)]` too.
pub mod option {
    use super::{Deserializer, Duration, Serializer};

    /// Writes the duration, or a missing value.
    ///
    /// # Errors
    ///
    /// Only those of `serializer`.
    pub fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => super::serialize(duration, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// Reads a duration that is present; an absent one is the field's default.
    ///
    /// # Errors
    ///
    /// As for a `Duration`.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        super::deserialize(deserializer).map(Some)
    }
}
