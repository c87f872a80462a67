//! Moving one guest to another host: three roles that agree by one record.
//!
//! Idea: a move is a [`MoveRecord`] under one key of the coordinator, which writes a record
//! only if the old one is still as it was read (compare and put). A leader orders the move, the
//! destination makes room and listens, the source copies. Each role is a function of the record and
//! of what it sees itself, and answers with one [`Next`]: the next write, or one thing to do.
//! Nothing else is remembered: a role that crashed reads the record, looks, and goes on. Whatever
//! it does may be done twice.
//!
//! | phase | written by | the guest runs at | promised at the destination |
//! |---|---|---|---|
//! | `Ordered` | leader | source | once reserved |
//! | `Ready` | destination: it has reserved, and an empty hypervisor listens | source | yes |
//! | `Copying` | source, before it copies | source | yes |
//! | `Copied` | source: its hypervisor has stopped the guest and sent all of it | nowhere | yes |
//! | `Starting` | destination, before it starts the guest | destination | yes |
//! | `Moved` | destination: the guest runs | destination | as entitlement |
//! | `Abandoned` | whoever may, up to `Copied` | source | until it is given back |
//! | `Lost` | destination: its hypervisor died after `Starting` | nowhere | until it is given back |
//!
//! What each phase promises:
//! - One write decides where the guest lives: `Starting`. Before, it is the source's, and its copy
//!   at the destination is never started; after, it is the destination's, and the source's copy
//!   never runs again. So at most one copy runs, and never an outdated one.
//! - Up to `Copying` any of the three may abandon. In `Copied` only the source may, whose copy is
//!   whole, or a destination whose copy is gone.
//! - Where whoever copies ends the source by itself ([`HostView::ends_source`], as libvirt does),
//!   only the source may abandon in `Copying`, once it has seen that nothing is copied: nobody else
//!   can know whether the destination has the only copy. That the source's hypervisor was ended as
//!   copied is another thing than that it died ([`Process::Ended`]).
//! - Memory is promised at both hosts from `Ready` on: at the destination before a hypervisor
//!   listens there, at the source until its hypervisor has ended. A destination promises by its own
//!   reservations, so that two moves cannot be promised the same memory, whoever ordered them.
//! - The last write is the source's: a record is closed once nothing of the move is left there.
//!
//! | file | answers |
//! |---|---|
//! | `record` | what is agreed on, and who may change it? |
//! | `carried` | what goes along with a guest? |
//! | `wire` | how is a record written down, and which are believed? |
//! | `view` | what does a host see of a guest, and what can be asked of it? |
//! | `host` | what does a host do next about a guest? |
//! | `leader`, `source`, `destination`, `put_away` | what does each role do next? |
//! | `tests/world`, `tests/explore` | does every order of events keep the promises? |
//!
//! Limits: reads of the store have to be linearizable. While it cannot be reached between `Copying`
//! and `Moved`, the guest may stand still at both hosts: nobody guesses. A destination that dies
//! between `Starting` and `Moved` takes the guest with it, as a host does that dies with any guest.
//! No program uses this yet (`docs/fleet.md`).

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

mod carried;
mod destination;
mod host;
pub mod leader;
mod put_away;
mod record;
mod source;
#[cfg(test)]
mod tests;
mod view;
mod wire;

pub use carried::{Carried, CarriedThrash};
pub use host::{host_step, host_step_without_store};
pub use record::{MoveOrder, MoveRecord, Phase, START_PATIENCE, Term, WhyAbandoned};
pub use view::{CopyState, HostAction, HostView, Next, Process, Promise, Shrink};
pub use wire::{RECORD_BYTES_MAX, RecordError};
