//! A row as a tree of values, made to be compared.
//!
//! Idea: a tick of a thousand guests has some hundred thousand fields, and each tick becomes a tree
//! that is compared with another (`delta.rs`). `serde_json::Value` allocates the name of every
//! field and a node of a B-tree for every object. Here names of fields and of unit variants are
//! borrowed from the program, and an object is one vector sorted by name.
//!
//! A value becomes the same JSON as with `serde_json`, which the tests compare it with. Limits: as
//! there, keys of maps are words, numbers or booleans.

use std::borrow::Cow;
use std::fmt::Display;

use serde::ser::{self, Error as _};
use serde::{Serialize, Serializer};
use serde_json::{Error, Value};

/// A string: a constant of the program, or data.
pub(crate) type Text = Cow<'static, str>;

/// A value as JSON has them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tree {
    /// A whole number, not negative.
    Unsigned(u64),
    Text(Text),
    Array(Vec<Tree>),
    /// Sorted by name, each name once.
    Object(Vec<(Text, Tree)>),
    /// Null, a boolean, or any other number.
    Other(Value),
}

impl Tree {
    /// What `value` is as JSON.
    ///
    /// # Errors
    /// The value refuses to be serialized, or a map has a key that JSON cannot have.
    pub(crate) fn of(value: &(impl Serialize + ?Sized)) -> Result<Tree, Error> {
        value.serialize(ToTree)
    }

    /// Its fields; none if it is no object.
    pub(crate) fn fields(&self) -> &[(Text, Tree)] {
        match self {
            Tree::Object(fields) => fields,
            _ => &[],
        }
    }

    /// The field `name`, which is probably the one at `place`.
    pub(crate) fn field(&self, name: &str, place: usize) -> Option<&Tree> {
        let fields = self.fields();
        if let Some((found, value)) = fields.get(place)
            && found == name
        {
            return Some(value);
        }
        let at = fields.binary_search_by(|(found, _)| found.as_ref().cmp(name)).ok()?;
        Some(&fields[at].1)
    }

    fn object(mut fields: Vec<(Text, Tree)>) -> Tree {
        // A stable sort: of two values with one name the last counts, as in `serde_json`.
        fields.sort_by(|(a, _), (b, _)| a.cmp(b));
        fields.dedup_by(|later, earlier| {
            let is_again = later.0 == earlier.0;
            if is_again {
                std::mem::swap(&mut later.1, &mut earlier.1);
            }
            is_again
        });
        Tree::Object(fields)
    }

    fn variant(name: &'static str, contents: Tree) -> Tree {
        Tree::Object(vec![(name.into(), contents)])
    }
}

impl Serialize for Tree {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Tree::Unsigned(number) => serializer.serialize_u64(*number),
            Tree::Text(text) => serializer.serialize_str(text),
            Tree::Array(items) => serializer.collect_seq(items),
            Tree::Object(fields) => serializer.collect_map(fields.iter().map(|(k, v)| (k, v))),
            Tree::Other(value) => value.serialize(serializer),
        }
    }
}

/// Makes a [`Tree`] of whatever can be serialized.
struct ToTree;

/// The items of an array, or of an enum's variant.
struct Items {
    variant: Option<&'static str>,
    items: Vec<Tree>,
}

/// The fields of an object, or of an enum's variant.
struct Fields {
    variant: Option<&'static str>,
    fields: Vec<(Text, Tree)>,
    /// The key of a map whose value comes next.
    key: Option<Text>,
}

fn items(variant: Option<&'static str>, length: Option<usize>) -> Result<Items, Error> {
    Ok(Items { variant, items: Vec::with_capacity(length.unwrap_or(0)) })
}

fn fields(variant: Option<&'static str>, length: Option<usize>) -> Result<Fields, Error> {
    Ok(Fields { variant, fields: Vec::with_capacity(length.unwrap_or(0)), key: None })
}

/// A value that has no form of its own here.
fn other(value: impl Into<Value>) -> Result<Tree, Error> {
    Ok(Tree::Other(value.into()))
}

