//! Samples the host and its guests, once per tick.
//!
//! Idea: four sources go into one [`Snapshot`]: the hypervisor (each guest's allocation), the
//! kernel (host memory that its process occupies), the trackers (memory that it touches) and the
//! agents (the guest's own statistics).
//!
//! Cost: that of the fleet plus two reads of /proc per guest (about 10 µs), and those of
//! `guest_rooms.rs`. An urgent snapshot samples only the urgent guests and reuses the last readings
//! of the others, which carry their age and are at most one tick old.
//! Limits: readings that wait for a process's locks are left to threads ([`Occupancy`]).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ballast_actuation::fence::Fences;
use ballast_backend::{Backends, GuestReading, SampleRequest};
use ballast_host::{
    HostReader, KSM, PROC, ProcessMemory, ProcessReader, balloon_owner, read_merged, read_merging,
    read_pinned,
};
use ballast_model::{
    BalloonOwner, Bytes, Change, Compliance, GuestChange, GuestId, GuestPlan, GuestSample,
    HoldReason, Measured, PageMerging, Pinned, Plan, PressureLevel, ProcessId, RunState, Snapshot,
    Timestamp,
};
use ballast_reclaim::{Coldness, SwapBounds};
use tracing::info;

use super::clock;
use super::fencer::Fencer;
use super::file_backing::FileBacking;
use super::gathered::gathered;
use super::guest_rooms::GuestRooms;
use super::occupancy::{Count, Occupancy, in_files, shared_in_memory};
use super::page_kinds::{INCOMPLETE_AGE, judge_pages, overhead};
use super::pager::RAM_MIN;
use super::warn_once::WarnOnce;
use crate::agents::{AgentNotice, Agents};
use crate::proxmox_settings::ProxmoxSettings;
use crate::track::{HIDES_LITTLE, PresentGuest, Service};
use ballast_config::{AgentSettings, TrackingSettings};

/// Time between two searches for another program that moves balloons: each reads all processes.
const OWNER_PERIOD: Duration = Duration::from_secs(60);

/// Time between two looks at a hypervisor's open files: a device may be plugged in later.
const PINNED_PERIOD: Duration = Duration::from_secs(60);

/// A guest's hypervisor process and its last memory reading.
#[derive(Debug)]
struct GuestProcess {
    reader: ProcessReader,
    latest: Option<(ProcessMemory, Timestamp)>,
    /// How much of its memory was merged when all guests were last sampled.
    merged: Option<Bytes>,
    /// What pins its memory, as its open files show.
    pinned: Option<Pinned>,
    /// When its open files were last read.
    pinned_at: Option<Timestamp>,
    files: FileBacking,
}

impl GuestProcess {
    fn id(&self) -> ProcessId {
        ProcessId { pid: self.reader.pid(), start_ticks: self.reader.start_time() }
    }
}

/// Samples the host and every guest.
#[derive(Debug)]
pub(super) struct Observer {
    pub(super) backends: Backends,
    deadline: Duration,
    host: HostReader,
    rooms: GuestRooms,
    /// Merging of equal pages when all guests were last sampled.
    merging: Option<PageMerging>,
    processes: BTreeMap<GuestId, GuestProcess>,
    trackers: Option<Service>,
    occupancy: Occupancy,
    /// Counts how much of guests' memory is in files.
    mappings: Occupancy,
    pub(super) agents: Option<Agents>,
    pub(super) fencer: Fencer,
    /// The settings that live with guests.
    settings: BTreeMap<GuestId, Arc<GuestChange>>,
    /// Settings of guests of Proxmox VE; `None`: not read.
    pub(super) proxmox: Option<ProxmoxSettings>,
    /// The other program that moves balloons, if one was found.
    balloon_owner: Option<BalloonOwner>,
    /// When that program was last searched for.
    owner_sought_at: Option<Timestamp>,
    /// Whether `settings` changed since the last [`Observer::changed_settings`].
    are_settings_new: bool,
    buffer: Vec<u8>,
    warnings: WarnOnce,
}

impl Observer {
    /// An observer of the guests of `backends`; each guest has `deadline` to answer in every tick.
    pub(super) fn new(
        backends: Backends,
        deadline: Duration,
        tracking: Option<&TrackingSettings>,
        agents: Option<&AgentSettings>,
        swap: SwapBounds,
    ) -> Self {
        Observer {
            backends,
            deadline,
            host: HostReader::new(Path::new(PROC)),
            rooms: GuestRooms::new(),
            merging: None,
            processes: BTreeMap::new(),
            trackers: tracking.map(|settings| Service::new(settings.into())),
            agents: agents.map(|settings| Agents::new(settings.clone())),
            occupancy: Occupancy::by("occupancy", shared_in_memory),
            mappings: Occupancy::by("mappings", in_files),
            fencer: Fencer::new(swap),
            settings: BTreeMap::new(),
            proxmox: None,
            balloon_owner: None,
            owner_sought_at: None,
            are_settings_new: false,
            buffer: Vec::new(),
            warnings: WarnOnce::default(),
        }
    }

