//! What was seen of the host and of each guest in one tick.
//!
//! Idea: a [`Snapshot`] holds raw observations and nothing derived. What could not be read is
//! `None`; what was read carries its age at [`Snapshot::taken_at`].
//! Limits: guests are sorted by name and unique; [`Snapshot::new`] sees to it.

use std::fmt;

use crate::guest_id::index_near;
#[cfg(feature = "serde")]
use crate::unit::{self, is_none};
use crate::{
    AgentReport, Bytes, DemandSource, DiskReads, Fence, GuestId, HostSample, Hotplug, LinkState,
    Measured, MemoryRoom, Pinned, Timestamp, TrackerReport, Tracking, WORKING_SET_AGE_MAX,
};

/// Everything seen in one tick.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Snapshot {
    /// When it was taken, on the monotonic clock.
    #[cfg_attr(feature = "serde", serde(rename = "taken_at_ms"))]
    pub taken_at: Timestamp,
    /// The host.
    pub host: HostSample,
    /// Every guest known, sorted by name, each once.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "read_sorted"))]
    guests: Vec<GuestSample>,
}

impl Snapshot {
    /// A snapshot of `guests` in any order; of two samples with one name the first is kept.
    pub fn new(taken_at: Timestamp, host: HostSample, guests: Vec<GuestSample>) -> Self {
        Snapshot { taken_at, host, guests: sorted(guests) }
    }

    /// The guests, sorted by name.
    pub fn guests(&self) -> &[GuestSample] {
        &self.guests
    }

    /// The guests, sorted by name, to build another snapshot from.
    pub fn into_guests(self) -> Vec<GuestSample> {
        self.guests
    }

    /// The place of one guest. Fastest if that is `near` or a little after it.
    pub fn index_near(&self, id: &GuestId, near: usize) -> Option<usize> {
        index_near(&self.guests, |guest| &guest.id, id, near)
    }

    /// The sample of one guest. O(log n).
    pub fn guest(&self, id: &GuestId) -> Option<&GuestSample> {
        let at = self.guests.binary_search_by(|guest| guest.id.cmp(id)).ok()?;
        self.guests.get(at)
    }
}

/// Sorted by name; of several samples with one name, the first is kept.
fn sorted(mut guests: Vec<GuestSample>) -> Vec<GuestSample> {
    guests.sort_by(|a, b| a.id.cmp(&b.id));
    guests.dedup_by(|later, first| later.id == first.id);
    guests
}

#[cfg(feature = "serde")]
fn read_sorted<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<GuestSample>, D::Error> {
    serde::Deserialize::deserialize(from).map(sorted)
}

