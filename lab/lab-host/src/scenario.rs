//! Scenario files: guests, workloads and policies of an experiment.
//!
//! Idea: a TOML file defines the guests, their workloads over time, the memory they share and the
//! policies to compare. Reading is a pure function of the text; every mistake is reported with
//! file, line, column and key. `[policy]` and `[tracking]` are tables of the daemon's
//! configuration, which gets them unchanged; `[[paper]]` has published results to compare with.
//! Limits: unknown keys are refused; the constants below are the ranges of values. The daemon
//! checks the values of its own tables.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use ballast_model::{Bytes, GuestId, ParseGuestIdError, PolicyName};
use ballast_toml_strict::{Error, Mistake, duration};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::accel::AccelChoice;
use crate::host_swap;
use crate::libvirt::Manager;
use crate::scenario_fleet::{ADVISE, FleetHost, MOVE, ScenarioFleet};
use crate::scenario_guest::{ScenarioGuest, check};
use crate::scenario_settings::{ByHand, Settings, Transfer};
use crate::scenario_variant::{BEST, BY_HAND, Variant, VariantKind, check_policy, merged};
use crate::{Balloon, GUESTS_MAX, GuestSpec, RunOptions, Truth};

/// Longest scenario.
const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);
/// Most repetitions.
const REPETITIONS_MAX: u32 = 1000;
/// A kernel that keeps less than 1 MiB free can lock up.
const MIN_FREE_MIN: Bytes = Bytes::mib(1);
/// Most variants.
const VARIANTS_MAX: usize = 16;
/// Longest name of a variant, in bytes.
const NAME_BYTES_MAX: usize = 40;

/// A scenario.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name, also that of its run.
    pub name: GuestId,
    /// Length of a measurement, per policy and repetition.
    #[serde(with = "duration")]
    pub duration: Duration,
    /// Number of repetitions; 1 by default.
    #[serde(default = "one")]
    pub repetitions: u32,
    /// The policies, in the order in which they run; `static` and `global` by default.
    #[serde(default = "default_policies", deserialize_with = "policies")]
    pub policies: Vec<String>,
    /// Policies with settings of their own; they run after the policies.
    #[serde(default)]
    pub variants: Vec<Variant>,
    /// Whether the guests also run with all their memory, the best possible result: last, under the
    /// name [`BEST`]; no by default.
    #[serde(default)]
    pub best: bool,
    /// Whether and how balloons are also set by hand, as an operator would who knows what comes.
    /// This is a bound on what any daemon can reach. Runs after the policies, under the name
    /// [`BY_HAND`].
    pub by_hand: Option<ByHand>,
    /// Whether each guest's need is measured first, by bisection: the least memory in which it
    /// reads nothing back from swap; no by default.
    #[serde(default)]
    pub needs: bool,
    /// What the guests share.
    pub host: Host,
    /// The settings of the run.
    #[serde(default)]
    pub settings: Settings,
    /// The daemon's `[policy]`, for every policy.
    #[serde(default)]
    pub policy: Map<String, Value>,
    /// The daemon's `[tracking]`, for every policy.
    #[serde(default)]
    pub tracking: Map<String, Value>,
    /// A timed transfer of memory between two guests, if any.
    pub transfer: Option<Transfer>,
    /// Several hosts, between which guests may move, instead of one.
    pub fleet: Option<ScenarioFleet>,
    /// A paper's results in this situation; `ballast simulate` reads them too.
    #[serde(default)]
    pub paper: Vec<Map<String, Value>>,
    /// The guests.
    pub guests: Vec<ScenarioGuest>,
}

/// What the guests share.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Memory for all guests together.
    pub budget: Bytes,
    /// Memory that stays free on the host in addition to the budget; the daemon's default if unset.
    pub reserve: Option<Bytes>,
    /// Swap added to the host during each run, in a file of its own; none by default.
    pub swap: Option<Bytes>,
}

fn one() -> u32 {
    1
}

fn default_policies() -> Vec<String> {
    [PolicyName::Static, PolicyName::Global].map(|name| name.to_string()).to_vec()
}

