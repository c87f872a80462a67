//! The guests of Firecracker, through the REST API on each guest's socket.
//!
//! Idea: `/vm/config` is read once, for the configuration at boot; `/balloon/statistics` and
//! `/hotplug/memory` return what a guest holds, and `/balloon` and `/hotplug/memory` change that.
//! [`FirecrackerGuest`] has no I/O; `ballast-rest` makes the calls.
//!
//! ```text
//! api        the fields that are read of the answers
//! freshness  the age of statistics that carry no time
//! memory     the calls of an order
//! guest      the calls of a sample and of an order, and the meaning of the answers
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
pub use guest::{FIRECRACKER, FirecrackerGuest};
pub use memory::{Layout, Orders};
