//! A xenstore in memory, for tests and benchmarks without Xen.
//!
//! - [`StorePeer`]: the store without I/O; bytes of clients in, bytes to clients out.
//! - [`serve`]: the same on a socket.
//! - [`try_session`]: a session with a hostile program in place of the store.
//! - [`RealStore`]: Xen's own xenstored, which the first two are compared with.
//!
//! Limits: only the requests of [`Request`](crate::Request); every client counts as one in dom0.

mod hostile;
mod peer;
mod real;
mod serve;

pub use hostile::try_session;
pub use peer::{Fault, StorePeer};
pub use real::RealStore;
pub use serve::{SharedStore, serve};
