//! What a scenario compares beside policies as they are: policies with settings of their own.
//!
//! Idea: tables are the daemon's own; joining them is all that is done here. Limits: see [`crate::scenario`].

use ballast_model::PolicyName;
use serde::Deserialize;
use serde_json::{Map, Value};

/// The name of the runs in which guests have all their memory.
pub const BEST: &str = "best";

/// Something to compare: a policy, and how it and tracking are set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Its name in all figures.
    pub name: String,
    /// The daemon's `[policy]`, with the policy's `name`; over the scenario's own, key by key.
    pub policy: Map<String, Value>,
    /// The daemon's `[tracking]`, likewise.
    #[serde(default)]
    pub tracking: Map<String, Value>,
    /// Guests have all their memory.
    #[serde(skip)]
    pub is_best: bool,
}

impl Variant {
    /// That of `policy`, as the scenario sets it.
    pub(crate) fn of(policy: PolicyName) -> Variant {
        let name = policy.as_str().to_owned();
        let table = Map::from_iter([("name".to_owned(), Value::from(policy.as_str()))]);
        Variant { name, policy: table, ..Variant::default() }
    }
}

/// `table` with the keys of `other` in their place; tables in tables are joined alike.
pub(crate) fn over(table: &Map<String, Value>, other: &Map<String, Value>) -> Map<String, Value> {
    let mut joined = table.clone();
    for (key, value) in other {
        let value = match (joined.get(key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => Value::Object(over(old, new)),
            _ => value.clone(),
        };
        joined.insert(key.clone(), value);
    }
    joined
}
