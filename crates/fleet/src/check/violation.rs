//! What can be wrong with a plan of migrations.

use ballast_model::{Bytes, GuestId};

use crate::HostId;

/// What is wrong with a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A host that is not in the snapshot.
    #[error("host {0} is not in the snapshot")]
    UnknownHost(HostId),
    /// A guest that is not on the host it is to leave.
    #[error("{0} is not on {1}")]
    UnknownGuest(GuestId, HostId),
    /// Two migrations of one guest.
    #[error("{0} of {1} is moved twice")]
    Twice(GuestId, HostId),
    /// From a host to itself.
    #[error("{0} is moved to the host it is on")]
    ToItself(GuestId),
    /// A host whose record is too old, or from the future.
    #[error("the record of host {0} is too old to go by")]
    StaleHost(HostId),
    /// A draining host receives a guest.
    #[error("{0} goes to a draining host")]
    ToDrained(GuestId),
    /// A guest that must not be moved now; the text says why.
    #[error("{0} must not be moved: {1}")]
    Untouchable(GuestId, &'static str),
    /// The destination cannot run the guest; the text says what differs.
    #[error("{0} cannot run at its destination: {1}")]
    Incompatible(GuestId, &'static str),
    /// Two guests of one group on one host.
    #[error("{0} goes to a host with a guest of its group")]
    SameGroup(GuestId),
    /// Two guests of one name on one host.
    #[error("{0} goes to a host with a guest of its name")]
    NameTaken(GuestId),
    /// The guest is shrunk below what it should have: the planned target, and the least one.
    #[error("{0} is shrunk to {1} before it is copied: expected at least {2}")]
    ShrunkTooFar(GuestId, Bytes, Bytes),
    /// A guest that gives no memory is to be shrunk.
    #[error("{0} is to be shrunk and gives nothing")]
    CannotShrink(GuestId),
    /// The destination reserves less than the guest should have: the size, and the least one.
    #[error("{1} are reserved for {0}: expected at least {2}")]
    ReservesTooLittle(GuestId, Bytes, Bytes),
    /// A figure of a migration that does not follow from the snapshot.
    #[error("the {1} of {0} do not follow from the snapshot")]
    WrongFigure(GuestId, &'static str),
    /// More is reserved on a host than it has room for: the sum of all reservations, and the room.
    #[error("{1} are reserved on {0}, which has room for {2}")]
    NoRoom(HostId, Bytes, Bytes),
    /// Copies and arrivals take more memory of a host than it has free: what all copies from it
    /// fill and what comes to it meanwhile; and what is free beyond the reserve and promises.
    #[error("copies fill {1} of {0}, which has {2} free beyond its reserve")]
    FillsTooMuch(HostId, Bytes, Bytes),
    /// More migrations at once, with those under way, than the setting allows.
    #[error("{0} migrations at once: at most {1}")]
    TooMany(usize, usize),
    /// The reason is not true; the text says why.
    #[error("{0} has no reason to be moved: {1}")]
    NoReason(GuestId, &'static str),
    /// Its host would have enough without this migration.
    #[error("{0} is moved, and its host would have enough without that")]
    Needless(GuestId),
}
