//! What the answers to a guest's questions mean.
//!
//! Source: `qapi/machine.json`, `qapi/qom.json`, `qapi/run-state.json` of QEMU 7.2.

use std::borrow::Cow;

use ballast_model::{Bytes, LinkDown, OutcomeKind, Timestamp};
use serde::Deserialize;

use super::Guest;
use super::devices::Devices;
use super::orders::failure;
use super::probe::Entry;
use super::questions::{Asker, Question};
use super::stats::read_guest_stats;
use crate::codec::{self, ErrorReply};
use crate::session::Event;

#[derive(Deserialize)]
struct StatusReply<'a> {
    #[serde(borrow)]
    status: std::borrow::Cow<'a, str>,
}

#[derive(Deserialize)]
struct BalloonReply {
    actual: u64,
}

#[derive(Deserialize)]
struct SummaryReply {
    #[serde(rename = "base-memory")]
    base_memory: u64,
}

impl Guest {
    /// Takes in the answer to one question.
    pub(super) fn answer(
        &mut self,
        question: Question,
        asker: Asker,
        result: Result<&str, ErrorReply>,
        now: Timestamp,
        wall_secs: u64,
    ) -> Result<(), LinkDown> {
        match result {
            Ok(json) => self.succeeded(question, asker, json, now, wall_secs),
            Err(error) => {
                self.failed(question, asker, &error, now);
                Ok(())
            }
        }
    }

    fn succeeded(
        &mut self,
        question: Question,
        asker: Asker,
        json: &str,
        now: Timestamp,
        wall_secs: u64,
    ) -> Result<(), LinkDown> {
        match question {
            Question::Status => {
                self.run.status(&read::<StatusReply<'_>>("query-status", json)?.status);
                self.hold_all_without_balloon(now);
            }
            Question::Balloon => {
                let reply: BalloonReply = read("query-balloon", json)?;
                self.left_by_balloon = Some((asker, Bytes::new(reply.actual)));
                self.found_balloon(true);
                self.hold_with_balloon(now);
            }
            Question::Stats => {
                let (stats, last_update) = read_guest_stats(json)
                    .map_err(|error| unreadable("qom-get guest-stats", json, &error))?;
                self.stats = (last_update != 0).then_some(stats);
                self.stats_age.observe(last_update, now, wall_secs);
            }
            Question::Summary => {
                let reply: SummaryReply = read("query-memory-size-summary", json)?;
                self.base_memory = Some(Bytes::new(reply.base_memory));
            }
            Question::MemoryDevices => {
                let devices = Devices::read(json)
                    .map_err(|error| unreadable("query-memory-devices", json, &error))?;
                let is_there = Some(devices.count > 0);
                match &mut self.probe {
                    Some((_, found)) if asker == Asker::Probe => {
                        found.capabilities.memory_devices = is_there;
                    }
                    _ => self.capabilities.memory_devices = is_there,
                }
                self.devices_listed(asker, devices, now);
            }
            Question::Room => {
                let room = read("qom-get memory", json)?;
                if let Some((_, found)) = &mut self.probe {
                    found.room = Some(room);
                }
            }
            Question::Folder(folder) => {
                let entries: Vec<Entry<'_>> = read("qom-list", json)?;
                if let Some((_, found)) = &mut self.probe {
                    found.listing(folder, &entries);
                }
            }
            Question::PollingInterval => {
                let secs: u64 = read("qom-get guest-stats-polling-interval", json)?;
                if let Some((_, found)) = &mut self.probe {
                    found.start_polling = secs == 0;
                }
            }
            Question::FreePageReporting => {
                let on = read("qom-get free-page-reporting", json)?;
                if let Some((_, found)) = &mut self.probe {
                    found.capabilities.free_page_reporting = Some(on);
                }
            }
            Question::DeflateOnOom => {
                let on = read("qom-get deflate-on-oom", json)?;
                if let Some((_, found)) = &mut self.probe {
                    found.capabilities.deflate_on_oom = Some(on);
                }
            }
            Question::SetPollingInterval => {}
            Question::Step => {
                if let Asker::Order(ticket) = asker {
                    self.step_answered(ticket, Ok(()));
                }
            }
            Question::Powerdown => {
                if let Asker::Order(ticket) = asker {
                    self.finished.push((ticket, OutcomeKind::Accepted));
                }
            }
            Question::RemoveMemory(number) => self.plugging.memory_removed(number),
        }
        Ok(())
    }

    fn failed(&mut self, question: Question, asker: Asker, error: &ErrorReply, now: Timestamp) {
        match question {
            Question::Balloon if error.class == ErrorReply::DEVICE_NOT_ACTIVE => {
                (self.allocation, self.left_by_balloon) = (None, None);
                self.found_balloon(false);
            }
            // The device has gone, or is another: what was read from it means nothing now.
            Question::Stats => {
                self.stats = None;
                self.balloon_path = None;
                self.probe_again = true;
            }
            Question::PollingInterval | Question::SetPollingInterval => {
                if let Some((_, found)) = &mut self.probe {
                    found.capabilities.statistics = Some(false);
                }
            }
            // A property this version does not have is a thing it cannot do.
            Question::FreePageReporting => {
                if let Some((_, found)) = &mut self.probe {
                    found.capabilities.free_page_reporting = Some(false);
                }
            }
            Question::DeflateOnOom => {
                if let Some((_, found)) = &mut self.probe {
                    found.capabilities.deflate_on_oom = Some(false);
                }
            }
            Question::Status => self.run.doubt(),
            Question::Step => {
                if let Asker::Order(ticket) = asker {
                    self.step_answered(ticket, Err(error));
                }
            }
            Question::Powerdown => {
                if let Asker::Order(ticket) = asker {
                    let how = failure("system_powerdown", error);
                    self.finished.push((ticket, OutcomeKind::Failed(how)));
                }
            }
            // Who cannot list memory devices has none.
            Question::MemoryDevices => self.devices_listed(asker, Devices::default(), now),
            // Memory that is still in use is found again by the next probe.
            Question::Balloon
            | Question::Summary
            | Question::Room
            | Question::RemoveMemory(_)
            | Question::Folder(_) => {}
        }
    }

    fn devices_listed(&mut self, asker: Asker, devices: Devices, now: Timestamp) {
        self.plugging.listed(devices);
        self.uncounted = self.plugging.uncounted().map(|uncounted| (asker, uncounted));
        self.hold_with_balloon(now);
        self.hold_all_without_balloon(now);
    }

    fn found_balloon(&mut self, present: bool) {
        if let Some((_, found)) = &mut self.probe {
            found.capabilities.balloon = Some(present);
        }
        if self.probed_at.is_some() && self.capabilities.balloon != Some(present) {
            self.capabilities.balloon = Some(present);
            self.probe_again = true;
        }
    }
}

#[derive(Deserialize)]
struct EventData<'a> {
    #[serde(borrow)]
    device: Option<Cow<'a, str>>,
    #[serde(borrow)]
    info: Option<OstInfo<'a>>,
}

