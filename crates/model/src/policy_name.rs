//! The names of the policies, as operators write them.

use std::fmt;
use std::str::FromStr;

/// A policy that this version can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyName {
    /// Every guest gets its share of the budget, whether or not it uses it.
    Static,
    /// Every guest gets what its kernel has promised to processes, as Xen's self-ballooning (TWS
    /// §2).
    SelfBalloon,
    /// Every guest gets what it uses and a reserve; when that does not fit, as `Global` (Global
    /// §3).
    SelfScheduling,
    /// Idle memory is taxed as much as the neediest guest requires (Global §3.1–3.4).
    Global,
    /// The fewest misses of all guests together, by their miss curves (MEB §4).
    Meb,
    /// Every guest gets the working set that probing found (TWS §2).
    Tws,
    /// Memory beyond the floors is divided once, by floor and shares (flexmemd §4.1).
    Proportional,
    /// Requests are granted in order of arrival, for credits (flexmemd §4.2).
    Fcfs,
    /// Requests are granted until those that rent most for their weight must give way (flexmemd
    /// §4.3).
    DemandProportional,
    /// Demand by statistics; the richest guest is served first (flexmemd §4.4).
    DirectAssign,
    /// Demand by statistics; the highest bid is served first (flexmemd §4.5).
    Auction,
    /// As the auction, but served in rounds (flexmemd §4.6).
    RoundRobin,
    /// The answers of an operator's program; while there is none, as `Global`.
    External,
    /// A policy that is not in this list: a rival's, in the simulator.
    Custom(&'static str),
}

impl PolicyName {
    /// Every policy that can be chosen by name, in the order in which they are listed to people.
    pub const ALL: [PolicyName; 13] = [
        PolicyName::Static,
        PolicyName::SelfBalloon,
        PolicyName::SelfScheduling,
        PolicyName::Global,
        PolicyName::Meb,
        PolicyName::Tws,
        PolicyName::Proportional,
        PolicyName::Fcfs,
        PolicyName::DemandProportional,
        PolicyName::DirectAssign,
        PolicyName::Auction,
        PolicyName::RoundRobin,
        PolicyName::External,
    ];

    /// Those that decide without a program.
    pub const BUILT_IN: &'static [PolicyName] = match PolicyName::ALL.split_last() {
        Some((_, rest)) => rest,
        None => &[],
    };

    /// The names that can be chosen, as a list in words: `a, b or c`.
    pub fn list() -> String {
        let names = PolicyName::ALL.map(PolicyName::as_str);
        match names.split_last() {
            Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
            None => String::new(),
        }
    }

    /// The name in configuration, on the command line and in the journal.
    pub const fn as_str(self) -> &'static str {
        match self {
            PolicyName::Static => "static",
            PolicyName::SelfBalloon => "self-balloon",
            PolicyName::SelfScheduling => "self-scheduling",
            PolicyName::Global => "global",
            PolicyName::Meb => "meb",
            PolicyName::Tws => "tws",
            PolicyName::Proportional => "proportional",
            PolicyName::Fcfs => "fcfs",
            PolicyName::DemandProportional => "demand-proportional",
            PolicyName::DirectAssign => "direct-assign",
            PolicyName::Auction => "auction",
            PolicyName::RoundRobin => "round-robin",
            PolicyName::External => "external",
            PolicyName::Custom(name) => name,
        }
    }
}

/// The text names no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a policy: expected {names}", names = PolicyName::list())]
pub struct ParsePolicyNameError(String);

impl FromStr for PolicyName {
    type Err = ParsePolicyNameError;

    fn from_str(text: &str) -> Result<PolicyName, ParsePolicyNameError> {
        PolicyName::ALL
            .into_iter()
            .find(|name| name.as_str() == text)
            .ok_or_else(|| ParsePolicyNameError(text.to_owned()))
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for PolicyName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for PolicyName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back_and_the_error_lists_them_all() {
        let error = "globl".parse::<PolicyName>().unwrap_err().to_string();
        for name in PolicyName::ALL {
            assert_eq!(name.as_str().parse(), Ok(name));
            assert!(error.contains(name.as_str()), "{error}");
        }
        assert!(!PolicyName::BUILT_IN.contains(&PolicyName::External));
        assert_eq!(PolicyName::BUILT_IN.len() + 1, PolicyName::ALL.len());
    }
}
