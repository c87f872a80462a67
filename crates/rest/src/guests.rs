//! All guests of one kind of hypervisor, as a [`Backend`].
//!
//! Idea: every full sample looks for sockets, and samples all guests at once. A socket is a guest
//! once its API has answered. A socket that does not answer in time may be a guest, whose memory
//! counts: it is shown as unreachable. A socket without a listener is not a guest, nor is the
//! socket of another program. Orders have connections of their own, so that a late sample does not
//! delay them.
//! Cost: a listing of the folders, and one exchange per guest. Limits: those of the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ballast_backend::{Backend, GuestReading, SampleRequest, VsockAddress, Waiting};
use ballast_model::{
    Action, GuestId, LinkDown, Outcome, OutcomeKind, Plan, PressureLevel, Timestamp,
};
use futures_util::future::join_all;
use tokio::time::Instant;

use crate::call::{Call, shown};
use crate::client::exchange;
use crate::guest::HypervisorKind;
use crate::pattern::{FoundSocket, SocketPattern};
use crate::slot::{Clock, Slot};

/// Most notices kept; further ones are dropped.
const NOTICES_MAX: usize = 1000;

/// Settings of the guests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestConfig {
    /// The sockets of their APIs. Of two sockets with the same name, the one of the earlier pattern
    /// counts.
    pub sockets: Vec<SocketPattern>,
    /// Longest wait for the answers of one sample, and for those of one order.
    pub timeout: Duration,
    /// Most guests; further ones are refused with a notice.
    pub guests_max: usize,
}

/// The guests of one kind of hypervisor.
#[derive(Debug)]
pub struct RestGuests {
    kind: HypervisorKind,
    config: RestConfig,
    proc: PathBuf,
    slots: BTreeMap<GuestId, Slot>,
    /// Sockets that are refused, and why.
    refused: BTreeMap<PathBuf, String>,
    notices: Vec<String>,
}

impl RestGuests {
    /// No guests yet. Their processes are looked up in `proc` (usually `/proc`).
    pub fn new(kind: HypervisorKind, config: RestConfig, proc: &Path) -> RestGuests {
        RestGuests {
            kind,
            config,
            proc: proc.to_owned(),
            slots: BTreeMap::new(),
            refused: BTreeMap::new(),
            notices: Vec::new(),
        }
    }

    fn say(&mut self, notice: String) {
        if self.notices.len() < NOTICES_MAX {
            self.notices.push(notice);
        }
    }

    /// Looks for new sockets, and for those that are gone.
    fn discover(&mut self) {
        for slot in self.slots.values_mut() {
            slot.is_listed = false;
        }
        let found: Vec<FoundSocket> =
            self.config.sockets.iter().flat_map(SocketPattern::sockets).collect();
        let mut refused = BTreeMap::new();
        for socket in found {
            let path = socket.path.clone();
            if let Err(why) = self.add(socket) {
                if self.refused.get(&path) != Some(&why) {
                    self.say(format!("ignoring {}: {why}", shown(&path.to_string_lossy())));
                }
                refused.insert(path, why);
            }
        }
        self.refused = refused;
    }

    /// Takes in a socket that was found.
    ///
    /// # Errors
    /// The reason why it is not used.
    fn add(&mut self, socket: FoundSocket) -> Result<(), String> {
        let FoundSocket { path, name, inode } = socket;
        let id: GuestId = name.parse().map_err(|error| format!("{error}"))?;
        let (kind, most, count) = (self.kind, self.config.guests_max, self.slots.len());
        match self.slots.get_mut(&id) {
            Some(slot) if slot.path == path => {
                slot.is_listed = true;
                // Another socket at the same place is another process.
                if slot.inode != inode {
                    slot.inode = inode;
                    slot.forget();
                }
                Ok(())
            }
            Some(slot) if slot.is_listed => {
                let used = shown(&slot.path.to_string_lossy());
                Err(format!("the socket of guest {id} is {used}: rename one of them"))
            }
            // The guest's socket has another path now.
            Some(slot) => {
                *slot = Slot::new(kind, path, inode);
                Ok(())
            }
            None if count >= most => {
                Err(format!("there are {most} guests already, and no more are managed"))
            }
            None => {
                self.slots.insert(id, Slot::new(kind, path, inode));
                Ok(())
            }
        }
    }

    /// Reports which guests appeared or are gone, and drops those that are gone.
    fn settle(&mut self) {
        let mut notices = Vec::new();
        let (proc, name) = (&self.proc, self.kind.name);
        self.slots.retain(|id, slot| {
            let path = shown(&slot.path.to_string_lossy());
            let was_guest = slot.is_guest;
            match &slot.down {
                None => slot.is_guest = true,
                // Its process may still run, with a socket that was removed or that it no longer
                // serves.
                Some(LinkDown::Refused) => slot.is_guest &= slot.is_alive(proc),
                Some(LinkDown::Connecting | LinkDown::Protocol(_)) => {}
                Some(_) => slot.is_guest = true,
            }
            match (was_guest, slot.is_guest) {
                (false, true) => notices.push(format!("guest {id} found at {path} ({name})")),
                (true, false) => {
                    notices.push(format!("guest {id} is gone: nobody listens on {path}"));
                    slot.forget();
                    (slot.down, slot.ignored) = (Some(LinkDown::Refused), Some(LinkDown::Refused));
                }
                (true, true) | (false, false) => {}
            }
            let ignored = slot.down.clone().filter(|why| {
                !slot.is_guest && matches!(why, LinkDown::Protocol(_) | LinkDown::Refused)
            });
            if let Some(why) = &ignored
                && slot.ignored.as_ref() != Some(why)
            {
                notices.push(format!("ignoring {path}, as no {name} answers there: {why}"));
            }
            // Without a new reason the last one is kept, so that the same notice is not repeated.
            slot.ignored = ignored.or(slot.ignored.take().filter(|_| !slot.is_guest));
            for notice in slot.guest.take_notices() {
                notices.push(format!("guest {id}: {notice}"));
            }
            let is_kept = slot.is_listed || slot.is_alive(proc);
            if !is_kept && slot.is_guest {
                notices.push(format!("guest {id} is gone"));
            }
            is_kept
        });
        for notice in notices {
            self.say(notice);
        }
    }

