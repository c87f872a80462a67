//! Hosts, hypervisors, a store and a network, small enough to try every order of events.
//!
//! Idea: the roles are the real ones. Everything around them has a few states, and each thing that
//! can happen is an [`Event`]: a role looks; what it decided is done later; what it wrote arrives
//! later, or never, or after the role died. Time is how much of each deadline is left.
//! A hypervisor copies as QEMU 7.2 does with the capability `return-path`: it stops the guest, the
//! other side loads the rest, and only then is the copy complete; if that fails, the guest runs on.
//! A guest holds more than is reserved for it until it has shrunk, and may grow again.
//!
//! Limits: the store is linearizable and loses nothing that it has acknowledged. Notes are never
//! lost. Where the program that copies ends the source itself, no guest grows while it is copied.

use std::net::{Ipv4Addr, SocketAddr};

use ballast_fleet::HostId;
use ballast_model::{Bytes, GuestId, Timestamp};

use crate::leader::MoveIntent;
use crate::*;

/// What a guest holds that has not shrunk; what a destination reserves; what a guest shrinks to.
const LARGE: Bytes = Bytes::gib(3);
const RESERVED: Bytes = Bytes::gib(1);
const SMALL: Bytes = Bytes::mib(512);
const FIRST_PORT: u16 = 1000;
/// Deadlines in ticks of the clock.
const DUE: u8 = 2;
const SHRINK: u8 = 1;

/// The true state of a guest's hypervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ProcessState {
    Absent,
    /// There is none, but a note says that the guest may arrive by a program that ends the source
    /// itself.
    Open,
    /// There is none: such a program copied the guest and ended it.
    Ended,
    Waiting,
    Loaded,
    /// It has loaded the guest and noted that it is about to start it.
    Noted,
    Runs,
    /// The guest runs, and is being copied.
    Copies,
    /// The guest stands still while the last part is copied.
    Switches,
    /// The guest runs, after a copy of it failed.
    Failed,
    Left,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ShrinkState {
    No,
    Asked,
    /// It holds what is reserved for it, and more than it was asked to.
    Half,
    Done,
}

/// What a role decided and has not done yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum PendingAction {
    Reserve,
    Release,
    Listen,
    End,
    TakeOver,
    Start,
    Shrink,
    EndShrink,
    Copy(u8),
    CancelCopy,
    Resume,
    Quit,
}

/// One guest on one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct GuestOnHost {
    pub(super) real: ProcessState,
    /// Whether what it has of the guest is the guest's latest state.
    pub(super) is_current: bool,
    /// The host that its copy is connected to.
    peer: Option<u8>,
    /// Whether its copy makes no progress.
    hangs: bool,
    pub(super) kept: Promise,
    pub(super) small: ShrinkState,
    /// Whether the guest that was loaded here held more than was reserved for it.
    is_excess: bool,
    is_taken_over: bool,
    /// Whether it is open to a guest although its host's death lost the reservation.
    is_owed: bool,
    pub(super) todo: Option<PendingAction>,
}

const NOBODY: GuestOnHost = GuestOnHost {
    real: ProcessState::Absent,
    is_current: false,
    peer: None,
    hangs: false,
    kept: Promise::Nothing,
    small: ShrinkState::No,
    is_excess: false,
    is_taken_over: false,
    is_owed: false,
    todo: None,
};

impl GuestOnHost {
    pub(super) fn runs(&self) -> bool {
        matches!(self.real, ProcessState::Runs | ProcessState::Copies | ProcessState::Failed)
    }

    fn has_process(&self) -> bool {
        !matches!(self.real, ProcessState::Absent | ProcessState::Open | ProcessState::Ended)
    }

    /// Whether it has a hypervisor that memory has to be promised to.
    fn is_due(&self) -> bool {
        self.has_process() && !self.is_owed
    }

    fn is_promised(&self) -> bool {
        matches!(self.kept, Promise::Entitled | Promise::Reserved { .. })
    }

