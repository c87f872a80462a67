//! Observes and controls QEMU guests through the QEMU Machine Protocol (QMP).
//!
//! Idea: layers. The lower ones have no I/O and take time as a parameter: [`codec`] finds messages
//! in bytes, [`session`] matches replies to commands, [`guest`] keeps the state of one guest,
//! [`link`] says when to reconnect to it and which orders are outdated. [`client`] and [`fleet`]
//! use Unix sockets: `client` is one connection, `fleet` all guests of a host; [`migration`] moves
//! a guest between two QEMUs. Start reading at `session.rs`.
//!
//! Limits: this crate makes no decisions. It samples guests, carries out one
//! [`Action`](ballast_model::Action) at a time per guest, and reports the outcome. Linux only.

#![forbid(unsafe_code)]

pub mod backoff;
pub mod client;
pub mod codec;
pub mod command;
pub mod fleet;
pub mod guest;
pub mod link;
pub mod migration;
pub mod session;
