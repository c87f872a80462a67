//! The outside of the engine: guests, a host, clocks and a journal in memory, with faults.
//!
//! Idea: the physics in `host.rs` change the true state; a sample shows the engine what guests
//! claim and what the host sees. Faults strike between ticks and at the seams within a tick: a
//! daemon that dies at a seam does nothing that comes after it.
//! Cost: O(n) a tick. Limits: the journal in memory has only the last tick. The outcomes of paging
//! are not reported, because a daemon only logs them.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use ballast_actuation::fence::{FenceOrder, Fences};
use ballast_daemon::engine::{Answer, PagingOutcome, SampleScope, World};
use ballast_model::{
    Action, Bytes, GuestId, GuestPlan, GuestSample, HostSample, LeftGuest, LinkState, Outcome,
    OutcomeKind, Paging, Plan, Restart, Snapshot,
};
use ballast_store::{Event, Tick};

use crate::agent::StormAgent;
use crate::disk::{Disk, pause_of};
use crate::guest::{Driver, StormGuest};
use crate::host::HostMemory;
use crate::sabotage::Sabotage;
use crate::wire::{Moment, Wire};

/// How much a hypervisor's measured need may grow before it is measured again, MiB.
pub(crate) const NEED_GROWS: u64 = 16;

/// Room for the hypervisor in a process's cap, MiB.
pub(crate) const CAP_ROOM: u64 = 64;

/// One in this many guests has no agent.
const AGENTLESS: usize = 3;

/// What happens to an order between daemon and hypervisor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Delivery {
    #[default]
    Reliable,
    LosesOrder,
    LosesOutcome,
    Late,
    /// Each outcome arrives twice.
    Doubled,
    /// Each outcome arrives again with the next ones.
    Repeated,
}

/// The effect of a tick before which the daemon dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    Record,
    Fence,
    /// Before the order that comes after this many.
    Act(usize),
    Page,
    /// After all effects.
    End,
}

/// How much a guest may come to occupy at one time, MiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holding {
    pub(crate) granted: u64,
    pub(crate) takeable: u64,
}

/// Everything around the engine; sizes in MiB.
#[derive(Debug, Default)]
pub(crate) struct StormWorld {
    pub(crate) now: Duration,
    /// By how much the wall clock is off.
    pub(crate) wall_off: Duration,
    pub(crate) guests: Vec<StormGuest>,
    /// Each guest's QMP, if guests are heard over QMP.
    pub(crate) wires: Vec<Wire>,
    /// Each guest's agent, if guests are heard over QMP and it has one.
    pub(crate) agents: Vec<Option<StormAgent>>,
    pub(crate) host: HostMemory,
    pub(crate) hides_host: bool,
    pub(crate) delivery: Delivery,
    /// Where the daemon dies in the next tick.
    pub(crate) death: Option<Death>,
    /// Whether it is dead.
    is_dead: bool,
    /// Orders that arrive late.
    late: Vec<Action>,
    /// Outcomes that arrive once more.
    repeated: Vec<Outcome>,
    /// Fences in force.
    fences: Vec<FenceOrder>,
    /// Orders to page in force.
    paging: Vec<Paging>,
    /// The orders of the last tick, as the daemon gave them.
    pub(crate) ordered: Vec<Action>,
    /// For each guest, whether it owed memory before the tick.
    pub(crate) overdue: Vec<bool>,
    /// Memory that the previous plan kept free for guests that are to come.
    pub(crate) promised: u64,
    /// How much each guest might come to occupy, as of just before the last decision.
    pub(crate) before: Vec<Holding>,
    /// What the journal has for the next daemon.
    pub(crate) recorded: Restart,
    /// The journal's disk, if the journal is not in memory.
    pub(crate) disk: Option<Disk>,
    pub(crate) disk_gone_until: Duration,
    sabotage: Option<Sabotage>,
    /// Under [`Sabotage::Intents`]: what is recorded after the tick.
    unrecorded: Option<Restart>,
    /// Under [`Sabotage::Grants`]: the targets that the policy wants in this tick.
    wanted: Vec<(GuestId, Bytes)>,
    /// The processes that this daemon has heard.
    heard: BTreeSet<(GuestId, u64)>,
}

impl StormWorld {
    pub(crate) fn new(
        guests: Vec<StormGuest>,
        host: HostMemory,
        sabotage: Option<Sabotage>,
    ) -> StormWorld {
        let now = Duration::from_secs(1000);
        StormWorld { now, guests, host, sabotage, ..StormWorld::default() }
    }