    fn holds(&self) -> Bytes {
        match self.small {
            ShrinkState::No | ShrinkState::Asked => LARGE,
            ShrinkState::Half => RESERVED,
            ShrinkState::Done => SMALL,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum PhaseKind {
    Ordered,
    Ready,
    Copying,
    Copied,
    Starting,
    Moved,
    Abandoned,
    Lost,
}

/// A record in the store. Two versions of a record differ in more than their deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct StoredRecord {
    serial: u8,
    from: u8,
    to: u8,
    term: u8,
    pub(super) step: PhaseKind,
    is_closed: bool,
    due: u8,
    shrink: u8,
}

type Version = (u8, PhaseKind, bool);

impl StoredRecord {
    fn version(&self) -> Version {
        (self.serial, self.step, self.is_closed)
    }

    /// Where the guest lives by this record; `None` if either host may have the last copy.
    fn owner(&self) -> Option<u8> {
        match self.step {
            PhaseKind::Ordered | PhaseKind::Ready | PhaseKind::Copying | PhaseKind::Abandoned => {
                Some(self.from)
            }
            PhaseKind::Copied => None,
            PhaseKind::Starting | PhaseKind::Moved | PhaseKind::Lost => Some(self.to),
        }
    }
}

/// A write on its way to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct PendingWrite {
    guest: u8,
    expects: Option<Version>,
    puts: Option<StoredRecord>,
}

/// What a leader wants, as it stands in an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IntentKind {
    Settle,
    Cancel,
    Move { from: u8, to: u8 },
}

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Look { host: u8, guest: u8 },
    LookUnknown { host: u8, guest: u8 },
    LookWithoutStore { host: u8, guest: u8 },
    Act { host: u8, guest: u8 },
    RefuseRoom { host: u8, guest: u8 },
    Leader { term: u8, guest: u8, want: IntentKind },
    Deliver(u8),
    Drop(u8),
    Switch { host: u8, guest: u8 },
    Load { host: u8, guest: u8 },
    Complete { host: u8, guest: u8 },
    // The copy is complete, but the word that the source may be ended is lost.
    ConfirmLost { host: u8, guest: u8 },
    CopyFails { host: u8, guest: u8 },
    CopyHangs { host: u8, guest: u8 },
    // The guest gives some memory.
    Shrunk { host: u8, guest: u8 },
    // The guest takes more than is reserved for it, whatever its ceiling.
    Grows { host: u8, guest: u8 },
    RoomFree { host: u8, guest: u8 },
    Tick,
    RoleDies { host: u8 },
    // Another machine, which has nothing of the guest, takes over the host's name and looks.
    StrangerLooks { host: u8, guest: u8 },
    // A role dies halfway through starting a guest.
    StartDies { host: u8, guest: u8 },
    ProcessDies { host: u8, guest: u8 },
    HostDies { host: u8 },
    LeaderChanges,
    // An operator asks to remove the record of a move whose source has nothing of the guest.
    Forget { guest: u8 },
}

/// One safety taken away: what a role sees is changed before it decides.
#[derive(Clone, Copy)]
pub(super) struct Sabotage {
    pub(super) host: fn(&mut Option<MoveRecord>, &mut HostView),
    pub(super) leader: fn(&mut Option<MoveRecord>, &mut Timestamp),
    /// The same for another machine of a host's name.
    pub(super) stranger: fn(&mut HostView),
    /// The same for an operator who asks to remove a record.
    pub(super) operator: fn(&mut MoveRecord),
    /// Whether writes succeed whatever is in the store.
    pub(super) blind: bool,
}

pub(super) const HONEST: Sabotage = Sabotage {
    host: |_, _| {},
    leader: |_, _| {},
    stranger: |_| {},
    operator: |_| {},
    blind: false,
};

/// The whole state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    hosts: u8,
    guests: u8,
    /// How many guests each host can promise memory to.
    capacity: u8,
    /// Most writes on their way at once.
    flights_max: usize,
    /// Whether the program that copies ends the source itself.
    pub(super) ends_source: bool,
    pub(super) sides: Vec<GuestOnHost>,
    pub(super) store: Vec<Option<StoredRecord>>,
    pub(super) flights: Vec<PendingWrite>,
    /// For each guest, whether it died together with its host or hypervisor.
    died: Vec<bool>,
    term: u8,
    serial: u8,
    pub(super) orders_left: u8,
    pub(super) faults_left: u8,
}

fn host_id(host: u8) -> HostId {
    format!("h{host}").parse().unwrap()
}

fn host_of(id: &HostId) -> u8 {
    id.as_str()[1..].parse().unwrap()
}

fn guest_id(guest: u8) -> GuestId {
    format!("g{guest}").parse().unwrap()
}

fn address(host: u8) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, FIRST_PORT + u16::from(host)).into()
}

fn carried() -> CarriedState {
    let (credits, thrashed) = (Some(7), None);
    CarriedState { credits, thrashed, ..CarriedState::default() }
}

