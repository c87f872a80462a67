//! Scenarios of the simulator, as plain data.
//!
//! Idea: fields that a lab scenario has too have the same meaning, so that one scenario can be run
//! on real guests and simulated. The command line reads the files; this crate checks the values.
//! Limits: the limits are those of `limits`; each default has its justification.

use std::time::Duration;

use ballast_control::Settings;
use ballast_model::{Bytes, GuestId, GuestLimits, PAGE_SIZE};

use crate::WorkloadSpec;
use crate::limits::{BLOCKS_MAX, GUESTS_MAX, TICKS_MAX, WORKLOADS_MAX};
use crate::scenario_error::ScenarioError;

/// A scenario to be simulated.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// Its duration, in virtual time.
    pub duration: Duration,
    /// Seed of all pseudo-random numbers.
    pub seed: u64,
    /// Granularity of guests' memory: [`Scenario::BLOCK_DEFAULT`] for speed, one page for
    /// calibration. Whole pages. A guest's `Kernel` and balloon are exact to the page either way.
    pub block: Bytes,
    /// The host.
    pub host: HostSpec,
    /// The controller's settings, as in the daemon's configuration. `tick` is the time step;
    /// `policy` and `limits` are ignored in favour of the policy of each run and of
    /// [`GuestSpec::limits`].
    pub control: Settings,
    /// The guests; names are unique.
    pub guests: Vec<GuestSpec>,
}

/// The host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostSpec {
    /// Memory of the machine.
    pub memory: Bytes,
    /// Memory of the hypervisor and the host itself; never available.
    pub hypervisor_reserve: Bytes,
    /// Processor time that a guest loses per MiB it gains: scrubbing and mapping the pages.
    pub scrub_per_mib: Duration,
    /// Whether all guests swap to one device, which serves one request at a time. Otherwise each
    /// has a device of its own, as in the lab.
    pub swap_shared: bool,
    /// Host paging of memory that a guest does not release; `None`: no paging.
    pub reclaim: Option<HostReclaim>,
}

/// Host paging (flexmemd §3.1.3).
#[derive(Clone, Debug, PartialEq)]
pub struct HostReclaim {
    /// Time a guest has to release memory first.
    pub grace: Duration,
    /// The disk that the pages are written to.
    pub disk: Disk,
}

/// A disk that serves one request at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Latency of one request.
    pub latency: Duration,
    /// Bytes per second.
    pub bandwidth: Bytes,
}

/// A guest's swap space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swap {
    /// Its size.
    pub size: Bytes,
    /// Its disk.
    pub disk: Disk,
    /// Pages read per request when they are read in order (`2^vm.page-cluster`).
    pub readahead_pages: u64,
}

/// The memory parameters of a guest's kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Memory reserved at boot that `MemTotal` does not include.
    pub uncounted: Bytes,
    /// Its own memory, which cannot be reclaimed.
    pub unreclaimable: Bytes,
    /// Reclaim starts when less than this is free.
    pub watermark_low: Bytes,
    /// Reclaim stops when this much is free.
    pub watermark_high: Bytes,
    /// Share of reclaim that goes to anonymous memory, 0 to 200 (`vm.swappiness`).
    pub swappiness: u8,
}

/// The speeds of a balloon, in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Balloon {
    /// Inflation while the guest has free memory.
    pub inflate_idle: Bytes,
    /// Inflation while it has to reclaim.
    pub inflate_pressed: Bytes,
    /// Deflation.
    pub deflate: Bytes,
}

/// The sources of information about a guest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sources {
    /// Statistics of the balloon device.
    pub statistics: bool,
    /// Their age at a sample while the guest has free memory.
    pub statistics_age_idle: Duration,
    /// Their age at a sample while it has to reclaim.
    pub statistics_age_pressed: Duration,
    /// Whether an agent inside the guest reports and requests memory.
    pub agent: bool,
    /// A tracker of page touches.
    pub tracker: Option<TrackerSpec>,
}

/// A tracker of page touches, ideal unless degraded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrackerSpec {
    /// Length of an interval; it reports at the end.
    pub interval: Duration,
    /// Largest error of a working set and of a curve's sizes, in permille, drawn for each report;
    /// 0: none.
    pub noise_permille: u32,
    /// Whether it cannot see misses beyond the allocation, like an LRU list over host frames (MEB
    /// §3.6): the curve is then constant beyond it.
    pub blind_beyond_allocation: bool,
    /// Largest share of references that miss within a working set, in permille (MEB §3.1's ε).
    pub miss_permille: u32,
}

