//! What the keys of a fleet say.
//!
//! Idea: every change of a key is taken in as it comes. A value that cannot be read is kept as an
//! error until the key is written again. A host's record counts while its keys exist: they are
//! removed with its lease, which the host renews only while the record is true within the margin.
//! So the reader dates every record by its own clock, and no other clock counts.
//! Cost: memory for the parts of all hosts, and a full record of each host when a plan is made.
//! Limits: keys of an unknown kind are ignored; records of an unknown version are errors.

use std::collections::{BTreeMap, BTreeSet};

use ballast_fleet::{
    FleetSnapshot, GuestRecord, HostId, HostRecord, LastMove, RefusedRecord, ReservationRecord,
};
use ballast_fleet_move::{MoveRecord, Phase};
use ballast_model::{GuestId, Timestamp};

use crate::coordinator::{Changes, Coordinator, CoordinatorError, KeyEvent, Listing, Revision};
use crate::keys::{FleetKey, Keyspace};
use crate::past::PastMoves;
use crate::plan_record::PlanRecord;
use crate::record::{Author, FastPart, Identity, RecordError, SlowPart, decode, join, one_line};

/// What is known of a fleet.
#[derive(Clone, Debug)]
pub struct FleetView {
    keys: Keyspace,
    revision: Revision,
    hosts: BTreeMap<HostId, HostParts>,
    draining: BTreeSet<HostId>,
    pause: Option<String>,
    leader: Option<(String, Revision)>,
    plan: Option<Result<PlanRecord, RecordError>>,
    moves: BTreeMap<GuestId, MoveEntry>,
    past: BTreeMap<GuestId, PastMoves>,
}

/// A move that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveEntry {
    /// Its record, or why it cannot be read.
    pub record: Result<MoveRecord, String>,
    /// The revision that wrote it.
    pub written: Revision,
}

/// The parts of one host's record that exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct HostParts {
    identity: Option<Result<Identity, RecordError>>,
    slow: Option<Result<SlowPart, RecordError>>,
    fast: Option<Result<FastPart, RecordError>>,
}

impl FleetView {
    /// The view of a listing of all keys.
    pub fn new(keys: Keyspace, listing: Listing) -> FleetView {
        let mut view = FleetView {
            keys,
            revision: listing.revision,
            hosts: BTreeMap::new(),
            draining: BTreeSet::new(),
            pause: None,
            leader: None,
            plan: None,
            moves: BTreeMap::new(),
            past: BTreeMap::new(),
        };
        for entry in listing.entries {
            view.take(KeyEvent::Written(entry));
        }
        view
    }

    /// Reads all keys of a fleet.
    ///
    /// # Errors
    /// The coordinator does not answer.
    pub async fn read(
        coordinator: &impl Coordinator,
        keys: &Keyspace,
    ) -> Result<FleetView, CoordinatorError> {
        let listing = coordinator.read(keys.prefix()).await?;
        Ok(FleetView::new(keys.clone(), listing))
    }

    /// Takes in changes since the listing or the last call.
    pub fn apply(&mut self, changes: Changes) {
        self.revision = self.revision.max(changes.revision);
        for event in changes.events {
            self.take(event);
        }
    }

