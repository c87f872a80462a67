//! `[fleet]` of a scenario file: several hosts, each with its own budget and guests.
//!
//! Idea: every host is a run on this machine, with a daemon and a member of the fleet. The scenario
//! is played in turns in two ways: each daemon alone, and with guests that move. Limits: see
//! [`crate::scenario`]; the hosts share the machine's processors and memory, so only the budgets
//! limit a host.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ballast_model::{Bytes, GuestId};
use ballast_toml_strict::{Mistake, duration};
use serde::Deserialize;

use crate::scenario_guest::{ScenarioGuest, check};

/// The name of the variant in which the fleet only recommends moves.
pub const ADVISE: &str = "advise";
/// The name of the variant in which the fleet moves guests.
pub const MOVE: &str = "move";
/// The least and the greatest number of hosts.
const HOSTS: std::ops::RangeInclusive<usize> = 2..=8;
/// The range of a lease in whole seconds, as `fleet.toml` allows.
const LEASE_S: std::ops::RangeInclusive<u64> = 2..=60;

/// The hosts of a scenario and what is expected of their fleet.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioFleet {
    /// The hosts. Their budgets are parts of `host.budget`, and every guest is on one of them.
    pub hosts: Vec<FleetHost>,
    /// The host that has too little memory for its guests; one of them is expected to leave it.
    pub overloaded: GuestId,
    /// The host that leads first and whose member of the fleet is killed once a move has begun; by
    /// default none is killed.
    pub killed: Option<GuestId>,
    /// Length of the last part of a run, in which the work of all guests is compared; the move must
    /// be over by then.
    #[serde(with = "duration")]
    pub window: Duration,
    /// How many times the work of [`ADVISE`] is expected of [`MOVE`] in that part.
    pub work_times: f64,
    /// Time between two records of a host, and between two plans; 1 s by default.
    #[serde(default = "one_second", with = "duration")]
    pub tick: Duration,
    /// How long a host counts as present after its last sign of life; 3 s by default.
    #[serde(default = "three_seconds", with = "duration")]
    pub lease: Duration,
    /// How long a host must need relief before a guest is ordered to move; 10 s by default.
    #[serde(default = "ten_seconds", with = "duration")]
    pub patience: Duration,
    /// The greatest bandwidth of a move, bytes a second; 1 GiB by default.
    #[serde(default = "one_gib")]
    pub bandwidth: Bytes,
}

/// A host of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetHost {
    /// Its name.
    pub name: GuestId,
    /// Memory for all guests on it.
    pub budget: Bytes,
    /// The guests that start on it.
    pub guests: Vec<GuestId>,
}

fn one_second() -> Duration {
    Duration::from_secs(1)
}

fn three_seconds() -> Duration {
    Duration::from_secs(3)
}

fn ten_seconds() -> Duration {
    Duration::from_secs(10)
}

fn one_gib() -> Bytes {
    Bytes::gib(1)
}