impl World {
    /// A world with its guests spread over the hosts in turn.
    pub(super) fn new(hosts: u8, guests: u8, capacity: u8) -> World {
        let mut sides = vec![NOBODY; usize::from(hosts * guests)];
        for guest in 0..guests {
            let side = &mut sides[usize::from(guest % hosts * guests + guest)];
            *side = GuestOnHost {
                real: ProcessState::Runs,
                is_current: true,
                kept: Promise::Entitled,
                ..NOBODY
            };
        }
        World {
            hosts,
            guests,
            capacity,
            flights_max: 2 * usize::from(guests),
            ends_source: false,
            sides,
            store: vec![None; usize::from(guests)],
            flights: Vec::new(),
            died: vec![false; usize::from(guests)],
            term: 1,
            serial: 0,
            orders_left: 0,
            faults_left: 0,
        }
    }

    fn at(&self, host: u8, guest: u8) -> usize {
        usize::from(host * self.guests + guest)
    }

    pub(super) fn side(&self, host: u8, guest: u8) -> &GuestOnHost {
        &self.sides[self.at(host, guest)]
    }

    fn side_mut(&mut self, host: u8, guest: u8) -> &mut GuestOnHost {
        let at = self.at(host, guest);
        &mut self.sides[at]
    }

    /// Whether the event needs neither a fault nor a new order.
    pub(super) fn is_calm(&self, event: Event) -> bool {
        match event {
            Event::Look { .. }
            | Event::Act { .. }
            | Event::Deliver(_)
            | Event::Switch { .. }
            | Event::Load { .. }
            | Event::Complete { .. }
            | Event::Shrunk { .. }
            | Event::RoomFree { .. }
            | Event::Tick => true,
            Event::Leader { term, want, .. } => term == self.term && want == IntentKind::Settle,
            Event::CopyFails { host, guest } => self.side(host, guest).peer.is_none(),
            _ => false,
        }
    }

    /// All that can happen now.
    pub(super) fn events(&self) -> Vec<Event> {
        let mut events = vec![Event::Tick];
        let has_faults = self.faults_left > 0;
        for at in 0..self.flights.len() {
            events.extend([Event::Deliver(at as u8), Event::Drop(at as u8)]);
        }
        if has_faults && self.term == 1 {
            events.push(Event::LeaderChanges);
        }
        for host in 0..self.hosts {
            let sides = (0..self.guests).map(|guest| self.side(host, guest));
            if sides.clone().any(|side| side.todo.is_some() || side.real == ProcessState::Failed) {
                events.push(Event::RoleDies { host });
            }
            if has_faults && sides.clone().any(|side| *side != NOBODY) {
                events.push(Event::HostDies { host });
            }
            for guest in 0..self.guests {
                self.side_events(host, guest, &mut events);
            }
        }
        for guest in 0..self.guests {
            let stored = self.store[usize::from(guest)];
            if stored.is_some_and(|it| !self.side(it.from, guest).has_process()) {
                events.push(Event::Forget { guest });
            }
            for term in 1..=self.term {
                events.push(Event::Leader { term, guest, want: IntentKind::Settle });
                if has_faults && self.store[usize::from(guest)].is_some() {
                    events.push(Event::Leader { term, guest, want: IntentKind::Cancel });
                }
                if self.orders_left == 0 {
                    continue;
                }
                for from in 0..self.hosts {
                    for to in (0..self.hosts).filter(|to| *to != from) {
                        let want = IntentKind::Move { from, to };
                        events.push(Event::Leader { term, guest, want });
                    }
                }
            }
        }
        events
    }

    fn side_events(&self, host: u8, guest: u8, events: &mut Vec<Event>) {
        let side = self.side(host, guest);
        if side.todo.is_some() {
            events.push(Event::Act { host, guest });
        } else {
            events.push(Event::Look { host, guest });
            events.push(Event::LookUnknown { host, guest });
            events.push(Event::LookWithoutStore { host, guest });
        }
        if side.todo == Some(PendingAction::Start) && side.real == ProcessState::Loaded {
            events.push(Event::StartDies { host, guest });
        }
        let has_faults = self.faults_left > 0;
        if has_faults && side.todo == Some(PendingAction::Reserve) {
            events.push(Event::RefuseRoom { host, guest });
        }
        if has_faults && side.has_process() {
            events.push(Event::ProcessDies { host, guest });
        }
        let stored = self.store[usize::from(guest)];
        if has_faults && stored.is_some_and(|it| it.from == host || it.to == host) {
            events.push(Event::StrangerLooks { host, guest });
        }
        let peer = side.peer.map(|peer| self.side(peer, guest).real);
        match side.real {
            ProcessState::Copies if peer == Some(ProcessState::Waiting) && !side.hangs => {
                events.push(Event::Switch { host, guest });
            }
            ProcessState::Switches if peer == Some(ProcessState::Waiting) => {
                events.push(Event::Load { host, guest });
            }
            ProcessState::Switches if peer == Some(ProcessState::Loaded) => {
                events.push(Event::Complete { host, guest });
                if self.ends_source && has_faults {
                    events.push(Event::ConfirmLost { host, guest });
                }
            }
            _ => {}
        }
        let copies = matches!(side.real, ProcessState::Copies | ProcessState::Switches);
        if copies && (peer.is_none() || has_faults) {
            events.push(Event::CopyFails { host, guest });
        }
        if side.real == ProcessState::Copies && !side.hangs && has_faults {
            events.push(Event::CopyHangs { host, guest });
        }
        if side.runs() && matches!(side.small, ShrinkState::Asked | ShrinkState::Half) {
            events.push(Event::Shrunk { host, guest });
        }
        let is_copied = stored.is_some_and(|it| it.step == PhaseKind::Copying);
        let may_grow = has_faults && side.runs() && !(self.ends_source && is_copied);
        if may_grow && matches!(side.small, ShrinkState::Half | ShrinkState::Done) {
            events.push(Event::Grows { host, guest });
        }
        if side.kept == (Promise::Reserved { size: RESERVED, is_ready: false }) {
            events.push(Event::RoomFree { host, guest });
        }
    }

