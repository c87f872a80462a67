//! `[settings]`, `[transfer]` and `[by_hand]` of a scenario file: the settings common to its runs,
//! a timed transfer, and balloons set by hand.
//!
//! Idea: every setting has a default that suits most scenarios. Limits: see [`crate::scenario`].

use std::collections::BTreeMap;
use std::time::Duration;

use ballast_model::{Bytes, GuestId, PAGE_SIZE};
use ballast_toml_strict::{Mistake, duration};
use serde::Deserialize;

use crate::KernelChoice;
use crate::accel::AccelChoice;
use crate::intermittent::Intermittent;
use crate::libvirt::Manager;
use crate::scenario_guest::{ScenarioGuest, check};

/// Settings of a run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Time between two decisions of the daemon; 1 s by default.
    #[serde(with = "duration")]
    pub tick: Duration,
    /// Time that the guests get to settle before the measurement starts; 5 s by default.
    #[serde(with = "duration")]
    pub settle: Duration,
    /// The accelerator; `auto` by default.
    pub accel: AccelChoice,
    /// The guests' kernel, by its Debian suite; `default`: that of the host's sources.
    pub kernel: KernelChoice,
    /// How much memory a guest's kernel keeps free (`vm.min_free_kbytes`), in whole KiB, for guests
    /// that stand for larger ones; by default the kernel's own choice, up to 66 MiB.
    pub min_free: Option<Bytes>,
    /// Whether each guest's processor time is limited to its share; yes by default.
    pub limit_cpu: bool,
    /// Whether guests report free pages to the host; no by default.
    pub free_page_reporting: bool,
    /// Whether balloons deflate when a guest runs out of memory; no by default.
    pub deflate_on_oom: bool,
    /// Whether the guests' memory accesses are recorded, under emulation; no by default.
    pub truth: bool,
    /// Whether the page tracker is loaded, so that the daemon knows the working sets; no by
    /// default.
    pub track: bool,
    /// Whether the guests run `ballast-agent` and the daemon listens to it; no by default.
    pub agent: bool,
    /// Who starts the guests: `qemu` (the lab itself, the default), `libvirt` or `xen`. The daemon
    /// then manages the guests through it.
    pub manager: Manager,
    /// When the daemon pauses tracking; `adaptive` by default.
    pub intermittent: Intermittent,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            tick: Duration::from_secs(1),
            settle: Duration::from_secs(5),
            accel: AccelChoice::Auto,
            kernel: KernelChoice::Default,
            min_free: None,
            limit_cpu: true,
            free_page_reporting: false,
            deflate_on_oom: false,
            truth: false,
            track: false,
            agent: false,
            manager: Manager::Qemu,
            intermittent: Intermittent::Adaptive,
        }
    }
}

/// A timed transfer of memory between two guests: from the start of the receiver's last workload
/// until it has `amount` more, compared to the time that inflating the giver's balloon alone takes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    /// The guest that loses memory.
    pub from: GuestId,
    /// The guest that gains memory.
    pub to: GuestId,
    /// How much memory.
    pub amount: Bytes,
    /// How the daemon learns of the demand; `use` by default.
    #[serde(default)]
    pub demand: DemandSignal,
}

/// Balloons set by hand, all at one time. Guests that shrink go first; the others follow once those
/// have given.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByHand {
    /// When, from the start of the measurement.
    #[serde(with = "duration")]
    pub at: Duration,
    /// The size of each guest; a guest that is not named keeps its size.
    pub guests: BTreeMap<GuestId, Bytes>,
}

impl ByHand {
    /// Checks it against the scenario's guests, budget and duration.
    pub(crate) fn validate(
        &self,
        guests: &[ScenarioGuest],
        budget: Bytes,
        duration: Duration,
    ) -> Result<(), Mistake> {
        check(&["by_hand", "at"], self.at < duration, || {
            "is not before the end: expected less than duration".to_owned()
        })?;
        let at = ["by_hand", "guests"];
        for (name, size) in &self.guests {
            let Some(guest) = guests.iter().find(|guest| guest.name == *name) else {
                return Err(Mistake::at(&at, format!("no guest `{name}` in this scenario")));
            };
            let floor = guest.limits().floor_for(guest.memory);
            check(&at, (floor..=guest.memory).contains(size), || {
                let memory = guest.memory;
                format!(
                    "{size} for guest `{name}`: expected its floor, {floor}, to its memory, {memory}"
                )
            })?;
        }
        let size = |guest: &ScenarioGuest| self.guests.get(&guest.name).copied();
        let sum: Bytes = guests.iter().map(|it| size(it).unwrap_or(it.start())).sum();
        check(&at, sum <= budget, || format!("{sum} in all is more than host.budget = {budget}"))
    }
}

/// How the daemon learns that a guest needs memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DemandSignal {
    /// The guest uses it, as fast as its workload fills memory.
    #[default]
    Use,
    /// When the workload starts, the operator raises the guest's floor by the whole amount.
    Floor,
}

impl Transfer {
    /// Checks it against the scenario's guests.
    pub(crate) fn validate(&self, guests: &[ScenarioGuest]) -> Result<(), Mistake> {
        let at = |key| ["transfer", key];
        let find = |name: &GuestId, key| {
            let found = guests.iter().find(|guest| guest.name == *name);
            found
                .ok_or_else(|| Mistake::at(&at(key), format!("no guest `{name}` in this scenario")))
        };
        let (from, to) = (find(&self.from, "from")?, find(&self.to, "to")?);
        check(&at("to"), self.from != self.to, || {
            format!("`{}` is the giver: expected another guest", self.to)
        })?;
        check(&at("to"), !to.workloads.is_empty(), || {
            format!("guest `{}` has no workload and so no demand", to.name)
        })?;
        let spare = from.start().saturating_sub(from.limits().floor_for(from.memory));
        let most = spare.min(to.memory_max().saturating_sub(to.start()));
        let amount = self.amount;
        check(&at("amount"), amount.get() >= PAGE_SIZE && amount <= most, || {
            format!(
                "{amount:#} is more than `{}` has above its floor at its start or `{}` has room \
                 for, or nothing: expected at most {most}",
                from.name, to.name
            )
        })
    }
}