impl ScenarioFleet {
    /// Checks it against the scenario's guests, budget and duration.
    pub(crate) fn validate(
        &self,
        guests: &[ScenarioGuest],
        budget: Bytes,
        duration: Duration,
    ) -> Result<(), Mistake> {
        let at = |key: &'static str| ["fleet", key];
        check(&at("hosts"), HOSTS.contains(&self.hosts.len()), || {
            let (least, most) = (HOSTS.start(), HOSTS.end());
            format!("{} hosts: expected {least} to {most}", self.hosts.len())
        })?;
        let names: BTreeSet<_> = self.hosts.iter().map(|host| &host.name).collect();
        check(&at("hosts"), names.len() == self.hosts.len(), || {
            "expected each name once".to_owned()
        })?;
        for (key, name) in
            [("overloaded", Some(&self.overloaded)), ("killed", self.killed.as_ref())]
        {
            let is_host = name.is_none_or(|name| names.contains(name));
            check(&at(key), is_host, || "expected the name of one of the hosts".to_owned())?;
        }
        let mut places: BTreeMap<&GuestId, usize> = BTreeMap::new();
        for guest in self.hosts.iter().flat_map(|host| &host.guests) {
            *places.entry(guest).or_insert(0) += 1;
        }
        for guest in guests {
            let count = places.remove(&guest.name).unwrap_or(0);
            check(&at("hosts"), count == 1, || {
                format!("guest `{}` is on {count} hosts: expected one", guest.name)
            })?;
        }
        check(&at("hosts"), places.is_empty(), || {
            let names: Vec<&str> = places.keys().map(|name| name.as_str()).collect();
            format!("no guest `{}` in this scenario", names.join("`, `"))
        })?;
        for host in &self.hosts {
            let here = guests.iter().filter(|guest| host.guests.contains(&guest.name));
            let least: Bytes =
                here.map(|it| it.start().max(it.limits().floor_for(it.memory))).sum();
            check(&at("hosts"), !host.guests.is_empty() && least <= host.budget, || {
                let (name, budget) = (&host.name, host.budget);
                format!("host `{name}` has {budget}, and its guests start with {least}")
            })?;
        }
        let budgets: Bytes = self.hosts.iter().map(|host| host.budget).sum();
        check(&["host", "budget"], budgets == budget, || {
            format!("expected {budgets}, the sum of the budgets of fleet.hosts")
        })?;
        check(&at("window"), !self.window.is_zero() && self.window < duration, || {
            "expected more than 0s and less than duration".to_owned()
        })?;
        check(&at("work_times"), self.work_times.is_finite() && self.work_times > 0.0, || {
            "expected more than 0".to_owned()
        })?;
        let is_lease = self.lease.subsec_nanos() == 0 && LEASE_S.contains(&self.lease.as_secs());
        check(&at("lease"), is_lease, || "expected whole seconds, 2s to 60s".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Scenario, VariantKind};
    use std::path::Path;

    const GOOD: &str = r#"
name = "f"
duration = "60s"
policies = ["static"]
[host]
budget = "1GiB"
[fleet]
overloaded = "a"
killed = "b"
window = "20s"
work_times = 1.5
hosts = [
    { name = "a", budget = "512MiB", guests = ["a1"] },
    { name = "b", budget = "512MiB", guests = ["b1", "b2"] },
]
[[guests]]
name = "a1"
memory = "512MiB"
[[guests]]
name = "b1"
memory = "256MiB"
[[guests]]
name = "b2"
memory = "256MiB"
"#;

    fn parse(text: &str) -> Result<Scenario, String> {
        Scenario::parse(text, Path::new("f.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn each_host_is_a_scenario_of_its_own() {
        let scenario = parse(GOOD).unwrap();
        let fleet = scenario.fleet.as_ref().unwrap();
        let (second, lease) = (Duration::from_secs(1), Duration::from_secs(3));
        assert_eq!((fleet.tick, fleet.lease, fleet.bandwidth), (second, lease, Bytes::gib(1)));
        let b = scenario.on_host(&fleet.hosts[1]).unwrap();
        assert_eq!((b.name.as_str(), b.host.budget), ("f-b", Bytes::mib(512)));
        let names: Vec<&str> = b.guests.iter().map(|guest| guest.name.as_str()).collect();
        assert_eq!(names, ["b1", "b2"]);
        assert!(b.run_options().validate().is_ok());
    }

    #[test]
    fn it_is_played_without_moves_and_with_them() {
        let variants = parse(GOOD).unwrap().contestants();
        let kinds: Vec<_> = variants.iter().map(|it| (it.name.as_str(), it.kind)).collect();
        assert_eq!(kinds, [(ADVISE, VariantKind::Advise), (MOVE, VariantKind::Move)]);
        assert_eq!(variants[1].policy["name"], "static");
    }

    #[test]
    fn every_mistake_of_a_fleet_is_reported() {
        for (from, to, expected) in [
            ("overloaded = \"a\"", "overloaded = \"x\"", "fleet.overloaded: expected the name"),
            ("killed = \"b\"", "killed = \"x\"", "fleet.killed: expected the name of one"),
            ("\"b1\", \"b2\"", "\"b1\"", "guest `b2` is on 0 hosts"),
            ("\"b1\", \"b2\"", "\"b1\", \"b2\", \"a1\"", "guest `a1` is on 2 hosts"),
            ("\"b1\", \"b2\"", "\"b1\", \"b2\", \"b3\"", "no guest `b3` in this scenario"),
            ("{ name = \"b\"", "{ name = \"a\"", "fleet.hosts: expected each name once"),
            ("budget = \"1GiB\"", "budget = \"2GiB\"", "host.budget: expected 1GiB, the sum"),
            ("name = \"b\", budget = \"512MiB\"", "name = \"b\", budget = \"300MiB\"", "300MiB"),
            ("window = \"20s\"", "window = \"60s\"", "fleet.window: expected more than 0s and"),
            ("work_times = 1.5", "work_times = -1.0", "fleet.work_times: expected more than 0"),
            ("window =", "lease = \"1s\"\nwindow =", "fleet.lease: expected whole seconds"),
            ("[\"static\"]", "[\"static\", \"global\"]", "policies: expected one policy"),
            ("[host]", "best = true\n[host]", "best: cannot be had with several hosts"),
            ("[host]", "[settings]\nmanager = \"libvirt\"\n[host]", "settings.manager: expected"),
            ("window =", "windw =", "unknown key `windw`"),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let error = parse(&GOOD.replacen(from, to, 1)).expect_err(to);
            assert!(error.contains(expected), "{to}: {error}");
        }
    }
}
