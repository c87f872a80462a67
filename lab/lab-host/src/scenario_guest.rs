//! `[[guests]]` of a scenario file: guests and their workloads.
//!
//! Idea: these types are separate because other tables refer to guests and check their references
//! here. Limits: see [`crate::scenario`].

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::time::Duration;

use ballast_lab_guest::workload::{Pattern, Program, WorkloadSpec};
use ballast_model::{Bytes, GuestId, GuestLimits};
use ballast_toml_strict::{Mistake, duration};
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
    pub start: Option<Bytes>,
    /// Its guaranteed memory; the daemon's default if unset.
    pub floor: Option<Bytes>,
    /// Its largest allocation; all of its memory, with hotplug, by default.
    pub ceiling: Option<Bytes>,
    /// Its memory hotplug, if any.
    pub hotplug: Option<Hotplug>,
    /// Time after the start of the measurement at which its balloon driver is unloaded, which
    /// returns the balloon's memory to the guest; never by default.
    #[serde(default, with = "duration::option")]
    pub balloon_stops: Option<Duration>,
    /// Pages that it touches a second at full speed; if given, the time until it reaches that is
    /// measured.
    pub full_speed: Option<NonZeroU64>,
    /// Its fixed work, in touches; if given, the time for it is measured. Its workloads are stopped
    /// once the work is done. A run ends once every guest with a fixed work has done it, and at the
    /// latest after the scenario's duration.
    pub work: Option<NonZeroU64>,
    /// Its shares; 1,000 by default.
    pub shares: Option<u32>,
    /// Its priority: when memory is short, guests of lower priority lose memory first; 0 by
    /// default.
    #[serde(default)]
    pub priority: u8,
    /// Its objective: the greatest number of misses a second; none by default.
    pub miss_rate_max: Option<u64>,
    /// Its swap disk, if any.
    pub swap: Option<DiskSpec>,
    /// Its disk for files, if any.
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

    /// Checks it; `number` is its place among the guests.
    pub(crate) fn validate(&self, number: &str) -> Result<(), Mistake> {
        let at = |key| ["guests", number, key];
        let plain = GuestSpec::new(self.name.clone(), self.memory).validate();
        plain.map_err(|error| Mistake::at(&at("memory"), error))?;
        for (key, disk) in [("swap", self.swap), ("data", self.data)] {
            let disk = disk.map_or(Ok(()), |disk| disk.validate());
            disk.map_err(|error| Mistake::at(&at(key), error))?;
        }
        let key = if self.floor > self.ceiling { "floor" } else { "shares" };
        self.limits().validate().map_err(|error| Mistake::at(&at(key), error))?;
        let hotplug = self.hotplug.map_or(Ok(()), |hotplug| hotplug.validate());
        hotplug.map_err(|why| Mistake::at(&at("hotplug"), why))?;
        for (key, value) in [("floor", self.floor), ("start", self.start)] {
            let value = value.unwrap_or_default();
            check(&at(key), value <= self.memory, || {
                format!(
                    "{value} is more than memory = {}: a balloon cannot grow a guest past what it \
                     boots with",
                    self.memory
                )
            })?;
        }
        let most = self.memory_max();
        let ceiling = self.ceiling.unwrap_or_default();
        check(&at("ceiling"), ceiling <= most, || {
            format!("{ceiling} is more than its memory with hotplug, {most}")
        })?;
        let (floor, start) = (self.limits().floor_for(self.memory), self.start());
        let ceiling = self.limits().ceiling_for(self.memory, most);
        let is_between = start >= floor && (start <= ceiling || self.start.is_none());
        check(&at("start"), is_between, || {
            format!("{start} is not between floor {floor} and ceiling {ceiling}")
        })
    }

    /// Checks its workloads; `number` is its place among the guests.
    pub(crate) fn validate_workloads(
        &self,
        number: &str,
        duration: Duration,
    ) -> Result<(), Mistake> {
        let count = self.workloads.len();
        check(&["guests", number, "workloads"], count <= WORKLOADS_MAX, || {
            format!("{count}: expected at most {WORKLOADS_MAX}")
        })?;
        let data = self.data.map_or(Bytes::ZERO, |disk| disk.size);
        let mut ids = BTreeSet::new();
        for (which, workload) in self.workloads.iter().enumerate() {
            let which = which.to_string();
            let at = |key| ["guests", number, "workloads", &which, key];
            check(&at("at"), workload.at < duration, || {
                "is not before the end: expected less than duration".to_owned()
            })?;
            check(&at("at"), !workload.prepared || workload.at.is_zero(), || {
                "is later than a prepared workload begins: leave it out".to_owned()
            })?;
            check(&at("id"), ids.insert(workload.id()), || {
                format!("workload `{}` is defined twice: give it a unique id", workload.id())
            })?;
            let is_valid = workload.spec.validate_for_guest();
            is_valid.map_err(|error| Mistake::at(&at("kind"), error))?;
            match workload.spec.pattern {
                Pattern::FileRandom { size } => check(&at("size"), data > size, || {
                    format!("{size} does not fit: give the guest a larger `data`")
                })?,
                Pattern::Program { program: Program::Postgresql, .. } => {
                    check(&at("program"), data >= IMAGE_SIZE, || {
                        format!(
                            "postgresql is on the data disk: give the guest a `data` of at least \
                             {IMAGE_SIZE}"
                        )
                    })?;
                }
                _ => {}
            }
        }
        Ok(())
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

pub(crate) fn check(
    key: &[&str],
    holds: bool,
    message: impl FnOnce() -> String,
) -> Result<(), Mistake> {
    if holds { Ok(()) } else { Err(Mistake::at(key, message())) }
}
