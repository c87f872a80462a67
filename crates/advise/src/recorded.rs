//! The settings in force when a tick was recorded.

use std::path::Path;

use ballast_control::Settings;
use ballast_report::note;
use ballast_store::{JournalError, Reader, TickEntry};

/// Follows the configurations of a journal.
#[derive(Debug, Default)]
pub struct RecordedSettings {
    /// The number of the last tick's configuration; outer `None`: there was no tick yet.
    config: Option<Option<i64>>,
    /// Whether a note about an unreadable configuration was printed.
    is_reported: bool,
}

impl RecordedSettings {
    /// The settings at `tick`, which was recorded under the configuration `config`; `None`: the
    /// configuration is that of the tick before.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn at(
        &mut self,
        reader: &Reader,
        config: Option<i64>,
        tick: &TickEntry,
    ) -> Result<Option<Settings>, JournalError> {
        match self.config == Some(config) {
            true => Ok(None),
            false => self.first(reader, config, tick).map(Some),
        }
    }

    /// The settings at `tick`, also if its configuration is that of the tick before. If no budget
    /// is configured, the budget is what the plan divided.
    ///
    /// If this version cannot read the configuration, the defaults replace it, and the first time a
    /// note on standard error says so.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn first(
        &mut self,
        reader: &Reader,
        config: Option<i64>,
        tick: &TickEntry,
    ) -> Result<Settings, JournalError> {
        self.config = Some(config);
        let recorded = config.map(|id| reader.config(id)).transpose()?.flatten();
        let place = Path::new("the recorded configuration");
        let read = recorded.map(|recorded| ballast_config::parse(&recorded.toml, place));
        let mut settings = match read {
            Some(Ok(config)) => config.settings,
            Some(Err(error)) => {
                if !self.is_reported {
                    note(&format!("default settings instead of the recorded ones: {error}"));
                }
                self.is_reported = true;
                Settings::new(tick.plan.policy)
            }
            None => Settings::new(tick.plan.policy),
        };
        if settings.guard.budget.is_none() {
            settings.guard.budget = Some(tick.plan.budget.distributable);
        }
        Ok(settings)
    }
}
