//! Ballast's hands and eyes on QEMU: the QEMU Machine Protocol.
//!
//! Idea: layers, the lower ones without I/O and with time as a parameter: [`codec`] finds messages in
//! bytes, [`session`] matches replies to commands, [`guest`] knows what one guest is and does.
//! [`client`] and [`fleet`] connect them to Unix sockets: `client` one connection, `fleet` all guests
//! of a host.
//!
//! Limits: this crate decides nothing. It reads, carries out one
//! [`Action`](ballast_model::Action) at a time per guest, and says what came of it. Linux only.

#![forbid(unsafe_code)]

pub mod backoff;
pub mod client;
pub mod codec;
pub mod command;
pub mod fleet;
pub mod guest;
pub mod session;
#[cfg(feature = "testing")]
pub mod testing;
