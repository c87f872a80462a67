//! A host's part in moves: it carries out orders that name it.
//!
//! Idea: a turn reads the leader and all orders at once, looks at each guest that an order or a
//! note of this host is about, asks `ballast-fleet-move` for the next action, and carries it out.
//! Then everything is read and looked at again. What a crash must not lose is noted before it is
//! done.
//! Only the machine that is registered under the host's name begins anything, and it notes each
//! order before it does. What it has begun it ends even if its registration is gone or its mode is
//! no longer `move`: it abandons what is not being copied yet, and finishes the rest. With an order
//! that it has not begun, a machine that is not registered has nothing to do.
//!
//! | file | answers |
//! |---|---|
//! | `hypervisor` | what does a move need from a guest's hypervisor? |
//! | `qemu`, `libvirt`, `choice` | how do QEMU and libvirt do that, and which of them is used? |
//! | `observation` | what do the daemon and the notes say of a guest? |
//! | `act` | how is each action carried out, with the daemon and the hypervisor? |
//! | `note` | what survives a crash? |
//! | `measure` | how fast do guests write, and how fast are copies? |
//!
//! Cost: a watch while no order names this host; then one read of all orders a step.
//! Limits: guests take turns, one step each.

mod act;
mod choice;
mod hypervisor;
mod libvirt;
mod measure;
mod note;
mod observation;
mod qemu;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use ballast_fleet_move::{
    CopyState, HostView, MoveRecord, NextStep, Phase, Process, Promise, Term, host_step,
    host_step_without_store,
};
use ballast_fleet_proto::{
    Condition, Coordinator, CoordinatorError, FleetKey, FleetView, KeyEvent, KeyWatch, KeyWrite,
    PutResult, Revision,
};
use ballast_model::{Bytes, GuestId};
use tokio::time::{sleep, timeout};

use crate::config::FleetMode;
use crate::host_record::Daemon;
use crate::session::{Member, RETRY};
use note::{Note, Notes};

pub use choice::AnyHypervisor;
pub use hypervisor::{CopyProgress, Hypervisor, HypervisorError, HypervisorView};
pub(crate) use libvirt::ADDRESS_PLACEHOLDER;
pub use libvirt::{Libvirt, LibvirtConfig};
pub(crate) use qemu::GUEST_PLACEHOLDER;
pub use qemu::{Qemu, QemuConfig};

/// Time between two turns while a guest is being moved; a changed order ends the wait.
const TURN_PAUSE: Duration = Duration::from_millis(500);
/// The same while a guest is copied or stands still, as the wait adds to its downtime.
const COPY_TURN_PAUSE: Duration = Duration::from_millis(100);
/// After this long without a change, orders are read again: a connection may have died unnoticed.
const WATCH_TIME_MAX: Duration = Duration::from_secs(600);

/// Carries out orders on one host.
pub struct MoveExecutor<'a, C, D, H> {
    member: &'a Member<C, D>,
    hypervisor: H,
    notes: RefCell<Notes>,
    /// The orders about this host that were last read.
    last: RefCell<BTreeMap<GuestId, MoveRecord>>,
}

/// The guests with a note in `folder`: moves that this host has begun.
///
/// # Errors
/// The notes cannot be read.
pub fn noted_moves(folder: &Path) -> io::Result<Vec<GuestId>> {
    match folder.exists() {
        true => Ok(Notes::open(folder)?.guests().cloned().collect()),
        false => Ok(Vec::new()),
    }
}

/// The result of a turn, or of one guest's step; the largest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// No guest is being moved here.
    Idle,
    /// A guest is being moved, but there was nothing to do.
    Waiting,
    /// Something was done, and more may follow at once.
    Progress,
}

