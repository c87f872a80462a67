//! Scenario files: what happens in a run, and for how long.
//!
//! Idea: a TOML file says which guests there are, what they do when, how much memory they share and
//! which policies are compared. Reading is a pure function of the text; every mistake is told with
//! its file, line, column and key.
//! `[policy]` and `[tracking]` are tables of the daemon's own configuration and are handed to it as they are;
//! `[[paper]]` is for whoever compares.
//! Limits: unknown keys are refused; the figures' bounds are the constants below. What is wrong in the
//! daemon's tables only the daemon knows.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use ballast_lab_guest::workload::{Pattern, Program, WorkloadSpec};
use ballast_model::{Bytes, GuestId, GuestLimits, PolicyName};
use ballast_toml_strict::{Error, duration};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::host_swap;
use crate::postgresql::IMAGE_SIZE;
use crate::scenario_settings::{Settings, Transfer};
use crate::scenario_variant::{BEST, Variant, over};
use crate::{Balloon, DiskSpec, GUESTS_MAX, GuestSpec, Hotplug, RunOptions, Truth};

/// Longest scenario.
const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);
/// Most repetitions.
const REPETITIONS_MAX: u32 = 1000;
/// Most workloads of a guest.
const WORKLOADS_MAX: usize = ballast_lab_guest::protocol::WORKLOADS_MAX;

/// Most variants.
const VARIANTS_MAX: usize = 16;
/// Longest name of one.
const NAME_BYTES_MAX: usize = 40;

/// A scenario.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name, which the run gets too.
    pub name: GuestId,
    /// How long is measured, for each policy and repetition.
    #[serde(with = "duration")]
    pub duration: Duration,
    /// How often everything is repeated; 1 without it.
    #[serde(default = "one")]
    pub repetitions: u32,
    /// The policies, in the order in which they run; `static` and `global` without it.
    #[serde(default = "default_policies", deserialize_with = "policies")]
    pub policies: Vec<PolicyName>,
    /// Further runs, each a policy with settings of its own; they come after the policies.
    #[serde(default)]
    pub variants: Vec<Variant>,
    /// Whether the guests also run with all their memory, which is the best there is to reach: after all
    /// others, under the name [`BEST`]; no.
    #[serde(default)]
    pub best: bool,
    /// Whether it is found out before, by bisection, in how little memory each guest reads nothing back; no.
    #[serde(default)]
    pub needs: bool,
    /// What the guests share.
    pub host: Host,
    /// How the run is set up.
    #[serde(default)]
    pub settings: Settings,
    /// Of the daemon's configuration, under every policy.
    #[serde(default)]
    pub policy: Map<String, Value>,
    /// The same, of how it tracks guests.
    #[serde(default)]
    pub tracking: Map<String, Value>,
    /// A transfer of memory from guest to guest that is timed; none without it.
    #[serde(default)]
    pub transfer: Option<Transfer>,
    /// What a paper measured in this situation, as `ballast simulate` has it too.
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
    /// Memory that stays free on the host beside it; without it, what the daemon takes.
    #[serde(default)]
    pub reserve: Option<Bytes>,
    /// Swap that the host has during each run, of a file that is made for it; without it, what it has anyway.
    #[serde(default)]
    pub swap: Option<Bytes>,
}

