//! What was seen: [`Snapshot`] as a record, and back without loss.

use std::time::Duration;

use ballast_model::{
    Bytes, Capabilities, GuestId, GuestSample, GuestStats, HostSample, Hotplug, LinkDown,
    LinkState, Measured, Pressure, RunState, Snapshot, Timestamp, Tracking,
};
use serde::{Deserialize, Serialize};

use super::mechanism::HotplugRecord;
use super::report::{AgentRecord, TrackerRecord, TrackingRecord};
use super::{RecordError, ns, some_bytes};

/// A [`Snapshot`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the model type, which documents them")]
pub struct SampleRecord {
    pub taken_at_ms: u64,
    pub host: HostRecord,
    pub guests: Vec<GuestSampleRecord>,
}

/// A [`HostSample`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the model type, which documents them")]
pub struct HostRecord {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_total_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_available_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap_total_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap_free_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<PressureRecord>,
}

/// A [`Pressure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the model type, which documents them")]
pub struct PressureRecord {
    pub some_basis_points: u32,
    pub full_basis_points: u32,
}

/// A [`GuestSample`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the model type, which documents them")]
pub struct GuestSampleRecord {
    pub id: GuestId,
    pub link: LinkRecord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_state: Option<RunStateRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<MeasuredRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_memory_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hotplug: Option<HotplugRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident: Option<MeasuredRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<StatsRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracker: Option<TrackerRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracking: Option<TrackingRecord>,
    pub capabilities: CapabilitiesRecord,
}

/// A measured size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the model type, which documents them")]
pub struct MeasuredRecord {
    pub bytes: u64,
    pub age_ns: u64,
}

/// A [`LinkState`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "code", content = "text", rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the variants are those of the model type, which documents them")]
pub enum LinkRecord {
    Up,
    Connecting,
    Taken,
    PermissionDenied,
    Refused,
    TimedOut,
    Protocol(String),
    Closed(String),
}

/// A [`RunState`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "code", content = "text", rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the variants are those of the model type, which documents them")]
pub enum RunStateRecord {
    Running,
    Paused,
    Shutdown,
    Panicked,
    Other(String),
}

/// Measured [`GuestStats`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the model type, which documents them")]
pub struct StatsRecord {
    pub age_ns: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_caches_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap_in_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap_out_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub major_faults: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minor_faults: Option<u64>,
}

/// [`Capabilities`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the model type, which documents them")]
pub struct CapabilitiesRecord {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balloon: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statistics: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_page_reporting: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deflate_on_oom: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_devices: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discard_inhibited: Option<bool>,
}

impl From<&Snapshot> for SampleRecord {
    fn from(snapshot: &Snapshot) -> Self {
        let Snapshot { taken_at, host, .. } = snapshot;
        SampleRecord {
            taken_at_ms: taken_at.as_millis(),
            host: HostRecord::from(host),
            guests: snapshot.guests().iter().map(GuestSampleRecord::from).collect(),
        }
    }
}

impl TryFrom<SampleRecord> for Snapshot {
    type Error = RecordError;

    fn try_from(record: SampleRecord) -> Result<Self, RecordError> {
        let SampleRecord { taken_at_ms, host, guests } = record;
        let guests: Result<_, _> = guests.into_iter().map(GuestSample::try_from).collect();
        Ok(Snapshot::new(Timestamp::from_millis(taken_at_ms), host.into(), guests?))
    }
}

impl From<&HostSample> for HostRecord {
    fn from(host: &HostSample) -> Self {
        let HostSample { memory_total, memory_available, swap_total, swap_free, pressure } = *host;
        HostRecord {
            memory_total_bytes: some_bytes(memory_total),
            memory_available_bytes: some_bytes(memory_available),
            swap_total_bytes: some_bytes(swap_total),
            swap_free_bytes: some_bytes(swap_free),
            pressure: pressure.map(|Pressure { some_basis_points, full_basis_points }| {
                PressureRecord { some_basis_points, full_basis_points }
            }),
        }
    }
}

impl From<HostRecord> for HostSample {
    fn from(record: HostRecord) -> Self {
        HostSample {
            memory_total: record.memory_total_bytes.map(Bytes::new),
            memory_available: record.memory_available_bytes.map(Bytes::new),
            swap_total: record.swap_total_bytes.map(Bytes::new),
            swap_free: record.swap_free_bytes.map(Bytes::new),
            pressure: record.pressure.map(
                |PressureRecord { some_basis_points, full_basis_points }| Pressure {
                    some_basis_points,
                    full_basis_points,
                },
            ),
        }
    }
}

impl From<&GuestSample> for GuestSampleRecord {
    fn from(guest: &GuestSample) -> Self {
        let GuestSample {
            id,
            link,
            run_state,
            allocation,
            boot_memory,
            hotplug,
            resident,
            stats,
            agent,
            tracker,
            tracking,
            capabilities,
        } = guest;
        GuestSampleRecord {
            id: id.clone(),
            link: link.into(),
            run_state: run_state.as_ref().map(RunStateRecord::from),
            allocation: allocation.map(MeasuredRecord::from),
            boot_memory_bytes: some_bytes(*boot_memory),
            hotplug: hotplug.map(HotplugRecord::from),
            resident: resident.map(MeasuredRecord::from),
            stats: stats.map(StatsRecord::from),
            agent: agent.map(AgentRecord::from),
            tracker: tracker.as_ref().map(TrackerRecord::from),
            tracking: tracking.as_ref().map(TrackingRecord::from),
            capabilities: (*capabilities).into(),
        }
    }
}

impl TryFrom<GuestSampleRecord> for GuestSample {
    type Error = RecordError;