    /// The world after an event. `Err`: a promise is broken.
    pub(super) fn after(&self, event: Event, sabotage: &Sabotage) -> Result<World, String> {
        let mut world = self.clone();
        world.happens(event, sabotage)?;
        world.judge()?;
        Ok(world)
    }

    fn happens(&mut self, event: Event, sabotage: &Sabotage) -> Result<(), String> {
        match event {
            Event::Look { host, guest } => self.look(host, guest, false, sabotage)?,
            Event::LookUnknown { host, guest } => self.look(host, guest, true, sabotage)?,
            Event::LookWithoutStore { host, guest } => self.look_without_store(host, guest),
            Event::Act { host, guest } => self.act(host, guest)?,
            Event::RefuseRoom { host, guest } => {
                self.faults_left -= 1;
                let side = self.side_mut(host, guest);
                (side.todo, side.kept) = (None, Promise::Refused);
            }
            Event::Leader { term, guest, want } => self.lead(term, guest, want, sabotage),
            Event::Deliver(at) => self.deliver(usize::from(at), sabotage.blind),
            Event::Drop(at) => {
                self.flights.remove(usize::from(at));
            }
            Event::Switch { host, guest } => {
                self.side_mut(host, guest).real = ProcessState::Switches
            }
            Event::Load { host, guest } => {
                let from = self.side(host, guest);
                let (is_current, is_excess) = (from.is_current, from.holds() > RESERVED);
                let peer = from.peer.unwrap();
                let to = self.side_mut(peer, guest);
                (to.real, to.is_current, to.is_excess) =
                    (ProcessState::Loaded, is_current, is_excess);
            }
            Event::Complete { host, guest } if self.ends_source => {
                self.side_mut(host, guest).peer = None;
                self.process_ends(host, guest);
                self.side_mut(host, guest).real = ProcessState::Ended;
            }
            Event::Complete { host, guest } => {
                let side = self.side_mut(host, guest);
                (side.real, side.peer) = (ProcessState::Left, None);
            }
            Event::ConfirmLost { host, guest } => {
                self.faults_left -= 1;
                let side = self.side_mut(host, guest);
                (side.real, side.peer) = (ProcessState::Left, None);
            }
            Event::CopyFails { host, guest } => {
                if self.side(host, guest).peer.is_some() {
                    self.faults_left -= 1;
                }
                self.copy_ends(host, guest)?;
            }
            Event::CopyHangs { host, guest } => {
                self.faults_left -= 1;
                self.side_mut(host, guest).hangs = true;
            }
            Event::Shrunk { host, guest } => {
                let side = self.side_mut(host, guest);
                side.small = if side.small == ShrinkState::Asked {
                    ShrinkState::Half
                } else {
                    ShrinkState::Done
                };
            }
            Event::Grows { host, guest } => {
                self.faults_left -= 1;
                self.side_mut(host, guest).small = ShrinkState::Asked;
            }
            Event::RoomFree { host, guest } => {
                self.side_mut(host, guest).kept =
                    Promise::Reserved { size: RESERVED, is_ready: true };
            }
            Event::Tick => {
                for stored in self.store.iter_mut().flatten() {
                    stored.due = stored.due.saturating_sub(1);
                    stored.shrink = stored.shrink.saturating_sub(1);
                }
            }
            Event::RoleDies { host } => {
                let ends_source = self.ends_source;
                for guest in 0..self.guests {
                    let side = self.side_mut(host, guest);
                    side.todo = None;
                    // Only the role knew that the failed copy was its own.
                    if side.real == ProcessState::Failed && !ends_source {
                        side.real = ProcessState::Runs;
                    }
                }
            }
            Event::StrangerLooks { host, guest } => {
                self.faults_left -= 1;
                self.look_as_stranger(host, guest, sabotage);
            }
            Event::StartDies { host, guest } => {
                let side = self.side_mut(host, guest);
                (side.todo, side.real) = (None, ProcessState::Noted);
            }
            Event::ProcessDies { host, guest } => {
                self.faults_left -= 1;
                self.excuse(host, guest);
                self.process_ends(host, guest);
            }
            Event::HostDies { host } => {
                self.faults_left -= 1;
                for guest in 0..self.guests {
                    self.excuse(host, guest);
                    self.process_ends(host, guest);
                    let side = self.side_mut(host, guest);
                    let real = side.real;
                    // A host's death loses neither notes nor that a guest was undefined.
                    *side = GuestOnHost { real, is_owed: real == ProcessState::Open, ..NOBODY };
                }
            }
            Event::LeaderChanges => {
                self.faults_left -= 1;
                self.term += 1;
            }
            Event::Forget { guest } => self.forget(guest, sabotage),
        }
        Ok(())
    }

