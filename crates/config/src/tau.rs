//! The key `tau`: the idle-memory tax, dynamic or fixed.

use std::fmt;

use ballast_model::Tax;
use ballast_policy::TaxRule;
use serde::{Deserialize, Deserializer};

/// `"dynamic"`, or a number from 0 to 1.
#[derive(Clone, Copy, Debug)]
pub struct Tau(pub(crate) TaxRule);

impl<'de> Deserialize<'de> for Tau {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tau, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Tau;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"dynamic\" or a number from 0 to 1")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Tau, E> {
                match text {
                    "dynamic" => Ok(Tau(TaxRule::Dynamic)),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)),
                }
            }
            fn visit_f64<E: serde::de::Error>(self, n: f64) -> Result<Tau, E> {
                if !(0.0..=1.0).contains(&n) {
                    return Err(E::invalid_value(serde::de::Unexpected::Float(n), &self));
                }
                // Rounded only here; decisions use the exact fraction.
                let numerator = (n * Tax::ONE.numerator() as f64).round() as u64;
                Ok(Tau(TaxRule::Fixed(Tax::from_fraction(numerator))))
            }
            fn visit_i64<E: serde::de::Error>(self, n: i64) -> Result<Tau, E> {
                self.visit_f64(n as f64)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}