    fn try_from(record: GuestSampleRecord) -> Result<Self, RecordError> {
        Ok(GuestSample {
            id: record.id,
            link: record.link.into(),
            run_state: record.run_state.map(RunState::from),
            allocation: record.allocation.map(Measured::from),
            boot_memory: record.boot_memory_bytes.map(Bytes::new),
            hotplug: record.hotplug.map(Hotplug::from),
            resident: record.resident.map(Measured::from),
            stats: record.stats.map(Measured::from),
            agent: record.agent.map(Measured::from),
            tracker: record.tracker.map(Measured::try_from).transpose()?,
            tracking: record.tracking.map(Tracking::from),
            capabilities: record.capabilities.into(),
        })
    }
}

impl From<Measured<Bytes>> for MeasuredRecord {
    fn from(Measured { value, age }: Measured<Bytes>) -> Self {
        MeasuredRecord { bytes: value.get(), age_ns: ns(age) }
    }
}

impl From<MeasuredRecord> for Measured<Bytes> {
    fn from(MeasuredRecord { bytes, age_ns }: MeasuredRecord) -> Self {
        Measured { value: Bytes::new(bytes), age: Duration::from_nanos(age_ns) }
    }
}

impl From<&LinkState> for LinkRecord {
    fn from(link: &LinkState) -> Self {
        match link {
            LinkState::Up => LinkRecord::Up,
            LinkState::Down(LinkDown::Connecting) => LinkRecord::Connecting,
            LinkState::Down(LinkDown::Taken) => LinkRecord::Taken,
            LinkState::Down(LinkDown::PermissionDenied) => LinkRecord::PermissionDenied,
            LinkState::Down(LinkDown::Refused) => LinkRecord::Refused,
            LinkState::Down(LinkDown::TimedOut) => LinkRecord::TimedOut,
            LinkState::Down(LinkDown::Protocol(what)) => LinkRecord::Protocol(what.clone()),
            LinkState::Down(LinkDown::Closed(how)) => LinkRecord::Closed(how.clone()),
        }
    }
}

impl From<LinkRecord> for LinkState {
    fn from(record: LinkRecord) -> Self {
        LinkState::Down(match record {
            LinkRecord::Up => return LinkState::Up,
            LinkRecord::Connecting => LinkDown::Connecting,
            LinkRecord::Taken => LinkDown::Taken,
            LinkRecord::PermissionDenied => LinkDown::PermissionDenied,
            LinkRecord::Refused => LinkDown::Refused,
            LinkRecord::TimedOut => LinkDown::TimedOut,
            LinkRecord::Protocol(what) => LinkDown::Protocol(what),
            LinkRecord::Closed(how) => LinkDown::Closed(how),
        })
    }
}

impl From<&RunState> for RunStateRecord {
    fn from(state: &RunState) -> Self {
        match state {
            RunState::Running => RunStateRecord::Running,
            RunState::Paused => RunStateRecord::Paused,
            RunState::Shutdown => RunStateRecord::Shutdown,
            RunState::Panicked => RunStateRecord::Panicked,
            RunState::Other(word) => RunStateRecord::Other(word.clone()),
        }
    }
}

impl From<RunStateRecord> for RunState {
    fn from(record: RunStateRecord) -> Self {
        match record {
            RunStateRecord::Running => RunState::Running,
            RunStateRecord::Paused => RunState::Paused,
            RunStateRecord::Shutdown => RunState::Shutdown,
            RunStateRecord::Panicked => RunState::Panicked,
            RunStateRecord::Other(word) => RunState::Other(word),
        }
    }
}

impl From<Measured<GuestStats>> for StatsRecord {
    fn from(Measured { value, age }: Measured<GuestStats>) -> Self {
        let GuestStats {
            total,
            free,
            available,
            disk_caches,
            swap_in,
            swap_out,
            major_faults,
            minor_faults,
        } = value;
        StatsRecord {
            age_ns: ns(age),
            total_bytes: some_bytes(total),
            free_bytes: some_bytes(free),
            available_bytes: some_bytes(available),
            disk_caches_bytes: some_bytes(disk_caches),
            swap_in_bytes: some_bytes(swap_in),
            swap_out_bytes: some_bytes(swap_out),
            major_faults,
            minor_faults,
        }
    }
}

impl From<StatsRecord> for Measured<GuestStats> {
    fn from(record: StatsRecord) -> Self {
        let value = GuestStats {
            total: record.total_bytes.map(Bytes::new),
            free: record.free_bytes.map(Bytes::new),
            available: record.available_bytes.map(Bytes::new),
            disk_caches: record.disk_caches_bytes.map(Bytes::new),
            swap_in: record.swap_in_bytes.map(Bytes::new),
            swap_out: record.swap_out_bytes.map(Bytes::new),
            major_faults: record.major_faults,
            minor_faults: record.minor_faults,
        };
        Measured { value, age: Duration::from_nanos(record.age_ns) }
    }
}

impl From<Capabilities> for CapabilitiesRecord {
    fn from(capabilities: Capabilities) -> Self {
        let Capabilities {
            balloon,
            statistics,
            free_page_reporting,
            deflate_on_oom,
            memory_devices,
            discard_inhibited,
        } = capabilities;
        CapabilitiesRecord {
            balloon,
            statistics,
            free_page_reporting,
            deflate_on_oom,
            memory_devices,
            discard_inhibited,
        }
    }
}

impl From<CapabilitiesRecord> for Capabilities {
    fn from(record: CapabilitiesRecord) -> Self {
        Capabilities {
            balloon: record.balloon,
            statistics: record.statistics,
            free_page_reporting: record.free_page_reporting,
            deflate_on_oom: record.deflate_on_oom,
            memory_devices: record.memory_devices,
            discard_inhibited: record.discard_inhibited,
        }
    }
}
