//! An operator's settings for plugging, with the arguments for their defaults.

use std::time::Duration;

use ballast_model::Bytes;

/// Settings of a [`Actuator`](super::Actuator).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotplugSettings {
    /// Plugging begins when the balloon would have less than this left to give.
    pub keep: Bytes,
    /// Memory that the balloon should hold in reserve afterwards.
    pub ahead: Bytes,
    /// Most that one action plugs in; one block if blocks are larger.
    pub plug_chunk_max: Bytes,
    /// Most that one action unplugs; one block if blocks are larger.
    pub unplug_chunk_max: Bytes,
    /// Plugged memory that is not needed for this long is unplugged.
    pub idle_after: Duration,
    /// A guest that plugs or unplugs nothing for this long counts as stalled.
    pub stalled_after: Duration,
    /// Time that a guest's kernel has to add plugged memory to its `MemTotal`.
    pub onlined_within: Duration,
    /// First pause after an unplug stalled.
    pub unplug_pause: Duration,
    /// First pause after plugged memory was not used.
    pub plug_pause: Duration,
    /// An older allocation is not acted on.
    pub stale_after: Duration,
}

impl Default for HotplugSettings {
    fn default() -> Self {
        HotplugSettings {
            keep: HotplugSettings::KEEP_DEFAULT,
            ahead: HotplugSettings::AHEAD_DEFAULT,
            plug_chunk_max: HotplugSettings::PLUG_CHUNK_DEFAULT,
            unplug_chunk_max: HotplugSettings::UNPLUG_CHUNK_DEFAULT,
            idle_after: HotplugSettings::IDLE_AFTER_DEFAULT,
            stalled_after: HotplugSettings::STALLED_AFTER_DEFAULT,
            onlined_within: HotplugSettings::ONLINED_WITHIN_DEFAULT,
            unplug_pause: HotplugSettings::UNPLUG_PAUSE_DEFAULT,
            plug_pause: HotplugSettings::PLUG_PAUSE_DEFAULT,
            stale_after: HotplugSettings::STALE_AFTER_DEFAULT,
        }
    }
}

impl HotplugSettings {
    /// flexmemd §3.1.3.
    pub const KEEP_DEFAULT: Bytes = Bytes::mib(256);
    /// flexmemd §3.1.3.
    pub const AHEAD_DEFAULT: Bytes = Bytes::mib(512);
    /// flexmemd §3.1.3: a guest without memory for the page descriptors of a larger chunk could not
    /// plug it in at all.
    pub const PLUG_CHUNK_DEFAULT: Bytes = Bytes::mib(512);
    /// The balloon gives this much while it is unplugged; takes half a second.
    pub const UNPLUG_CHUNK_DEFAULT: Bytes = Bytes::mib(128);
    /// Longer than guests take to want memory again after a phase of a few seconds.
    pub const IDLE_AFTER_DEFAULT: Duration = Duration::from_secs(30);
    /// A GiB is plugged in 0.2 s, and unplugged in 4 s. No block at all in this time is a refusal.
    pub const STALLED_AFTER_DEFAULT: Duration = Duration::from_secs(10);
    /// Onlining follows plugging at once; statistics come up to two seconds late.
    pub const ONLINED_WITHIN_DEFAULT: Duration = Duration::from_secs(10);
    /// As for a stuck balloon: page migration fails until the guest's load changes.
    pub const UNPLUG_PAUSE_DEFAULT: Duration = Duration::from_secs(60);
    /// Longest pause after unplugs stalled.
    pub const UNPLUG_PAUSE_MAX: Duration = Duration::from_secs(960);
    /// Whether a kernel onlines memory is configured, and changes only when an operator changes it.
    pub const PLUG_PAUSE_DEFAULT: Duration = Duration::from_secs(300);
    /// Longest pause after plugged memory was not used.
    pub const PLUG_PAUSE_MAX: Duration = Duration::from_secs(3600);
    /// The guard's default.
    pub const STALE_AFTER_DEFAULT: Duration = Duration::from_secs(10);
}
