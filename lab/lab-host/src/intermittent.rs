//! When the daemon of a scenario pauses tracking.
//!
//! Idea: the same setting as in the daemon's configuration, so that a scenario can be run with and
//! without it.
//! Limits: the daemon defines the meaning of the values.

use std::fmt;

use serde::de::Unexpected;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// `"adaptive"`, `"off"`, or a number from 0.05 to 0.3.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Intermittent {
    /// At an adaptive threshold.
    #[default]
    Adaptive,
    /// Never.
    Off,
    /// At this threshold.
    Fixed(f64),
}

impl Serialize for Intermittent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Intermittent::Adaptive => serializer.serialize_str("adaptive"),
            Intermittent::Off => serializer.serialize_str("off"),
            Intermittent::Fixed(threshold) => serializer.serialize_f64(*threshold),
        }
    }
}

impl<'de> Deserialize<'de> for Intermittent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Intermittent, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Intermittent;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"adaptive\", \"off\" or a number from 0.05 to 0.3")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Intermittent, E> {
                match text {
                    "adaptive" => Ok(Intermittent::Adaptive),
                    "off" => Ok(Intermittent::Off),
                    _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
                }
            }
            fn visit_f64<E: serde::de::Error>(self, threshold: f64) -> Result<Intermittent, E> {
                if (0.05..=0.3).contains(&threshold) {
                    return Ok(Intermittent::Fixed(threshold));
                }
                Err(E::invalid_value(Unexpected::Float(threshold), &self))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_trip() {
        for text in ["\"adaptive\"", "\"off\"", "0.2"] {
            let read: Intermittent = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), text);
        }
        for text in ["\"on\"", "0.04", "0.31", "true", "1"] {
            assert!(serde_json::from_str::<Intermittent>(text).is_err(), "{text}");
        }
    }
}