    fn record(&self, guest: u8) -> Option<MoveRecord> {
        let stored = self.store[usize::from(guest)]?;
        let carried = Box::new(carried());
        let address = address(stored.to);
        Some(MoveRecord {
            guest: guest_id(guest),
            from: host_id(stored.from),
            to: host_id(stored.to),
            ordered_at: Timestamp::ZERO,
            term: Term(stored.term.into()),
            reserve: RESERVED,
            shrink_to: Some(SMALL),
            shrink_until: Timestamp::from_millis(stored.shrink.into()),
            due: Timestamp::from_millis(stored.due.into()),
            phase: match stored.step {
                PhaseKind::Ordered => Phase::Ordered,
                PhaseKind::Ready => Phase::Ready { address },
                PhaseKind::Copying => Phase::Copying { address, ends_source: self.ends_source },
                PhaseKind::Copied => Phase::Copied { carried },
                PhaseKind::Starting => Phase::Starting { carried },
                PhaseKind::Moved => Phase::Moved,
                PhaseKind::Abandoned => Phase::Abandoned { why: AbandonReason::TimedOut },
                PhaseKind::Lost => Phase::Lost,
            },
            is_closed: stored.is_closed,
        })
    }

    fn write(&mut self, guest: u8, record: Option<&MoveRecord>) {
        let before = self.store[usize::from(guest)];
        let puts = record.map(|record| StoredRecord {
            serial: before.map_or(self.serial, |it| it.serial),
            from: host_of(&record.from),
            to: host_of(&record.to),
            term: record.term.0 as u8,
            step: match record.phase {
                Phase::Ordered => PhaseKind::Ordered,
                Phase::Ready { .. } => PhaseKind::Ready,
                Phase::Copying { .. } => PhaseKind::Copying,
                Phase::Copied { .. } => PhaseKind::Copied,
                Phase::Starting { .. } => PhaseKind::Starting,
                Phase::Moved => PhaseKind::Moved,
                Phase::Abandoned { .. } => PhaseKind::Abandoned,
                Phase::Lost => PhaseKind::Lost,
            },
            is_closed: record.is_closed,
            // A source that has copied waits for one tick.
            due: match record.due.as_millis() {
                left @ 0..=2 => left as u8,
                _ => 1,
            },
            shrink: record.shrink_until.as_millis() as u8,
        });
        let flight = PendingWrite { guest, expects: before.map(|it| it.version()), puts };
        if self.flights.len() < self.flights_max && !self.flights.contains(&flight) {
            self.flights.push(flight);
            self.flights.sort();
        }
    }

    fn deliver(&mut self, at: usize, blind: bool) {
        let flight = self.flights.remove(at);
        let stored = &mut self.store[usize::from(flight.guest)];
        if blind || stored.map(|it| it.version()) == flight.expects {
            *stored = flight.puts;
        }
    }

