//! A tick as its difference from an earlier one.
//!
//! Idea: from tick to tick most of a row stays the same, and most changes are small changes of
//! whole numbers. Two rows are compared column by column: one field of all guests at a time. A
//! column has a mark for each pair of values, and the difference of each pair of numbers. Unchanged
//! fields become runs of one byte, which Zstandard removes. Of the differences in a column, all
//! lowest bytes are written first, then all second bytes, and so on (planes), so that it removes
//! their leading zeros too. Changed words, added keys and longer lists are written anew, as JSON.
//!
//! Form: the length of the columns (8 bytes, little-endian), the columns, and a JSON array of what
//! is written anew. Cost: O(size of the row); `benches/journal.rs`. Limits: it is lossless, so it
//! cannot get smaller than the unpredictable digits. Numbers beyond 64 bits and fractions are
//! written anew.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::tree::{Text, Tree};

/// The two values are equal.
const EQUAL: u8 = 0;
/// Both are whole numbers, or objects, or arrays of equal length, and differ inside.
const CHANGED: u8 = 1;
/// The new value is written anew, as a literal.
const LITERAL: u8 = 2;
/// The key is not there any more.
const REMOVED: u8 = 3;

/// Most keys of a new object, so that a byte holds how many were added; a larger one is written
/// anew.
const ADDED_KEYS_MAX: usize = u8::MAX as usize;

/// Encodes `new` as its difference from `base`.
pub(crate) fn difference(base: &Tree, new: &Tree) -> serde_json::Result<Vec<u8>> {
    let mut made = Difference::default();
    made.add(&[(base, Some(new))]);
    let literals = serde_json::to_vec(&made.literals)?;
    let mut bytes = Vec::with_capacity(8 + made.columns.len() + literals.len());
    bytes.extend((made.columns.len() as u64).to_le_bytes());
    bytes.extend(made.columns);
    bytes.extend(literals);
    Ok(bytes)
}

/// Decodes the value that was encoded as `difference` from `base`.
///
/// # Errors
/// It was made from another base, or is damaged.
pub(crate) fn apply(base: &Value, difference: &[u8]) -> Result<Value, String> {
    let (length, rest) = difference.split_at_checked(8).ok_or("it is cut off")?;
    let length = u64::from_le_bytes(length.try_into().map_err(|_| "it is cut off")?);
    let length = usize::try_from(length).map_err(|e| e.to_string())?;
    let (columns, literals) = rest.split_at_checked(length).ok_or("it is cut off")?;
    let literals: Vec<Value> = serde_json::from_slice(literals).map_err(|e| e.to_string())?;
    let mut reader = DifferenceReader { columns, literals: literals.into_iter() };
    let mut values = reader.column(&[base])?;
    let value = values.pop().flatten().ok_or("it holds nothing")?;
    match (reader.columns, reader.literals.next()) {
        ([], None) => Ok(value),
        _ => Err("it holds more than its base".into()),
    }
}

/// Whether `new` can be written as a difference inside of `base`.
fn is_alike(base: &Tree, new: &Tree) -> bool {
    match (base, new) {
        (Tree::Unsigned(_), Tree::Unsigned(_)) => true,
        (Tree::Array(base), Tree::Array(new)) => base.len() == new.len(),
        (Tree::Object(_), Tree::Object(new)) => new.len() <= ADDED_KEYS_MAX,
        _ => false,
    }
}

/// A key or a value that is written anew, as JSON.
#[derive(Serialize)]
#[serde(untagged)]
enum Literal<'a> {
    Key(&'a str),
    Value(&'a Tree),
}

#[derive(Default)]
struct Difference<'a> {
    columns: Vec<u8>,
    literals: Vec<Literal<'a>>,
}

