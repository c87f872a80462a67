//! The guests of several backends as one list.
//!
//! Idea: all backends are asked at once. If two of them report the same process or the same name,
//! the guest belongs to the first; but a process that has not answered yet comes last. Two guests
//! of one backend on the same socket of the same process are one guest: the one known before. An
//! order goes to the backend that has the guest. Settings that live with a guest count even if they
//! are kept by another backend that sees it.
//! Cost: that of the slowest backend; O(n log n) to join the lists. Limits: while the process of a
//! guest is unknown, only its name identifies it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;

use ballast_agent_proto::wire::HostMessage;
use ballast_model::{Action, GuestChange, GuestId, Outcome, OutcomeKind, Plan, Timestamp};
use futures_util::future::{join_all, select, select_all};

use crate::{Backend, GuestReading, HostMemory, SampleRequest, VsockAddress};

/// All backends, the most trusted first.
#[derive(Debug)]
pub struct Backends {
    all: Vec<Box<dyn Backend>>,
    /// The index of the backend that has a guest.
    owners: BTreeMap<GuestId, usize>,
    /// For guests whose own backend keeps no settings: the index of another backend that sees the
    /// guest and keeps them, and the guest's name there.
    settings_at: BTreeMap<GuestId, (usize, GuestId)>,
    /// Guests that are ignored, by backend and name, because an earlier backend has the guest or
    /// its name.
    left_out: BTreeSet<(usize, GuestId)>,
    /// The guest that each socket belongs to.
    holders: BTreeMap<Listener, GuestId>,
    notices: Vec<String>,
}

/// The index of a backend, a process, and the socket on which that process listens.
type Listener = (usize, u32, Arc<Path>);

/// Where the process of a guest listens, if known; `index` is that of the guest's backend.
fn listener(index: usize, reading: &GuestReading) -> Option<Listener> {
    Some((index, reading.pid?, Arc::clone(reading.listens_at.as_ref()?)))
}

impl Backends {
    /// Joins these backends, the most trusted first.
    pub fn new(all: Vec<Box<dyn Backend>>) -> Backends {
        Backends {
            all,
            owners: BTreeMap::new(),
            settings_at: BTreeMap::new(),
            left_out: BTreeSet::new(),
            holders: BTreeMap::new(),
            notices: Vec::new(),
        }
    }

    /// Samples the guests of all; see [`Backend::sample`].
    pub async fn sample(&mut self, request: SampleRequest<'_>) -> Vec<GuestReading> {
        let readings = join_all(self.all.iter_mut().map(|it| it.sample(request))).await;
        self.join(readings)
    }

    /// Sends `actions` to the backends that have their guests; see [`Backend::act_all`]. When
    /// `late` completes, the actions of backends that have not answered count as failed.
    pub async fn act_all(
        &mut self,
        now: Timestamp,
        actions: &[Action],
        late: impl Future<Output = ()>,
    ) -> Vec<Outcome> {
        let mut parts: Vec<Vec<Action>> = vec![Vec::new(); self.all.len()];
        for action in actions {
            if let Some(&owner) = self.owners.get(&action.guest) {
                parts[owner].push(action.clone());
            }
        }
        let mut answers: Vec<Option<Vec<Outcome>>> = vec![None; self.all.len()];
        let asked = self.all.iter_mut().zip(&parts).zip(&mut answers);
        let sent = join_all(asked.map(|((backend, part), answer)| async move {
            *answer = Some(backend.act_all(now, part).await);
        }));
        drop(select(pin!(sent), pin!(late)).await);
        let answers = answers.into_iter().zip(&parts).zip(&self.all);
        let outcomes = answers.map(|((answer, part), backend)| {
            let unanswered = |action: &Action| unanswered(action, backend.name());
            answer.unwrap_or_else(|| part.iter().map(unanswered).collect())
        });
        let mut outcomes: Vec<_> = outcomes.map(Vec::into_iter).collect();
        let mut in_order = Vec::with_capacity(actions.len());
        for action in actions {
            let owner = self.owners.get(&action.guest);
            let outcome = owner.and_then(|&owner| outcomes[owner].next());
            in_order.push(outcome.unwrap_or_else(|| gone(action)));
        }
        in_order
    }

    /// Informs all backends of a new plan; see [`Backend::planned`].
    pub fn planned(&mut self, plan: &Plan) {
        for backend in &mut self.all {
            backend.planned(plan);
        }
    }

    /// Sends a message to the agent inside a guest; see [`Backend::send_to_agent`].
    pub fn send_to_agent(&mut self, guest: &GuestId, message: &HostMessage) {
        if let Some(owner) = self.owners.get(guest).and_then(|&owner| self.all.get_mut(owner)) {
            owner.send_to_agent(guest, message);
        }
    }