/// A guest of a scenario.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioGuest {
    /// Its name.
    pub name: GuestId,
    /// Memory it boots with; no balloon can grow it further.
    pub memory: Bytes,
    /// What it is ballooned to before measuring; all of its memory without it.
    #[serde(default)]
    pub start: Option<Bytes>,
    /// What it is guaranteed; the daemon's default without it.
    #[serde(default)]
    pub floor: Option<Bytes>,
    /// What it may have at most; its memory, and what can be plugged in, without it.
    #[serde(default)]
    pub ceiling: Option<Bytes>,
    /// Memory that can be plugged in while it runs; none without it.
    #[serde(default)]
    pub hotplug: Option<Hotplug>,
    /// Time from the beginning of the measurement after which its balloon does nothing any more, because its driver
    /// is unloaded; never without it. What its balloon has then, it gets back.
    #[serde(default, with = "duration::option")]
    pub balloon_stops: Option<Duration>,
    /// Its weight; 1,000 without it.
    #[serde(default)]
    pub shares: Option<u32>,
    /// When memory is short, guests of lower priority go without first; 0 without it.
    #[serde(default)]
    pub priority: u8,
    /// The disk it swaps to; none without it.
    #[serde(default)]
    pub swap: Option<DiskSpec>,
    /// The disk for files; none without it.
    #[serde(default)]
    pub data: Option<DiskSpec>,
    /// Programs packed into it.
    #[serde(default)]
    pub with: BTreeSet<String>,
    /// What it does; nothing without it.
    #[serde(default)]
    pub workloads: Vec<ScenarioWorkload>,
}

/// A workload and when it begins.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ScenarioWorkload {
    /// Time from the beginning of the measurement; 0 without it.
    #[serde(default, with = "duration")]
    pub at: Duration,
    /// Its name, unique in its guest; without it its kind, and of a program that program's.
    #[serde(default)]
    pub id: Option<String>,
    /// What it does; refuses the keys it does not know.
    #[serde(flatten)]
    pub spec: WorkloadSpec,
}

fn one() -> u32 {
    1
}

fn default_policies() -> Vec<PolicyName> {
    vec![PolicyName::Static, PolicyName::Global]
}

fn policies<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PolicyName>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    names.iter().map(|name| name.parse().map_err(serde::de::Error::custom)).collect()
}

impl ScenarioGuest {
    /// What it is ballooned to before measuring.
    pub fn start(&self) -> Bytes {
        self.start.unwrap_or(self.memory)
    }

    /// The most it can ever hold.
    pub fn memory_max(&self) -> Bytes {
        let plugged = self.hotplug.map_or(Bytes::ZERO, |hotplug| hotplug.max);
        self.memory.saturating_add(plugged)
    }

    /// Programs packed into it: those named, and those that its workloads are.
    fn programs(&self) -> BTreeSet<String> {
        let of_workload = |workload: &ScenarioWorkload| match workload.spec.pattern {
            Pattern::Program { program, .. } => Some(program.packed().to_owned()),
            _ => None,
        };
        self.with.iter().cloned().chain(self.workloads.iter().filter_map(of_workload)).collect()
    }

    /// Its bounds.
    pub fn limits(&self) -> GuestLimits {
        GuestLimits {
            floor: self.floor,
            ceiling: self.ceiling,
            shares: self.shares.unwrap_or(GuestLimits::SHARES_DEFAULT),
            priority: self.priority,
            swap: Some(self.swap.is_some()),
            ..GuestLimits::default()
        }
    }
}

impl ScenarioWorkload {
    /// Its name.
    pub fn id(&self) -> String {
        if let (None, Pattern::Program { program, .. }) = (&self.id, &self.spec.pattern) {
            return program.packed().to_owned();
        }
        let kind = || match serde_json::to_value(self.spec.pattern.kind()) {
            Ok(serde_json::Value::String(kind)) => kind,
            _ => "workload".to_owned(),
        };
        self.id.clone().unwrap_or_else(kind)
    }
}

impl Scenario {
    /// Reads a scenario from `text`, the contents of `file`.
    ///
    /// # Errors
    /// The first mistake, with its place.
    pub fn parse(text: &str, file: &Path) -> Result<Scenario, Error> {
        let scenario: Scenario = ballast_toml_strict::parse(text, file)?;
        scenario.validate().map_err(|Mistake { key, message }| {
            let key: Vec<&str> = key.iter().map(String::as_str).collect();
            Error::at(text, file, &key, message)
        })?;
        Ok(scenario)
    }

