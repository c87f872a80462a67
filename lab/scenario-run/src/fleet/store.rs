//! What the fleet's store says about leaders and moves, recorded as it changes.
//!
//! Idea: the keys of leaders and orders lie under one prefix; a watch of that prefix delivers each
//! change once and in order. Each change is kept in the form of the record.
//! Limits: changes that arrive together get the same time.

use std::time::Duration;

use anyhow::Context;
use ballast_etcd::{EtcdClient, EtcdWatch};
use ballast_fleet_move::{MoveRecord, Phase};
use ballast_fleet_proto::{Author, Changes, Coordinator, KeyEvent, KeyWatch, Keyspace, decode};
use tokio::time::{Instant, sleep};

use crate::fleet_record::{LeaderRecord, MigrationRecord, PhaseRecord};

/// The fleet's name.
pub(super) const CLUSTER: &str = "lab";
/// Time before a broken watch is opened again.
const RETRY: Duration = Duration::from_millis(200);

/// A watch of the fleet's store.
pub(super) struct FleetStore {
    client: EtcdClient,
    keys: Keyspace,
    watch: Option<EtcdWatch>,
    began: Instant,
    state: WatchedState,
}

/// What the watch has shown so far.
#[derive(Default)]
struct WatchedState {
    revision: ballast_fleet_proto::Revision,
    leaders: Vec<LeaderRecord>,
    migrations: Vec<MigrationRecord>,
}

impl FleetStore {
    /// Watches the store that `client` reaches; times count from `began`.
    pub(super) async fn open(client: EtcdClient, began: Instant) -> anyhow::Result<FleetStore> {
        let keys: Keyspace = CLUSTER.parse()?;
        let listing = client.read(&keys.lead_prefix()).await.context("cannot read the store")?;
        let mut store =
            FleetStore { client, keys, watch: None, began, state: WatchedState::default() };
        store.state.revision = listing.revision;
        let events = listing.entries.into_iter().map(KeyEvent::Written).collect();
        store.apply(Changes { revision: listing.revision, events });
        Ok(store)
    }

    /// Waits for the next changes; no change is lost when the future is dropped.
    pub(super) async fn next(&mut self) {
        let changes = loop {
            let watch = match &mut self.watch {
                Some(watch) => watch,
                None => {
                    let prefix = self.keys.lead_prefix();
                    match self.client.watch(&prefix, self.state.revision).await {
                        Ok(watch) => self.watch.insert(watch),
                        Err(_) => {
                            sleep(RETRY).await;
                            continue;
                        }
                    }
                }
            };
            match watch.next().await {
                Ok(changes) => break changes,
                Err(_) => self.watch = None,
            }
        };
        self.apply(changes);
    }

    fn apply(&mut self, changes: Changes) {
        let at_s = self.began.elapsed().as_secs_f64();
        self.state.revision = changes.revision;
        let prefix = self.keys.lead_prefix();
        for event in changes.events {
            let (key, value) = match &event {
                KeyEvent::Written(entry) => (entry.key.as_str(), Some(entry.value.as_slice())),
                KeyEvent::Deleted(key) => (key.as_str(), None),
            };
            let Some(name) = key.strip_prefix(prefix.as_str()) else { continue };
            match name.strip_prefix("moves/") {
                Some(guest) => self.state.migration(guest, value, at_s),
                None if name == "leader" => self.state.leader(value, at_s),
                None => {}
            }
        }
    }

    /// The host that leads now.
    pub(super) fn leader(&self) -> Option<&str> {
        self.state.leaders.last()?.host.as_deref()
    }

    /// A move that a host has begun and whose record is not removed yet: the guest and the phase.
    pub(super) fn begun(&self) -> Option<(&str, &str)> {
        let open = self.state.migrations.iter().filter(|it| it.removed_s.is_none());
        open.filter_map(|it| Some((it.guest.as_str(), it.phases.last()?.phase.as_str())))
            .find(|(_, phase)| !["ordered", "abandoned", "lost"].contains(phase))
    }

    /// Whether the guest is being moved.
    pub(super) fn is_moving(&self, guest: &str) -> bool {
        self.state.migrations.iter().any(|it| it.guest == guest && it.removed_s.is_none())
    }

    /// The host that the guest moved to last; `None`: it never moved.
    pub(super) fn arrival(&self, guest: &str) -> Option<&str> {
        let moved = self.state.migrations.iter().rfind(|it| it.guest == guest && it.is_moved());
        moved.map(|it| it.to.as_str())
    }