/// A workload and when it begins.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedWorkload {
    /// Time from the start.
    pub at: Duration,
    /// What it does.
    pub workload: WorkloadSpec,
}

/// One guest.
#[derive(Clone, Debug, PartialEq)]
pub struct GuestSpec {
    /// Its name.
    pub id: GuestId,
    /// Memory it boots with.
    pub memory: Bytes,
    /// Its allocation at the start; `None`: all of its memory.
    pub start: Option<Bytes>,
    /// Largest memory with hotplug; `None`: no hotplug.
    pub memory_max: Option<Bytes>,
    /// Its limits, set by the operator.
    pub limits: GuestLimits,
    /// Its swap space; `None`: none, so that its OOM killer acts instead.
    pub swap: Option<Swap>,
    /// The disk of its files.
    pub data: Disk,
    /// Processor time of a touch that hits; the unit of work is one such touch.
    pub touch: Duration,
    /// Additional processor time of a page's first touch: clearing it, and writing the program's
    /// data.
    pub fill: Duration,
    /// Processor time of freeing a page.
    pub give_back: Duration,
    /// Its kernel.
    pub kernel: Kernel,
    /// Its balloon.
    pub balloon: Balloon,
    /// Its sources of information.
    pub sources: Sources,
    /// Its workloads, which run concurrently on one processor.
    pub workloads: Vec<TimedWorkload>,
}

impl Scenario {
    /// Default granularity of guests' memory.
    pub const BLOCK_DEFAULT: Bytes = Bytes::mib(1);

    /// Checks that every value is in its range.
    ///
    /// # Errors
    /// The first [`ScenarioError`] found.
    pub fn validate(&self) -> Result<(), ScenarioError> {
        let tick = self.control.tick;
        if tick < Duration::from_millis(1) || tick > Duration::from_secs(3600) {
            return Err(ScenarioError::Tick(tick));
        }
        if self.ticks() == 0 || self.ticks() > TICKS_MAX {
            return Err(ScenarioError::Ticks { ticks: self.ticks() });
        }
        let block = self.block;
        if block < Bytes::pages(1) || block.page_floor() != block || block > Bytes::gib(1) {
            return Err(ScenarioError::Block(block));
        }
        if self.guests.is_empty() || self.guests.len() > GUESTS_MAX {
            return Err(ScenarioError::Guests(self.guests.len()));
        }
        let mut names: Vec<&GuestId> = self.guests.iter().map(|guest| &guest.id).collect();
        names.sort();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ScenarioError::Twice(pair[0].clone()));
        }
        self.guests.iter().try_for_each(GuestSpec::validate)?;
        let blocks: Bytes = self.guests.iter().flat_map(GuestSpec::sizes).sum();
        if blocks.get() / block.get() > BLOCKS_MAX {
            return Err(ScenarioError::TooLarge { blocks: blocks.get() / block.get() });
        }
        let start: Bytes = self.guests.iter().map(GuestSpec::start).sum();
        let room = self.budget();
        if start > room {
            return Err(ScenarioError::Overcommitted { start, room });
        }
        Ok(())
    }

    /// Time steps of a run.
    pub fn ticks(&self) -> u64 {
        let tick = self.control.tick.as_millis().max(1);
        u64::try_from(self.duration.as_millis() / tick).unwrap_or(u64::MAX)
    }

    /// Memory for all guests together: the operator's budget, or the host's memory beyond its
    /// reserves if that is less.
    pub fn budget(&self) -> Bytes {
        let host = &self.host;
        let reserved = host.hypervisor_reserve.saturating_add(self.control.guard.host_reserve);
        let present = host.memory.saturating_sub(reserved);
        self.control.guard.budget.map_or(present, |budget| budget.min(present)).page_floor()
    }
}

impl HostSpec {
    /// Between the two figures of Global §4.5: 0.58 ms per MiB (a slowdown of 1.5 for a guest that
    /// gains 600 MB per second) and 0.44 ms per MiB (of 2 at 1.2 GB per second). Since the value is
    /// taken from there, a simulation cannot confirm those figures.
    pub const SCRUB_PER_MIB_DEFAULT: Duration = Duration::from_micros(500);

