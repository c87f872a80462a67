//! Commands and actions that wait for their replies.

use std::collections::VecDeque;

use ballast_model::{Bytes, Timestamp};

use super::hotplug::ActionStep;
use crate::command::ModuleNumber;
use crate::session::CommandId;

/// Identifies an order given to a [`GuestMonitor`](super::GuestMonitor): an action or a power-down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(super) u64);

/// What a command was sent for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Status,
    Balloon,
    Stats,
    Summary,
    MemoryDevices,
    BlockStats,
    MachineMemory,
    Folder(&'static str),
    PollingInterval,
    SetPollingInterval,
    FreePageReporting,
    VsockCid,
    DeflateOnOom,
    /// A step of an action.
    Step,
    Powerdown,
    RemoveMemory(ModuleNumber),
}

/// Who waits for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requester {
    Probe,
    /// The poll of this number.
    Poll(u64),
    /// The caller with this ticket.
    Caller(Ticket),
    /// No caller waits for the reply, or none any more.
    Nobody,
}

/// A command that was sent and not answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentCommand {
    pub(super) id: CommandId,
    pub(super) purpose: Purpose,
    pub(super) requester: Requester,
    pub(super) at: Timestamp,
}

/// The queries of one tick.
#[derive(Clone, Copy, Debug)]
pub(super) struct Poll {
    pub(super) number: u64,
    pub(super) begun_at: Timestamp,
    /// Replies to come; `None` until the first probe is done and the queries can be sent.
    pub(super) pending: Option<usize>,
}

/// An action that is not finished.
#[derive(Debug)]
pub(super) struct PendingAction {
    pub(super) ticket: Ticket,
    pub(super) target: Bytes,
    pub(super) plug: Option<Bytes>,
    pub(super) deadline: Timestamp,
    /// Steps not sent yet; `None` before the action's turn.
    pub(super) steps: Option<VecDeque<ActionStep>>,
    /// The step that waits for its reply.
    pub(super) sent: Option<ActionStep>,
}
