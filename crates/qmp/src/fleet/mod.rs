//! All guests of a host: finds them, keeps a connection to each, samples them and carries out
//! actions.
//!
//! Idea: one task per guest moves bytes. Each tick the fleet queries all guests at once and waits
//! until all have answered or the deadline has passed. A late guest is sampled with its last
//! readings, which have aged; a guest known to be slower than the deadline does not delay later
//! ticks. A killed hypervisor leaves its socket behind: a socket on which no process has listened
//! for some time is not a guest until a process listens again.
//!
//! Cost: see `docs/benchmarks/`; the aim is 60 µs of processor time per guest and tick.
//! Limits: [`GUESTS_MAX`] guests. Finding guests makes short blocking calls to the file system.

mod clock;
mod driver;
mod folder;
mod slot;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ballast_backend::{Backend, GuestReading, SampleRequest, VsockAddress, Waiting};
use ballast_model::{Action, GuestId, LinkDown, Outcome, OutcomeKind, Timestamp};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use crate::guest::Ticket;
use crate::link::GuestLink;
use clock::CallerClock;
use folder::{GuestSocket, SocketFolder};
use slot::{GuestSlot, SlotState, TickBarrier};

pub use folder::{GUESTS_MAX, Notice, list_sockets};

/// Most notices kept; further ones are dropped.
const NOTICES_MAX: usize = 1000;
/// How long to wait for an outcome after the command timeout has passed: in this time the guest's
/// monitor can report why the reply is late.
const REPORT_TIME: Duration = Duration::from_millis(50);

/// Settings of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetConfig {
    /// Folders with the guests' sockets, `NAME.sock`. If two sockets have the same name, the one in
    /// the earlier folder counts.
    pub folders: Vec<PathBuf>,
    /// After this time without a reply a guest counts as not answering, and without a greeting its
    /// socket counts as taken by another client.
    pub command_timeout: Duration,
    /// Seed of the random waits between connection attempts.
    pub seed: u64,
    /// Most guests; further ones are refused with a notice. At most [`GUESTS_MAX`] count.
    pub guests_max: usize,
}

impl FleetConfig {
    /// QEMU answers in well under a millisecond unless its main loop is blocked; two seconds cover
    /// the delays of a host that swaps.
    pub const COMMAND_TIMEOUT_DEFAULT: Duration = Duration::from_secs(2);

    /// The given folders, defaults for the rest.
    pub fn new(folders: Vec<PathBuf>) -> Self {
        let command_timeout = FleetConfig::COMMAND_TIMEOUT_DEFAULT;
        FleetConfig { folders, command_timeout, seed: 0, guests_max: GUESTS_MAX }
    }
}

/// All guests of a host. Dropping it closes all connections.
///
/// Its methods need a tokio runtime with I/O and time; a current-thread runtime is enough.
#[derive(Debug)]
pub struct Fleet {
    command_timeout: Duration,
    seed: u64,
    clock: Arc<CallerClock>,
    folders: Vec<SocketFolder>,
    members: BTreeMap<GuestId, FleetMember>,
    notices: Vec<Notice>,
    duplicates: BTreeSet<PathBuf>,
    guests_max: usize,
    /// Sockets of guests refused because of `guests_max`.
    refused: BTreeSet<PathBuf>,
}

#[derive(Debug)]
struct FleetMember {
    slot: Arc<GuestSlot>,
    path: Arc<Path>,
    inode: u64,
    /// Whether its socket still exists.
    is_listed: bool,
    /// Whether no process listens on it: not a guest, but it may become one again.
    is_deserted: bool,
    task: AbortHandle,
}

impl Drop for FleetMember {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Fleet {
    /// A fleet that has not looked for guests yet.
    pub fn new(config: FleetConfig) -> Self {
        Fleet {
            command_timeout: config.command_timeout,
            seed: config.seed,
            clock: Arc::new(CallerClock::new()),
            folders: config.folders.into_iter().map(SocketFolder::new).collect(),
            members: BTreeMap::new(),
            notices: Vec::new(),
            duplicates: BTreeSet::new(),
            guests_max: config.guests_max.min(GUESTS_MAX),
            refused: BTreeSet::new(),
        }
    }

    /// Looks for guests and queries all of them. Returns within `deadline` with the readings of
    /// each, sorted by name. Ages are as of the return.
    ///
    /// `now` and `wall` are the caller's clocks at the time of the call. Guests found by this call
    /// are waited for too, so that one call suffices to sample a host.
    pub async fn sample(
        &mut self,
        now: Timestamp,
        wall: SystemTime,
        deadline: Duration,
    ) -> Vec<GuestReading> {
        self.clock.set(now, wall);
        self.look_for_guests(wall);
        self.query(now, deadline, |_| true).await
    }

