//! All guests of a host: finds them, keeps a connection to each, samples them and carries actions
//! out.
//!
//! Idea: one task per guest moves bytes; each tick the fleet puts the tick's questions to all guests
//! at once and waits until all have answered or the deadline has come. A guest that is late is not
//! waited for: its last readings are given, older by now, and a guest known to be slower than the
//! deadline does not hold the next tick up again. A hypervisor that was killed leaves its socket
//! behind: a socket on which nobody listens for some time is no guest, until somebody does again.
//!
//! Cost: see `docs/benchmarks/`; the aim is 60 µs of processor time per guest and tick.
//! Limits: [`GUESTS_MAX`] guests. Finding guests makes short blocking calls to the file system.

mod clock;
mod driver;
mod folder;
mod gate;
mod slot;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ballast_model::{Action, GuestId, GuestSample, Outcome, OutcomeKind, Timestamp};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::guest::{Guest, Ticket};
use clock::Clock;
use folder::{Folder, Socket};
use slot::{Slot, State, Tick};

pub use folder::{GUESTS_MAX, Notice};

/// Most notices kept until they are taken; more are dropped, newest first.
const NOTICES_MAX: usize = 1000;

/// How a fleet is to work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetConfig {
    /// Folders in which sockets `NAME.sock` are guests. Of two sockets with one name the one in the
    /// earlier folder counts.
    pub folders: Vec<PathBuf>,
    /// How long a command may take before the guest counts as not answering, and how long a
    /// connection may take to greet before its socket counts as taken by another client.
    pub command_timeout: Duration,
    /// Determines how reconnections are spread over time.
    pub seed: u64,
}

impl FleetConfig {
    /// QEMU answers in well under a millisecond unless its main loop is held up; two seconds ride
    /// out what the host's own swapping does to it.
    pub const COMMAND_TIMEOUT_DEFAULT: Duration = Duration::from_secs(2);

    /// The given folders, defaults for the rest.
    pub fn new(folders: Vec<PathBuf>) -> Self {
        let command_timeout = FleetConfig::COMMAND_TIMEOUT_DEFAULT;
        FleetConfig { folders, command_timeout, seed: 0 }
    }
}

/// What was read of one guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestReading {
    /// All that the hypervisor tells; `resident` is left `None`.
    pub sample: GuestSample,
    /// The hypervisor's process, from which resident memory can be read. `None` before the first
    /// connection.
    pub pid: Option<u32>,
}

/// All guests of a host. Dropping it closes all connections.
///
/// Its methods need a tokio runtime with I/O and time; a current-thread runtime is enough.
#[derive(Debug)]
pub struct Fleet {
    command_timeout: Duration,
    seed: u64,
    clock: Arc<Clock>,
    folders: Vec<Folder>,
    members: BTreeMap<GuestId, Member>,
    notices: Vec<Notice>,
    duplicates: BTreeSet<PathBuf>,
}

#[derive(Debug)]
struct Member {
    slot: Arc<Slot>,
    path: Arc<Path>,
    inode: u64,
    /// Whether its socket is still there.
    is_listed: bool,
    /// Whether nobody listens on it any more: no guest, but it may become one again.
    is_deserted: bool,
    task: AbortHandle,
}

