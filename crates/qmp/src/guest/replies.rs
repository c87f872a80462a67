//! Handles the replies to a guest's queries.
//!
//! Source: `qapi/machine.json`, `qapi/qom.json`, `qapi/run-state.json` of QEMU 7.2.

use std::borrow::Cow;

use ballast_model::{Bytes, LinkDown, OutcomeKind, Timestamp};
use serde::{Deserialize, Deserializer};

use super::actions::failure;
use super::devices::{ADDRESSABLE_MAX, MemoryDevices};
use super::monitor::GuestMonitor;
use super::probe::{ProbeResult, QomEntry};
use super::requests::{Purpose, Requester, SentCommand};
use super::stats::read_guest_stats;
use crate::codec::{self, ErrorReply};

#[derive(Deserialize)]
struct RunStateReply<'a> {
    #[serde(borrow)]
    status: Cow<'a, str>,
}

#[derive(Deserialize)]
struct BalloonReply {
    #[serde(deserialize_with = "at_least_zero")]
    actual: u64,
}

/// A driver can claim a balloon larger than its guest's memory. QEMU then reports a negative size.
fn at_least_zero<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let size = i128::deserialize(deserializer)?;
    Ok(u64::try_from(size.max(0)).unwrap_or(u64::MAX))
}

#[derive(Deserialize)]
struct SummaryReply {
    #[serde(rename = "base-memory")]
    base_memory: u64,
}

impl GuestMonitor {
    /// Handles the reply to one command.
    pub(super) fn handle_reply(
        &mut self,
        command: SentCommand,
        result: Result<&str, ErrorReply>,
        now: Timestamp,
        wall_secs: u64,
    ) -> Result<(), LinkDown> {
        match result {
            Ok(json) => self.succeeded(command, json, now, wall_secs),
            Err(error) => {
                self.failed(command.purpose, command.requester, &error, now);
                Ok(())
            }
        }
    }

