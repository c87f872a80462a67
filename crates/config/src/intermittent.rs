//! The key `tracking.intermittent`, when tracking rests: `"adaptive"`, `"off"`, or a threshold.

use std::fmt;
use std::str::FromStr;

use ballast_estimate::phase::{IntermittentSettings, Threshold, ThresholdMode};
use serde::{Deserialize, Deserializer};

const EXPECTED: &str = "\"adaptive\", \"off\" or a threshold from 0.05 to 0.30";

/// When tracking rests; `None`: never.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Intermittent(pub Option<IntermittentSettings>);

impl Default for Intermittent {
    fn default() -> Intermittent {
        Intermittent(Some(IntermittentSettings::live()))
    }
}

impl Intermittent {
    fn fixed(threshold: f64) -> Result<Intermittent, String> {
        let threshold = Threshold::new(threshold).map_err(|error| error.to_string())?;
        let mode = ThresholdMode::Fixed(threshold);
        Ok(Intermittent(Some(IntermittentSettings { mode, ..Default::default() })))
    }
}

impl FromStr for Intermittent {
    type Err = String;

    fn from_str(text: &str) -> Result<Intermittent, String> {
        match text {
            "adaptive" => Ok(Intermittent::default()),
            "off" => Ok(Intermittent(None)),
            _ => match text.parse() {
                Ok(threshold) => Intermittent::fixed(threshold),
                Err(_) => Err(format!("`{text}` is invalid: expected {EXPECTED}")),
            },
        }
    }
}

impl<'de> Deserialize<'de> for Intermittent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Intermittent, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Intermittent;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(EXPECTED)
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Intermittent, E> {
                match text {
                    "adaptive" | "off" => text.parse().map_err(E::custom),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)),
                }
            }
            fn visit_f64<E: serde::de::Error>(self, threshold: f64) -> Result<Intermittent, E> {
                Intermittent::fixed(threshold).map_err(E::custom)
            }
            fn visit_i64<E: serde::de::Error>(self, threshold: i64) -> Result<Intermittent, E> {
                self.visit_f64(threshold as f64)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_and_thresholds_are_parsed_and_others_refused() {
        let mode = |text: &str| text.parse::<Intermittent>().unwrap().0.map(|it| it.mode);
        assert_eq!(mode("adaptive"), Some(ThresholdMode::Adaptive));
        assert_eq!(mode("0.2"), Some(ThresholdMode::Fixed(Threshold::new(0.2).unwrap())));
        assert_eq!(mode("off"), None);
        for (text, expected) in
            [("on", "\"adaptive\", \"off\""), ("0.5", "0.05 to 0.3"), ("NaN", "NaN")]
        {
            let error = text.parse::<Intermittent>().unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