    fn lead(&mut self, term: u8, guest: u8, want: IntentKind, sabotage: &Sabotage) {
        let mut record = self.record(guest);
        let mut now = Timestamp::ZERO;
        (sabotage.leader)(&mut record, &mut now);
        let intent = match want {
            IntentKind::Settle => MoveIntent::Settle,
            IntentKind::Cancel => MoveIntent::Cancel,
            IntentKind::Move { from, to } => MoveIntent::Move(MoveRecord {
                guest: guest_id(guest),
                from: host_id(from),
                to: host_id(to),
                term: Term(term.into()),
                ordered_at: Timestamp::ZERO,
                reserve: RESERVED,
                shrink_to: Some(SMALL),
                shrink_until: Timestamp::from_millis(SHRINK.into()),
                due: Timestamp::from_millis(DUE.into()),
                phase: Phase::Ordered,
                is_closed: false,
            }),
        };
        match leader::step(record.as_ref(), &intent, now) {
            NextStep::Wait => {}
            NextStep::Write(next) => {
                if record.is_none() {
                    self.orders_left -= 1;
                    self.serial += 1;
                } else if want == IntentKind::Cancel {
                    self.faults_left -= 1;
                }
                self.write(guest, Some(&next));
            }
            NextStep::Remove => self.write(guest, None),
            NextStep::Act(action) => panic!("a leader does nothing itself: {action:?}"),
        }
    }

    fn forget(&mut self, guest: u8, sabotage: &Sabotage) {
        let Some(mut record) = self.record(guest) else { return };
        (sabotage.operator)(&mut record);
        if record.why_kept().is_none() {
            self.write(guest, None);
        }
    }

    fn look(
        &mut self,
        host: u8,
        guest: u8,
        is_unknown: bool,
        sabotage: &Sabotage,
    ) -> Result<(), String> {
        let mut record = self.record(guest);
        let mut view = self.view(host, guest);
        if is_unknown {
            view.process = Process::Unknown;
        }
        (sabotage.host)(&mut record, &mut view);
        match host_step(record.as_ref(), &view) {
            NextStep::Wait => {}
            NextStep::Write(next) => {
                let begins = matches!(next.phase, Phase::Ready { .. });
                if begins && next.term.0 < u64::from(self.term) {
                    return Err("a host begins what an older leader ordered".to_owned());
                }
                self.write(guest, Some(&next));
            }
            NextStep::Remove => panic!("a host removes no record"),
            NextStep::Act(action) => self.side_mut(host, guest).todo = Some(todo(&action)),
        }
        Ok(())
    }

    /// What that machine does on itself changes nothing here; what it writes does.
    fn look_as_stranger(&mut self, host: u8, guest: u8, sabotage: &Sabotage) {
        let mut view = HostView {
            process: Process::Absent,
            promise: Promise::Nothing,
            shrink: None,
            holds: None,
            has_part: false,
            is_taken_over: false,
            ..self.view(host, guest)
        };
        (sabotage.stranger)(&mut view);
        if let NextStep::Write(next) = host_step(self.record(guest).as_ref(), &view) {
            self.write(guest, Some(&next));
        }
    }

    fn look_without_store(&mut self, host: u8, guest: u8) {
        let Some(record) = self.record(guest) else { return };
        match host_step_without_store(&record, &self.view(host, guest)) {
            NextStep::Wait => {}
            NextStep::Act(action) => self.side_mut(host, guest).todo = Some(todo(&action)),
            next => panic!("written without a store: {next:?}"),
        }
    }

    fn view(&self, host: u8, guest: u8) -> HostView {
        let side = self.side(host, guest);
        let is_source = self.store[usize::from(guest)].is_some_and(|it| it.from == host);
        HostView {
            host: host_id(host),
            now: Timestamp::ZERO,
            term: Term(self.term.into()),
            process: match side.real {
                ProcessState::Absent => Process::Absent,
                ProcessState::Ended if is_source => Process::Ended,
                ProcessState::Ended => Process::Absent,
                ProcessState::Open | ProcessState::Waiting => Process::Waiting(address(host)),
                ProcessState::Loaded => Process::Loaded,
                ProcessState::Noted => Process::Paused,
                ProcessState::Runs => Process::Runs(CopyState::Nothing),
                ProcessState::Copies | ProcessState::Switches => Process::Runs(CopyState::Partly),
                ProcessState::Failed => Process::Runs(CopyState::Failed),
                ProcessState::Left => Process::Left,
            },
            promise: side.kept,
            shrink: match side.small {
                ShrinkState::No => None,
                ShrinkState::Asked | ShrinkState::Half => {
                    Some(Shrink { to: SMALL, is_done: false })
                }
                ShrinkState::Done => Some(Shrink { to: SMALL, is_done: true }),
            },
            holds: side.has_process().then(|| side.holds()),
            has_part: true,
            is_taken_over: side.is_taken_over,
            carried: carried(),
            ends_source: self.ends_source,
            begins_moves: true,
        }
    }

