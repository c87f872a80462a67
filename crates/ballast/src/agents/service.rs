//! All guests' agents.
//!
//! Idea: the daemon says each tick which guests there are; one that has a socket of its name in one of the folders gets a task
//! ([`follow`](super::follow)), which ends with the guest. After a decision the guests whose requests it took in are
//! answered.
//! Cost: a look at the latest state a guest and tick, and one at the folders for each guest without an agent's port.
//! Limits: [`GUESTS_MAX`] guests; [`ORDERS_MAX`] orders that a guest has not taken yet, what comes beyond is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ballast_agent_host::Session;
use ballast_agent_wire::{Balloon, Outcome};
use ballast_model::{Bytes, GuestId, MemoryRequest, RequestKind, Timestamp};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use super::follow::follow;
use super::latest::{Heard, Shared};
use crate::config::AgentSettings;
use crate::daemon::clock;

/// Least time between two emergencies of a guest, where the policy has no interval of its own.
pub(crate) const EMERGENCY_PERIOD: Duration = Duration::from_secs(1);
/// Most agents that are listened to.
const GUESTS_MAX: usize = 4096;
/// Orders that wait to be taken.
const ORDERS_MAX: usize = 8;
/// Where the balloon lacks less than this, it is left alone.
const SHRINK_MIN: Bytes = Bytes::mib(16);
/// Time that programs are given to give memory back.
const SHRINK_TIME: Duration = Duration::from_secs(2);
/// How long the balloon waits for them at most.
const SHRINK_WAIT: Duration = Duration::from_secs(3);
/// Least time between two orders, so that balloons are not for ever waiting.
const SHRINK_APART: Duration = Duration::from_secs(10);

/// What a task is to do.
#[derive(Debug)]
pub(super) enum Order {
    /// Answers the request with that number.
    Answer(u64, Answer),
    Balloon(Balloon),
    /// Has programs give back so much.
    Shrink(Bytes),
    /// Lets them grow again.
    Release,
}

impl Order {
    pub(super) fn carry_out(self, session: &mut Session, shared: &Shared, now: Timestamp) {
        match self {
            // A session answers the last request, which may have come since.
            Order::Answer(number, Answer { outcome, bytes, why }) => {
                if shared.request() == Some(number) {
                    session.answer(outcome, bytes, why, now);
                }
            }
            Order::Balloon(state) => session.balloon(state, now),
            Order::Shrink(bytes) => drop(session.shrink(bytes, SHRINK_TIME, now)),
            Order::Release => session.release(now),
        }
    }
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    outcome: Outcome,
    bytes: Bytes,
    why: Option<String>,
}

impl Answer {
    /// To a guest that asked for memory, or offered some, and is to change from `holds` to `target`; `why` where
    /// that is not all it asked for.
    pub(crate) fn to(request: MemoryRequest, holds: Bytes, target: Bytes, why: &str) -> Answer {
        let bytes = match request.kind {
            RequestKind::More | RequestKind::Emergency => target.saturating_sub(holds),
            RequestKind::Less => holds.saturating_sub(target),
        };
        let outcome = match bytes {
            bytes if bytes >= request.amount => Outcome::Granted,
            Bytes::ZERO => Outcome::Refused,
            _ => Outcome::Partly,
        };
        let why = (outcome != Outcome::Granted).then(|| why.to_owned());
        Answer { outcome, bytes, why }
    }
}

/// What a task is made with.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    agents: AgentSettings,
    pub(super) shared: Arc<Shared>,
    pub(super) urgent: Arc<Notify>,
}