    /// Samples every guest.
    pub(super) async fn snapshot(&mut self) -> Snapshot {
        // Every guest is sampled, so pending emergency calls are served too.
        let _ = self.agents.as_ref().map(Agents::callers);
        let readings = self.read(None).await;
        self.merging = match read_merging(Path::new(KSM)) {
            Ok(merging) => merging,
            Err(error) => {
                self.warnings.warn("ksm", &error.to_string());
                None
            }
        };
        self.complete_all(readings, |_| true)
    }

    /// Samples the guests that called for a tick and `others`; reuses the last readings of the
    /// rest.
    pub(super) async fn urgent_snapshot(&mut self, others: &[GuestId]) -> Snapshot {
        let mut sampled = self.agents.as_ref().map(Agents::callers).unwrap_or_default();
        sampled.extend(others.iter().cloned());
        let readings = self.read(Some(&sampled)).await;
        self.complete_all(readings, |id| sampled.contains(id))
    }

    async fn read(&mut self, only: Option<&BTreeSet<GuestId>>) -> Vec<GuestReading> {
        let (now, wall, deadline) = (clock::now(), clock::wall(), self.deadline);
        self.backends.sample(SampleRequest { now, wall, deadline, only }).await
    }

    /// Builds the snapshot from `readings` and the other sources. Reads a guest's process again
    /// only if `is_read`.
    fn complete_all(
        &mut self,
        readings: Vec<GuestReading>,
        is_read: impl Fn(&GuestId) -> bool,
    ) -> Snapshot {
        for notice in self.backends.take_notices() {
            info!("{notice}");
        }
        self.processes
            .retain(|id, _| readings.binary_search_by(|reading| reading.sample.id.cmp(id)).is_ok());
        if let Some(agents) = &mut self.agents {
            agents
                .keep(|id| readings.binary_search_by(|reading| reading.sample.id.cmp(id)).is_ok());
            let ids = readings.iter().map(|reading| &reading.sample.id);
            let claims = ids.filter_map(|id| Some((id.clone(), self.backends.vsock(id)?)));
            agents.take_in_claims(claims);
        }
        if let Some(proxmox) = &mut self.proxmox {
            proxmox.check_thread();
        }
        let with_settings = |it: &GuestReading| {
            let by_proxmox = || self.proxmox.as_ref()?.of(&it.sample.id);
            Some((it.sample.id.clone(), it.settings.clone().or_else(by_proxmox)?))
        };
        let settings = gathered(readings.iter().filter_map(with_settings));
        if self.settings != settings {
            (self.settings, self.are_settings_new) = (settings, true);
        }
        let complete = |reading: GuestReading| {
            let is_read = is_read(&reading.sample.id);
            self.complete(reading, is_read)
        };
        let mut guests: Vec<GuestSample> = readings.into_iter().map(complete).collect();
        if let Some(error) = self.rooms.add_to(&mut guests, clock::now()) {
            self.warnings.warn("limits", &error.to_string());
        }
        let awaited = self.processes.values().filter(|process| process.files.is_awaited());
        let awaited = awaited.map(GuestProcess::id).collect();
        self.mappings.count(awaited);
        if let Some(trackers) = &mut self.trackers {
            trackers.keep(|id, process| {
                let place = guests.binary_search_by(|sample| sample.id.cmp(id));
                place.is_ok_and(|place| guests[place].process == Some(process))
            });
        }
        let (mut host, errors) = self.host.sample();
        if let Some(memory) = self.backends.host_memory() {
            (host.memory_total, host.memory_available) = (memory.total, memory.available);
        }
        host.merging = self.merging;
        host.balloon_owner = self.balloon_owner;
        for error in errors {
            self.warnings.warn("host", &error.to_string());
        }
        Snapshot::new(clock::now(), host, guests)
    }

    /// The settings that live with guests; `None`: unchanged since the last call.
    pub(super) fn changed_settings(&mut self) -> Option<BTreeMap<GuestId, GuestChange>> {
        let is_new = std::mem::take(&mut self.are_settings_new);
        let copy = |(id, own): (&GuestId, &Arc<GuestChange>)| (id.clone(), GuestChange::clone(own));
        is_new.then(|| gathered(self.settings.iter().map(copy)))
    }