    /// Does what the role decided.
    fn act(&mut self, host: u8, guest: u8) -> Result<(), String> {
        let ends_source = self.ends_source;
        let listens = if ends_source { ProcessState::Open } else { ProcessState::Waiting };
        let is_room = self.promised(host) < self.capacity;
        let side = self.side_mut(host, guest);
        let real = side.real;
        match side.todo.take().unwrap() {
            PendingAction::Reserve if side.kept == Promise::Nothing => {
                side.is_owed &= !is_room;
                side.kept = if is_room {
                    Promise::Reserved { size: RESERVED, is_ready: false }
                } else {
                    Promise::Refused
                };
            }
            PendingAction::Reserve => {}
            PendingAction::Release => {
                if side.kept != Promise::Entitled {
                    side.kept = Promise::Nothing;
                }
            }
            PendingAction::Listen if matches!(real, ProcessState::Absent | ProcessState::Ended) => {
                side.real = listens
            }
            PendingAction::Listen => {}
            PendingAction::End | PendingAction::Quit => {
                self.process_ends(host, guest);
                let side = self.side_mut(host, guest);
                (side.real, side.is_owed) = (ProcessState::Absent, false);
            }
            PendingAction::TakeOver if real == ProcessState::Loaded => {
                (side.kept, side.is_taken_over) = (Promise::Entitled, true);
            }
            // Without a hypervisor there is no entitlement to give.
            PendingAction::TakeOver => {}
            PendingAction::Start if matches!(real, ProcessState::Loaded | ProcessState::Noted) => {
                if side.is_excess {
                    return Err(format!("g{guest} arrives with more than was reserved for it"));
                }
                self.runs(host, guest, ProcessState::Runs)?
            }
            // It died meanwhile, but the note says that it was about to start.
            PendingAction::Start if real == ProcessState::Open => side.real = ProcessState::Absent,
            PendingAction::Start if real == ProcessState::Waiting => {
                return Err("a hypervisor is to start what has not come".to_owned());
            }
            PendingAction::Start => {}
            PendingAction::Shrink => {
                side.small = ShrinkState::Asked;
                if real == ProcessState::Failed && ends_source {
                    // The note of the failed copy names another order than this one.
                    side.real = ProcessState::Runs;
                }
            }
            PendingAction::EndShrink => side.small = ShrinkState::No,
            PendingAction::Copy(to)
                if matches!(real, ProcessState::Runs | ProcessState::Failed) =>
            {
                if side.small == ShrinkState::No {
                    return Err("a guest is copied that was not asked to shrink".to_owned());
                }
                (side.real, side.peer) = (ProcessState::Copies, Some(to));
                match self.side(to, guest).real {
                    ProcessState::Waiting if !self.ends_source => {}
                    ProcessState::Open => self.side_mut(to, guest).real = ProcessState::Waiting,
                    // The program that copies does not check whether the guest is expected.
                    ProcessState::Absent | ProcessState::Ended if self.ends_source => {
                        return Err("a guest is copied to where nobody expects it".to_owned());
                    }
                    _ => self.side_mut(host, guest).peer = None,
                }
            }
            PendingAction::Copy(_) => {}
            PendingAction::CancelCopy if real == ProcessState::Copies => {
                self.copy_ends(host, guest)?
            }
            // Too late: the copy ends well or fails by itself.
            PendingAction::CancelCopy => {}
            PendingAction::Resume if real == ProcessState::Left => {
                self.runs(host, guest, ProcessState::Runs)?
            }
            PendingAction::Resume => {}
        }
        Ok(())
    }

    /// The guest runs here from now on, so all other copies are outdated.
    fn runs(&mut self, host: u8, guest: u8, real: ProcessState) -> Result<(), String> {
        if !self.side(host, guest).is_current {
            return Err(format!("an outdated copy of g{guest} starts at h{host}"));
        }
        for other in 0..self.hosts {
            self.side_mut(other, guest).is_current = other == host;
        }
        let side = self.side_mut(host, guest);
        (side.real, side.hangs) = (real, false);
        Ok(())
    }

    /// A copy ends before it is complete: the guest runs on, and the other side has only a part.
    fn copy_ends(&mut self, host: u8, guest: u8) -> Result<(), String> {
        let peer = self.side_mut(host, guest).peer.take();
        // QEMU ends when a stream breaks off, unless it has loaded everything.
        if let Some(peer) = peer
            && self.side(peer, guest).real == ProcessState::Waiting
        {
            self.process_ends(peer, guest);
        }
        self.runs(host, guest, ProcessState::Failed)
    }