impl Settings {
    pub(super) fn session(&self) -> ballast_agent_host::Settings {
        ballast_agent_host::Settings {
            statistics_period: self.agents.period,
            emergency_period: self.agents.emergency_period,
            known: self.shared.known(),
        }
    }
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Agents {
    settings: AgentSettings,
    followed: BTreeMap<GuestId, Followed>,
    urgent: Arc<Notify>,
}

#[derive(Debug)]
struct Followed {
    shared: Arc<Shared>,
    orders: mpsc::Sender<Order>,
    /// The last request that was answered.
    answered: Option<u64>,
    balloon: Balloon,
    /// When its programs were last told to give memory back.
    shrinks_since: Option<Timestamp>,
    /// Whether they were told to since they may grow.
    is_shrunk: bool,
    task: JoinHandle<()>,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Agents {
    /// Listens to nobody yet.
    pub(crate) fn new(settings: AgentSettings) -> Agents {
        Agents { settings, followed: BTreeMap::new(), urgent: Arc::new(Notify::new()) }
    }

    /// Waits for an emergency: there is a guest whose reclaim fails.
    pub(crate) fn urgent(&self) -> Arc<Notify> {
        Arc::clone(&self.urgent)
    }

    /// The guests that have called for a tick since this was last asked.
    pub(crate) fn callers(&self) -> BTreeSet<GuestId> {
        let called = self.followed.iter().filter(|(_, followed)| followed.shared.has_called());
        called.map(|(id, _)| id.clone()).collect()
    }

    /// No longer listens to any but these.
    pub(crate) fn keep(&mut self, mut is_there: impl FnMut(&GuestId) -> bool) {
        self.followed.retain(|id, _| is_there(id));
    }

    /// Listens to the agent of a guest that can have so much memory, and says what is known by it; `None`: it has no
    /// port.
    pub(crate) fn look(&mut self, id: &GuestId, memory_max: Option<Bytes>) -> Option<Heard> {
        if !self.followed.contains_key(id) {
            if self.followed.len() >= GUESTS_MAX {
                return None;
            }
            let name = format!("{id}.sock");
            let mut paths = self.settings.folders.iter().map(|folder| folder.join(&name));
            let path = paths.find(|path| path.exists())?;
            self.followed.insert(id.clone(), self.start(path));
        }
        let followed = self.followed.get(id)?;
        followed.shared.set_memory_max(memory_max);
        Some(followed.shared.take(clock::now()))
    }

    /// Answers a guest's request with that number, once.
    pub(crate) fn answer(&mut self, id: &GuestId, number: u64, answer: Answer) {
        let Some(followed) = self.followed.get_mut(id) else { return };
        if followed.answered.is_some_and(|answered| answered >= number) {
            return;
        }
        if followed.orders.try_send(Order::Answer(number, answer)).is_ok() {
            followed.answered = Some(number);
        }
    }

    /// Tells a guest what its balloon does, where that is something else than before.
    pub(crate) fn balloon(&mut self, id: &GuestId, holds: Bytes, target: Bytes) {
        let Some(followed) = self.followed.get_mut(id) else { return };
        let state = match target.cmp(&holds) {
            std::cmp::Ordering::Less => Balloon::Inflating,
            std::cmp::Ordering::Greater => Balloon::Deflating,
            std::cmp::Ordering::Equal => Balloon::Resting,
        };
        if followed.balloon != state && followed.orders.try_send(Order::Balloon(state)).is_ok() {
            followed.balloon = state;
        }
    }

    /// Whether the balloon of a guest, of which `free` is in no use, is to wait before it takes the guest from what it
    /// `holds` down to `target`: its programs give back what they can do without first, so that its kernel need
    /// not swap for the balloon. Tells them to where they have not been told lately; lets them grow again where the guest
    /// grows.
    pub(crate) fn waits(
        &mut self,
        id: &GuestId,
        holds: Bytes,
        free: Option<Bytes>,
        target: Bytes,
    ) -> bool {
        let now = clock::now();
        let is_wanted = self.settings.shrink;
        let Some(followed) = self.followed.get_mut(id) else { return false };
        if target > holds {
            if followed.is_shrunk && followed.orders.try_send(Order::Release).is_ok() {
                followed.is_shrunk = false;
            }
            return false;
        }
        let since = followed.shrinks_since.map(|since| now.saturating_since(since));
        if since.is_some_and(|since| since < SHRINK_APART) {
            return followed.shared.is_shrinking() && since < Some(SHRINK_WAIT);
        }
        let bytes = holds.saturating_sub(target).saturating_sub(free.unwrap_or_default());
        let is_told = is_wanted
            && bytes >= SHRINK_MIN
            && followed.shared.begin_shrinking()
            && followed.orders.try_send(Order::Shrink(bytes)).is_ok();
        if is_told {
            (followed.shrinks_since, followed.is_shrunk) = (Some(now), true);
        }
        is_told
    }

    fn start(&self, path: PathBuf) -> Followed {
        let shared = Arc::new(Shared::default());
        let (orders, taken) = mpsc::channel(ORDERS_MAX);
        let settings = Settings {
            agents: self.settings.clone(),
            shared: Arc::clone(&shared),
            urgent: Arc::clone(&self.urgent),
        };
        let task = tokio::spawn(async move { follow(&path, &settings, taken).await });
        Followed {
            shared,
            orders,
            answered: None,
            balloon: Balloon::Resting,
            shrinks_since: None,
            is_shrunk: false,
            task,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_say_what_comes_of_it() {
        let asked = |kind| MemoryRequest { number: 1, kind, amount: Bytes::mib(64) };
        let more = |target| Answer::to(asked(RequestKind::More), Bytes::mib(100), target, "short");
        let answer = more(Bytes::mib(200));
        assert_eq!(
            (answer.outcome, answer.bytes, answer.why),
            (Outcome::Granted, Bytes::mib(100), None)
        );
        let answer = more(Bytes::mib(110));
        assert_eq!((answer.outcome, answer.bytes), (Outcome::Partly, Bytes::mib(10)));
        assert_eq!(answer.why.as_deref(), Some("short"));
        assert_eq!(more(Bytes::mib(90)).outcome, Outcome::Refused);
        let less = asked(RequestKind::Less);
        let answer = Answer::to(less, Bytes::mib(100), Bytes::mib(36), "");
        assert_eq!((answer.outcome, answer.bytes), (Outcome::Granted, Bytes::mib(64)));
    }
}