    /// Lets time pass.
    pub(crate) fn step(&mut self, passed: Duration) {
        self.now += passed;
        if let Some(disk) = &mut self.disk {
            disk.files.set_gone(self.now < self.disk_gone_until);
            disk.files.step(self.now);
        }
        for action in std::mem::take(&mut self.late) {
            self.carry_out(&action);
        }
        let (now, moment) = (self.now, self.moment());
        let wires = self.wires.iter_mut().zip(&mut self.guests);
        for (wire, guest) in wires.filter(|(_, guest)| !guest.is_gone()) {
            wire.exchange(guest, moment, false);
        }
        self.host.step(&mut self.guests, &self.paging, &self.fences, now, passed);
    }

    /// The daemon dies: nothing of what it was about to do happens.
    pub(crate) fn daemon_died(&mut self) {
        (self.death, self.is_dead) = (None, false);
        self.paging.clear();
        self.repeated.clear();
        self.heard.clear();
        self.unrecorded = None;
        for (wire, guest) in self.wires.iter_mut().zip(&self.guests) {
            wire.begin_anew(guest, self.now);
        }
        for agent in self.agents.iter_mut().flatten() {
            agent.daemon_died(self.now);
        }
    }

    /// From now on guests are heard over QMP, and their agents are heard.
    pub(crate) fn wire(&mut self) {
        let wire = |guest: &StormGuest| Wire::new(guest, self.now, self.sabotage);
        self.wires = self.guests.iter().map(wire).collect();
        let forgets = self.sabotage == Some(Sabotage::Rations);
        let agent = |guest: &StormGuest| StormAgent::new(guest, self.now, forgets);
        let has_agent = |place: usize| place % AGENTLESS != 1;
        let guests = self.guests.iter().enumerate();
        self.agents = guests.map(|(place, guest)| has_agent(place).then(|| agent(guest))).collect();
    }

    fn moment(&self) -> Moment {
        let since = self.wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Moment { now: self.now, wall: since.as_secs() }
    }

    /// How much a guest may come to occupy at any time, by the true state: what it holds, or was
    /// ordered or promised to hold. For memory that the host can take back (because it pages the
    /// guest out, holds its process to a cap, or the guest is an offender that took it without a
    /// grant) only what is occupied now counts. A guest that claims to hold more than it does
    /// counts with its claim.
    pub(crate) fn takeable(&self, guest: &StormGuest, is_overdue: bool) -> u64 {
        if guest.is_gone() {
            return 0;
        }
        // Of a guest that does not answer, the daemon cannot know that it rebooted and its balloon
        // is empty.
        let is_unheard = self.now < guest.stalled_until || guest.is_unheard;
        let is_false =
            matches!(guest.driver, Driver::Hides | Driver::Takes) || guest.false_claim.is_some();
        let granted = guest.granted.min(guest.boot);
        let takeable = if is_unheard && guest.heard > 0 {
            // Its silence is not noticed yet: memory that it gave since then still counts as its
            // own.
            granted.max(guest.heard)
        } else if is_overdue {
            // The room in its cap counts as far as the guest holds it; no other guest gets that.
            granted.max(guest.holds.min(self.cap(guest).unwrap_or(0)))
        } else if is_false || is_unheard {
            granted
        } else if guest.is_forgotten {
            guest.holds.max(granted)
        } else if guest.paged_out > 0 && self.cap(guest).is_some() {
            granted
        } else {
            // The daemon does not know whether a lost order was carried out.
            let ordered = self.left(guest).and_then(|left| left.target).unwrap_or_default();
            let target = guest.target.max(ordered.get() >> 20);
            target.min(guest.boot).max(guest.holds).max(granted)
        };
        let claims = match guest.false_claim {
            _ if is_unheard => 0,
            Some((_, claim)) => claim.min(guest.boot),
            None if guest.claims_too_much => guest.boot,
            None => 0,
        };
        let cap = self.cap(guest).unwrap_or(u64::MAX);
        // For a guest that does not report what it holds, the host regards this much of what it
        // sees as a need of its hypervisor.
        let unseen = if is_unheard { NEED_GROWS } else { 0 };
        takeable.max(claims).min(cap).max(guest.visible(self.now).saturating_sub(unseen))
    }

    /// The daemon's record of a guest; `None`: there is none, or it is of another process of that
    /// name.
    pub(crate) fn left(&self, guest: &StormGuest) -> Option<&LeftGuest> {
        let mut left = self.recorded.guests.iter();
        left.find(|left| left.handover.guest == guest.id && left.process == guest.process)
    }