fn policies<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    for name in &names {
        check_policy(name).map_err(serde::de::Error::custom)?;
    }
    Ok(names)
}

impl Scenario {
    /// Reads a scenario from `text`, the contents of `file`.
    ///
    /// # Errors
    /// The first mistake, with its place.
    pub fn parse(text: &str, file: &Path) -> Result<Scenario, Error> {
        let scenario: Scenario = ballast_toml_strict::parse(text, file)?;
        scenario.validate().map_err(|mistake| mistake.in_file(text, file))?;
        Ok(scenario)
    }

    /// All variants to compare, in the order in which they run; each includes the scenario's common
    /// settings.
    pub fn contestants(&self) -> Vec<Variant> {
        let policies = self.policies.iter().map(|policy| Variant::of(policy));
        let special = |name: &str, kind| Variant {
            name: name.to_owned(),
            kind,
            ..Variant::of(PolicyName::Static.as_str())
        };
        let mut all: Vec<Variant> = policies.chain(self.variants.iter().cloned()).collect();
        if self.fleet.is_some() {
            let kinds = [(ADVISE, VariantKind::Advise), (MOVE, VariantKind::Move)];
            let both = |policy: Variant| {
                kinds.map(|(name, kind)| Variant { name: name.to_owned(), kind, ..policy.clone() })
            };
            all = all.into_iter().flat_map(both).collect();
        }
        all.extend(self.by_hand.as_ref().map(|_| special(BY_HAND, VariantKind::ByHand)));
        all.extend(self.best.then(|| special(BEST, VariantKind::Best)));
        for variant in &mut all {
            variant.policy = merged(&self.policy, &variant.policy);
            variant.tracking = merged(&self.tracking, &variant.tracking);
        }
        all
    }

    /// The same scenario with all the memory that the guests can have.
    #[must_use]
    pub fn unlimited(&self) -> Scenario {
        let mut scenario = self.clone();
        scenario.host.budget = self.guests.iter().map(ScenarioGuest::memory_max).sum();
        for guest in &mut scenario.guests {
            (guest.start, guest.floor, guest.ceiling) = (None, None, None);
        }
        scenario
    }

    /// Whether guests have all their memory under `static`, too, so that [`BEST`] is the same run;
    /// for example with a single guest on a host.
    pub fn is_best_static(&self) -> bool {
        let has_all = |guest: &ScenarioGuest| {
            let (most, ceiling) = (guest.memory_max(), guest.ceiling);
            guest.start() == most && ceiling.is_none_or(|ceiling| ceiling >= most)
        };
        let is_static = |policy: &String| policy == PolicyName::Static.as_str();
        // The budget is at least the sum of the start sizes.
        self.best && self.policies.iter().any(is_static) && self.guests.iter().all(has_all)
    }

    /// The scenario of one of its hosts: with that host's budget and the guests that start there.
    /// Its run has its own name.
    ///
    /// # Errors
    /// The name is too long for a run.
    pub fn on_host(&self, host: &FleetHost) -> Result<Scenario, ParseGuestIdError> {
        let is_here = |guest: &&ScenarioGuest| host.guests.contains(&guest.name);
        Ok(Scenario {
            name: format!("{}-{}", self.name, host.name).parse()?,
            host: Host { budget: host.budget, ..self.host.clone() },
            guests: self.guests.iter().filter(is_here).cloned().collect(),
            fleet: None,
            ..self.clone()
        })
    }

    /// The run of this scenario.
    pub fn run_options(&self) -> RunOptions {
        let balloon = Balloon {
            free_page_reporting: self.settings.free_page_reporting,
            deflate_on_oom: self.settings.deflate_on_oom,
        };
        let guests = self.guests.iter().map(|guest| GuestSpec {
            swap: guest.swap,
            data: guest.data,
            balloon: Some(balloon),
            hotplug: guest.hotplug,
            with: guest.programs(),
            truth: self.settings.truth.then(Truth::default),
            tracked: self.settings.track,
            agent: self.settings.agent,
            min_free: self.settings.min_free,
            ..GuestSpec::new(guest.name.clone(), guest.memory)
        });
        RunOptions {
            accel: self.settings.accel,
            kernel: self.settings.kernel.clone(),
            limit_cpu: self.settings.limit_cpu,
            host_swap: self.host.swap,
            manager: self.settings.manager,
            ..RunOptions::new(self.name.clone(), guests.collect())
        }
    }

