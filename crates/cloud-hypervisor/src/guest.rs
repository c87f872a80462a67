//! One guest of Cloud Hypervisor: the calls of a sample and of an order, and the meaning of the
//! answers.
//!
//! Limits: Cloud Hypervisor reports its PID in its own PID namespace, so the kernel's information
//! takes precedence.

use std::path::Path;

use ballast_model::{
    Action, Bytes, Capabilities, DiskReads, GuestId, GuestSample, LinkDown, LinkState, Measured,
    RunState, Timestamp,
};
use ballast_rest::{Answer, Call, HypervisorKind, RestGuest};

use crate::api::{CounterMap, Info, Ping, Version};
use crate::memory::Layout;

/// The calls that read.
const PING: Call = Call::get("/api/v1/vmm.ping");
const INFO: Call = Call::get("/api/v1/vm.info");
const COUNTERS: Call = Call::get("/api/v1/vm.counters");

/// A guest of Cloud Hypervisor.
#[derive(Debug, Default)]
pub struct CloudHypervisorGuest {
    /// Whether a sample is due, and whether it is in full.
    due: Option<bool>,
    /// The answer to `vmm.ping`, with its version; `None` if it was not read yet.
    ping: Option<(Ping, Version)>,
    /// The last answer to `vm.info`, and when it was queried; `None` if it has no guest.
    info: Option<(Info, Layout, Timestamp)>,
    /// What was read from its disks, and when that was queried.
    disk_reads: Option<(DiskReads, Timestamp)>,
    /// Whether a notice was given that the version is too old to plug memory.
    was_too_old: bool,
    notices: Vec<String>,
}

impl CloudHypervisorGuest {
    fn take_info(&mut self, info: Info, asked_at: Timestamp) {
        let version = self.ping.as_ref().map_or(Version(0), |(_, version)| *version);
        let layout = Layout::read(&info.config, version);
        let plugs = info.config.memory.hotplug_method.as_deref() == Some("VirtioMem");
        if plugs && version < Version::COUNTS_PLUGGED && !self.was_too_old {
            self.was_too_old = true;
            let Version(least) = Version::COUNTS_PLUGGED;
            self.notices.push(format!(
                "no memory is plugged in or out: Cloud Hypervisor {} does not say what its guest \
                 has done of that, as version {least} does",
                version.0
            ));
        }
        self.info = Some((info, layout, asked_at));
    }
}

/// Cloud Hypervisor, for [`RestGuests`](ballast_rest::RestGuests).
pub const CLOUD_HYPERVISOR: HypervisorKind = HypervisorKind {
    name: "Cloud Hypervisor",
    process: "cloud-hyperviso",
    guest: || Box::<CloudHypervisorGuest>::default(),
};

impl RestGuest for CloudHypervisorGuest {
    fn begin(&mut self, _now: Timestamp, in_full: bool) {
        self.due = Some(in_full);
    }

    fn calls(&mut self) -> Vec<Call> {
        let Some(in_full) = self.due.take() else { return Vec::new() };
        let mut calls = if self.ping.is_some() { vec![INFO] } else { vec![PING, INFO] };
        if in_full {
            calls.push(COUNTERS);
        }
        calls
    }

    fn take(
        &mut self,
        call: &Call,
        answer: &Answer,
        asked_at: Timestamp,
        now: Timestamp,
    ) -> Result<(), LinkDown> {
        if *call == PING {
            let ping: Ping = answer.read(call)?;
            let version = ping.version().ok_or_else(|| {
                let what = "a version of Cloud Hypervisor, such as 53.0.0";
                LinkDown::Protocol(format!("{call} was answered without {what}"))
            })?;
            self.ping = Some((ping, version));
            return Ok(());
        }
        if *call == COUNTERS {
            // The call fails while the guest is not booted: it says nothing of the connection.
            if let Some(reads) = answer.read::<CounterMap>(call).ok().and_then(|it| it.disk_reads())
            {
                let reads = DiskReads { took: now.saturating_since(asked_at), ..reads };
                self.disk_reads = Some((reads, asked_at));
            }
            return Ok(());
        }
        match answer.status {
            // The hypervisor runs, but its guest was not created yet or was deleted.
            404 => (self.info, self.disk_reads) = (None, None),
            _ => {
                let info = answer.read(call)?;
                self.take_info(info, asked_at);
            }
        }
        Ok(())
    }

    fn sample(&self, id: &GuestId, now: Timestamp) -> GuestSample {
        let mut sample = GuestSample::unknown(id.clone(), LinkState::Up);
        let Some((info, layout, asked_at)) = &self.info else {
            sample.run_state = Some(RunState::Other("no guest was created".to_owned()));
            return sample;
        };
        sample.run_state = Some(run_state(&info.state));
        let age = now.saturating_since(*asked_at);
        let holds = info.memory_actual_size.map(|size| Bytes::new(size).page_floor());
        sample.allocation = holds.map(|value| Measured { value, age });
        sample.disk_reads =
            self.disk_reads.map(|(value, at)| Measured { value, age: now.saturating_since(at) });
        sample.boot_memory = Some(layout.boot);
        sample.hotplug = layout.hotplug(holds.unwrap_or(layout.boot));
        let balloon = info.config.balloon.as_ref();
        let config = &info.config;
        sample.pinned = config.pinned();
        sample.capabilities = Capabilities {
            balloon: Some(balloon.is_some()),
            statistics: Some(false),
            free_page_reporting: Some(balloon.is_some_and(|it| it.free_page_reporting)),
            deflate_on_oom: Some(balloon.is_some_and(|it| it.deflate_on_oom)),
            memory_devices: Some(!layout.devices.is_empty()),
            discard_inhibited: Some(config.pinned().is_some()),
            shared_control: Some(true),
        };
        sample
    }

    fn order(&mut self, action: &Action) -> Result<Vec<Call>, String> {
        let (_, layout, _) = self.info.as_mut().ok_or("no guest was created")?;
        let orders = layout.orders(action.target, action.plug)?;
        layout.ordered(&orders);
        Ok(orders.calls)
    }

    fn claims_process(&self, pid: u32) -> bool {
        self.ping.as_ref().is_some_and(|(ping, _)| ping.pid == Some(i64::from(pid)))
    }

    fn vsock_socket(&self) -> Option<&Path> {
        let (info, ..) = self.info.as_ref()?;
        Some(&info.config.vsock.as_ref()?.socket)
    }

    fn version(&self) -> Option<&str> {
        self.ping.as_ref().map(|(ping, _)| ping.version.as_str())
    }

    fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }
}

fn run_state(state: &str) -> RunState {
    match state {
        "Running" => RunState::Running,
        "Paused" => RunState::Paused,
        "Shutdown" => RunState::Shutdown,
        "Created" => RunState::Other("created, not booted".to_owned()),
        "BreakPoint" => RunState::Other("at a breakpoint".to_owned()),
        _ => RunState::Other("unknown".to_owned()),
    }
}

#[cfg(test)]
mod tests;
