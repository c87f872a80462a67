//! One tick's look at the host and all its guests.
//!
//! Idea: the hypervisor says what each guest was given; the kernel says what its process really
//! occupies; the trackers say what it touches, and the agents what the guest knows of itself. All goes into
//! one [`Snapshot`].
//! Cost: the fleet's, and two reads of /proc per guest (about 10 µs). A look for the sake of guests that cannot wait
//! asks only these: of the others what was read before is gone by, which is a tick old at most and says its age.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ballast_host::{HostReader, PROC, ProcessMemory, ProcessReader};
use ballast_model::{
    Bytes, Compliance, GuestId, GuestPlan, GuestSample, Measured, Plan, RunState, Rung, Snapshot,
    Timestamp,
};
use ballast_qmp::fleet::{Fleet, FleetConfig, GuestReading};
use ballast_reclaim::Coldness;
use tracing::info;

use super::clock;
use super::occupancy::{Count, Occupancy};
use super::once::Once;
use super::pager::RAM_MIN;
use crate::agents::{Agents, News};
use crate::config::{AgentSettings, TrackingSettings};
use crate::track::{Present, Service};

/// A balloon that has told nothing for so long may have lost its driver: statistics come once a second, up to two
/// late under pressure.
const BALLOON_TELLS_WITHIN: Duration = Duration::from_secs(4);

/// The age of what is not known to be all that a process occupies: too old for anything to be decided by it.
const UNCOUNTED: Duration = Duration::from_secs(3600);

/// A guest's process, and what was last read of it.
#[derive(Debug)]
struct Process {
    reader: ProcessReader,
    latest: Option<(ProcessMemory, Timestamp)>,
}

/// Looks at everything there is to be seen.
#[derive(Debug)]
pub(super) struct Observer {
    pub(super) fleet: Fleet,
    deadline: Duration,
    host: HostReader,
    processes: BTreeMap<GuestId, Process>,
    trackers: Option<Service>,
    occupancy: Occupancy,
    pub(super) agents: Option<Agents>,
    buffer: Vec<u8>,
    said: Once,
}

