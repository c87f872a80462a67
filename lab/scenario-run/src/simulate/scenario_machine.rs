//! The parts of a guest in a scenario file: disks, kernel, balloon, and the sources of its
//! statistics.
//!
//! Idea: every figure has a default in the simulator, which says where it comes from. A table gives
//! the figures that differ, for one guest or, under `[defaults]`, for all.
//! Limits: the simulator checks the ranges.

use std::time::Duration;

use ballast_lab_host::{DiskSpec, Limits, Speed};
use ballast_model::Bytes;
use ballast_sim::{Balloon, Disk, Kernel, Sources, TrackerSpec};
use ballast_toml_strict::duration;
use serde::Deserialize;

/// The machine of guests; `[defaults]` applies to every guest that does not say otherwise.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Machine {
    pub(super) swap: Option<DiskSpec>,
    pub(super) data: Option<DataTable>,
    #[serde(with = "duration::option")]
    pub(super) touch: Option<Duration>,
    #[serde(with = "duration::option")]
    pub(super) fill: Option<Duration>,
    #[serde(with = "duration::option")]
    pub(super) give_back: Option<Duration>,
    pub(super) kernel: Option<KernelTable>,
    pub(super) balloon: Option<BalloonTable>,
    pub(super) sources: Option<SourcesTable>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KernelTable {
    uncounted: Option<Bytes>,
    unreclaimable: Option<Bytes>,
    watermark_low: Option<Bytes>,
    watermark_high: Option<Bytes>,
    swappiness: Option<u8>,
}

/// Rates in bytes a second.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BalloonTable {
    inflate_idle: Option<Bytes>,
    inflate_pressed: Option<Bytes>,
    deflate: Option<Bytes>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SourcesTable {
    statistics: Option<bool>,
    agent: Option<bool>,
    /// Default: the simulator's; `false`: no tracker.
    tracker: Option<bool>,
    #[serde(default, with = "duration::option")]
    tracker_interval: Option<Duration>,
    tracker_noise_permille: Option<u32>,
    tracker_blind_beyond_allocation: Option<bool>,
}

/// How the host pages out guests that do not give memory.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReclaimTable {
    #[serde(with = "duration")]
    pub(super) grace: Duration,
    pub(super) speed: Speed,
}

/// A guest's data disk. The lab's disk has a size, which the simulator does not need.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DataTable {
    #[serde(default, rename = "size")]
    _size: Option<Bytes>,
    #[serde(default)]
    pub(super) speed: Speed,
}

/// A disk of this speed; the host's own disk counts as a fast one.
pub(super) fn disk(speed: Speed) -> Result<Disk, String> {
    match speed {
        Speed::Host | Speed::Nvme => Ok(Disk::NVME),
        Speed::Ssd => Ok(Disk::SSD),
        Speed::Hdd => Ok(Disk::HDD),
        Speed::Limits(Limits { iops, bytes_per_second }) => {
            let nanos = 1_000_000_000u64.checked_div(iops).ok_or("iops must be at least 1")?;
            let bandwidth = Bytes::new(bytes_per_second);
            Ok(Disk { latency: Duration::from_nanos(nanos), bandwidth })
        }
    }
}

pub(super) fn kernel(table: Option<KernelTable>) -> Kernel {
    let default = Kernel::default();
    let Some(table) = table else { return default };
    Kernel {
        uncounted: table.uncounted.unwrap_or(default.uncounted),
        unreclaimable: table.unreclaimable.unwrap_or(default.unreclaimable),
        watermark_low: table.watermark_low.unwrap_or(default.watermark_low),
        watermark_high: table.watermark_high.unwrap_or(default.watermark_high),
        swappiness: table.swappiness.unwrap_or(default.swappiness),
    }
}

pub(super) fn balloon(table: Option<BalloonTable>) -> Balloon {
    let default = Balloon::default();
    let Some(table) = table else { return default };
    Balloon {
        inflate_idle: table.inflate_idle.unwrap_or(default.inflate_idle),
        inflate_pressed: table.inflate_pressed.unwrap_or(default.inflate_pressed),
        deflate: table.deflate.unwrap_or(default.deflate),
    }
}

pub(super) fn sources(table: Option<SourcesTable>) -> Sources {
    let default = Sources::default();
    let Some(table) = table else { return default };
    let ideal = TrackerSpec::default();
    let tracker = TrackerSpec {
        interval: table.tracker_interval.unwrap_or(ideal.interval),
        noise_permille: table.tracker_noise_permille.unwrap_or(ideal.noise_permille),
        blind_beyond_allocation: table
            .tracker_blind_beyond_allocation
            .unwrap_or(ideal.blind_beyond_allocation),
        ..ideal
    };
    Sources {
        statistics: table.statistics.unwrap_or(default.statistics),
        agent: table.agent.unwrap_or(default.agent),
        tracker: table.tracker.unwrap_or(true).then_some(tracker),
        ..default
    }
}
