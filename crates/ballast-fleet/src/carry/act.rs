//! How a host looks at a guest that is being moved, and how it carries out each action.
//!
//! Idea: each action is noted first and then done, and may be done twice. Once the record says that
//! a guest starts here, nobody else runs it. From then on neither a daemon that does not answer nor
//! a full disk holds it up: what it carried is put in force later, and what it changes in the note
//! is written before the record says that it has moved.

use std::time::Duration;

use anyhow::{Context, anyhow};
use ballast_api::{ClientError, Reserve, SourcesView};
use ballast_fleet_move::{CarriedState, HostAction, HostView, MoveRecord, Phase, Term};
use ballast_fleet_proto::Coordinator;
use ballast_model::{Bytes, GuestChange, GuestId, LimitSource, Timestamp};
use ballast_qmp::migration::Origin;
use tokio::time::{Instant, sleep};

use super::MoveExecutor;
use super::hypervisor::{CopyProgress, Hypervisor};
use super::note::{Note, ShrinkNote};
use super::observation::{holds, promise, shrink};
use crate::config::FleetMode;
use crate::host_record::Daemon;

/// Longest wait for the daemon to find a guest that has arrived and stands still.
const TAKE_OVER_PATIENCE: Duration = Duration::from_secs(3);
const TAKE_OVER_RETRY: Duration = Duration::from_millis(200);
/// A reservation ends this long after the move is due.
const RESERVATION_MARGIN: Duration = Duration::from_secs(600);
/// Longest reservation that a daemon accepts, in seconds.
const RESERVED_MAX_S: u64 = 86_400;

