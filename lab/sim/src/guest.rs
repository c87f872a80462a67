//! A simulated guest: memory, balloon, workloads, and its observable state.
//!
//! Idea: a tick moves the balloon, then runs the workloads, then updates statistics, agent and
//! tracker. The balloon inflates from free memory at one speed and by reclaim at another, as
//! measured in the lab. Memory beyond the boot memory is plugged in chunks before it is needed and
//! stays in the balloon until then (flexmemd §3.1.3).
//! Limits: plugging takes no time; memory is never unplugged.

use std::collections::VecDeque;
use std::time::Duration;

use ballast_model::{
    AgentReport, Bytes, Capabilities, DiskReads, GuestId, GuestSample, GuestStats, LinkState,
    Measured, PAGE_SIZE, RunState,
};

use crate::counters::Counters;
use crate::disk::ns;
use crate::memory::Memory;
use crate::process::{Process, Slice, shared_touch_ns};
use crate::requests::Requests;
use crate::scenario::{GuestSpec, HostReclaim, HostSpec};
use crate::tracker::Tracker;

/// Largest amount plugged at once (flexmemd §3.1.3).
const CHUNK: Bytes = Bytes::mib(512);
/// The next chunk is plugged when the balloon holds less than this.
const PLUG_BELOW: Bytes = Bytes::mib(256);
/// Past statistics kept; more than any configured age at ticks of 100 ms.
const HISTORY_MAX: usize = 64;

/// A guest in the simulator.
#[derive(Clone, Debug)]
pub(crate) struct Guest {
    pub(crate) spec: GuestSpec,
    pub(crate) memory: Memory,
    processes: Vec<Process>,
    requests: Requests,
    tracker: Option<Tracker>,
    /// Boot memory and plugged memory.
    present: Bytes,
    pub(crate) target: Option<Bytes>,
    /// Peak of memory in use since the last reading: what the host had to provide.
    touched: Bytes,
    /// Past statistics with their times.
    history: VecDeque<(Duration, GuestStats)>,
    /// Counters at the last tick.
    pub(crate) counters: Counters,
    /// Events of the last tick.
    pub(crate) tick: Counters,
    pub(crate) moved: Bytes,
    pub(crate) oom_kills: u64,
    /// Time in which its workloads had work to do.
    pub(crate) working: Duration,
    /// Time its processes waited for disks in the last tick, at most a tick each, in ns.
    pub(crate) waiting_ns: u64,
    /// Since when it holds more than its target.
    over_since: Option<Duration>,
    rng: fastrand::Rng,
}

impl Guest {
    pub(crate) fn new(
        spec: &GuestSpec,
        block: Bytes,
        start: Bytes,
        host: &HostSpec,
        seed: u64,
    ) -> Guest {
        let mut rng = fastrand::Rng::with_seed(seed);
        let disk = host.reclaim.as_ref().map(|reclaim| reclaim.disk);
        let each = spec.workloads.iter().enumerate();
        let processes = each
            .map(|(region, timed)| Process::new(timed, region, block.get(), rng.u64(..)))
            .collect();
        let memory = Memory::new(spec, block, start, disk);
        Guest {
            tracker: spec.sources.tracker.map(|spec| Tracker::new(spec, rng.u64(..))),
            processes,
            requests: Requests::default(),
            present: spec.memory.max(start),
            target: None,
            touched: memory.used(),
            memory,
            history: VecDeque::new(),
            counters: Counters::default(),
            tick: Counters::default(),
            moved: Bytes::ZERO,
            oom_kills: 0,
            working: Duration::ZERO,
            waiting_ns: 0,
            over_since: None,
            rng,
            spec: spec.clone(),
        }
    }

    pub(crate) fn id(&self) -> &GuestId {
        &self.spec.id
    }

    /// Host memory that it occupies.
    pub(crate) fn resident(&self) -> Bytes {
        self.touched.saturating_sub(self.memory.host_out())
    }

