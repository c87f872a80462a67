//! One guest of Firecracker: the calls of a sample and of an order, and the meaning of the answers.
//!
//! Limits: the guest's name is that of its socket, because Firecracker's own name for it is often
//! the default, `anonymous-instance`.

use std::path::Path;
use std::time::Duration;

use ballast_model::{
    Action, Bytes, Capabilities, GuestId, GuestSample, GuestStats, Hotplug, LinkDown, LinkState,
    Measured, Pinned, RunState, Timestamp,
};
use ballast_rest::{Answer, Call, HypervisorKind, Method, RestGuest};
use serde_json::json;

use crate::api::{BalloonStats, HotplugStatus, Instance, ReportedStats, VmConfig, mib};
use crate::freshness::Freshness;
use crate::memory::{HOTPLUG, Layout, hotplug};

/// The calls that read.
const INSTANCE: Call = Call::get("/");
const CONFIG: Call = Call::get("/vm/config");
const STATISTICS: Call = Call::get("/balloon/statistics");
const PLUGGED: Call = Call::get(HOTPLUG);

/// While the host is short of memory, a guest is asked once in this time for pages that it does not
/// use (free page hinting).
const HINTING_PERIOD: Duration = Duration::from_secs(30);

/// The name that Firecracker reports for itself.
const APP_NAME: &str = "Firecracker";

/// A guest of Firecracker.
#[derive(Debug, Default)]
pub struct FirecrackerGuest {
    /// The calls to make next.
    next: Vec<Call>,
    instance: Option<Instance>,
    instance_at: Timestamp,
    /// Its configuration at boot; `None` if not read yet, or not booted.
    config: Option<VmConfig>,
    /// The size of its balloon, and when it was queried.
    balloon: Option<(Bytes, Timestamp)>,
    reported: Freshness<ReportedStats>,
    hotplug: Option<(Hotplug, Timestamp)>,
    /// Whether a reporting period of a second was requested.
    has_period: bool,
    /// Whether the host is short of memory, and when the guest was last asked for unused pages.
    is_short: bool,
    hinted_at: Option<Timestamp>,
    /// The last refusal, so that it is reported once.
    refused: Option<String>,
    notices: Vec<String>,
}

impl FirecrackerGuest {
    /// Whether its balloon can be used: it has one, and Firecracker reports the balloon's size.
    fn has_balloon(&self) -> bool {
        let balloon = self.config.as_ref().and_then(|config| config.balloon.as_ref());
        balloon.is_some_and(|it| it.stats_polling_interval_s > 0)
    }

    /// The calls of every sample of a booted guest; none while its configuration is not known.
    fn calls_of_sample(&mut self, now: Timestamp) -> Vec<Call> {
        let mut calls = Vec::new();
        let Some(config) = &self.config else { return calls };
        if let Some(balloon) = &config.balloon {
            if balloon.stats_polling_interval_s > 0 {
                if balloon.stats_polling_interval_s > 1 && !self.has_period {
                    let body = json!({ "stats_polling_interval_s": 1 });
                    calls.push(Call::send(Method::Patch, STATISTICS.path, &body));
                    self.has_period = true;
                }
                calls.push(STATISTICS);
            }
            let is_due = self.hinted_at.is_none_or(|at| now.saturating_since(at) >= HINTING_PERIOD);
            if balloon.free_page_hinting && self.is_short && is_due {
                let body = json!({ "acknowledge_on_stop": true });
                calls.push(Call::send(Method::Patch, "/balloon/hinting/start", &body));
                self.hinted_at = Some(now);
            }
        }
        if config.memory_hotplug.is_some() {
            calls.push(PLUGGED);
        }
        calls
    }

    fn take_config(&mut self, config: VmConfig, now: Timestamp) {
        let is_new = self.config.is_none();
        self.config = Some(config);
        if is_new && self.has_unmeasured_balloon() {
            self.notices.push(
                "its balloon is not used, as it was configured without statistics before boot \
                 (stats_polling_interval_s), and does not say what it holds"
                    .to_owned(),
            );
        }
        self.next = self.calls_of_sample(now);
    }

    fn is_booted(&self) -> bool {
        self.instance.as_ref().is_some_and(|it| matches!(it.state.as_str(), "Running" | "Paused"))
    }

    /// The memory that it holds; `None` if it is not known. A balloon of unknown size counts as
    /// empty.
    fn holds(&self, now: Timestamp) -> Option<Measured<Bytes>> {
        let config = self.config.as_ref()?;
        let mut asked_at = self.instance_at;
        let mut value = mib(config.machine_config.mem_size_mib);
        if self.has_balloon() {
            let (held, at) = self.balloon?;
            (value, asked_at) = (value.saturating_sub(held), asked_at.min(at));
        }
        if config.memory_hotplug.is_some() {
            let (hotplug, at) = self.hotplug?;
            (value, asked_at) = (value.saturating_add(hotplug.plugged), asked_at.min(at));
        }
        Some(Measured { value: value.page_floor(), age: now.saturating_since(asked_at) })
    }