impl Drop for Member {
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
            clock: Arc::new(Clock::new()),
            folders: config.folders.into_iter().map(Folder::new).collect(),
            members: BTreeMap::new(),
            notices: Vec::new(),
            duplicates: BTreeSet::new(),
        }
    }

    /// Looks for guests and asks all of them; returns within `deadline` with what is known of each,
    /// sorted by name. Ages are as of the moment it returns.
    ///
    /// `now` and `wall` are the caller's clocks at the moment of the call. A guest found by this
    /// very call is waited for like the others, so that one call is enough to see a host.
    pub async fn sample(
        &mut self,
        now: Timestamp,
        wall: SystemTime,
        deadline: Duration,
    ) -> Vec<GuestReading> {
        self.clock.set(now, wall);
        self.look_for_guests(wall);
        self.ask(now, deadline, |_| true).await
    }

    /// Asks only these guests; of the others what they answered before is returned, which is older. Does not look for
    /// new guests.
    pub async fn sample_only(
        &mut self,
        now: Timestamp,
        wall: SystemTime,
        deadline: Duration,
        these: &BTreeSet<GuestId>,
    ) -> Vec<GuestReading> {
        self.clock.set(now, wall);
        self.ask(now, deadline, |id| these.contains(id)).await
    }

    async fn ask(
        &self,
        now: Timestamp,
        deadline: Duration,
        is_asked: impl Fn(&GuestId) -> bool,
    ) -> Vec<GuestReading> {
        let tick = Arc::new(Tick::default());
        for (_, member) in self.members.iter().filter(|(id, _)| is_asked(id)) {
            let mut state = member.slot.lock();
            let is_slow = state.guest.round_took().is_some_and(|took| took >= deadline);
            if state.guest.begin_sample(now) && !is_slow {
                tick.join();
                state.tick = Some(Arc::clone(&tick));
            }
            state.wake();
        }
        // Late guests are late; what they answered before is given.
        let _ = tokio::time::timeout(deadline, tick.all_done()).await;
        let (now, _) = self.clock.read();
        let reading = |(id, member): (&GuestId, &Member)| {
            let mut state = member.slot.lock();
            state.tick = None;
            GuestReading { sample: state.guest.sample(id.clone(), now), pid: state.guest.pid() }
        };
        self.members.iter().filter(|(_, member)| !member.is_deserted).map(reading).collect()
    }

    /// Carries out one action; see [`Fleet::act_all`].
    pub async fn act(&mut self, now: Timestamp, action: &Action) -> Outcome {
        let waiting = self.begin_action(now, action);
        finish(action, waiting).await
    }

    /// Sends `actions` in their order, all at once, and returns what came of each, in the same
    /// order, within about the command timeout.
    ///
    /// Refused without being sent: an action of an older plan than the last one sent to that guest
    /// ([`OutcomeKind::Superseded`]), one whose deadline has passed ([`OutcomeKind::Expired`]), and
    /// one for a guest that does not answer ([`OutcomeKind::Failed`]).
    pub async fn act_all(&mut self, now: Timestamp, actions: &[Action]) -> Vec<Outcome> {
        let waiting: Vec<_> = actions.iter().map(|action| self.begin_action(now, action)).collect();
        let mut outcomes = Vec::with_capacity(actions.len());
        for (action, waiting) in actions.iter().zip(waiting) {
            outcomes.push(finish(action, waiting).await);
        }
        outcomes
    }

    /// Presses a guest's power button.
    pub async fn power_down(&mut self, now: Timestamp, guest: &GuestId) -> OutcomeKind {
        self.clock.set_now(now);
        let waiting = self.with_guest(guest, |state| state.guest.begin_powerdown(now));
        outcome(waiting).await
    }

    /// What happened to guests and folders since this was last called, oldest first.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// How many guests are known.
    pub fn len(&self) -> usize {
        self.members.values().filter(|member| !member.is_deserted).count()
    }

    /// Whether no guest is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn begin_action(&mut self, now: Timestamp, action: &Action) -> Waiting {
        self.clock.set_now(now);
        self.with_guest(&action.guest, |state| {
            state.gate.check(action, now)?;
            let ticket = state.guest.begin_action(action, now)?;
            state.gate.begun(action);
            Ok(ticket)
        })
    }

    fn with_guest(
        &self,
        guest: &GuestId,
        order: impl FnOnce(&mut State) -> Result<Ticket, OutcomeKind>,
    ) -> Waiting {
        let Some(member) = self.members.get(guest) else {
            return Err(OutcomeKind::Failed("not sent: the guest is gone".to_owned()));
        };
        let mut state = member.slot.lock();
        let ticket = order(&mut state)?;
        let (sender, receiver) = oneshot::channel();
        state.orders.push((ticket, sender));
        state.wake();
        Ok(receiver)
    }

    fn look_for_guests(&mut self, wall: SystemTime) {
        // The name of a guest that has left its socket is free for another socket.
        let mut is_changed = self.mark_deserted();
        for folder in &mut self.folders {
            is_changed |= folder.refresh(wall, &mut self.notices);
        }
        if is_changed {
            for member in self.members.values_mut() {
                member.is_listed = false;
            }
            let sockets: Vec<Socket> =
                self.folders.iter().flat_map(Folder::sockets).cloned().collect();
            let mut duplicates = BTreeSet::new();
            for socket in sockets {
                self.meet(socket, &mut duplicates);
            }
            self.duplicates = duplicates;
        }
        let notices = &mut self.notices;
        self.members.retain(|guest, member| {
            // A connection outlives its name: whoever unlinked the socket did not end the guest.
            let keep = member.is_listed || member.slot.lock().guest.is_connected();
            if !keep && !member.is_deserted {
                notices.push(Notice::Gone { guest: guest.clone() });
            }
            keep
        });
        self.notices.truncate(NOTICES_MAX);
    }

    /// Notes which sockets nobody listens on any more or somebody does again; says whether there are
    /// more of the former.
    fn mark_deserted(&mut self) -> bool {
        let mut is_more = false;
        for (guest, member) in &mut self.members {
            let is_deserted = member.slot.lock().is_deserted();
            if is_deserted == member.is_deserted {
                continue;
            }
            member.is_deserted = is_deserted;
            is_more |= is_deserted;
            let (guest, path) = (guest.clone(), member.path.to_path_buf());
            self.notices.push(match is_deserted {
                true => Notice::Deserted { guest, path },
                false => Notice::Appeared { guest, path },
            });
        }
        is_more
    }

    /// A socket is there: a new guest, one that is known, or a second one of the same name.
    fn meet(&mut self, socket: Socket, duplicates: &mut BTreeSet<PathBuf>) {
        let Socket { guest, path, inode } = socket;
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
            if is_used || member.slot.lock().guest.is_connected() {
                let path = path.to_path_buf();
                if !self.duplicates.contains(&path) {
                    let used = member.path.to_path_buf();
                    self.notices.push(Notice::Duplicate { guest, path: path.clone(), used });
                }
                duplicates.insert(path);
                return;
            }
        } else if self.members.len() >= GUESTS_MAX {
            return;
        }
        self.notices.push(Notice::Appeared { guest: guest.clone(), path: path.to_path_buf() });
        let slot = Arc::new(Slot::new(Guest::new(self.command_timeout)));
        let seed = guest.as_str().bytes().fold(self.seed, |seed, byte| {
            seed.wrapping_mul(0x0100_0000_01b3).wrapping_add(u64::from(byte))
        });
        let clock = Arc::clone(&self.clock);
        let task = driver::drive(Arc::clone(&slot), Arc::clone(&path), clock, seed);
        let task = tokio::spawn(task).abort_handle();
        let member = Member { slot, path, inode, is_listed: true, is_deserted: false, task };
        self.members.insert(guest, member);
    }
}

/// An order on its way, or why it was not sent.
type Waiting = Result<oneshot::Receiver<OutcomeKind>, OutcomeKind>;

async fn outcome(waiting: Waiting) -> OutcomeKind {
    match waiting {
        Err(refused) => refused,
        Ok(receiver) => receiver.await.unwrap_or_else(|_| {
            OutcomeKind::Failed("its connection was given up before it was answered".to_owned())
        }),
    }
}

async fn finish(action: &Action, waiting: Waiting) -> Outcome {
    Outcome {
        guest: action.guest.clone(),
        generation: action.generation,
        target: action.target,
        kind: outcome(waiting).await,
    }
}