    /// All that is compared, in the order in which it runs; settings that the scenario makes for all of
    /// them are in each.
    pub fn contestants(&self) -> Vec<Variant> {
        let policies = self.policies.iter().map(|policy| Variant::of(*policy));
        let best =
            Variant { name: BEST.to_owned(), is_best: true, ..Variant::of(PolicyName::Static) };
        let mut all: Vec<Variant> = policies.chain(self.variants.iter().cloned()).collect();
        all.extend(self.best.then_some(best));
        for variant in &mut all {
            variant.policy = over(&self.policy, &variant.policy);
            variant.tracking = over(&self.tracking, &variant.tracking);
        }
        all
    }

    /// The same with all the memory that the guests can have.
    #[must_use]
    pub fn unlimited(&self) -> Scenario {
        let mut scenario = self.clone();
        scenario.host.budget = self.guests.iter().map(ScenarioGuest::memory_max).sum();
        for guest in &mut scenario.guests {
            (guest.start, guest.floor, guest.ceiling) = (None, None, None);
        }
        scenario
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
            ..GuestSpec::new(guest.name.clone(), guest.memory)
        });
        RunOptions {
            accel: self.settings.accel,
            kernel: self.settings.kernel.clone(),
            limit_cpu: self.settings.limit_cpu,
            host_swap: self.host.swap,
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
        check(&["guests"], (1..=GUESTS_MAX).contains(&self.guests.len()), || {
            format!("{} guests: expected 1 to {GUESTS_MAX}", self.guests.len())
        })?;
        let mut names = BTreeSet::new();
        for (number, guest) in self.guests.iter().enumerate() {
            let at = |key: &[&str]| path(number, key);
            if !names.insert(&guest.name) {
                let message = format!("guest `{}` is there twice", guest.name);
                return Err(Mistake { key: at(&["name"]), message });
            }
            guest.validate(&at)?;
            check(
                &at(&["balloon_stops"]).iter().map(String::as_str).collect::<Vec<_>>(),
                guest.balloon_stops.is_none_or(|stops| stops < self.duration),
                || "is not before the end: expected less than duration".to_owned(),
            )?;
            guest.validate_workloads(number, self.duration)?;
        }
        if let Some(Err(why)) = self.host.swap.map(host_swap::validate) {
            return check(&["host", "swap"], false, || why);
        }
        if let Some(Err((key, why))) = self.transfer.as_ref().map(|it| it.validate(&self.guests)) {
            return check(&["transfer", key], false, || why);
        }
        self.validate_sums()
    }

    fn validate_variants(&self) -> Result<(), Mistake> {
        let mut names: BTreeSet<&str> = self.policies.iter().map(|it| it.as_str()).collect();
        names.insert(BEST);
        check(&["variants"], self.variants.len() <= VARIANTS_MAX, || {
            format!("{}: expected at most {VARIANTS_MAX}", self.variants.len())
        })?;
        for (number, variant) in self.variants.iter().enumerate() {
            let number = number.to_string();
            let at = |key| ["variants", &number, key];
            check(&at("name"), names.insert(&variant.name), || {
                format!("`{}` is the name of another", variant.name)
            })?;
            let is_name = !variant.name.trim().is_empty() && variant.name.len() <= NAME_BYTES_MAX;
            check(&at("name"), is_name, || format!("expected 1 to {NAME_BYTES_MAX} bytes"))?;
            let policy = variant.policy.get("name").and_then(Value::as_str);
            check(
                &at("policy"),
                policy.is_some_and(|it| it.parse::<PolicyName>().is_ok()),
                || {
                    format!(
                        "expected the name of a policy, as in {{ name = \"{}\" }}",
                        PolicyName::Meb
                    )
                },
            )?;
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

impl ScenarioGuest {
    fn validate(&self, at: &dyn Fn(&[&str]) -> Vec<String>) -> Result<(), Mistake> {
        let mistake = |key: &[&str], message: String| Err(Mistake { key: at(key), message });
        if let Err(error) = GuestSpec::new(self.name.clone(), self.memory).validate() {
            return mistake(&["memory"], error.to_string());
        }
        for (key, disk) in [("swap", self.swap), ("data", self.data)] {
            if let Some(Err(error)) = disk.map(|disk| disk.validate()) {
                return mistake(&[key], error.to_string());
            }
        }
        if let Err(error) = self.limits().validate() {
            let key = if self.floor > self.ceiling { "floor" } else { "shares" };
            return mistake(&[key], error.to_string());
        }
        if let Some(Err(why)) = self.hotplug.map(|hotplug| hotplug.validate()) {
            return mistake(&["hotplug"], why);
        }
        for (key, value) in [("floor", self.floor), ("start", self.start)] {
            if let Some(value) = value.filter(|value| *value > self.memory) {
                let message = format!(
                    "{value} is more than memory = {}: a balloon cannot grow a guest past what it \
                     boots with",
                    self.memory
                );
                return mistake(&[key], message);
            }
        }
        let most = self.memory_max();
        if let Some(ceiling) = self.ceiling.filter(|ceiling| *ceiling > most) {
            let message =
                format!("{ceiling} is more than memory and what can be plugged in, {most}");
            return mistake(&["ceiling"], message);
        }
        let (floor, start) = (self.limits().floor_for(self.memory), self.start());
        let ceiling = self.limits().ceiling_for(self.memory, most);
        if start < floor || (start > ceiling && self.start.is_some()) {
            let message = format!("{start} is not between floor {floor} and ceiling {ceiling}");
            return mistake(&["start"], message);
        }
        Ok(())
    }

    fn validate_workloads(&self, number: usize, duration: Duration) -> Result<(), Mistake> {
        let mut ids = BTreeSet::new();
        if self.workloads.len() > WORKLOADS_MAX {
            let message = format!("{}: expected at most {WORKLOADS_MAX}", self.workloads.len());
            return Err(Mistake { key: path(number, &["workloads"]), message });
        }
        for (which, workload) in self.workloads.iter().enumerate() {
            let which = which.to_string();
            let mistake = |key: &str, message: String| {
                Err(Mistake { key: path(number, &["workloads", &which, key]), message })
            };
            if workload.at >= duration {
                return mistake(
                    "at",
                    "is not before the end: expected less than duration".to_owned(),
                );
            }
            if !ids.insert(workload.id()) {
                let message = format!("workload `{}` is there twice: give it an id", workload.id());
                return mistake("id", message);
            }
            if let Err(error) = workload.spec.validate() {
                return mistake("kind", error.to_string());
            }
            if let Pattern::FileRandom { size } = workload.spec.pattern
                && self.data.is_none_or(|disk| disk.size <= size)
            {
                return mistake(
                    "size",
                    format!("{size} does not fit: give the guest a larger `data`"),
                );
            }
            if let Pattern::Program { program: Program::Postgresql, .. } = workload.spec.pattern
                && self.data.is_none_or(|disk| disk.size < IMAGE_SIZE)
            {
                return mistake(
                    "program",
                    format!(
                        "postgresql comes on the data disk: give the guest a `data` of at least {IMAGE_SIZE}"
                    ),
                );
            }
        }
        Ok(())
    }
}

/// A mistake that only shows when values are compared.
struct Mistake {
    key: Vec<String>,
    message: String,
}

fn path(guest: usize, key: &[&str]) -> Vec<String> {
    let start = ["guests".to_owned(), guest.to_string()];
    start.into_iter().chain(key.iter().map(|&name| name.to_owned())).collect()
}

fn check(key: &[&str], holds: bool, message: impl FnOnce() -> String) -> Result<(), Mistake> {
    if holds {
        return Ok(());
    }
    Err(Mistake { key: key.iter().map(|&name| name.to_owned()).collect(), message: message() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Demand, HotplugKind};
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
    fn the_demo_is_a_scenario() {
        let text = include_str!("../../../scenarios/lab/demo.toml");
        let demo = Scenario::parse(text, Path::new("demo.toml")).unwrap();
        assert_eq!(demo.policies, [PolicyName::Static, PolicyName::Global]);
        assert!(demo.run_options().validate().is_ok());
    }

    #[test]
    fn what_is_not_said_has_its_default() {
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
    fn a_guest_with_memory_to_be_plugged_in_may_have_that_too() {
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
    fn a_balloon_may_stop_the_host_may_have_swap_and_a_transfer_be_timed() {
        let more =
            "[transfer]\nfrom = \"b\"\nto = \"a\"\namount = \"256MiB\"\n[host]\nswap = \"1GiB\"";
        let text = GOOD.replacen("[host]", more, 1);
        let stops = "start = \"512MiB\"\nballoon_stops = \"20s\"";
        let scenario = parse(&text.replacen("start = \"512MiB\"", stops, 1)).unwrap();
        assert_eq!(scenario.run_options().host_swap, Some(Bytes::gib(1)));
        assert_eq!(scenario.guests[0].balloon_stops, Some(Duration::from_secs(20)));
        let transfer = scenario.transfer.unwrap();
        assert_eq!((transfer.amount, transfer.demand), (Bytes::mib(256), Demand::Use));
        let told = more.replacen("\n[host]", "\ndemand = \"floor\"\n[host]", 1);
        let scenario = parse(&GOOD.replacen("[host]", &told, 1)).unwrap();
        assert_eq!(scenario.transfer.unwrap().demand, Demand::Floor);
    }

    #[test]
    fn every_mistake_is_told_with_its_place_and_key() {
        for (from, to, expected) in [
            ("duration = \"60s\"", "duration = 60", "s.toml:3:12: duration: 60 has no unit"),
            ("duration = \"60s\"", "duration = \"0s\"", "s.toml:3:12: duration: expected more"),
            ("duration =", "dration =", "unknown key `dration`: did you mean `duration`"),
            ("budget = \"1GiB\"", "budget = \"200MiB\"", "host.budget: 200MiB is less than the"),
            ("budget = \"1GiB\"", "budget = \"900MiB\"", "less than the guests start with"),
            ("name = \"b\"", "name = \"a\"", "guests[1].name: guest `a` is there twice"),
            ("name = \"b\"", "name = \"-b\"", "is not a guest name"),
            ("start = \"512MiB\"", "start = \"2GiB\"", "start: 2GiB is more than memory = 1GiB"),
            ("start = \"512MiB\"", "start = \"64MiB\"", "64MiB is not between floor 128MiB"),
            ("start = \"512MiB\"", "floor = \"2GiB\"", "floor: 2GiB is more than memory"),
            ("start = \"512MiB\"", "ceiling = \"2GiB\"", "ceiling: 2GiB is more than memory"),
            (
                "start = \"512MiB\"",
                "hotplug = { max = \"100MiB\" }",
                "hotplug: max = 100MiB must be whole 128MiB",
            ),
            ("start = \"512MiB\"", "hotplug = { max = \"1GiB\", by = 1 }", "unknown key `by`"),
            ("start = \"512MiB\"", "shares = 0", "shares 0 is out of range"),
            (
                "start = \"512MiB\"",
                "balloon_stops = \"60s\"",
                "balloon_stops: is not before the end",
            ),
            ("start = \"512MiB\"", "balloon_stops = 9", "balloon_stops: 9 has no unit"),
            (
                "budget = \"1GiB\"",
                "budget = \"1GiB\"\nswap = \"1MiB\"",
                "host.swap: 1MiB of swap is",
            ),
            (
                "[host]",
                "[transfer]\nfrom = \"a\"\nto = \"c\"\namount = \"64MiB\"\n[host]",
                "transfer.to: no guest `c`",
            ),
            (
                "[host]",
                "[transfer]\nfrom = \"b\"\nto = \"b\"\namount = \"64MiB\"\n[host]",
                "transfer.to: `b` gives",
            ),
            (
                "[host]",
                "[transfer]\nfrom = \"a\"\nto = \"b\"\namount = \"64MiB\"\n[host]",
                "transfer.to: guest `b` has no workload",
            ),
            (
                "[host]",
                "[transfer]\nfrom = \"b\"\nto = \"a\"\namount = \"600MiB\"\n[host]",
                "transfer.amount: 600MiB is more than",
            ),
            (
                "[host]",
                "[transfer]\nfrom = \"b\"\nto = \"a\"\namount = \"1MiB\"\nat = \"5s\"\n[host]",
                "unknown key `at`",
            ),
            ("memory = \"1GiB\"", "memory = \"1MiB\"", "memory 1MiB must be whole MiB"),
            (
                "[host]",
                "settings.intermittent = 0.5\n[host]",
                "expected \"adaptive\", \"off\" or a number from 0.05 to 0.3",
            ),
            (
                "[host]",
                "settings.kernel = \"6.12\"\n[host]",
                "settings.kernel: `6.12` is not a kernel",
            ),
            ("speed = \"ssd\"", "speed = \"sdd\"", "`sdd` is not a speed"),
            ("size = \"1GiB\", ", "size = \"4KiB\", ", "swap: a disk of 4KiB is too small"),
            ("at = \"5s\"", "at = \"60s\"", "workloads[0].at: is not before the end"),
            ("kind = \"mono\"", "kind = \"monu\"", "monu"),
            ("low = \"50MiB\"", "lwo = \"50MiB\"", "lwo"),
            ("low = \"50MiB\"", "low = \"900MiB\"", "low = 900MiB is more than high"),
            ("[host]", "policies = [\"globl\"]\n[host]", "`globl` is not a policy"),
            ("[host]", "policies = []\n[host]", "at least one policy"),
            ("[host]", "repetitions = 0\n[host]", "repetitions: 0: expected 1 to"),
            ("[host]", "[[variants]]\nname = \"x\"\n[variants.policy]\n[host]", "name of a policy"),
            (
                "[host]",
                "[[variants]]\nname = \"best\"\npolicy = { name = \"meb\" }\n[host]",
                "variants[0].name: `best` is the name of another",
            ),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let error = parse(&GOOD.replacen(from, to, 1)).expect_err(to);
            assert!(error.contains(expected) && error.starts_with("s.toml:"), "{to}: {error}");
        }
    }

    #[test]
    fn variants_and_the_best_come_after_the_policies_with_the_scenario_s_settings() {
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
        let told: Vec<String> = scenario
            .contestants()
            .into_iter()
            .map(|it| format!("{} {} {}", it.name, Value::from(it.policy), it.is_best))
            .collect();
        let common = r#""interval":"1s","meb":{"shrink_max":0.2,"step":"2MiB"},"name":"static""#;
        assert_eq!(
            told,
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
    fn a_workload_without_a_name_goes_by_its_kind() {
        let pattern = Pattern::FileRandom { size: Bytes::mib(1) };
        let workload = ScenarioWorkload { at: Duration::ZERO, id: None, spec: pattern.into() };
        assert_eq!(workload.id(), "file-random");
    }

    #[test]
    fn a_file_workload_needs_a_data_disk_it_fits_on() {
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
    fn postgresql_needs_a_data_disk_with_room_for_it() {
        let text = GOOD.replace(
            "kind = \"mono\"\nlow = \"50MiB\"\nhigh = \"650MiB\"\nramp_s = 10.0",
            "kind = \"program\"\nprogram = \"postgresql\"\nsize = \"32MiB\"",
        );
        assert!(parse(&text.replace("64MiB", "512MiB")).is_ok());
        for text in [text.clone(), text.replace("data =", "# data =")] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains("a `data` of at least 512MiB"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_refused_or_read_without_panic(text in ".{0,200}") {
            let _ = parse(&text);
        }

        #[test]
        fn damaged_scenarios_are_refused_or_read_without_panic(
            at in 0..GOOD.len(), len in 0usize..40, with in "[ -~]{0,10}"
        ) {
            let end = (at + len).min(GOOD.len());
            let _ = parse(&format!("{}{with}{}", &GOOD[..at], &GOOD[end..]));
        }
    }
}
