//! QEMU as a state machine, and a peer that speaks QMP over a Unix socket, for tests and
//! benchmarks.
//!
//! Idea: to its client a [`Machine`] is QEMU 7.2 with a balloon, and memory devices if wanted, and
//! a guest that follows them: greeting, negotiation, the replies and errors of the real thing, one
//! client at a time. [`Misbehaviour`] makes it do what broken, hostile or hanging hypervisors do.
//! It does no I/O; a [`Peer`] drives one over a socket.
//!
//! Limits: only the commands Ballast sends; the guest is a figure that moves at a given rate, or as
//! somebody else says.

#![forbid(unsafe_code)]

mod failure;
mod machine;
mod moving;
mod objects;
mod peer;
mod peer_config;
mod plugged;

pub use machine::{Answer, Claims, Machine};
pub use peer::Peer;
pub use peer_config::{Misbehaviour, PeerConfig, PeerHotplug};