    /// Waits until something happens to the guests of any backend; see [`Backend::wait_for_event`].
    pub async fn wait_for_event(&mut self) {
        match self.all.is_empty() {
            true => std::future::pending().await,
            false => drop(select_all(self.all.iter_mut().map(|it| it.wait_for_event())).await),
        }
    }

    /// Writes settings where the guest is defined; see [`Backend::persist`].
    ///
    /// # Errors
    /// As [`Backend::persist`], or the guest is gone.
    pub async fn persist(&mut self, guest: &GuestId, settings: &GuestChange) -> Result<(), String> {
        if let Some((index, id)) = self.settings_at.get(guest) {
            return self.all[*index].persist(id, settings).await;
        }
        let owner = self.owners.get(guest).and_then(|&owner| self.all.get_mut(owner));
        let owner = owner.ok_or_else(|| format!("{guest} is gone"))?;
        owner.persist(guest, settings).await
    }

    /// The host's memory, from the first backend that knows it better than the daemon's kernel; see
    /// [`Backend::host_memory`].
    pub fn host_memory(&self) -> Option<HostMemory> {
        self.all.iter().find_map(|backend| backend.host_memory())
    }

    /// How a guest's agent reaches the host by vsock; see [`Backend::vsock`].
    pub fn vsock(&self, guest: &GuestId) -> Option<VsockAddress> {
        self.all.get(*self.owners.get(guest)?)?.vsock(guest)
    }

    /// Messages of all backends for the log since the last call.
    pub fn take_notices(&mut self) -> Vec<String> {
        let mut notices = std::mem::take(&mut self.notices);
        for backend in &mut self.all {
            notices.extend(backend.take_notices());
        }
        notices
    }

    /// How many guests all backends refuse.
    pub fn refused(&self) -> usize {
        self.all.iter().map(|backend| backend.refused()).sum()
    }

    /// The readings of all backends, each with its backend's index, in the order in which they
    /// become guests: first those that have answered, by backend; of each backend, first those that
    /// had their sockets before.
    fn in_order(&self, readings: Vec<Vec<GuestReading>>) -> Vec<(usize, GuestReading)> {
        let mut all: Vec<(usize, GuestReading)> = Vec::new();
        for (index, readings) in readings.into_iter().enumerate() {
            all.extend(readings.into_iter().map(|reading| (index, reading)));
        }
        all.sort_by_cached_key(|(index, reading)| {
            let holder = listener(*index, reading).and_then(|it| self.holders.get(&it));
            (!reading.has_answered, *index, holder != Some(&reading.sample.id))
        });
        all
    }

    /// Joins the readings of all backends into one list, sorted by name.
    fn join(&mut self, readings: Vec<Vec<GuestReading>>) -> Vec<GuestReading> {
        let mut all: Vec<GuestReading> = Vec::new();
        let mut owners: BTreeMap<GuestId, usize> = BTreeMap::new();
        let mut left_out = BTreeSet::new();
        let mut settings_at = BTreeMap::new();
        // The index in `all` of the first guest with a process, and of the guest of a socket.
        let mut pids: BTreeMap<u32, usize> = BTreeMap::new();
        let mut listeners: BTreeMap<Listener, usize> = BTreeMap::new();
        for (index, reading) in self.in_order(readings) {
            let id = &reading.sample.id;
            let listener = listener(index, &reading);
            let same_socket = listener.as_ref().and_then(|it| listeners.get(it).copied());
            // A process that is not the hypervisor itself may listen for several guests.
            let same_process = reading.pid.and_then(|pid| pids.get(&pid).copied());
            let same_process = same_process.filter(|&at| owners[&all[at].sample.id] != index);
            let same_guest = same_socket.or(same_process);
            if let Some(same) = same_guest.map(|at| &mut all[at])
                && self.all[index].keeps_settings()
                && !settings_at.contains_key(&same.sample.id)
                && !self.all[owners[&same.sample.id]].keeps_settings()
            {
                same.settings = reading.settings.clone();
                settings_at.insert(same.sample.id.clone(), (index, id.clone()));
            }
            let same_guest = same_guest.map(|at| &all[at].sample.id);
            if same_guest.is_some() || owners.contains_key(id) {
                let key = (index, id.clone());
                if !self.left_out.contains(&key) {
                    let notice = self.notice(&owners, index, id, same_guest);
                    self.notices.push(notice);
                }
                left_out.insert(key);
                continue;
            }
            owners.insert(id.clone(), index);
            if let Some(pid) = reading.pid {
                pids.entry(pid).or_insert(all.len());
            }
            if let Some(listener) = listener {
                listeners.insert(listener, all.len());
            }
            all.push(reading);
        }
        let of_guest = |(listener, at): (Listener, usize)| (listener, all[at].sample.id.clone());
        self.holders = listeners.into_iter().map(of_guest).collect();
        (self.owners, self.settings_at, self.left_out) = (owners, settings_at, left_out);
        all.sort_by(|a, b| a.sample.id.cmp(&b.sample.id));
        all
    }

