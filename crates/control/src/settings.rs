//! All settings of an operator, resolved and validated.

use std::time::Duration;

use ballast_actuation::hotplug::HotplugSettings;
use ballast_actuation::paging::SwapRules;
use ballast_actuation::thrash::ThrashSettings;
use ballast_estimate::probing::ProbingSettings;
use ballast_guard::GuardSettings;
use ballast_model::{LimitTable, Mode, PolicyName};
use ballast_policy::PolicySettings;

/// Settings of the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Time between samples.
    pub tick: Duration,
    /// Time between samples of guests that take part in a transfer.
    pub transfer_tick: Duration,
    /// Whether plans are carried out.
    pub mode: Mode,
    /// The policy that decides.
    pub policy: PolicyName,
    /// Its settings.
    pub policy_settings: PolicySettings,
    /// How working sets are probed for, under any policy.
    pub probing: ProbingSettings,
    /// Time between decisions; `None`: the policy's own.
    pub interval: Option<Duration>,
    /// The guard's limits.
    pub guard: GuardSettings,
    /// How memory is plugged in; `None`: none is plugged in.
    pub hotplug: Option<HotplugSettings>,
    /// How much of its swap the host may use to page out guests that do not give what they were
    /// asked for. Needs a caller that carries this out. `None`, the default: the host pages no
    /// guest.
    pub paging: Option<SwapRules>,
    /// When a guest counts as thrashing with the memory that it was left.
    pub thrash: ThrashSettings,
    /// Whether a guest that thrashes with what it was left gets back what it held before, as long
    /// as all guests can have what they need. Off by default, because what is given back stays out
    /// of the division for a minute, in which needs change.
    pub undo: bool,
    /// The limits of guests.
    pub limits: LimitTable,
}

impl Settings {
    /// Samples are taken once a second, as in Global §4.1.
    pub const TICK_DEFAULT: Duration = Duration::from_secs(1);

    /// A balloon gives some tens of MiB in this time, the least that is worth an order.
    pub const TRANSFER_TICK_DEFAULT: Duration = Duration::from_millis(100);

    /// Default settings with this policy.
    pub fn new(policy: PolicyName) -> Self {
        Settings {
            tick: Settings::TICK_DEFAULT,
            transfer_tick: Settings::TRANSFER_TICK_DEFAULT,
            mode: Mode::Balance,
            policy,
            policy_settings: PolicySettings::default(),
            probing: ProbingSettings::default(),
            interval: None,
            guard: GuardSettings::default(),
            hotplug: Some(HotplugSettings::default()),
            paging: None,
            thrash: ThrashSettings::default(),
            undo: false,
            limits: LimitTable::default(),
        }
    }
}