    fn process_ends(&mut self, host: u8, guest: u8) {
        for other in 0..self.hosts {
            let side = self.side_mut(other, guest);
            if side.peer == Some(host) {
                side.peer = None;
            }
        }
        let side = self.side_mut(host, guest);
        if let Some(peer) = side.peer.take()
            && self.side(peer, guest).real == ProcessState::Waiting
        {
            self.process_ends(peer, guest);
        }
        let ends_source = self.ends_source;
        let side = self.side_mut(host, guest);
        side.real = match side.real {
            // The note outlives the hypervisor.
            ProcessState::Open | ProcessState::Waiting | ProcessState::Loaded if ends_source => {
                ProcessState::Open
            }
            ProcessState::Ended => ProcessState::Ended,
            _ => ProcessState::Absent,
        };
        (side.is_current, side.is_taken_over) = (false, false);
        (side.hangs, side.is_excess) = (false, false);
        if side.kept == Promise::Entitled {
            side.kept = Promise::Nothing;
        }
    }

    /// A fault is about to end the guest's process here. If the guest lives in it, by the record or
    /// by one that is about to be written, it may die, as it would with any host.
    fn excuse(&mut self, host: u8, guest: u8) {
        if !self.side(host, guest).is_current {
            return;
        }
        let written = self.flights.iter().filter(|it| it.guest == guest).filter_map(|it| it.puts);
        let stored = self.store[usize::from(guest)];
        let is_owner = stored.into_iter().chain(written).any(|record| record.owner() == Some(host));
        let copies = (0..self.hosts).filter(|it| self.side(*it, guest).is_current).count();
        self.died[usize::from(guest)] |= is_owner || copies == 1;
    }

    /// The number of guests that a host promises memory to.
    fn promised(&self, host: u8) -> u8 {
        let sides = (0..self.guests).map(|guest| self.side(host, guest));
        sides.filter(|side| side.is_due() || side.is_promised()).count() as u8
    }

    /// What has to hold at every moment.
    fn judge(&self) -> Result<(), String> {
        for guest in 0..self.guests {
            let sides = (0..self.hosts).map(|host| self.side(host, guest));
            if sides.clone().filter(|side| side.runs()).count() > 1 {
                return Err(format!("g{guest} runs twice"));
            }
            let is_whole = sides.clone().any(|side| side.is_current);
            if !is_whole && !self.died[usize::from(guest)] {
                return Err(format!("the last copy of g{guest} is gone"));
            }
            if sides.clone().any(|side| side.is_due() && !side.is_promised()) {
                return Err(format!("g{guest} has a hypervisor without a promise"));
            }
            if sides.clone().any(|side| side.runs() && side.kept != Promise::Entitled) {
                return Err(format!("g{guest} runs without an entitlement"));
            }
        }
        match (0..self.hosts).find(|host| self.promised(*host) > self.capacity) {
            Some(host) => Err(format!("h{host} promises more than it has")),
            None => Ok(()),
        }
    }

    /// Whether every move is over and cleaned up: each guest that lives runs at one host.
    pub(super) fn is_quiet(&self) -> bool {
        let is_over = |side: &GuestOnHost| match side.real {
            ProcessState::Runs | ProcessState::Failed => side.kept == Promise::Entitled,
            ProcessState::Absent | ProcessState::Ended => side.kept == Promise::Nothing,
            _ => false,
        };
        let runs = |guest: u8| (0..self.hosts).any(|host| self.side(host, guest).runs());
        self.flights.is_empty()
            && self.store.iter().all(Option::is_none)
            && self
                .sides
                .iter()
                .all(|it| it.todo.is_none() && it.small == ShrinkState::No && is_over(it))
            && (0..self.guests).all(|guest| runs(guest) || self.died[usize::from(guest)])
    }
}

fn todo(action: &HostAction) -> PendingAction {
    match action {
        HostAction::Reserve(_) => PendingAction::Reserve,
        HostAction::Release => PendingAction::Release,
        HostAction::Listen => PendingAction::Listen,
        HostAction::End => PendingAction::End,
        HostAction::TakeOver(_) => PendingAction::TakeOver,
        HostAction::Start => PendingAction::Start,
        HostAction::Shrink(_) => PendingAction::Shrink,
        HostAction::EndShrink => PendingAction::EndShrink,
        HostAction::Copy(to) => PendingAction::Copy((to.port() - FIRST_PORT) as u8),
        HostAction::CancelCopy => PendingAction::CancelCopy,
        HostAction::Resume => PendingAction::Resume,
        HostAction::Quit => PendingAction::Quit,
    }
}