    /// Queries only `these` guests; returns older readings of the others. Does not look for new
    /// guests.
    pub async fn sample_only(
        &mut self,
        now: Timestamp,
        wall: SystemTime,
        deadline: Duration,
        these: &BTreeSet<GuestId>,
    ) -> Vec<GuestReading> {
        self.clock.set(now, wall);
        self.query(now, deadline, |id| these.contains(id)).await
    }

    async fn query(
        &self,
        now: Timestamp,
        deadline: Duration,
        is_queried: impl Fn(&GuestId) -> bool,
    ) -> Vec<GuestReading> {
        let tick = Arc::new(TickBarrier::default());
        for (_, member) in self.members.iter().filter(|(id, _)| is_queried(id)) {
            let mut state = member.slot.lock();
            let is_slow = state.link.guest.poll_took().is_some_and(|took| took >= deadline);
            if state.link.guest.begin_sample(now) && !is_slow {
                tick.join();
                state.tick = Some(Arc::clone(&tick));
            }
            state.wake();
        }
        // After the deadline, late guests give their last readings.
        let _ = tokio::time::timeout(deadline, tick.all_done()).await;
        let (now, _) = self.clock.read();
        let mut readings = Vec::new();
        for (id, member) in self.members.iter().filter(|(_, member)| !member.is_deserted) {
            let mut state = member.slot.lock();
            state.tick = None;
            let guest = &state.link.guest;
            readings.push(GuestReading {
                sample: guest.sample(id.clone(), now),
                pid: guest.pid(),
                listens_at: state.listens_at.clone(),
                has_answered: guest.was_greeted(),
                settings: None,
            });
        }
        readings
    }

    /// Carries out one action; see [`Fleet::act_all`].
    pub async fn act(&mut self, now: Timestamp, action: &Action) -> Outcome {
        let deadline = self.order_deadline();
        let pending = self.begin_action(now, action);
        finish(action, pending, deadline).await
    }

    /// Sends `actions` in this order, all at once, and returns their outcomes in the same order.
    /// All share one deadline, soon after the command timeout: however many guests do not answer,
    /// the wait is no longer. An action whose outcome is late is [`OutcomeKind::Failed`] and may
    /// still be carried out.
    ///
    /// Not sent: an action of an older plan than the last one sent to the same guest
    /// ([`OutcomeKind::Superseded`]), an action whose deadline has passed
    /// ([`OutcomeKind::Expired`]), and an action for a guest that does not answer
    /// ([`OutcomeKind::Failed`]).
    pub async fn act_all(&mut self, now: Timestamp, actions: &[Action]) -> Vec<Outcome> {
        let deadline = self.order_deadline();
        let pending: Vec<_> = actions.iter().map(|action| self.begin_action(now, action)).collect();
        let mut outcomes = Vec::with_capacity(actions.len());
        for (action, pending) in actions.iter().zip(pending) {
            outcomes.push(finish(action, pending, deadline).await);
        }
        outcomes
    }

    /// The deadline for the outcomes of orders sent now.
    fn order_deadline(&self) -> Instant {
        Instant::now() + self.command_timeout + REPORT_TIME
    }

    /// Takes the notices since the last call, oldest first.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// The number of known guests.
    pub fn len(&self) -> usize {
        self.members.values().filter(|member| !member.is_deserted).count()
    }

    /// The number of guests that are refused because there are [`FleetConfig::guests_max`] already.
    pub fn refused(&self) -> usize {
        self.refused.len()
    }

    /// Whether no guest is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn begin_action(&mut self, now: Timestamp, action: &Action) -> PendingOutcome {
        self.clock.set_now(now);
        self.with_guest(&action.guest, |state| state.link.begin_action(action, now))
    }

    fn with_guest(
        &self,
        guest: &GuestId,
        order: impl FnOnce(&mut SlotState) -> Result<Ticket, OutcomeKind>,
    ) -> PendingOutcome {
        let Some(member) = self.members.get(guest) else {
            return Err(OutcomeKind::Failed("not sent: the guest is gone".to_owned()));
        };
        let mut state = member.slot.lock();
        let ticket = order(&mut state)?;
        let (sender, receiver) = oneshot::channel();
        state.waiting.push((ticket, sender));
        state.wake();
        Ok(receiver)
    }