impl<C: Coordinator, D: Daemon, H: Hypervisor> MoveExecutor<'_, C, D, H> {
    /// Looks at a guest's hypervisor, and at what the daemon reports of the guest. Returns what the
    /// host sees, and the progress of the last copy.
    pub(super) async fn look(
        &self,
        guest: &GuestId,
        record: Option<&MoveRecord>,
        note: &mut Note,
        term: Term,
    ) -> (HostView, Option<CopyProgress>) {
        let (daemon, here) = (&self.member.daemon, &self.member.config.host);
        let origin = Origin { is_listener: note.is_listener, began_copy: note.began_copy };
        // The daemon is asked first: a guest that it does not know yet may appear a moment later.
        let status = daemon.status().await.ok();
        let seen = self.hypervisor.look(guest, origin).await;
        let is_about_to_leave = record.is_some_and(|it| {
            it.from == *here && matches!(it.phase, Phase::Ready { .. } | Phase::Copying { .. })
        });
        if is_about_to_leave && let Ok(carried) = daemon.carried(guest).await {
            let ceiling = note.own_ceiling(carried.limits.ceiling);
            let limits = GuestChange { ceiling, ..carried.limits };
            note.carried = Some(CarriedState { limits, ..carried });
        }
        let holds = holds(guest, status.as_ref());
        let view = HostView {
            host: here.clone(),
            now: self.member.now(),
            term,
            process: seen.process,
            promise: promise(guest, note, status.as_ref()),
            shrink: shrink(note, holds),
            holds,
            has_part: record.is_some_and(|record| note.has_part(record, here)),
            is_taken_over: note.is_taken_over,
            carried: note.carried.clone().unwrap_or_default(),
            ends_source: self.hypervisor.ends_source(),
            begins_moves: self.member.config.mode == FleetMode::Move,
        };
        (view, seen.copy)
    }

    /// Notes the action, then does it.
    pub(super) async fn act(
        &self,
        guest: &GuestId,
        record: Option<&MoveRecord>,
        mut note: Note,
        action: &HostAction,
    ) -> anyhow::Result<()> {
        let daemon = &self.member.daemon;
        let hypervisor = &self.hypervisor;
        match action {
            HostAction::Reserve(size) => {
                note.reserved = Some(size.get());
                self.note(guest, &note)?;
                let until = record.map_or(Timestamp::ZERO, |it| it.due) + RESERVATION_MARGIN;
                let lasts_s = until.saturating_since(self.member.now()).as_secs();
                let lasts_s = lasts_s.clamp(1, RESERVED_MAX_S);
                let reserve = Reserve { size_bytes: size.get(), lasts_s };
                match daemon.reserve(guest, &reserve).await {
                    Err(error) if is_refusal(&error) => note.is_refused = true,
                    done => done?,
                }
            }
            HostAction::Release => {
                done_or_refused(daemon.unreserve(guest).await)?;
                (note.reserved, note.is_refused) = (None, false);
            }
            HostAction::Listen => {
                note.is_listener = true;
                self.note(guest, &note)?;
                hypervisor.listen(guest).await?;
            }
            HostAction::TakeOver(carried) => {
                note.to_take_over = Some((**carried).clone());
                self.hold(guest, &note);
                let until = Instant::now() + TAKE_OVER_PATIENCE;
                while note.to_take_over.is_some() && Instant::now() < until {
                    self.try_take_over(guest, &mut note).await;
                    if note.to_take_over.is_some() {
                        sleep(TAKE_OVER_RETRY).await;
                    }
                }
                // The guest stands still. What is not in force yet is tried again while it runs.
                note.is_taken_over = true;
            }
            HostAction::Start => {
                (note.is_listener, note.reserved) = (false, None);
                self.hold(guest, &note);
                hypervisor.run(guest).await?;
            }
            HostAction::Shrink(to) => {
                let own = daemon.carried(guest).await?.limits;
                let known = daemon.explain(guest).await?.limits;
                let before = known.ceiling_bytes;
                let before =
                    before.with_context(|| format!("{guest}: its ceiling is not known"))?;
                let by_command = |it: SourcesView| it.ceiling == LimitSource::Set.as_str();
                let is_set = known.sources.is_none_or(by_command);
                let shrink = note.shrink.get_or_insert(ShrinkNote {
                    to_bytes: to.get(),
                    set_bytes: own.ceiling.map(Bytes::get),
                    is_configured: own.ceiling.is_some() && !is_set,
                    before_bytes: before,
                });
                shrink.to_bytes = to.get();
                self.note(guest, &note)?;
                // If the daemon refuses so low a ceiling, the guest is copied as it is.
                done_or_refused(daemon.set(guest, &ceiling(*to)).await)?;
            }
            HostAction::EndShrink => {
                if let Some(shrink) = &note.shrink {
                    // The daemon refuses if the guest is gone.
                    done_or_refused(give_back(daemon, guest, shrink).await)?;
                }
                note.shrink = None;
            }
            HostAction::Copy(to) => {
                note.began_copy = true;
                self.note(guest, &note)?;
                hypervisor.copy(guest, *to).await?;
            }
            HostAction::CancelCopy => {
                hypervisor.cancel(guest).await?;
            }
            HostAction::Resume => {
                hypervisor.run(guest).await?;
            }
            HostAction::End | HostAction::Quit => {
                hypervisor.end(guest).await?;
                note.is_listener = false;
            }
        }
        match action {
            HostAction::TakeOver(_) | HostAction::Start => self.hold(guest, &note),
            _ => self.note(guest, &note)?,
        }
        Ok(())
    }

    /// Puts in force what a guest carried, as soon as the daemon knows the guest.
    pub(super) async fn try_take_over(&self, guest: &GuestId, note: &mut Note) {
        let Some(carried) = &note.to_take_over else { return };
        match self.member.daemon.take_over(guest, carried).await {
            Ok(()) => note.to_take_over = None,
            // The daemon does not know the guest yet, or is busy.
            Err(ClientError::Refused { status, .. }) if status == NOT_FOUND || status >= BUSY => {}
            // It cannot be reached, or has ended meanwhile.
            Err(ClientError::NoDaemon { .. } | ClientError::TimedOut { .. }) => {}
            Err(ClientError::Broken { .. }) => {}
            Err(error) => {
                let text = format!("what came along with {guest} does not count here: {error}");
                self.member.status_log.log_of("take over", guest, &text);
                note.to_take_over = None;
            }
        }
        // If that is lost, it is put in force twice.
        self.hold(guest, note);
    }

    /// Notes what must not be lost before it is done.
    pub(super) fn note(&self, guest: &GuestId, note: &Note) -> anyhow::Result<()> {
        let written = self.notes.borrow_mut().write(guest, note.clone());
        written.map_err(|error| anyhow!("the note of {guest} is not written: {error}"))
    }

    /// Notes what may be lost.
    fn hold(&self, guest: &GuestId, note: &Note) {
        self.notes.borrow_mut().hold(guest, note.clone());
    }
}

/// HTTP status of an answer about a guest that the daemon does not have.
const NOT_FOUND: u16 = 404;
/// HTTP statuses from this one on say that the daemon is busy, starting or ending, and has decided
/// nothing: it has to be asked again.
const BUSY: u16 = 500;

/// If the daemon refuses, there is nothing to do.
fn done_or_refused(done: Result<(), ClientError>) -> Result<(), ClientError> {
    match done {
        Err(error) if is_refusal(&error) => Ok(()),
        done => done,
    }
}

/// Whether the daemon has decided against a request.
fn is_refusal(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused { status, .. } if *status < BUSY)
}

/// Gives a guest the ceiling back that an operator set by command. If none did, the ceiling is
/// unset instead of being set to what was in force: that may have been less for a while, as nothing
/// could be plugged in, and it would override what is configured later.
async fn give_back(
    daemon: &impl Daemon,
    guest: &GuestId,
    shrink: &ShrinkNote,
) -> Result<(), ClientError> {
    if let Some(own) = shrink.by_command() {
        return daemon.set(guest, &ceiling(own)).await;
    }
    let unset = GuestChange { ceiling_unset: true, ..GuestChange::default() };
    match daemon.set(guest, &unset).await {
        Err(ClientError::Refused { status, .. }) if status != NOT_FOUND && status < BUSY => {
            daemon.set(guest, &ceiling(shrink.before())).await
        }
        done => done,
    }
}

fn ceiling(size: Bytes) -> GuestChange {
    GuestChange { ceiling: Some(size), ..GuestChange::default() }
}