    /// A guest's process and the host memory it occupied at the last reading.
    pub(super) fn process_of(&self, id: &GuestId) -> Option<(ProcessId, Bytes)> {
        let process = self.processes.get(id)?;
        let ((memory, at), process) = (process.latest?, process.id());
        Some((process, self.resident(id, process, &memory, at).value))
    }

    /// Prepares for paging, if it is on: guests that owe memory or are being paged (all guests if
    /// the host is short) have their cold pages tracked and their memory counted. Memory is also
    /// counted for guests whose page table lacks much of it.
    pub(super) fn expect_paging(&mut self, plan: &Plan, is_paging_on: bool) {
        let is_expected = |guest: &GuestPlan| {
            let owes = !matches!(guest.compliance, Compliance::Compliant | Compliance::Inhibited);
            let is_paged = plan.paging.iter().any(|paging| paging.guest == guest.id);
            is_paging_on && (owes || is_paged || plan.host_pressure >= PressureLevel::BalloonOnly)
        };
        let mut counted = Vec::new();
        for guest in &plan.guests {
            let is_expected = is_expected(guest);
            if let Some(trackers) = &self.trackers {
                trackers.expect_paging(&guest.id, is_expected);
            }
            if let Some(trackers) = &self.trackers
                && self.shows_all(&guest.id)
            {
                trackers.show_memory(&guest.id);
            }
            if is_expected || self.hides_memory(&guest.id) {
                counted.extend(self.processes.get(&guest.id).map(GuestProcess::id));
            }
        }
        self.occupancy.count(counted);
    }

    /// Whether the last count of a guest's memory found no more than its page table has.
    fn shows_all(&self, id: &GuestId) -> bool {
        let Some(process) = self.processes.get(id) else { return false };
        let Some(Some(Count { found: Ok(Some(shared)), .. })) = self.occupancy.latest(process.id())
        else {
            return false;
        };
        let mapped = process.latest.and_then(|(memory, _)| memory.resident_shared);
        let little = shared.fraction(HIDES_LITTLE.millionths().into(), 1_000_000);
        mapped.is_some_and(|mapped| shared.saturating_sub(mapped) <= little)
    }

    /// Looks up who else moves balloons, if a plan says that something does.
    pub(super) fn seek_owner(&mut self, plan: &Plan) {
        let is_owned = |guest: &GuestPlan| {
            matches!(guest.change, Change::Hold(HoldReason::AnotherOwner { .. }))
        };
        let now = clock::now();
        let is_due = self.owner_sought_at.is_none_or(|at| now.saturating_since(at) > OWNER_PERIOD);
        if is_due && plan.guests.iter().any(is_owned) {
            self.owner_sought_at = Some(now);
            self.balloon_owner = balloon_owner(Path::new(PROC), std::process::id());
        }
    }

    fn hides_memory(&self, id: &GuestId) -> bool {
        self.trackers.as_ref().is_some_and(|trackers| trackers.hides_memory(id))
    }

    pub(super) fn fence(&mut self, fences: Fences) {
        let present = self.processes.iter().map(|(id, process)| (id, process.id()));
        self.fencer.obey(fences, present);
    }

    /// Which of a guest's pages its tracker found cold.
    pub(super) fn coldness(&self, id: &GuestId) -> Option<Arc<Coldness>> {
        self.trackers.as_ref()?.coldness(id)
    }

    /// Adds what the kernel, the tracker and the agent know to a hypervisor's reading.
    fn complete(&mut self, reading: GuestReading, is_read: bool) -> GuestSample {
        let pid = reading.pid;
        let mut sample = self.with_process(reading, is_read);
        // A guest without a process has no tracker either.
        let process = sample.process.filter(|_| pid.is_some());
        if let Some((trackers, process)) = self.trackers.as_mut().zip(process) {
            let status = trackers.status(PresentGuest {
                id: &sample.id,
                process,
                allocation: sample.allocation.map(|allocation| allocation.value),
                is_running: sample.run_state == Some(RunState::Running),
            });
            sample.tracker = status.report.map(Box::new);
            sample.tracking = status.tracking.map(Box::new);
            if let Some(trouble) = status.new_trouble {
                info!("{}: not tracked: {trouble}", sample.id);
            }
        }
        self.add_agent(&mut sample, pid);
        sample.fence = self.fencer.state(&sample.id);
        if let Some(proxmox) = &self.proxmox {
            proxmox.add_to(&mut sample);
        }
        sample
    }