impl<'a> Difference<'a> {
    /// Adds one column: the old value of each guest, and the new one if there still is one.
    fn add(&mut self, column: &[(&Tree, Option<&'a Tree>)]) {
        let mut changed = Vec::new();
        for &(base, new) in column {
            let mark = match new {
                None => REMOVED,
                Some(new) if base == new => EQUAL,
                Some(new) if is_alike(base, new) => {
                    changed.push((base, new));
                    CHANGED
                }
                Some(new) => {
                    self.literals.push(Literal::Value(new));
                    LITERAL
                }
            };
            self.columns.push(mark);
        }
        let mut numbers = Vec::new();
        let mut items = Vec::new();
        for &(base, new) in &changed {
            match (base, new) {
                (Tree::Unsigned(base), Tree::Unsigned(new)) => {
                    let by = new.wrapping_sub(*base);
                    // Zigzag code: a small difference has a small code, whatever its sign.
                    numbers.push((by << 1) ^ 0u64.wrapping_sub(by >> 63));
                }
                (Tree::Array(base), Tree::Array(new)) => {
                    items.extend(base.iter().zip(new.iter().map(Some)));
                }
                _ => {}
            }
        }
        for plane in 0..planes(&numbers, &mut self.columns) {
            self.columns.extend(numbers.iter().map(|number| (number >> (8 * plane)) as u8));
        }
        if !items.is_empty() {
            self.add(&items);
        }
        for (place, name) in names(&changed).into_iter().enumerate() {
            let mut field = Vec::with_capacity(changed.len());
            for &(base, new) in &changed {
                field.extend(base.field(name, place).map(|value| (value, new.field(name, place))));
            }
            self.add(&field);
        }
        for &(base, new) in &changed {
            let Tree::Object(fields) = new else { continue };
            let mut added = 0;
            for (place, (name, value)) in fields.iter().enumerate() {
                if base.field(name, place).is_none() {
                    added += 1;
                    self.literals.extend([Literal::Key(name), Literal::Value(value)]);
                }
            }
            self.columns.push(added);
        }
    }
}

/// The names of the fields of all bases, sorted.
fn names<'a>(changed: &[(&'a Tree, &Tree)]) -> Vec<&'a Text> {
    let mut names: Vec<&Text> = Vec::new();
    for (base, _) in changed {
        let fields = base.fields();
        // Nearly always an object has the same fields as the one before.
        let are_there = fields.iter().enumerate().all(|(place, (name, _))| {
            names.get(place).is_some_and(|there| *there == name)
                || names.binary_search(&name).is_ok()
        });
        if !are_there {
            names.extend(fields.iter().map(|(name, _)| name));
            names.sort_unstable();
            names.dedup();
        }
    }
    names
}

/// The number of planes, which is how many bytes the largest number has. Writes it to `columns` if
/// there are numbers.
fn planes(numbers: &[u64], columns: &mut Vec<u8>) -> u32 {
    let Some(largest) = numbers.iter().max() else { return 0 };
    let planes = (u64::BITS - largest.leading_zeros()).div_ceil(8);
    columns.push(planes as u8);
    planes
}

/// The keys of all objects, sorted: the order in a `Map` depends on features of its library.
fn keys<'a>(values: impl Iterator<Item = &'a Value>) -> BTreeSet<&'a String> {
    values.filter_map(Value::as_object).flat_map(Map::keys).collect()
}

struct DifferenceReader<'a> {
    columns: &'a [u8],
    literals: std::vec::IntoIter<Value>,
}