    /// All leaders and moves that were seen.
    pub(super) fn finish(self) -> (Vec<LeaderRecord>, Vec<MigrationRecord>) {
        (self.state.leaders, self.state.migrations)
    }
}

impl WatchedState {
    fn leader(&mut self, value: Option<&[u8]>, at_s: f64) {
        let host = value.and_then(|value| decode::<Author>(value).ok()).map(|it| it.host);
        if self.leaders.last().and_then(|it| it.host.as_ref()) != host.as_ref() {
            self.leaders.push(LeaderRecord { host, from_s: at_s });
        }
    }

    /// Takes a change of a guest's move record: it was written, or removed.
    fn migration(&mut self, guest: &str, value: Option<&[u8]>, at_s: f64) {
        let mut all = self.migrations.iter_mut();
        let open = all.rfind(|it| it.guest == guest && it.removed_s.is_none());
        let record = value.and_then(|value| MoveRecord::parse(value).ok());
        let Some(record) = record else {
            if let Some(open) = open {
                open.removed_s = Some(at_s);
            }
            return;
        };
        let phase = PhaseRecord { phase: record.phase.code().to_owned(), at_s };
        let ended = match &record.phase {
            Phase::Abandoned { why } => Some(format!("abandoned: {why}")),
            over @ (Phase::Moved | Phase::Lost) => Some(over.code().to_owned()),
            _ => None,
        };
        let Some(open) = open else {
            let (from, to) = (record.from.as_str().to_owned(), record.to.as_str().to_owned());
            let (guest, phases) = (guest.to_owned(), vec![phase]);
            let new = MigrationRecord { guest, from, to, phases, ended, removed_s: None };
            return self.migrations.push(new);
        };
        if open.phases.last().is_none_or(|last| last.phase != phase.phase) {
            open.phases.push(phase);
        }
        open.ended = ended;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ballast_fleet_move::{AbandonReason, Term};
    use ballast_fleet_proto::encode;
    use ballast_model::{Bytes, Timestamp};

    fn ordered() -> MoveRecord {
        MoveRecord {
            guest: "g".parse().unwrap(),
            from: "a".parse().unwrap(),
            to: "b".parse().unwrap(),
            term: Term(1),
            reserve: Bytes::mib(256),
            ordered_at: Timestamp::ZERO,
            shrink_to: None,
            shrink_until: Timestamp::from_millis(1),
            due: Timestamp::from_millis(2),
            phase: Phase::Ordered,
            is_closed: false,
        }
    }

    #[test]
    fn a_move_is_one_record_from_order_to_removal() {
        let mut state = WatchedState::default();
        let mut write = |phase: Phase, at_s| {
            let record = MoveRecord { phase, ..ordered() };
            state.migration("g", Some(record.to_json().as_bytes()), at_s);
        };
        let address = "127.0.0.1:4000".parse().unwrap();
        write(Phase::Ordered, 1.0);
        write(Phase::Ready { address }, 2.0);
        write(Phase::Ready { address }, 2.5);
        write(Phase::Moved, 4.0);
        state.migration("g", None, 5.0);
        state.migration("g", None, 6.0);
        let why = AbandonReason::NoRoom;
        let again = MoveRecord { phase: Phase::Abandoned { why }, ..ordered() };
        state.migration("g", Some(again.to_json().as_bytes()), 7.0);
        let [first, second] = state.migrations.as_slice() else { panic!("two moves") };
        assert_eq!((first.from.as_str(), first.to.as_str()), ("a", "b"));
        assert_eq!((first.phases.len(), first.took_s()), (3, Some(3.0)));
        assert_eq!((first.ended.as_deref(), first.removed_s), (Some("moved"), Some(5.0)));
        assert!(second.ended.as_ref().unwrap().starts_with("abandoned: the destination"));
        assert!(first.is_moved() && !second.is_moved());
    }

    #[test]
    fn leaders_follow_each_other() {
        let mut state = WatchedState::default();
        let author = |host: &str| encode(&Author { host: host.to_owned() }).unwrap();
        state.leader(Some(&author("a")), 1.0);
        state.leader(Some(&author("a")), 2.0);
        state.leader(None, 3.0);
        state.leader(Some(&author("b")), 4.0);
        let leaders: Vec<_> =
            state.leaders.iter().map(|it| (it.host.as_deref(), it.from_s)).collect();
        assert_eq!(leaders, [(Some("a"), 1.0), (None, 3.0), (Some("b"), 4.0)]);
    }
}
