//! The guard's settings.

use std::time::Duration;

use ballast_model::Bytes;

/// Settings of the safety envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardSettings {
    /// What all guests together may be allocated; `None`: the host's memory less the reserve.
    pub budget: Option<Bytes>,
    /// Memory of the host that stays available to the host itself.
    pub host_reserve: Bytes,
    /// Older statistics are not acted on.
    pub stale_after: Duration,
    /// Grace for a release: a guest is slow when it has not given everything this long after the
    /// time that a slow balloon needs.
    pub release_grace: Duration,
    /// A guest that was asked for memory and gave none for this long is stuck.
    pub stuck_after: Duration,
    /// A stuck guest is asked again after this long, then after twice as long each time.
    pub stuck_retry: Duration,
    /// Most a guest may grow per decision, whatever the policy; `None`: no limit.
    pub step_up_max: Option<Bytes>,
    /// Most a guest may shrink per decision, whatever the policy; `None`: no limit.
    pub step_down_max: Option<Bytes>,
    /// Changes up to this size are not made; `None`: the policy's own dead band.
    pub dead_band: Option<Bytes>,
    /// How much of a guest's claimed need is believed without evidence, in percent of what the
    /// guest has filled of its grant.
    pub believed_percent: u64,
    /// An action not begun within this time of its decision is dropped.
    pub action_deadline: Duration,
}

impl Default for GuardSettings {
    fn default() -> Self {
        GuardSettings {
            budget: None,
            host_reserve: GuardSettings::HOST_RESERVE_DEFAULT,
            stale_after: GuardSettings::STALE_AFTER_DEFAULT,
            release_grace: GuardSettings::RELEASE_GRACE_DEFAULT,
            stuck_after: GuardSettings::STUCK_AFTER_DEFAULT,
            stuck_retry: GuardSettings::STUCK_RETRY_DEFAULT,
            step_up_max: None,
            step_down_max: None,
            dead_band: None,
            believed_percent: GuardSettings::BELIEVED_PERCENT_DEFAULT,
            action_deadline: GuardSettings::ACTION_DEADLINE_DEFAULT,
        }
    }
}

impl GuardSettings {
    /// Room for the host's own kernel and daemons, and for QEMU's memory besides guest RAM.
    pub const HOST_RESERVE_DEFAULT: Bytes = Bytes::mib(512);
    /// Statistics come once a second, and up to two seconds late under pressure. A guest that is
    /// silent for five times that has stopped answering.
    pub const STALE_AFTER_DEFAULT: Duration = Duration::from_secs(10);
    /// A guest that has to swap before it can give needs some seconds to begin.
    pub const RELEASE_GRACE_DEFAULT: Duration = Duration::from_secs(5);
    /// The slowest inflation seen under swap load was 80 MB/s. A driver that gives nothing at all
    /// in this time has given up.
    pub const STUCK_AFTER_DEFAULT: Duration = Duration::from_secs(15);
    /// First pause before a stuck guest is asked again.
    pub const STUCK_RETRY_DEFAULT: Duration = Duration::from_secs(60);
    /// Longest pause before a stuck guest is asked again.
    pub const STUCK_RETRY_MAX: Duration = Duration::from_secs(960);
    /// A guest that fills what it is given grows by a quarter at every decision. A guest that only
    /// claims a need costs the others no more than that.
    pub const BELIEVED_PERCENT_DEFAULT: u64 = 25;
    /// Two ticks: after that a newer plan has replaced it.
    pub const ACTION_DEADLINE_DEFAULT: Duration = Duration::from_secs(2);
}