    fn validate(&self) -> Result<(), Mistake> {
        check(&["duration"], !self.duration.is_zero() && self.duration <= DURATION_MAX, || {
            "expected more than 0s and at most 24h".to_owned()
        })?;
        check(&["repetitions"], (1..=REPETITIONS_MAX).contains(&self.repetitions), || {
            format!("{}: expected 1 to {REPETITIONS_MAX}", self.repetitions)
        })?;
        let policies: BTreeSet<_> = self.policies.iter().collect();
        check(
            &["policies"],
            !(policies.is_empty() && self.variants.is_empty())
                && policies.len() == self.policies.len(),
            || "expected at least one policy, and each once".to_owned(),
        )?;
        self.validate_variants()?;
        check(&["settings", "tick"], !self.settings.tick.is_zero(), || {
            "expected more than 0s".to_owned()
        })?;
        let min_free = self.settings.min_free;
        check(&["settings", "min_free"], min_free.is_none_or(|it| it >= MIN_FREE_MIN), || {
            format!("expected at least {MIN_FREE_MIN}")
        })?;
        check(&["guests"], (1..=GUESTS_MAX).contains(&self.guests.len()), || {
            format!("{} guests: expected 1 to {GUESTS_MAX}", self.guests.len())
        })?;
        let mut names = BTreeSet::new();
        for (number, guest) in self.guests.iter().enumerate() {
            let number = number.to_string();
            let at = |key| ["guests", &number, key];
            check(&at("name"), names.insert(&guest.name), || {
                format!("guest `{}` is defined twice", guest.name)
            })?;
            guest.validate(&number)?;
            let stops_before = guest.balloon_stops.is_none_or(|stops| stops < self.duration);
            check(&at("balloon_stops"), stops_before, || {
                "is not before the end: expected less than duration".to_owned()
            })?;
            guest.validate_workloads(&number, self.duration)?;
        }
        let swap = self.host.swap.map_or(Ok(()), host_swap::validate);
        swap.map_err(|why| Mistake::at(&["host", "swap"], why))?;
        if let Some(transfer) = &self.transfer {
            transfer.validate(&self.guests)?;
        }
        if let Some(by_hand) = &self.by_hand {
            by_hand.validate(&self.guests, self.host.budget, self.duration)?;
        }
        self.validate_manager()?;
        self.validate_fleet()?;
        self.validate_sums()
    }

    /// Under Xen there is no QEMU monitor for the lab and no choice of accelerator.
    fn validate_manager(&self) -> Result<(), Mistake> {
        let is_xen = self.settings.manager == Manager::Xen;
        let stops = self.guests.iter().any(|guest| guest.balloon_stops.is_some());
        for (key, is_there) in [
            ("transfer", self.transfer.is_some()),
            ("by_hand", self.by_hand.is_some()),
            ("guests.balloon_stops", stops),
            ("settings.accel", self.settings.accel != AccelChoice::Auto),
        ] {
            check(&["settings", "manager"], !(is_xen && is_there), || {
                format!("{key} cannot be had under xen: expected another manager")
            })?;
        }
        Ok(())
    }

    fn validate_fleet(&self) -> Result<(), Mistake> {
        let Some(fleet) = &self.fleet else { return Ok(()) };
        fleet.validate(&self.guests, self.host.budget, self.duration)?;
        for (key, is_there) in [
            ("variants", !self.variants.is_empty()),
            ("best", self.best),
            ("by_hand", self.by_hand.is_some()),
            ("needs", self.needs),
            ("transfer", self.transfer.is_some()),
        ] {
            check(&[key], !is_there, || "cannot be had with several hosts".to_owned())?;
        }
        check(&["policies"], self.policies.len() == 1, || {
            "expected one policy, under which each host's daemon runs".to_owned()
        })?;
        check(&["settings", "manager"], self.settings.manager == Manager::Qemu, || {
            "expected `qemu`: only guests of the lab itself can move".to_owned()
        })
    }

