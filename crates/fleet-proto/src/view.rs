//! What is known of a fleet, from its keys.
//!
//! Idea: every change of a key is taken in as it comes; what cannot be read stays with its reason
//! until it is written again. A host's record is believed while its keys are there: they go with
//! its lease, which its host renews only while the record is true to the margin. So the reader's
//! clock dates every record, and no other clock counts.
//! Cost: the parts of all hosts, and one record of each per planning.
//! Limits: keys of an unknown kind are passed over, those of a later version are not.

use std::collections::{BTreeMap, BTreeSet};

use ballast_fleet::{FleetSnapshot, HostId, HostRecord, RefusedRecord};
use ballast_model::Timestamp;

use crate::coordinator::{Changes, KeyEvent, Listing, Revision};
use crate::keys::{FleetKey, Keyspace};
use crate::plan_record::PlanRecord;
use crate::record::{Author, FastPart, Identity, RecordError, SlowPart, decode, join};

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

    /// The records that can be believed, dated `now`, and why the others cannot.
    pub fn snapshot(&self, now: Timestamp) -> (FleetSnapshot, Vec<RefusedRecord>) {
        let (mut records, mut refused) = (Vec::new(), Vec::new());
        for (host, parts) in &self.hosts {
            match parts.record(host, now, self.draining.contains(host)) {
                Ok(record) => records.push(record),
                Err(fault) => refused.push(RefusedRecord { host: host.clone(), fault }),
            }
        }
        let (snapshot, more) = FleetSnapshot::admit(records);
        refused.extend(more);
        refused.sort_by(|a, b| a.host.cmp(&b.host));
        (snapshot, refused)
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
