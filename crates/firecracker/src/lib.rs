//! Firecracker: its guests, by the REST API on each one's socket.
//!
//! Idea: `/vm/config` says once what a guest was booted with; `/balloon/statistics` and
//! `/hotplug/memory` say what it holds, and `/balloon` and `/hotplug/memory` move that.
//! [`FirecrackerGuest`] is that without I/O; `ballast-rest` makes the calls.
//!
//! ```text
//! api        what is read of the answers
//! freshness  how old statistics without a date are
//! memory     what an order asks for
//! guest      which calls make up a sample, and what the answers mean
//! ```
//!
//! Source: src/firecracker/swagger/firecracker.yaml of Firecracker 1.16.1, and what its code does
//! where that says nothing. Limits: Firecracker says with a balloon's statistics alone what that
//! holds, and those have to be configured before boot: a balloon without them is not used.

#![forbid(unsafe_code)]

mod api;
mod freshness;
mod guest;
mod memory;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use api::{BalloonStats, HotplugStatus, Instance, VmConfig};
pub use freshness::Freshness;
pub use guest::FirecrackerGuest;
pub use memory::{Layout, Orders};