impl Serializer for ToTree {
    type Ok = Tree;
    type Error = Error;
    type SerializeSeq = Items;
    type SerializeTuple = Items;
    type SerializeTupleStruct = Items;
    type SerializeTupleVariant = Items;
    type SerializeMap = Fields;
    type SerializeStruct = Fields;
    type SerializeStructVariant = Fields;

    fn serialize_bool(self, value: bool) -> Result<Tree, Error> {
        other(value)
    }

    fn serialize_i8(self, value: i8) -> Result<Tree, Error> {
        self.serialize_i64(value.into())
    }

    fn serialize_i16(self, value: i16) -> Result<Tree, Error> {
        self.serialize_i64(value.into())
    }

    fn serialize_i32(self, value: i32) -> Result<Tree, Error> {
        self.serialize_i64(value.into())
    }

    fn serialize_i64(self, value: i64) -> Result<Tree, Error> {
        u64::try_from(value).map_or_else(|_| other(value), |value| Ok(Tree::Unsigned(value)))
    }

    fn serialize_u8(self, value: u8) -> Result<Tree, Error> {
        Ok(Tree::Unsigned(value.into()))
    }

    fn serialize_u16(self, value: u16) -> Result<Tree, Error> {
        Ok(Tree::Unsigned(value.into()))
    }

    fn serialize_u32(self, value: u32) -> Result<Tree, Error> {
        Ok(Tree::Unsigned(value.into()))
    }

    fn serialize_u64(self, value: u64) -> Result<Tree, Error> {
        Ok(Tree::Unsigned(value))
    }

    fn serialize_f32(self, value: f32) -> Result<Tree, Error> {
        other(value)
    }

    fn serialize_f64(self, value: f64) -> Result<Tree, Error> {
        other(value)
    }

    fn serialize_char(self, value: char) -> Result<Tree, Error> {
        Ok(Tree::Text(value.to_string().into()))
    }