/// What a guest says by ACPI of what it was asked.
#[derive(Deserialize)]
struct OstInfo<'a> {
    #[serde(borrow)]
    device: Option<Cow<'a, str>>,
    source: u64,
    status: u64,
}

/// ACPI 6.5 §6.3.5: the request was to eject.
const OST_EJECT: u64 = 3;
/// Likewise: it was done; it is under way.
const OST_NO_REFUSAL: [u64; 2] = [0, 0x84];

/// The device an event is about, where it is gone, or stays although it should go.
pub(super) fn event_device(event: &Event) -> Option<String> {
    let data: EventData<'_> = serde_json::from_str(event.data.as_deref()?).ok()?;
    let device = match data.info {
        Some(info) if info.source != OST_EJECT || OST_NO_REFUSAL.contains(&info.status) => None,
        Some(info) => info.device,
        None => data.device,
    }?;
    Some(device.into_owned())
}

/// Reads what a command returned.
fn read<'a, T: Deserialize<'a>>(command: &str, json: &'a str) -> Result<T, LinkDown> {
    serde_json::from_str(json).map_err(|error| unreadable(command, json, &error))
}

fn unreadable(command: &str, json: &str, error: &serde_json::Error) -> LinkDown {
    let why = codec::shorten(&error.to_string());
    let got = codec::excerpt(json.as_bytes());
    LinkDown::Protocol(format!("cannot read the reply to {command}: {why}: got `{got}`"))
}
