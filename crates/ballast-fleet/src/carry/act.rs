//! What a host sees of a guest that is on its way, and how it does each thing.
//!
//! Idea: the hypervisor is asked what it is, the daemon what it promises; notes say what neither
//! knows. Each thing is noted first, done then, and may be done twice.
//! Limits: a daemon that does not answer holds nothing up that has no way back: what came along
//! with a guest counts later then.

use std::time::Duration;

use ballast_api::{ClientError, Reserve, StatusReply};
use ballast_fleet_move::{
    Carried, CopyState, HostAction, HostView, MoveRecord, Phase, Process, Promise, Shrink, Term,
};
use ballast_fleet_proto::Coordinator;
use ballast_model::{Bytes, GuestChange, GuestId, Timestamp};
use ballast_qmp::migration::Origin;
use tokio::time::{Instant, sleep};

use super::Carrier;
use super::hypervisor::{CopyProgress, Hypervisor, HypervisorView};
use super::note::{Note, ShrinkNote};
use crate::host_record::Daemon;
use crate::session::Member;

/// A guest has shrunk when it holds no more than this above its target: how exact a balloon is.
const SHRUNK_WITHIN: Bytes = Bytes::mib(16);
/// Longest wait for the daemon to know a guest that has come and stands still.
const TAKE_OVER_PATIENCE: Duration = Duration::from_secs(3);
const TAKE_OVER_AGAIN: Duration = Duration::from_millis(200);
/// A reservation outlives the end of a move by this.
const RESERVED_AFTER: Duration = Duration::from_secs(600);
/// Longest reservation that a daemon takes, in seconds.
const RESERVED_MAX_S: u64 = 86_400;

/// What a host sees of a guest.
#[derive(Debug)]
pub(super) struct Seen {
    hypervisor: HypervisorView,
    promise: Promise,
    shrink: Option<Shrink>,
    is_taken_over: bool,
    carried: Carried,
}

impl Seen {
    pub(super) fn view<'a, C: Coordinator, D: Daemon>(
        &'a self,
        member: &'a Member<C, D>,
        term: Term,
    ) -> HostView<'a> {
        HostView {
            host: &member.config.host,
            now: member.now(),
            term,
            process: self.hypervisor.process,
            promise: self.promise,
            shrink: self.shrink,
            is_taken_over: self.is_taken_over,
            carried: &self.carried,
            ends_source: false,
        }
    }

    pub(super) fn is_absent(&self) -> bool {
        self.hypervisor.process == Process::Absent
    }

    pub(super) fn is_nothing_promised(&self) -> bool {
        self.promise == Promise::Nothing
    }

    pub(super) fn bandwidth_per_s(&self) -> Option<Bytes> {
        self.hypervisor.copy?.bandwidth_per_s
    }

    pub(super) fn copied(&self) -> Bytes {
        self.hypervisor.copy.map_or(Bytes::ZERO, |it| it.sent)
    }

    pub(super) fn copy_under_way(&self) -> Option<CopyProgress> {
        self.hypervisor.copy.filter(|_| self.hypervisor.process == Process::Runs(CopyState::Partly))
    }
}

