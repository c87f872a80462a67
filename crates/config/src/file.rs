//! The tables of the configuration file, as serde reads them. `docs/ballast.example.toml` documents
//! meanings and defaults for operators.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use ballast_control::Settings;
use ballast_guard::GuardSettings;
use ballast_model::{Bytes, GuestId};
use ballast_policy::PolicySettings;
use ballast_working_set::WatchBudget;
use serde::Deserialize;

use crate::external::ExternalTable;
use crate::flexmemd::FlexmemdTable;
use crate::intermittent::Intermittent;
use crate::meb::MebTable;
use crate::mechanisms::MechanismsTable;
use crate::page::PageTable;
use crate::settings::{OnExit, SourceChoice};
use crate::tau::Tau;
use crate::tws::TwsTable;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct File {
    pub(super) mode: Option<String>,
    pub(super) daemon: DaemonTable,
    pub(super) page: PageTable,
    pub(super) host: HostTable,
    pub(super) qmp: QmpTable,
    pub(super) libvirt: LibvirtTable,
    pub(super) xen: XenTable,
    pub(super) cloud_hypervisor: RestTable,
    pub(super) firecracker: RestTable,
    pub(super) containers: ContainersTable,
    pub(super) proxmox: ProxmoxTable,
    pub(super) policy: PolicyTable,
    pub(super) guard: GuardTable,
    pub(super) mechanisms: MechanismsTable,
    pub(super) tracking: TrackingTable,
    pub(super) agents: AgentsTable,
    pub(super) journal: JournalTable,
    pub(super) metrics: MetricsTable,
    pub(super) events: EventsTable,
    pub(super) defaults: GuestTable,
    pub(super) guests: BTreeMap<GuestId, GuestTable>,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct DaemonTable {
    #[serde(with = "ballast_toml_strict::duration")]
    pub(super) tick: Duration,
    pub(super) socket: Option<PathBuf>,
    pub(super) group: Option<String>,
    pub(super) on_exit: OnExit,
    pub(super) raise_priority: bool,
}

impl Default for DaemonTable {
    fn default() -> Self {
        DaemonTable {
            tick: Settings::TICK_DEFAULT,
            socket: None,
            group: None,
            on_exit: OnExit::Keep,
            raise_priority: true,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct HostTable {
    pub(super) budget: Option<Bytes>,
    pub(super) reserve: Bytes,
}

impl Default for HostTable {
    fn default() -> Self {
        HostTable { budget: None, reserve: GuardSettings::HOST_RESERVE_DEFAULT }
    }
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct QmpTable {
    pub(super) folders: Vec<PathBuf>,
    #[serde(with = "ballast_toml_strict::duration")]
    pub(super) timeout: Duration,
}

impl Default for QmpTable {
    fn default() -> Self {
        // A live hypervisor answers within a millisecond; one whose main loop waits for a disk may
        // take some hundred milliseconds.
        QmpTable { folders: vec!["/run/ballast/qmp".into()], timeout: Duration::from_millis(500) }
    }
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct LibvirtTable {
    pub(super) enabled: bool,
    pub(super) socket: PathBuf,
    #[serde(with = "ballast_toml_strict::duration")]
    pub(super) timeout: Duration,
}

impl Default for LibvirtTable {
    fn default() -> Self {
        // Setting a balloon took 70 ms on a busy machine, and a call to a busy domain waits until
        // the domain is free.
        LibvirtTable {
            enabled: false,
            socket: "/run/libvirt/libvirt-sock".into(),
            timeout: Duration::from_secs(2),
        }
    }
}

/// Guests of a hypervisor with a REST API.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RestTable {
    pub(super) sockets: Vec<String>,
    #[serde(with = "ballast_toml_strict::duration")]
    pub(super) timeout: Duration,
}

impl Default for RestTable {
    fn default() -> Self {
        // An answer takes well under a millisecond, but a hypervisor that writes a snapshot answers
        // only after that.
        RestTable { sockets: Vec::new(), timeout: Duration::from_secs(2) }
    }
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct XenTable {
    pub(super) enabled: bool,
    pub(super) socket: PathBuf,
    pub(super) xl: PathBuf,
    pub(super) dom0_floor: Bytes,
    #[serde(with = "ballast_toml_strict::duration")]
    pub(super) timeout: Duration,
}

impl Default for XenTable {
    fn default() -> Self {
        // Every call of xl opens the hypervisor again, and takes some milliseconds per domain.
        XenTable {
            enabled: false,
            socket: "/run/xenstored/socket".into(),
            xl: "xl".into(),
            dom0_floor: Bytes::gib(1),
            timeout: Duration::from_secs(2),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ContainersTable {
    pub(super) cgroups: Vec<String>,
    pub(super) memory: Option<Bytes>,
    pub(super) probe: bool,
}

impl Default for ContainersTable {
    fn default() -> Self {
        ContainersTable { cgroups: Vec::new(), memory: None, probe: true }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ProxmoxTable {
    pub(super) folder: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PolicyTable {
    pub(super) name: String,
    #[serde(with = "ballast_toml_strict::duration::option")]
    pub(super) interval: Option<Duration>,
    pub(super) reserve_per_guest: Bytes,
    pub(super) tau: Option<Tau>,
    /// As a fraction of the granted memory that the guest has filled.
    pub(super) believed_without_evidence: f64,
    pub(super) meb: MebTable,
    pub(super) tws: TwsTable,
    pub(super) flexmemd: FlexmemdTable,
    pub(super) external: ExternalTable,
}

impl Default for PolicyTable {
    fn default() -> Self {
        PolicyTable {
            name: ballast_model::PolicyName::Global.as_str().to_owned(),
            interval: None,
            reserve_per_guest: PolicySettings::RESERVE_DEFAULT,
            tau: None,
            believed_without_evidence: GuardSettings::BELIEVED_PERCENT_DEFAULT as f64 / 100.0,
            meb: MebTable::default(),
            tws: TwsTable::default(),
            flexmemd: FlexmemdTable::default(),
            external: ExternalTable::default(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct GuardTable {
    #[serde(with = "ballast_toml_strict::duration")]
    pub(super) stale_after: Duration,
    #[serde(with = "ballast_toml_strict::duration")]
    pub(super) release_grace: Duration,
    #[serde(with = "ballast_toml_strict::duration")]
    pub(super) stuck_after: Duration,
    #[serde(with = "ballast_toml_strict::duration")]
    pub(super) stuck_retry: Duration,
    pub(super) step_up_max: Option<Bytes>,
    pub(super) step_down_max: Option<Bytes>,
    pub(super) dead_band: Option<Bytes>,
}

impl Default for GuardTable {
    fn default() -> Self {
        GuardTable {
            stale_after: GuardSettings::STALE_AFTER_DEFAULT,
            release_grace: GuardSettings::RELEASE_GRACE_DEFAULT,
            stuck_after: GuardSettings::STUCK_AFTER_DEFAULT,
            stuck_retry: GuardSettings::STUCK_RETRY_DEFAULT,
            step_up_max: None,
            step_down_max: None,
            dead_band: None,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TrackingTable {
    pub(super) enabled: bool,
    pub(super) source: SourceChoice,
    #[serde(with = "ballast_toml_strict::duration")]
    pub(super) interval: Duration,
    pub(super) budget: f64,
    pub(super) budget_total: f64,
    pub(super) intermittent: Intermittent,
    pub(super) every: bool,
    pub(super) hot_set: Option<bool>,
    pub(super) referenced: bool,
}

impl Default for TrackingTable {
    fn default() -> Self {
        TrackingTable {
            enabled: true,
            source: SourceChoice::default(),
            interval: Duration::from_secs(1),
            budget: WatchBudget::default().limit(),
            budget_total: 0.05,
            intermittent: Intermittent::default(),
            every: false,
            hot_set: None,
            referenced: false,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AgentsTable {
    pub(super) enabled: bool,
    pub(super) folders: Vec<PathBuf>,
    #[serde(with = "ballast_toml_strict::duration")]
    pub(super) interval: Duration,
    pub(super) shrink: bool,
    pub(super) vsock: bool,
}

impl Default for AgentsTable {
    fn default() -> Self {
        AgentsTable {
            enabled: true,
            folders: vec!["/run/ballast/agent".into()],
            interval: Duration::from_secs(1),
            shrink: true,
            vsock: false,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct JournalTable {
    pub(super) enabled: bool,
    pub(super) path: PathBuf,
    #[serde(with = "ballast_toml_strict::duration")]
    pub(super) keep_age: Duration,
    pub(super) keep_bytes: Bytes,
}

impl Default for JournalTable {
    fn default() -> Self {
        JournalTable {
            enabled: true,
            path: "/var/lib/ballast/journal.db".into(),
            keep_age: Duration::from_secs(7 * 24 * 3600),
            keep_bytes: Bytes::gib(16),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct MetricsTable {
    pub(super) listen: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EventsTable {
    pub(super) run: Option<PathBuf>,
    #[serde(with = "ballast_toml_strict::duration")]
    pub(super) timeout: Duration,
    #[serde(with = "ballast_toml_strict::duration")]
    pub(super) apart: Duration,
}

impl Default for EventsTable {
    fn default() -> Self {
        EventsTable { run: None, timeout: Duration::from_secs(10), apart: Duration::from_secs(1) }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct GuestTable {
    pub(super) floor: Option<Bytes>,
    pub(super) ceiling: Option<Bytes>,
    pub(super) shares: Option<u32>,
    pub(super) priority: Option<u8>,
    pub(super) miss_rate_max: Option<u64>,
    pub(super) swap: Option<bool>,
    pub(super) fence: Option<bool>,
    pub(super) managed: Option<bool>,
    pub(super) take_over: Option<bool>,
}