    fn look_for_guests(&mut self, wall: SystemTime) {
        self.replace_ended_tasks();
        // The name of a deserted socket is free for another socket.
        let mut is_changed = self.mark_deserted();
        // There may be room now for a guest that was refused.
        is_changed |= !self.refused.is_empty() && self.members.len() < self.guests_max;
        for folder in &mut self.folders {
            is_changed |= folder.refresh(wall, &mut self.notices);
        }
        if is_changed {
            for member in self.members.values_mut() {
                member.is_listed = false;
            }
            let sockets: Vec<GuestSocket> =
                self.folders.iter().flat_map(SocketFolder::sockets).cloned().collect();
            let (mut duplicates, mut refused) = (BTreeSet::new(), BTreeSet::new());
            for socket in sockets {
                self.add_socket(socket, &mut duplicates, &mut refused);
            }
            (self.duplicates, self.refused) = (duplicates, refused);
        }
        let notices = &mut self.notices;
        self.members.retain(|guest, member| {
            // Unlinking the socket does not end a guest with a connection.
            let keep = member.is_listed || member.slot.lock().link.guest.is_connected();
            if !keep && !member.is_deserted {
                notices.push(Notice::Gone { guest: guest.clone() });
            }
            keep
        });
        self.notices.truncate(NOTICES_MAX);
    }

    /// Starts another task for a guest whose task panicked: it never ends otherwise.
    fn replace_ended_tasks(&mut self) {
        for member in self.members.values_mut() {
            if member.task.is_finished() {
                let why = LinkDown::Closed("the task of its connection panicked".to_owned());
                // The wait before the next attempt is ignored: the new task connects at once.
                let _ = member.slot.lock().disconnected(why);
                member.task = spawn(&member.slot, &member.path, &self.clock);
            }
        }
    }

    /// Updates which sockets are deserted; returns whether any is newly deserted.
    fn mark_deserted(&mut self) -> bool {
        let mut any_new = false;
        for (guest, member) in &mut self.members {
            let is_deserted = member.slot.lock().link.is_deserted();
            if is_deserted == member.is_deserted {
                continue;
            }
            member.is_deserted = is_deserted;
            any_new |= is_deserted;
            let (guest, path) = (guest.clone(), member.path.to_path_buf());
            self.notices.push(match is_deserted {
                true => Notice::Deserted { guest, path },
                false => Notice::Appeared { guest, path },
            });
        }
        any_new
    }

    /// Handles a socket found: of a new guest, of a known one, or a second one of the same name.
    /// Adds to `duplicates` or `refused` what it ignores.
    fn add_socket(
        &mut self,
        socket: GuestSocket,
        duplicates: &mut BTreeSet<PathBuf>,
        refused: &mut BTreeSet<PathBuf>,
    ) {
        let GuestSocket { guest, path, inode } = socket;
        if let Some(member) = self.members.get_mut(&guest) {
            if member.path == path {
                member.is_listed = true;
                if member.inode != inode {
                    member.inode = inode;
                    let mut state = member.slot.lock();
                    state.retry = true;
                    state.wake();
                }
                return;
            }
            let is_used = member.is_listed && !member.is_deserted;
            if is_used || member.slot.lock().link.guest.is_connected() {
                let path = path.to_path_buf();
                if !self.duplicates.contains(&path) {
                    let used = member.path.to_path_buf();
                    self.notices.push(Notice::Duplicate { guest, path: path.clone(), used });
                }
                duplicates.insert(path);
                return;
            }
        } else if self.members.len() >= self.guests_max {
            let path = path.to_path_buf();
            if !self.refused.contains(&path) {
                let guests_max = self.guests_max;
                self.notices.push(Notice::Refused { guest, path: path.clone(), guests_max });
            }
            refused.insert(path);
            return;
        }
        self.notices.push(Notice::Appeared { guest: guest.clone(), path: path.to_path_buf() });
        let link = GuestLink::new(self.command_timeout, seed_of(&guest, self.seed));
        let slot = Arc::new(GuestSlot::new(link));
        let task = spawn(&slot, &path, &self.clock);
        let member = FleetMember { slot, path, inode, is_listed: true, is_deserted: false, task };
        self.members.insert(guest, member);
    }
}

impl Backend for Fleet {
    fn name(&self) -> &'static str {
        "QMP"
    }

    fn sample<'a>(&'a mut self, request: SampleRequest<'a>) -> Waiting<'a, Vec<GuestReading>> {
        let SampleRequest { now, wall, deadline, only } = request;
        match only {
            None => Box::pin(self.sample(now, wall, deadline)),
            Some(these) => Box::pin(self.sample_only(now, wall, deadline, these)),
        }
    }

    fn act_all<'a>(
        &'a mut self,
        now: Timestamp,
        actions: &'a [Action],
    ) -> Waiting<'a, Vec<Outcome>> {
        Box::pin(self.act_all(now, actions))
    }

    fn vsock(&self, guest: &GuestId) -> Option<VsockAddress> {
        let member = self.members.get(guest)?;
        member.slot.lock().link.guest.vsock_cid().map(VsockAddress::Cid)
    }

    fn take_notices(&mut self) -> Vec<String> {
        self.take_notices().iter().map(ToString::to_string).collect()
    }

    fn refused(&self) -> usize {
        self.refused()
    }
}