impl<'a> DifferenceReader<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (bytes, rest) = self.columns.split_at_checked(count).ok_or("a column is cut off")?;
        self.columns = rest;
        Ok(bytes)
    }

    /// Reads one column, whose old values are `bases`; `None` where a value is gone.
    fn column(&mut self, bases: &[&Value]) -> Result<Vec<Option<Value>>, String> {
        let marks = self.bytes(bases.len())?;
        let mut changed = Vec::new();
        let mut values = Vec::with_capacity(bases.len());
        for (&mark, &base) in marks.iter().zip(bases) {
            values.push(match mark {
                EQUAL => Some(base.clone()),
                CHANGED => {
                    changed.push(base);
                    None
                }
                LITERAL => Some(self.literal()?),
                REMOVED => None,
                other => return Err(format!("unknown mark {other}")),
            });
        }
        let mut made = self.changed(&changed)?.into_iter();
        for (value, mark) in values.iter_mut().zip(marks) {
            if *mark == CHANGED {
                *value = made.next();
            }
        }
        Ok(values)
    }

    /// Reads values that differ inside from `bases`.
    fn changed(&mut self, bases: &[&Value]) -> Result<Vec<Value>, String> {
        let count = bases.iter().filter(|base| base.is_number()).count();
        let mut numbers = self.numbers(count)?.into_iter();
        let items: Vec<&Value> =
            bases.iter().filter_map(|base| base.as_array()).flatten().collect();
        let items = if items.is_empty() { Vec::new() } else { self.column(&items)? };
        let mut items = items.into_iter();
        let mut values = Vec::with_capacity(bases.len());
        for base in bases {
            values.push(match base {
                Value::Number(_) => {
                    let from = base.as_u64().ok_or("a number that is not whole")?;
                    let by = numbers.next().ok_or("a number is missing")?;
                    from.wrapping_add(by).into()
                }
                Value::Array(base) => items.by_ref().take(base.len()).flatten().collect(),
                Value::Object(_) => Value::Object(Map::new()),
                _ => return Err("a word that differs inside".into()),
            });
        }
        for key in keys(bases.iter().copied()) {
            let places: Vec<usize> =
                (0..bases.len()).filter(|&at| bases[at].get(key).is_some()).collect();
            let field: Vec<&Value> = places.iter().filter_map(|&at| bases[at].get(key)).collect();
            for (at, value) in places.into_iter().zip(self.column(&field)?) {
                if let (Some(object), Some(value)) = (values[at].as_object_mut(), value) {
                    object.insert(key.clone(), value);
                }
            }
        }
        for object in values.iter_mut().filter_map(Value::as_object_mut) {
            for _ in 0..self.bytes(1)?[0] {
                let Value::String(key) = self.literal()? else {
                    return Err("a key is no word".into());
                };
                let value = self.literal()?;
                object.insert(key, value);
            }
        }
        Ok(values)
    }

    fn literal(&mut self) -> Result<Value, String> {
        self.literals.next().ok_or_else(|| "a value is missing".into())
    }

    fn numbers(&mut self, count: usize) -> Result<Vec<u64>, String> {
        let mut numbers = vec![0u64; count];
        if count == 0 {
            return Ok(numbers);
        }
        let planes = self.bytes(1)?[0];
        if planes > 8 {
            return Err(format!("numbers of {planes} bytes"));
        }
        for plane in 0..u32::from(planes) {
            for (number, byte) in numbers.iter_mut().zip(self.bytes(count)?) {
                *number |= u64::from(*byte) << (8 * plane);
            }
        }
        for number in &mut numbers {
            // Back from the zigzag code.
            *number = (*number >> 1) ^ 0u64.wrapping_sub(*number & 1);
        }
        Ok(numbers)
    }
}

#[cfg(test)]
pub(crate) use tests::any_json;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Any JSON, with few keys and words so that two values often have the same form.
    pub(crate) fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..300u64).prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            Just(json!(0.5)),
            "[ab]".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 60, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("[a-d]", inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn difference(base: &Value, new: &Value) -> Vec<u8> {
        let tree = |value| Tree::of(value).unwrap();
        super::difference(&tree(base), &tree(new)).unwrap()
    }

    #[test]
    fn equal_and_slowly_moving_fields_take_a_byte_each() {
        let guests = |by: u64| -> Value {
            (0..1000u64)
                .map(|at| json!({"id": format!("g{at}"), "free": 5_000_000 + at + by}))
                .collect()
        };
        assert!(difference(&guests(0), &guests(0)).len() < 20);
        let made = difference(&guests(0), &guests(7));
        // For each guest its mark, the marks of its two fields, the difference, and the count of
        // added keys.
        assert!((5_000..5_020).contains(&made.len()), "{}", made.len());
    }

    #[test]
    fn another_base_or_damage_is_refused() {
        let (base, new) = (json!({"a": [1, 2]}), json!({"a": [1, 3]}));
        let made = difference(&base, &new);
        assert_eq!(apply(&base, &made), Ok(new));
        for other in [json!({"b": 1}), json!([1]), json!("a"), json!({"a": ["x", "y"]})] {
            assert!(apply(&other, &made).is_err(), "{other}");
        }
        for length in 0..made.len() {
            assert!(apply(&base, &made[..length]).is_err(), "{length}");
        }
    }

    proptest! {
        #[test]
        fn a_difference_leads_to_the_new_value(base in any_json(), new in any_json()) {
            let made = difference(&base, &new);
            prop_assert_eq!(apply(&base, &made), Ok(new));
        }

        #[test]
        fn rubbish_never_panics(base in any_json(), rubbish in prop::collection::vec(0..4u8, 0..60)) {
            let mut bytes = (rubbish.len() as u64).to_le_bytes().to_vec();
            bytes.extend(&rubbish);
            bytes.extend(b"[1, \"a\"]");
            let _ = apply(&base, &bytes);
            let _ = apply(&base, &rubbish);
        }
    }
}
