//! `[mechanisms]`: by which mechanisms memory is moved.

use std::time::Duration;

use ballast_mechanism::hotplug::HotplugSettings;
use ballast_model::Bytes;
use serde::Deserialize;

/// `[mechanisms]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct MechanismsTable {
    pub(super) hotplug: HotplugTable,
}

/// `[mechanisms.hotplug]`
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct HotplugTable {
    pub(super) enabled: bool,
    pub(super) keep: Bytes,
    pub(super) ahead: Bytes,
    #[serde(with = "ballast_toml_strict::duration")]
    pub(super) idle_after: Duration,
}

impl Default for HotplugTable {
    fn default() -> Self {
        HotplugTable {
            enabled: true,
            keep: HotplugSettings::KEEP_DEFAULT,
            ahead: HotplugSettings::AHEAD_DEFAULT,
            idle_after: HotplugSettings::IDLE_AFTER_DEFAULT,
        }
    }
}

impl HotplugTable {
    /// Its settings, where statistics are acted on up to that age; `None`: nothing is plugged.
    ///
    /// # Errors
    /// The key and what is wrong with it.
    pub(super) fn settings(
        &self,
        stale_after: Duration,
    ) -> Result<Option<HotplugSettings>, (&'static str, String)> {
        if self.ahead < self.keep {
            let (ahead, keep) = (self.ahead, self.keep);
            let message = format!("{ahead} is less than keep = {keep}: plugging would never end");
            return Err(("ahead", message));
        }
        Ok(self.enabled.then(|| HotplugSettings {
            keep: self.keep,
            ahead: self.ahead,
            idle_after: self.idle_after,
            stale_after,
            ..HotplugSettings::default()
        }))
    }
}
