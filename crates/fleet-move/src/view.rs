//! What a host sees of one guest, and what its hypervisor and its daemon can be asked for.
//!
//! Idea: few states that a hypervisor can tell for certain. `Unknown` is not `Absent`: nobody
//! concludes anything from a hypervisor that does not answer.
//! Limits: who carries actions out does one at a time, and looks again before the next.

use std::net::SocketAddr;

use ballast_fleet::HostId;
use ballast_model::{Bytes, Timestamp};

use crate::{Carried, MoveRecord, Term};

/// What a host sees of a guest.
#[derive(Clone, Copy, Debug)]
pub struct HostView<'a> {
    /// The host.
    pub host: &'a HostId,
    /// By its clock.
    pub now: Timestamp,
    /// The election in force, as the store has it.
    pub term: Term,
    /// The guest's hypervisor here.
    pub process: Process,
    /// The memory that [`HostAction::Reserve`] has reserved here for the guest before it arrives.
    pub promise: Promise,
    /// What the source asks of the guest before it is copied.
    pub shrink: Option<Shrink>,
    /// Whether the guest's bounds and credits are in force here.
    pub is_taken_over: bool,
    /// What would go along with the guest now.
    pub carried: &'a Carried,
    /// Whether what copies guests here ends the source's hypervisor by itself, once the other one
    /// has the whole guest and stands still, as libvirt does between two hosts. There, a
    /// destination that is open to a guest is [`Process::Waiting`], with a hypervisor or not, and a
    /// guest whose copy was begun for this order and is not under way is [`CopyState::Failed`].
    pub ends_source: bool,
    /// Whether the host begins moves. One that does not gives up what is not copied yet, and
    /// finishes the rest.
    pub begins: bool,
}

/// A guest's hypervisor on one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Process {
    /// It is not known whether there is one.
    Unknown,
    /// There is none for certain.
    Absent,
    /// It was started by [`HostAction::Listen`], and has nothing of the guest or a part.
    Waiting(SocketAddr),
    /// It was started so, and has all of the guest, which has not run here. Once
    /// [`HostAction::Start`] has begun, it is not `Loaded` any more: that is noted where a crash
    /// cannot lose it, or somebody's paused guest would pass for one that never ran.
    Loaded,
    /// The guest runs here.
    Runs(CopyState),
    /// The guest stands still here, as it was copied whole to another hypervisor.
    Left,
    /// There is none for certain: whoever copied it for this order has ended it, as the other one
    /// has the whole guest. One that died is [`Process::Absent`].
    Ended,
    /// The guest stands still here for another reason.
    Paused,
}

/// What the hypervisor of a guest that runs says of the last copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopyState {
    /// Nothing is being copied, and nothing of this move has failed.
    Nothing,
    /// It is being copied.
    Partly,
    /// That failed or was cancelled.
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
        /// Of how much.
        size: Bytes,
        /// Whether all of it is free.
        is_ready: bool,
    },
    /// Its hypervisor is one of the host's guests, with an entitlement.
    Entitled,
}

/// What is asked of a guest before it is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shrink {
    /// The most that it is to hold.
    pub to: Bytes,
    /// Whether it holds no more.
    pub is_done: bool,
}

/// What a host does. Each may be done twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostAction {
    /// Destination: reserve as much for the guest.
    Reserve(Bytes),
    /// Destination: end that reservation.
    Release,
    /// Destination: start a hypervisor that listens, and does not start the guest by itself.
    Listen,
    /// Destination: end a hypervisor whose guest has not run here.
    End,
    /// Destination: the reservation becomes the entitlement of the hypervisor that has loaded the
    /// guest, and what the guest carried counts. Nothing if there is none.
    TakeOver(Box<Carried>),
    /// Destination: note that the guest is about to run here, then start it.
    Start,
    /// Source: lower its ceiling until it is copied.
    Shrink(Bytes),
    /// Source: its own ceiling counts again.
    EndShrink,
    /// Source: copy it there.
    Copy(SocketAddr),
    /// Source: stop copying; the guest runs on.
    CancelCopy,
    /// Source: the guest that was left runs again.
    Resume,
    /// Source: end the hypervisor whose guest runs elsewhere.
    Quit,
}

impl HostAction {
    /// What is done, for people.
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
pub enum Next {
    /// Nothing until something has changed.
    Wait,
    /// Put this in place of the record that was read, if that has not changed.
    Write(Box<MoveRecord>),
    /// Remove the record that was read, if it has not changed.
    Remove,
    /// Do this, and look again.
    Act(HostAction),
}

impl Next {
    pub(crate) fn write(record: MoveRecord) -> Next {
        Next::Write(Box::new(record))
    }
}