    /// The cap to which the host holds a guest's process, MiB.
    fn cap(&self, guest: &StormGuest) -> Option<u64> {
        let left = self.left(guest)?;
        Some((left.handover.resident_cap?.get() >> 20).max(guest.granted + CAP_ROOM))
    }

    /// Whether a guest was heard since this daemon was started.
    fn was_heard(&mut self, sample: &GuestSample) -> bool {
        let start = sample.process.map_or(0, |process| process.start_ticks);
        let key = (sample.id.clone(), start);
        if sample.link == LinkState::Up {
            self.heard.insert(key.clone());
        }
        self.heard.contains(&key)
    }

    /// The actions that are carried out instead of `actions`.
    fn tampered(&self, actions: &[Action]) -> Vec<Action> {
        let mut actions = actions.to_vec();
        if self.sabotage == Some(Sabotage::Promises) {
            self.grant_promised(&mut actions);
        }
        for action in &mut actions {
            let wanted = self.wanted.iter().find(|(id, _)| *id == action.guest);
            match self.sabotage {
                Some(Sabotage::Grants) => {
                    action.target = wanted.map_or(action.target, |(_, it)| action.target.max(*it));
                }
                Some(Sabotage::Checker) => action.target = action.target.fraction(1, 2),
                _ => {}
            }
        }
        actions
    }

    /// Adds what is kept free for guests that are to come to the order of one guest that grows.
    fn grant_promised(&self, actions: &mut [Action]) {
        for action in actions {
            let guest = self.guests.iter().find(|guest| guest.id == action.guest);
            let target = action.target.get() >> 20;
            if let Some(guest) = guest.filter(|guest| target > guest.holds) {
                action.target = Bytes::mib((target + self.promised).min(guest.boot));
                return;
            }
        }
    }

    /// The height of the fence around a guest's process, if there is one.
    pub(crate) fn fence(&self, guest: &StormGuest) -> Option<u64> {
        let is_its = |it: &&FenceOrder| it.guest == guest.id && it.process == guest.process;
        Some(self.fences.iter().find(is_its)?.height.get() >> 20)
    }

    fn carry_out(&mut self, action: &Action) {
        if let Some(guest) = self.guests.iter_mut().find(|guest| guest.id == action.guest) {
            guest.order(action.target.get() >> 20);
        }
    }

    /// The samples that hypervisors report of their guests.
    fn asked(&mut self) -> Vec<GuestSample> {
        let moment = self.moment();
        let mut samples = Vec::new();
        let guests = self.guests.iter_mut().enumerate();
        for (place, guest) in guests.filter(|(_, guest)| !guest.is_gone()) {
            guest.give_stats(moment.now, moment.wall);
            let mut sample = match self.wires.get_mut(place) {
                None => guest.sample(moment.now),
                Some(wire) => wire.sample(guest, moment),
            };
            if let Some(Some(agent)) = self.agents.get_mut(place) {
                agent.exchange(guest, moment.now);
                agent.add_to(&mut sample, moment.now);
            }
            samples.push(guest.seen_by_host(sample, moment.now));
        }
        samples
    }

    /// Sends one order over QMP; `None`: its outcome is lost.
    fn send(&mut self, place: usize, action: &Action) -> Option<Outcome> {
        let moment = self.moment();
        let (wire, guest) = (&mut self.wires[place], &mut self.guests[place]);
        let is_late = self.delivery == Delivery::Late;
        let kind = match self.delivery {
            Delivery::LosesOrder => return None,
            _ => wire.act(action, guest, moment, is_late),
        };
        match self.sabotage {
            Some(Sabotage::Outcomes) => Some(outcome(action, OutcomeKind::Accepted)),
            _ if self.delivery == Delivery::LosesOutcome => None,
            _ => Some(outcome(action, kind)),
        }
    }
}

fn outcome(action: &Action, kind: OutcomeKind) -> Outcome {
    Outcome {
        guest: action.guest.clone(),
        generation: action.generation,
        target: action.target,
        kind,
    }
}

impl World for StormWorld {
    fn monotonic(&self) -> Duration {
        self.now
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.now + self.wall_off
    }