    fn take(&mut self, event: KeyEvent) {
        let (key, value, written) = match &event {
            KeyEvent::Written(entry) => (&entry.key, Some(&entry.value[..]), entry.written),
            KeyEvent::Deleted(key) => (key, None, self.revision),
        };
        // Such a key counts by its presence alone, so a value that cannot be read counts too.
        let author = |value: &[u8]| match decode::<Author>(value) {
            Ok(Author { host }) => host,
            Err(error) => format!("somebody unknown ({error})"),
        };
        match self.keys.read(key) {
            None => {}
            Some(FleetKey::Identity(host)) => {
                self.parts(host, |it| it.identity = value.map(decode))
            }
            Some(FleetKey::Slow(host)) => self.parts(host, |it| it.slow = value.map(decode)),
            Some(FleetKey::Fast(host)) => self.parts(host, |it| it.fast = value.map(decode)),
            Some(FleetKey::Drain(host)) => {
                if value.is_some() {
                    self.draining.insert(host);
                } else {
                    self.draining.remove(&host);
                }
            }
            Some(FleetKey::Pause) => self.pause = value.map(author),
            Some(FleetKey::Leader) => self.leader = value.map(|value| (author(value), written)),
            Some(FleetKey::Plan) => self.plan = value.map(decode),
            Some(FleetKey::Move(guest)) => {
                let record = value.map(|value| read_move(&guest, value));
                set(&mut self.moves, guest, record.map(|record| MoveEntry { record, written }));
            }
            // A value that cannot be read makes no guest rest.
            Some(FleetKey::Past(guest)) => {
                let past = value.map(|value| decode(value).unwrap_or_default());
                set(&mut self.past, guest, past);
            }
        }
    }

    fn parts(&mut self, host: HostId, change: impl FnOnce(&mut HostParts)) {
        let parts = self.hosts.entry(host.clone()).or_default();
        change(parts);
        if *parts == HostParts::default() {
            self.hosts.remove(&host);
        }
    }

    /// The revision up to which changes were taken in.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The registered hosts, sorted by name.
    pub fn hosts(&self) -> impl Iterator<Item = &HostId> {
        self.hosts.keys()
    }

    /// Hosts to be drained, registered or not, sorted by name.
    pub fn draining(&self) -> impl Iterator<Item = &HostId> {
        self.draining.iter()
    }

    /// Who paused the fleet, so that nothing is planned; `None` if nobody did.
    pub fn paused_by(&self) -> Option<&str> {
        self.pause.as_deref()
    }

    /// The leader's host, and the revision of its leadership.
    pub fn leader(&self) -> Option<(&str, Revision)> {
        self.leader.as_ref().map(|(host, revision)| (host.as_str(), *revision))
    }

    /// The latest plan; `None` if there is none yet.
    pub fn plan(&self) -> Option<&Result<PlanRecord, RecordError>> {
        self.plan.as_ref()
    }

    /// The moves that are under way, by guest.
    pub fn moves(&self) -> impl Iterator<Item = (&GuestId, &MoveEntry)> {
        self.moves.iter()
    }

    /// The move of `guest` that is under way.
    pub fn move_of(&self, guest: &GuestId) -> Option<&MoveEntry> {
        self.moves.get(guest)
    }

    /// The finished moves of `guest`.
    pub fn past(&self, guest: &GuestId) -> Option<&PastMoves> {
        self.past.get(guest)
    }

    /// The guests whose finished moves are all too old to count.
    pub(crate) fn expired_past_moves(&self, now: Timestamp) -> impl Iterator<Item = &GuestId> {
        self.past.iter().filter(move |(_, past)| past.are_expired(now)).map(|(guest, _)| guest)
    }

    /// Whether `host` carries out moves that are ordered.
    pub fn executes_moves(&self, host: &HostId) -> bool {
        let slow = self.hosts.get(host).and_then(|parts| parts.slow.as_ref());
        slow.is_some_and(|slow| slow.as_ref().is_ok_and(|slow| slow.moves))
    }

    /// The registered hosts that carry out moves that are ordered, sorted by name.
    pub fn executing_hosts(&self) -> impl Iterator<Item = &HostId> {
        self.hosts.keys().filter(move |host| self.executes_moves(host))
    }

    /// The records that are accepted, dated `now`, and why the others are left out.
    pub fn snapshot(&self, now: Timestamp) -> (FleetSnapshot, Vec<RefusedRecord>) {
        let (mut records, mut refused) = (Vec::new(), Vec::new());
        for (host, parts) in &self.hosts {
            match parts.record(host, now, self.draining.contains(host)) {
                Ok(mut record) => {
                    self.add_moves(&mut record, now);
                    records.push(record);
                }
                Err(fault) => refused.push(RefusedRecord { host: host.clone(), fault }),
            }
        }
        let (snapshot, more) = FleetSnapshot::admit(records);
        refused.extend(more);
        refused.sort_by(|a, b| a.host.cmp(&b.host));
        (snapshot, refused)
    }
}

