//! The journal, as the main loop uses it: recording never delays or fails a tick.

use std::time::Duration;

use ballast_host::{PROC, boot_id};
use ballast_model::GuestId;
use ballast_store::{Event, Journal, JournalConfig, Reader, Start, Tick};

use super::clock;
use super::once::Once;
use crate::config::JournalSettings;

/// Longest wait for the last entries to reach the disk when the daemon ends.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(5);

/// Records if a journal is configured; says once when it cannot.
#[derive(Debug)]
pub(super) struct Recorder {
    journal: Option<Journal>,
    said: Once,
}

impl Recorder {
    /// Opens the journal, making its folder where that is missing.
    ///
    /// # Errors
    /// The file is there and is no journal, or cannot be opened or made.
    pub(super) fn open(settings: Option<&JournalSettings>) -> anyhow::Result<Self> {
        let Some(settings) = settings else {
            return Ok(Recorder { journal: None, said: Once::default() });
        };
        let start = Start {
            wall: clock::wall(),
            mono: clock::now(),
            boot_id: boot_id(PROC.as_ref())?,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
        };
        let journal = Journal::open(&settings.path, retention(settings), start)?;
        Ok(Recorder { journal: Some(journal), said: Once::default() })
    }

    /// What guests had to pay rent with at the last tick that is recorded, by whichever daemon.
    pub(super) fn credits(
        settings: Option<&JournalSettings>,
    ) -> anyhow::Result<Vec<(GuestId, u64)>> {
        let Some(settings) = settings.filter(|settings| settings.path.exists()) else {
            return Ok(Vec::new());
        };
        let last = Reader::open(&settings.path)?.last_tick()?;
        let guests = last.into_iter().flat_map(|(_, tick)| tick.plan.guests);
        Ok(guests.filter_map(|guest| Some((guest.id, guest.credits?))).collect())
    }

    /// Changes how much is kept.
    pub(super) fn keep(&mut self, settings: &JournalSettings) {
        let Some(journal) = &self.journal else { return };
        if let Err(error) = journal.set_retention(retention(settings)) {
            self.said.warn("journal", &error.to_string());
        }
    }

    /// Records a tick.
    pub(super) fn tick(&mut self, tick: Tick<'_>) {
        let Some(journal) = &self.journal else { return };
        let handed_over = journal.record(&tick);
        let trouble = handed_over.err().map(|e| e.to_string()).or(journal.status().error);
        match trouble {
            Some(why) => self.said.warn("journal", &why),
            None if self.said.over("journal") => tracing::info!("journal: recording again"),
            None => {}
        }
    }

    /// Records something that happened between ticks.
    pub(super) fn event(&mut self, event: Event) {
        let Some(journal) = &self.journal else { return };
        if let Err(error) = journal.record_event(clock::wall(), clock::now(), event) {
            self.said.warn("journal", &error.to_string());
        }
    }

    /// Why nothing is recorded at present, if so.
    pub(super) fn error(&self) -> Option<String> {
        self.journal.as_ref()?.status().error
    }

    /// Records the end in order.
    pub(super) fn close(mut self, why: &str) {
        let Some(journal) = self.journal.take() else { return };
        if !journal.close(clock::wall(), clock::now(), why, CLOSE_WAIT_MAX) {
            tracing::warn!("journal: the last entries may not have been written");
        }
    }
}

fn retention(settings: &JournalSettings) -> JournalConfig {
    JournalConfig { age_max: settings.keep_age, bytes_max: settings.keep_bytes }
}
