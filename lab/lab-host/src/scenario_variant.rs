//! The variants that a scenario compares: policies with settings of their own.
//!
//! Idea: the tables are those of the daemon's configuration; this module only merges them. Limits:
//! see [`crate::scenario`].

use ballast_lab_guest::workload::RIVAL_PREFIX;
use ballast_model::{ParsePolicyNameError, PolicyName};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The name of the variant in which guests have all their memory.
pub const BEST: &str = "best";
/// The name of the variant in which balloons are set by hand.
pub const BY_HAND: &str = "by-hand";

/// A policy with its settings and those of tracking.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Its name in all results.
    pub name: String,
    /// The daemon's `[policy]`, with the policy's `name`; it overrides the scenario's table, key by
    /// key. The name of a rival's rule is unknown to the daemon: see [`Variant::rival`].
    pub policy: Map<String, Value>,
    /// The daemon's `[tracking]`, in the same way.
    #[serde(default)]
    pub tracking: Map<String, Value>,
    /// What decides how much memory guests hold.
    #[serde(skip)]
    pub kind: VariantKind,
}

/// What decides how much memory the guests of a variant hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VariantKind {
    /// The daemon, by the policy.
    #[default]
    Policy,
    /// Nothing: guests have all their memory.
    Best,
    /// The scenario's `[by_hand]` settings; the daemon is paused.
    ByHand,
    /// The daemons of several hosts; the fleet moves no guests.
    Advise,
    /// The daemons of several hosts; the fleet moves guests between them.
    Move,
}

impl Variant {
    /// A variant of the policy with the scenario's settings.
    pub(crate) fn of(policy: &str) -> Variant {
        let table = Map::from_iter([("name".to_owned(), Value::from(policy))]);
        Variant { name: policy.to_owned(), policy: table, ..Variant::default() }
    }

    /// The rival whose rule decides; `None`: a policy of the daemon decides.
    pub fn rival(&self) -> Option<&str> {
        self.policy.get("name")?.as_str()?.strip_prefix(RIVAL_PREFIX)
    }
}

/// Checks a policy's name in a scenario. Whether a rival exists is not known here.
pub(crate) fn check_policy(name: &str) -> Result<(), ParsePolicyNameError> {
    if name.starts_with(RIVAL_PREFIX) { Ok(()) } else { name.parse::<PolicyName>().map(drop) }
}

/// `table` overridden by the keys of `other`, recursively.
pub(crate) fn merged(table: &Map<String, Value>, other: &Map<String, Value>) -> Map<String, Value> {
    let mut joined = table.clone();
    for (key, value) in other {
        let value = match (joined.get(key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => Value::Object(merged(old, new)),
            _ => value.clone(),
        };
        joined.insert(key.clone(), value);
    }
    joined
}
