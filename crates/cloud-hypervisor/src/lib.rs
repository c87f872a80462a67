//! The guests of Cloud Hypervisor, through the REST API on each guest's socket.
//!
//! Idea: `vm.info` returns a guest's configuration and what it holds, `vm.counters` what it read
//! from its disks; `vm.resize` changes its balloon and its plugged memory.
//! [`CloudHypervisorGuest`] has no I/O; `ballast-rest` makes the calls.
//!
//! ```text
//! api      the fields that are read of the answers
//! memory   boot memory, pluggable memory and balloon; the calls of an order
//! guest    the calls of a sample and of an order, and the meaning of the answers
//! ```
//!
//! Source: vmm/src/api/openapi/cloud-hypervisor.yaml of Cloud Hypervisor 53.0, API version 0.3.0,
//! and its code where that says nothing. Limits: the balloon has no statistics, so a guest is
//! balanced only if an agent in it reports. Disks behind vhost-user have no counters. Memory that
//! is plugged in by ACPI cannot be taken out again: it is left alone.

#![forbid(unsafe_code)]

mod api;
mod guest;
mod memory;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use api::{Info, Ping, Version};
pub use guest::{CLOUD_HYPERVISOR, CloudHypervisorGuest};
pub use memory::{Device, Layout, Orders};