    /// Adds the report of the agent behind hypervisor `pid`.
    fn add_agent(&mut self, sample: &mut GuestSample, pid: Option<u32>) {
        let Some(agents) = &mut self.agents else { return };
        let (memory_max, vsock) = (sample.memory_max(), self.backends.vsock(&sample.id));
        let state = agents.state(&sample.id, sample.process, memory_max, pid, vsock);
        let Some(state) = state else { return };
        state.add_to(sample);
        for notice in state.notices {
            match notice {
                AgentNotice::Info(line) => info!("{}: {line}", sample.id),
                AgentNotice::Warning(line) => {
                    self.warnings.warn(&format!("{} (agent)", sample.id), &line)
                }
            }
        }
    }

    /// Adds the memory the hypervisor's process occupies: read now if `is_read`, else the last
    /// reading.
    fn with_process(&mut self, reading: GuestReading, is_read: bool) -> GuestSample {
        let GuestReading { mut sample, pid, .. } = reading;
        let Some(pid) = pid else { return sample };
        if self.processes.get(&sample.id).is_none_or(|process| process.reader.pid() != pid) {
            self.processes.remove(&sample.id);
            match ProcessReader::open(Path::new(PROC), pid) {
                Ok(Some(reader)) => {
                    let process = GuestProcess {
                        reader,
                        latest: None,
                        merged: None,
                        pinned: None,
                        pinned_at: None,
                        files: FileBacking::default(),
                    };
                    self.processes.insert(sample.id.clone(), process);
                }
                Ok(None) => return sample,
                Err(error) => {
                    self.warnings.warn(sample.id.as_str(), &error.to_string());
                    return sample;
                }
            }
        }
        let Some(process) = self.processes.get_mut(&sample.id) else { return sample };
        let now = clock::now();
        if process.pinned_at.is_none_or(|at| now.saturating_since(at) > PINNED_PERIOD) {
            process.pinned_at = Some(now);
            process.files.retry();
            // What cannot be read now, for lack of open files say, has not changed thereby.
            process.pinned = read_pinned(Path::new(PROC), pid).unwrap_or(process.pinned);
        }
        if let Some(by) = process.pinned {
            sample.pin(by);
        }
        process.files.observe(sample.present_memory(), now);
        if let Some(Some(count)) = self.mappings.latest(process.id()) {
            process.files.take(count);
        }
        sample.file_backed = process.files.latest();
        let mapped = |process: &GuestProcess| process.latest.and_then(|(memory, _)| memory.mapped);
        // Memory may have been plugged in since the last reading.
        let is_more = mapped(process).is_some_and(|mapped| sample.claims() > mapped);
        if is_read || process.latest.is_none() || is_more {
            match process.reader.read(&mut self.buffer) {
                Ok(Some(memory)) => {
                    process.latest = Some((memory, now));
                    // Without permission to read, nothing is known.
                    let read = || read_merged(Path::new(PROC), pid).ok().flatten();
                    let merges = self.merging.is_some_and(|it| it.saved > Bytes::ZERO);
                    process.merged = if merges { read() } else { None };
                }
                Ok(None) => {
                    self.processes.remove(&sample.id);
                    return sample;
                }
                Err(error) => {
                    process.latest = None;
                    self.warnings.warn(sample.id.as_str(), &error.to_string());
                }
            }
        }
        let process_id = process.id();
        sample.process = Some(process_id);
        if let Some(mapped) = mapped(process) {
            sample.cut_to_mapped(mapped);
        }
        let Some((memory, at)) = process.latest else { return sample };
        sample.merged = process.merged;
        sample.overhead = overhead(&memory);
        sample.resident = Some(self.resident(&sample.id, process_id, &memory, at));
        judge_pages(&mut sample, &memory);
        sample
    }

    /// The host memory a guest's process occupies, given its page-table counts read `at`.
    fn resident(
        &self,
        id: &GuestId,
        process: ProcessId,
        memory: &ProcessMemory,
        at: Timestamp,
    ) -> Measured<Bytes> {
        let is_tracked = self.trackers.as_ref().is_some_and(|trackers| trackers.has_tracker(id));
        let hidden = match (is_tracked, self.hides_memory(id)) {
            (_, true) => Hidden::Much,
            (true, false) => Hidden::Little,
            (false, false) => Hidden::Nothing,
        };
        occupied(memory, at, clock::now(), self.occupancy.latest(process), hidden)
    }
}

/// How much memory trackers may hide from the page table of a guest's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hidden {
    Nothing,
    Little,
    Much,
}

