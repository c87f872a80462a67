//! A fake QEMU as a state machine, and a peer that speaks QMP over a Unix socket, for tests and
//! benchmarks.
//!
//! Idea: to its client a [`Machine`] behaves like QEMU 7.2 with a balloon, memory devices if
//! wanted, and a guest that follows them: greeting, negotiation, the replies and errors of the real
//! QEMU, one client at a time. [`Misbehaviour`] makes it behave like a broken, hostile or hanging
//! hypervisor. It does no I/O; a [`Peer`] drives one over a socket.
//!
//! Limits: only the commands that Ballast sends; the guest is a number that changes at a given
//! rate, or as the test says.

#![forbid(unsafe_code)]

mod failure;
mod machine;
mod migration;
mod objects;
mod peer;
mod peer_config;
mod plugged;

pub use machine::{Answer, Claims, Machine};
pub use peer::Peer;
pub use peer_config::{Misbehaviour, PeerConfig, PeerHotplug};