    fn validate_variants(&self) -> Result<(), Mistake> {
        let mut names: BTreeSet<&str> = self.policies.iter().map(String::as_str).collect();
        names.extend([BEST, BY_HAND]);
        check(&["variants"], self.variants.len() <= VARIANTS_MAX, || {
            format!("{}: expected at most {VARIANTS_MAX}", self.variants.len())
        })?;
        for (number, variant) in self.variants.iter().enumerate() {
            let number = number.to_string();
            let at = |key| ["variants", &number, key];
            check(&at("name"), names.insert(&variant.name), || {
                format!("`{}` is already the name of another", variant.name)
            })?;
            let is_name = !variant.name.trim().is_empty() && variant.name.len() <= NAME_BYTES_MAX;
            check(&at("name"), is_name, || format!("expected 1 to {NAME_BYTES_MAX} bytes"))?;
            let policy = variant.policy.get("name").and_then(Value::as_str);
            check(&at("policy"), policy.is_some_and(|it| check_policy(it).is_ok()), || {
                format!("expected the name of a policy, as in {{ name = \"{}\" }}", PolicyName::Meb)
            })?;
        }
        Ok(())
    }

    fn validate_sums(&self) -> Result<(), Mistake> {
        let budget = self.host.budget;
        let floors = self.guests.iter().map(|guest| guest.limits().floor_for(guest.memory)).sum();
        check(&["host", "budget"], budget >= floors, || {
            format!("{budget} is less than the guests' floors, {floors} in all")
        })?;
        let starts = self.guests.iter().map(ScenarioGuest::start).sum();
        check(&["host", "budget"], budget >= starts, || {
            format!("{budget} is less than the guests start with, {starts} in all")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DemandSignal, Hotplug, HotplugKind, ScenarioWorkload};
    use ballast_lab_guest::workload::Pattern;
    use ballast_model::GuestLimits;
    use proptest::prelude::*;

    const GOOD: &str = r#"
name = "s"
duration = "60s"
[host]
budget = "1GiB"
[[guests]]
name = "a"
memory = "1GiB"
start = "512MiB"
swap = { size = "1GiB", speed = "ssd" }
data = { size = "64MiB", speed = { iops = 100, bytes_per_second = 1000000 } }
[[guests.workloads]]
at = "5s"
kind = "mono"
low = "50MiB"
high = "650MiB"
ramp_s = 10.0
[[guests]]
name = "b"
memory = "1GiB"
start = "512MiB"
"#;

    fn parse(text: &str) -> Result<Scenario, String> {
        Scenario::parse(text, Path::new("s.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn demo_scenario_is_read() {
        let text = include_str!("../../../scenarios/lab/demo.toml");
        let demo = Scenario::parse(text, Path::new("demo.toml")).unwrap();
        assert_eq!(demo.policies, ["static", "global"]);
        assert!(demo.run_options().validate().is_ok());
    }

    #[test]
    fn missing_keys_have_defaults() {
        let scenario = parse(GOOD).unwrap();
        assert_eq!(scenario.repetitions, 1);
        assert_eq!(scenario.policies, default_policies());
        assert_eq!(scenario.settings, Settings::default());
        let [a, b] = &scenario.guests[..] else { panic!("two guests") };
        assert_eq!((a.workloads[0].id().as_str(), a.workloads[0].at.as_secs()), ("mono", 5));
        let dry = GuestLimits { swap: Some(false), ..GuestLimits::default() };
        assert_eq!((b.limits(), b.swap), (dry, None));
        assert_eq!(scenario.run_options().guests[0].swap, a.swap);
    }

    #[test]
    fn hotplug_raises_the_ceiling() {
        let more = r#"hotplug = { max = "1GiB", kind = "dimm", online = false }
start = "512MiB"
ceiling = "2GiB""#;
        let scenario = parse(&GOOD.replacen("start = \"512MiB\"", more, 1)).unwrap();
        let hotplug = Hotplug { max: Bytes::gib(1), kind: HotplugKind::Dimm, online: false };
        assert_eq!(scenario.run_options().guests[0].hotplug, Some(hotplug));
        assert_eq!(scenario.unlimited().host.budget, Bytes::gib(3));
        let plain = more.replace(", kind = \"dimm\", online = false", "");
        let scenario = parse(&GOOD.replacen("start = \"512MiB\"", &plain, 1)).unwrap();
        assert_eq!(scenario.guests[0].hotplug, Some(Hotplug::virtio_mem(Bytes::gib(1))));
    }

    #[test]
    fn balloon_stop_host_swap_and_transfer_are_read() {
        let more =
            "[transfer]\nfrom = \"b\"\nto = \"a\"\namount = \"256MiB\"\n[host]\nswap = \"1GiB\"";
        let text = GOOD.replacen("[host]", more, 1);
        let stops = "start = \"512MiB\"\nballoon_stops = \"20s\"";
        let scenario = parse(&text.replacen("start = \"512MiB\"", stops, 1)).unwrap();
        assert_eq!(scenario.run_options().host_swap, Some(Bytes::gib(1)));
        assert_eq!(scenario.guests[0].balloon_stops, Some(Duration::from_secs(20)));
        let transfer = scenario.transfer.unwrap();
        assert_eq!((transfer.amount, transfer.demand), (Bytes::mib(256), DemandSignal::Use));
        let with_demand = more.replacen("\n[host]", "\ndemand = \"floor\"\n[host]", 1);
        let scenario = parse(&GOOD.replacen("[host]", &with_demand, 1)).unwrap();
        assert_eq!(scenario.transfer.unwrap().demand, DemandSignal::Floor);
    }

    #[test]
    fn balloons_set_by_hand_fit_guests_and_budget() {
        let by_hand = |table: &str| parse(&format!("{GOOD}[by_hand]\n{table}"));
        let scenario = by_hand("at = \"5s\"\nguests = { a = \"768MiB\", b = \"256MiB\" }").unwrap();
        let names: Vec<String> = scenario.contestants().into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["static", "global", BY_HAND]);
        for (table, expected) in [
            ("at = \"60s\"\nguests = {}", "by_hand.at: is not before the end"),
            ("at = \"5s\"\nguests = { c = \"1GiB\" }", "no guest `c`"),
            ("at = \"5s\"\nguests = { a = \"2GiB\" }", "expected its floor, 128MiB, to its"),
            ("at = \"5s\"\nguests = { a = \"1MiB\" }", "expected its floor, 128MiB, to its"),
            ("at = \"5s\"\nguests = { a = \"768MiB\" }", "1.3GiB in all is more than host.budget"),
        ] {
            let error = by_hand(table).unwrap_err();
            assert!(error.contains(expected), "{table}: {error}");
        }
    }

    #[test]
    fn every_mistake_is_reported_with_place_and_key() {
        let (host, budget, start) = ("[host]", "budget = \"1GiB\"", "start = \"512MiB\"");
        let above = |keys: &str| format!("{keys}\n[host]");
        let transfer = |[from, to, amount]: [&str; 3]| {
            let guests = format!("from = \"{from}\"\nto = \"{to}\"");
            above(&format!("[transfer]\n{guests}\namount = \"{amount}\""))
        };
        for (from, to, expected) in [
            ("duration = \"60s\"", "duration = 60", "s.toml:3:12: duration: 60 has no unit"),
            ("duration = \"60s\"", "duration = \"0s\"", "s.toml:3:12: duration: expected more"),
            ("duration =", "dration =", "unknown key `dration`: did you mean `duration`"),
            (budget, "budget = \"200MiB\"", "host.budget: 200MiB is less than the"),
            (budget, "budget = \"900MiB\"", "less than the guests start with"),
            ("name = \"b\"", "name = \"a\"", "guests[1].name: guest `a` is defined twice"),
            ("name = \"b\"", "name = \"-b\"", "is not a guest name"),
            (start, "start = \"2GiB\"", "start: 2GiB is more than memory = 1GiB"),
            (start, "start = \"64MiB\"", "64MiB is not between floor 128MiB"),
            (start, "floor = \"2GiB\"", "floor: 2GiB is more than memory"),
            (start, "ceiling = \"2GiB\"", "ceiling: 2GiB is more than its memory"),
            (start, "hotplug = { max = \"100MiB\" }", "hotplug: max = 100MiB must be whole 128MiB"),
            (start, "hotplug = { max = \"1GiB\", by = 1 }", "unknown key `by`"),
            (start, "shares = 0", "shares 0 is out of range"),
            (start, "balloon_stops = \"60s\"", "balloon_stops: is not before the end"),
            (start, "balloon_stops = 9", "balloon_stops: 9 has no unit"),
            (budget, &format!("{budget}\nswap = \"1MiB\""), "host.swap: 1MiB of swap is"),
            (host, &transfer(["a", "c", "64MiB"]), "transfer.to: no guest `c`"),
            (host, &transfer(["b", "b", "64MiB"]), "transfer.to: `b` is the giver"),
            (host, &transfer(["a", "b", "64MiB"]), "transfer.to: guest `b` has no workload"),
            (host, &transfer(["b", "a", "600MiB"]), "transfer.amount: 600MiB is more than"),
            (host, &transfer(["b", "a", "1MiB\"\nat = \"5s"]), "unknown key `at`"),
            ("memory = \"1GiB\"", "memory = \"1MiB\"", "memory 1MiB must be whole MiB"),
            (
                host,
                &above("settings.intermittent = 0.5"),
                "expected \"adaptive\", \"off\" or a number from 0.05 to 0.3",
            ),
            (host, &above("settings.kernel = \"6.12\""), "settings.kernel: `6.12` is not a kernel"),
            ("speed = \"ssd\"", "speed = \"sdd\"", "`sdd` is not a speed"),
            ("size = \"1GiB\", ", "size = \"4KiB\", ", "swap: a disk of 4KiB is too small"),
            ("at = \"5s\"", "at = \"60s\"", "workloads[0].at: is not before the end"),
            (
                "at = \"5s\"",
                "at = \"5s\"\nprepared = true",
                "workloads[0].at: is later than a prepared workload begins",
            ),
            (start, "work = 0", "work"),
            ("kind = \"mono\"", "kind = \"monu\"", "monu"),
            ("low = \"50MiB\"", "lwo = \"50MiB\"", "lwo"),
            ("low = \"50MiB\"", "low = \"900MiB\"", "low = 900MiB is more than high"),
            (host, &above("policies = [\"globl\"]"), "`globl` is not a policy"),
            (host, &above("policies = []"), "at least one policy"),
            (host, &above("repetitions = 0"), "repetitions: 0: expected 1 to"),
            (host, &above("[[variants]]\nname = \"x\"\n[variants.policy]"), "name of a policy"),
            (
                host,
                &above("[[variants]]\nname = \"best\"\npolicy = { name = \"meb\" }"),
                "variants[0].name: `best` is already the name of another",
            ),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let error = parse(&GOOD.replacen(from, to, 1)).expect_err(to);
            assert!(error.contains(expected) && error.starts_with("s.toml:"), "{to}: {error}");
        }
    }

    #[test]
    fn variants_follow_the_policies_with_common_settings() {
        let more = r#"
policies = ["static"]
best = true
[policy]
interval = "1s"
meb = { shrink_max = 0.2, step = "2MiB" }
[tracking]
budget = 0.01
[[variants]]
name = "slow"
policy = { name = "meb", meb = { shrink_max = 0.1 } }
tracking = { every = true }
[host]"#;
        let scenario = parse(&GOOD.replacen("[host]", more, 1)).unwrap();
        let contestants: Vec<String> = scenario
            .contestants()
            .into_iter()
            .map(|it| {
                format!("{} {} {}", it.name, Value::from(it.policy), it.kind == VariantKind::Best)
            })
            .collect();
        let common = r#""interval":"1s","meb":{"shrink_max":0.2,"step":"2MiB"},"name":"static""#;
        assert_eq!(
            contestants,
            [
                format!("static {{{common}}} false"),
                r#"slow {"interval":"1s","meb":{"shrink_max":0.1,"step":"2MiB"},"name":"meb"} false"#
                    .to_owned(),
                format!("best {{{common}}} true"),
            ]
        );
        let slow = &scenario.contestants()[1];
        assert_eq!(
            Value::from(slow.tracking.clone()).to_string(),
            r#"{"budget":0.01,"every":true}"#
        );
        let unlimited = scenario.unlimited();
        assert_eq!(unlimited.host.budget, Bytes::gib(2));
        assert_eq!(unlimited.guests[0].start(), Bytes::gib(1));
    }

    #[test]
    fn best_is_static_where_nobody_lacks_memory() {
        let alone = GOOD[..GOOD.rfind("[[guests]]").unwrap()]
            .replace("start = \"512MiB\"\n", "")
            .replace("[host]", "best = true\n[host]");
        let is_it = |from: &str, to: &str| {
            assert!(alone.contains(from), "{from}");
            parse(&alone.replacen(from, to, 1)).unwrap().is_best_static()
        };
        assert!(is_it("", ""));
        for (from, to) in [
            ("best = true", "best = false"),
            ("[host]", "policies = [\"global\"]\n[host]"),
            ("memory = \"1GiB\"", "memory = \"1GiB\"\nstart = \"900MiB\""),
            ("memory = \"1GiB\"", "memory = \"1GiB\"\nhotplug = { max = \"1GiB\" }"),
            ("memory = \"1GiB\"", "memory = \"1GiB\"\nceiling = \"900MiB\""),
        ] {
            assert!(!is_it(from, to), "{to}");
        }
    }

    #[test]
    fn unnamed_workload_is_named_by_its_kind() {
        let pattern = Pattern::FileRandom { size: Bytes::mib(1) };
        let workload = ScenarioWorkload {
            at: Duration::ZERO,
            id: None,
            prepared: false,
            spec: pattern.into(),
        };
        assert_eq!(workload.id(), "file-random");
    }

    #[test]
    fn file_workload_must_fit_its_data_disk() {
        let text = GOOD.replace(
            "kind = \"mono\"\nlow = \"50MiB\"\nhigh = \"650MiB\"\nramp_s = 10.0",
            "kind = \"file-random\"\nsize = \"32MiB\"",
        );
        assert!(parse(&text).is_ok(), "{:?}", parse(&text));
        for text in [text.replace("32MiB", "64MiB"), text.replace("data =", "# data =")] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains("does not fit"), "{error}");
        }
    }

    #[test]
    fn postgresql_must_fit_its_data_disk() {
        let text = GOOD.replace(
            "kind = \"mono\"\nlow = \"50MiB\"\nhigh = \"650MiB\"\nramp_s = 10.0",
            "kind = \"program\"\nprogram = \"postgresql\"\nsize = \"32MiB\"",
        );
        assert!(parse(&text.replace("64MiB", "640MiB")).is_ok());
        for text in [text.clone(), text.replace("data =", "# data =")] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains("a `data` of at least 640MiB"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_without_panic(text in ".{0,200}") {
            let _ = parse(&text);
        }

        #[test]
        fn damaged_scenarios_are_read_or_refused_without_panic(
            at in 0..GOOD.len(), len in 0usize..40, with in "[ -~]{0,10}"
        ) {
            let end = (at + len).min(GOOD.len());
            let _ = parse(&format!("{}{with}{}", &GOOD[..at], &GOOD[end..]));
        }
    }
}
