//! A xenstore in memory, for tests and benchmarks without Xen.
//!
//! - [`StorePeer`]: the store without I/O, bytes of clients in, its own bytes out.
//! - [`serve`]: the same on a socket.
//! - [`try_session`]: a session with whatever listens instead.
//! - [`RealStore`]: Xen's own xenstored, which the first two are compared with.
//!
//! Limits: the requests of [`Request`](crate::Request); every client is dom0's.

mod hostile;
mod peer;
mod real;
mod serve;

pub use hostile::try_session;
pub use peer::{Fault, StorePeer};
pub use real::RealStore;
pub use serve::{SharedStore, serve};