    fn serialize_str(self, value: &str) -> Result<Tree, Error> {
        Ok(Tree::Text(value.to_owned().into()))
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<Tree, Error> {
        Ok(Tree::Array(value.iter().map(|&byte| Tree::Unsigned(byte.into())).collect()))
    }

    fn serialize_none(self) -> Result<Tree, Error> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Tree, Error> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Tree, Error> {
        Ok(Tree::Other(Value::Null))
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result<Tree, Error> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
    ) -> Result<Tree, Error> {
        Ok(Tree::Text(variant.into()))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        value: &T,
    ) -> Result<Tree, Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Tree, Error> {
        Ok(Tree::variant(variant, value.serialize(self)?))
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<Items, Error> {
        items(None, length)
    }

    fn serialize_tuple(self, length: usize) -> Result<Items, Error> {
        items(None, Some(length))
    }

    fn serialize_tuple_struct(self, _name: &'static str, length: usize) -> Result<Items, Error> {
        items(None, Some(length))
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Items, Error> {
        items(Some(variant), Some(length))
    }

    fn serialize_map(self, length: Option<usize>) -> Result<Fields, Error> {
        fields(None, length)
    }

    fn serialize_struct(self, _name: &'static str, length: usize) -> Result<Fields, Error> {
        fields(None, Some(length))
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Fields, Error> {
        fields(Some(variant), Some(length))
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<Tree, Error> {
        Ok(Tree::Text(value.to_string().into()))
    }
}

impl Items {
    fn push(&mut self, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        self.items.push(value.serialize(ToTree)?);
        Ok(())
    }

    fn tree(self) -> Result<Tree, Error> {
        let items = Tree::Array(self.items);
        Ok(match self.variant {
            Some(name) => Tree::variant(name, items),
            None => items,
        })
    }
}

impl Fields {
    fn push(&mut self, name: Text, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        self.fields.push((name, value.serialize(ToTree)?));
        Ok(())
    }

    fn tree(self) -> Result<Tree, Error> {
        let object = Tree::object(self.fields);
        Ok(match self.variant {
            Some(name) => Tree::variant(name, object),
            None => object,
        })
    }
}

/// The methods of a trait of `serde` for sequences, under the name it gives them.
macro_rules! items_are {
    ($($trait:ident $add:ident,)*) => {$(
        impl ser::$trait for Items {
            type Ok = Tree;
            type Error = Error;

            fn $add<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
                self.push(value)
            }

            fn end(self) -> Result<Tree, Error> {
                self.tree()
            }
        }
    )*};
}

items_are! {
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field,
}

/// The methods of a trait of `serde` for named fields.
macro_rules! fields_are {
    ($($trait:ident,)*) => {$(
        impl ser::$trait for Fields {
            type Ok = Tree;
            type Error = Error;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), Error> {
                self.push(name.into(), value)
            }

            fn end(self) -> Result<Tree, Error> {
                self.tree()
            }
        }
    )*};
}

fields_are! { SerializeStruct, SerializeStructVariant, }

impl ser::SerializeMap for Fields {
    type Ok = Tree;
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.key = Some(match key.serialize(ToTree)? {
            Tree::Text(text) => text,
            Tree::Unsigned(number) => number.to_string().into(),
            Tree::Other(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string().into(),
            _ => return Err(Error::custom("key must be a string")),
        });
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        let key = self.key.take().ok_or_else(|| Error::custom("a value without a key"))?;
        self.push(key, value)
    }

    fn end(self) -> Result<Tree, Error> {
        self.tree()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::delta::any_json;

    #[derive(Serialize)]
    struct Unit;

    #[derive(Serialize)]
    struct Newtype(u8);

    #[derive(Serialize)]
    struct Pair(i8, f32);

    #[derive(Serialize)]
    enum Kind {
        Unit,
        Newtype(&'static str),
        Tuple(u16, i64),
        Struct { z: Option<char>, a: Option<bool> },
    }

    #[derive(Serialize)]
    struct Whole {
        z: Vec<Kind>,
        a: (Unit, Newtype, Pair),
        #[serde(skip_serializing_if = "Option::is_none")]
        left_out: Option<u8>,
        numbers: BTreeMap<i32, f64>,
        switches: BTreeMap<bool, ()>,
        #[serde(flatten)]
        flat: BTreeMap<String, u32>,
    }

    #[test]
    fn every_kind_of_value_becomes_what_json_has() {
        let whole = Whole {
            z: vec![
                Kind::Unit,
                Kind::Newtype("n"),
                Kind::Tuple(1, -2),
                Kind::Struct { z: Some('ä'), a: None },
                Kind::Struct { z: None, a: Some(true) },
            ],
            a: (Unit, Newtype(3), Pair(-4, 0.5)),
            left_out: None,
            numbers: BTreeMap::from([(-1, 0.25), (2, f64::NAN), (10, f64::INFINITY)]),
            switches: BTreeMap::from([(true, ()), (false, ())]),
            flat: BTreeMap::from([("b".to_owned(), 1), ("a".to_owned(), 2)]),
        };
        let tree = Tree::of(&whole).unwrap();
        let value = serde_json::to_value(&whole).unwrap();
        assert_eq!(serde_json::to_string(&tree).unwrap(), value.to_string());
        // `a` of the map replaces the field of that name.
        assert_eq!(value["a"], json!(2));
    }

    #[test]
    fn keys_that_json_cannot_have_are_refused() {
        let map = BTreeMap::from([(vec![1], 2)]);
        assert!(Tree::of(&map).is_err() && serde_json::to_value(&map).is_err());
    }

    proptest! {
        #[test]
        fn any_json_is_written_as_serde_json_does(value in any_json()) {
            let tree = Tree::of(&value).unwrap();
            prop_assert_eq!(serde_json::to_string(&tree).unwrap(), value.to_string());
            for (place, (name, field)) in tree.fields().iter().enumerate() {
                for guess in [place, 0, 7] {
                    prop_assert_eq!(tree.field(name, guess), Some(field));
                }
            }
            prop_assert_eq!(tree.field("not there", 0), None);
        }
    }
}
