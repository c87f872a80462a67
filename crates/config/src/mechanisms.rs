//! The table `[mechanisms]`: the mechanisms that move memory.

use std::time::Duration;

use ballast_actuation::hotplug::HotplugSettings;
use ballast_model::Bytes;
use ballast_reclaim::SwapBounds;
use serde::Deserialize;

use crate::paging::{PagerSettings, PagingWay};
use crate::range::Mistake;

/// `[mechanisms]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct MechanismsTable {
    pub(super) undo: bool,
    pub(super) hotplug: HotplugTable,
    pub(super) paging: PagingTable,
    pub(super) ksm: KsmTable,
}

/// `[mechanisms.ksm]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct KsmTable {
    pub(super) enabled: bool,
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

/// `[mechanisms.paging]`
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PagingTable {
    pub(super) enabled: bool,
    pub(super) way: PagingWay,
    pub(super) per_second: Bytes,
    pub(super) swap_use_max_percent: u64,
    pub(super) swap_reserve: Bytes,
}

impl Default for PagingTable {
    fn default() -> Self {
        let SwapBounds { use_max_percent, reserve } = SwapBounds::default();
        PagingTable {
            enabled: true,
            way: PagingWay::Auto,
            per_second: PagerSettings::PER_SECOND_DEFAULT,
            swap_use_max_percent: use_max_percent,
            swap_reserve: reserve,
        }
    }
}

impl PagingTable {
    /// The settings for a host with this reserve; `None`: paging is off.
    ///
    /// # Errors
    /// The key and its mistake.
    pub(super) fn settings(&self, host_reserve: Bytes) -> Result<Option<PagerSettings>, Mistake> {
        if self.per_second < Bytes::mib(1) {
            return Err(("per_second", format!("{}: expected at least 1MiB", self.per_second)));
        }
        if self.swap_use_max_percent > 100 {
            let message = format!("{}: expected 0 to 100", self.swap_use_max_percent);
            return Err(("swap_use_max_percent", message));
        }
        let swap =
            SwapBounds { use_max_percent: self.swap_use_max_percent, reserve: self.swap_reserve };
        let (way, per_second) = (self.way, self.per_second);
        Ok(self.enabled.then_some(PagerSettings { way, per_second, swap, host_reserve }))
    }
}

impl HotplugTable {
    /// The settings, given the age up to which statistics are used; `None`: hotplug is off.
    ///
    /// # Errors
    /// The key and its mistake.
    pub(super) fn settings(
        &self,
        stale_after: Duration,
    ) -> Result<Option<HotplugSettings>, Mistake> {
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