/// Starts the task that keeps a guest's connection.
fn spawn(slot: &Arc<GuestSlot>, path: &Arc<Path>, clock: &Arc<CallerClock>) -> AbortHandle {
    let task = driver::drive(Arc::clone(slot), Arc::clone(path), Arc::clone(clock));
    tokio::spawn(task).abort_handle()
}

/// The seed of a guest's random waits.
fn seed_of(guest: &GuestId, seed: u64) -> u64 {
    let bytes = guest.as_str().bytes();
    bytes.fold(seed, |seed, byte| seed.wrapping_mul(0x0100_0000_01b3).wrapping_add(u64::from(byte)))
}

/// A receiver for the outcome of an order, or why the order was not sent.
type PendingOutcome = Result<oneshot::Receiver<OutcomeKind>, OutcomeKind>;

/// The outcome, if it comes before `deadline` or is there already.
async fn outcome(pending: PendingOutcome, deadline: Instant) -> OutcomeKind {
    let receiver = match pending {
        Err(not_sent) => return not_sent,
        Ok(receiver) => receiver,
    };
    let failed = |how: &str| OutcomeKind::Failed(how.to_owned());
    match timeout_at(deadline, receiver).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => failed("the connection was closed before the reply"),
        Err(_) => failed("no outcome in time; it may still be carried out"),
    }
}

async fn finish(action: &Action, pending: PendingOutcome, deadline: Instant) -> Outcome {
    Outcome {
        guest: action.guest.clone(),
        generation: action.generation,
        target: action.target,
        kind: outcome(pending, deadline).await,
    }
}

#[cfg(test)]
mod tests {
    use ballast_model::{Bytes, Generation, LinkState};
    use ballast_qmp_testing::{Peer, PeerConfig};

    use super::*;

    #[tokio::test]
    async fn a_guest_whose_task_ended_is_connected_anew() {
        let folder = tempfile::tempdir().unwrap();
        let _peer = Peer::spawn(&folder.path().join("a.sock"), PeerConfig::default()).unwrap();
        let mut fleet = Fleet::new(FleetConfig::new(vec![folder.path().to_owned()]));
        let patience = Duration::from_secs(30);
        let now = Timestamp::ZERO;
        let readings = fleet.sample(now, SystemTime::now(), patience).await;
        assert_eq!(readings[0].sample.link, LinkState::Up);
        let member = fleet.members.values().next().unwrap();
        member.task.abort();
        while !member.task.is_finished() {
            tokio::task::yield_now().await;
        }
        let action = Action {
            guest: "a".parse().unwrap(),
            target: Bytes::mib(512),
            plug: None,
            generation: Generation(1),
            deadline: now + patience,
        };
        let begun = Instant::now();
        while fleet.act(now, &action).await.kind != OutcomeKind::Accepted {
            assert!(begun.elapsed() < patience);
            tokio::time::sleep(Duration::from_millis(1)).await;
            fleet.sample(now, SystemTime::now(), patience).await;
        }
    }

    #[tokio::test]
    async fn the_number_of_a_vsock_device_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let (with, without) = (Some(7), None);
        let peer = |(name, vsock_cid): (&str, Option<u32>)| {
            let config = PeerConfig { vsock_cid, ..PeerConfig::default() };
            Peer::spawn(&folder.path().join(name), config).unwrap()
        };
        let _peers = [("a.sock", with), ("b.sock", without)].map(peer);
        let mut fleet = Fleet::new(FleetConfig::new(vec![folder.path().to_owned()]));
        fleet.sample(Timestamp::ZERO, SystemTime::now(), Duration::from_secs(30)).await;
        let vsock = |name: &str| fleet.vsock(&name.parse().unwrap());
        assert_eq!((vsock("a"), vsock("b"), vsock("c")), (Some(VsockAddress::Cid(7)), None, None));
    }

    #[tokio::test]
    async fn an_outcome_counts_however_late_it_is_asked_for() {
        let long_ago = Instant::now();
        let (sender, receiver) = oneshot::channel();
        sender.send(OutcomeKind::Accepted).unwrap();
        assert_eq!(outcome(Ok(receiver), long_ago).await, OutcomeKind::Accepted);
        let (sender, receiver) = oneshot::channel();
        let late = outcome(Ok(receiver), long_ago).await;
        assert!(matches!(late, OutcomeKind::Failed(how) if how.contains("may still be")));
        drop(sender);
    }
}
