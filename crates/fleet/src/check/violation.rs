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
    #[error("{guest} is not on {host}")]
    UnknownGuest {
        /// The guest.
        guest: GuestId,
        /// The host.
        host: HostId,
    },
    /// Two migrations of one guest.
    #[error("{guest} of {host} is moved twice")]
    Twice {
        /// The guest.
        guest: GuestId,
        /// Its host.
        host: HostId,
    },
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
    /// The guest is shrunk below what it should have.
    #[error("{guest} is shrunk to {shrink_to} before it is copied: expected at least {least}")]
    ShrunkTooFar {
        /// The guest.
        guest: GuestId,
        /// Target planned.
        shrink_to: Bytes,
        /// The least that is allowed.
        least: Bytes,
    },
    /// A guest that gives no memory is to be shrunk.
    #[error("{0} is to be shrunk and gives nothing")]
    CannotShrink(GuestId),
    /// The destination reserves less than the guest should have.
    #[error("{reserve} are reserved for {guest}: expected at least {least}")]
    ReservesTooLittle {
        /// The guest.
        guest: GuestId,
        /// What is reserved.
        reserve: Bytes,
        /// The least that is allowed.
        least: Bytes,
    },
    /// A figure of a migration that does not follow from the snapshot.
    #[error("the {1} of {0} do not follow from the snapshot")]
    WrongFigure(GuestId, &'static str),
    /// More is reserved on a host than it has room for.
    #[error("{reserved} are reserved on {host}, which has room for {room}")]
    NoRoom {
        /// The host.
        host: HostId,
        /// The sum of all reservations.
        reserved: Bytes,
        /// The room that it has.
        room: Bytes,
    },
    /// Copies and arrivals take more memory of a host than it has free.
    #[error("copies fill {fills} of {host}, which has {vacant} free beyond its reserve")]
    FillsTooMuch {
        /// The host.
        host: HostId,
        /// What all copies from it fill, and what comes to it meanwhile.
        fills: Bytes,
        /// What is free beyond the reserve and what was promised.
        vacant: Bytes,
    },
    /// More migrations at once than the setting allows.
    #[error("{migrations} migrations at once: at most {max}")]
    TooMany {
        /// Those of the plan, and those under way.
        migrations: usize,
        /// The setting.
        max: usize,
    },
    /// The reason is not true; the text says why.
    #[error("{0} has no reason to be moved: {1}")]
    NoReason(GuestId, &'static str),
    /// Its host would have enough without this migration.
    #[error("{0} is moved, and its host would have enough without that")]
    Needless(GuestId),
}