    /// Simulates one tick from `now` on.
    pub(crate) fn step(&mut self, now: Duration, tick: Duration, host: &HostSpec) {
        let before = self.counters;
        self.waiting_ns = 0;
        let scrubbing_ns = self.move_balloon(tick, host.scrub_per_mib);
        self.work(now, tick, scrubbing_ns);
        let end = now + tick;
        if let Some(reclaim) = &host.reclaim {
            self.page_out(end, reclaim);
        }
        self.touched = self.touched.min(self.memory.allocation()).max(self.memory.used());
        let pending = self.processes.iter().map(Process::pending);
        self.counters = pending.fold(self.memory.counters, |all, part| all.since(&part));
        self.tick = self.counters.since(&before);
        if self.spec.sources.agent {
            self.requests.observe(&self.memory, self.target, &self.tick, end);
        }
        if let Some(tracker) = &mut self.tracker {
            tracker.observe(&self.memory, &self.processes, end);
        }
        if self.history.len() == HISTORY_MAX {
            self.history.pop_front();
        }
        self.history.push_back((end, self.statistics()));
    }

    /// Whether it had to reclaim in the last tick.
    fn is_pressed(&self) -> bool {
        self.tick.scanned_pages > 0
    }

    /// Moves the balloon towards the target. Returns the processor time this costs, in ns.
    fn move_balloon(&mut self, tick: Duration, scrub_per_mib: Duration) -> u64 {
        let allocation = self.memory.allocation();
        self.plug(self.target.unwrap_or(allocation));
        let Some(target) = self.target else { return 0 };
        let in_tick = |per_s: Bytes| per_s.fraction(ns(tick), 1_000_000_000);
        if target < allocation {
            let wanted = allocation - target;
            let rates = self.spec.balloon;
            let spare = Bytes::new(self.memory.free())
                .saturating_sub(Bytes::new(self.memory.watermark_high()));
            let idle = wanted.min(spare).min(in_tick(rates.inflate_idle));
            // The rest of the tick is spent at the slower rate.
            let rest = in_tick(rates.inflate_idle) - idle;
            let pressed = rest.fraction(rates.inflate_pressed.get(), rates.inflate_idle.get());
            let (given, waited) = self.memory.inflate((idle + pressed.min(wanted - idle)).get());
            self.moved += Bytes::new(given);
            self.waiting_ns += waited.min(ns(tick));
            return 0;
        }
        let given = (target - allocation).min(in_tick(self.spec.balloon.deflate));
        let given = given.min(self.present.saturating_sub(allocation)).page_floor();
        self.memory.deflate(given.get());
        self.moved += given;
        let cost = u128::from(given.get()) * scrub_per_mib.as_nanos() / (1 << 20);
        u64::try_from(cost).unwrap_or(u64::MAX)
    }

    /// Plugs the next chunk when the balloon is nearly empty.
    fn plug(&mut self, target: Bytes) {
        let most = self.spec.memory_max.unwrap_or(self.present);
        while self.present < most && target.saturating_add(PLUG_BELOW) > self.present {
            self.present += CHUNK.min(most - self.present);
        }
    }

    fn work(&mut self, now: Duration, tick: Duration, scrubbing_ns: u64) {
        let runners = self.processes.iter().filter(|process| process.is_running(now)).count();
        let slice = Slice {
            now,
            tick_ns: ns(tick),
            usable_ns: ns(tick).saturating_sub(scrubbing_ns),
            touch_ns: shared_touch_ns(self.spec.touch, runners),
            give_back_ns: ns(self.spec.give_back),
        };
        for at in 0..self.processes.len() {
            let owed = self.processes[at].debt_ns();
            let before = self.memory.counters.waited_ns;
            if self.processes[at].run(&mut self.memory, slice).is_err() {
                self.kill_largest();
            }
            let waited = owed.saturating_add(self.memory.counters.waited_ns - before);
            self.waiting_ns += waited.min(slice.tick_ns);
        }
        if self.processes.iter().any(|process| process.has_work(now)) {
            self.working += tick;
        }
    }