/// Gives a key its new value, or removes it.
fn set<V>(map: &mut BTreeMap<GuestId, V>, guest: GuestId, value: Option<V>) {
    match value {
        Some(value) => drop(map.insert(guest, value)),
        None => drop(map.remove(&guest)),
    }
}

/// Reads the record of a guest's move.
fn read_move(guest: &GuestId, value: &[u8]) -> Result<MoveRecord, String> {
    let record = MoveRecord::parse(value).map_err(|error| one_line(&error.to_string()))?;
    match record.guest == *guest {
        true => Ok(record),
        false => Err(format!("the record of {guest} is about {}", record.guest)),
    }
}

impl FleetView {
    /// Adds to a host's record what moves, under way and finished, say of its guests and its room.
    fn add_moves(&self, host: &mut HostRecord, now: Timestamp) {
        for guest in &mut host.guests {
            if let Some(past) = self.past.get(&guest.id) {
                (guest.moves_in_24h, guest.last_move) = (past.moves_in_24h(now), past.last(now));
            }
            if let Some(entry) = self.moves.get(&guest.id) {
                add_move(guest, &host.id, entry, now);
            }
        }
        for (guest, entry) in &self.moves {
            let Ok(record) = &entry.record else { continue };
            let is_over = matches!(record.phase, Phase::Abandoned { .. } | Phase::Lost);
            let is_there = host.guests.iter().any(|it| it.id == *guest)
                || host.reservations.iter().any(|it| it.guest == *guest);
            if record.to != host.id || is_over || is_there {
                continue;
            }
            // Ordered and not reserved yet: it counts as reserved, so that no other guest is sent
            // there.
            host.committed += record.reserve;
            host.reservations.push(ReservationRecord {
                guest: guest.clone(),
                size: record.reserve,
                resident: ballast_model::Bytes::ZERO,
                group: self.group_of(&record.from, guest),
            });
        }
    }

    /// The group of a guest, as `host` reports it.
    fn group_of(&self, host: &HostId, guest: &GuestId) -> Option<ballast_fleet::Label> {
        let slow = self.hosts.get(host)?.slow.as_ref()?.as_ref().ok()?;
        slow.group_of(guest)
    }
}

/// Adds what the move of a guest says of the guest on `host`.
fn add_move(guest: &mut GuestRecord, host: &HostId, entry: &MoveEntry, now: Timestamp) {
    match &entry.record {
        Ok(record) if record.from == *host && !matches!(record.phase, Phase::Abandoned { .. }) => {
            guest.moving_to = Some(record.to.clone());
        }
        // It has just arrived or just stayed, or its record cannot be read: it rests here.
        _ => {
            guest.moves_in_24h = guest.moves_in_24h.max(1);
            guest.last_move = Some(LastMove { at: now, took: std::time::Duration::ZERO });
        }
    }
}

impl HostParts {
    fn record(
        &self,
        host: &HostId,
        now: Timestamp,
        is_draining: bool,
    ) -> Result<HostRecord, String> {
        fn read<'a, T>(
            part: &'a Option<Result<T, RecordError>>,
            what: &str,
        ) -> Result<&'a T, String> {
            match part {
                Some(Ok(part)) => Ok(part),
                Some(Err(error)) => Err(format!("{what}: {error}")),
                None => Err(format!("it has not written {what} yet")),
            }
        }
        read(&self.identity, "its identity")?;
        let slow = read(&self.slow, "the list of its guests")?;
        let fast = read(&self.fast, "its sizes")?;
        join(host, slow, fast, now, is_draining).map_err(|error| error.to_string())
    }
}