/// What was seen of one guest.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct GuestSample {
    /// Its name.
    pub id: GuestId,
    /// Whether the hypervisor answers for it.
    pub link: LinkState,
    /// What it is doing, as its hypervisor says.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub run_state: Option<RunState>,
    /// Memory the guest holds now: boot memory and plugged memory, less the balloon.
    #[cfg_attr(
        feature = "serde",
        serde(default, with = "unit::measured_size", skip_serializing_if = "is_none")
    )]
    pub allocation: Option<Measured<Bytes>>,
    /// Memory it was booted with; a balloon alone cannot grow it beyond.
    #[cfg_attr(
        feature = "serde",
        serde(
            rename = "boot_memory_bytes",
            default,
            with = "unit",
            skip_serializing_if = "is_none"
        )
    )]
    pub boot_memory: Option<Bytes>,
    /// Memory that can be plugged in; `None`: none can.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub hotplug: Option<Hotplug>,
    /// Its hypervisor's process, if known.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub process: Option<ProcessId>,
    /// Host memory its hypervisor process really occupies.
    #[cfg_attr(
        feature = "serde",
        serde(default, with = "unit::measured_size", skip_serializing_if = "is_none")
    )]
    pub resident: Option<Measured<Bytes>>,
    /// Memory that its hypervisor claims for it and has not mapped. It is left out of all other
    /// figures ([`GuestSample::cut_to_mapped`]). `None`: all claims are mapped.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "unmapped_bytes", default, with = "unit", skip_serializing_if = "is_none")
    )]
    pub unmapped: Option<Bytes>,
    /// The part of its memory that is in files, most often in memory (memfd). Reading a hole of
    /// such a file fills it. `None`: unknown.
    #[cfg_attr(
        feature = "serde",
        serde(
            rename = "file_backed_bytes",
            default,
            with = "unit",
            skip_serializing_if = "is_none"
        )
    )]
    pub file_backed: Option<Bytes>,
    /// The private part of `resident`, if the guest's memory is shared: what the hypervisor needs
    /// for itself. `None`: the two cannot be told apart.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "overhead_bytes", default, with = "unit", skip_serializing_if = "is_none")
    )]
    pub overhead: Option<Bytes>,
    /// Memory of its hypervisor's process that is merged with equal pages, its own or others'.
    /// `None`: the kernel does not say, or merges nothing.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "merged_bytes", default, with = "unit", skip_serializing_if = "is_none")
    )]
    pub merged: Option<Bytes>,
    /// The guest's own statistics.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub stats: Option<Measured<GuestStats>>,
    /// What was read from its disks since its hypervisor began, as the hypervisor counts it. The
    /// age is the time since the query.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub disk_reads: Option<Measured<DiskReads>>,
    /// The report of a program inside it.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub agent: Option<Box<Measured<AgentReport>>>,
    /// What the tracker of its page touches found.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub tracker: Option<Box<Measured<TrackerReport>>>,
    /// How tracking went, or why it failed; `None`: the guest is not tracked.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub tracking: Option<Box<Tracking>>,
    /// The fence around it at the last tick; `None`: it is not configured to have one.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub fence: Option<Fence>,
    /// What keeps its pages on the host when its balloon takes them; `None`: nothing that is known.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub pinned: Option<Pinned>,
    /// What limits of the host's kernel leave to its process; empty: no limit is known.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub rooms: Vec<MemoryRoom>,
    /// Its capabilities.
    pub capabilities: Capabilities,
}

impl GuestSample {
    /// A guest with nothing known but its name.
    pub fn unknown(id: GuestId, link: LinkState) -> Self {
        GuestSample {
            id,
            link,
            run_state: None,
            allocation: None,
            boot_memory: None,
            hotplug: None,
            process: None,
            resident: None,
            unmapped: None,
            file_backed: None,
            overhead: None,
            merged: None,
            stats: None,
            disk_reads: None,
            agent: None,
            tracker: None,
            tracking: None,
            fence: None,
            pinned: None,
            rooms: Vec::new(),
            capabilities: Capabilities::default(),
        }
    }

    /// Notes that its pages stay on the host, so that ballooning would free no host memory.
    pub fn pin(&mut self, by: Pinned) {
        self.pinned.get_or_insert(by);
        self.capabilities.discard_inhibited = Some(true);
    }

    /// Memory the guest has, ballooned or not: boot memory and plugged memory.
    pub fn present_memory(&self) -> Option<Bytes> {
        let plugged = self.hotplug.map_or(Bytes::ZERO, |hotplug| hotplug.plugged);
        Some(self.boot_memory?.saturating_add(plugged))
    }

    /// What it claims to hold, cut to the most that it can ever hold.
    pub fn claimed(&self) -> Option<Bytes> {
        Some(self.allocation?.value.min(self.memory_max().unwrap_or(Bytes::MAX)))
    }

    /// The working set of a guest without statistics as the host sees it. `None`: the guest reports
    /// statistics, or there is no working set, or it is too old, or it is only an upper bound.
    pub fn working_set_alone(&self) -> Option<Measured<Bytes>> {
        let report = self.tracker.as_ref().filter(|_| self.stats.is_none())?;
        let is_exact = report.value.source.of_demand() != DemandSource::Coarse;
        (is_exact && report.age < WORKING_SET_AGE_MAX)
            .then_some(Measured { value: report.value.working_set, age: report.age })
    }

