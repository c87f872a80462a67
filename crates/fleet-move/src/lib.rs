//! The protocol that moves one guest to another host: three roles that agree by one record.
//!
//! Idea: a move is a [`MoveRecord`] under one key of the coordinator, which replaces a record only
//! if it is still as the writer read it (compare and put). The leader orders the move, the
//! destination reserves memory and listens, the source copies. Each role is a function of the
//! record and of what it sees itself; it returns one [`NextStep`]: the next write, or one action.
//! It keeps no other state: a role that crashed reads the record, looks at its host, and goes on.
//! Every action may therefore be done twice.
//!
//! | phase | written by | the guest lives at | memory promised at the destination |
//! |---|---|---|---|
//! | `Ordered` | leader | source | once reserved |
//! | `Ready` | destination: it has reserved, and an empty hypervisor listens | source | yes |
//! | `Copying` | source, before it copies | source | yes |
//! | `Copied` | source: its hypervisor has stopped the guest and sent all of it | nowhere | yes |
//! | `Starting` | destination, before it starts the guest | destination | yes |
//! | `Moved` | destination: the guest runs | destination | as entitlement |
//! | `Abandoned` | a role that may (see below), up to `Copied` | source | until it is released |
//! | `Lost` | destination: its hypervisor died after `Starting` | nowhere | until it is released |
//!
//! What the phases guarantee:
//! - One write decides where the guest lives: `Starting`. Before it, the guest lives at the source,
//!   and its copy at the destination is never started. After it, the guest lives at the
//!   destination, and the source's copy never runs again. So at most one copy runs, and never an
//!   outdated one.
//! - Up to `Copying` any of the three roles may abandon the move. In `Copied` only two may: the
//!   source, which has a whole copy, or a destination whose copy is gone.
//! - Some programs that copy, such as libvirt, end the source's hypervisor themselves
//!   ([`HostView::ends_source`]). With them, only the source may abandon in `Copying`, and only
//!   after it has seen that nothing is being copied: no other role can know whether the destination
//!   has the only copy. A source hypervisor that was ended after the copy is [`Process::Ended`],
//!   which is different from one that died.
//! - Once there is something to lose, only a machine that has noted its part in the move concludes
//!   anything from not seeing the guest ([`HostView::has_part`]). So a machine that takes over the
//!   name of another one declares no guest lost that is there.
//! - From `Ready` on, memory is promised at both hosts: at the destination before a hypervisor
//!   listens there, at the source until its hypervisor has ended. The destination promises memory
//!   by its own reservations, so the same memory is never promised to two moves, whichever leader
//!   ordered them.
//! - A guest is copied only as long as it holds no more than the destination has reserved, within
//!   [`SHRINK_TOLERANCE`]. A source that sees it hold more, even after the copy, gives the copy up.
//!   Where the program that copies ends the source, what a guest took at the very end is not seen.
//! - The last write is the source's: it closes the record once nothing of the move is left there.
//!
//! | file | answers |
//! |---|---|
//! | `record` | what is agreed on, and who may change it? |
//! | `carried` | which limits and history go along with a guest? |
//! | `wire` | how is a record written as JSON, and which records are accepted? |
//! | `view` | what does a host see of a guest, and what can be asked of it? |
//! | `host` | what does a host do next about a guest? |
//! | `leader`, `source`, `destination`, `clean_up` | what does each role do next? |
//! | `forget` | which records may an operator remove? |
//! | `tests/world`, `tests/explore` | does every order of events keep the promises? |
//!
//! Limits: reads of the store have to be linearizable. While the store cannot be reached between
//! `Copying` and `Moved`, the guest may stand still at both hosts, because no role guesses. A
//! destination that dies between `Starting` and `Moved` takes the guest with it, as any host does
//! with its guests. `docs/fleet.md` says how operators use this.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

mod carried;
mod clean_up;
mod destination;
mod forget;
mod host;
pub mod leader;
mod record;
mod source;
#[cfg(test)]
mod tests;
mod view;
mod wire;

pub use carried::{CarriedState, CarriedThrash};
pub use host::{host_step, host_step_without_store};
pub use record::{AbandonReason, MoveRecord, Phase, SHRINK_TOLERANCE, START_PATIENCE, Term};
pub use view::{CopyState, HostAction, HostView, NextStep, Process, Promise, Shrink};
pub use wire::{RECORD_BYTES_MAX, RecordError};
