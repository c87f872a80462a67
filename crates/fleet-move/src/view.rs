//! What a host sees of one guest, and which actions its hypervisor and its daemon offer.
//!
//! Idea: only a few states, those that a hypervisor can tell for certain. `Unknown` is not
//! `Absent`: no role draws conclusions from a hypervisor that does not answer.
//! Limits: actions are carried out one at a time, and the host is looked at again before the next
//! one.

use std::net::SocketAddr;

use ballast_fleet::HostId;
use ballast_model::{Bytes, Timestamp};

use crate::{CarriedState, MoveRecord, Term};

/// What a host sees of a guest.
#[derive(Clone, Debug)]
pub struct HostView {
    /// The name of the host.
    pub host: HostId,
    /// The time on its clock, since 1970.
    pub now: Timestamp,
    /// The election in force, as the store has it.
    pub term: Term,
    /// The guest's hypervisor here.
    pub process: Process,
    /// The memory that is promised here to the guest before it arrives.
    pub promise: Promise,
    /// The shrinking that the source asked for before the copy, if any.
    pub shrink: Option<Shrink>,
    /// The guest's allocation here; `None` if it is not known.
    pub holds: Option<Bytes>,
    /// Whether this machine has noted that it takes part in the move, as a destination also that it
    /// waits for the guest. If not, the guest's absence says nothing once there is something to
    /// lose ([`MoveRecord::can_be_joined`]): the notes are lost, or the guest is on another machine
    /// that has, or had, the host's name.
    pub has_part: bool,
    /// Whether the limits and credits that the guest carried are in force here.
    pub is_taken_over: bool,
    /// What would be carried along with the guest now.
    pub carried: CarriedState,
    /// Whether the program that copies guests here ends the source's hypervisor itself once the
    /// destination has the whole guest, which stands still. libvirt does, between two hosts. With
    /// such a program a destination that is open to a guest is [`Process::Waiting`], whether it has
    /// a hypervisor or not; a source whose copy was begun for this order and is not under way is
    /// [`CopyState::Failed`].
    pub ends_source: bool,
    /// Whether the host begins moves. If not, it abandons moves that are not being copied yet, and
    /// finishes the others.
    pub begins_moves: bool,
}

/// A guest's hypervisor on one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Process {
    /// It is unknown whether there is one.
    Unknown,
    /// There is certainly none.
    Absent,
    /// [`HostAction::Listen`] started it. It has nothing of the guest, or a part.
    Waiting(SocketAddr),
    /// [`HostAction::Listen`] started it. It has the whole guest, which has not run here. It stops
    /// being `Loaded` when [`HostAction::Start`] begins. Before the record leaves `Starting`, that
    /// is noted where a crash cannot lose it; else a guest that somebody paused later could be
    /// taken for one that never ran.
    Loaded,
    /// The guest runs here.
    Runs(CopyState),
    /// The guest stands still here after it was copied whole to another hypervisor.
    Left,
    /// There is certainly none: the program that copied it for this order has ended it, because the
    /// destination has the whole guest. If it died, it is [`Process::Absent`].
    Ended,
    /// The guest stands still here for another reason.
    Paused,
}

/// What the hypervisor of a running guest reports of its last copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopyState {
    /// Nothing is being copied, and nothing of this move has failed.
    Nothing,
    /// It is being copied.
    Partly,
    /// The copy failed or was cancelled.
    Failed,
}

/// The memory that a host keeps for a guest before it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Promise {
    /// Nothing.
    Nothing,
    /// There is no room for it.
    Refused,
    /// A reservation.
    Reserved {
        /// Its size.
        size: Bytes,
        /// Whether all of it is free by now.
        is_ready: bool,
    },
    /// The guest's hypervisor is one of the host's guests, with an entitlement of its own.
    Entitled,
}

/// The shrinking of a guest before it is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shrink {
    /// The most memory that it is to hold.
    pub to: Bytes,
    /// Whether it holds no more than that, within [`SHRINK_TOLERANCE`](crate::SHRINK_TOLERANCE).
    pub is_done: bool,
}

/// An action of a host. Each may be done twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostAction {
    /// Destination: reserve this much memory for the guest.
    Reserve(Bytes),
    /// Destination: end that reservation.
    Release,
    /// Destination: start a hypervisor that listens and does not start the guest by itself.
    Listen,
    /// Destination: end a hypervisor whose guest has not run here.
    End,
    /// Destination: turn the reservation into the entitlement of the hypervisor that has loaded the
    /// guest, and put in force what the guest carried. Does nothing if there is no such hypervisor.
    TakeOver(Box<CarriedState>),
    /// Destination: note that the guest is about to run here, if it can be noted, then start it.
    Start,
    /// Source: lower the guest's ceiling to this until it is copied.
    Shrink(Bytes),
    /// Source: give the guest its own ceiling back.
    EndShrink,
    /// Source: copy the guest to this address.
    Copy(SocketAddr),
    /// Source: stop copying; the guest runs on.
    CancelCopy,
    /// Source: let the guest that stands still run again.
    Resume,
    /// Source: end the hypervisor of a guest that runs elsewhere.
    Quit,
}

impl HostAction {
    /// The action in words, for people.
    pub fn in_words(&self) -> String {
        match self {
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
}

/// What a role does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Nothing, until something has changed.
    Wait,
    /// Replace the record that was read by this one, if it has not changed.
    Write(Box<MoveRecord>),
    /// Remove the record that was read, if it has not changed.
    Remove,
    /// Do this, then look again.
    Act(HostAction),
}

impl NextStep {
    pub(crate) fn write(record: MoveRecord) -> NextStep {
        NextStep::Write(Box::new(record))
    }
}