impl<C: Coordinator, D: Daemon, H: Hypervisor> Carrier<'_, C, D, H> {
    /// Looks at a guest's hypervisor, and at what the daemon says of it.
    pub(super) async fn look(
        &self,
        guest: &GuestId,
        record: Option<&MoveRecord>,
        note: &mut Note,
    ) -> Seen {
        let daemon = &self.member.daemon;
        let origin = Origin { is_listener: note.is_listener, began_copy: note.began_copy };
        // The daemon first: a guest that it does not know yet may be there a moment later.
        let status = daemon.status().await.ok();
        let seen = self.hypervisor.look(guest, origin).await;
        let is_about_to_leave = record.is_some_and(|it| {
            it.from == self.member.config.host
                && matches!(it.phase, Phase::Ready { .. } | Phase::Copying { .. })
        });
        if is_about_to_leave && let Ok(carried) = daemon.carried(guest).await {
            let ceiling = note.own_ceiling(carried.limits.ceiling);
            let limits = GuestChange { ceiling, ..carried.limits };
            note.carried = Some(Carried { limits, ..carried });
        }
        Seen {
            hypervisor: seen,
            promise: promise(guest, note, status.as_ref()),
            shrink: shrink(guest, note, status.as_ref()),
            is_taken_over: note.is_taken_over,
            carried: note.carried.clone().unwrap_or_default(),
        }
    }

    /// Notes, then does.
    pub(super) async fn act(
        &self,
        guest: &GuestId,
        record: Option<&MoveRecord>,
        mut note: Note,
        action: &HostAction,
    ) -> Result<(), String> {
        let daemon = &self.member.daemon;
        let hypervisor = &self.hypervisor;
        match action {
            HostAction::Reserve(size) => {
                note.reserved = Some(size.get());
                self.note(guest, &note)?;
                let until = record.map_or(Timestamp::ZERO, |it| it.due) + RESERVED_AFTER;
                let lasts_s = until.saturating_since(self.member.now()).as_secs();
                let lasts_s = lasts_s.clamp(1, RESERVED_MAX_S);
                let reserve = Reserve { size_bytes: size.get(), lasts_s };
                match daemon.reserve(guest, &reserve).await {
                    Err(ClientError::Refused { .. }) => note.is_refused = true,
                    done => done.map_err(|error| error.to_string())?,
                }
            }
            HostAction::Release => {
                done_or_refused(daemon.unreserve(guest).await)?;
                (note.reserved, note.is_refused) = (None, false);
            }
            HostAction::Listen => {
                note.is_listener = true;
                self.note(guest, &note)?;
                hypervisor.listen(guest).await.map_err(|error| error.to_string())?;
            }
            HostAction::TakeOver(carried) => {
                note.to_take_over = Some((**carried).clone());
                self.note(guest, &note)?;
                let until = Instant::now() + TAKE_OVER_PATIENCE;
                while note.to_take_over.is_some() && Instant::now() < until {
                    self.take_over_later(guest, &mut note).await?;
                    if note.to_take_over.is_some() {
                        sleep(TAKE_OVER_AGAIN).await;
                    }
                }
                // The guest stands still: what is not in force yet is tried again while it runs.
                note.is_taken_over = true;
            }
            HostAction::Start => {
                (note.is_listener, note.reserved) = (false, None);
                self.note(guest, &note)?;
                hypervisor.run(guest).await.map_err(|error| error.to_string())?;
            }
            HostAction::Shrink(to) => {
                let limits = daemon.carried(guest).await.map_err(|error| error.to_string())?.limits;
                let status = daemon.status().await.map_err(|error| error.to_string())?;
                let view = status.guests.iter().find(|it| it.guest == guest.as_str());
                let before = view.and_then(|it| it.ceiling_bytes);
                let before = before.ok_or_else(|| format!("{guest}: its ceiling is not known"))?;
                let shrink = note.shrink.get_or_insert(ShrinkNote {
                    to_bytes: to.get(),
                    set_bytes: limits.ceiling.map(Bytes::get),
                    before_bytes: before,
                });
                shrink.to_bytes = to.get();
                self.note(guest, &note)?;
                // A guest that may not become so small is copied as it is.
                done_or_refused(daemon.set(guest, &ceiling(*to)).await)?;
            }
            HostAction::EndShrink => {
                if let Some(shrink) = &note.shrink {
                    let before = Bytes::new(shrink.set_bytes.unwrap_or(shrink.before_bytes));
                    // A guest that has gone is refused.
                    done_or_refused(daemon.set(guest, &ceiling(before)).await)?;
                }
                note.shrink = None;
            }
            HostAction::Copy(to) => {
                note.began_copy = true;
                self.note(guest, &note)?;
                hypervisor.copy(guest, *to).await.map_err(|error| error.to_string())?;
            }
            HostAction::CancelCopy => {
                hypervisor.cancel(guest).await.map_err(|error| error.to_string())?;
            }
            HostAction::Resume => {
                hypervisor.run(guest).await.map_err(|error| error.to_string())?;
            }
            HostAction::End | HostAction::Quit => {
                hypervisor.end(guest).await.map_err(|error| error.to_string())?;
            }
        }
        self.note(guest, &note)
    }

    /// Puts in force what came along with a guest and is not yet, if the daemon knows the guest.
    pub(super) async fn take_over_later(
        &self,
        guest: &GuestId,
        note: &mut Note,
    ) -> Result<(), String> {
        let Some(carried) = &note.to_take_over else { return Ok(()) };
        match self.member.daemon.take_over(guest, carried).await {
            Ok(()) => note.to_take_over = None,
            // It does not know the guest yet, or is out of reach.
            Err(ClientError::Refused { status: NOT_FOUND, .. } | ClientError::NoDaemon { .. }) => {}
            Err(ClientError::TimedOut { .. }) => {}
            Err(error) => {
                let text = format!("what came along with {guest} does not count here: {error}");
                self.member.speaker.say_of("take over", guest, &text);
                note.to_take_over = None;
            }
        }
        self.note(guest, note)
    }

    fn note(&self, guest: &GuestId, note: &Note) -> Result<(), String> {
        let written = self.notes.borrow_mut().write(guest, note.clone());
        written.map_err(|error| format!("the note of {guest} is not written: {error}"))
    }
}

