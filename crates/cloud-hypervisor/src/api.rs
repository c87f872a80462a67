//! The fields that are read of Cloud Hypervisor's answers. No I/O.
//!
//! Limits: other fields are ignored, so that a later version may have more. Options that `--help`
//! describes as on or off are true or false here.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ballast_model::{Bytes, DiskReads, Pinned};
use serde::Deserialize;

/// The answer to `vmm.ping`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Ping {
    /// Its version, such as `53.0.0`.
    pub version: String,
    /// The PID of its process, in its own PID namespace.
    #[serde(default)]
    pub pid: Option<i64>,
}

/// A major version: the number before the first dot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32);

impl Version {
    /// The first version in which `memory_actual_size` counts what is really plugged in; earlier
    /// ones count what was requested.
    pub const COUNTS_PLUGGED: Version = Version(52);
}

impl Ping {
    /// The major version; `None` if the text is not a version.
    pub fn version(&self) -> Option<Version> {
        let text = self.version.strip_prefix('v').unwrap_or(&self.version);
        text.split('.').next()?.parse().ok().map(Version)
    }
}

/// The answer to `vm.info`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Info {
    /// `Created`, `Running`, `Shutdown`, `Paused` or `BreakPoint`.
    pub state: String,
    /// Its configuration, with the sizes requested since the start.
    pub config: Config,
    /// Memory that the guest holds, in bytes.
    #[serde(default)]
    pub memory_actual_size: Option<u64>,
}

/// The answer to `vm.counters`: the counters of each device since the guest was booted.
#[derive(Deserialize)]
pub(crate) struct CounterMap(BTreeMap<String, DeviceCounters>);

/// The counters of a device. Only a disk has these.
#[derive(Deserialize)]
struct DeviceCounters {
    read_bytes: Option<u64>,
    read_ops: Option<u64>,
}

impl CounterMap {
    /// What was read from all disks together; `None` if none is counted.
    pub(crate) fn disk_reads(&self) -> Option<DiskReads> {
        let mut sum: Option<DiskReads> = None;
        for device in self.0.values() {
            if let (Some(bytes), Some(requests)) = (device.read_bytes, device.read_ops) {
                let sum = sum.get_or_insert_default();
                sum.read = sum.read.saturating_add(Bytes::new(bytes));
                sum.requests = sum.requests.saturating_add(requests);
            }
        }
        sum
    }
}

/// The configuration of a guest.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Config {
    pub(crate) memory: MemoryConfig,
    #[serde(default)]
    pub(crate) balloon: Option<BalloonConfig>,
    #[serde(default)]
    pub(crate) vsock: Option<VsockConfig>,
    #[serde(default)]
    pub(crate) platform: Option<PlatformConfig>,
    #[serde(default)]
    devices: Option<Vec<Passthrough>>,
    #[serde(default)]
    user_devices: Option<Vec<Passthrough>>,
    #[serde(default)]
    vdpa: Option<Vec<Passthrough>>,
}

/// Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct MemoryConfig {
    pub(crate) size: u64,
    #[serde(default)]
    pub(crate) hotplug_method: Option<String>,
    /// The most that can be plugged in.
    #[serde(default)]
    pub(crate) hotplug_size: Option<u64>,
    /// The size requested to be plugged in.
    #[serde(default)]
    pub(crate) hotplugged_size: Option<u64>,
    #[serde(default)]
    pub(crate) hugepages: bool,
    #[serde(default)]
    pub(crate) zones: Option<Vec<ZoneConfig>>,
}

/// A zone that the operator defined; sizes as in [`MemoryConfig`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct ZoneConfig {
    pub(crate) id: String,
    pub(crate) size: u64,
    #[serde(default)]
    pub(crate) hotplug_size: Option<u64>,
    #[serde(default)]
    pub(crate) hotplugged_size: Option<u64>,
    #[serde(default)]
    pub(crate) hugepages: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct BalloonConfig {
    /// The size requested of the balloon, in bytes.
    pub(crate) size: u64,
    #[serde(default)]
    pub(crate) deflate_on_oom: bool,
    #[serde(default)]
    pub(crate) free_page_reporting: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct VsockConfig {
    pub(crate) socket: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct PlatformConfig {
    #[serde(default)]
    pub(crate) tdx: bool,
    #[serde(default)]
    pub(crate) sev_snp: bool,
}

/// A device that reads and writes the guest's memory by itself. Only its presence matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
struct Passthrough {}

impl Config {
    /// Why its pages stay on the host. Encryption takes precedence over a passthrough device.
    pub(crate) fn pinned(&self) -> Option<Pinned> {
        match &self.platform {
            Some(platform) if platform.tdx => Some(Pinned::Tdx),
            Some(platform) if platform.sev_snp => Some(Pinned::SevSnp),
            _ if self.passes_through() => Some(Pinned::Passthrough),
            _ if self.has_huge_pages() => Some(Pinned::HugePages),
            _ => None,
        }
    }

    /// Whether a device of the host reads and writes the guest's memory, which is therefore pinned.
    fn passes_through(&self) -> bool {
        [&self.devices, &self.user_devices, &self.vdpa]
            .into_iter()
            .any(|devices| devices.as_ref().is_some_and(|it| !it.is_empty()))
    }

    /// Whether any of its memory is in huge pages of hugetlbfs.
    fn has_huge_pages(&self) -> bool {
        let zones = self.memory.zones.iter().flatten();
        self.memory.hugepages || zones.into_iter().any(|zone| zone.hugepages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_or_not_known() {
        let version = |text: &str| {
            Ping { version: text.to_owned(), pid: None }.version().map(|version| version.0)
        };
        assert_eq!(version("53.0.0"), Some(53));
        assert_eq!(version("v52.0-12-gdeadbee"), Some(52));
        assert_eq!(version("nightly"), None);
        assert!(Version(51) < Version::COUNTS_PLUGGED);
    }

    #[test]
    fn what_pins_memory_is_read() {
        let config = |more: &str| -> Config {
            serde_json::from_str(&format!("{{\"memory\":{{\"size\":1}}{more}}}")).unwrap()
        };
        assert_eq!(config("").pinned(), None);
        assert_eq!(config(",\"devices\":[]").pinned(), None);
        let vfio = ",\"devices\":[{\"path\":\"/sys/x\"}]";
        assert_eq!(config(vfio).pinned(), Some(Pinned::Passthrough));
        let tdx = format!("{vfio},\"platform\":{{\"tdx\":true}}");
        assert_eq!(config(&tdx).pinned(), Some(Pinned::Tdx), "that says more");
        let zone = ",\"zones\":[{\"id\":\"a\",\"size\":1,\"hugepages\":true}]}";
        let zones = format!("{{\"memory\":{{\"size\":0{zone}}}");
        let zones: Config = serde_json::from_str(&zones).unwrap();
        assert_eq!(zones.pinned(), Some(Pinned::HugePages));
    }
}
