//! What the answers to a guest's questions mean.
//!
//! Source: `qapi/machine.json`, `qapi/qom.json`, `qapi/run-state.json` of QEMU 7.2.

use ballast_model::{Bytes, LinkDown, OutcomeKind, Timestamp};
use serde::Deserialize;

use super::Guest;
use super::probe::Entry;
use super::questions::{Asker, Question};
use super::stats::read_guest_stats;
use crate::codec::{self, ErrorReply};

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
                self.failed(question, asker, &error);
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
                self.allocation = Some((Bytes::new(reply.actual), now));
                self.found_balloon(true);
            }
            Question::Stats => {
                let (stats, last_update) = read_guest_stats(json)
                    .map_err(|error| unreadable("qom-get guest-stats", json, &error))?;
                self.stats = (last_update != 0).then_some(stats);
                self.stats_age.observe(last_update, now, wall_secs);
            }
            Question::Summary => {
                let reply: SummaryReply = read("query-memory-size-summary", json)?;
                self.boot_memory = Some(Bytes::new(reply.base_memory));
            }
            Question::MemoryDevices => {
                let devices: Vec<serde::de::IgnoredAny> = read("query-memory-devices", json)?;
                if let Some((_, found)) = &mut self.probe {
                    found.capabilities.memory_devices = Some(!devices.is_empty());
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
            Question::Order => {
                if let Asker::Order(ticket) = asker {
                    self.finished.push((ticket, OutcomeKind::Accepted));
                }
            }
        }
        Ok(())
    }

    fn failed(&mut self, question: Question, asker: Asker, error: &ErrorReply) {
        match question {
            Question::Balloon if error.class == ErrorReply::DEVICE_NOT_ACTIVE => {
                self.allocation = None;
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
            Question::Order => {
                if let Asker::Order(ticket) = asker {
                    let how = codec::shorten(&error.to_string());
                    self.finished.push((ticket, OutcomeKind::Failed(how)));
                }
            }
            Question::Balloon
            | Question::Summary
            | Question::MemoryDevices
            | Question::Folder(_) => {}
        }
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

/// Reads what a command returned.
fn read<'a, T: Deserialize<'a>>(command: &str, json: &'a str) -> Result<T, LinkDown> {
    serde_json::from_str(json).map_err(|error| unreadable(command, json, &error))
}

fn unreadable(command: &str, json: &str, error: &serde_json::Error) -> LinkDown {
    let why = codec::shorten(&error.to_string());
    let got = codec::excerpt(json.as_bytes());
    LinkDown::Protocol(format!("cannot read the reply to {command}: {why}: got `{got}`"))
}