impl Observer {
    /// An observer of the guests of `fleet`, each given `deadline` to answer in every tick.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(super) fn new(
        fleet: FleetConfig,
        deadline: Duration,
        tracking: Option<&TrackingSettings>,
        agents: Option<&AgentSettings>,
    ) -> anyhow::Result<Self> {
        Ok(Observer {
            fleet: Fleet::new(fleet),
            deadline,
            host: HostReader::new(Path::new(PROC)),
            processes: BTreeMap::new(),
            trackers: tracking.map(|settings| Service::new(settings.into())),
            agents: agents.map(|settings| Agents::new(settings.clone())),
            occupancy: Occupancy::start()?,
            buffer: Vec::new(),
            said: Once::default(),
        })
    }

    /// What is to be seen now.
    pub(super) async fn snapshot(&mut self) -> Snapshot {
        // Whoever has called is among all that are asked now.
        let _ = self.agents.as_ref().map(Agents::callers);
        let readings = self.fleet.sample(clock::now(), clock::wall(), self.deadline).await;
        self.completed(readings, |_| true)
    }

    /// What is to be seen now of guests that have called for a tick and of `others`, and what was seen before of the rest.
    pub(super) async fn urgent_snapshot(&mut self, others: &[GuestId]) -> Snapshot {
        let mut asked = self.agents.as_ref().map(Agents::callers).unwrap_or_default();
        asked.extend(others.iter().cloned());
        let (now, wall) = (clock::now(), clock::wall());
        let readings = self.fleet.sample_only(now, wall, self.deadline, &asked).await;
        self.completed(readings, |id| asked.contains(id))
    }

    /// The snapshot of `readings`, with what others than the hypervisor know, read anew where `is_read`.
    fn completed(
        &mut self,
        readings: Vec<GuestReading>,
        is_read: impl Fn(&GuestId) -> bool,
    ) -> Snapshot {
        for notice in self.fleet.take_notices() {
            info!("{notice}");
        }
        self.processes
            .retain(|id, _| readings.binary_search_by(|reading| reading.sample.id.cmp(id)).is_ok());
        if let Some(trackers) = &mut self.trackers {
            trackers.keep(|id, pid| {
                let place = readings.binary_search_by(|reading| reading.sample.id.cmp(id));
                place.is_ok_and(|place| readings[place].pid == Some(pid))
            });
        }
        if let Some(agents) = &mut self.agents {
            agents
                .keep(|id| readings.binary_search_by(|reading| reading.sample.id.cmp(id)).is_ok());
        }
        let complete = |reading: GuestReading| {
            let is_read = is_read(&reading.sample.id);
            self.complete(reading, is_read)
        };
        let guests = readings.into_iter().map(complete).collect();
        let (host, errors) = self.host.sample();
        for error in errors {
            self.said.warn("host", &error.to_string());
        }
        Snapshot::new(clock::now(), host, guests)
    }

    /// The process of a guest and what it occupied when last looked at.
    pub(super) fn process_of(&self, id: &GuestId) -> Option<(u32, Bytes)> {
        let process = self.processes.get(id)?;
        let ((memory, at), pid) = (process.latest?, process.reader.pid());
        Some((pid, self.resident(id, pid, &memory, at).value))
    }

    /// Who has to give memory, or anybody where the host runs short, may soon be paged, or is.
    pub(super) fn expect_paging(&mut self, plan: &Plan) {
        let is_expected = |guest: &GuestPlan| {
            let owes = !matches!(guest.compliance, Compliance::Compliant | Compliance::Inhibited);
            let is_paged = plan.paging.iter().any(|paging| paging.guest == guest.id);
            owes || is_paged || plan.rung >= Rung::BalloonOnly
        };
        let mut counted = Vec::new();
        for guest in &plan.guests {
            let is_expected = is_expected(guest);
            if let Some(trackers) = &self.trackers {
                trackers.expect_paging(&guest.id, is_expected);
            }
            let process = self.processes.get(&guest.id).filter(|_| is_expected);
            counted.extend(process.map(|process| process.reader.pid()));
        }
        self.occupancy.count(counted);
    }

    /// What its tracker knows of a guest's pages.
    pub(super) fn coldness(&self, id: &GuestId) -> Option<Arc<Coldness>> {
        self.trackers.as_ref()?.coldness(id)
    }

    /// Adds what others than the hypervisor know.
    fn complete(&mut self, reading: GuestReading, is_read: bool) -> GuestSample {
        let pid = reading.pid;
        let mut sample = self.with_process(reading, is_read);
        if let Some((trackers, pid)) = self.trackers.as_mut().zip(pid) {
            let told = trackers.look(Present {
                id: &sample.id,
                pid,
                allocation: sample.allocation.map(|allocation| allocation.value),
                is_running: sample.run_state == Some(RunState::Running),
            });
            sample.tracker = told.report;
            sample.tracking = told.tracking;
            if let Some(trouble) = told.news {
                info!("{}: not tracked: {trouble}", sample.id);
            }
        }
        self.add_agent(&mut sample);
        sample
    }

    /// Adds what a program inside the guest says; where its balloon tells nothing, or nothing new, that as well.
    fn add_agent(&mut self, sample: &mut GuestSample) {
        let agents = self.agents.as_mut();
        let heard = agents.and_then(|agents| agents.look(&sample.id, sample.memory_max()));
        let Some(heard) = heard else { return };
        sample.agent = heard.report;
        let is_old = |stats: &Measured<_>| stats.age >= BALLOON_TELLS_WITHIN;
        sample.stats = match (sample.stats, heard.stats) {
            (Some(balloon), Some(agent)) if is_old(&balloon) && agent.age < balloon.age => {
                Some(agent)
            }
            (balloon, agent) => balloon.or(agent),
        };
        for news in heard.news {
            match news {
                News::Told(line) => info!("{}: {line}", sample.id),
                News::Doubted(line) => self.said.warn(&format!("{} (agent)", sample.id), &line),
            }
        }
    }

    /// Adds what the hypervisor's process occupies; unless it is to be read, what was read last if anything was.
    fn with_process(&mut self, reading: GuestReading, is_read: bool) -> GuestSample {
        let GuestReading { mut sample, pid } = reading;
        let Some(pid) = pid else { return sample };
        if self.processes.get(&sample.id).is_none_or(|process| process.reader.pid() != pid) {
            self.processes.remove(&sample.id);
            match ProcessReader::open(Path::new(PROC), pid) {
                Ok(Some(reader)) => {
                    self.processes.insert(sample.id.clone(), Process { reader, latest: None });
                }
                Ok(None) => return sample,
                Err(error) => {
                    self.said.warn(sample.id.as_str(), &error.to_string());
                    return sample;
                }
            }
        }
        let Some(process) = self.processes.get_mut(&sample.id) else { return sample };
        let now = clock::now();
        if is_read || process.latest.is_none() {
            match process.reader.read(&mut self.buffer) {
                Ok(Some(memory)) => process.latest = Some((memory, now)),
                Ok(None) => {
                    self.processes.remove(&sample.id);
                    return sample;
                }
                Err(error) => {
                    process.latest = None;
                    self.said.warn(sample.id.as_str(), &error.to_string());
                }
            }
        }
        let Some((memory, at)) = process.latest else { return sample };
        sample.resident = Some(self.resident(&sample.id, pid, &memory, at));
        if memory.locked.is_some_and(|locked| holds_guest_memory(locked, &sample)) {
            sample.capabilities.discard_inhibited = Some(true);
        }
        sample
    }

    /// What a guest's process occupies, by what it had in its page table at a moment.
    fn resident(
        &self,
        id: &GuestId,
        pid: u32,
        memory: &ProcessMemory,
        at: Timestamp,
    ) -> Measured<Bytes> {
        let now = clock::now();
        let mapped = Measured { value: memory.resident, age: now.saturating_since(at) };
        // At least so much, and nothing to hold it to.
        let uncounted = Measured { age: UNCOUNTED, ..mapped };
        let is_tracked = self.trackers.as_ref().is_some_and(|trackers| trackers.has_tracker(id));
        let mapped_shared = memory.resident_shared.unwrap_or_default();
        match self.occupancy.latest(pid) {
            None | Some(Some(Count { shared: Ok(None), .. })) => mapped,
            Some(Some(Count { shared: Ok(Some(shared)), at: counted_at })) => Measured {
                value: memory.resident.saturating_sub(mapped_shared) + shared,
                age: mapped.age.max(now.saturating_since(counted_at)),
            },
            // The kernel cannot count, or this process may not: only a tracker hides much.
            Some(Some(Count { shared: Err(_), .. })) if !is_tracked => mapped,
            Some(None) if !is_tracked && mapped_shared < RAM_MIN => mapped,
            Some(Some(_) | None) => uncounted,
        }
    }
}

/// Whether so much of a hypervisor's memory is locked that guest memory must be among it; QMP does
/// not tell of `-overcommit mem-lock=on` and of some passthrough devices.
fn holds_guest_memory(locked: Bytes, sample: &GuestSample) -> bool {
    sample.allocation.is_some_and(|holds| locked >= holds.value.fraction(1, 2))
}
