//! The guests of Firecracker, through the REST API on each guest's socket.
//!
//! Idea: `/vm/config` is read once, for the configuration at boot; `/balloon/statistics` and
//! `/hotplug/memory` return what a guest holds, and `/balloon` and `/hotplug/memory` change that.
//! [`FirecrackerGuest`] has no I/O; `ballast-rest` makes the calls.
//!
//! ```text
//! api        what is read of the answers
//! freshness  how old statistics without a date are
//! memory     what an order asks for
//! guest      which calls make up a sample, and what the answers mean
//! ```
//!
//! Source: src/firecracker/swagger/firecracker.yaml of Firecracker 1.16.1, and its code where that
//! says nothing. Limits: Firecracker reports the size of a balloon only with its statistics, which
//! have to be configured before boot: a balloon without statistics is not used.

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