/// The host memory that a guest's process occupies at `now`: its page-table counts, read `at`, with
/// shared memory replaced by its `count`. `count` is `None` if the process is not counted, and
/// `Some(None)` before its first count.
fn occupied(
    memory: &ProcessMemory,
    at: Timestamp,
    now: Timestamp,
    count: Option<Option<Count>>,
    hidden: Hidden,
) -> Measured<Bytes> {
    let mapped = Measured { value: memory.occupied(None), age: now.saturating_since(at) };
    // Only a lower bound; its age keeps decisions from using it as more.
    let incomplete = Measured { age: INCOMPLETE_AGE, ..mapped };
    let mapped_shared = memory.resident_shared.unwrap_or_default();
    match count {
        Some(Some(Count { found: Ok(None), .. })) => mapped,
        Some(Some(Count { found: Ok(Some(shared)), at: counted_at })) => Measured {
            value: memory.occupied(Some(shared)),
            age: mapped.age.max(now.saturating_since(counted_at)),
        },
        // The count is unsupported or not permitted. Only a tracker hides much from the page table.
        Some(Some(Count { found: Err(_), .. })) if hidden == Hidden::Nothing => mapped,
        Some(None) if hidden == Hidden::Nothing && mapped_shared < RAM_MIN => mapped,
        None if hidden != Hidden::Much => mapped,
        None | Some(Some(_) | None) => incomplete,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use ballast_model::LinkState;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Whether the mappings of a process can be read.
    static IS_UNLOCKED: AtomicBool = AtomicBool::new(false);

    /// Stands in for reading the mappings of a process, which waits for a lock.
    fn wait_for_lock(_: ProcessId) -> Count {
        let at = clock::now();
        while !IS_UNLOCKED.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Count { at, found: Ok(Some(Bytes::mib(7))) }
    }

    /// What a tick finds of a guest whose hypervisor is this process.
    fn tick(observer: &mut Observer) -> GuestSample {
        let mut sample = GuestSample::unknown("web".parse().unwrap(), LinkState::Up);
        sample.boot_memory = Some(Bytes::gib(1));
        let (pid, listens_at, settings) = (Some(std::process::id()), None, None);
        let reading = GuestReading { sample, pid, listens_at, has_answered: true, settings };
        observer.complete_all(vec![reading], |_| true).guests()[0].clone()
    }

    #[test]
    fn a_process_whose_mappings_are_locked_delays_no_tick() {
        let backends = Backends::new(Vec::new());
        let second = Duration::from_secs(1);
        let mut observer = Observer::new(backends, second, None, None, SwapBounds::default());
        observer.mappings = Occupancy::by("test", wait_for_lock);
        for _ in 0..3 {
            let guest = tick(&mut observer);
            assert!(guest.resident.is_some(), "the rest is known");
            assert_eq!(guest.file_backed, None);
        }
        IS_UNLOCKED.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        while tick(&mut observer).file_backed != Some(Bytes::mib(7)) {
            assert!(begun.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!observer.processes.values().any(|process| process.files.is_awaited()));
    }

    #[test]
    fn memory_that_a_tracker_hides_is_counted_or_not_known() {
        let memory = ProcessMemory {
            resident: Bytes::mib(300),
            mapped: Some(Bytes::gib(2)),
            resident_private: Some(Bytes::mib(100)),
            resident_shared: Some(Bytes::mib(200)),
            resident_file: None,
            huge: None,
            swapped: None,
            locked: None,
        };
        let (at, now) = (Timestamp::from_millis(5_000), Timestamp::from_millis(6_000));
        let counted = |found| Some(Some(Count { at: Timestamp::from_millis(4_000), found }));
        let refused = || Err(ballast_reclaim::ReclaimError::Gone { pid: 7 });
        let (mapped, incomplete) = ((300, 1), (300, INCOMPLETE_AGE.as_secs()));
        for (count, hidden, expected) in [
            (None, Hidden::Nothing, mapped),
            (None, Hidden::Little, mapped),
            (None, Hidden::Much, incomplete),
            (Some(None), Hidden::Nothing, incomplete),
            (Some(None), Hidden::Much, incomplete),
            (counted(Ok(Some(Bytes::mib(450)))), Hidden::Much, (550, 2)),
            (counted(Ok(None)), Hidden::Much, mapped),
            (counted(refused()), Hidden::Nothing, mapped),
            (counted(refused()), Hidden::Little, incomplete),
        ] {
            let told = format!("{count:?}, {hidden:?}");
            let found = occupied(&memory, at, now, count, hidden);
            assert_eq!((found.value.get() >> 20, found.age.as_secs()), expected, "{told}");
        }
    }
}
