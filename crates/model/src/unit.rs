//! The model as rows of a journal: each figure in the unit that its name ends in.
//!
//! Idea: types derive their rows (feature `serde`) and name each figure as rows do: `_bytes`,
//! `_ns`, `_ms`. In rows, sizes are whole numbers, unlike the `512MiB` of [`Bytes`] in a file for
//! people. `None` is left out. Reasons are `{"code": word, "figures": {…}}`.
//!
//! The names are a format that stays when fields are renamed; `crates/store/tests/it/golden.rs`
//! pins it.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Bytes, Measured, MissCurve};

/// A value that is a plain number in a row.
pub(crate) trait InUnit: Sized {
    type Number: Serialize + for<'de> Deserialize<'de>;
    fn number(&self) -> Self::Number;
    fn of_number(number: Self::Number) -> Self;
}

impl InUnit for Bytes {
    type Number = u64;
    fn number(&self) -> u64 {
        self.get()
    }
    fn of_number(number: u64) -> Bytes {
        Bytes::new(number)
    }
}

/// Nanoseconds, up to 584 years.
impl InUnit for Duration {
    type Number = u64;
    fn number(&self) -> u64 {
        u64::try_from(self.as_nanos()).unwrap_or(u64::MAX)
    }
    fn of_number(number: u64) -> Duration {
        Duration::from_nanos(number)
    }
}

impl<T: InUnit> InUnit for Option<T> {
    type Number = Option<T::Number>;
    fn number(&self) -> Self::Number {
        self.as_ref().map(T::number)
    }
    fn of_number(number: Self::Number) -> Option<T> {
        number.map(T::of_number)
    }
}

pub(crate) fn serialize<T: InUnit, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    value.number().serialize(to)
}

pub(crate) fn deserialize<'de, T: InUnit, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    T::Number::deserialize(from).map(T::of_number)
}

pub(crate) fn is_none<T>(value: &Option<T>) -> bool {
    value.is_none()
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A measured size: as a plain number, it has no struct to which its age could be added.
pub(crate) mod measured_size {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Row {
        bytes: u64,
        age_ns: u64,
    }

    pub(crate) fn serialize<S: Serializer>(
        size: &Option<Measured<Bytes>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let row = |it: &Measured<Bytes>| Row { bytes: it.value.get(), age_ns: it.age.number() };
        size.as_ref().map(row).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Measured<Bytes>>, D::Error> {
        let size = |Row { bytes, age_ns }| Measured {
            value: Bytes::new(bytes),
            age: Duration::from_nanos(age_ns),
        };
        Ok(Option::deserialize(from)?.map(size))
    }
}

/// A value with figures of its own and an age, which comes first among them.
///
/// A derived `flatten` would read the same, but through a buffer of every figure.
pub(crate) mod measured {
    use std::fmt;
    use std::marker::PhantomData;

    use serde::de::value::MapAccessDeserializer;
    use serde::de::{DeserializeSeed, Error, IntoDeserializer, MapAccess, Visitor};

    use super::*;

    const AGE: &str = "age_ns";

    #[derive(Serialize)]
    struct Row<'a, T> {
        age_ns: u64,
        #[serde(flatten)]
        value: &'a T,
    }

    impl<T: Serialize> Serialize for Measured<T> {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            Row { age_ns: self.age.number(), value: &self.value }.serialize(to)
        }
    }

    impl<'de, T: Deserialize<'de>> Deserialize<'de> for Measured<T> {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Measured<T>, D::Error> {
            from.deserialize_map(Figures(PhantomData))
        }
    }

    struct Figures<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Figures<T> {
        type Value = Measured<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("figures and their age")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Measured<T>, A::Error> {
            let mut age = None;
            let others = EntriesWithoutAge { map, age: &mut age };
            let value = T::deserialize(MapAccessDeserializer::new(others))?;
            let age = age.map(Duration::from_nanos).ok_or_else(|| Error::missing_field(AGE))?;
            Ok(Measured { age, value })
        }
    }

    /// The entries of a map without the age, which is kept here.
    struct EntriesWithoutAge<'a, A> {
        map: A,
        age: &'a mut Option<u64>,
    }

    impl<'de, A: MapAccess<'de>> MapAccess<'de> for EntriesWithoutAge<'_, A> {
        type Error = A::Error;

        fn next_key_seed<K: DeserializeSeed<'de>>(
            &mut self,
            mut seed: K,
        ) -> Result<Option<K::Value>, A::Error> {
            while let Some(name) = self.map.next_key_seed(Name(seed))? {
                match name {
                    Ok(other) => return Ok(Some(other)),
                    Err(unused) => seed = unused,
                }
                *self.age = Some(self.map.next_value()?);
            }
            Ok(None)
        }

        fn next_value_seed<V: DeserializeSeed<'de>>(
            &mut self,
            seed: V,
        ) -> Result<V::Value, A::Error> {
            self.map.next_value_seed(seed)
        }
    }

    /// Reads the name of a figure with a seed; for the age, the seed is given back unused.
    struct Name<K>(K);

    impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for Name<K> {
        type Value = Result<K::Value, K>;

        fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
            from.deserialize_str(self)
        }
    }

    impl<'de, K: DeserializeSeed<'de>> Visitor<'de> for Name<K> {
        type Value = Result<K::Value, K>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a name")
        }

        fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
            match name {
                AGE => Ok(Err(self.0)),
                other => self.0.deserialize(other.into_deserializer()).map(Ok),
            }
        }
    }
}

/// Floor and ceiling.
pub(crate) mod bounds {
    use super::*;
    use crate::Bounds;

    #[derive(Serialize, Deserialize)]
    struct Row {
        floor_bytes: u64,
        ceiling_bytes: u64,
    }

    pub(crate) fn serialize<S: Serializer>(
        bounds: &Option<Bounds>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let row = |Bounds { floor, ceiling }: Bounds| Row {
            floor_bytes: floor.get(),
            ceiling_bytes: ceiling.get(),
        };
        bounds.map(row).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Bounds>, D::Error> {
        let bounds = |row: Row| Bounds {
            floor: Bytes::new(row.floor_bytes),
            ceiling: Bytes::new(row.ceiling_bytes),
        };
        Ok(Option::deserialize(from)?.map(bounds))
    }
}

/// A curve that is shared.
pub(crate) mod shared {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        curve: &Option<Arc<MissCurve>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        curve.as_deref().serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Arc<MissCurve>>, D::Error> {
        Ok(Option::deserialize(from)?.map(Arc::new))
    }
}