    /// A host with this much memory and defaults otherwise.
    pub const fn new(memory: Bytes) -> HostSpec {
        HostSpec {
            memory,
            hypervisor_reserve: Bytes::ZERO,
            scrub_per_mib: HostSpec::SCRUB_PER_MIB_DEFAULT,
            swap_shared: false,
            reclaim: None,
        }
    }
}

impl Disk {
    /// A fast NVMe drive: a read in 20 µs, 2 GB per second.
    pub const NVME: Disk =
        Disk { latency: Duration::from_micros(20), bandwidth: Bytes::new(2_000_000_000) };
    /// A SATA drive: a read in 100 µs, 500 MB per second.
    pub const SSD: Disk =
        Disk { latency: Duration::from_micros(100), bandwidth: Bytes::new(500_000_000) };
    /// A hard disk: a seek and half a turn at 7,200/min, 150 MB per second.
    pub const HDD: Disk =
        Disk { latency: Duration::from_micros(8_300), bandwidth: Bytes::new(150_000_000) };
}

impl Swap {
    /// Linux reads eight pages at a time (`vm.page-cluster` 3); the lab measured 7.9.
    pub const READAHEAD_PAGES_DEFAULT: u64 = 8;

    /// Pages written with one request (Linux's `SWAP_CLUSTER_MAX`).
    pub const WRITE_PAGES: u64 = 32;

    /// A swap space of this size on this disk.
    pub const fn new(size: Bytes, disk: Disk) -> Swap {
        Swap { size, disk, readahead_pages: Swap::READAHEAD_PAGES_DEFAULT }
    }
}

impl Default for Kernel {
    /// Measured in the lab with guests of 512 MiB and 1 GiB: about 60 MiB stay free, `MemTotal` is
    /// 52 MiB less than the memory, and a workload starts to be swapped out when it fills all but
    /// 133 MiB of the allocation, which are the low watermark, the memory missing from `MemTotal`,
    /// and the kernel's own.
    fn default() -> Self {
        Kernel {
            uncounted: Bytes::mib(52),
            unreclaimable: Bytes::mib(31),
            watermark_low: Bytes::mib(48),
            watermark_high: Bytes::mib(60),
            swappiness: 60,
        }
    }
}

impl Default for Balloon {
    /// Measured in the lab: 170 to 390 MB/s idle, 80 to 96 MB/s under load with swap, and 768 MiB
    /// deflated in 0.2 to 0.7 s.
    fn default() -> Self {
        Balloon {
            inflate_idle: Bytes::new(280_000_000),
            inflate_pressed: Bytes::new(88_000_000),
            deflate: Bytes::new(1_800_000_000),
        }
    }
}

impl Default for Sources {
    /// Every source, ideal; statistics have the age measured in the lab.
    fn default() -> Self {
        Sources {
            statistics: true,
            statistics_age_idle: Duration::from_millis(1_000),
            statistics_age_pressed: Duration::from_millis(1_800),
            agent: true,
            tracker: Some(TrackerSpec::default()),
        }
    }
}

impl Default for TrackerSpec {
    /// MEB's intervals (5 s) and its ε (1 %).
    fn default() -> Self {
        TrackerSpec {
            interval: Duration::from_secs(5),
            noise_permille: 0,
            blind_beyond_allocation: false,
            miss_permille: 10,
        }
    }
}

impl GuestSpec {
    /// Hits in the lab's guests: about a million per second.
    pub const TOUCH_DEFAULT: Duration = Duration::from_micros(1);

    /// Clearing 4 KiB at 4 GB/s. With emulation and a program that writes the whole page, the lab
    /// measures 50 to 130 µs.
    pub const FILL_DEFAULT: Duration = Duration::from_micros(1);

    /// Freeing a page costs nothing beside filling one. Under emulation the lab measures 140 to 150
    /// µs.
    pub const GIVE_BACK_DEFAULT: Duration = Duration::ZERO;

