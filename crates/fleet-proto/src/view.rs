//! What is known of a fleet, from its keys.
//!
//! Idea: every change of a key is taken in as it comes; what cannot be read stays with its reason
//! until it is written again. A host's record is believed while its keys are there: they go with
//! its lease, which its host renews only while the record is true to the margin. So the reader's
//! clock dates every record, and no other clock counts.
//! Cost: the parts of all hosts, and one record of each per planning.
//! Limits: keys of an unknown kind are passed over, those of a later version are not.

use std::collections::{BTreeMap, BTreeSet};

use ballast_fleet::{
    FleetSnapshot, GuestRecord, HostId, HostRecord, LastMove, RefusedRecord, ReservationRecord,
};
use ballast_fleet_move::{MoveRecord, Phase};
use ballast_model::{GuestId, Timestamp};

use crate::coordinator::{Changes, KeyEvent, Listing, Revision};
use crate::keys::{FleetKey, Keyspace};
use crate::past::PastMoves;
use crate::plan_record::PlanRecord;
use crate::record::{Author, FastPart, Identity, RecordError, SlowPart, decode, join, one_line};

/// What is known of a fleet.
#[derive(Clone, Debug)]
pub struct FleetView {
    keys: Keyspace,
    revision: Revision,
    hosts: BTreeMap<HostId, Parts>,
    draining: BTreeSet<HostId>,
    pause: Option<String>,
    leader: Option<(String, Revision)>,
    plan: Option<Result<PlanRecord, RecordError>>,
    moves: BTreeMap<GuestId, MoveEntry>,
    past: BTreeMap<GuestId, PastMoves>,
}

/// The move of a guest that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveEntry {
    /// Its record; an error says why it cannot be read.
    pub record: Result<MoveRecord, String>,
    /// The revision that wrote it.
    pub written: Revision,
}

/// What is there of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Parts {
    identity: Option<Result<Identity, RecordError>>,
    slow: Option<Result<SlowPart, RecordError>>,
    fast: Option<Result<FastPart, RecordError>>,
}

impl FleetView {
    /// All that is in a listing of all keys.
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

    /// Takes in what happened since.
    pub fn apply(&mut self, changes: Changes) {
        self.revision = self.revision.max(changes.revision);
        for event in changes.events {
            self.take(event);
        }
    }

    fn take(&mut self, event: KeyEvent) {
        let (key, value, written) = match &event {
            KeyEvent::Written(entry) => (&entry.key, Some(&entry.value[..]), entry.written),
            KeyEvent::Gone(key) => (key, None, self.revision),
        };
        // Who wrote what only has to be there: a value that cannot be read still says that it is.
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
            Some(FleetKey::Move(guest)) => match value {
                Some(value) => {
                    let entry = MoveEntry { record: read_move(&guest, value), written };
                    self.moves.insert(guest, entry);
                }
                None => {
                    self.moves.remove(&guest);
                }
            },
            Some(FleetKey::Past(guest)) => match value {
                // One that cannot be read makes nobody rest.
                Some(value) => {
                    self.past.insert(guest, decode(value).unwrap_or_default());
                }
                None => {
                    self.past.remove(&guest);
                }
            },
        }
    }

    fn parts(&mut self, host: HostId, change: impl FnOnce(&mut Parts)) {
        let parts = self.hosts.entry(host.clone()).or_default();
        change(parts);
        if *parts == Parts::default() {
            self.hosts.remove(&host);
        }
    }

    /// The state that is known.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The hosts whose names are taken, by name.
    pub fn hosts(&self) -> impl Iterator<Item = &HostId> {
        self.hosts.keys()
    }

    /// Hosts that all guests are to leave, registered or not, by name.
    pub fn draining(&self) -> impl Iterator<Item = &HostId> {
        self.draining.iter()
    }

    /// Who wants nothing to be planned; `None`: nobody.
    pub fn paused_by(&self) -> Option<&str> {
        self.pause.as_deref()
    }

    /// Who leads, and the revision of its leadership.
    pub fn leader(&self) -> Option<(&str, Revision)> {
        self.leader.as_ref().map(|(host, revision)| (host.as_str(), *revision))
    }

    /// The latest plan; `None`: there is none yet.
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

    /// The moves of `guest` that are over.
    pub fn past(&self, guest: &GuestId) -> Option<&PastMoves> {
        self.past.get(guest)
    }

    /// The guests whose moves are over for so long that none counts any more.
    pub(crate) fn past_over(&self, now: Timestamp) -> impl Iterator<Item = &GuestId> {
        self.past.iter().filter(move |(_, past)| past.are_over(now)).map(|(guest, _)| guest)
    }

    /// Whether `host` carries out orders.
    pub fn carries_moves(&self, host: &HostId) -> bool {
        let slow = self.hosts.get(host).and_then(|parts| parts.slow.as_ref());
        slow.is_some_and(|slow| slow.as_ref().is_ok_and(SlowPart::carries_moves))
    }

    /// The records that can be believed, dated `now`, and why the others cannot.
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

/// Takes a move's record in.
fn read_move(guest: &GuestId, value: &[u8]) -> Result<MoveRecord, String> {
    let record = MoveRecord::parse(value).map_err(|error| one_line(&error.to_string()))?;
    match record.guest == *guest {
        true => Ok(record),
        false => Err(format!("the record of {guest} is about {}", record.guest)),
    }
}

impl FleetView {
    /// What the moves of its guests, under way and over, say of a host.
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
            // Ordered, and not reserved yet: nobody else is promised the same.
            host.committed += record.reserve;
            host.reservations.push(ReservationRecord {
                guest: guest.clone(),
                size: record.reserve,
                resident: ballast_model::Bytes::ZERO,
                group: self.group_of(&record.from, guest),
            });
        }
    }

    /// The group of a guest, as its host says.
    fn group_of(&self, host: &HostId, guest: &GuestId) -> Option<ballast_fleet::Label> {
        let slow = self.hosts.get(host)?.slow.as_ref()?.as_ref().ok()?;
        slow.group_of(guest)
    }
}

/// What the move of a guest says of it on `host`.
fn add_move(guest: &mut GuestRecord, host: &HostId, entry: &MoveEntry, now: Timestamp) {
    match &entry.record {
        Ok(record) if record.from == *host && !matches!(record.phase, Phase::Abandoned { .. }) => {
            guest.moving_to = Some(record.to.clone());
        }
        // It has just come or has just stayed, or nobody here knows: it is left where it is.
        _ => {
            guest.moves_in_24h = guest.moves_in_24h.max(1);
            guest.last_move = Some(LastMove { at: now, took: std::time::Duration::ZERO });
        }
    }
}

impl Parts {
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
