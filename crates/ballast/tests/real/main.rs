//! The daemon with real guests.

mod balancing;
mod containers;
mod fleet;
mod fleet_unit;
#[path = "../harness/mod.rs"]
mod harness;
mod libvirt;
mod merging;
mod neighbours;
mod packages;
mod paging;
mod rest;
mod sampled;
mod support;
mod tour;
mod unit;
mod vsock;
mod xen;