    async fn sample_all(&mut self, request: SampleRequest<'_>) -> Vec<GuestReading> {
        let SampleRequest { now, deadline, only, .. } = request;
        let clock = Clock { now, began: Instant::now() };
        if only.is_none() {
            self.discover();
        }
        let (timeout, proc) = (self.config.timeout, self.proc.clone());
        let asked = self.slots.iter_mut().filter(|(id, _)| only.is_none_or(|it| it.contains(*id)));
        join_all(asked.map(|(_, slot)| slot.advance(clock, deadline, timeout, &proc))).await;
        self.settle();
        let now = clock.now();
        let mut readings = Vec::with_capacity(self.slots.len());
        for (id, slot) in self.slots.iter().filter(|(_, slot)| slot.is_guest) {
            readings.push(GuestReading {
                sample: slot.sample(id, now),
                pid: slot.pid(),
                listens_at: slot.listens_at.clone(),
                // A process counts once its program is known.
                has_answered: true,
                settings: None,
            });
        }
        readings
    }

    /// The calls of an order, and the socket for them.
    fn order(
        &mut self,
        action: &Action,
        now: Timestamp,
    ) -> Result<(PathBuf, Vec<Call>), OutcomeKind> {
        let failed = |why: &str| OutcomeKind::Failed(format!("not sent: {why}"));
        let slot = self.slots.get_mut(&action.guest).filter(|slot| slot.is_guest);
        let slot = slot.ok_or_else(|| failed("the guest is gone"))?;
        slot.gate.check(action, now)?;
        if let Some(why) = &slot.down {
            return Err(failed(&why.to_string()));
        }
        let calls = slot.guest.order(action).map_err(|why| failed(&why))?;
        slot.gate.sent(action);
        Ok((slot.path.clone(), calls))
    }

    async fn order_all(&mut self, now: Timestamp, actions: &[Action]) -> Vec<Outcome> {
        let until = Instant::now() + self.config.timeout;
        let orders: Vec<_> = actions.iter().map(|action| self.order(action, now)).collect();
        let kinds = join_all(orders.into_iter().map(|order| async move {
            match order {
                Ok((path, calls)) => carry_out(&path, calls, until).await,
                Err(not_sent) => not_sent,
            }
        }));
        let outcome = |(action, kind): (&Action, OutcomeKind)| Outcome {
            guest: action.guest.clone(),
            generation: action.generation,
            target: action.target,
            kind,
        };
        actions.iter().zip(kinds.await).map(outcome).collect()
    }
}

/// Makes the calls of an order.
async fn carry_out(path: &Path, calls: Vec<Call>, until: Instant) -> OutcomeKind {
    let (answers, error) = exchange(path, calls, true, until).await.into_answers();
    let refused = answers.last().filter(|(_, answer)| !answer.is_success());
    match (refused, error) {
        (Some((call, answer)), _) => OutcomeKind::Failed(answer.refusal(call)),
        (None, Some(error)) => OutcomeKind::Failed(format!("{error}; it may still be carried out")),
        (None, None) => OutcomeKind::Accepted,
    }
}

impl Backend for RestGuests {
    fn name(&self) -> &'static str {
        self.kind.name
    }

    fn sample<'a>(&'a mut self, request: SampleRequest<'a>) -> Waiting<'a, Vec<GuestReading>> {
        Box::pin(self.sample_all(request))
    }

    fn act_all<'a>(
        &'a mut self,
        now: Timestamp,
        actions: &'a [Action],
    ) -> Waiting<'a, Vec<Outcome>> {
        Box::pin(self.order_all(now, actions))
    }

    fn planned(&mut self, plan: &Plan) {
        let mut left_alone = BTreeSet::new();
        for guest in &plan.guests {
            if guest.change.leaves_alone() {
                left_alone.insert(&guest.id);
            }
        }
        let is_short = plan.host_pressure > PressureLevel::Normal;
        for (id, slot) in &mut self.slots {
            slot.guest.planned(is_short && !left_alone.contains(id));
        }
    }

    fn vsock(&self, guest: &GuestId) -> Option<VsockAddress> {
        let slot = self.slots.get(guest).filter(|slot| slot.is_guest)?;
        let socket = slot.guest.vsock_socket()?;
        Some(VsockAddress::Socket(on_host(socket, &self.proc, slot.pid())?))
    }

    fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    fn refused(&self) -> usize {
        self.refused.len()
    }
}

/// The host's path for a path of the hypervisor. The hypervisor may have a root of its own
/// (Firecracker's jailer), and a relative path counts from its working folder. `None` if that
/// folder is not known.
fn on_host(path: &Path, proc: &Path, pid: Option<u32>) -> Option<PathBuf> {
    let of_process = |name: &str| {
        let link = proc.join(pid?.to_string()).join(name);
        // If this process may not read the link, it may not use the path through it either.
        link.read_link().is_ok().then_some(link)
    };
    match path.strip_prefix("/") {
        Ok(below_root) => {
            Some(of_process("root").map_or(path.to_owned(), |root| root.join(below_root)))
        }
        Err(_) => Some(of_process("cwd")?.join(path)),
    }
}

#[cfg(test)]
mod tests;
