//! The main loop's journal: recording never delays a tick or makes it fail.

use std::time::Duration;

use ballast_host::{PROC, boot_id};
use ballast_model::GuestId;
use ballast_store::{Event, Journal, JournalConfig, Reader, Start, Tick};

use super::clock;
use super::warn_once::WarnOnce;
use ballast_config::JournalSettings;

/// Longest wait for the last entries to reach the disk when the daemon stops.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(5);

/// Records if a journal is configured; warns once when it cannot.
#[derive(Debug)]
pub(super) struct Recorder {
    journal: Option<Journal>,
    warnings: WarnOnce,
}

impl Recorder {
    /// Opens the journal and creates its folder if missing.
    ///
    /// # Errors
    /// The file is not a journal, or cannot be opened or created.
    pub(super) fn open(settings: Option<&JournalSettings>) -> anyhow::Result<Self> {
        let Some(settings) = settings else {
            return Ok(Recorder { journal: None, warnings: WarnOnce::default() });
        };
        let start = Start {
            wall: clock::wall(),
            mono: clock::now(),
            boot_id: boot_id(PROC.as_ref())?,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
        };
        let journal = Journal::open(&settings.path, retention(settings), start)?;
        Ok(Recorder { journal: Some(journal), warnings: WarnOnce::default() })
    }

    /// Each guest's credits at the last recorded tick, whichever daemon recorded it.
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

    /// Changes the retention.
    pub(super) fn keep(&mut self, settings: &JournalSettings) {
        let Some(journal) = &self.journal else { return };
        if let Err(error) = journal.set_retention(retention(settings)) {
            self.warnings.warn("journal", &error.to_string());
        }
    }

    /// Records a tick.
    pub(super) fn tick(&mut self, tick: Tick<'_>) {
        let Some(journal) = &self.journal else { return };
        let handed_over = journal.record(&tick);
        let trouble = handed_over.err().map(|e| e.to_string()).or(journal.status().error);
        match trouble {
            Some(why) => self.warnings.warn("journal", &why),
            None if self.warnings.over("journal") => tracing::info!("journal: recording resumed"),
            None => {}
        }
    }

    /// Records something that happened between ticks.
    pub(super) fn event(&mut self, event: Event) {
        let Some(journal) = &self.journal else { return };
        if let Err(error) = journal.record_event(clock::wall(), clock::now(), event) {
            self.warnings.warn("journal", &error.to_string());
        }
    }

    /// Why recording fails at present, if it does.
    pub(super) fn error(&self) -> Option<String> {
        self.journal.as_ref()?.status().error
    }

    /// Records an orderly stop and closes the journal.
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
