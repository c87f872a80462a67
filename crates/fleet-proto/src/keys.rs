//! The keys of a fleet.
//!
//! Idea: all keys of a fleet begin with `/ballast/CLUSTER/`, so that one range reads them and one
//! watch follows them. The leader and the moves have a prefix of their own, because a host decides
//! what to do from one read of both, and watches one or the other.
//! Limits: names in keys are those of hosts and guests, which have no `/`.

use std::fmt;
use std::str::FromStr;

use ballast_fleet::HostId;
use ballast_model::GuestId;

/// Longest name of a cluster, in bytes.
const CLUSTER_LEN_MAX: usize = 64;

/// The keys of one fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyspace {
    prefix: String,
}

/// What a key is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FleetKey {
    /// Which machine has this host's name.
    Identity(HostId),
    /// What seldom changes of a host.
    Slow(HostId),
    /// What often changes of a host.
    Fast(HostId),
    /// Present if all guests are to leave this host.
    Drain(HostId),
    /// Present if nothing is to be planned.
    Pause,
    /// Who leads.
    Leader,
    /// What the leader planned last.
    Plan,
    /// A guest's move that is under way.
    Move(GuestId),
    /// A guest's moves that are over.
    Past(GuestId),
}

/// A text that is not the name of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no name of a cluster: expected 1 to 64 letters, digits, `.`, `_` or `-`")]
pub struct ParseClusterError(String);

impl Keyspace {
    /// The prefix of all keys; ends in `/`.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The prefix of the leader and of all moves.
    pub fn lead_prefix(&self) -> String {
        format!("{}lead/", self.prefix)
    }

    /// The prefix of moves that are under way; it begins with [`lead_prefix`](Self::lead_prefix).
    pub fn moves_prefix(&self) -> String {
        format!("{}moves/", self.lead_prefix())
    }

    /// The key as text.
    pub fn key(&self, key: &FleetKey) -> String {
        format!("{}{key}", self.prefix)
    }

    /// What a key is about; `None` if it is not of this fleet, or unknown to this version.
    pub fn read(&self, key: &str) -> Option<FleetKey> {
        let steps: Vec<&str> = key.strip_prefix(&self.prefix)?.split('/').collect();
        let host = |name: &str| name.parse::<HostId>().ok();
        let guest = |name: &str| name.parse::<GuestId>().ok();
        match steps[..] {
            ["hosts", name, "id"] => host(name).map(FleetKey::Identity),
            ["hosts", name, "slow"] => host(name).map(FleetKey::Slow),
            ["hosts", name, "fast"] => host(name).map(FleetKey::Fast),
            ["drain", name] => host(name).map(FleetKey::Drain),
            ["pause"] => Some(FleetKey::Pause),
            ["lead", "leader"] => Some(FleetKey::Leader),
            ["plan"] => Some(FleetKey::Plan),
            ["lead", "moves", name] => guest(name).map(FleetKey::Move),
            ["past", name] => guest(name).map(FleetKey::Past),
            _ => None,
        }
    }
}

impl FromStr for Keyspace {
    type Err = ParseClusterError;

    /// The keys of the cluster with this name.
    fn from_str(cluster: &str) -> Result<Keyspace, ParseClusterError> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        let is_valid =
            (1..=CLUSTER_LEN_MAX).contains(&cluster.len()) && cluster.bytes().all(allowed);
        if is_valid {
            return Ok(Keyspace { prefix: format!("/ballast/{cluster}/") });
        }
        let shown = cluster.chars().flat_map(char::escape_debug).take(CLUSTER_LEN_MAX).collect();
        Err(ParseClusterError(shown))
    }
}

impl fmt::Display for FleetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FleetKey::Identity(host) => write!(f, "hosts/{host}/id"),
            FleetKey::Slow(host) => write!(f, "hosts/{host}/slow"),
            FleetKey::Fast(host) => write!(f, "hosts/{host}/fast"),
            FleetKey::Drain(host) => write!(f, "drain/{host}"),
            FleetKey::Pause => f.write_str("pause"),
            FleetKey::Leader => f.write_str("lead/leader"),
            FleetKey::Plan => f.write_str("plan"),
            FleetKey::Move(guest) => write!(f, "lead/moves/{guest}"),
            FleetKey::Past(guest) => write!(f, "past/{guest}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_read_as_what_was_written() {
        let keys: Keyspace = "prod".parse().unwrap();
        let host: HostId = "node-1.example".parse().unwrap();
        for key in [
            FleetKey::Identity(host.clone()),
            FleetKey::Slow(host.clone()),
            FleetKey::Fast(host.clone()),
            FleetKey::Drain(host),
            FleetKey::Pause,
            FleetKey::Leader,
            FleetKey::Plan,
            FleetKey::Move("db-1".parse().unwrap()),
            FleetKey::Past("db-1".parse().unwrap()),
        ] {
            let text = keys.key(&key);
            assert!(text.starts_with("/ballast/prod/"), "{text}");
            assert_eq!(keys.read(&text), Some(key));
        }
    }

    #[test]
    fn foreign_keys_are_ignored() {
        let keys: Keyspace = "prod".parse().unwrap();
        for key in [
            "",
            "/ballast/prod",
            "/ballast/other/pause",
            "/ballast/prod/hosts/a/b/slow",
            "/ballast/prod/hosts//slow",
            "/ballast/prod/hosts/-x/id",
            "/ballast/prod/pause/",
            "/ballast/prod/lead/moves/",
            "/ballast/prod/past/a/b",
        ] {
            assert_eq!(keys.read(key), None, "{key}");
        }
        for cluster in ["", "a/b", "a b", &"x".repeat(65)] {
            assert!(cluster.parse::<Keyspace>().is_err(), "{cluster}");
        }
    }
}
