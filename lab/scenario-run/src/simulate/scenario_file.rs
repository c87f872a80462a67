//! Scenario files of the simulator.
//!
//! Idea: the form is the lab's, so that the same situation runs on real guests and in the
//! simulator. A lab scenario can be read here unchanged; keys that matter only to real guests
//! (`repetitions`, `accel`, `settle`, …) are read and ignored. The simulator adds: the machine
//! (`host.memory`, `block`, `[defaults]`, disks' times), workloads that no real guest can run,
//! `count` guests from one table, a paper's figures for this situation to be shown beside the
//! simulated ones (`[[paper]]`), and where the figures of the machine come from (`[[parameters]]`).
//! Reading is a pure function of the text; every error names file, line, column and key.
//! Limits: unknown keys are refused; the bounds are the constants below and the simulator's own.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use ballast_control::Settings;
use ballast_guard::GuardSettings;
use ballast_lab_host::{DiskSpec, Hotplug};
use ballast_model::{Bytes, GuestId, GuestLimits, PolicyName};
use ballast_sim::{
    Disk, GUESTS_MAX, GuestSpec, HostReclaim, HostSpec, Scenario, ScenarioError, Swap,
    TimedWorkload,
};
use ballast_toml_strict::{Error, Mistake, duration};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::contestants;
use super::paper::{PAPER_MAX, PaperFigure};
use super::parameter::{PARAMETERS_MAX, Parameter};
use super::scenario_machine::{
    BalloonTable, DataTable, KernelTable, Machine, ReclaimTable, SourcesTable, balloon, disk,
    kernel, sources,
};
use super::scenario_policy::PolicyTable;
use super::scenario_workload::WorkloadTable;