    /// The most memory the guest can ever hold: boot memory and all that can be plugged in.
    pub fn memory_max(&self) -> Option<Bytes> {
        let max = self.hotplug.map_or(Bytes::ZERO, |hotplug| hotplug.max.max(hotplug.plugged));
        Some(self.boot_memory?.saturating_add(max))
    }
}

/// Identifies a process until the host reboots: a PID is reused, but not with the same start time.
/// A container has no one process, so it has PID 0 and the inode of its cgroup as start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ProcessId {
    /// The PID.
    pub pid: u32,
    /// When it was started, in clock ticks since the host's boot.
    pub start_ticks: u64,
}

/// What the hypervisor says a guest is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "code", content = "text", rename_all = "kebab-case")
)]
pub enum RunState {
    /// It runs.
    Running,
    /// It is paused by its operator.
    Paused,
    /// It has shut down or is about to.
    Shutdown,
    /// Its kernel has panicked.
    Panicked,
    /// There is no guest yet: its hypervisor waits for it to come from another one.
    Incoming,
    /// Anything else, in the hypervisor's own word (migrating, I/O error, …).
    Other(String),
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RunState::Running => "running",
            RunState::Paused => "paused",
            RunState::Shutdown => "shut down",
            RunState::Panicked => "panicked",
            RunState::Incoming => "incoming",
            RunState::Other(word) => word,
        })
    }
}

/// Statistics that the guest reports about itself. The guest may lie; `estimate` decides what is
/// believed. Counters count from the guest's boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct GuestStats {
    /// Memory the guest kernel manages (its `MemTotal`).
    #[cfg_attr(
        feature = "serde",
        serde(rename = "total_bytes", with = "unit", skip_serializing_if = "is_none")
    )]
    pub total: Option<Bytes>,
    /// Unused memory (its `MemFree`).
    #[cfg_attr(
        feature = "serde",
        serde(rename = "free_bytes", with = "unit", skip_serializing_if = "is_none")
    )]
    pub free: Option<Bytes>,
    /// Memory it could give back without swapping (its `MemAvailable`).
    #[cfg_attr(
        feature = "serde",
        serde(rename = "available_bytes", with = "unit", skip_serializing_if = "is_none")
    )]
    pub available: Option<Bytes>,
    /// Page cache that could be dropped.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "disk_caches_bytes", with = "unit", skip_serializing_if = "is_none")
    )]
    pub disk_caches: Option<Bytes>,
    /// Memory read back from swap since boot.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "swap_in_bytes", with = "unit", skip_serializing_if = "is_none")
    )]
    pub swap_in: Option<Bytes>,
    /// Memory written to swap since boot.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "swap_out_bytes", with = "unit", skip_serializing_if = "is_none")
    )]
    pub swap_out: Option<Bytes>,
    /// Faults that waited for a disk, since boot.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub major_faults: Option<u64>,
    /// Faults that did not wait for a disk, since boot.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub minor_faults: Option<u64>,
}

impl GuestStats {
    /// Memory it says it could give back. A kernel too old to report `available` reports only
    /// `free`; its page cache then counts as used, which is safe.
    pub fn available_or_free(&self) -> Option<Bytes> {
        self.available.or(self.free)
    }
}

/// Capabilities of a guest. `None`: not found out yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct Capabilities {
    /// A balloon device is present.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub balloon: Option<bool>,
    /// The balloon device reports statistics.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub statistics: Option<bool>,
    /// The guest gives free pages back by itself.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub free_page_reporting: Option<bool>,
    /// The balloon deflates by itself when the guest runs out of memory.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub deflate_on_oom: Option<bool>,
    /// Hot-pluggable memory devices are present.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub memory_devices: Option<bool>,
    /// A passthrough device or locked memory keeps ballooned pages on the host: shrinking the guest
    /// would gain the host nothing.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub discard_inhibited: Option<bool>,
    /// Others can order its balloon too, through the same manager.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub shared_control: Option<bool>,
}