    fn notice(
        &self,
        owners: &BTreeMap<GuestId, usize>,
        index: usize,
        id: &GuestId,
        same_guest: Option<&GuestId>,
    ) -> String {
        let name = self.all[index].name();
        let owner = |id: &GuestId| owners.get(id).map_or("", |&owner| self.all[owner].name());
        match same_guest {
            Some(same) => {
                let owner = owner(same);
                format!("guest {id} of {name} is guest {same} of {owner}, which manages it")
            }
            None => {
                let owner = owner(id);
                format!("ignoring guest {id} of {name}: {owner} has a guest of that name")
            }
        }
    }
}

fn gone(action: &Action) -> Outcome {
    failed(action, "not sent: the guest is gone".to_owned())
}

fn unanswered(action: &Action, backend: &str) -> Outcome {
    failed(action, format!("{backend} gave no outcome in time; it may still be carried out"))
}

fn failed(action: &Action, why: String) -> Outcome {
    Outcome {
        guest: action.guest.clone(),
        generation: action.generation,
        target: action.target,
        kind: OutcomeKind::Failed(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::ready;
    use std::time::{Duration, SystemTime};

    use ballast_model::{Bytes, Generation, GuestSample, LinkState};

    use crate::Waiting;

    /// A backend with these guests, by name and process; each process has one socket. It fails
    /// every order with its own name. The backend `hung` never answers, and `libvirt` keeps
    /// settings. Guests of `mute` have not answered; those of `manager` have a socket each.
    #[derive(Debug)]
    struct Fake(&'static str, Vec<(&'static str, Option<u8>)>);

    impl Fake {
        fn settings(&self, priority: u8) -> Option<Arc<GuestChange>> {
            let change = GuestChange { priority: Some(priority), ..GuestChange::default() };
            self.keeps_settings().then(|| Arc::new(change))
        }
    }

    impl Backend for Fake {
        fn name(&self) -> &'static str {
            self.0
        }

        fn sample<'a>(&'a mut self, _request: SampleRequest<'a>) -> Waiting<'a, Vec<GuestReading>> {
            let reading = |&(name, pid): &(&str, Option<u8>)| {
                let sample = GuestSample::unknown(name.parse().unwrap(), LinkState::Up);
                let settings = self.settings(pid.unwrap_or_default());
                let socket = match self.0 {
                    "manager" => format!("/run/{name}"),
                    _ => format!("/run/{pid:?}"),
                };
                let listens_at = pid.map(|_| Arc::from(Path::new(&socket)));
                let (pid, has_answered) = (pid.map(u32::from), self.0 != "mute");
                GuestReading { sample, pid, listens_at, has_answered, settings }
            };
            let readings = self.1.iter().map(reading).collect();
            Box::pin(std::future::ready(readings))
        }

        fn act_all<'a>(
            &'a mut self,
            _now: Timestamp,
            actions: &'a [Action],
        ) -> Waiting<'a, Vec<Outcome>> {
            let answer = |action: &Action| {
                let kind = OutcomeKind::Failed(self.0.to_owned());
                Outcome { kind, ..gone(action) }
            };
            let outcomes = actions.iter().map(answer).collect();
            match self.0 {
                "hung" => Box::pin(std::future::pending()),
                _ => Box::pin(std::future::ready(outcomes)),
            }
        }

        fn keeps_settings(&self) -> bool {
            self.0 == "libvirt"
        }

        fn persist<'a>(
            &'a mut self,
            guest: &'a GuestId,
            _settings: &'a GuestChange,
        ) -> Waiting<'a, Result<(), String>> {
            Box::pin(std::future::ready(Err(format!("{guest} of {}", self.0))))
        }

        fn take_notices(&mut self) -> Vec<String> {
            Vec::new()
        }

        fn refused(&self) -> usize {
            1
        }
    }

    const REQUEST: SampleRequest<'_> = SampleRequest {
        now: Timestamp::ZERO,
        wall: SystemTime::UNIX_EPOCH,
        deadline: Duration::from_secs(1),
        only: None,
    };

    /// How orders to `guests` failed, if answers are not waited for.
    async fn order(backends: &mut Backends, guests: &[&str]) -> Vec<String> {
        let action = |guest: &&str| Action {
            guest: guest.parse().unwrap(),
            target: Bytes::mib(512),
            plug: None,
            generation: Generation(1),
            deadline: Timestamp::ZERO,
        };
        let actions: Vec<Action> = guests.iter().map(action).collect();
        let outcomes = backends.act_all(Timestamp::ZERO, &actions, ready(())).await;
        let describe = |outcome: &Outcome| match &outcome.kind {
            OutcomeKind::Failed(who) => format!("{} {who}", outcome.guest),
            kind => panic!("{kind:?}"),
        };
        outcomes.iter().map(describe).collect()
    }

    #[tokio::test]
    async fn a_backend_that_never_answers_does_not_stop_the_others() {
        let hung = Fake("hung", vec![("a", Some(7))]);
        let other = Fake("libvirt", vec![("b", Some(8))]);
        let mut backends = Backends::new(vec![Box::new(hung), Box::new(other)]);
        backends.sample(REQUEST).await;
        let late = "a hung gave no outcome in time; it may still be carried out";
        assert_eq!(order(&mut backends, &["b", "a"]).await, ["b libvirt", late]);
    }

    #[tokio::test]
    async fn a_guest_two_backends_see_is_one_guest() {
        let first = Fake("qmp", vec![("b", Some(7)), ("d", None)]);
        let second = Fake("libvirt", vec![("a", Some(8)), ("c", Some(7)), ("d", Some(9))]);
        let mut backends = Backends::new(vec![Box::new(first), Box::new(second)]);
        for count in [2, 0] {
            let readings = backends.sample(REQUEST).await;
            let names: Vec<&str> = readings.iter().map(|it| it.sample.id.as_str()).collect();
            assert_eq!(names, ["a", "b", "d"]);
            let priority = |it: &GuestReading| it.settings.as_ref().and_then(|it| it.priority);
            let priorities: Vec<_> = readings.iter().map(priority).collect();
            assert_eq!(priorities, [Some(8), Some(7), None], "d is not known to be one guest");
            assert_eq!(backends.take_notices().len(), count, "it is said once");
        }
        let outcomes = order(&mut backends, &["d", "a", "x", "b"]).await;
        assert_eq!(outcomes, ["d qmp", "a libvirt", "x not sent: the guest is gone", "b qmp"]);
        assert_eq!(backends.refused(), 2);
        let guests = ["d", "a", "b", "x"].map(|guest| guest.parse().unwrap());
        let mut kept = Vec::new();
        for guest in &guests {
            kept.push(backends.persist(guest, &GuestChange::default()).await.unwrap_err());
        }
        assert_eq!(kept, ["d of qmp", "a of libvirt", "c of libvirt", "x is gone"]);
    }

    /// The names of all guests.
    async fn names(backends: &mut Backends) -> Vec<String> {
        let readings = backends.sample(REQUEST).await;
        readings.iter().map(|it| it.sample.id.to_string()).collect()
    }

    #[tokio::test]
    async fn of_guests_on_one_socket_the_known_one_stays() {
        let both = || -> Box<dyn Backend> {
            Box::new(Fake("qmp", vec![("a", Some(7)), ("b", Some(7)), ("c", Some(8))]))
        };
        let one = |name| -> Box<dyn Backend> { Box::new(Fake("qmp", vec![(name, Some(7))])) };
        let mut backends = Backends::new(vec![one("b")]);
        assert_eq!(names(&mut backends).await, ["b"]);
        for count in [1, 0] {
            backends.all[0] = both();
            assert_eq!(names(&mut backends).await, ["b", "c"]);
            let notices = backends.take_notices();
            assert_eq!(notices.len(), count, "it is said once");
            let expected = "guest a of qmp is guest b of qmp, which manages it";
            assert!(notices.iter().all(|it| it == expected), "{notices:?}");
        }
        let outcomes = order(&mut backends, &["a", "b"]).await;
        assert_eq!(outcomes, ["a not sent: the guest is gone", "b qmp"]);
        let mut backends = Backends::new(vec![both()]);
        assert_eq!(names(&mut backends).await, ["a", "c"], "nobody was known before");
        backends.all[0] = one("b");
        assert_eq!(names(&mut backends).await, ["b"]);
    }

    #[tokio::test]
    async fn a_process_may_listen_for_several_guests() {
        let manager = Fake("manager", vec![("a", Some(7)), ("b", Some(7))]);
        let other = Fake("libvirt", vec![("c", Some(7))]);
        let mut backends = Backends::new(vec![Box::new(manager), Box::new(other)]);
        assert_eq!(names(&mut backends).await, ["a", "b"]);
    }

    #[tokio::test]
    async fn who_has_not_answered_takes_no_guests_place() {
        let mute = Fake("mute", vec![("a", Some(7)), ("c", Some(8)), ("d", Some(9))]);
        let other = Fake("libvirt", vec![("b", Some(7)), ("c", None)]);
        let mut backends = Backends::new(vec![Box::new(mute), Box::new(other)]);
        assert_eq!(names(&mut backends).await, ["b", "c", "d"]);
        let outcomes = order(&mut backends, &["b", "c", "d"]).await;
        assert_eq!(outcomes, ["b libvirt", "c libvirt", "d mute"]);
    }
}
