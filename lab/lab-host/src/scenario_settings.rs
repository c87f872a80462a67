//! `[settings]` and `[transfer]` of a scenario file: how its runs are set up, whatever is compared, and what is timed.
//!
//! Idea: what is not said has a default that suits most scenarios. Limits: see [`crate::scenario`].

use std::time::Duration;

use ballast_model::{Bytes, GuestId, PAGE_SIZE};
use ballast_toml_strict::duration;
use serde::Deserialize;

use crate::KernelChoice;
use crate::ScenarioGuest;
use crate::accel::AccelChoice;
use crate::intermittent::Intermittent;

/// How a run is set up.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Time between two decisions; 1 s.
    #[serde(with = "duration")]
    pub tick: Duration,
    /// Time in which the guests settle at their start before anything is measured; 5 s.
    #[serde(with = "duration")]
    pub settle: Duration,
    /// How guests execute; `auto`.
    pub accel: AccelChoice,
    /// The kernel guests boot, by the suite of Debian that has it; `default`: that of the host's sources.
    pub kernel: KernelChoice,
    /// Whether each guest's processor time is bounded to its share; yes.
    pub limit_cpu: bool,
    /// Whether guests hand free pages back by themselves; no.
    pub free_page_reporting: bool,
    /// Whether balloons deflate by themselves when a guest runs out of memory; no.
    pub deflate_on_oom: bool,
    /// Whether what the guests really touch is recorded, under emulation; no.
    pub truth: bool,
    /// Whether the guests have the page tracker in them, so that the daemon knows their working sets; no.
    pub track: bool,
    /// Whether the guests run `ballast-agent`, which the daemon listens to; no.
    pub agent: bool,
    /// When tracking rests; `adaptive`.
    pub intermittent: Intermittent,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            tick: Duration::from_secs(1),
            settle: Duration::from_secs(5),
            accel: AccelChoice::Auto,
            kernel: KernelChoice::Default,
            limit_cpu: true,
            free_page_reporting: false,
            deflate_on_oom: false,
            truth: false,
            track: false,
            agent: false,
            intermittent: Intermittent::Adaptive,
        }
    }
}

/// A transfer of memory from guest to guest that is timed: from the moment in which the receiver's last workload begins
/// until it has so much more, against the time in which the giver's balloon alone takes it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    /// Who gives.
    pub from: GuestId,
    /// Who receives.
    pub to: GuestId,
    /// How much.
    pub amount: Bytes,
    /// How the daemon learns of it; `use` without it.
    #[serde(default)]
    pub demand: Demand,
}

/// How the daemon learns that a guest needs memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Demand {
    /// The guest uses it: as fast as its workload fills memory.
    #[default]
    Use,
    /// In the moment in which the workload begins the operator guarantees it all of it, as its floor.
    Floor,
}

impl Transfer {
    /// Checks that it can be, among `guests`.
    ///
    /// # Errors
    /// The key and what is wrong with it.
    pub(crate) fn validate(&self, guests: &[ScenarioGuest]) -> Result<(), (&'static str, String)> {
        let find = |name: &GuestId, key| {
            let found = guests.iter().find(|guest| guest.name == *name);
            found.ok_or_else(|| (key, format!("no guest `{name}` here")))
        };
        let (from, to) = (find(&self.from, "from")?, find(&self.to, "to")?);
        if self.from == self.to {
            return Err(("to", format!("`{}` gives: expected another guest", self.to)));
        }
        if to.workloads.is_empty() {
            let why = format!("guest `{}` has no workload, so that it needs nothing", to.name);
            return Err(("to", why));
        }
        let spare = |guest: &ScenarioGuest| {
            let floor = guest.limits().floor_for(guest.memory);
            guest.start().saturating_sub(floor)
        };
        let room = to.memory_max().saturating_sub(to.start());
        let most = spare(from).min(room);
        if self.amount.get() < PAGE_SIZE || self.amount > most {
            let amount = self.amount;
            let why = format!(
                "{amount:#} is more than `{}` has above its floor at its start or `{}` has room for, or nothing: \
                 expected at most {most}",
                from.name, to.name
            );
            return Err(("amount", why));
        }
        Ok(())
    }
}