/// The most memory of a host that divisions can handle; a larger value is surely a mistake.
const HOST_MAX: Bytes = Bytes::gib(4 << 20);
/// A scenario file: what to simulate, under which policies, and what was measured elsewhere.
#[derive(Clone, Debug)]
pub struct ScenarioFile {
    /// The situation, without its policy.
    pub scenario: Scenario,
    /// The policies, including rivals, in the order in which they run.
    pub policies: Vec<PolicyName>,
    /// A paper's figures for this situation.
    pub paper: Vec<PaperFigure>,
    /// Where the figures of its machine come from.
    pub parameters: Vec<Parameter>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTable {
    name: GuestId,
    #[serde(with = "duration")]
    duration: Duration,
    #[serde(default)]
    seed: u64,
    #[serde(default, rename = "repetitions")]
    _repetitions: IgnoredAny,
    #[serde(default = "default_policies", deserialize_with = "policies")]
    policies: Vec<PolicyName>,
    host: HostTable,
    #[serde(default)]
    settings: SettingsTable,
    #[serde(default)]
    policy: PolicyTable,
    #[serde(default, rename = "tracking")]
    _tracking: IgnoredAny,
    #[serde(default, rename = "variants")]
    _variants: IgnoredAny,
    #[serde(default, rename = "best")]
    _best: IgnoredAny,
    #[serde(default, rename = "needs")]
    _needs: IgnoredAny,
    #[serde(default, rename = "by_hand")]
    _by_hand: IgnoredAny,
    #[serde(default, rename = "transfer")]
    _transfer: IgnoredAny,
    #[serde(default, rename = "fleet")]
    _fleet: IgnoredAny,
    #[serde(default)]
    defaults: Machine,
    guests: Vec<SimulatedGuestTable>,
    #[serde(default)]
    paper: Vec<PaperFigure>,
    #[serde(default)]
    parameters: Vec<Parameter>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostTable {
    budget: Bytes,
    reserve: Option<Bytes>,
    /// The default is the sum of the budget and the reserves.
    memory: Option<Bytes>,
    #[serde(default)]
    hypervisor_reserve: Bytes,
    #[serde(default, with = "duration::option")]
    scrub_per_mib: Option<Duration>,
    #[serde(default)]
    swap_shared: bool,
    reclaim: Option<ReclaimTable>,
    #[serde(default, rename = "swap")]
    _swap: IgnoredAny,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SettingsTable {
    #[serde(with = "duration::option")]
    tick: Option<Duration>,
    block: Option<Bytes>,
    settle: IgnoredAny,
    accel: IgnoredAny,
    manager: IgnoredAny,
    kernel: IgnoredAny,
    limit_cpu: IgnoredAny,
    min_free: IgnoredAny,
    free_page_reporting: IgnoredAny,
    deflate_on_oom: IgnoredAny,
    truth: IgnoredAny,
    track: IgnoredAny,
    agent: IgnoredAny,
    intermittent: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SimulatedGuestTable {
    name: GuestId,
    /// Makes this number of identical guests, called `name-1`, `name-2`, …; without it there is one
    /// guest, called `name`.
    count: Option<usize>,
    memory: Bytes,
    memory_max: Option<Bytes>,
    hotplug: Option<Hotplug>,
    start: Option<Bytes>,
    floor: Option<Bytes>,
    ceiling: Option<Bytes>,
    shares: Option<u32>,
    #[serde(default)]
    priority: u8,
    miss_rate_max: Option<u64>,
    swap: Option<DiskSpec>,
    data: Option<DataTable>,
    #[serde(default, with = "duration::option")]
    touch: Option<Duration>,
    #[serde(default, with = "duration::option")]
    fill: Option<Duration>,
    #[serde(default, with = "duration::option")]
    give_back: Option<Duration>,
    kernel: Option<KernelTable>,
    balloon: Option<BalloonTable>,
    sources: Option<SourcesTable>,
    #[serde(default, rename = "with")]
    _with: IgnoredAny,
    #[serde(default, rename = "full_speed")]
    _full_speed: IgnoredAny,
    #[serde(default, rename = "work")]
    _work: IgnoredAny,
    #[serde(default, rename = "balloon_stops")]
    _balloon_stops: IgnoredAny,
    #[serde(default)]
    workloads: Vec<WorkloadTable>,
}

fn default_policies() -> Vec<PolicyName> {
    vec![PolicyName::Static, PolicyName::Global]
}

fn policies<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PolicyName>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    let policy = |name: &String| contestants::policy(name).map_err(serde::de::Error::custom);
    names.iter().map(policy).collect()
}

fn in_guest(place: usize, key: &[&str], message: impl Display) -> Mistake {
    let place = place.to_string();
    let path: Vec<&str> = ["guests", &place].into_iter().chain(key.iter().copied()).collect();
    Mistake::at(&path, message)
}

impl ScenarioFile {
    /// Reads a scenario from `text`, the contents of `file`.
    ///
    /// # Errors
    /// The first mistake, with its place in the file.
    pub fn parse(text: &str, file: &Path) -> Result<ScenarioFile, Error> {
        let table: FileTable = ballast_toml_strict::parse(text, file)?;
        table.convert().map_err(|mistake| mistake.in_file(text, file))
    }
}

impl FileTable {
    fn convert(self) -> Result<ScenarioFile, Mistake> {
        let distinct: BTreeSet<_> = self.policies.iter().collect();
        if distinct.is_empty() || distinct.len() != self.policies.len() {
            return Err(Mistake::at(&["policies"], "expected at least one policy, and each once"));
        }
        check_each(["paper", "figures"], PAPER_MAX, &self.paper, PaperFigure::validate)?;
        let parameters = &self.parameters;
        check_each(["parameters", "of them"], PARAMETERS_MAX, parameters, Parameter::validate)?;
        let reserve = self.host.reserve.unwrap_or(GuardSettings::HOST_RESERVE_DEFAULT);
        let budget = self.host.budget;
        let host = self.host.convert(reserve)?;
        let mut control = Settings::new(PolicyName::Static);
        control.tick = self.settings.tick.unwrap_or(Settings::TICK_DEFAULT);
        control.interval = self.policy.interval;
        control.guard.budget = Some(budget);
        control.guard.host_reserve = reserve;
        (control.policy_settings, control.probing) =
            self.policy.settings(&self.policies).map_err(|(key, message)| {
                let key: Vec<&str> = ["policy"].into_iter().chain(key).collect();
                Mistake::at(&key, message)
            })?;
        let total: usize = self
            .guests
            .iter()
            .fold(0, |sum: usize, guest| sum.saturating_add(guest.count.unwrap_or(1)));
        if !(1..=GUESTS_MAX).contains(&total) {
            return Err(Mistake::at(&["guests"], format!("{total}: expected 1 to {GUESTS_MAX}")));
        }
        let mut guests = Vec::with_capacity(total);
        // For each guest, the index of its table in the file.
        let mut places = Vec::with_capacity(total);
        for (place, table) in self.guests.into_iter().enumerate() {
            let count = table.count;
            let names = table.names(place)?;
            let spec = table.convert(place, &self.defaults)?;
            debug_assert_eq!(names.len(), count.unwrap_or(1));
            for id in names {
                guests.push(GuestSpec { id, ..spec.clone() });
                places.push(place);
            }
        }
        check_sums(budget, &guests)?;
        let scenario = Scenario {
            name: self.name.to_string(),
            duration: self.duration,
            seed: self.seed,
            block: self.settings.block.unwrap_or(Scenario::BLOCK_DEFAULT),
            host,
            control,
            guests,
        };
        scenario.validate().map_err(|error| place_of(&error, &scenario, &places))?;
        Ok(ScenarioFile {
            scenario,
            policies: self.policies,
            paper: self.paper,
            parameters: self.parameters,
        })
    }
}

/// Checks the tables under a key and their number; the message calls them `what`.
fn check_each<T>(
    [key, what]: [&str; 2],
    max: usize,
    tables: &[T],
    validate: fn(&T) -> Result<(), (&'static str, String)>,
) -> Result<(), Mistake> {
    if tables.len() > max {
        let message = format!("{} {what}: expected at most {max}", tables.len());
        return Err(Mistake::at(&[key], message));
    }
    for (place, table) in tables.iter().enumerate() {
        validate(table)
            .map_err(|(field, message)| Mistake::at(&[key, &place.to_string(), field], message))?;
    }
    Ok(())
}

fn check_sums(budget: Bytes, guests: &[GuestSpec]) -> Result<(), Mistake> {
    let floors: Bytes = guests.iter().map(|guest| guest.limits.floor_for(guest.memory)).sum();
    let starts: Bytes = guests.iter().map(GuestSpec::start).sum();
    for (what, sum) in [("the guests' floors", floors), ("the guests start with", starts)] {
        if budget < sum {
            let message = format!("{budget} is less than {what}, {sum} in all");
            return Err(Mistake::at(&["host", "budget"], message));
        }
    }
    Ok(())
}

/// The key that the simulator's error is about.
fn place_of(error: &ScenarioError, scenario: &Scenario, places: &[usize]) -> Mistake {
    let place_of_guest = |id: &GuestId| {
        let at = scenario.guests.iter().position(|guest| guest.id == *id);
        at.and_then(|at| places.get(at)).copied().unwrap_or(0)
    };
    let message = error.to_string();
    match error {
        ScenarioError::Tick(_) => Mistake::at(&["settings", "tick"], message),
        ScenarioError::Ticks { .. } => Mistake::at(&["duration"], message),
        ScenarioError::Block(_) | ScenarioError::TooLarge { .. } => {
            Mistake::at(&["settings", "block"], message)
        }
        ScenarioError::Guests(_) => Mistake::at(&["guests"], message),
        ScenarioError::Overcommitted { .. } => Mistake::at(&["host", "budget"], message),
        ScenarioError::Twice(id) => {
            // The later of two guests with the same name is reported.
            let last = scenario.guests.iter().rposition(|guest| guest.id == *id);
            let place = last.and_then(|at| places.get(at)).copied().unwrap_or(0);
            in_guest(place, &["name"], message)
        }
        ScenarioError::Guest { guest, field, .. } => {
            in_guest(place_of_guest(guest), &[field], message)
        }
        ScenarioError::Workload { guest, place, .. } => {
            in_guest(place_of_guest(guest), &["workloads", &place.to_string()], message)
        }
    }
}

impl HostTable {
    fn convert(self, reserve: Bytes) -> Result<HostSpec, Mistake> {
        for (key, size) in [("budget", Some(self.budget)), ("memory", self.memory)] {
            if let Some(size) = size.filter(|size| *size > HOST_MAX) {
                let message = format!("{size} is out of range: expected at most {HOST_MAX}");
                return Err(Mistake::at(&["host", key], message));
            }
        }
        let reserves = reserve.saturating_add(self.hypervisor_reserve);
        let least = self.budget.saturating_add(reserves);
        let memory = self.memory.unwrap_or(least);
        if memory < least {
            let message = format!(
                "{memory} is less than the budget of {} and the reserves of {reserves}",
                self.budget
            );
            return Err(Mistake::at(&["host", "memory"], message));
        }
        let reclaim = match self.reclaim {
            Some(table) => {
                let disk = disk(table.speed)
                    .map_err(|message| Mistake::at(&["host", "reclaim", "speed"], message))?;
                Some(HostReclaim { grace: table.grace, disk })
            }
            None => None,
        };
        Ok(HostSpec {
            memory,
            hypervisor_reserve: self.hypervisor_reserve,
            scrub_per_mib: self.scrub_per_mib.unwrap_or(HostSpec::SCRUB_PER_MIB_DEFAULT),
            swap_shared: self.swap_shared,
            reclaim,
        })
    }
}

impl SimulatedGuestTable {
    fn names(&self, place: usize) -> Result<Vec<GuestId>, Mistake> {
        let Some(count) = self.count else { return Ok(vec![self.name.clone()]) };
        if count == 0 {
            return Err(in_guest(place, &["count"], "0: expected at least 1"));
        }
        let name = |k: usize| {
            let name = format!("{}-{k}", self.name);
            name.parse().map_err(|error| in_guest(place, &["name"], format!("{error}")))
        };
        (1..=count).map(name).collect()
    }

    /// One guest of this table, under the table's own name.
    fn convert(mut self, place: usize, defaults: &Machine) -> Result<GuestSpec, Mistake> {
        let with_plugged = self.hotplug.map(|hotplug| self.memory.saturating_add(hotplug.max));
        self.memory_max = self.memory_max.or(with_plugged);
        self.check(place)?;
        let limits = GuestLimits {
            floor: self.floor,
            ceiling: self.ceiling,
            shares: self.shares.unwrap_or(GuestLimits::SHARES_DEFAULT),
            priority: self.priority,
            miss_rate_max: self.miss_rate_max,
            swap: Some(self.swap.or(defaults.swap).is_some()),
            ..GuestLimits::default()
        };
        if let Err(error) = limits.validate() {
            let key = if self.floor > self.ceiling { "floor" } else { "shares" };
            return Err(in_guest(place, &[key], error.to_string()));
        }
        let most = self.memory_max.unwrap_or(self.memory);
        let (floor, ceiling) =
            (limits.floor_for(self.memory), limits.ceiling_for(self.memory, most));
        if self.start.is_some_and(|start| start < floor || start > ceiling) {
            let start = self.start.unwrap_or_default();
            let message = format!("{start} is not between floor {floor} and ceiling {ceiling}");
            return Err(in_guest(place, &["start"], message));
        }
        let swap = match self.swap.or(defaults.swap) {
            Some(spec) => {
                spec.validate().map_err(|it| in_guest(place, &["swap"], it.to_string()))?;
                let disk = disk(spec.speed).map_err(|it| in_guest(place, &["swap"], it))?;
                Some(Swap::new(spec.size, disk))
            }
            None => None,
        };
        let data = match self.data.or(defaults.data) {
            Some(data) => disk(data.speed).map_err(|it| in_guest(place, &["data"], it))?,
            None => Disk::SSD,
        };
        let workloads = self
            .workloads
            .into_iter()
            .map(|table| TimedWorkload { at: table.at, workload: table.workload });
        Ok(GuestSpec {
            memory_max: self.memory_max,
            start: self.start,
            limits,
            swap,
            data,
            touch: self.touch.or(defaults.touch).unwrap_or(GuestSpec::TOUCH_DEFAULT),
            fill: self.fill.or(defaults.fill).unwrap_or(GuestSpec::FILL_DEFAULT),
            give_back: self
                .give_back
                .or(defaults.give_back)
                .unwrap_or(GuestSpec::GIVE_BACK_DEFAULT),
            kernel: kernel(self.kernel.or(defaults.kernel)),
            balloon: balloon(self.balloon.or(defaults.balloon)),
            sources: sources(self.sources.or(defaults.sources)),
            workloads: workloads.collect(),
            ..GuestSpec::new(self.name, self.memory)
        })
    }

    fn check(&self, place: usize) -> Result<(), Mistake> {
        let most = self.memory_max.unwrap_or(self.memory);
        for (key, value) in [("floor", self.floor), ("ceiling", self.ceiling)] {
            if let Some(value) = value.filter(|value| *value > most) {
                let message = format!("{value} is more than the guest can grow to, {most}");
                return Err(in_guest(place, &[key], message));
            }
        }
        if let Some(start) = self.start.filter(|start| *start > self.memory) {
            let message = format!(
                "{start} is more than memory = {}: a balloon cannot grow a guest past what it boots \
                 with",
                self.memory
            );
            return Err(in_guest(place, &["start"], message));
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "scenario_file_tests.rs"]
mod tests;
