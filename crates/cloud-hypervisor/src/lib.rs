//! Cloud Hypervisor: its guests, by the REST API on each one's socket.
//!
//! Idea: `vm.info` says what a guest was started with and what it holds; `vm.resize` moves its
//! balloon and its plugged memory. [`CloudHypervisorGuest`] is that without I/O; `ballast-rest`
//! makes the calls.
//!
//! ```text
//! api      what is read of the answers
//! memory   boot memory, what can be plugged in and the balloon: what an order asks for
//! guest    which calls make up a sample, and what the answers mean
//! ```
//!
//! Source: vmm/src/api/openapi/cloud-hypervisor.yaml of Cloud Hypervisor 53.0, API version 0.3.0,
//! and what its code does where that says nothing. Limits: there are no statistics of the balloon
//! at all, so a guest is moved only if an agent in it reports; `vm.counters` counts disks and
//! networks and nothing of memory, so it is not asked. Memory plugged in by ACPI cannot be taken
//! out again: it is left alone.

#![forbid(unsafe_code)]

mod api;
mod guest;
mod memory;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use api::{Info, Ping, Version};
pub use guest::CloudHypervisorGuest;
pub use memory::{Device, Layout, Orders};
