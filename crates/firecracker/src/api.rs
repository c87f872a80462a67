//! The fields that are read of Firecracker's answers. No I/O.
//!
//! Limits: other fields are ignored, so that a later version may have more.

use std::path::PathBuf;

use ballast_model::{Bytes, GuestStats};
use serde::Deserialize;

/// The answer to `/`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Instance {
    /// Always `Firecracker`.
    pub app_name: String,
    /// `Not started`, `Running` or `Paused`.
    pub state: String,
    /// The version, such as `1.16.1`.
    pub vmm_version: String,
}

/// The answer to `/vm/config`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct VmConfig {
    pub(crate) machine_config: MachineConfig,
    #[serde(default)]
    pub(crate) balloon: Option<BalloonConfig>,
    #[serde(default)]
    pub(crate) memory_hotplug: Option<HotplugConfig>,
    #[serde(default)]
    pub(crate) vsock: Option<VsockConfig>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct MachineConfig {
    pub(crate) mem_size_mib: u64,
    #[serde(default)]
    huge_pages: Option<String>,
}

impl MachineConfig {
    /// Whether its memory is in huge pages of hugetlbfs.
    pub(crate) fn has_huge_pages(&self) -> bool {
        self.huge_pages.as_deref() == Some("2M")
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct BalloonConfig {
    #[serde(default)]
    pub(crate) deflate_on_oom: bool,
    /// Seconds between two reports; 0: no reports, which cannot be changed after boot.
    #[serde(default)]
    pub(crate) stats_polling_interval_s: u64,
    #[serde(default)]
    pub(crate) free_page_hinting: bool,
    #[serde(default)]
    pub(crate) free_page_reporting: bool,
}

/// Present if memory can be plugged in; `/hotplug/memory` has the amounts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct HotplugConfig {}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct VsockConfig {
    pub(crate) uds_path: PathBuf,
}

/// The answer to `/balloon/statistics`. `actual_pages` is always present. The other figures are the
/// guest's last report, each `None` until it was reported; amounts are in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct BalloonStats {
    /// The balloon's size as the guest's driver confirmed it, in pages of 4 KiB.
    pub actual_pages: u64,
    #[serde(flatten)]
    pub(crate) reported: ReportedStats,
}

/// The figures that a guest reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct ReportedStats {
    swap_in: Option<u64>,
    swap_out: Option<u64>,
    major_faults: Option<u64>,
    minor_faults: Option<u64>,
    free_memory: Option<u64>,
    total_memory: Option<u64>,
    available_memory: Option<u64>,
    disk_caches: Option<u64>,
}

impl BalloonStats {
    /// The balloon's size.
    pub fn held(&self) -> Bytes {
        Bytes::new(self.actual_pages.saturating_mul(4096))
    }
}

impl From<ReportedStats> for GuestStats {
    fn from(reported: ReportedStats) -> GuestStats {
        let bytes = |amount: Option<u64>| amount.map(Bytes::new);
        GuestStats {
            total: bytes(reported.total_memory),
            free: bytes(reported.free_memory),
            available: bytes(reported.available_memory),
            disk_caches: bytes(reported.disk_caches),
            swap_in: bytes(reported.swap_in),
            swap_out: bytes(reported.swap_out),
            major_faults: reported.major_faults,
            minor_faults: reported.minor_faults,
        }
    }
}

/// The answer to `/hotplug/memory`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HotplugStatus {
    /// The most that can be plugged in.
    pub total_size_mib: u64,
    /// Amounts are whole multiples of this.
    pub block_size_mib: u64,
    /// The size plugged in.
    pub plugged_size_mib: u64,
    /// The size requested to be plugged in.
    pub requested_size_mib: u64,
}

/// Converts an amount of the API, which counts in MiB.
pub(crate) fn mib(amount: u64) -> Bytes {
    Bytes::new(amount.saturating_mul(1 << 20))
}
