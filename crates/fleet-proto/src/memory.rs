//! A coordinator in memory, for tests and simulations.
//!
//! Idea: the promises of the trait and nothing else, in the plainest form: a map of keys, a list of
//! all changes, and a clock that only the test moves. Tests can take it down and compact its
//! history.
//! Limits: clones share the state; all changes are kept until the history is compacted.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use ballast_model::Timestamp;

use crate::coordinator::{
    Changes, Condition, Coordinator, CoordinatorError, Entry, KeyEvent, KeyWatch, KeyWrite,
    LeaseId, Listing, PutResult, Revision,
};

/// A coordinator in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryCoordinator {
    state: Arc<Mutex<KeyspaceState>>,
}

/// Watches keys of a `MemoryCoordinator`.
#[derive(Debug)]
pub struct MemoryWatch {
    state: Arc<Mutex<KeyspaceState>>,
    prefix: String,
    after: Revision,
}

#[derive(Debug, Default)]
struct KeyspaceState {
    now: Timestamp,
    is_down: bool,
    revision: u64,
    compacted: u64,
    entries: BTreeMap<String, (Entry, Option<LeaseId>)>,
    history: Vec<(Revision, KeyEvent)>,
    leases: BTreeMap<LeaseId, (Duration, Timestamp)>,
    leases_granted: i64,
    waiting: Vec<Waker>,
}

impl MemoryCoordinator {
    /// Moves the clock: leases that end remove their keys.
    pub fn advance(&self, time: Duration) {
        let mut state = locked(&self.state);
        state.now = state.now + time;
        let now = state.now;
        let over = state.leases.iter().filter(|(_, (_, ends))| *ends <= now);
        for lease in over.map(|(lease, _)| *lease).collect::<Vec<_>>() {
            state.end(lease);
        }
    }

    /// Makes every call fail as unreachable, or stops that.
    pub fn set_down(&self, is_down: bool) {
        let mut state = locked(&self.state);
        state.is_down = is_down;
        state.wake();
    }

    /// Compacts the history: earlier changes are forgotten, the keys stay.
    pub fn compact(&self) {
        let mut state = locked(&self.state);
        state.compacted = state.revision;
        state.history.clear();
        state.wake();
    }
}

fn locked(state: &Mutex<KeyspaceState>) -> MutexGuard<'_, KeyspaceState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl KeyspaceState {
    fn answers(&self) -> Result<(), CoordinatorError> {
        match self.is_down {
            true => Err(CoordinatorError::Unreachable("it is down".to_owned())),
            false => Ok(()),
        }
    }

    fn wake(&mut self) {
        self.waiting.drain(..).for_each(Waker::wake);
    }

    fn end(&mut self, lease: LeaseId) {
        self.leases.remove(&lease);
        let held = self.entries.iter().filter(|(_, (_, holder))| *holder == Some(lease));
        let writes = held.map(|(key, _)| KeyWrite::Delete(key.clone())).collect();
        self.write(writes);
    }

    fn write(&mut self, writes: Vec<KeyWrite>) -> Revision {
        let next = Revision(self.revision + 1);
        for write in writes {
            let event = match write {
                KeyWrite::Put { key, value, lease } => {
                    let entry = Entry { key: key.clone(), value, written: next };
                    self.entries.insert(key, (entry.clone(), lease));
                    KeyEvent::Written(entry)
                }
                KeyWrite::Delete(key) => match self.entries.remove(&key) {
                    Some(_) => KeyEvent::Deleted(key),
                    None => continue,
                },
            };
            self.history.push((next, event));
            self.revision = next.0;
        }
        self.wake();
        Revision(self.revision)
    }
}

impl Coordinator for MemoryCoordinator {
    type Watch = MemoryWatch;

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, CoordinatorError> {
        let mut state = locked(&self.state);
        state.answers()?;
        state.leases_granted += 1;
        let lease = LeaseId(state.leases_granted);
        let ends = state.now + ttl;
        state.leases.insert(lease, (ttl, ends));
        Ok(lease)
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), CoordinatorError> {
        let mut state = locked(&self.state);
        state.answers()?;
        let now = state.now;
        let (ttl, ends) = state.leases.get_mut(&lease).ok_or(CoordinatorError::LeaseGone)?;
        *ends = now + *ttl;
        Ok(())
    }

    async fn release(&self, lease: LeaseId) -> Result<(), CoordinatorError> {
        let mut state = locked(&self.state);
        state.answers()?;
        state.end(lease);
        Ok(())
    }

    async fn read(&self, prefix: &str) -> Result<Listing, CoordinatorError> {
        let state = locked(&self.state);
        state.answers()?;
        let entries = state.entries.values().map(|(entry, _)| entry);
        Ok(Listing {
            entries: entries.filter(|it| it.key.starts_with(prefix)).cloned().collect(),
            revision: Revision(state.revision),
        })
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<MemoryWatch, CoordinatorError> {
        locked(&self.state).answers()?;
        Ok(MemoryWatch { state: self.state.clone(), prefix: prefix.to_owned(), after })
    }

    async fn compare_and_put(
        &self,
        conditions: &[Condition],
        writes: Vec<KeyWrite>,
    ) -> Result<PutResult, CoordinatorError> {
        let mut state = locked(&self.state);
        state.answers()?;
        let lost = |write: &KeyWrite| {
            matches!(write, KeyWrite::Put { lease: Some(lease), .. }
                if !state.leases.contains_key(lease))
        };
        if writes.iter().any(lost) {
            return Err(CoordinatorError::LeaseGone);
        }
        let holds = |condition: &Condition| {
            let found = state.entries.get(&condition.key).map(|(entry, _)| entry.written);
            found == condition.written
        };
        if !conditions.iter().all(holds) {
            return Ok(PutResult::Conflict);
        }
        Ok(PutResult::Written(state.write(writes)))
    }
}

impl KeyWatch for MemoryWatch {
    async fn next(&mut self) -> Result<Changes, CoordinatorError> {
        poll_fn(|context| {
            let mut state = locked(&self.state);
            if let Err(error) = state.answers() {
                return Poll::Ready(Err(error));
            }
            if self.after.0 < state.compacted {
                return Poll::Ready(Err(CoordinatorError::Compacted(state.compacted)));
            }
            let key = |event: &KeyEvent| match event {
                KeyEvent::Written(entry) => entry.key.starts_with(&self.prefix),
                KeyEvent::Deleted(key) => key.starts_with(&self.prefix),
            };
            let new = state.history.iter().filter(|(at, event)| *at > self.after && key(event));
            let events: Vec<KeyEvent> = new.map(|(_, event)| event.clone()).collect();
            if events.is_empty() {
                state.waiting.push(context.waker().clone());
                return Poll::Pending;
            }
            let revision = Revision(state.revision);
            self.after = revision;
            Poll::Ready(Ok(Changes { revision, events }))
        })
        .await
    }
}
