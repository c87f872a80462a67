//! `[[guests]]` of a scenario file: guests and their workloads.
//!
//! Idea: these types are separate because other tables refer to guests and check their references
//! here. Limits: see [`crate::scenario`].

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::time::Duration;

use ballast_lab_guest::workload::{Pattern, Program, WorkloadSpec};
use ballast_model::{Bytes, GuestId, GuestLimits};
use ballast_toml_strict::duration;
use serde::Deserialize;

use crate::postgresql::IMAGE_SIZE;
use crate::{DiskSpec, GuestSpec, Hotplug};

/// Most workloads of a guest.
const WORKLOADS_MAX: usize = ballast_lab_guest::protocol::WORKLOADS_MAX;

/// A guest of a scenario.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioGuest {
    /// Its name.
    pub name: GuestId,
    /// Memory it boots with; a balloon cannot exceed it.
    pub memory: Bytes,
    /// Its allocation when the measurement starts; all of its memory by default.
    #[serde(default)]
    pub start: Option<Bytes>,
    /// Its guaranteed memory; the daemon's default if unset.
    #[serde(default)]
    pub floor: Option<Bytes>,
    /// Its largest allocation; all of its memory, with hotplug, by default.
    #[serde(default)]
    pub ceiling: Option<Bytes>,
    /// Its memory hotplug, if any.
    #[serde(default)]
    pub hotplug: Option<Hotplug>,
    /// Time after the start of the measurement at which its balloon driver is unloaded, which
    /// returns the balloon's memory to the guest; never by default.
    #[serde(default, with = "duration::option")]
    pub balloon_stops: Option<Duration>,
    /// Pages that it touches a second at full speed; if given, the time until it reaches that is
    /// measured.
    #[serde(default)]
    pub full_speed: Option<NonZeroU64>,
    /// Its fixed work, in touches; if given, the time for it is measured. Its workloads are stopped
    /// once the work is done. A run ends once every guest with a fixed work has done it, and at the
    /// latest after the scenario's duration.
    #[serde(default)]
    pub work: Option<NonZeroU64>,
    /// Its shares; 1,000 by default.
    #[serde(default)]
    pub shares: Option<u32>,
    /// Its priority: when memory is short, guests of lower priority lose memory first; 0 by
    /// default.
    #[serde(default)]
    pub priority: u8,
    /// Its objective: the greatest number of misses a second; none by default.
    #[serde(default)]
    pub miss_rate_max: Option<u64>,
    /// Its swap disk, if any.
    #[serde(default)]
    pub swap: Option<DiskSpec>,
    /// Its disk for files, if any.
    #[serde(default)]
    pub data: Option<DiskSpec>,
    /// Programs packed into it.
    #[serde(default)]
    pub with: BTreeSet<String>,
    /// Its workloads.
    #[serde(default)]
    pub workloads: Vec<ScenarioWorkload>,
}

/// A workload and when it begins.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ScenarioWorkload {
    /// Its start, from the start of the measurement; 0 by default.
    #[serde(default, with = "duration")]
    pub at: Duration,
    /// Its name, unique in its guest; by default its kind or, for a program, the program's name.
    #[serde(default)]
    pub id: Option<String>,
    /// Whether it fills its memory before the measurement, while guests have all of their memory;
    /// the guests are set to their start sizes afterwards. Its work counts from the start of the
    /// measurement.
    #[serde(default)]
    pub prepared: bool,
    /// What it does; refuses unknown keys.
    #[serde(flatten)]
    pub spec: WorkloadSpec,
}

impl ScenarioGuest {
    /// Its allocation when the measurement starts.
    pub fn start(&self) -> Bytes {
        self.start.unwrap_or(self.memory)
    }

    /// Its largest possible memory.
    pub fn memory_max(&self) -> Bytes {
        let plugged = self.hotplug.map_or(Bytes::ZERO, |hotplug| hotplug.max);
        self.memory.saturating_add(plugged)
    }

    /// Programs packed into it: those listed, and those of its workloads.
    pub(crate) fn programs(&self) -> BTreeSet<String> {
        let of_workload = |workload: &ScenarioWorkload| match workload.spec.pattern {
            Pattern::Program { program, .. } => Some(program.packed().to_owned()),
            _ => None,
        };
        self.with.iter().cloned().chain(self.workloads.iter().filter_map(of_workload)).collect()
    }

    /// Its limits.
    pub fn limits(&self) -> GuestLimits {
        GuestLimits {
            floor: self.floor,
            ceiling: self.ceiling,
            shares: self.shares.unwrap_or(GuestLimits::SHARES_DEFAULT),
            priority: self.priority,
            swap: Some(self.swap.is_some()),
            miss_rate_max: self.miss_rate_max,
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

impl ScenarioGuest {
    pub(crate) fn validate(&self, at: &dyn Fn(&[&str]) -> Vec<String>) -> Result<(), Mistake> {
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
            let message = format!("{ceiling} is more than its memory with hotplug, {most}");
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

    pub(crate) fn validate_workloads(
        &self,
        number: usize,
        duration: Duration,
    ) -> Result<(), Mistake> {
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
            if workload.prepared && !workload.at.is_zero() {
                return mistake(
                    "at",
                    "is later than a prepared workload begins: leave it out".into(),
                );
            }
            if !ids.insert(workload.id()) {
                let message =
                    format!("workload `{}` is defined twice: give it a unique id", workload.id());
                return mistake("id", message);
            }
            if let Err(error) = workload.spec.validate_for_guest() {
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
                        "postgresql is on the data disk: give the guest a `data` of at least {IMAGE_SIZE}"
                    ),
                );
            }
        }
        Ok(())
    }
}

/// A mistake that shows only when values are compared.
pub(crate) struct Mistake {
    pub(crate) key: Vec<String>,
    pub(crate) message: String,
}

pub(crate) fn path(guest: usize, key: &[&str]) -> Vec<String> {
    let start = ["guests".to_owned(), guest.to_string()];
    start.into_iter().chain(key.iter().map(|&name| name.to_owned())).collect()
}

pub(crate) fn check(
    key: &[&str],
    holds: bool,
    message: impl FnOnce() -> String,
) -> Result<(), Mistake> {
    if holds {
        return Ok(());
    }
    Err(Mistake { key: key.iter().map(|&name| name.to_owned()).collect(), message: message() })
}