    /// The OOM killer: kills the workload with the most memory.
    fn kill_largest(&mut self) {
        let size = |process: &&mut Process| self.memory.len(process.region());
        if let Some(largest) = self.processes.iter_mut().max_by_key(size) {
            largest.kill(&mut self.memory);
            self.oom_kills += 1;
        }
    }

    /// The host pages out what the guest has not released in time.
    fn page_out(&mut self, now: Duration, reclaim: &HostReclaim) {
        let held = self.memory.allocation().saturating_sub(self.memory.host_out());
        let over = self.target.map_or(Bytes::ZERO, |target| held.saturating_sub(target));
        if over == Bytes::ZERO {
            self.over_since = None;
            return;
        }
        let since = *self.over_since.get_or_insert(now);
        if now.saturating_sub(since) >= reclaim.grace {
            self.memory.page_out_by_host(over, self.rng.u64(..));
        }
    }

    /// The current statistics of its balloon device.
    fn statistics(&self) -> GuestStats {
        let memory = &self.memory;
        let counters = &self.counters;
        GuestStats {
            total: Some(memory.total()),
            free: Some(Bytes::new(memory.free())),
            available: Some(memory.available()),
            disk_caches: Some(memory.file()),
            swap_in: Some(Bytes::pages(counters.swap_in_pages)),
            swap_out: Some(Bytes::pages(counters.swap_out_pages)),
            major_faults: Some(counters.major_faults),
            minor_faults: Some(counters.minor_faults),
        }
    }

    /// What its disks have read; each request is a major fault.
    fn disk_reads(&self) -> DiskReads {
        let counters = &self.counters;
        DiskReads {
            read: Bytes::pages(counters.swap_in_pages + counters.file_read_pages),
            requests: counters.major_faults,
            ..DiskReads::default()
        }
    }

    /// Its sample at `now`.
    pub(crate) fn sample(&self, now: Duration) -> GuestSample {
        let sources = &self.spec.sources;
        let age = match self.is_pressed() {
            true => sources.statistics_age_pressed,
            false => sources.statistics_age_idle,
        };
        let stats = sources.statistics.then(|| self.statistics_before(now, age)).flatten();
        GuestSample {
            run_state: Some(RunState::Running),
            allocation: Some(Measured::fresh(self.memory.allocation())),
            boot_memory: Some(self.present),
            resident: Some(Measured::fresh(self.resident())),
            stats,
            disk_reads: Some(Measured::fresh(self.disk_reads())),
            agent: sources.agent.then(|| Box::new(Measured::fresh(self.agent_report()))),
            tracker: self.tracker.as_ref().and_then(|tracker| tracker.report(now)).map(Box::new),
            capabilities: Capabilities {
                balloon: Some(true),
                statistics: Some(sources.statistics),
                free_page_reporting: Some(false),
                deflate_on_oom: Some(false),
                memory_devices: Some(self.spec.memory_max.is_some()),
                discard_inhibited: Some(false),
                shared_control: None,
            },
            ..GuestSample::unknown(self.spec.id.clone(), LinkState::Up)
        }
    }

    /// The latest statistics that are at least `age` old, else the oldest.
    fn statistics_before(&self, now: Duration, age: Duration) -> Option<Measured<GuestStats>> {
        let is_old = |&&(at, _): &&(Duration, GuestStats)| now.saturating_sub(at) >= age;
        let &(at, value) = self.history.iter().rev().find(is_old).or(self.history.front())?;
        Some(Measured { value, age: now.saturating_sub(at) })
    }

    fn agent_report(&self) -> AgentReport {
        let memory = &self.memory;
        let counters = &self.counters;
        AgentReport {
            committed: Some(memory.committed()),
            swap_used: Some(memory.swap_used()),
            swap_free: Some(memory.swap_free()),
            active: Some(memory.active()),
            inactive: Some(memory.inactive()),
            watermark_high: Some(Bytes::new(memory.watermark_high() / PAGE_SIZE * PAGE_SIZE)),
            refaulted_file_pages: Some(counters.refaulted_file_pages),
            scanned_pages: Some(counters.scanned_pages),
            reclaimed_pages: Some(counters.reclaimed_pages),
            request: self.requests.last(),
        }
    }
}