    async fn sample(&mut self, _scope: SampleScope, _in_transfer: &[GuestId]) -> Snapshot {
        let host = match self.hides_host {
            true => HostSample::default(),
            false => self.host.sample(&self.guests),
        };
        let mut samples = self.asked();
        let holding = |(guest, overdue): (&StormGuest, &bool)| Holding {
            granted: guest.granted,
            takeable: self.takeable(guest, *overdue),
        };
        self.before = self.guests.iter().zip(&self.overdue).map(holding).collect();
        if self.sabotage == Some(Sabotage::Newcomers) {
            samples.retain(|sample| self.was_heard(sample));
        }
        let snapshot = Snapshot::new(self.now(), host, samples);
        match self.sabotage {
            Some(sabotage) => sabotage.shown(snapshot),
            None => snapshot,
        }
    }

    async fn act(&mut self, actions: &[Action]) -> Vec<Outcome> {
        self.ordered.clear();
        if self.is_dead {
            return Vec::new();
        }
        let mut actions = self.tampered(actions);
        self.ordered.clone_from(&actions);
        if let Some(Death::Act(after)) = self.death {
            actions.truncate(after);
            self.is_dead = true;
        }
        let mut outcomes = std::mem::take(&mut self.repeated);
        for action in &actions {
            let is_stalled = |guest: &StormGuest| self.now < guest.stalled_until;
            let place = self.guests.iter().position(|guest| guest.id == action.guest);
            if let Some(place) = place.filter(|place| *place < self.wires.len()) {
                outcomes.extend(self.send(place, action));
                continue;
            }
            let guest = place.map(|place| &self.guests[place]);
            match self.delivery {
                _ if self.sabotage == Some(Sabotage::Outcomes) => {
                    if self.delivery == Delivery::Reliable && !guest.is_none_or(is_stalled) {
                        self.carry_out(action);
                    }
                    outcomes.push(outcome(action, OutcomeKind::Accepted));
                }
                Delivery::LosesOrder => {}
                _ if guest.is_none_or(is_stalled) => {
                    let why = "no answer in time".to_owned();
                    outcomes.push(outcome(action, OutcomeKind::Failed(why)));
                }
                Delivery::Reliable | Delivery::Doubled | Delivery::Repeated => {
                    self.carry_out(action);
                    outcomes.push(outcome(action, OutcomeKind::Accepted));
                }
                Delivery::LosesOutcome => self.carry_out(action),
                Delivery::Late => {
                    self.late.push(action.clone());
                    let why = "no answer in time".to_owned();
                    outcomes.push(outcome(action, OutcomeKind::Failed(why)));
                }
            }
        }
        match self.delivery {
            Delivery::Doubled => outcomes.extend_from_within(..),
            Delivery::Repeated => self.repeated.clone_from(&outcomes),
            _ => {}
        }
        outcomes
    }

    fn fence(&mut self, fences: Fences) {
        self.is_dead |= self.death == Some(Death::Fence);
        if let (Fences::Set(orders), false) = (fences, self.is_dead) {
            self.fences = orders;
        }
    }

    fn page(&mut self, plan: &Plan) -> Vec<PagingOutcome> {
        self.is_dead |= self.death == Some(Death::Page);
        if self.sabotage != Some(Sabotage::Caps) && !self.is_dead {
            self.paging = plan.paging.clone();
        }
        Vec::new()
    }

    fn answer(&mut self, guest: &GuestId, number: u64, answer: Answer) {
        let place = self.guests.iter().position(|it| it.id == *guest && !self.is_dead);
        let agent = place.and_then(|place| self.agents.get_mut(place)?.as_mut());
        if let Some(agent) = agent {
            agent.answer(number, answer, self.now);
        }
    }

    fn record_tick(&mut self, tick: Tick<'_>) {
        self.is_dead |= self.death == Some(Death::Record);
        if self.is_dead {
            return;
        }
        let left = Restart::of(tick.snapshot, tick.plan, tick.handovers, tick.paused);
        if let Some(disk) = &mut self.disk {
            disk.record_tick(tick, left.clone());
        }
        match self.sabotage {
            Some(Sabotage::Intents) => {
                if let Some(before) = self.unrecorded.replace(left) {
                    self.recorded = before;
                }
            }
            _ => self.recorded = left,
        }
        if self.sabotage == Some(Sabotage::Grants) {
            let wants =
                |guest: &GuestPlan| Some((guest.id.clone(), guest.desired.as_ref()?.target));
            self.wanted = tick.plan.guests.iter().filter_map(wants).collect();
        }
    }

    fn record_event(&mut self, event: Event) {
        if let Some(paused) = pause_of(&event) {
            self.recorded.paused = paused;
        }
        let (wall, now) = (self.wall(), self.now());
        if let Some(disk) = &mut self.disk {
            disk.record_event(wall, now, event);
        }
    }
}