/// HTTP's status for a guest that a daemon does not have.
const NOT_FOUND: u16 = 404;

/// A refusal of the daemon says that there is nothing to be done.
fn done_or_refused(done: Result<(), ClientError>) -> Result<(), String> {
    match done {
        Ok(()) | Err(ClientError::Refused { .. }) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

fn ceiling(size: Bytes) -> GuestChange {
    GuestChange { ceiling: Some(size), ..GuestChange::default() }
}

/// What this host has promised a guest that is to come.
fn promise(guest: &GuestId, note: &Note, status: Option<&StatusReply>) -> Promise {
    let Some(noted) = note.reserved else { return Promise::Nothing };
    if note.is_refused {
        return Promise::Refused;
    }
    // A daemon that does not answer has not given it away.
    let unknown = Promise::Reserved { size: Bytes::new(noted), is_ready: false };
    let Some(status) = status else { return unknown };
    if let Some(it) = status.reservations.iter().find(|it| it.guest == guest.as_str()) {
        let is_ready = it.free_bytes >= it.size_bytes;
        return Promise::Reserved { size: Bytes::new(it.size_bytes), is_ready };
    }
    match status.guests.iter().any(|it| it.guest == guest.as_str()) {
        true => Promise::Entitled,
        false => Promise::Nothing,
    }
}

/// What is asked of a guest that is to leave.
fn shrink(guest: &GuestId, note: &Note, status: Option<&StatusReply>) -> Option<Shrink> {
    let to = Bytes::new(note.shrink?.to_bytes);
    let view = status.and_then(|it| it.guests.iter().find(|it| it.guest == guest.as_str()));
    let holds = view.and_then(|it| it.allocation_bytes).map(Bytes::new);
    Some(Shrink { to, is_done: holds.is_some_and(|it| it <= to.saturating_add(SHRUNK_WITHIN)) })
}

/// What is done, for people.
pub(super) fn in_words(action: &HostAction) -> String {
    match action {
        HostAction::Reserve(size) => format!("reserves {size} for it"),
        HostAction::Release => "gives back what was reserved for it".to_owned(),
        HostAction::Listen => "starts a hypervisor that waits for it".to_owned(),
        HostAction::End => "ends the hypervisor that waits for it".to_owned(),
        HostAction::TakeOver(_) => "puts its limits and history in force".to_owned(),
        HostAction::Start => "starts it here".to_owned(),
        HostAction::Shrink(to) => format!("shrinks it to {to} before it is copied"),
        HostAction::EndShrink => "its own ceiling counts again".to_owned(),
        HostAction::Copy(to) => format!("copies it to {to}"),
        HostAction::CancelCopy => "stops copying it".to_owned(),
        HostAction::Resume => "lets it run on here".to_owned(),
        HostAction::Quit => "ends the copy that stayed here".to_owned(),
    }
}