    /// An idle guest with this much memory, as much swap on an [`Disk::SSD`], and defaults
    /// otherwise.
    pub fn new(id: GuestId, memory: Bytes) -> GuestSpec {
        GuestSpec {
            id,
            memory,
            start: None,
            memory_max: None,
            limits: GuestLimits::default(),
            swap: Some(Swap::new(memory, Disk::SSD)),
            data: Disk::SSD,
            touch: GuestSpec::TOUCH_DEFAULT,
            fill: GuestSpec::FILL_DEFAULT,
            give_back: GuestSpec::GIVE_BACK_DEFAULT,
            kernel: Kernel::default(),
            balloon: Balloon::default(),
            sources: Sources::default(),
            workloads: Vec::new(),
        }
    }

    /// Adds a workload.
    #[must_use]
    pub fn with(mut self, at: Duration, workload: impl Into<WorkloadSpec>) -> GuestSpec {
        self.workloads.push(TimedWorkload { at, workload: workload.into() });
        self
    }

    /// Its allocation at the start, in whole pages.
    pub fn start(&self) -> Bytes {
        self.start.unwrap_or(self.memory).min(self.memory).page_floor()
    }

    pub(crate) fn sizes(&self) -> impl Iterator<Item = Bytes> {
        self.workloads.iter().map(|timed| timed.workload.pattern.size_max())
    }

    fn validate(&self) -> Result<(), ScenarioError> {
        let fault = |field: &'static str, value: String, expected: String| {
            Err(ScenarioError::Guest { guest: self.id.clone(), field, value, expected })
        };
        let kernel = self.kernel.uncounted.saturating_add(self.kernel.unreclaimable);
        if self.memory.page_floor() != self.memory || self.memory <= kernel {
            let expected = format!("whole pages, more than the {kernel} of its kernel");
            return fault("memory", self.memory.to_string(), expected);
        }
        if self.memory > Bytes::gib(1 << 14) {
            return fault("memory", self.memory.to_string(), "at most 16TiB".to_owned());
        }
        if self.start() <= kernel || self.start.is_some_and(|start| start > self.memory) {
            let expected = format!("more than the {kernel} of its kernel, at most its memory");
            return fault("start", self.start().to_string(), expected);
        }
        if self.memory_max.is_some_and(|max| max < self.memory) {
            let expected = format!("at least its memory, {}", self.memory);
            return fault("memory_max", self.memory_max.unwrap_or_default().to_string(), expected);
        }
        if self.kernel.watermark_low > self.kernel.watermark_high {
            let expected = format!("at most watermark_high, {}", self.kernel.watermark_high);
            return fault("watermark_low", self.kernel.watermark_low.to_string(), expected);
        }
        if self.kernel.swappiness > 200 {
            let value = self.kernel.swappiness.to_string();
            return fault("swappiness", value, "0 to 200".to_owned());
        }
        for (field, value) in [("fill", self.fill), ("give_back", self.give_back)] {
            if value > Duration::from_secs(1) {
                return fault(field, format!("{value:?}"), "0 to 1s".to_owned());
            }
        }
        if self.touch.is_zero() || self.touch > Duration::from_secs(1) {
            return fault("touch", format!("{:?}", self.touch), "1ns to 1s".to_owned());
        }
        let page = Bytes::new(PAGE_SIZE);
        let disks = [Some(self.data), self.swap.map(|swap| swap.disk)];
        if let Some(disk) = disks.into_iter().flatten().find(|disk| disk.bandwidth < page) {
            let value = disk.bandwidth.to_string();
            return fault("bandwidth", value, "at least one page a second".to_owned());
        }
        let balloon = &self.balloon;
        let slowest = balloon.inflate_idle.min(balloon.inflate_pressed).min(balloon.deflate);
        if slowest < page {
            let expected = "at least one page a second".to_owned();
            return fault("balloon", slowest.to_string(), expected);
        }
        if self.limits.shares == 0 {
            return fault("shares", "0".to_owned(), "at least 1".to_owned());
        }
        if self.workloads.len() > WORKLOADS_MAX {
            let expected = format!("at most {WORKLOADS_MAX}");
            return fault("workloads", self.workloads.len().to_string(), expected);
        }
        for (place, timed) in self.workloads.iter().enumerate() {
            timed.workload.validate().map_err(|error| ScenarioError::Workload {
                guest: self.id.clone(),
                place,
                error,
            })?;
        }
        Ok(())
    }
}
