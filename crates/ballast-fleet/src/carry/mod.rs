//! A host's part in moving guests: orders that name it are carried out.
//!
//! Idea: a turn reads who leads and all orders at once, looks at each guest that an order or a note
//! of this host is about, asks `ballast-fleet-move` for the one next thing, and does that. Then all
//! is read and looked at again. What a crash must not lose is noted before it is done.
//! Only the machine that is registered under the host's name begins anything; what it began, it
//! ends also when its registration is gone, or its mode is no longer `move`: what is not copied yet
//! is given up then, and the rest finished.
//!
//! | file | answers |
//! |---|---|
//! | `hypervisor` | what is asked of a guest's hypervisor? |
//! | `qemu`, `libvirt`, `choice` | how is that said to QEMU, to libvirt, and to which of them? |
//! | `seen` | what does the host see of a guest? |
//! | `act` | how is each thing done, with the daemon and the hypervisor? |
//! | `note` | what is noted? |
//! | `measure` | how fast do guests write, and how fast are copies? |
//!
//! Cost: nothing while no order names this host but a watch; then one read of orders a step.
//! Limits: guests take turns, one step each.

mod act;
mod choice;
mod hypervisor;
mod libvirt;
mod measure;
mod note;
mod qemu;
mod seen;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use ballast_fleet_move::{MoveRecord, Next, Phase, Term, host_step, host_step_without_store};
use ballast_fleet_proto::{
    Condition, Coordinator, CoordinatorError, FleetKey, FleetView, Follow, KeyEvent, KeyWrite,
    PutResult, Revision,
};
use ballast_model::GuestId;
use tokio::time::{sleep, timeout};

use crate::config::FleetMode;
use crate::host_record::Daemon;
use crate::session::{Member, RETRY};
use note::{Note, Notes};
use seen::Seen;

pub use choice::AnyHypervisor;
pub use hypervisor::{CopyProgress, Hypervisor, HypervisorError, HypervisorView};
pub(crate) use libvirt::ADDRESS;
pub use libvirt::{Libvirt, LibvirtConfig};
pub(crate) use qemu::GUEST;
pub use qemu::{Qemu, QemuConfig};

/// Time between two turns while a guest is on its way; a change of an order ends the wait.
const TURN: Duration = Duration::from_millis(500);
/// The same while it is copied or stands still: what passes until it runs again is its downtime.
const TURN_OF_COPY: Duration = Duration::from_millis(100);
/// Without a change for this long, orders are read again: a connection may have died in silence.
const FOLLOW_FOR: Duration = Duration::from_secs(600);

/// Carries out orders on one host.
pub struct Carrier<'a, C, D, H> {
    member: &'a Member<C, D>,
    hypervisor: H,
    notes: RefCell<Notes>,
    /// The orders that were read last.
    last: RefCell<BTreeMap<GuestId, MoveRecord>>,
}

/// The guests that a host has noted something of in `folder`: moves that it has begun.
///
/// # Errors
/// The notes cannot be read.
pub fn noted_moves(folder: &Path) -> io::Result<Vec<GuestId>> {
    match folder.exists() {
        true => Ok(Notes::open(folder)?.guests().cloned().collect()),
        false => Ok(Vec::new()),
    }
}

/// What a turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// Nothing here is on its way.
    Idle,
    /// Something is, and nothing was to be done.
    Waits,
    /// Something was done: more may follow.
    Did,
}