    fn succeeded(
        &mut self,
        command: SentCommand,
        json: &str,
        now: Timestamp,
        wall_secs: u64,
    ) -> Result<(), LinkDown> {
        // A reading is as old as its query, however late the reply comes.
        let SentCommand { purpose, requester, at, .. } = command;
        match purpose {
            Purpose::Status => {
                self.run.status(&parse::<RunStateReply<'_>>("query-status", json)?.status);
                self.update_allocation_without_balloon(at);
            }
            Purpose::Balloon => {
                let reply: BalloonReply = parse("query-balloon", json)?;
                self.balloon_actual = Some((requester, Bytes::new(reply.actual).page_floor()));
                self.found_balloon(true);
                self.update_allocation_with_balloon(at);
            }
            Purpose::Stats => {
                let (stats, last_update) = read_guest_stats(json)
                    .map_err(|error| unreadable("qom-get guest-stats", json, &error))?;
                self.stats = (last_update != 0).then_some(stats);
                self.stats_age.observe(last_update, at, now, wall_secs);
            }
            Purpose::Summary => {
                let reply: SummaryReply = parse("query-memory-size-summary", json)?;
                let base_memory = Bytes::new(reply.base_memory).page_floor();
                if base_memory > ADDRESSABLE_MAX {
                    let what =
                        format!("boot memory of {base_memory}, expected at most {ADDRESSABLE_MAX}");
                    return Err(LinkDown::Protocol(what));
                }
                self.base_memory = Some(base_memory);
            }
            Purpose::MemoryDevices => {
                let devices = MemoryDevices::parse(json)
                    .map_err(|error| unreadable("query-memory-devices", json, &error))?;
                let has_devices = Some(devices.count > 0);
                match &mut self.probe {
                    Some((_, found)) if requester == Requester::Probe => {
                        found.capabilities.memory_devices = has_devices;
                    }
                    _ => self.capabilities.memory_devices = has_devices,
                }
                self.devices_listed(requester, devices, at);
            }
            Purpose::BlockStats => self.block_stats.replied(json, at, now),
            Purpose::MachineMemory => {
                let machine_memory = parse("qom-get memory", json)?;
                self.note(|found| found.machine_memory = Some(machine_memory));
            }
            Purpose::Folder(folder) => {
                let entries: Vec<QomEntry<'_>> = parse("qom-list", json)?;
                self.note(|found| found.listing(folder, &entries));
            }
            Purpose::PollingInterval => {
                let secs: u64 = parse("qom-get guest-stats-polling-interval", json)?;
                self.note(|found| found.start_polling = secs == 0);
            }
            Purpose::FreePageReporting => {
                let on = parse("qom-get free-page-reporting", json)?;
                self.note(|found| found.capabilities.free_page_reporting = Some(on));
            }
            Purpose::VsockCid => {
                let cid: u64 = parse("qom-get guest-cid", json)?;
                self.note(|found| found.vsock_cid = u32::try_from(cid).ok());
            }
            Purpose::DeflateOnOom => {
                let on = parse("qom-get deflate-on-oom", json)?;
                self.note(|found| found.capabilities.deflate_on_oom = Some(on));
            }
            Purpose::SetPollingInterval => {}
            Purpose::Step => {
                if let Requester::Caller(ticket) = requester {
                    self.step_answered(ticket, Ok(()));
                }
            }
            Purpose::Powerdown => {
                if let Requester::Caller(ticket) = requester {
                    self.finished.push((ticket, OutcomeKind::Accepted));
                }
            }
            Purpose::RemoveMemory(number) => self.hotplug.memory_removed(number),
        }
        Ok(())
    }

    fn failed(
        &mut self,
        purpose: Purpose,
        requester: Requester,
        error: &ErrorReply,
        now: Timestamp,
    ) {
        match purpose {
            Purpose::Balloon if error.class == ErrorReply::DEVICE_NOT_ACTIVE => {
                (self.allocation, self.balloon_actual) = (None, None);
                self.found_balloon(false);
            }
            // The device was removed or replaced: its old readings are void.
            Purpose::Stats => {
                self.stats = None;
                self.balloon_path = None;
                self.probe_again = true;
            }
            Purpose::PollingInterval | Purpose::SetPollingInterval => {
                self.note(|found| found.capabilities.statistics = Some(false));
            }
            // This version of QEMU lacks the property, and so the feature.
            Purpose::FreePageReporting => {
                self.note(|found| found.capabilities.free_page_reporting = Some(false));
            }
            Purpose::DeflateOnOom => {
                self.note(|found| found.capabilities.deflate_on_oom = Some(false));
            }
            Purpose::BlockStats => self.block_stats.failed(),
            Purpose::Status => self.run.request_query(),
            Purpose::Step => {
                if let Requester::Caller(ticket) = requester {
                    self.step_answered(ticket, Err(error));
                }
            }
            Purpose::Powerdown => {
                if let Requester::Caller(ticket) = requester {
                    let how = failure("system_powerdown", error);
                    self.finished.push((ticket, OutcomeKind::Failed(how)));
                }
            }
            // A hypervisor that cannot list memory devices has none.
            Purpose::MemoryDevices => self.devices_listed(requester, MemoryDevices::default(), now),
            // If memory could not be removed, the next probe finds it again.
            Purpose::Balloon
            | Purpose::VsockCid
            | Purpose::Summary
            | Purpose::MachineMemory
            | Purpose::RemoveMemory(_)
            | Purpose::Folder(_) => {}
        }
    }

    /// Adds to the result of the running probe, if there is one.
    fn note(&mut self, add: impl FnOnce(&mut ProbeResult)) {
        if let Some((_, found)) = &mut self.probe {
            add(found);
        }
    }

    fn devices_listed(&mut self, requester: Requester, devices: MemoryDevices, now: Timestamp) {
        self.hotplug.listed(devices);
        let plugged = self.hotplug.virtio_mem_plugged();
        self.virtio_mem_plugged = plugged.map(|plugged| (requester, plugged));
        self.update_allocation_with_balloon(now);
        self.update_allocation_without_balloon(now);
    }

    fn found_balloon(&mut self, present: bool) {
        self.note(|found| found.capabilities.balloon = Some(present));
        if self.probed_at.is_some() && self.capabilities.balloon != Some(present) {
            self.capabilities.balloon = Some(present);
            self.probe_again = true;
        }
    }
}

fn parse<'a, T: Deserialize<'a>>(command: &str, json: &'a str) -> Result<T, LinkDown> {
    serde_json::from_str(json).map_err(|error| unreadable(command, json, &error))
}

fn unreadable(command: &str, json: &str, error: &serde_json::Error) -> LinkDown {
    let why = codec::shorten(&error.to_string());
    let got = codec::excerpt(json.as_bytes());
    LinkDown::Protocol(format!("cannot read the reply to {command}: {why}: got `{got}`"))
}