    /// Reports a refused call on which the rest of the sample does not depend.
    fn note_refusal(&mut self, call: &Call, answer: &Answer) {
        let refusal = answer.refusal(call);
        if self.refused.as_ref() != Some(&refusal) {
            self.notices.push(refusal.clone());
            self.refused = Some(refusal);
        }
    }
}

/// Firecracker, for [`RestGuests`](ballast_rest::RestGuests).
pub const FIRECRACKER: HypervisorKind = HypervisorKind {
    name: "Firecracker",
    process: "firecracker",
    guest: || Box::<FirecrackerGuest>::default(),
};

impl RestGuest for FirecrackerGuest {
    fn begin(&mut self, now: Timestamp, _in_full: bool) {
        self.next = vec![INSTANCE];
        let calls = self.calls_of_sample(now);
        self.next.extend(calls);
    }

    fn calls(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.next)
    }

    fn take(
        &mut self,
        call: &Call,
        answer: &Answer,
        asked_at: Timestamp,
        now: Timestamp,
    ) -> Result<(), LinkDown> {
        if *call == INSTANCE {
            let instance: Instance = answer.read(call)?;
            if instance.app_name != APP_NAME {
                let what = "another name than Firecracker's";
                return Err(LinkDown::Protocol(format!("{call} was answered with {what}")));
            }
            (self.instance, self.instance_at) = (Some(instance), asked_at);
            if !self.is_booted() {
                self.config = None;
            } else if self.config.is_none() {
                self.next = vec![CONFIG];
            }
        } else if *call == CONFIG {
            let config = answer.read(call)?;
            self.take_config(config, now);
        } else if !answer.is_success() {
            // The last figures stay, and age.
            self.note_refusal(call, answer);
        } else if *call == STATISTICS {
            let stats: BalloonStats = answer.read(call)?;
            self.balloon = Some((stats.held(), asked_at));
            self.reported.observe(stats.reported, asked_at);
        } else if *call == PLUGGED {
            let status: HotplugStatus = answer.read(call)?;
            self.hotplug = hotplug(status).map(|hotplug| (hotplug, asked_at));
        }
        Ok(())
    }

    fn sample(&self, id: &GuestId, now: Timestamp) -> GuestSample {
        let mut sample = GuestSample::unknown(id.clone(), LinkState::Up);
        sample.run_state = self.instance.as_ref().map(|it| run_state(&it.state));
        let Some(config) = &self.config else { return sample };
        sample.allocation = self.holds(now);
        sample.boot_memory = Some(mib(config.machine_config.mem_size_mib));
        sample.hotplug = self.hotplug.map(|(hotplug, _)| hotplug);
        let reported = self.reported.aged(now).filter(|_| self.has_balloon());
        sample.stats =
            reported.map(|(stats, age)| Measured { value: GuestStats::from(*stats), age });
        let balloon = config.balloon.as_ref();
        sample.pinned = config.machine_config.has_huge_pages().then_some(Pinned::HugePages);
        sample.capabilities = Capabilities {
            balloon: Some(self.has_balloon()),
            statistics: Some(self.has_balloon()),
            free_page_reporting: Some(balloon.is_some_and(|it| it.free_page_reporting)),
            deflate_on_oom: Some(balloon.is_some_and(|it| it.deflate_on_oom)),
            memory_devices: Some(config.memory_hotplug.is_some()),
            discard_inhibited: Some(sample.pinned.is_some()),
            shared_control: Some(true),
        };
        sample
    }

    fn order(&mut self, action: &Action) -> Result<Vec<Call>, String> {
        let config = self.config.as_ref().ok_or("it is not booted")?;
        let layout = Layout {
            boot: mib(config.machine_config.mem_size_mib),
            has_balloon: self.has_balloon(),
            hotplug: self.hotplug.map(|(hotplug, _)| hotplug),
        };
        let orders = layout.orders(action.target, action.plug)?;
        if let Some((hotplug, _)) = &mut self.hotplug {
            hotplug.requested = orders.plugged;
        }
        Ok(orders.calls)
    }

    fn planned(&mut self, is_short: bool) {
        self.is_short = is_short;
    }

    fn vsock_socket(&self) -> Option<&Path> {
        Some(&self.config.as_ref()?.vsock.as_ref()?.uds_path)
    }

    fn version(&self) -> Option<&str> {
        self.instance.as_ref().map(|instance| instance.vmm_version.as_str())
    }

    fn has_unmeasured_balloon(&self) -> bool {
        let balloon = self.config.as_ref().and_then(|config| config.balloon.as_ref());
        balloon.is_some() && !self.has_balloon()
    }

    fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }
}

fn run_state(state: &str) -> RunState {
    match state {
        "Running" => RunState::Running,
        "Paused" => RunState::Paused,
        "Not started" => RunState::Other("not started".to_owned()),
        _ => RunState::Other("unknown".to_owned()),
    }
}

#[cfg(test)]
mod tests;
