//! The engine's world on a real host.
//!
//! Idea: joins the observer, the backends, the agents, the pager, the journal and the operator's
//! programs. It decides nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ballast_actuation::fence::Fences;
use ballast_backend::{Backend, Backends};
use ballast_cloud_hypervisor::CLOUD_HYPERVISOR;
use ballast_config::{Config, RestSettings};
use ballast_containers::{Containers, ContainersConfig};
use ballast_control::incident::Incident;
use ballast_firecracker::FIRECRACKER;
use ballast_host::{KSM, PROC, read_merging};
use ballast_libvirt::{LibvirtConfig, LibvirtHost};
use ballast_model::{
    Action, AnswerFault, Bytes, GuestChange, GuestId, Outcome, Paging, Plan, PolicyAnswer, Snapshot,
};
use ballast_policy::Question;
use ballast_qmp::fleet::{Fleet, FleetConfig};
use ballast_rest::{HypervisorKind, RestConfig, RestGuests};
use ballast_store::{Event as Recorded, JournalStatus, Tick};
use ballast_xen::{XenConfig, XenHost};
use tokio::time::sleep;
use tracing::warn;

use crate::agents::{Agents, Answer};
use crate::clock;
use crate::engine::{SampleScope, World};
use crate::event_program::EventProgram;
use crate::inherited::Inherited;
use crate::merger::Merger;
use crate::observe::Observer;
use crate::pager::{Order, Pager, PagingOutcome};
use crate::policy_program::PolicyProgram;
use crate::proxmox_settings::ProxmoxSettings;
use crate::recorder::Recorder;

/// Longest wait for the kernel to reclaim what a container's new limit takes.
const ORDER_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest wait for the outcomes of orders. Each backend has a shorter timeout (2 s) and knows
/// better why an outcome is late; this one is for a fault of a backend.
const ACT_MAX: Duration = Duration::from_secs(3);

/// Shortest time between emergencies of a guest where agents are off.
const EMERGENCY_PERIOD: Duration = Duration::from_secs(1);

/// The host, its guests and the journal.
pub(crate) struct HostWorld {
    pub(crate) recorder: Recorder,
    observer: Observer,
    pager: Pager,
    /// `None`: no policy program is configured.
    program: Option<PolicyProgram>,
    /// `None`: the search for equal pages is not adjusted.
    merger: Option<Merger>,
    /// The program that is run for events; `None`: none is configured.
    event_program: Option<EventProgram>,
}

impl HostWorld {
    /// Opens the journal; samples nothing yet. Also returns what the last daemon left there.
    /// `guests_max`: most guests for which there are enough file descriptors.
    ///
    /// # Errors
    /// As [`Recorder::open`].
    pub(crate) fn new(
        config: &Config,
        guests_max: usize,
    ) -> anyhow::Result<(HostWorld, Inherited)> {
        let (recorder, inherited) = Recorder::open(config.journal.as_ref(), config.settings.tick)?;
        let fleet = Fleet::new(FleetConfig {
            folders: config.qmp_folders.clone(),
            command_timeout: config.qmp_timeout,
            seed: u64::from(std::process::id()),
            guests_max,
        });
        // A guest that also has its own QMP socket is asked there, because that tells more.
        let mut backends: Vec<Box<dyn Backend>> = vec![Box::new(fleet)];
        if let Some(settings) = &config.libvirt {
            backends.push(Box::new(LibvirtHost::new(LibvirtConfig {
                socket: settings.socket.clone(),
                command_timeout: settings.timeout,
                guests_max,
            })));
        }
        if let Some(settings) = &config.cloud_hypervisor {
            backends.push(by_rest(CLOUD_HYPERVISOR, settings, guests_max));
        }
        if let Some(settings) = &config.firecracker {
            backends.push(by_rest(FIRECRACKER, settings, guests_max));
        }
        if let Some(settings) = &config.containers {
            let config = ContainersConfig {
                cgroups: settings.cgroups.clone(),
                memory: settings.memory,
                probes: settings.probe,
                order_timeout: ORDER_TIMEOUT,
                guests_max,
            };
            backends.push(Box::new(Containers::new(config, Path::new(PROC))));
        }
        if let Some(settings) = &config.xen {
            let agents = config.agents.as_ref();
            backends.push(Box::new(XenHost::new(XenConfig {
                socket: settings.socket.clone(),
                xl: settings.xl.clone(),
                command_timeout: settings.timeout,
                dom0_floor: settings.dom0_floor,
                emergency_period: agents.map_or(EMERGENCY_PERIOD, |it| it.emergency_period),
                guests_max,
            })));
        }
        // Guests have half a tick to answer; the other half is for deciding and acting.
        let deadline = config.qmp_timeout.min(config.settings.tick / 2);
        let (tracking, agents) = (config.tracking.as_ref(), config.agents.as_ref());
        let mut observer = Observer::new(
            Backends::new(backends),
            deadline,
            tracking,
            agents,
            config.swap_bounds(),
        );
        let proxmox =
            |folder: &PathBuf| ProxmoxSettings::new(folder.clone(), config.qmp_folders.clone());
        observer.proxmox = config.proxmox_folder.as_ref().map(proxmox);
        let pager = Pager::new(config.paging);
        let program = config.external.clone().map(PolicyProgram::new);
        let merger = merger(config);
        let event_program = config.events.clone().map(EventProgram::new);
        Ok((HostWorld { recorder, observer, pager, program, merger, event_program }, inherited))
    }