impl<'a, C: Coordinator, D: Daemon, H: Hypervisor> Carrier<'a, C, D, H> {
    /// Of the host of `member`, with its notes in `folder`.
    ///
    /// # Errors
    /// The notes cannot be read.
    pub fn new(
        member: &'a Member<C, D>,
        hypervisor: H,
        folder: &Path,
    ) -> io::Result<Carrier<'a, C, D, H>> {
        let notes = RefCell::new(Notes::open(folder)?);
        Ok(Carrier { member, hypervisor, notes, last: RefCell::default() })
    }

    /// Carries out orders, and measures, for as long as this is polled. In mode `advise` it only
    /// ends what has begun.
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
                Turn::Did => {}
                Turn::Waits => self.wait(&mut watch, self.pause()).await,
                Turn::Idle => self.wait(&mut watch, FOLLOW_FOR).await,
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
            true => TURN_OF_COPY,
            false => TURN,
        }
    }

    /// Waits for an order of this host to change, at most `pause`.
    async fn wait(&self, watch: &mut Option<C::Watch>, pause: Duration) {
        let Some(following) = watch else { return sleep(RETRY.min(pause)).await };
        let change = timeout(pause, async {
            loop {
                match following.next().await {
                    Ok(changes) if changes.events.iter().any(|it| self.is_ours(it)) => {
                        return Ok(());
                    }
                    Ok(_) => {}
                    Err(error) => return Err(error),
                }
            }
        });
        // Whatever ends it, all is read again. A watch in which nothing comes for long may be dead.
        match change.await {
            Ok(Ok(())) => {}
            Err(_) if pause < FOLLOW_FOR => {}
            Ok(Err(_)) | Err(_) => *watch = None,
        }
    }

    fn is_ours(&self, event: &KeyEvent) -> bool {
        match event {
            KeyEvent::Gone(_) => false,
            KeyEvent::Written(entry) => {
                MoveRecord::parse(&entry.value).is_ok_and(|record| self.is_about_here(&record))
            }
        }
    }

    fn is_about_here(&self, record: &MoveRecord) -> bool {
        let here = &self.member.config.host;
        record.from == *here || record.to == *here
    }

    /// Takes each guest of interest one step further.
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
        self.member.speaker.say("orders", "orders are read");
        let term = Term(view.leader().map_or(0, |(_, revision)| revision.0));
        let mut last = BTreeMap::new();
        let mut guests: Vec<GuestId> = self.notes.borrow().guests().cloned().collect();
        let is_registered = self.member.identity.get().is_some();
        for (guest, entry) in view.moves() {
            match &entry.record {
                Ok(record) if self.is_about_here(record) => {
                    last.insert(guest.clone(), record.clone());
                    if is_registered && !guests.contains(guest) {
                        guests.push(guest.clone());
                    }
                }
                Ok(_) => {}
                Err(why) => {
                    let text = format!("the order of {guest} is left alone: {why}");
                    self.member.speaker.say("unreadable order", &text);
                }
            }
        }
        self.last.replace(last);
        let mut turn = Turn::Idle;
        for guest in guests {
            let entry = view.move_of(&guest);
            // Whoever cannot read an order does not put away what it may be about.
            let step = match entry.map(|entry| (entry.record.as_ref(), entry.written)) {
                Some((Err(_), _)) => Ok(Turn::Waits),
                Some((Ok(record), written)) => {
                    self.step(&guest, Some((record, written)), term).await
                }
                None => self.step(&guest, None, term).await,
            };
            turn = turn.max(step.unwrap_or_else(|why| {
                self.member.speaker.say_of("move", &guest, &why);
                Turn::Waits
            }));
        }
        turn
    }

    /// One step of one guest; an error says what did not work and is tried again.
    async fn step(
        &self,
        guest: &GuestId,
        found: Option<(&MoveRecord, Revision)>,
        term: Term,
    ) -> Result<Turn, String> {
        // An order of others only says that nothing of this guest is under way here.
        let found = found.filter(|(record, _)| self.is_about_here(record));
        let record = found.map(|(record, _)| record);
        let noted = self.notes.borrow().of(guest).cloned().unwrap_or_default();
        let mut note = match record {
            Some(record) => noted.for_order(record),
            None => noted,
        };
        self.take_over_later(guest, &mut note).await?;
        let seen = self.look(guest, record, &mut note).await;
        if note.began_copy
            && let Some(bandwidth) = seen.bandwidth_per_s()
        {
            self.member.measured.borrow_mut().bandwidth_per_s = Some(bandwidth);
        }
        let next = host_step(record, &seen.view(self.member, term));
        match (next, found) {
            (Next::Act(action), _) => {
                let text = format!("{guest}: {}", action.in_words());
                self.member.speaker.say_of("move", guest, &text);
                self.act(guest, record, note, &action).await?;
                Ok(Turn::Did)
            }
            (Next::Write(next), Some((_, written))) => {
                match self.write(&next, written).await.map_err(|error| error.to_string())? {
                    PutResult::Written(_) => {
                        if matches!(next.phase, Phase::Copied { .. }) {
                            self.member.metrics.moves.count_copied(seen.copied());
                        }
                        let text = format!("{guest}: {}", next.in_words());
                        self.member.speaker.say_of("move", guest, &text);
                        Ok(Turn::Did)
                    }
                    PutResult::Differs => Ok(Turn::Waits),
                }
            }
            (Next::Wait, None) => self.close(guest, note, &seen).await,
            (Next::Wait | Next::Write(_) | Next::Remove, _) => {
                self.say_progress(guest, &seen);
                Ok(Turn::Waits)
            }
        }
    }

    /// Puts `next` in place of the record that this revision wrote.
    async fn write(
        &self,
        next: &MoveRecord,
        found: Revision,
    ) -> Result<PutResult, CoordinatorError> {
        let config = &self.member.config;
        let key = config.keys.key(&FleetKey::Move(next.guest.clone()));
        let mut conditions = vec![Condition { key: key.clone(), written: Some(found) }];
        // Not in the name of a host that another machine is by now.
        if let Some(identity) = self.member.identity.get() {
            let key = config.keys.key(&FleetKey::Identity(config.host.clone()));
            conditions.push(Condition { key, written: Some(identity) });
        }
        let value = next.to_json().into_bytes();
        let write = KeyWrite::Put { key, value, lease: None };
        self.member.coordinator.compare_and_put(&conditions, vec![write]).await
    }

    /// Nothing of a move is under way any more: what was noted goes.
    async fn close(&self, guest: &GuestId, mut note: Note, seen: &Seen) -> Result<Turn, String> {
        if seen.is_absent() {
            note.to_take_over = None;
            if note.is_listener {
                // It may have been started without ever having listened; usually there is none.
                let _ = self.hypervisor.end(guest).await;
            }
        }
        if seen.is_nothing_promised() {
            // The reservation has ended by itself, or with the guest that it became.
            note.reserved = None;
        }
        match note.is_done() {
            true => {
                self.notes.borrow_mut().remove(guest).map_err(|error| error.to_string())?;
                Ok(Turn::Idle)
            }
            false => Ok(Turn::Waits),
        }
    }

    /// What is done while the store is out of reach.
    async fn turn_without_store(&self, error: &CoordinatorError) -> Turn {
        let text = format!("cannot read orders: {error}");
        self.member.speaker.say("orders", &text);
        let last = self.last.borrow().clone();
        for (guest, record) in last {
            let Some(mut note) = self.notes.borrow().of(&guest).cloned() else { continue };
            let seen = self.look(&guest, Some(&record), &mut note).await;
            let view = seen.view(self.member, record.term);
            if let Next::Act(action) = host_step_without_store(&record, &view) {
                let done = self.act(&guest, Some(&record), note, &action).await;
                let text = match done {
                    Ok(()) => format!("{guest}: {}, as etcd is gone", action.in_words()),
                    Err(why) => why,
                };
                self.member.speaker.say_of("move", &guest, &text);
            }
        }
        sleep(RETRY).await;
        Turn::Waits
    }

    fn say_progress(&self, guest: &GuestId, seen: &Seen) {
        if let Some(CopyProgress { sent, remaining, .. }) = seen.copy_under_way() {
            let text = format!("{guest}: {sent} copied, {remaining} left");
            self.member.speaker.say_of("copy", guest, &text);
        }
    }
}