impl<'a, C: Coordinator, D: Daemon, H: Hypervisor> MoveExecutor<'a, C, D, H> {
    /// The executor of `member`'s host, with its notes in `folder`.
    ///
    /// # Errors
    /// The notes cannot be read.
    pub fn new(
        member: &'a Member<C, D>,
        hypervisor: H,
        folder: &Path,
    ) -> io::Result<MoveExecutor<'a, C, D, H>> {
        let notes = RefCell::new(Notes::open(folder)?);
        Ok(MoveExecutor { member, hypervisor, notes, last: RefCell::default() })
    }

    /// Carries out orders, and measures, for as long as this is polled. In mode `advise` it only
    /// finishes moves that have begun.
    pub async fn run(&self) {
        match self.member.config.mode {
            FleetMode::Advise => self.carry().await,
            FleetMode::Move => tokio::select! {
                () = self.carry() => {}
                () = self.measure() => {}
            },
        }
    }

    async fn carry(&self) {
        let mut watch = None;
        loop {
            match self.turn(&mut watch).await {
                Turn::Progress => {}
                Turn::Waiting => self.wait(&mut watch, self.pause()).await,
                Turn::Idle => self.wait(&mut watch, WATCH_TIME_MAX).await,
            }
        }
    }

    fn pause(&self) -> Duration {
        let is_copied = |record: &MoveRecord| {
            matches!(
                record.phase,
                Phase::Copying { .. } | Phase::Copied { .. } | Phase::Starting { .. }
            )
        };
        match self.last.borrow().values().any(is_copied) {
            true => COPY_TURN_PAUSE,
            false => TURN_PAUSE,
        }
    }

    /// Waits at most `pause` for an order about this host to change.
    async fn wait(&self, watch: &mut Option<C::Watch>, pause: Duration) {
        let Some(following) = watch else { return sleep(RETRY.min(pause)).await };
        let change = timeout(pause, async {
            loop {
                match following.next().await {
                    Ok(changes) if changes.events.iter().any(|it| self.is_own_order(it)) => {
                        return Ok(());
                    }
                    Ok(_) => {}
                    Err(error) => return Err(error),
                }
            }
        });
        // After the wait everything is read again. A watch that was silent for long may be dead.
        match change.await {
            Ok(Ok(())) => {}
            Err(_) if pause < WATCH_TIME_MAX => {}
            Ok(Err(_)) | Err(_) => *watch = None,
        }
    }

    fn is_own_order(&self, event: &KeyEvent) -> bool {
        match event {
            KeyEvent::Deleted(_) => false,
            KeyEvent::Written(entry) => {
                MoveRecord::parse(&entry.value).is_ok_and(|record| self.names_this_host(&record))
            }
        }
    }

    fn names_this_host(&self, record: &MoveRecord) -> bool {
        let here = &self.member.config.host;
        record.from == *here || record.to == *here
    }

    /// Takes one step for each guest that an order or a note is about.
    async fn turn(&self, watch: &mut Option<C::Watch>) -> Turn {
        let keys = &self.member.config.keys;
        let view = match self.member.coordinator.read(&keys.lead_prefix()).await {
            Ok(listing) => FleetView::new(keys.clone(), listing),
            Err(error) => return self.turn_without_store(&error).await,
        };
        if watch.is_none() {
            let moves = keys.moves_prefix();
            *watch = self.member.coordinator.watch(&moves, view.revision()).await.ok();
        }
        self.member.status_log.log("orders", "orders are read");
        let term = Term(view.leader().map_or(0, |(_, revision)| revision.0));
        let mut last = BTreeMap::new();
        let mut guests: Vec<GuestId> = self.notes.borrow().guests().cloned().collect();
        let is_registered = self.member.identity.get().is_some();
        for (guest, entry) in view.moves() {
            match &entry.record {
                Ok(record) if self.names_this_host(record) => {
                    last.insert(guest.clone(), record.clone());
                    if is_registered && !guests.contains(guest) {
                        guests.push(guest.clone());
                    }
                }
                Ok(_) => {}
                Err(why) => {
                    let text = format!("the order of {guest} is left alone: {why}");
                    self.member.status_log.log("unreadable order", &text);
                }
            }
        }
        self.last.replace(last);
        let mut turn = Turn::Idle;
        for guest in guests {
            let entry = view.move_of(&guest);
            // An unreadable order may be about this host, so nothing of its guest is cleaned up.
            let step = match entry.map(|entry| (entry.record.as_ref(), entry.written)) {
                Some((Err(_), _)) => Ok(Turn::Waiting),
                // Another machine may have this host's name by now.
                Some((Ok(record), _)) if !is_registered && !self.may_go_on(&guest, record) => {
                    Ok(Turn::Waiting)
                }
                Some((Ok(record), written)) => {
                    self.step(&guest, Some((record, written)), term).await
                }
                None => self.step(&guest, None, term).await,
            };
            turn = turn.max(step.unwrap_or_else(|why| {
                self.member.status_log.log_of("move", &guest, &why.to_string());
                Turn::Waiting
            }));
        }
        turn
    }

    /// Whether a machine that is not registered may do something about this order of `guest`: it
    /// has begun it, or the order is about other hosts, and earlier moves are to be cleaned up.
    fn may_go_on(&self, guest: &GuestId, record: &MoveRecord) -> bool {
        let is_begun = self.notes.borrow().of(guest).is_some_and(|note| note.is_of(record));
        is_begun || !self.names_this_host(record)
    }

    /// Takes one step for one guest. An error says what failed; the step is tried again.
    async fn step(
        &self,
        guest: &GuestId,
        found: Option<(&MoveRecord, Revision)>,
        term: Term,
    ) -> anyhow::Result<Turn> {
        // An order that names other hosts means that no move of this guest is under way here.
        let found = found.filter(|(record, _)| self.names_this_host(record));
        let record = found.map(|(record, _)| record);
        let noted = self.notes.borrow().of(guest).cloned().unwrap_or_default();
        let mut note = match record {
            Some(record) => noted.for_order(record, &self.member.config.host),
            None => noted,
        };
        // Once there is something to lose, only a machine with this note concludes anything from
        // not seeing the guest.
        if record.is_some_and(|record| record.can_be_joined(&self.member.config.host)) {
            self.note(guest, &note)?;
        }
        self.try_take_over(guest, &mut note).await;
        let (view, copy) = self.look(guest, record, &mut note, term).await;
        if note.began_copy
            && let Some(CopyProgress { bandwidth_per_s: Some(bandwidth), .. }) = copy
        {
            self.member.measured.borrow_mut().bandwidth_per_s = Some(bandwidth);
        }
        match (host_step(record, &view), found) {
            (NextStep::Act(action), _) => {
                let text = format!("{guest}: {}", action.in_words());
                self.member.status_log.log_of("move", guest, &text);
                self.act(guest, record, note, &action).await?;
                Ok(Turn::Progress)
            }
            (NextStep::Write(next), Some((record, written))) => {
                if next.phase == Phase::Moved {
                    note = note.arrived(record);
                    self.note(guest, &note)?;
                }
                match self.write(&next, written).await? {
                    PutResult::Written(_) => {
                        if matches!(next.phase, Phase::Copied { .. }) {
                            let copied = copy.map_or(Bytes::ZERO, |it| it.sent);
                            self.member.metrics.moves.count_copied(copied);
                        }
                        let text = format!("{guest}: {}", next.in_words());
                        self.member.status_log.log_of("move", guest, &text);
                        Ok(Turn::Progress)
                    }
                    PutResult::Conflict => Ok(Turn::Waiting),
                }
            }
            (NextStep::Wait, None) => self.close(guest, note, &view).await,
            (NextStep::Wait | NextStep::Write(_) | NextStep::Remove, _) => {
                if view.process == Process::Runs(CopyState::Partly)
                    && let Some(CopyProgress { sent, remaining, .. }) = copy
                {
                    let text = format!("{guest}: {sent} copied, {remaining} left");
                    self.member.status_log.log_of("copy", guest, &text);
                }
                Ok(Turn::Waiting)
            }
        }
    }

    /// Replaces the record that the revision `found` wrote by `next`.
    async fn write(
        &self,
        next: &MoveRecord,
        found: Revision,
    ) -> Result<PutResult, CoordinatorError> {
        let config = &self.member.config;
        let key = config.keys.key(&FleetKey::Move(next.guest.clone()));
        let mut conditions = vec![Condition { key: key.clone(), written: Some(found) }];
        // The write fails if another machine has taken this host's name.
        if let Some(identity) = self.member.identity.get() {
            let key = config.keys.key(&FleetKey::Identity(config.host.clone()));
            conditions.push(Condition { key, written: Some(identity) });
        }
        let value = next.to_json().into_bytes();
        let write = KeyWrite::Put { key, value, lease: None };
        self.member.coordinator.compare_and_put(&conditions, vec![write]).await
    }

    /// No move of the guest is under way any more: cleans up and removes the note.
    async fn close(
        &self,
        guest: &GuestId,
        mut note: Note,
        view: &HostView,
    ) -> anyhow::Result<Turn> {
        if matches!(view.process, Process::Absent | Process::Ended) {
            note.to_take_over = None;
            if note.is_listener {
                // A hypervisor that was started but never listened is ended; usually there is none.
                let _ = self.hypervisor.end(guest).await;
            }
        }
        if view.promise == Promise::Nothing {
            // The reservation has expired, or ended with the guest that used it.
            note.reserved = None;
        }
        match note.is_done() {
            true => {
                self.notes.borrow_mut().remove(guest)?;
                Ok(Turn::Idle)
            }
            false => Ok(Turn::Waiting),
        }
    }

    /// A turn while etcd cannot be reached.
    async fn turn_without_store(&self, error: &CoordinatorError) -> Turn {
        let text = format!("cannot read orders: {error}");
        self.member.status_log.log("orders", &text);
        let last = self.last.borrow().clone();
        for (guest, record) in last {
            let Some(mut note) = self.notes.borrow().of(&guest).cloned() else { continue };
            let (view, _) = self.look(&guest, Some(&record), &mut note, record.term).await;
            if let NextStep::Act(action) = host_step_without_store(&record, &view) {
                let done = self.act(&guest, Some(&record), note, &action).await;
                let text = match done {
                    Ok(()) => format!("{guest}: {}, as etcd is gone", action.in_words()),
                    Err(why) => why.to_string(),
                };
                self.member.status_log.log_of("move", &guest, &text);
            }
        }
        sleep(RETRY).await;
        Turn::Waiting
    }
}