    /// The connections to agents; `None`: they are off.
    pub(crate) fn agents(&self) -> Option<&Agents> {
        self.observer.agents.as_ref()
    }

    /// Waits until something happens to a guest that cannot wait for the next tick.
    pub(crate) async fn wait_for_event(&mut self) {
        self.observer.backends.wait_for_event().await;
    }

    /// Applies what a new configuration changes here.
    pub(crate) fn reload(&mut self, new: &Config) {
        if let Some(journal) = &new.journal {
            self.recorder.keep(journal);
        }
        self.pager.set(new.paging);
        self.observer.fencer.set(new.swap_bounds());
        if self.program.as_ref().map(PolicyProgram::settings) != new.external.as_ref() {
            self.program = new.external.clone().map(PolicyProgram::new);
        }
        if self.merger.is_some() != new.tunes_merging {
            self.merger = merger(new);
        }
    }
}

/// The guests of a hypervisor with a REST API.
fn by_rest(kind: HypervisorKind, settings: &RestSettings, guests_max: usize) -> Box<dyn Backend> {
    let RestSettings { sockets, timeout } = settings.clone();
    let config = RestConfig { sockets, timeout, guests_max };
    Box::new(RestGuests::new(kind, config, Path::new(PROC)))
}

/// Adjusts the search for equal pages, if configured. Warns if the kernel has none.
fn merger(config: &Config) -> Option<Merger> {
    if config.tunes_merging && matches!(read_merging(Path::new(KSM)), Ok(None)) {
        warn!("[mechanisms.ksm] is on, and this kernel has no merging of pages: nothing is tuned");
    }
    config.tunes_merging.then(Merger::new)
}

impl World for HostWorld {
    fn monotonic(&self) -> Duration {
        clock::monotonic()
    }

    fn wall(&self) -> SystemTime {
        clock::wall()
    }

    async fn sample(&mut self, scope: SampleScope, in_transfer: &[GuestId]) -> Snapshot {
        match scope {
            SampleScope::All => self.observer.snapshot().await,
            SampleScope::Urgent => self.observer.urgent_snapshot(in_transfer).await,
        }
    }

    fn has_program(&self) -> bool {
        self.program.is_some()
    }

    async fn ask(&mut self, question: &Question) -> PolicyAnswer {
        match &mut self.program {
            Some(program) => program.ask(question).await,
            None => PolicyAnswer::Fault(AnswerFault::NotAsked),
        }
    }

    async fn act(&mut self, actions: &[Action]) -> Vec<Outcome> {
        self.observer.backends.act_all(clock::now(), actions, sleep(ACT_MAX)).await
    }

    fn changed_settings(&mut self) -> Option<BTreeMap<GuestId, GuestChange>> {
        self.observer.changed_settings()
    }

    async fn persist(&mut self, guest: &GuestId, settings: &GuestChange) -> Result<(), String> {
        self.observer.backends.persist(guest, settings).await
    }

    fn fence(&mut self, fences: Fences) {
        self.observer.fence(fences);
    }

    fn merge(&mut self, snapshot: &Snapshot, is_held: bool) {
        if let Some(merger) = &mut self.merger {
            merger.adjust(snapshot, is_held);
        }
    }

    fn page(&mut self, plan: &Plan) -> Vec<PagingOutcome> {
        self.observer.backends.planned(plan);
        self.observer.expect_paging(plan, self.pager.is_on());
        self.observer.seek_owner(plan);
        if !self.pager.is_on() {
            return Vec::new();
        }
        let order = |paging: &Paging| {
            let (process, resident) = self.observer.process_of(&paging.guest)?;
            let coldness = self.observer.coldness(&paging.guest);
            Some(Order { paging: paging.clone(), process, resident, coldness })
        };
        self.pager.obey(plan.paging.iter().filter_map(order).collect());
        self.pager.take_outcomes()
    }

    fn must_wait(
        &mut self,
        guest: &GuestId,
        holds: Bytes,
        free: Option<Bytes>,
        target: Bytes,
    ) -> bool {
        let agents = self.observer.agents.as_mut();
        agents.is_some_and(|agents| agents.must_wait(guest, holds, free, target))
    }

    fn tell_balloon(&mut self, guest: &GuestId, holds: Bytes, target: Bytes) {
        if let Some(agents) = &mut self.observer.agents {
            agents.balloon(guest, holds, target);
        }
    }

    fn answer(&mut self, guest: &GuestId, number: u64, answer: Answer) {
        self.observer.backends.send_to_agent(guest, &answer.message(number));
        if let Some(agents) = &mut self.observer.agents {
            agents.answer(guest, number, answer);
        }
    }

    fn report_incidents(&mut self, incidents: &[Incident]) {
        if let Some(program) = &mut self.event_program {
            program.report_incidents(clock::wall(), incidents);
        }
    }

    fn record_tick(&mut self, tick: Tick<'_>) {
        self.recorder.tick(tick);
    }

    async fn wait_until_recorded(&mut self) {
        self.recorder.wait_until_recorded().await;
    }

    fn record_event(&mut self, event: Recorded) {
        self.recorder.event(event);
    }

    fn guests_refused(&self) -> usize {
        self.observer.backends.refused()
    }

    fn journal(&self) -> JournalStatus {
        self.recorder.status()
    }
}
